//! Every row of the table of webhook agents in `docs/mailboxes.md`, over every store.

use std::collections::VecDeque;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use nuncio_client::notification::WebhookSecret;
use nuncio_protocol::TaskId;
use nuncio_server::{
    push::{Courier, Failure, Push, PushOptions, ReceiverAnswer, ReceiverResponse, Retry, RootKey},
    store::{FailureCause, PostgresStore},
    testing::postgres,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use url::Url;

use super::*;
use crate::{
    agents::{
        lease::Kept,
        mailbox::webhook::{Next, Webhook},
    },
    config::DeliverAs,
    identity::NewApiKey,
    push::Pushing,
};

const HOOK: &str = "https://agent.example/hook/s3cret";

/// An answer of the agent.
#[derive(Clone)]
struct Answer {
    outcome: Result<(u16, String), FailureCause>,
    /// Answers only after this.
    after: Option<Arc<Notify>>,
}

/// A request that was posted to the agent.
#[derive(Clone)]
struct Post {
    headers: HeaderMap,
    raw: Bytes,
}

impl Post {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn body(&self) -> Value {
        serde_json::from_slice(&self.raw).unwrap()
    }

    /// The lease, as [`Hub::update`] takes it.
    fn lease(&self) -> Value {
        json!({ "lease": self.header("webhook-id") })
    }

    fn data(&self) -> Value {
        self.body()["task"]["metadata"]["nuncio.lease"].clone()
    }
}

/// The agent behind the webhook: gives these answers, and then 503.
#[derive(Clone, Default)]
struct Agent(Arc<AgentState>);

#[derive(Default)]
struct AgentState {
    answers: Mutex<VecDeque<Answer>>,
    posts: Mutex<Vec<Post>>,
    posted: Notify,
}

impl Agent {
    fn answers(&self, status: u16, body: &Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.0.answers.lock().push_back(Answer { outcome: Ok((status, body)), after: None });
    }

    fn fails(&self, cause: FailureCause) {
        self.0.answers.lock().push_back(Answer { outcome: Err(cause), after: None });
    }

    fn posts(&self) -> Vec<Post> {
        self.0.posts.lock().clone()
    }

    fn last(&self) -> Post {
        self.posts().pop().unwrap()
    }
}

#[async_trait]
impl Courier for Agent {
    fn check(&self, url: &Url) -> Result<(), String> {
        if url.scheme() == "https" {
            Ok(())
        } else {
            Err("webhooks on loopback addresses are not allowed".to_owned())
        }
    }

    async fn post(&self, _: &Url, _: HeaderMap, _: Bytes, _: Duration) -> Result<ReceiverResponse, Failure> {
        panic!("an agent is asked")
    }

    async fn ask(
        &self,
        url: &Url,
        headers: HeaderMap,
        raw: Bytes,
        deadline: Duration,
        _: usize,
    ) -> Result<ReceiverAnswer, Failure> {
        assert_eq!((url.as_str(), deadline), (HOOK, Duration::from_secs(60)));
        self.0.posts.lock().push(Post { headers, raw });
        self.0.posted.notify_one();
        let answer = self.0.answers.lock().pop_front();
        let answer = answer.unwrap_or(Answer { outcome: Ok((503, String::new())), after: None });
        if let Some(after) = answer.after {
            after.notified().await;
        }
        match answer.outcome {
            Ok((status, body)) => Ok(ReceiverAnswer {
                response: ReceiverResponse {
                    status: StatusCode::from_u16(status).unwrap(),
                    retry_after: None,
                    excerpt: String::new(),
                },
                body: body.into(),
            }),
            Err(cause) => Err(Failure::Failed(cause, "away".into())),
        }
    }
}

fn settings() -> Settings {
    Settings { deliver_to: Some(Url::parse(HOOK).unwrap()), guarded: true, ..Settings::default() }
}

/// A hub with a webhook agent. Breakers and pauses of the engine follow its clock, which stands still.
async fn hub(store: Arc<dyn Store>, settings: Settings, agent: &Agent) -> Hub {
    let of_engine = Arc::clone(&store);
    let agent = agent.clone();
    Hub::over(store, settings, move |factory| {
        let retry = Retry { first: Duration::from_secs(10), ..Retry::default() };
        let push = Push::builder(of_engine, agent, RootKey::new([7; 32])).retry(retry).build().unwrap();
        factory.pushing = Some(Pushing { push, options: PushOptions::default() });
    })
    .await
}

/// Runs a case over every store.
async fn over_every_store<F: Future<Output = ()>>(settings: Settings, case: impl Fn(Hub, Agent) -> F) {
    let data = Data::all();
    let url = postgres::database().await;
    let shared: Arc<dyn Store> = Arc::new(PostgresStore::connect(&url, Default::default()).await.unwrap());
    for store in [data[0].open().await, data[1].open().await, shared] {
        let agent = Agent::default();
        case(hub(Arc::clone(&store), settings.clone(), &agent).await, agent).await;
        store.close().await;
    }
}

impl Hub {
    fn webhook(&self) -> Arc<Webhook> {
        Arc::clone(self.mailbox.webhook.as_ref().unwrap())
    }

    /// The turn that is taken for the webhook now.
    async fn taken(&self) -> Option<Kept> {
        match self.mailboxes.next_delivery(&self.mailbox, &self.webhook()).await.unwrap() {
            Next::Turn(kept) => Some(*kept),
            Next::Nothing(_) => None,
        }
    }

    /// Delivers the next turn; false if none is due.
    async fn deliver(&self) -> bool {
        let Some(kept) = self.taken().await else { return false };
        self.mailboxes.deliver(&self.mailbox, &self.webhook(), &kept).await;
        true
    }

    async fn is(&self, task: &Task, state: TaskState, words: &str) {
        let task = self.get(task).await;
        let said =
            task.status.message.as_ref().map(|message| message.text().into_owned()).unwrap_or_default();
        assert_eq!(task.status.state, state, "{said}");
        assert!(said.contains(words), "{said:?} has no {words:?}");
    }
}

fn message(text: &str) -> Value {
    json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]}})
}

