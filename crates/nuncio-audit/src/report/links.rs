//! Links to the sections of the specification, per version.

use std::{collections::BTreeMap, sync::LazyLock};

use nuncio_protocol::Version;

use crate::{Finding, catalogue};

/// The headings of A2A 1.0.0, `number title` per line.
const HEADINGS_1_0: &str = include_str!("links/sections_1_0.txt");
/// The headings of A2A 0.3.0.
const HEADINGS_0_3: &str = include_str!("links/sections_0_3.txt");

static SECTIONS_1_0: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| sections(HEADINGS_1_0));
static SECTIONS_0_3: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| sections(HEADINGS_0_3));

fn sections(headings: &'static str) -> BTreeMap<&'static str, &'static str> {
    headings.lines().filter_map(|heading| heading.split_once(' ')).collect()
}

/// The title of a section; `None` if the version has no section of this number.
pub(super) fn title(version: Version, section: &str) -> Option<&'static str> {
    match version {
        Version::V1_0 => SECTIONS_1_0.get(section).copied(),
        Version::V0_3 => SECTIONS_0_3.get(section).copied(),
    }
}

/// The address of the specification of a version.
pub(super) fn specification(version: Version) -> &'static str {
    match version {
        Version::V1_0 => "https://a2a-protocol.org/v1.0.0/specification/",
        Version::V0_3 => "https://a2a-protocol.org/v0.3.0/specification/",
    }
}

/// The address of a section; that of the document if there is no such section.
pub(super) fn section(version: Version, section: &str) -> String {
    let page = specification(version);
    title(version, section)
        .map_or_else(|| page.to_owned(), |title| format!("{page}#{}", anchor(section, title)))
}

/// The anchor of a heading, as MkDocs makes it: `3.1.4. List Tasks` is `314-list-tasks`.
fn anchor(section: &str, title: &str) -> String {
    let heading = format!("{section}. {title}").to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    let words = kept.collect::<String>();
    words.split([' ', '-']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

/// The version and section that a finding cites. One about the whole agent cites the version whose section
/// in the catalogue it has.
pub(super) fn cited(finding: &Finding) -> Option<(Version, &str)> {
    let section = finding.section.as_deref()?;
    let of_interface = finding.interface.as_ref().and_then(|interface| Version::parse(&interface.version));
    let of_check = || {
        let sections = catalogue::find(&finding.check)?.sections;
        [Version::V1_0, Version::V0_3].into_iter().find(|version| sections.of(*version) == Some(section))
    };
    Some((of_interface.or_else(of_check).unwrap_or(Version::V1_0), section))
}
