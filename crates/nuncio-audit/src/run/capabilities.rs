//! The declared capabilities beside the observed ones.

use std::collections::BTreeSet;

use super::Station;
use crate::{
    audit::{Capability, Reachability},
    card::FoundCard,
    conversation::Conversation,
    outcome::{Finding, Verdict},
};

/// Compares the card with what was seen.
pub(super) fn compare(found: &FoundCard, stations: &[Station], findings: &[Finding]) -> Vec<Capability> {
    let card = &found.card;
    let talks: Vec<_> = stations.iter().filter_map(|station| station.conversation.as_ref()).collect();
    let flag = |value: Option<bool>| value.unwrap_or_default();
    let streams = flag(card.capabilities.streaming);
    let pushes = flag(card.capabilities.push_notifications);
    let extended = flag(card.capabilities.extended_agent_card);
    let told = |rows: &[Told]| told(findings, rows);
    vec![
        reached("versions", stations, |station| station.report.id.version.clone()),
        reached("bindings", stations, |station| station.report.id.binding.clone()),
        row("streaming", word(streams), streaming(&talks).or(told(STREAM)), true),
        row("push", word(pushes), told(PUSH), true),
        row("extended card", word(extended), told(EXTENDED), true),
        row("list", "yes (required in 1.0)", told(LIST), true),
        cancel(&talks),
        blocking(&talks),
        row("input modes", card.default_input_modes.join(", "), told(INPUT), true),
        row(
            "output modes",
            card.default_output_modes.join(", "),
            outputs(&talks, &card.default_output_modes),
            true,
        ),
        row("authentication", requirement(found), told(AUTH), true),
        row("signatures", card.signatures.len().to_string(), told(SIGNATURE), true),
    ]
}

/// An observation that a finding tells: the check, the text if it passed, the text if it did not.
type Told = (&'static str, &'static str, &'static str);

const STREAM: &[Told] = &[("undeclared.stream", "refused", "not refused as it should be")];
const PUSH: &[Told] = &[
    ("push.arrives", "notifications arrive", "notifications do not arrive"),
    ("errors.push", "offered", "offered, with wrong errors"),
    ("undeclared.push", "refused", "not refused as it should be"),
];
const EXTENDED: &[Told] = &[
    ("auth.card", "for callers with credentials", "open to anybody"),
    ("undeclared.card", "refused", "not refused as it should be"),
];
const LIST: &[Told] = &[("list.shape", "lists tasks", "does not list tasks as it should")];
const INPUT: &[Told] = &[("send.media-type", "refuses other types", "accepts other types")];
const AUTH: &[Told] = &[
    ("auth.missing", "enforced", "not enforced"),
    ("auth.list", "anybody is answered", "anybody is answered"),
];
const SIGNATURE: &[Told] = &[("card.signature", "hold", "do not hold")];

/// The first observation of these that a finding tells.
fn told(findings: &[Finding], rows: &[Told]) -> Option<(String, bool)> {
    rows.iter().find_map(|(check, pass, fail)| {
        let seen =
            findings.iter().filter(|finding| finding.check == *check && finding.verdict != Verdict::Unseen);
        let verdicts: Vec<_> = seen.map(|finding| finding.verdict).collect();
        let is_broken = verdicts.iter().any(|verdict| matches!(verdict, Verdict::Fail | Verdict::Loose));
        (!verdicts.is_empty()).then(|| ((if is_broken { fail } else { pass }).to_string(), !is_broken))
    })
}

fn requirement(found: &FoundCard) -> &'static str {
    if found.card.security_requirements.is_empty() { "not required" } else { "required" }
}

fn word(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}

/// A row; what was observed agrees if it equals what is expected.
fn row(
    name: &str,
    declared: impl Into<String>,
    observed: Option<(String, bool)>,
    expected: bool,
) -> Capability {
    let agrees = observed.as_ref().map(|(_, seen)| *seen == expected);
    let observed = observed.map_or_else(|| "not seen".to_owned(), |(text, _)| text);
    Capability { name: name.to_owned(), declared: declared.into(), observed, agrees }
}

fn reached(name: &str, stations: &[Station], part: impl Fn(&Station) -> String) -> Capability {
    let declared: BTreeSet<_> = stations.iter().map(&part).collect();
    let is_there = |station: &&Station| {
        matches!(station.report.reachability, Reachability::Answers | Reachability::Closed)
    };
    let seen: BTreeSet<_> = stations.iter().filter(is_there).map(&part).collect();
    let text = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    Capability {
        name: name.to_owned(),
        agrees: Some(declared == seen),
        declared: text(&declared),
        observed: text(&seen),
    }
}

fn streaming(talks: &[&Conversation]) -> Option<(String, bool)> {
    let streams: Vec<_> = talks.iter().filter_map(|talk| talk.stream.as_ref()).collect();
    let opened = streams.iter().filter(|stream| stream.refused.is_none()).count();
    let all = streams.len();
    (all > 0).then(|| (format!("{opened} of {all} interfaces stream"), opened == all))
}

fn blocking(talks: &[&Conversation]) -> Capability {
    let waits = talks.iter().filter_map(|talk| talk.task()).map(|task| task.status.state.is_settled());
    let waits: Vec<_> = waits.collect();
    let observed = (!waits.is_empty()).then(|| {
        let all = waits.iter().all(|waits| *waits);
        (
            if all { "waits for the end of the task" } else { "returns before the end of the task" }
                .to_owned(),
            all,
        )
    });
    row("blocking send", "waits (by default)", observed, true)
}

fn cancel(talks: &[&Conversation]) -> Capability {
    let answers: Vec<_> = talks.iter().filter_map(|talk| talk.calls.get("cancel")).collect();
    let observed = (!answers.is_empty()).then(|| {
        let works = answers.iter().all(|answer| answer.task().is_some());
        (if works { "cancels running tasks" } else { "does not cancel running tasks" }.to_owned(), works)
    });
    row("cancel", "yes (required)", observed, true)
}

/// The media types of artifacts that say one.
fn outputs(talks: &[&Conversation], declared: &[String]) -> Option<(String, bool)> {
    let tasks = talks.iter().filter_map(|talk| talk.task());
    let parts = tasks.flat_map(|task| task.artifacts.iter().flat_map(|artifact| artifact.parts.iter()));
    let seen: BTreeSet<_> = parts.filter_map(|part| part.media_type.clone()).collect();
    let essence = |mode: &str| mode.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let fits =
        |name: &String| declared.iter().any(|mode| essence(mode) == essence(name) || mode.contains('*'));
    (!seen.is_empty()).then(|| (seen.iter().cloned().collect::<Vec<_>>().join(", "), seen.iter().all(fits)))
}
