//! The catalogue as a page of the documentation: an anchor per check.

use nuncio_protocol::Version;

use super::{links, words};
use crate::{Area, CATALOGUE, Check, Scope};

/// The begin of the page.
const HEAD: &str = "\
# Checks of `nuncio audit`

<!-- Made from the catalogue (crates/nuncio-audit/src/catalogue); UPDATE_DOCS=1 cargo test writes it anew. -->

Each check is one demand of the A2A specification that can be observed from outside.
`nuncio audit --only ID` runs one of them, or one category (`--only card`).
[Audit of an agent](audit.md) describes depths, verdicts and the score.
";

/// The page with every check, in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n| category | MUST | SHOULD | MAY |\n|---|---|---|---|\n");
    for area in Area::ALL {
        page.push_str(&area_row(*area));
    }
    for area in Area::ALL {
        page.push_str(&format!("\n## {}\n", area.title()));
        for check in of_area(*area) {
            page.push_str(&entry(check));
        }
    }
    page
}

fn of_area(area: Area) -> impl Iterator<Item = &'static Check> {
    CATALOGUE.iter().filter(move |check| check.area == area)
}

fn area_row(area: Area) -> String {
    let count = |level: &str| of_area(area).filter(|check| words::level_name(check.level) == level).count();
    let anchor = area.title().to_lowercase().replace('+', "").replace(' ', "-");
    format!(
        "| [{}](#{anchor}) | {} | {} | {} |\n",
        area.title(),
        count("MUST"),
        count("SHOULD"),
        count("MAY")
    )
}

/// The anchor of a check: `card.found` is `card-found`.
fn anchor(check: &Check) -> String {
    check.id.replace('.', "-")
}

fn entry(check: &Check) -> String {
    let requirements: Vec<String> =
        check.requirements.iter().map(|number| format!("REQ-{number:03}")).collect();
    let requirements =
        if requirements.is_empty() { String::new() } else { format!(" · {}", requirements.join(", ")) };
    let scope = match check.scope {
        Scope::Agent => "once per agent",
        Scope::Interface => "per interface",
    };
    format!(
        "\n### <a id=\"{}\"></a>`{}`\n\n**{}.**\n\n{}{requirements} · depth `{}`, {scope} · {}\n\n\
         - *Specification:* {}\n- *Why:* {}\n- *Fix:* {}\n",
        anchor(check),
        check.id,
        check.title,
        words::level_name(check.level),
        words::depth_name(check.depth),
        bindings(check),
        sections(check),
        check.why,
        check.fix,
    )
}

fn bindings(check: &Check) -> String {
    let names: Vec<&str> = check.bindings.iter().map(|binding| binding.as_str()).collect();
    names.join(", ")
}

fn sections(check: &Check) -> String {
    let versions = [Version::V1_0, Version::V0_3];
    let links = versions.into_iter().filter_map(|version| {
        let section = check.sections.of(version)?;
        let title = links::title(version, section).map_or_else(String::new, |title| format!(" {title}"));
        Some(format!("[{version}: {section}{title}]({})", links::section(version, section)))
    });
    links.collect::<Vec<_>>().join(", ")
}
