//! Odd agents: nothing of them fails that was not seen, and the audit ends.

use std::{sync::atomic::Ordering, time::Duration};

use axum::{Router, body::Body, extract::Request, response::Response};
use nuncio_audit::{
    AuditOptions, Reachability, Unseen, Verdict, audit,
    report::{Format, Options, render},
};
use nuncio_client::Egress;
use tokio::net::TcpListener;
use url::Url;

use crate::{
    agent::{self, Behaviour},
    breaker::{Breaker, WHOLE},
    cases::operations::closed,
    lines, options,
};

/// The answer of a server.
type Reply = fn(&Request) -> Response;

/// A server that answers everything so.
async fn server(answer: Reply) -> AuditOptions {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let router = Router::new().fallback(move |request: Request| async move { answer(&request) });
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    AuditOptions::new(target, Egress::operator().unwrap())
}

fn response(status: u16, name: &'static str, value: &'static str, body: &'static str) -> Response {
    Response::builder().status(status).header(name, value).body(Body::from(body)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_card_is_told_with_its_reason() {
    let cases: [(Reply, Verdict, &str); 5] = [
        (|_| response(200, "content-type", "text/html", "<html>"), Verdict::Unseen, "not JSON"),
        (
            |_| response(302, "location", "https://other.example/", ""),
            Verdict::Unseen,
            "redirects to https://other",
        ),
        (|_| response(401, "www-authenticate", "Bearer", ""), Verdict::Unseen, "needs credentials"),
        (|_| response(404, "content-type", "application/json", "{}"), Verdict::Fail, "there is no card"),
        (|_| response(200, "content-type", "application/json", "[]"), Verdict::Fail, "is not an agent card"),
    ];
    for (answer, verdict, reason) in cases {
        let result = audit(&server(answer).await).await;
        assert!(result.grounds.no_card);
        assert_eq!(result.findings.len(), 1);
        let finding = &result.findings[0];
        assert_eq!((finding.check.as_str(), finding.verdict), ("card.found", verdict), "{}", finding.reason);
        assert!(finding.reason.contains(reason), "{}", finding.reason);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_unseen() {
    // Connections are accepted by the system, and nobody answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let mut options = AuditOptions::new(target, Egress::operator().unwrap());
    options.timeout = Duration::from_millis(100);
    let result = audit(&options).await;
    assert!(result.grounds.no_card);
    assert_eq!(result.findings[0].unseen, Some(Unseen::Slow));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_agent_is_unseen_and_its_tasks_are_canceled() {
    let behaviour = Behaviour { pace: Duration::from_secs(600), ..Default::default() };
    let agent = agent::start(behaviour, WHOLE).await;
    let mut options = options(&agent);
    options.send = Some("hello".to_owned());
    options.message_timeout = Duration::from_millis(500);
    let result = audit(&options).await;
    assert_eq!(lines(&result, &[Verdict::Fail, Verdict::Loose]), Vec::<String>::new());
    let blocks: Vec<_> = result.findings.iter().filter(|finding| finding.check == "send.blocks").collect();
    assert!(blocks.iter().all(|finding| finding.unseen == Some(Unseen::Slow)), "{blocks:?}");
    assert_eq!(result.left_running, Vec::<String>::new());
    // A blocking send of 0.3 without an answer names no task, and 0.3 cannot list tasks.
    assert_eq!(agent.running().await, 3, "one of each interface of 0.3");
    assert_eq!(agent.executed.load(Ordering::SeqCst), 6 * 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_ends_at_its_deadline() {
    let behaviour = Behaviour { pace: Duration::from_secs(600), ..Default::default() };
    let agent = agent::start(behaviour, WHOLE).await;
    let mut options = options(&agent);
    options.send = Some("hello".to_owned());
    options.deadline = Duration::from_millis(700);
    let result = audit(&options).await;
    assert!(result.deadline_passed);
    assert_eq!(lines(&result, &[Verdict::Fail, Verdict::Loose]), Vec::<String>::new());
    assert!(result.findings.iter().any(|finding| finding.unseen == Some(Unseen::Deadline)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_messages_has_no_tasks_to_see() {
    let agent = agent::start(Behaviour { message_only: true, ..Default::default() }, WHOLE).await;
    let mut options = options(&agent);
    options.send = Some("hello".to_owned());
    let result = audit(&options).await;
    assert_eq!(lines(&result, &[Verdict::Fail, Verdict::Loose]), Vec::<String>::new());
    let get = result.findings.iter().find(|finding| finding.check == "task.get").unwrap();
    assert_eq!((get.verdict, get.unseen), (Verdict::Unseen, Some(Unseen::Setup)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_needs_a_key_is_closed_without_one() {
    let behaviour = Behaviour { needs_caller: true, card: closed, ..Default::default() };
    let agent = agent::start(behaviour, WHOLE).await;
    let result = audit(&options(&agent)).await;
    assert_eq!(lines(&result, &[Verdict::Fail]), Vec::<String>::new());
    assert!(result.interfaces.iter().all(|interface| interface.reachability == Reachability::Closed));
    let passed = |id: &str| {
        result.findings.iter().any(|finding| finding.check == id && finding.verdict == Verdict::Pass)
    };
    assert!(passed("auth.missing") && passed("auth.invalid"));
    assert!(!result.grounds.auth_not_enforced);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_stream_is_left_after_a_while() {
    let endless: Breaker = Breaker {
        instead: Some(|asked| {
            (asked.rpc() == "SendStreamingMessage").then(|| {
                let event = r#"{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}}"#;
                let frames = futures_util::stream::repeat(Ok::<_, std::convert::Infallible>(format!("data: {event}\n\n")));
                Response::builder().header("content-type", "text/event-stream").body(Body::from_stream(frames)).unwrap()
            })
        }),
        ..WHOLE
    };
    let agent = agent::start(Behaviour::default(), endless).await;
    let mut options = options(&agent);
    options.send = Some("hello".to_owned());
    options.versions = vec![nuncio_protocol::Version::V1_0];
    options.bindings = vec![nuncio_protocol::Binding::JsonRpc];
    let result = audit(&options).await;
    let of = |id: &str| result.findings.iter().find(|finding| finding.check == id).unwrap();
    assert_eq!(of("stream.closes").unseen, Some(Unseen::Slow));
    assert_eq!(of("stream.terminal").unseen, Some(Unseen::Slow));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_agent_twice_has_the_same_report() {
    let agent = agent::start(Behaviour::default(), WHOLE).await;
    let (mut verdicts, mut reports) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let mut options = options(&agent);
        options.send = Some("hello".to_owned());
        options.skip = vec!["auth.list".to_owned()];
        let result = audit(&options).await;
        let report = |format| settled(&render(format, &result, &Options::default()));
        reports
            .push([Format::Markdown, Format::Html, Format::Json, Format::Junit, Format::Sarif].map(report));
        let all = [Verdict::Pass, Verdict::Loose, Verdict::Fail, Verdict::Info, Verdict::Unseen];
        verdicts.push((lines(&result, &all), result.capabilities, result.grounds, result.messages_sent));
    }
    assert_eq!(verdicts[0], verdicts[1]);
    for (one, two) in reports[0].iter().zip(&reports[1]) {
        let differs = one.lines().zip(two.lines()).find(|(one, two)| one != two);
        assert!(one == two, "{differs:?}");
    }
}

/// A report without times and ids: every run of hexadecimal digits is a zero, because a time has no zeros at its end,
/// and the line of its counters is left out.
fn settled(report: &str) -> String {
    let is_count = |line: &&str| !["requests", "duration", "elapsed"].iter().any(|word| line.contains(word));
    let lines = report.lines().filter(is_count);
    let mut settled = String::new();
    for character in lines.flat_map(|line| [line, "\n"]).flat_map(str::chars) {
        let character = if character.is_ascii_hexdigit() { '0' } else { character };
        if character != '0' || !settled.ends_with('0') {
            settled.push(character);
        }
    }
    settled
}
