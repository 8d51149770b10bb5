//! Tests of the comparison with an earlier audit.

use nuncio_protocol::{Binding, Version};

use super::sample::{finding, full, interface, result_of};
use crate::{
    CATALOGUE, Verdict,
    report::baseline::{BaselineError, ChangeKind, compare, parse},
};

#[test]
fn a_change_has_its_direction() {
    let check = &CATALOGUE[0];
    let one = interface(Version::V1_0, Binding::JsonRpc);
    let of = |verdict: Option<Verdict>| {
        result_of(verdict.map(|verdict| finding(check, Some(&one), verdict)).into_iter().collect())
    };
    for (before, now, kind) in [
        (Some(Verdict::Pass), Some(Verdict::Pass), None),
        (Some(Verdict::Pass), Some(Verdict::Fail), Some(ChangeKind::Worse)),
        (Some(Verdict::Loose), Some(Verdict::Fail), Some(ChangeKind::Worse)),
        (Some(Verdict::Unseen), Some(Verdict::Fail), Some(ChangeKind::Worse)),
        (None, Some(Verdict::Loose), Some(ChangeKind::Worse)),
        (Some(Verdict::Fail), Some(Verdict::Loose), Some(ChangeKind::Better)),
        (Some(Verdict::Fail), Some(Verdict::Pass), Some(ChangeKind::Better)),
        (Some(Verdict::Fail), Some(Verdict::Unseen), Some(ChangeKind::Other)),
        (Some(Verdict::Fail), None, Some(ChangeKind::Other)),
        (Some(Verdict::Unseen), Some(Verdict::Pass), Some(ChangeKind::Other)),
        (Some(Verdict::Unseen), None, None),
        (Some(Verdict::Info), Some(Verdict::Pass), Some(ChangeKind::Other)),
    ] {
        let changes = compare(&of(before), &of(now));
        let kinds: Vec<ChangeKind> = changes.changes.iter().map(|change| change.kind).collect();
        assert_eq!(kinds, Vec::from_iter(kind), "{before:?} to {now:?}");
        assert_eq!(changes.is_worse(), kind == Some(ChangeKind::Worse));
    }
}

#[test]
fn the_same_agent_at_another_address_has_no_changes() {
    let old = full();
    let mut new = old.clone();
    new.started = "2026-12-01T00:00:00Z".to_owned();
    for interface in new.findings.iter_mut().filter_map(|finding| finding.interface.as_mut()) {
        interface.url = interface.url.replace("https://agent.example", "http://127.0.0.1:41234");
    }
    let changes = compare(&old, &new);
    assert_eq!(changes.changes, []);
    assert_eq!(changes.since, old.started);
    assert_eq!(changes.score_before, changes.score_now);
}

#[test]
fn interfaces_that_look_alike_are_told_apart_by_their_order() {
    let check = &CATALOGUE[0];
    let one = interface(Version::V1_0, Binding::JsonRpc);
    let of = |verdicts: [Verdict; 2]| {
        result_of(verdicts.map(|verdict| finding(check, Some(&one), verdict)).to_vec())
    };
    let changes = compare(&of([Verdict::Pass, Verdict::Fail]), &of([Verdict::Pass, Verdict::Pass]));
    assert_eq!(changes.changes.len(), 1);
    assert_eq!(changes.changes[0].verdicts(), "fail → pass");
}

#[test]
fn other_files_are_refused_with_the_reason() {
    for (text, message) in [
        ("no JSON", "it is not a JSON report of an audit: "),
        ("{}", "it is not a JSON report of an audit: missing field `format`"),
        (r#"{"format":2}"#, "it has format 2, and this version reads format 1; make a new one"),
        (r#"{"format":1}"#, "it is not a JSON report of an audit: missing field"),
    ] {
        let error: BaselineError = parse(text).expect_err("no report");
        assert!(error.to_string().starts_with(message), "{error}");
    }
}
