//! Parses TOML into a tree, and reports every syntax error.

use std::{ops::Range, sync::Arc};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    problem::Problem,
    tree::{Node, SourceText, Spot, Value},
};

/// The tree of a file, without the parts that could not be parsed.
pub(crate) fn parse(text: &Arc<SourceText>, problems: &mut Vec<Problem>) -> Node {
    let (table, errors) = DeTable::parse_recoverable(&text.text);
    let known = problems.len();
    for error in errors {
        let end = text.text.len();
        let problem = Problem::in_text(text, &error.span().unwrap_or(end..end), advice(error.message()));
        // One error per line: further ones are usually consequences.
        let is_news = |known: &Problem| {
            known.place.as_ref().map(|at| at.line) != problem.place.as_ref().map(|at| at.line)
        };
        if problems[known..].iter().all(is_news) {
            problems.push(problem);
        }
    }
    let reader = TomlReader { text, problems };
    reader.run(table)
}

/// The parser's message, shortened to its first line.
fn advice(message: &str) -> String {
    let message = message.lines().next().unwrap_or_default();
    format!("invalid TOML: {message}")
}

struct TomlReader<'a> {
    text: &'a Arc<SourceText>,
    problems: &'a mut Vec<Problem>,
}

impl TomlReader<'_> {
    fn run(mut self, table: Spanned<DeTable<'_>>) -> Node {
        let span = table.span();
        let value = self.table(table.into_inner());
        self.node(span.clone(), span, value)
    }

    fn spot(&self, span: Range<usize>) -> Spot {
        Spot::File { text: Arc::clone(self.text), span }
    }

    fn node(&self, key: Range<usize>, span: Range<usize>, value: Value) -> Node {
        Node { key: self.spot(key), spot: self.spot(span), value, is_loose: false }
    }

    fn table(&mut self, table: DeTable<'_>) -> Value {
        let entries = table.into_iter().map(|(key, value)| {
            let node = self.value(key.span(), value);
            (key.into_inner().into_owned(), node)
        });
        Value::Table(entries.collect())
    }

    fn value(&mut self, key: Range<usize>, value: Spanned<DeValue<'_>>) -> Node {
        let span = value.span();
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(integer) => Value::Integer(integer),
                Err(_) => {
                    let text = "this number is too large";
                    self.problems.push(Problem::in_text(self.text, &span, text));
                    Value::Integer(0)
                }
            },
            DeValue::Float(float) => Value::Float(float.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(yes) => Value::Bool(yes),
            DeValue::Datetime(_) => Value::Date,
            DeValue::Array(items) => {
                Value::List(items.into_iter().map(|item| self.value(item.span(), item)).collect())
            }
            DeValue::Table(table) => self.table(table),
        };
        self.node(key, span, value)
    }
}
