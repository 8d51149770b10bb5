//! The lists of the page: changes, recommendations, and the acceptance list.

use super::{code, findings::anchor, tables::section};
use crate::{
    AuditResult,
    report::{
        acceptance::{Acceptance, acceptance},
        baseline::{Change, ChangeKind, Changes},
        digest::{self, Priority},
        markup::Markup,
        names::Names,
        text::{date, line},
    },
};

pub(super) fn changes(page: &mut Markup, result: &AuditResult, changes: &Changes) {
    let names = Names::new(result);
    section(page, &format!("Changes since {}", date(&changes.since)), |page| {
        page.element("p", &[], &changes.summary());
        page.nest("ul", &[("class", "accept")], |page| {
            for kind in [ChangeKind::Worse, ChangeKind::Better, ChangeKind::Other] {
                changes.of(kind).for_each(|change| change_item(page, change, &names));
            }
        });
    });
}

fn change_item(page: &mut Markup, change: &Change, names: &Names<'_>) {
    let class = match change.kind {
        ChangeKind::Worse => "chip fail",
        ChangeKind::Better => "chip pass",
        ChangeKind::Other => "chip unseen",
    };
    let place = names.or_agent(change.interface.as_ref());
    page.nest("li", &[], |page| {
        page.element("span", &[("class", class)], change.kind.as_str());
        page.nest("span", &[], |page| {
            code(page, &change.check);
            page.text(&format!(" on {}: {}", line(&place), change.verdicts()));
        });
    });
}

pub(super) fn recommendations(page: &mut Markup, result: &AuditResult) {
    let all = digest::recommendations(result);
    section(page, "Recommendations", |page| {
        if all.is_empty() {
            page.element("p", &[], "None.");
        }
        for priority in [Priority::High, Priority::Medium, Priority::Low] {
            let mut list = all.iter().filter(|recommendation| recommendation.priority == priority).peekable();
            if list.peek().is_none() {
                continue;
            }
            page.element("h3", &[], &format!("Priority {}", priority.as_str()));
            page.nest("ol", &[("class", "todo")], |page| {
                for recommendation in list {
                    page.nest("li", &[], |page| {
                        page.text(&recommendation.fix);
                        page.text(" ");
                        let target = format!("#{}", anchor(&recommendation.check, priority.verdict()));
                        page.nest("a", &[("href", &target)], |page| code(page, &recommendation.check));
                    });
                }
            });
        }
    });
}

pub(super) fn acceptance_list(page: &mut Markup, result: &AuditResult) {
    section(page, "Acceptance list", |page| {
        page.nest("ul", &[("class", "accept")], |page| {
            for item in acceptance(result) {
                let (class, word) = match item.state {
                    Acceptance::Met => ("chip pass", "✓ met"),
                    Acceptance::Broken => ("chip fail", "✗ not met"),
                    Acceptance::Unseen => ("chip unseen", "– not seen"),
                };
                page.nest("li", &[], |page| {
                    page.element("span", &[("class", class)], word);
                    page.nest("span", &[], |page| {
                        page.text(&item.condition);
                        if !item.note.is_empty() {
                            page.element("span", &[("class", "dim")], &format!(" ({})", line(&item.note)));
                        }
                    });
                });
            }
        });
    });
}