fn answered_task(state: &str, text: &str) -> Value {
    let said = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]});
    json!({"task": {"id": "own", "contextId": "own", "status": {"state": state, "message": said},
        "artifacts": [{"artifactId": "a", "parts": [{"text": "A"}]}]}})
}

#[tokio::test]
async fn a_message_is_posted_and_200_is_the_answer() {
    over_every_store(settings(), |hub, agent| async move {
        let task = hub.begin("build it").await;
        hub.is(&task, TaskState::Submitted, "waits for a worker of coder").await;
        assert_eq!(hub.harness.runtime.live_tasks(), 0, "it costs no memory");
        agent.answers(200, &message("built"));
        assert!(hub.deliver().await && !hub.deliver().await);
        hub.is(&task, TaskState::Completed, "built").await;
        let post = agent.last();
        let lease = post.header("webhook-id").to_owned();
        assert_eq!(
            post.header("link"),
            format!("<http://127.0.0.1:2602/mailboxes/coder/leases/{lease}:update>; rel=\"edit\"")
        );
        assert_eq!(
            (post.header("content-type"), post.header("a2a-version")),
            ("application/a2a+json", "1.0")
        );
        assert!(post.header("traceparent").len() == 55 && !post.header("webhook-timestamp").is_empty());
        let (body, data) = (post.body(), post.data());
        assert_eq!(
            (&body["task"]["id"], &body["task"]["history"][0]["parts"][0]["text"]),
            (&json!(task.id.as_str()), &json!("build it"))
        );
        assert_eq!(
            (&data["lease"], &data["attempt"], &data["generation"]),
            (&json!(lease), &json!(1), &json!(1))
        );
        assert_eq!(data["repeatId"], post.header("idempotency-key"));
        assert_eq!(hub.turns().await, 0);

        let other = hub.begin("ask me").await;
        agent.answers(200, &answered_task("TASK_STATE_INPUT_REQUIRED", "which?"));
        hub.deliver().await;
        hub.is(&other, TaskState::InputRequired, "which?").await;
        assert_eq!(hub.get(&other).await.artifacts[0].text(), "A");
        hub.begin(Say::to(&other, "blue")).await;
        agent.answers(200, &message("blue it is"));
        hub.deliver().await;
        hub.is(&other, TaskState::Completed, "blue it is").await;
        let history = agent.last().body()["task"]["history"].as_array().unwrap().clone();
        assert_eq!(
            history.last().unwrap()["parts"][0]["text"],
            "blue",
            "the last message is the one to answer"
        );
    })
    .await;
}

