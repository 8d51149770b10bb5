//! Tests that the pages made from the catalogue are fresh.

use std::path::Path;

use crate::{
    CATALOGUE, Scope,
    report::{links, reference},
};
use nuncio_protocol::Version;

/// Compares a file of the documentation with its source; `UPDATE_DOCS=1` writes it.
pub(super) fn fresh(name: &str, content: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, content).expect("docs can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = written.lines().zip(content.lines()).position(|(old, new)| old != new);
    assert!(
        written == content,
        "docs/{name} is not fresh (first difference after line {differs:?}); run: UPDATE_DOCS=1 cargo test --workspace --lib report::"
    );
}

#[test]
fn the_page_of_checks_is_fresh() {
    fresh("audit-checks.md", &reference());
}

#[test]
fn every_check_has_its_anchor_and_every_text() {
    let page = reference();
    for check in CATALOGUE.iter() {
        let anchor = format!("<a id=\"{}\"></a>`{}`", check.id.replace('.', "-"), check.id);
        assert_eq!(page.matches(&anchor).count(), 1, "{}", check.id);
        for text in [check.title, check.why, check.fix] {
            assert!(!text.is_empty() && page.contains(text), "{}: {text}", check.id);
        }
        assert!(check.scope == Scope::Agent || !check.bindings.is_empty(), "{}", check.id);
    }
}

#[test]
fn every_cited_section_exists_in_its_version() {
    for check in CATALOGUE.iter() {
        for version in [Version::V1_0, Version::V0_3] {
            if let Some(section) = check.sections.of(version) {
                assert!(
                    links::title(version, section).is_some(),
                    "{}: {version} has no section {section}",
                    check.id
                );
            }
        }
    }
}

#[test]
fn sections_have_the_anchors_of_the_published_pages() {
    for (version, section, link) in [
        (Version::V1_0, "3.1.4", "https://a2a-protocol.org/v1.0.0/specification/#314-list-tasks"),
        (
            Version::V1_0,
            "11",
            "https://a2a-protocol.org/v1.0.0/specification/#11-httpjsonrest-protocol-binding",
        ),
        (Version::V0_3, "7.1", "https://a2a-protocol.org/v0.3.0/specification/#71-messagesend"),
        (Version::V0_3, "9", "https://a2a-protocol.org/v0.3.0/specification/#9-common-workflows-examples"),
        (Version::V0_3, "99.1", "https://a2a-protocol.org/v0.3.0/specification/"),
    ] {
        assert_eq!(links::section(version, section), link);
    }
}
