//! The tables of the page: scores, interfaces, capabilities, unseen checks, and the checklist.

use super::{chip, code, link, percent};
use crate::{
    Area, AuditResult, Finding, Verdict, catalogue,
    report::{
        digest, links,
        markup::Markup,
        names::{Names, version_and_binding},
        score::{Score, Tally},
        text::{date, line},
        words,
    },
};

/// Scores below this are shown as low, those below [`GOOD`] as middling.
const LOW: u8 = 50;
const GOOD: u8 = 80;

/// A section with a heading.
pub(super) fn section(page: &mut Markup, heading: &str, content: impl FnOnce(&mut Markup)) {
    page.line();
    page.nest("section", &[], |page| {
        page.element("h2", &[], heading);
        content(page);
    });
}

/// A table with the titles of its columns; those of numbers are set to the right.
fn table(page: &mut Markup, caption: &str, columns: &[(&str, bool)], rows: impl FnOnce(&mut Markup)) {
    // A table that scrolls can be reached by keyboard.
    let region = [("class", "scroll"), ("role", "region"), ("tabindex", "0"), ("aria-label", caption)];
    page.nest("div", &region, |page| {
        page.nest("table", &[], |page| {
            page.element("caption", &[], caption);
            page.nest("thead", &[], |page| {
                page.nest("tr", &[], |page| {
                    for (title, is_number) in columns {
                        let class = if *is_number { "n" } else { "" };
                        page.element("th", &[("scope", "col"), ("class", class)], title);
                    }
                });
            });
            page.nest("tbody", &[], rows);
        });
    });
}

fn row(page: &mut Markup, class: &'static str, title: &str, cells: impl FnOnce(&mut Markup)) {
    page.line();
    page.nest("tr", &[("class", class)], |page| {
        page.element("th", &[("scope", "row")], title);
        cells(page);
    });
}

fn cell(page: &mut Markup, text: &str) {
    page.element("td", &[], text);
}

pub(super) fn categories(page: &mut Markup, score: &Score) {
    const COLUMNS: [(&str, bool); 8] = [
        ("Category", false),
        ("Score", false),
        ("Coverage", true),
        ("Pass", true),
        ("Loose", true),
        ("Fail", true),
        ("Info", true),
        ("Unseen", true),
    ];
    section(page, "Scores", |page| {
        let caption = "MUST weighs 3 and SHOULD 1, over the checks that were seen; coverage is the share that was seen.";
        table(page, caption, &COLUMNS, |page| {
            for category in &score.categories {
                row(page, "", &category.title, |page| tally(page, &category.tally));
            }
            row(page, "all", "All", |page| tally(page, &score.overall));
        });
    });
}

fn tally(page: &mut Markup, tally: &Tally) {
    page.nest("td", &[], |page| {
        if let Some(score) = tally.score {
            let class = if score < LOW {
                "bar low"
            } else if score < GOOD {
                "bar mid"
            } else {
                "bar"
            };
            page.nest("span", &[("class", class), ("aria-hidden", "true")], |page| {
                page.element("i", &[("style", &format!("width:{score}%"))], "");
            });
        }
        page.text(&percent(tally.score));
    });
    page.element("td", &[("class", "n")], &percent(tally.coverage));
    for count in [tally.pass, tally.loose, tally.fail, tally.info, tally.unseen] {
        let text = if count == 0 { "·".to_owned() } else { count.to_string() };
        page.element("td", &[("class", "n")], &text);
    }
}

pub(super) fn interfaces(page: &mut Markup, result: &AuditResult) {
    if result.interfaces.is_empty() {
        return;
    }
    section(page, "Interfaces", |page| {
        let columns = [("Interface", false), ("URL", false), ("State", false)];
        table(page, "The interfaces of the card, in its order.", &columns, |page| {
            for report in &result.interfaces {
                let name = version_and_binding(&report.id);
                row(page, "", &line(&name), |page| {
                    page.nest("td", &[], |page| code(page, &report.id.url));
                    let state = words::reachability_name(report.reachability);
                    let reason = line(&report.reason);
                    cell(
                        page,
                        &if reason.is_empty() { state.to_owned() } else { format!("{state}: {reason}") },
                    );
                });
            }
        });
    });
}

pub(super) fn capabilities(page: &mut Markup, result: &AuditResult) {
    if result.capabilities.is_empty() {
        return;
    }
    section(page, "Declared and observed", |page| {
        let columns =
            [("Capability", false), ("Declared", false), ("Observed", false), ("Comparison", false)];
        table(page, "The statements of the card beside the behaviour of the agent.", &columns, |page| {
            for capability in &result.capabilities {
                row(page, "", &line(&capability.name), |page| {
                    cell(page, &line(&capability.declared));
                    cell(page, &line(&capability.observed));
                    let (class, word) = match capability.agrees {
                        Some(true) => ("chip pass", "agree"),
                        Some(false) => ("chip fail", "differ"),
                        None => ("chip unseen", "not observed"),
                    };
                    page.nest("td", &[], |page| page.element("span", &[("class", class)], word));
                });
            }
        });
    });
}

pub(super) fn unseen(page: &mut Markup, result: &AuditResult) {
    let groups = digest::unseen(result);
    if groups.is_empty() {
        return;
    }
    section(page, "Not seen", |page| {
        let columns = [("Reason", false), ("Findings", true), ("Checks", false)];
        table(page, "Unseen checks count for coverage and never against the score.", &columns, |page| {
            for group in &groups {
                row(page, "", &group.reason, |page| {
                    page.element("td", &[("class", "n")], &group.findings.len().to_string());
                    let ids: Vec<String> = group.checks().into_iter().map(line).collect();
                    cell(page, &ids.join(", "));
                });
            }
        });
    });
}

/// Every check with its result per interface, a table per category.
pub(super) fn checklist(page: &mut Markup, result: &AuditResult) {
    let names = Names::new(result);
    section(page, &format!("Checklist of {}", date(&result.started)), |page| {
        for area in Area::ALL {
            let findings: Vec<&Finding> =
                result.findings.iter().filter(|finding| finding.area == *area).collect();
            if !findings.is_empty() {
                checklist_area(page, *area, &findings, &names);
            }
        }
    });
}

fn checklist_area(page: &mut Markup, area: Area, findings: &[&Finding], names: &Names<'_>) {
    page.line();
    page.nest("details", &[], |page| {
        let passed = findings.iter().filter(|finding| finding.verdict == Verdict::Pass).count();
        page.element("summary", &[], &format!("{}: {passed} of {} passed", area.title(), findings.len()));
        let columns = [
            ("Check", false),
            ("Demand", false),
            ("Interface", false),
            ("Section", false),
            ("Result", false),
        ];
        table(page, area.title(), &columns, |page| {
            for finding in findings {
                checklist_row(page, finding, names);
            }
        });
    });
}

fn checklist_row(page: &mut Markup, finding: &Finding, names: &Names<'_>) {
    row(page, "", &line(&finding.check), |page| {
        let title = catalogue::find(&finding.check).map_or("", |check| check.title);
        cell(page, &format!("{}: {title}", words::level_name(finding.level)));
        cell(page, &line(&names.or_agent(finding.interface.as_ref())));
        page.nest("td", &[], |page| {
            if let Some((version, section)) = links::cited(finding) {
                let label = format!("{version}: {}", line(section));
                link(page, &links::section(version, section), &label);
            }
        });
        page.nest("td", &[], |page| chip(page, finding.verdict));
    });
}