#[tokio::test]
async fn after_202_lines_follow_by_the_pull_api() {
    over_every_store(settings(), |hub, agent| async move {
        let task = hub.begin("slow").await;
        agent.answers(202, &Value::Null);
        hub.deliver().await;
        hub.is(&task, TaskState::Working, "").await;
        assert_eq!(
            metadata(&hub.get(&task).await, "nuncio.worker"),
            json!({"name": "webhook", "generation": 1})
        );
        let lease = agent.last().lease();
        hub.later(Duration::from_secs(3600));
        hub.sweep().await;
        assert_eq!(hub.update(&lease, 1, &[json!({"text": "half"})]).await.unwrap()["have"], 1);
        assert_eq!(hub.update(&lease, 2, &[json!({"completed": "done"})]).await.unwrap()["done"], true);
        hub.is(&task, TaskState::Completed, "done").await;

        // A task that is not settled says the same as 202; and lines may come before the answer to the delivery.
        let task = hub.begin("early").await;
        let after = Arc::new(Notify::new());
        let outcome = Ok((200, answered_task("TASK_STATE_WORKING", "").to_string()));
        agent.0.answers.lock().push_back(Answer { outcome, after: Some(Arc::clone(&after)) });
        let writes = async {
            while agent.posts().len() < 2 {
                agent.0.posted.notified().await;
            }
            hub.update(&agent.last().lease(), 1, &[json!({"text": "first"})]).await.unwrap();
            after.notify_one();
        };
        tokio::join!(hub.deliver(), writes);
        let lease = agent.last().lease();
        assert_eq!(hub.update(&lease, 2, &[json!({"completed": ""})]).await.unwrap()["done"], true);
        assert_eq!(hub.get(&task).await.artifacts[0].text(), "first");
    })
    .await;
}

#[tokio::test]
async fn a_webhook_that_has_begun_and_says_no_more_is_lost_after_answer_hours() {
    over_every_store(settings(), |hub, agent| async move {
        let lost = hub.begin("slow").await;
        agent.answers(202, &Value::Null);
        hub.deliver().await;
        let stale = agent.last().lease();
        hub.later(Duration::from_secs(24 * 3600 - 60));
        hub.sweep().await;
        hub.is(&lost, TaskState::Working, "").await;
        hub.later(Duration::from_secs(61));
        hub.sweep().await;
        hub.is(&lost, TaskState::Failed, "the worker was lost after it had begun").await;
        assert_eq!(reason(hub.update(&stale, 1, &[json!({"text": "x"})]).await), Reason::LeaseLost);

        // With a memo it is delivered again, with the memo and all that is known.
        let resumed = hub.begin("slow").await;
        agent.answers(202, &Value::Null);
        hub.deliver().await;
        hub.update(&agent.last().lease(), 1, &[json!({"text": "half"}), json!({"memo": {"at": 7}})])
            .await
            .unwrap();
        hub.later(Duration::from_secs(24 * 3600 + 1));
        hub.sweep().await;
        agent.answers(200, &message("whole"));
        assert!(hub.deliver().await);
        let data = agent.last().data();
        assert_eq!(
            (&data["resumed"], &data["memo"], &data["generation"]),
            (&json!(true), &json!({"at": 7}), &json!(2))
        );
        hub.is(&resumed, TaskState::Completed, "whole").await;
    })
    .await;
}

#[tokio::test]
async fn an_agent_that_is_away_gets_its_message_when_it_is_back() {
    over_every_store(Settings { max_attempts: 2, ..settings() }, |hub, agent| async move {
        let task = hub.begin("hi").await;
        let before = hub.get(&task).await;
        // None of these counts: the agent has not had the message.
        for attempt in 0..4 {
            match attempt % 2 {
                0 => agent.fails(FailureCause::Connect),
                _ => agent.answers(503, &Value::Null),
            }
            assert!(hub.deliver().await, "{attempt}");
            assert!(!hub.deliver().await, "not before its pause: {attempt}");
            hub.later(Duration::from_secs(12 << attempt));
        }
        assert_eq!(hub.told(&task).await, summary(&before), "it waits as before");
        agent.answers(200, &message("hello"));
        assert!(hub.deliver().await);
        hub.is(&task, TaskState::Completed, "hello").await;
        let numbers: Vec<_> = agent.posts().iter().map(|post| post.data()["generation"].clone()).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5], "each delivery is a lease of its own");
        let repeats: std::collections::HashSet<_> =
            agent.posts().iter().map(|post| post.header("idempotency-key").to_owned()).collect();
        assert_eq!(repeats.len(), 1, "of one message");
    })
    .await;
}

