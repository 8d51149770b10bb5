//! The log of the process, on stderr: for people, or as JSON.
//!
//! Much of what is logged comes from agents, programs and callers. For people an event is one line, whatever is in it:
//! what ends a line, moves the cursor or turns text around is escaped where the line is written. JSON escapes it
//! by itself.

use std::io::{self, IsTerminal as _, Write};

use anyhow::{Context as _, Result};
use tracing_subscriber::EnvFilter;

use crate::{args::LogFormat, exit, output};

/// Shows the spans that the hub puts around requests.
const NAMES: &str = "nuncio::request=debug";

pub(crate) fn start(level: &str, format: LogFormat) -> Result<()> {
    let mut filter = EnvFilter::try_new(level).map_err(|error| exit::usage(error.to_string()))?;
    if format == LogFormat::Json {
        // The names of a request on every line about it; for people that is too much.
        filter = filter.add_directive(NAMES.parse().context("the names of requests")?);
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

/// As for a row, but for the colours, which are ours: the same character in what is logged has been escaped before.
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
