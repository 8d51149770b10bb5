//! The acceptance list: the conditions under which an agent can be called compliant.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Area, AuditResult, Finding, InterfaceReport, Level, Reachability, Verdict};

/// An item of the acceptance list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceptanceItem {
    /// The condition.
    pub condition: String,
    /// Whether the agent meets it.
    pub state: Acceptance,
    /// The reason, or the extent.
    pub note: String,
}

/// The state of an item of the acceptance list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Acceptance {
    /// The condition is met, by all that was seen.
    Met,
    /// The condition is broken.
    Broken,
    /// Nothing about it was seen.
    Unseen,
}

/// The acceptance list of a result.
pub(super) fn acceptance(result: &AuditResult) -> Vec<AcceptanceItem> {
    let mut items =
        vec![card_item(result), interfaces_item(result), auth_item(result), isolation_item(result)];
    items.push(capabilities_item(result));
    items.extend(Area::ALL.iter().filter_map(|area| area_item(result, *area)));
    items
}

fn item(condition: impl Into<String>, state: Acceptance, note: impl Into<String>) -> AcceptanceItem {
    AcceptanceItem { condition: condition.into(), state, note: note.into() }
}

fn card_item(result: &AuditResult) -> AcceptanceItem {
    let state = if result.grounds.no_card { Acceptance::Broken } else { Acceptance::Met };
    item("The agent has a card", state, result.card.as_ref().map_or("", |card| &card.url))
}

fn interfaces_item(result: &AuditResult) -> AcceptanceItem {
    let answering = |report: &&InterfaceReport| report.reachability == Reachability::Answers;
    let (count, total) = (result.interfaces.iter().filter(answering).count(), result.interfaces.len());
    let state = match () {
        () if !result.grounds.silent_interfaces.is_empty() => Acceptance::Broken,
        () if total > 0 && count == total => Acceptance::Met,
        () => Acceptance::Unseen,
    };
    item("Every interface on the card answers", state, format!("{count} of {total}"))
}

fn auth_item(result: &AuditResult) -> AcceptanceItem {
    let condition = "Declared authentication is enforced";
    if result.grounds.auth_not_enforced {
        return item(condition, Acceptance::Broken, "calls without credentials are answered");
    }
    match result.card.as_ref().map(|card| card.requires_credentials) {
        Some(true) if seen_state(result, Area::Auth) == Acceptance::Unseen => {
            item(condition, Acceptance::Unseen, "")
        }
        Some(true) => item(condition, Acceptance::Met, ""),
        Some(false) => item(condition, Acceptance::Met, "the card declares none"),
        None => item(condition, Acceptance::Unseen, "there is no card"),
    }
}

fn isolation_item(result: &AuditResult) -> AcceptanceItem {
    let condition = "No caller sees the tasks of another";
    match seen_state(result, Area::Isolation) {
        _ if result.grounds.foreign_tasks_visible => item(condition, Acceptance::Broken, ""),
        Acceptance::Unseen => item(condition, Acceptance::Unseen, "needs --as VARIABLE"),
        state => item(condition, state, ""),
    }
}

fn capabilities_item(result: &AuditResult) -> AcceptanceItem {
    let condition = "Observed capabilities agree with the declared ones";
    let differing = result.capabilities.iter().filter(|capability| capability.agrees == Some(false));
    let names: Vec<&str> = differing.map(|capability| capability.name.as_str()).collect();
    let observed = result.capabilities.iter().any(|capability| capability.agrees.is_some());
    match (names.is_empty(), observed) {
        (false, _) => item(condition, Acceptance::Broken, names.join(", ")),
        (true, true) => item(condition, Acceptance::Met, ""),
        (true, false) => item(condition, Acceptance::Unseen, "none was observed"),
    }
}

/// The requirements of an area; `None` if none applies.
fn area_item(result: &AuditResult, area: Area) -> Option<AcceptanceItem> {
    let requirements = result.findings.iter().filter(|finding| {
        finding.area == area && finding.level == Level::Must && finding.verdict != Verdict::Info
    });
    let requirements: Vec<&Finding> = requirements.collect();
    let count = |verdict: Verdict| requirements.iter().filter(|finding| finding.verdict == verdict).count();
    let (failed, unseen) = (count(Verdict::Fail), count(Verdict::Unseen));
    let seen = requirements.len() - unseen;
    let note = format!("{} of {seen} met, {unseen} unseen", seen - failed);
    let condition = format!("Every requirement (MUST) of “{}” is met", area.title());
    (!requirements.is_empty()).then(|| item(condition, seen_state(result, area), note))
}

/// The state of the requirements of an area.
fn seen_state(result: &AuditResult, area: Area) -> Acceptance {
    let findings =
        || result.findings.iter().filter(|finding| finding.area == area && finding.level == Level::Must);
    match () {
        () if findings().any(|finding| finding.verdict == Verdict::Fail) => Acceptance::Broken,
        () if findings().any(Finding::is_seen) => Acceptance::Met,
        () => Acceptance::Unseen,
    }
}
