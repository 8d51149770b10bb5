//! The formats of report files, and the options of reports.

use std::path::Path;

use super::baseline::Changes;
use crate::{AuditResult, Verdict};

/// The format of a report file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Markdown, `.md`.
    Markdown,
    /// One HTML file without scripts, `.html`.
    Html,
    /// JSON by the published schema, `.json`.
    Json,
    /// JUnit XML, `.xml`.
    Junit,
    /// SARIF 2.1.0, `.sarif`.
    Sarif,
}

/// Extensions of report files and their formats; the first one of a format is its usual one.
const EXTENSIONS: [(&str, Format); 7] = [
    ("md", Format::Markdown),
    ("markdown", Format::Markdown),
    ("html", Format::Html),
    ("htm", Format::Html),
    ("json", Format::Json),
    ("xml", Format::Junit),
    ("sarif", Format::Sarif),
];

impl Format {
    /// The format that the extension of a path names, in any case; `out.sarif.json` is SARIF.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        let is_sarif =
            path.file_stem().and_then(|stem| Path::new(stem).extension()) == Some("sarif".as_ref());
        if extension == "json" && is_sarif {
            return Some(Self::Sarif);
        }
        EXTENSIONS.iter().find(|(name, _)| *name == extension).map(|(_, format)| *format)
    }

    /// The extensions that [`Format::of_path`] knows, for messages.
    #[must_use]
    pub fn extensions() -> Vec<&'static str> {
        EXTENSIONS.iter().map(|(name, _)| *name).collect()
    }
}

/// The demands whose breach makes an audit fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailOn {
    /// Requirements (MUST).
    #[default]
    Must,
    /// Recommendations (SHOULD), too.
    Should,
}

impl FailOn {
    /// True if a finding with this verdict makes the audit fail.
    #[must_use]
    pub fn includes(self, verdict: Verdict) -> bool {
        verdict == Verdict::Fail || (verdict == Verdict::Loose && self == Self::Should)
    }

    /// True if the audit fails.
    #[must_use]
    pub fn is_met_by(self, result: &AuditResult) -> bool {
        result.findings.iter().any(|finding| self.includes(finding.verdict))
    }
}

/// Options of reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The changes since an earlier audit.
    pub changes: Option<&'a Changes>,
    /// The demands whose breach is a failure in JUnit.
    pub fail_on: FailOn,
    /// Colour in the terminal.
    pub colour: bool,
}
