//! The zoo: a correct agent has no failed requirement, and an agent that breaks one thing fails exactly that
//! check and no other.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking, its helpers too")]

mod agent;
mod breaker;
mod cases;
mod courier;
mod odd;

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Duration};

use futures_util::{StreamExt as _, stream};
use nuncio_audit::{Area, AuditOptions, AuditResult, CATALOGUE, Level, PushOptions, Verdict, audit};
use nuncio_client::{Credentials, Egress};
use url::Url;

use self::{
    agent::{Agent, Behaviour, CALLER},
    breaker::WHOLE,
    cases::{Case, Depth},
};

/// The number of agents that are audited at once.
const AT_ONCE: usize = 8;

/// The options of an audit of this agent.
fn options(agent: &Agent) -> AuditOptions {
    let target = Url::parse(&format!("http://{}/", agent.address)).unwrap();
    AuditOptions::new(target, Egress::operator().unwrap())
}

/// The findings of some verdicts, one per line.
fn lines(result: &AuditResult, verdicts: &[Verdict]) -> Vec<String> {
    let seen = result.findings.iter().filter(|finding| verdicts.contains(&finding.verdict));
    seen.map(|finding| {
        let interface = finding.interface.as_ref().map(|id| format!("{} {}", id.binding, id.version));
        format!(
            "{:?} {} {}: {}",
            finding.verdict,
            finding.check,
            interface.unwrap_or_default(),
            finding.reason
        )
    })
    .collect()
}

/// The options of a case.
fn options_of(case: &Case, agent: &Agent) -> AuditOptions {
    let mut options = options(agent);
    if !case.everywhere {
        options.bindings = vec![case.on.0];
        options.versions = vec![case.on.1];
    }
    options.timeout = Duration::from_secs(5);
    options.message_timeout = Duration::from_secs(5);
    if case.behaviour.needs_caller {
        options.credentials = Credentials::none().header(CALLER, "alice").unwrap();
    }
    if case.depth != Depth::Look {
        options.send = Some("hello".to_owned());
    }
    if case.depth == Depth::Push {
        options.push = Some(PushOptions { listen: "127.0.0.1:0".parse().unwrap(), url: None });
    }
    if case.depth == Depth::Key {
        let second = Credentials::none().header(CALLER, "bob").unwrap().bearer("second").unwrap();
        options.second = Some(second);
    }
    if case.alone {
        options.only = vec![case.check.to_owned()];
    }
    options
}

