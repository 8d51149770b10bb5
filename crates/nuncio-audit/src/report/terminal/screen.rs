//! Lines of at most 80 columns, with colour on request.

use crate::{
    Verdict,
    report::text::{block, wrap},
};

/// Columns of a line.
const WIDTH: usize = 80;
/// Columns of a label before its text.
const LABEL: usize = 10;

/// The style of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Strong,
    Pass,
    Loose,
    Fail,
    Info,
}

impl Style {
    pub(super) fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Pass => Self::Pass,
            Verdict::Loose => Self::Loose,
            Verdict::Fail => Self::Fail,
            Verdict::Info => Self::Info,
            Verdict::Unseen => Self::Plain,
        }
    }

    /// The parameters of the escape sequence (ECMA-48, SGR).
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Strong => Some("1"),
            Self::Pass => Some("32"),
            Self::Loose => Some("33"),
            Self::Fail => Some("1;31"),
            Self::Info => Some("36"),
        }
    }
}

/// The text of the report as it grows.
#[derive(Debug)]
pub(super) struct Screen {
    out: String,
    colour: bool,
}

impl Screen {
    pub(super) fn new(colour: bool) -> Self {
        Self { out: String::new(), colour }
    }

    /// A line as it is.
    pub(super) fn plain(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    pub(super) fn blank(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    pub(super) fn styled(&mut self, style: Style, line: &str) {
        let line = self.coloured(style, line);
        self.plain(&line);
    }

    /// The title of the report, underlined.
    pub(super) fn title(&mut self, title: &str) {
        for line in wrap(title, WIDTH) {
            self.styled(Style::Strong, &line);
        }
        self.plain(&"=".repeat(title.chars().count().min(WIDTH)));
    }

    pub(super) fn heading(&mut self, heading: &str) {
        self.blank();
        for line in wrap(heading, WIDTH) {
            self.styled(Style::Strong, &line);
        }
    }

    /// Text that is broken into lines, all with the same indent.
    pub(super) fn text(&mut self, indent: usize, text: &str) {
        self.hanging(Style::Plain, indent, indent, "", text);
    }

    /// A name and its value at the head of the report.
    pub(super) fn field(&mut self, name: &str, value: &str) {
        self.hanging(Style::Plain, 0, LABEL, name, value);
    }

    /// A label in colour, then text whose further lines begin at column `rest`. A label that leaves no room
    /// has lines of its own.
    pub(super) fn hanging(&mut self, style: Style, indent: usize, rest: usize, label: &str, text: &str) {
        let label_end = indent + label.chars().count();
        let mut lines = wrap(text, WIDTH - rest).into_iter();
        if label_end > rest {
            for line in wrap(label, WIDTH - indent) {
                let line = self.coloured(style, &line);
                self.plain(&format!("{:indent$}{line}", ""));
            }
        } else {
            let first = lines.next().unwrap_or_default();
            let gap = rest - label_end;
            let label = self.coloured(style, label);
            self.plain(&format!("{:indent$}{label}{:gap$}{first}", "", ""));
        }
        for line in lines {
            self.plain(&format!("{:rest$}{line}", ""));
        }
    }

    /// A label and its text; nothing if the text is empty.
    pub(super) fn labelled(&mut self, indent: usize, label: &str, text: &str) {
        if !text.is_empty() {
            self.hanging(Style::Plain, indent, indent + LABEL, label, text);
        }
    }

    /// A label and lines that keep their breaks, at most `max` of them.
    pub(super) fn evidence(&mut self, indent: usize, label: &str, text: Option<&str>, max: usize) {
        let Some(text) = text else { return };
        let text = block(text).replace('\t', "  ");
        let column = indent + LABEL;
        let lines: Vec<String> = text.split('\n').flat_map(|line| break_at(line, WIDTH - column)).collect();
        for (number, line) in lines.iter().take(max).enumerate() {
            let label = if number == 0 { label } else { "" };
            self.plain(&format!("{:indent$}{label:<LABEL$}{line}", ""));
        }
        if lines.len() > max {
            self.plain(&format!("{:column$}… ({} more lines)", "", lines.len() - max));
        }
    }

    /// A label and a command, which is not broken, so that it can be copied.
    pub(super) fn command(&mut self, indent: usize, label: &str, command: Option<&str>) {
        let Some(command) = command else { return };
        for (number, line) in block(command).split('\n').enumerate() {
            let label = if number == 0 { label } else { "" };
            self.plain(&format!("{:indent$}{label:<LABEL$}{line}", ""));
        }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    fn coloured(&self, style: Style, text: &str) -> String {
        match style.code().filter(|_| self.colour && !text.is_empty()) {
            Some(code) => format!("\x1b[{code}m{text}\x1b[0m"),
            None => text.to_owned(),
        }
    }
}

/// A line in pieces of at most `width` characters, spaces kept.
fn break_at(line: &str, width: usize) -> Vec<String> {
    let characters: Vec<char> = line.chars().collect();
    if characters.is_empty() {
        return vec![String::new()];
    }
    characters.chunks(width).map(|piece| piece.iter().collect()).collect()
}