#[tokio::test]
async fn nobody_answers_within_wait_hours_and_the_task_fails() {
    over_every_store(settings(), |hub, agent| async move {
        let task = hub.begin("hi").await;
        agent.fails(FailureCause::Dns);
        hub.deliver().await;
        hub.later(Duration::from_secs(24 * 3600 + 1));
        hub.sweep().await;
        hub.is(&task, TaskState::Failed, "no worker of coder took it until").await;
        assert_eq!(hub.turns().await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_message_that_breaks_its_agent_is_poison_after_max_attempts() {
    over_every_store(settings(), |hub, agent| async move {
        let task = hub.begin("boom").await;
        let mut leases = Vec::new();
        for (attempt, broken) in [FailureCause::Timeout, FailureCause::Broken].into_iter().enumerate() {
            agent.fails(broken);
            assert!(hub.deliver().await);
            leases.push(agent.last().lease());
            hub.later(Duration::from_secs(30 << attempt));
        }
        // What an earlier delivery says now changes nothing.
        for lease in &leases {
            assert_eq!(reason(hub.update(lease, 1, &[json!({"text": "late"})]).await), Reason::LeaseLost);
        }
        agent.answers(500, &Value::Null);
        assert!(hub.deliver().await);
        hub.is(&task, TaskState::Failed, "offered to workers 3 times").await;
        let begun = hub.mailboxes.retry_poison(NAME, None).await.unwrap().unwrap();
        hub.parked().await;
        agent.answers(200, &message("at last"));
        assert!(hub.deliver().await);
        let again = hub.harness.get(&TaskId::from(begun[0].as_str())).await.unwrap();
        assert_eq!(again.status.state, TaskState::Completed);
    })
    .await;
}

#[tokio::test]
async fn other_statuses_fail_the_task_with_the_reason() {
    over_every_store(settings(), |hub, agent| async move {
        let statusless = json!({"task": {"id": "x", "contextId": "y", "status": {"state": "TASK_STATE_COMPLETED"},
            "artifacts": [{"artifactId": "", "parts": []}]}});
        for (status, body, expected) in [
            (400, Value::Null, "refused the message: 400 Bad Request"),
            (404, Value::Null, "refused the message: 404 Not Found"),
            (422, message("no"), "refused the message: 422"),
            (204, Value::Null, "answered 204 No Content; expected 200"),
            (200, Value::Null, "answered 200 without a message or a task"),
            (200, statusless, "answered 200 without a message or a task"),
        ] {
            let task = hub.begin("hi").await;
            agent.answers(status, &body);
            assert!(hub.deliver().await);
            hub.is(&task, TaskState::Failed, expected).await;
        }
        assert_eq!(hub.turns().await, 0);
    })
    .await;
}

#[tokio::test]
async fn after_410_messages_wait_until_an_operator_enables_the_webhook() {
    over_every_store(settings(), |hub, agent| async move {
        let first = hub.begin("one").await;
        agent.answers(410, &Value::Null);
        assert!(hub.deliver().await);
        hub.is(&first, TaskState::Submitted, "waits").await;
        let overview = || async { hub.mailboxes.overview(NAME).await.unwrap().unwrap() };
        assert!(overview().await.disabled.is_some());
        assert_eq!(
            overview().await.webhook.as_deref(),
            Some("https://agent.example"),
            "the path may be secret"
        );
        hub.begin("two").await;
        hub.later(Duration::from_secs(3600));
        assert!(!hub.deliver().await, "nothing is posted");
        let fetched = hub.claim().await.unwrap();
        assert_eq!(fetched["attempt"], 1, "a worker may fetch meanwhile");
        hub.update(&fetched, 1, &[json!({"completed": "by hand"})]).await.unwrap();
        hub.is(&first, TaskState::Completed, "by hand").await;
        assert_eq!(hub.mailboxes.enable(NAME).await.unwrap(), Some(true));
        assert_eq!(hub.mailboxes.enable(NAME).await.unwrap(), Some(false));
        agent.answers(200, &message("hello"));
        assert!(hub.deliver().await);
        assert!(overview().await.disabled.is_none());
    })
    .await;
}

#[tokio::test]
async fn a_cancel_ends_a_delivery_at_any_stage() {
    over_every_store(settings(), |hub, agent| async move {
        let waits = hub.begin("waits").await;
        agent.fails(FailureCause::Connect);
        hub.deliver().await;
        assert_eq!(hub.harness.cancel(&waits.id).await.unwrap().status.state, TaskState::Canceled);
        hub.later(Duration::from_secs(60));
        assert!(!hub.deliver().await);

        // Under way: nobody waits for its answer any more.
        let asked = hub.begin("asked").await;
        let outcome = Ok((200, message("late").to_string()));
        let never = Arc::new(Notify::new());
        agent.0.answers.lock().push_back(Answer { outcome, after: Some(never) });
        let cancels = async {
            while agent.posts().len() < 2 {
                agent.0.posted.notified().await;
            }
            hub.harness.cancel(&asked.id).await.unwrap()
        };
        let (_, canceled) = tokio::join!(hub.deliver(), cancels);
        assert_eq!(canceled.status.state, TaskState::Canceled);
        hub.is(&asked, TaskState::Canceled, "").await;

        // Begun: it is told, and may stop by itself.
        let begun = hub.begin("begun").await;
        agent.answers(202, &Value::Null);
        hub.deliver().await;
        let lease = agent.last().lease();
        let stops = async {
            loop {
                let told = hub.update(&lease, 1, &[]).await.unwrap();
                if told["cancel"] == true {
                    break;
                }
                tokio::task::yield_now().await;
            }
            hub.mailboxes.release(&hub.mailbox, &id(&lease)).await.unwrap();
        };
        let (canceled, ()) = tokio::join!(hub.harness.cancel(&begun.id), stops);
        assert_eq!(canceled.unwrap().status.state, TaskState::Canceled);
        assert_eq!(reason(hub.update(&lease, 1, &[json!({"text": "x"})]).await), Reason::LeaseLost);
    })
    .await;
}

#[tokio::test]
async fn an_operator_takes_a_delivery_over() {
    over_every_store(Settings { redeliver: true, ..settings() }, |hub, agent| async move {
        let task = hub.begin("slow").await;
        agent.answers(202, &Value::Null);
        hub.deliver().await;
        let stale = agent.last().lease();
        let ended = hub.mailboxes.take_over_leases(NAME, Some("webhook"), None).await.unwrap();
        assert_eq!(ended, Some(1));
        assert_eq!(reason(hub.heartbeat(&stale).await), Reason::LeaseLost);
        agent.answers(200, &message("again"));
        assert!(hub.deliver().await);
        hub.is(&task, TaskState::Completed, "again").await;
    })
    .await;
}

#[tokio::test]
async fn a_hub_that_is_killed_delivers_again_after_the_time_of_a_lease() {
    let url = postgres::database().await;
    let [memory, sqlite, ..] = Data::all();
    for kind in 0..3 {
        let open = || async {
            let shared: Arc<dyn Store> = match kind {
                0 => memory.open().await,
                1 => sqlite.open().await,
                _ => Arc::new(PostgresStore::connect(&url, Default::default()).await.unwrap()),
            };
            shared
        };
        let agent = Agent::default();
        let first = hub(open().await, settings(), &agent).await;
        let task = first.begin("hi").await;
        assert!(first.taken().await.is_some(), "it is killed before it posts");
        first.factory.store.close().await;
        drop(first);
        let second = hub(open().await, settings(), &agent).await;
        assert!(!second.deliver().await, "the first one may still wait for the answer");
        second.later(Duration::from_secs(76));
        agent.answers(200, &message("hello"));
        assert!(second.deliver().await);
        assert_eq!(agent.last().data()["generation"], 2);
        second.is(&task, TaskState::Completed, "hello").await;
        second.factory.store.close().await;
    }
}

/// Hubs that take turns at the same time take each of them once.
#[tokio::test]
async fn two_hubs_never_deliver_one_lease() {
    let url = postgres::database().await;
    let [memory, ..] = Data::all();
    for is_shared in [false, true] {
        let open = || async {
            let store: Arc<dyn Store> = match is_shared {
                false => memory.open().await,
                true => Arc::new(PostgresStore::connect(&url, Default::default()).await.unwrap()),
            };
            store
        };
        let agent = Agent::default();
        let hubs = [hub(open().await, settings(), &agent).await, hub(open().await, settings(), &agent).await];
        let mut tasks = Vec::new();
        for number in 0..12 {
            tasks.push(hubs[number % 2].begin(in_context(&format!("c{number}"), "hi")).await);
            agent.answers(200, &message("done"));
        }
        let all = |hub| async move { while Hub::deliver(hub).await {} };
        tokio::join!(all(&hubs[0]), all(&hubs[1]), all(&hubs[0]), all(&hubs[1]));
        let leases: Vec<_> = agent.posts().iter().map(|post| post.header("webhook-id").to_owned()).collect();
        let different: std::collections::HashSet<_> = leases.iter().collect();
        assert_eq!((leases.len(), different.len()), (12, 12), "{leases:?}");
        for task in &tasks {
            hubs[0].is(task, TaskState::Completed, "done").await;
        }
        for hub in &hubs {
            hub.factory.store.close().await;
        }
    }
}

#[tokio::test]
async fn messages_of_one_conversation_are_delivered_one_at_a_time() {
    over_every_store(settings(), |hub, agent| async move {
        let first = hub.begin(in_context("c", "one")).await;
        hub.begin(in_context("c", "two")).await;
        let other = hub.begin(in_context("d", "three")).await;
        agent.answers(202, &Value::Null);
        agent.answers(200, &message("3"));
        assert!(hub.deliver().await && hub.deliver().await && !hub.deliver().await);
        hub.is(&other, TaskState::Completed, "3").await;
        let lease = agent.posts()[0].lease();
        hub.update(&lease, 1, &[json!({"completed": "1"})]).await.unwrap();
        hub.is(&first, TaskState::Completed, "1").await;
        agent.answers(200, &message("2"));
        assert!(hub.deliver().await);
        let earlier = agent.last().data()["earlier"].clone();
        assert_eq!(earlier.as_array().map(Vec::len), Some(1), "with the conversation so far: {earlier}");
        assert_eq!(earlier[0]["id"], first.id.as_str());
    })
    .await;
}

#[tokio::test]
async fn a_receiver_that_fails_is_left_alone_by_all_messages() {
    over_every_store(settings(), |hub, agent| async move {
        for number in 0..8 {
            hub.begin(in_context(&format!("c{number}"), "hi")).await;
        }
        while hub.deliver().await {}
        assert_eq!(agent.posts().len(), 5, "its circuit is open");
        assert_eq!(hub.turns().await, 8, "and nothing is lost");
    })
    .await;
}

#[tokio::test]
async fn a_delivery_is_signed_with_the_key_of_the_mailbox_and_has_the_format_of_the_settings() {
    for (deliver_as, member, version) in [
        (DeliverAs::V1, "task", "1.0"),
        (DeliverAs::V03, "kind", "0.3"),
        (DeliverAs::NeuralPost, "jsonrpc", "0.3"),
    ] {
        let agent = Agent::default();
        let store = Data::nth(0).open().await;
        let hub = hub(store, Settings { deliver_as, ..settings() }, &agent).await;
        let keys = hub.factory.identity.mailbox_keys();
        let (_, key) = keys.create(NewApiKey::named(NAME)).await.unwrap();
        let task = hub.begin("hi").await;
        let said = json!({"kind": "message", "messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "yes"}]});
        agent.answers(200, &said);
        assert!(hub.deliver().await);
        hub.is(&task, TaskState::Completed, "yes").await;
        let post = agent.last();
        assert!(post.body().get(member).is_some(), "{}", post.body());
        assert_eq!(post.header("a2a-version"), version);
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.reveal().as_bytes());
        let secret = WebhookSecret::from_bytes(digest.as_ref()).unwrap();
        let time = post.header("webhook-timestamp").parse().unwrap();
        let (signed, id) = (post.header("webhook-signature"), post.header("webhook-id"));
        secret.verify(signed, id, time, &post.raw, time).unwrap();
    }
}

#[tokio::test]
async fn an_address_that_the_operator_has_not_chosen_is_guarded() {
    let agent = Agent::default();
    let [data, ..] = Data::all();
    let first = hub(data.open().await, settings(), &agent).await;
    let factory = Arc::clone(&first.factory);
    let local = Some(Url::parse("http://127.0.0.1:9/hook").unwrap());
    for (guarded, is_served) in [(true, false), (false, true)] {
        let settings = Settings { deliver_to: local.clone(), guarded, ..Settings::default() };
        let kind = AgentKind::Mailbox(Box::new(settings));
        let wanted = config::Agent::new("other".parse().unwrap(), kind, AgentOrigin::Api);
        let made = Arc::clone(&factory).prepare(wanted, None).await;
        match made {
            Ok(_) => assert!(is_served),
            Err(error) => {
                assert!(
                    !is_served && format!("{error:#}").contains("loopback addresses are not allowed"),
                    "{error:#}"
                );
            }
        }
    }
}
