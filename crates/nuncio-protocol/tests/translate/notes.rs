//! The table in docs/protocol-notes.md is the table.

use std::{fmt::Write as _, fs, path::Path};

use crate::{
    loss::{Direction, Row, Section, rows},
    wire::Wire,
};

const BEGIN: &str = "<!-- loss table: made from crates/nuncio-protocol/tests/translate/loss -->\n";
const END: &str = "<!-- end of the loss table -->\n";

/// The forms that a section tells apart.
fn columns(section: Section) -> &'static [(&'static str, Wire)] {
    match section {
        Section::DownProtobuf => &[("gRPC 0.3", Wire::Grpc), ("gRPC 1.0", Wire::V1Grpc)],
        Section::DownRequests
        | Section::DownAnswers
        | Section::DownCards
        | Section::UpRequests
        | Section::UpAnswers
        | Section::UpCards
        | Section::UpErrors => {
            &[("JSON-RPC", Wire::JsonRpc), ("HTTP+JSON", Wire::Rest), ("gRPC", Wire::Grpc)]
        }
    }
}

fn render() -> String {
    let all: Vec<&Row> = [Direction::Down, Direction::Up].into_iter().flat_map(rows).collect();
    let mut text = String::new();
    for section in Section::ALL {
        let columns = columns(section);
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let lines = "---|".repeat(columns.len() + 3);
        writeln!(text, "### {}\n\n| of | what | {} | why |\n|{lines}", section.title(), names.join(" | "))
            .unwrap();
        for row in all.iter().filter(|row| row.section == section) {
            let paths: Vec<String> = row.paths.iter().map(|path| format!("`{path}`")).collect();
            let what = match (paths.join(", "), row.when) {
                (paths, "") if paths.is_empty() => "all of it".to_owned(),
                (paths, "") => paths,
                (paths, when) => format!("{paths}: {when}"),
            };
            let cell =
                |(_, wire): &(_, Wire)| if row.forms.contains(wire) { row.becomes } else { row.elsewhere };
            let cells: Vec<&str> = columns.iter().map(cell).collect();
            writeln!(text, "| {} | {what} | {} | {} |", row.of, cells.join(" | "), row.why).unwrap();
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_table_in_the_notes_is_this_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol-notes.md");
    let notes = fs::read_to_string(path).unwrap();
    let (_, rest) = notes.split_once(BEGIN).unwrap_or_else(|| panic!("expected the line {BEGIN}"));
    let (written, _) = rest.split_once(END).unwrap_or_else(|| panic!("expected the line {END}"));
    let expected = render();
    assert!(
        written.trim() == expected.trim(),
        "docs/protocol-notes.md is behind the table; put this between its two comments:\n\n{expected}"
    );
}
