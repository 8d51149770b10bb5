//! Tests of scores, grades and caps.

use super::sample::{finding, interface, result_of};
use crate::{
    AuditResult, CATALOGUE, Check, Grounds, Level, Unseen, Verdict,
    report::{Grade, score},
};
use nuncio_protocol::{Binding, Version};

/// The first check of this level.
fn check(level: Level) -> &'static Check {
    CATALOGUE.iter().find(|check| check.level == level).expect("every level has a check")
}

/// A result with numbers of met and broken demands: MUST met, MUST broken, SHOULD met, SHOULD broken.
fn counted([must, failed, should, loose]: [usize; 4]) -> AuditResult {
    let of = |level, verdict, count| std::iter::repeat_n(finding(check(level), None, verdict), count);
    let findings = of(Level::Must, Verdict::Pass, must)
        .chain(of(Level::Must, Verdict::Fail, failed))
        .chain(of(Level::Should, Verdict::Pass, should))
        .chain(of(Level::Should, Verdict::Loose, loose));
    result_of(findings.collect())
}

#[test]
fn a_requirement_weighs_three_and_a_recommendation_one() {
    for (counts, percent) in [
        ([1, 0, 0, 0], 100),
        ([0, 1, 0, 0], 0),
        ([1, 0, 0, 1], 75),
        ([0, 1, 1, 0], 25),
        ([1, 1, 1, 1], 50),
        // 299 of 300 points are not 100 %.
        ([99, 0, 2, 1], 99),
    ] {
        assert_eq!(score(&counted(counts)).overall.score, Some(percent), "{counts:?}");
    }
}

#[test]
fn grades_begin_at_their_thresholds() {
    for (percent, grade) in [
        (100, Grade::A),
        (80, Grade::A),
        (79, Grade::B),
        (65, Grade::B),
        (64, Grade::C),
        (50, Grade::C),
        (49, Grade::D),
        (35, Grade::D),
        (34, Grade::F),
        (0, Grade::F),
    ] {
        let result = counted([0, 0, percent, 100 - percent]);
        assert_eq!(score(&result).grade, Some(grade), "{percent}");
    }
}

#[test]
fn caps_limit_the_grade_whatever_the_score() {
    let silent = || vec![interface(Version::V1_0, Binding::Grpc)];
    let cases = [
        ("nothing", Grounds::default(), 0, Some(Grade::A)),
        ("a failed MUST", Grounds::default(), 1, Some(Grade::B)),
        (
            "a silent interface",
            Grounds { silent_interfaces: silent(), ..Grounds::default() },
            0,
            Some(Grade::D),
        ),
        ("open calls", Grounds { auth_not_enforced: true, ..Grounds::default() }, 0, Some(Grade::F)),
        ("foreign tasks", Grounds { foreign_tasks_visible: true, ..Grounds::default() }, 0, Some(Grade::F)),
        ("no card", Grounds { no_card: true, ..Grounds::default() }, 0, None),
        (
            "everything",
            Grounds {
                no_card: true,
                silent_interfaces: silent(),
                auth_not_enforced: true,
                foreign_tasks_visible: true,
            },
            1,
            None,
        ),
    ];
    for (name, grounds, failed, grade) in cases {
        let expected_caps = usize::from(grounds.no_card)
            + usize::from(grounds.auth_not_enforced)
            + usize::from(grounds.foreign_tasks_visible)
            + usize::from(!grounds.silent_interfaces.is_empty())
            + failed;
        let result = AuditResult { grounds, ..counted([100, failed, 0, 0]) };
        let score = score(&result);
        assert_eq!(score.grade, grade, "{name}");
        assert_eq!(score.caps.len(), expected_caps, "{name}: {:?}", score.caps);
    }
}

#[test]
fn a_cap_does_not_raise_a_grade() {
    let result = counted([0, 1, 0, 0]);
    assert_eq!(score(&result).grade, Some(Grade::F));
}

#[test]
fn unseen_checks_count_for_coverage_only() {
    let mut result = counted([3, 0, 0, 0]);
    let mut unseen = finding(check(Level::Must), None, Verdict::Unseen);
    result.findings.push(unseen.clone());
    unseen.unseen = Some(Unseen::Undeclared);
    result.findings.push(unseen);
    result.findings.push(finding(check(Level::May), None, Verdict::Info));
    result.findings.push(finding(check(Level::Must), None, Verdict::Info));
    let overall = score(&result).overall;
    assert_eq!((overall.score, overall.coverage), (Some(100), Some(75)));
    assert_eq!((overall.pass, overall.info, overall.unseen, overall.count()), (3, 2, 2, 7));
}

#[test]
fn there_is_no_grade_if_nothing_was_seen() {
    let result = result_of(vec![finding(check(Level::Must), None, Verdict::Unseen)]);
    let score = score(&result);
    assert_eq!((score.grade, score.overall.score, score.overall.coverage), (None, None, Some(0)));
    assert_eq!(score.letter(), "–");
}

#[test]
fn categories_are_scored_apart_and_add_up() {
    let result = super::sample::full();
    let score = score(&result);
    let sum = |of: fn(&crate::report::Tally) -> u32| {
        score.categories.iter().map(|category| of(&category.tally)).sum::<u32>()
    };
    assert_eq!(sum(|tally| tally.points), score.overall.points);
    assert_eq!(sum(|tally| tally.possible), score.overall.possible);
    assert_eq!(sum(crate::report::Tally::count), score.overall.count());
    assert!(score.categories.iter().all(|category| category.tally.count() > 0));
}
