//! The log of the process, on stderr: as text or JSON.
//!
//! Much of the log comes from agents, programs and callers. As text an event is one line: line breaks,
//! control characters and bidirectional overrides are escaped when the line is written. JSON escapes them by
//! itself.

use std::io::{self, IsTerminal as _, Write};

use anyhow::{Context as _, Result};
use tracing_subscriber::EnvFilter;

use crate::{args::LogFormat, exit, output};

/// Enables the spans of requests.
const REQUEST_SPANS: &str = "nuncio::request=debug";

pub(crate) fn start(level: &str, format: LogFormat) -> Result<()> {
    let mut filter = EnvFilter::try_new(level).map_err(|error| exit::usage(error.to_string()))?;
    if format == LogFormat::Json {
        // Every event of a request carries its ids; as text that is too much.
        filter = filter.add_directive(REQUEST_SPANS.parse().context("the filter of request spans")?);
    }
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    match format {
        LogFormat::Text => {
            log.with_ansi(io::stderr().is_terminal()).with_writer(|| OneLine(io::stderr())).init()
        }
        LogFormat::Json => log.with_writer(io::stderr).json().with_span_list(false).init(),
    }
    Ok(())
}

/// Writes each event as one line. An event comes in one piece, with the end of its line.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        writeln!(self.0, "{}", output::escaped(line, acts))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// As for a row, except for the escape character of our own colours, which tracing has escaped in values
/// already.
fn acts(c: char) -> bool {
    c != '\u{1b}' && output::breaks_row(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        for (event, expected) in [
            ("INFO all is well\n", "INFO all is well\n"),
            ("WARN it said: x\nINFO all is well\n", "WARN it said: x\\nINFO all is well\n"),
            ("WARN x\r\nINFO y\n", "WARN x\\r\\nINFO y\n"),
            ("WARN x\rINFO y\n", "WARN x\\rINFO y\n"),
            ("WARN two\n\n", "WARN two\\n\n"),
            ("WARN a\tb\u{85}c\u{2028}d\u{202e}e\n", "WARN a\\tb\\u{85}c\\u{2028}d\\u{202e}e\n"),
            ("\u{1b}[33mWARN\u{1b}[0m Grüße\n", "\u{1b}[33mWARN\u{1b}[0m Grüße\n"),
        ] {
            let mut written = Vec::new();
            OneLine(&mut written).write_all(event.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), expected, "{event:?}");
        }
    }
}