/// The difference between the findings of a case and its one check; empty if there is none.
async fn difference(case: Case) -> Option<String> {
    let agent = agent::start(case.behaviour.clone(), case.breaker).await;
    let result = audit(&options_of(&case, &agent)).await;
    let broken = |verdict| matches!(verdict, Verdict::Fail | Verdict::Loose);
    let seen: BTreeSet<_> = result
        .findings
        .iter()
        .filter(|finding| broken(finding.verdict))
        .map(|finding| finding.check.as_str())
        .collect();
    if seen == BTreeSet::from([case.check]) {
        return None;
    }
    let mut lines = lines(&result, &[Verdict::Fail, Verdict::Loose]);
    lines.extend(
        self::lines(&result, &[Verdict::Unseen, Verdict::Info])
            .into_iter()
            .filter(|line| line.contains(case.check)),
    );
    Some(format!("{} on {:?}:\n  {}", case.check, case.on, lines.join("\n  ")))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_breaks_one_thing_fails_exactly_that() {
    let wanted = std::env::var("ZOO").unwrap_or_default();
    let cases = cases::all().into_iter().filter(|case| case.check.contains(&wanted));
    let all: Vec<_> = stream::iter(cases).map(difference).buffer_unordered(AT_ONCE).collect().await;
    let wrong: Vec<String> = all.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

/// Checks without a case, and the reason.
const WITHOUT_CASE: &[(&str, &str)] =
    &[("reach.tls", "the versions of TLS have a test where they are seen, in the client")];

#[test]
fn every_check_has_a_case() {
    let shown: BTreeSet<_> = cases::all().iter().map(|case| case.check).collect();
    let excused: BTreeSet<_> = WITHOUT_CASE.iter().map(|(check, _)| *check).collect();
    let demanding = CATALOGUE.iter().filter(|check| check.level != Level::May).map(|check| check.id);
    let missing: Vec<_> = demanding.filter(|id| !shown.contains(id) && !excused.contains(id)).collect();
    assert_eq!(missing, Vec::<&str>::new());
    assert!(shown.is_disjoint(&excused));
    assert!(shown.iter().chain(&excused).all(|id| nuncio_audit::catalogue::find(id).is_some()));
}

/// The rows that an audit has to have: an area, and the requirements that its checks cover.
const ROWS: &[(Area, &[u16])] = &[
    (Area::Card, &[1, 2, 3, 84, 174, 175, 176, 177, 178, 182, 183, 185, 186, 187]),
    (Area::Reach, &[4, 6, 44]),
    (Area::Rpc, &[10, 25, 26, 27, 28, 29, 30, 31]),
    (Area::Http, &[42, 43, 45, 46, 47, 48, 52, 55, 56, 57]),
    (Area::Grpc, &[60, 61, 64, 65]),
    (Area::Version, &[70, 71, 72, 73, 74]),
    (Area::Errors, &[7, 40, 41, 112, 130, 145, 155]),
    (Area::List, &[117, 118, 119, 121, 122, 125, 126]),
    (Area::Undeclared, &[132, 153, 192]),
    (Area::Extensions, &[77, 78, 80, 81]),
    (Area::Auth, &[84, 85, 90, 191]),
    (Area::Send, &[13, 14, 15, 16, 17, 18, 19, 20, 36, 37, 94, 96, 97, 101, 103, 105]),
    (Area::Task, &[6, 98, 99, 111, 113, 114, 115, 116, 128, 129, 131, 144]),
    (Area::Stream, &[38, 54, 133, 134, 135, 136, 137, 138, 140, 141, 147, 148, 149, 150]),
    (Area::Push, &[154, 156, 157, 158, 159, 160, 161, 162, 163, 164, 166, 168]),
    (Area::Isolation, &[86, 87, 88, 89, 90]),
];

#[test]
fn the_catalogue_covers_every_row() {
    for (area, requirements) in ROWS {
        let checks = CATALOGUE.iter().filter(|check| check.area == *area);
        let covered: BTreeSet<u16> = checks.flat_map(|check| check.requirements).copied().collect();
        let missing: Vec<_> = requirements.iter().filter(|number| !covered.contains(number)).collect();
        assert!(missing.is_empty(), "{area:?}: {missing:?}");
    }
    assert_eq!(ROWS.iter().map(|(area, _)| *area).collect::<Vec<_>>(), Area::ALL);
    assert!(CATALOGUE.len() >= 95, "{}", CATALOGUE.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correct_agent_breaks_nothing() {
    let agent = agent::start(Behaviour { pushes: true, ..Behaviour::default() }, WHOLE).await;
    let mut options = options(&agent);
    options.send = Some("hello".to_owned());
    options.push = Some(PushOptions { listen: "127.0.0.1:0".parse().unwrap(), url: None });
    let result = audit(&options).await;
    assert_eq!(lines(&result, &[Verdict::Fail, Verdict::Loose]), Vec::<String>::new());
    assert_eq!(result.interfaces.len(), 6);
    assert_eq!(result.left_running, Vec::<String>::new());
    assert_eq!(agent.running().await, 0, "no task is left running");
    assert_eq!(result.messages_sent, 6 * 4);
    assert_eq!(
        agent.executed.load(Ordering::SeqCst),
        6 * 4,
        "messages that have to be refused are not executed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_sends_no_message() {
    let agent = agent::start(Behaviour::default(), WHOLE).await;
    let result = audit(&options(&agent)).await;
    assert_eq!(lines(&result, &[Verdict::Fail, Verdict::Loose]), Vec::<String>::new());
    assert_eq!((result.messages_sent, agent.executed.load(Ordering::SeqCst)), (0, 0));
}
