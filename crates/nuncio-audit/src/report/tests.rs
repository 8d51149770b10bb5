//! Tests of the reports.

mod baseline;
mod docs;
mod escaping;
mod formats;
mod json_schema;
mod markup_reader;
mod sample;
mod sarif;
mod score;
mod style;
