//! The connector: turns of the hub become messages to an agent of this machine, and its changes lines.

use nuncio_client::worker::Worker;
use nuncio_hub::{
    ConnectOptions, Connector, LeaseEnd, Report,
    config::{Given, Origin, Source, Told, agent_spec},
};
use nuncio_server::bind::BindOptions;
use nuncio_tests::{
    agent::{Gates, Scripted},
    mailbox::{FakeHub, FakeLease, MAILBOX_KEY},
    within,
    world::Server,
};
use serde_json::json;
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    task::JoinHandle,
};

/// The end of a connector: the reason, if it was refused.
type Ended = Result<(), String>;

/// A connector that runs beside the test.
struct Running {
    stop: Option<oneshot::Sender<()>>,
    reports: Mutex<mpsc::UnboundedReceiver<Report>>,
    running: JoinHandle<Ended>,
}

impl Running {
    async fn start(hub: &FakeHub, to: &str, concurrency: usize) -> Self {
        let worker = Worker::builder(hub.url(), "coder").key(MAILBOX_KEY).build().unwrap();
        Self::with(worker, hub, to, concurrency).await
    }

    async fn with(worker: Worker, hub: &FakeHub, to: &str, concurrency: usize) -> Self {
        let path = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect();
        let origin = || Origin::Flag("--to".to_owned());
        let told = agent_spec(to).unwrap();
        let mut given = vec![Given { path: path(&["agents", "coder"]), told, origin: origin() }];
        if to.starts_with("http") {
            let told = Told::Text("wait".to_owned());
            given.push(Given { path: path(&["agents", "coder", "when_down"]), told, origin: origin() });
        }
        let loaded = Source { given, ..Source::default() }.load().unwrap();
        let agent = loaded.config.agents.into_iter().next().unwrap();
        let hub = hub.url().parse().unwrap();
        let connector = Connector::open(ConnectOptions { worker, hub, agent, concurrency }).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let (told, reports) = mpsc::unbounded_channel();
        let stopped = async move {
            let _ = stopped.await;
        };
        let run = connector.run(stopped, move |report| drop(told.send(report)));
        let running = tokio::spawn(async move { run.await.map_err(|error| format!("{error:#}")) });
        Self { stop: Some(stop), reports: Mutex::new(reports), running }
    }

    /// Waits until it reports something like this.
    async fn until(&self, what: &str, wanted: impl Fn(&Report) -> bool) {
        let mut reports = self.reports.lock().await;
        within(what, async { while !wanted(&reports.recv().await.unwrap()) {} }).await;
    }

    fn interrupt(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    async fn end(mut self) -> Ended {
        if self.stop.is_some() {
            self.interrupt();
        }
        within("the end of the connector", self.running).await.unwrap()
    }
}

/// An agent that plays scripts, on a socket.
async fn scripted() -> (Server, Gates) {
    let executor = Scripted::default();
    let gates = executor.gates.clone();
    (Server::start(executor, BindOptions::default(), |_| {}).await, gates)
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address)
}

async fn done(hub: &FakeHub, lease: usize) -> FakeLease {
    hub.until(lease, "the end of the lease", FakeLease::is_done).await
}

/// The lines of a lease without those that mark its beginning.
fn told(lease: &FakeLease) -> Vec<String> {
    lease.brief().into_iter().skip_while(|line| line == "memo" || line == "status working").collect()
}

#[tokio::test]
async fn an_agent_answers_through_its_mailbox() {
    for (script, expected) in [
        ("working; text a x; completed done", &["working", "artifact a x", "completed done"][..]),
        ("message hello", &["completed hello"]),
        ("working; chunk a x; last a y", &["working", "artifact a x", "artifact a y", "completed"]),
        ("working; ask which?", &["working", "input_required which?"]),
        ("reject no", &["rejected no"]),
        ("working; fail broken", &["working", "failed broken"]),
    ] {
        let (server, _gates) = scripted().await;
        let hub = FakeHub::start().await;
        let connector = Running::start(&hub, &url(&server), 1).await;
        hub.offer(script, &json!({}));
        let lease = done(&hub, 0).await;
        assert_eq!(told(&lease), expected, "{script}");
        connector.until("the end", |report| matches!(report, Report::Ends(_, LeaseEnd::State(_)))).await;
        connector.end().await.unwrap();
    }
}

#[tokio::test]
async fn the_card_of_the_agent_is_published_with_the_addresses_of_the_hub() {
    let (server, _gates) = scripted().await;
    let hub = FakeHub::start().await;
    let connector = Running::start(&hub, &url(&server), 1).await;
    let card = hub.until_card().await;
    assert_eq!(card["description"], "Does what the message says.");
    let text = card.to_string();
    assert!(text.contains(&hub.address.to_string()) && !text.contains(&server.address.to_string()), "{text}");
    connector.end().await.unwrap();
}

