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
use nuncio_audit::{AuditOptions, AuditResult, CATALOGUE, Level, PushOptions, Verdict, audit};
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