/// A program runs per lease. Its text stays one text, and its exit code is the end.
#[tokio::test]
async fn programs_answer_through_their_mailbox() {
    for (to, text, expected) in [
        ("cmd:cat", "hello", &["text hello", "completed"][..]),
        ("cmd:false", "hello", &["failed exit code 1"]),
        (
            r#"cmd+json:sh -c "read line; echo '{\"inputRequired\":\"which?\"}'""#,
            "hello",
            &["input_required which?"],
        ),
        (r#"cmd+json:sh -c "echo '{\"completed\":\"ok\"}'""#, "hello", &["completed ok"]),
    ] {
        let hub = FakeHub::start().await;
        let connector = Running::start(&hub, to, 1).await;
        hub.offer(text, &json!({}));
        let lease = done(&hub, 0).await;
        let seen: Vec<String> =
            told(&lease).into_iter().filter(|line| line != "working" && line != "text ").collect();
        assert_eq!(seen, expected, "{to}");
        connector.end().await.unwrap();
    }
}

/// A program sees the task by the ids of the hub, and the conversation.
#[tokio::test]
async fn a_program_reads_all_that_the_hub_tells() {
    let hub = FakeHub::start().await;
    let script = r#"cmd+json:sh -c 'read -r line; printf "{\"artifact\":{\"artifactId\":\"in\",\"parts\":[{\"data\":%s}]}}\n" "$line"'"#;
    let connector = Running::start(&hub, script, 1).await;
    let earlier = json!([{ "id": "t-0", "contextId": "c-1", "status": { "state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00Z" } }]);
    let task = json!({ "id": "t-1", "contextId": "c-1", "status": { "state": "TASK_STATE_INPUT_REQUIRED", "timestamp": "2026-01-02T00:00:00Z" } });
    hub.offer(
        "hello",
        &json!({ "principal": "ann", "earlier": earlier, "task": task, "metadata": { "k": 1 } }),
    );
    let lease = done(&hub, 0).await;
    let update = lease.lines.iter().find(|line| line.get("artifactUpdate").is_some()).unwrap();
    let input = &update["artifactUpdate"]["artifact"]["parts"][0]["data"];
    let seen = json!([
        input["taskId"],
        input["contextId"],
        input["principal"],
        input["metadata"]["k"],
        input["earlier"][0]["id"],
        input["task"]["status"]["state"]
    ]);
    assert_eq!(seen, json!(["t-1", "c-1", "ann", 1, "t-0", "TASK_STATE_INPUT_REQUIRED"]));
    connector.end().await.unwrap();
}

/// The first lines are stored before the agent gets the message, so that nothing begins twice.
#[tokio::test]
async fn a_lease_begins_before_the_agent_is_asked() {
    let (server, gates) = scripted().await;
    let hub = FakeHub::start().await;
    let connector = Running::start(&hub, &url(&server), 1).await;
    hub.offer("working; wait go; completed", &json!({}));
    let begun = hub.until(0, "the beginning", |lease| !lease.lines.is_empty()).await;
    assert_eq!(
        begun.brief()[..2],
        ["memo", "status working"],
        "the agent recognises repeats, so it may be asked again"
    );
    gates.open("go");
    done(&hub, 0).await;
    connector.end().await.unwrap();
}

/// The second connector gets the memo of the first and follows the same task: the agent is asked once.
#[tokio::test]
async fn a_new_connector_goes_on_with_the_task() {
    let (server, gates) = scripted().await;
    let hub = FakeHub::start().await;
    let first = Running::start(&hub, &url(&server), 1).await;
    hub.offer("working; text a x; wait go; text b y; completed", &json!({}));
    let half =
        hub.until(0, "the first artifact", |lease| lease.brief().contains(&"artifact a x".to_owned())).await;
    hub.lose(0);
    first.until("the loss", |report| matches!(report, Report::Ends(..))).await;
    first.end().await.unwrap();
    let memo = half.lines.iter().filter_map(|line| line.get("memo")).next_back().unwrap();
    let second = Running::start(&hub, &url(&server), 1).await;
    let artifact = json!({ "artifactId": "a", "parts": [{ "text": "x" }] });
    let task = json!({
        "id": "t-1", "contextId": "c-1", "artifacts": [artifact],
        "status": { "state": "TASK_STATE_WORKING", "timestamp": "2026-01-01T00:00:00Z" },
        "history": [half.offer["message"]],
    });
    hub.offer(
        "working; text a x; wait go; text b y; completed",
        &json!({ "resumed": true, "memo": memo, "task": task }),
    );
    second.until("the resumed turn", |report| matches!(report, Report::Begins(_, true))).await;
    gates.open("go");
    let lease = done(&hub, 1).await;
    let artifacts: Vec<String> =
        lease.brief().into_iter().filter(|line| line.starts_with("artifact")).collect();
    assert_eq!(artifacts, ["artifact b y"], "what the first has told is not told again");
    second.end().await.unwrap();
}

/// Question and answer are two leases of one task, and one task of the agent.
#[tokio::test]
async fn an_answer_reaches_the_task_that_has_asked() {
    let (server, _gates) = scripted().await;
    let hub = FakeHub::start().await;
    let connector = Running::start(&hub, &url(&server), 1).await;
    hub.offer("working; ask which?", &json!({}));
    let asked = done(&hub, 0).await;
    let memo = asked.lines.iter().filter_map(|line| line.get("memo")).next_back().unwrap();
    let task = json!({
        "id": "t-1", "contextId": "c-1", "history": [asked.offer["message"]],
        "status": { "state": "TASK_STATE_INPUT_REQUIRED", "timestamp": "2026-01-01T00:00:00Z" },
    });
    hub.offer("show; completed thanks", &json!({ "memo": memo, "task": task, "repeatId": "r-2" }));
    let lease = done(&hub, 1).await;
    assert_eq!(lease.brief().last().map(String::as_str), Some("completed thanks"));
    let memos: Vec<_> = lease.lines.iter().filter_map(|line| line.get("memo")).collect();
    assert_eq!(memos, [memo], "the turn has a memo of its own, so that a lost worker is followed by another");
    connector.end().await.unwrap();
}

#[tokio::test]
async fn a_cancel_reaches_the_agent_and_is_acknowledged() {
    let (server, _gates) = scripted().await;
    for to in [url(&server), "cmd:sleep 600".to_owned()] {
        let hub = FakeHub::start().await;
        let connector = Running::start(&hub, &to, 1).await;
        hub.offer("working; hold", &json!({}));
        hub.until(0, "the work", |lease| lease.brief().contains(&"working".to_owned())).await;
        hub.cancel(0);
        hub.until(0, "the end", |lease| lease.released).await;
        connector.end().await.unwrap();
    }
}

#[tokio::test]
async fn an_interrupted_connector_finishes_what_runs_and_claims_no_more() {
    let (server, gates) = scripted().await;
    let hub = FakeHub::start().await;
    let mut connector = Running::start(&hub, &url(&server), 2).await;
    hub.offer("working; wait go; completed", &json!({}));
    hub.until(0, "the work", |lease| lease.brief().contains(&"working".to_owned())).await;
    connector.interrupt();
    connector.until("the notice", |report| *report == Report::Finishing(1)).await;
    hub.offer("completed", &json!({ "taskId": "t-2" }));
    gates.open("go");
    connector.end().await.unwrap();
    let leases = hub.leases();
    assert_eq!((leases.len(), leases[0].is_done()), (1, true), "{leases:?}");
}

#[tokio::test]
async fn several_tasks_run_side_by_side_up_to_the_limit() {
    let (server, gates) = scripted().await;
    let hub = FakeHub::start().await;
    let connector = Running::start(&hub, &url(&server), 2).await;
    for number in 1..=3 {
        let id = format!("t-{number}");
        hub.offer(&format!("working; wait {number}; completed"), &json!({ "taskId": id, "repeatId": id }));
    }
    for lease in 0..2 {
        hub.until(lease, "the work", |lease| lease.brief().contains(&"working".to_owned())).await;
    }
    assert_eq!(hub.leases().len(), 2, "a third is not claimed");
    gates.open("1");
    done(&hub, 0).await;
    hub.until(2, "the third", |_| true).await;
    gates.open("2");
    gates.open("3");
    done(&hub, 2).await;
    connector.end().await.unwrap();
}

#[tokio::test]
async fn no_work_is_claimed_for_an_agent_that_is_away() {
    let hub = FakeHub::start().await;
    let nobody = "http://127.0.0.1:1";
    let connector = Running::start(&hub, nobody, 1).await;
    hub.offer("hello", &json!({}));
    connector.until("the notice", |report| matches!(report, Report::AgentIsAway(_))).await;
    assert!(hub.leases().is_empty() && hub.card().is_none());
    connector.end().await.unwrap();
}

#[tokio::test]
async fn a_wrong_key_ends_the_connector() {
    let hub = FakeHub::start().await;
    let worker = Worker::builder(hub.url(), "coder").key("wrong").build().unwrap();
    let connector = Running::with(worker, &hub, "cmd:cat", 1).await;
    let ended = within("the end", connector.running).await.unwrap();
    assert!(ended.unwrap_err().contains("refuses the worker"));
}

#[tokio::test]
async fn a_hub_that_comes_back_finds_its_connector() {
    let hub = FakeHub::start().await;
    hub.set_down(true);
    let connector = Running::start(&hub, "cmd:cat", 1).await;
    connector.until("the notice", |report| matches!(report, Report::HubIsAway(_))).await;
    hub.offer("hello", &json!({}));
    hub.set_down(false);
    connector.until("the return", |report| *report == Report::HubIsBack).await;
    done(&hub, 0).await;
    connector.end().await.unwrap();
}
