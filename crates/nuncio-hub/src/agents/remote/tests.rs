//! Callers of the hub see correct A2A in front of upstream agents that lack features.

mod bytes;
mod cards;
mod contexts;
mod hosts;
mod outage;
mod patience;
mod peer;
mod pending_cancels;
mod send_once;
pub(in crate::agents) mod trust;

use std::{path::PathBuf, time::Duration};

use nuncio_protocol::{
    A2aService as _, Binding, CallContext, ErrorKind, ListTasksRequest, Message, Part, SendMessageResponse,
    Task, TaskId, TaskState, Version,
    op::{Call, Op},
};
use nuncio_server::{
    store::{MemoryStore, RecordQuery, SqliteOptions, SqliteStore},
    testing::{Harness, Say, lines, next_line, summary},
};
use tokio::net::TcpListener;
use url::Url;

use self::peer::{Manners, Peer};
use super::*;
use crate::{
    agents::{delegation::hub_id, hex::random_hex},
    config::{AgentKind, AgentOrigin, CardSource, Credential, Follow, Secret},
    registry::PrepareAgent as _,
};

struct Hub {
    /// Among all hubs.
    id: Arc<str>,
    factory: Arc<AgentFactory>,
    agent: Arc<ServedAgent>,
    harness: Harness,
}

fn settings(url: &Url) -> Upstream {
    Upstream { poll_every: Duration::from_millis(5), ..Upstream::new(url.clone()) }
}

async fn factory(store: Arc<dyn Store>) -> Arc<AgentFactory> {
    Arc::new(AgentFactory {
        urls: AgentUrls::new(&Url::parse("http://hub.example").unwrap(), None),
        hub: hub_id(&*store).await.unwrap(),
        ..crate::registry::tests::factory(&store).await
    })
}

/// The agent of these settings, in either mode.
async fn agent(
    factory: &Arc<AgentFactory>,
    settings: Upstream,
    before: Option<Arc<ServedAgent>>,
) -> Arc<ServedAgent> {
    let kind = AgentKind::Upstream(Box::new(settings));
    let wanted = config::Agent::new("peer".parse().unwrap(), kind, AgentOrigin::Flag);
    let activate = Arc::clone(factory).prepare(wanted, before).await.unwrap();
    activate().unwrap()
}

async fn hub_with(settings: Upstream, store: Arc<dyn Store>) -> Hub {
    Hub::made(factory(store).await, settings, None).await
}

impl Hub {
    async fn made(factory: Arc<AgentFactory>, settings: Upstream, before: Option<Arc<ServedAgent>>) -> Self {
        let agent = agent(&factory, settings, before).await;
        let runtime = agent.runtime().unwrap().clone();
        let store = Arc::new(MemoryStore::default().into());
        let harness = Harness { runtime, store, cx: CallContext::default() };
        Self { id: Arc::clone(&factory.hub), factory, agent, harness }
    }

    /// The same agent by other settings.
    async fn change(self, settings: Upstream) -> Self {
        Self::made(self.factory, settings, Some(self.agent)).await
    }

    fn health(&self) -> Arc<Health> {
        self.agent.upstream().unwrap().health()
    }
}

async fn hub(settings: Upstream) -> Hub {
    hub_with(settings, Arc::new(MemoryStore::default())).await
}

async fn tasks(hub: &Hub) -> Vec<Task> {
    hub.harness.runtime.list_tasks(&hub.harness.cx, ListTasksRequest::default()).await.unwrap().tasks
}

/// The header with a bearer token.
const BEARER: &[(&str, &str)] = &[("authorization", "Bearer t0ken")];

/// Each as it would be got, in a line.
async fn tasks_told(hub: &Hub) -> Vec<String> {
    let mut told = Vec::new();
    for task in tasks(hub).await {
        told.push(summary(&hub.harness.get(&task.id).await.unwrap()));
    }
    told
}

/// A store that outlives a hub.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("nuncio-upstream-{}", random_hex::<8>()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&self.0.join("hub.db"), SqliteOptions::default()).await.unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits for what comes by itself.
async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < patience, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn records(store: &dyn Store, kind: &str) -> usize {
    let query = RecordQuery { kind: kind.into(), limit: 9, ..RecordQuery::default() };
    store.records(&query).await.unwrap().len()
}

/// Waits until there are no records of this kind.
async fn until_none(store: &dyn Store, kind: &str) {
    let patience = Instant::now() + Duration::from_secs(30);
    while records(store, kind).await > 0 {
        assert!(Instant::now() < patience, "records are left: {kind}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn whatever_the_agent_can_do_its_callers_have_tasks_and_streams() {
    use Op::{CancelTask, GetTask, ListTasks, SendStreamingMessage, SubscribeToTask};
    let good = Manners::good;
    let only = |version, binding| Manners { only: Some((version, binding)), ..good() };
    let plain = settings(&Url::parse("http://set.later").unwrap());
    let cases = [
        ("all", good(), plain.clone()),
        ("no list", Manners { lacks: vec![ListTasks], ..good() }, plain.clone()),
        (
            "no streaming",
            Manners { lacks: vec![SendStreamingMessage, SubscribeToTask], ..Manners::default() },
            plain.clone(),
        ),
        (
            "says that it streams",
            Manners { lacks: vec![SendStreamingMessage, SubscribeToTask], ..good() },
            plain.clone(),
        ),
        ("does not say that it streams", Manners::default(), plain.clone()),
        (
            "blocking only",
            Manners {
                blocks: true,
                lacks: vec![SendStreamingMessage, SubscribeToTask, GetTask, CancelTask, ListTasks],
                ..Manners::default()
            },
            plain.clone(),
        ),
        ("told to block", good(), Upstream { follow: Follow::Block, ..plain.clone() }),
        ("told to poll", good(), Upstream { follow: Follow::Poll, ..plain.clone() }),
        ("told to stream", Manners::default(), Upstream { follow: Follow::Stream, ..plain.clone() }),
        ("cut at 1", Manners { cuts_at: Some(1), ..good() }, plain.clone()),
        ("cut at 3", Manners { cuts_at: Some(3), ..good() }, plain.clone()),
        (
            "cut at 3, no subscribe",
            Manners { cuts_at: Some(3), lacks: vec![SubscribeToTask], ..good() },
            plain.clone(),
        ),
        ("own names", Manners { renames: true, ..good() }, plain.clone()),
        ("0.3 JSON-RPC", only(Version::V0_3, Binding::JsonRpc), plain.clone()),
        ("0.3 HTTP+JSON", only(Version::V0_3, Binding::HttpJson), plain.clone()),
        ("another version than promised", Manners { refuses: Some(Version::V1_0), ..good() }, plain.clone()),
        ("1.0 gRPC", only(Version::V1_0, Binding::Grpc), plain.clone()),
    ];
    for (name, manners, wanted) in cases {
        let peer = Peer::start(manners).await;
        let hub = hub(Upstream { url: peer.url.clone(), ..wanted }).await;
        let task = hub.harness.task("two").await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(summary(&task), "completed | user: two | a \"xy\"", "{name}");
        assert_eq!(peer.sends(), 1, "{name}: {:?}", peer.seen());

        let told = lines(hub.harness.stream("two").await.unwrap()).await;
        assert!(told.first().is_some_and(|first| first.starts_with("1 task submitted")), "{name}: {told:?}");
        assert!(told.last().is_some_and(|last| last.ends_with("status completed")), "{name}: {told:?}");
        assert_eq!(told.iter().filter(|line| line.contains("completed")).count(), 1, "{name}: {told:?}");
        assert_eq!(peer.sends(), 2, "{name}");
        assert_eq!(hub.health().condition, Condition::Up, "{name}");
        let card = &hub.agent.shown().card;
        assert_eq!((&*card.name, card.capabilities.streaming), ("peer", Some(true)), "{name}");
        assert!(!serde_json::to_string(&**card).unwrap().contains("127.0.0.1"), "{name}: {card:?}");
    }
}

#[tokio::test]
async fn a_card_may_be_anywhere_and_behind_anything() {
    let with_token =
        |upstream: &mut Upstream| upstream.auth.credential = Some(Credential::Bearer(Secret::new("t0ken")));
    for (manners, change) in [
        (
            Manners { card_at: Some("/odd/place"), ..Manners::good() },
            (|upstream: &mut Upstream| {
                upstream.card = Some(CardSource::Url(upstream.url.join("/odd/place").unwrap()));
            }) as fn(&mut Upstream),
        ),
        (Manners { wants: BEARER, ..Manners::good() }, with_token),
    ] {
        let peer = Peer::start(manners).await;
        let mut wanted = settings(&peer.url);
        change(&mut wanted);
        assert!(!format!("{wanted:?}").contains("t0ken"));
        let hub = hub(wanted).await;
        assert_eq!(summary(&hub.harness.task("two").await.unwrap()), "completed | user: two | a \"xy\"");
        assert_eq!(hub.agent.upstream().unwrap().card().unwrap()["name"], "peer");
    }
}

#[tokio::test]
async fn what_the_agent_demands_its_callers_are_told() {
    let peer = Peer::start(Manners { demands: Some("urn:x:y"), ..Manners::good() }).await;
    let hub = hub(settings(&peer.url)).await;
    assert_eq!(hub.harness.task("two").await.unwrap_err().kind(), ErrorKind::ExtensionSupportRequired);
    let aware = hub.harness.calling(|cx| cx.extensions = vec!["urn:x:y".to_owned(), "urn:x:z".to_owned()]);
    assert_eq!(aware.task("two").await.unwrap().status.state, TaskState::Completed);
    let declared = peer.seen()[0].cx.extensions.clone();
    assert!(declared.contains(&"urn:x:y".to_owned()) && !declared.contains(&"urn:x:z".to_owned()));
}

/// REQ-105: by its card, before it is called.
#[tokio::test]
async fn what_the_card_does_not_take_is_refused_before_the_agent_is_called() {
    let with = |media_type: &'static str| {
        Say::from("two").change(move |req| {
            let part = Part::raw("x").with_media_type(media_type).with_filename("f");
            req.message.parts.push(part);
        })
    };
    for manners in [Manners::good(), Manners::default()] {
        for (takes, media_type, is_taken) in [
            (&["text/plain"][..], "application/x-other", false),
            (&["text/plain"], "text/plain", true),
            (&["text/plain", "image/*"], "image/png", true),
            (&["text/plain", "image/*"], "application/pdf", false),
            (&["text"], "image/png", false),
            (&["text", "file"], "image/png", true),
            (&["*/*"], "application/x-other", true),
        ] {
            let peer = Peer::start(Manners { takes, ..manners.clone() }).await;
            let hub = hub(settings(&peer.url)).await;
            let sent = hub.harness.task(with(media_type)).await;
            let streamed = hub.harness.stream(with(media_type)).await;
            for error in [sent.err(), streamed.err()] {
                let kind = error.map(|error| error.kind());
                let expected = (!is_taken).then_some(ErrorKind::ContentTypeNotSupported);
                assert_eq!(kind, expected, "{takes:?} {media_type}");
            }
            if !is_taken {
                assert_eq!(peer.sends(), 0, "{takes:?} {media_type}");
            }
        }
    }
}

#[tokio::test]
async fn a_direct_reply_is_one_here_as_well() {
    for manners in [Manners::good(), Manners { blocks: true, ..Manners::default() }] {
        let peer = Peer::start(manners).await;
        let hub = hub(settings(&peer.url)).await;
        let answer = hub.harness.send("reply").await.unwrap();
        let SendMessageResponse::Message(message) = answer else { panic!("{answer:?}") };
        assert_eq!((&*message.text(), &message.task_id), ("hello", &None));
        assert_eq!(lines(hub.harness.stream("reply").await.unwrap()).await.len(), 1);
    }
}

#[tokio::test]
async fn an_answer_goes_on_with_the_task_that_asked() {
    for manners in [
        Manners::good(),
        Manners::default(),
        Manners { renames: true, ..Manners::good() },
        Manners { cuts_at: Some(1), ..Manners::good() },
    ] {
        let peer = Peer::start(manners).await;
        let hub = hub(settings(&peer.url)).await;
        let asked = hub.harness.task("ask").await.unwrap();
        assert_eq!(summary(&asked), "input-required \"which?\" | user: ask | ");
        let done = hub.harness.task(Say::to(&asked, "two")).await.unwrap();
        assert_eq!(summary(&done), "completed | user: ask; agent: which?; user: two | a \"xy\"");
        assert_eq!((&done.id, &done.context_id), (&asked.id, &asked.context_id));
        let tasks: Vec<Option<TaskId>> = sent(&peer).into_iter().map(|message| message.task_id).collect();
        assert!(
            tasks[0].is_none() && tasks[1].is_some() && tasks[1].as_ref() != Some(&asked.id),
            "{tasks:?}"
        );
    }
}

fn sent(peer: &Peer) -> Vec<Message> {
    let message = |seen: peer::Seen| match seen.call {
        Call::SendMessage(req) | Call::SendStreamingMessage(req) => Some(req.message),
        _ => None,
    };
    peer.seen().into_iter().filter_map(message).collect()
}

#[tokio::test]
async fn a_conversation_keeps_the_name_that_the_agent_gave_it() {
    let peer = Peer::start(Manners { renames: true, ..Manners::good() }).await;
    let hub = hub(settings(&peer.url)).await;
    let first = hub.harness.task("two").await.unwrap();
    let again = Say::from("two").change(|req| {
        req.message.context_id = Some(first.context_id.clone());
        req.message.reference_task_ids = vec![first.id.clone(), "unknown".into()];
    });
    let second = hub.harness.task(again).await.unwrap();
    assert_eq!(second.context_id, first.context_id);
    let sent = sent(&peer);
    let ours = hub.factory.contexts.derive(&hub.harness.cx.caller, &first.context_id);
    assert_eq!(sent[0].context_id.as_ref().unwrap(), &ours, "ours, until it has another");
    assert_eq!(sent[1].context_id.as_ref().unwrap().as_str(), format!("up-{ours}"));
    assert_eq!(sent[1].reference_task_ids.len(), 1, "known ones by their own names: {:?}", sent[1]);
    assert_ne!(sent[1].reference_task_ids[0], first.id);
}

#[tokio::test]
async fn a_refusal_is_the_same_error_here_and_leaves_no_task() {
    for manners in [Manners::good(), Manners { blocks: true, ..Manners::default() }] {
        let peer = Peer::start(manners).await;
        let hub = hub(settings(&peer.url)).await;
        for error in
            [hub.harness.task("refuse").await.unwrap_err(), hub.harness.stream("refuse").await.err().unwrap()]
        {
            assert_eq!(error.kind(), ErrorKind::InvalidParams);
            assert_eq!(error.violations()[0].field, "message.parts[0]");
        }
        let asked = hub.harness.task("ask").await.unwrap();
        let still = hub.harness.task(Say::to(&asked, "refuse")).await.unwrap();
        assert_eq!(still.status.state, TaskState::InputRequired, "{}", summary(&still));
        let words = still.status.message.unwrap().text().into_owned();
        assert!(words.contains("no such currency") && words.contains("which?"), "{words}");
        let done = hub.harness.task(Say::to(&asked, "two")).await.unwrap();
        assert_eq!(done.status.state, TaskState::Completed);
    }
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_served_until_it_comes() {
    let place = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = place.local_addr().unwrap();
    drop(place);
    let url = Url::parse(&format!("http://{address}")).unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let hub = hub_with(settings(&url), Arc::clone(&store)).await;
    assert!(matches!(hub.health().condition, Condition::Down(_)), "{:?}", hub.health());
    assert!(hub.agent.shown().card.description.contains("not been reached"));
    let error = hub.harness.task("two").await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after().is_some()), (ErrorKind::Unavailable, true));
    assert!(!error.message().contains("127.0.0.1"), "{error}");

    let peer = Peer::on(TcpListener::bind(address).await.unwrap(), Manners::good());
    hub.agent.upstream().unwrap().refresh(&hub.agent).await.unwrap();
    assert_eq!(hub.agent.shown().card.description, "A peer.");
    assert_eq!(hub.health().condition, Condition::Up);
    assert_eq!(summary(&hub.harness.task("two").await.unwrap()), "completed | user: two | a \"xy\"");

    // Down again: the next hub shows the last good card, and says of a message that nothing was done.
    peer.go_down();
    let next = hub_with(settings(&url), store).await;
    assert_eq!(next.agent.shown().card.description, "A peer.");
    assert!(matches!(next.health().condition, Condition::Degraded(_)), "{:?}", next.health());
    let failed = next.harness.task("two").await.unwrap();
    assert_eq!(failed.status.state, TaskState::Failed, "a 503 proves nothing");
}

#[tokio::test]
async fn a_task_outlives_a_restart_of_its_agent_if_the_agent_still_knows_it() {
    for (manners, keeps, expected) in [
        (Manners::good(), true, "completed | user: gate | a \"through\""),
        (Manners::default(), true, "completed | user: gate | a \"through\""),
        (
            Manners::default(),
            false,
            "failed \"the agent does not know the task any more; it may have been restarted\" | user: gate | ",
        ),
    ] {
        let peer = Peer::start(manners).await;
        let hub = hub(settings(&peer.url)).await;
        let mut told = hub.harness.stream("gate").await.unwrap();
        while !next_line(&mut told).await.contains("working") {}
        let before = peer.go_down();
        eventually("bad health", || hub.health().condition != Condition::Up).await;
        if keeps {
            peer.come_back(before);
            peer.state.gate.notify_one();
        } else {
            peer.begin_anew();
        }
        lines(told).await;
        assert_eq!(tasks_told(&hub).await, [expected], "{keeps}");
        assert_eq!(peer.sends(), 1, "never sent again");
    }
}

#[tokio::test]
async fn a_task_outlives_a_restart_of_the_hub_and_its_message_is_not_sent_again() {
    let folder = Folder::new();
    for manners in [Manners::good(), Manners::default()] {
        let peer = Peer::start(manners).await;
        let store = folder.open().await;
        let first = hub_with(settings(&peer.url), Arc::clone(&store)).await;
        let mut told = first.harness.stream("gate").await.unwrap();
        while !next_line(&mut told).await.contains("working") {}
        first.harness.runtime.drain(Duration::ZERO).await;
        drop((told, first));
        store.close().await;
        drop(store);

        let store = folder.open().await;
        let next = hub_with(settings(&peer.url), Arc::clone(&store)).await;
        let task = tasks(&next).await.into_iter().find(|task| !task.status.state.is_terminal()).unwrap();
        peer.state.gate.notify_one();
        let done = next.harness.until(&task.id, TaskState::Completed).await.unwrap();
        assert_eq!(summary(&done), "completed | user: gate | a \"through\"");
        assert_eq!(peer.sends(), 1, "{:?}", peer.seen());
        drop(next);
        store.close().await;
    }
}

#[tokio::test]
async fn a_message_that_was_on_its_way_when_the_hub_stopped_is_sent_again_only_if_that_does_no_harm() {
    for (idempotent, state, sends) in [(false, TaskState::Failed, 1), (true, TaskState::Completed, 2)] {
        let (folder, peer) = (Folder::new(), Peer::start(Manners::good()).await);
        let wanted = Upstream { idempotent, ..settings(&peer.url) };
        let store = folder.open().await;
        let first = hub_with(wanted.clone(), Arc::clone(&store)).await;
        let task = first.harness.begin("mute").await.unwrap();
        eventually("the message", || peer.sends() == 1).await;
        first.harness.runtime.drain(Duration::ZERO).await;
        drop(first);
        store.close().await;
        drop(store);

        let store = folder.open().await;
        let next = hub_with(wanted, Arc::clone(&store)).await;
        eventually("what is sent", || peer.sends() == sends).await;
        peer.state.gate.notify_one();
        peer.state.gate.notify_one();
        let done = next.harness.until(&task.id, state).await.unwrap();
        assert_eq!(summary(&done).contains("was not sent again"), !idempotent, "{}", summary(&done));
        assert_eq!(peer.sends(), sends);
        drop(next);
        store.close().await;
    }
}

#[tokio::test]
async fn a_message_whose_fate_is_unknown_is_sent_again_only_if_that_does_no_harm() {
    for (idempotent, knows_repeats, sends) in [(false, false, 1), (true, false, 5), (false, true, 5)] {
        let peer = Peer::start(Manners { knows_repeats, ..Manners::good() }).await;
        let hub = hub(Upstream { idempotent, ..settings(&peer.url) }).await;
        let words = summary(&hub.harness.task("break").await.unwrap());
        assert!(words.starts_with("failed") && words.contains("is not known"), "{words}");
        assert_eq!(peer.sends(), sends);
        let keys: std::collections::HashSet<_> =
            peer.seen().into_iter().map(|seen| seen.cx.idempotency_key).collect();
        assert_eq!(keys.len(), 1, "by its key the agent knows it again: {keys:?}");
    }
}

#[tokio::test]
async fn strange_streams_do_not_confuse() {
    let peer = Peer::start(Manners { rambles: true, ..Manners::good() }).await;
    let hub = hub(settings(&peer.url)).await;
    let task = hub.harness.task("two").await.unwrap();
    assert_eq!(summary(&task), "completed | user: two | a \"xy\"; late \"z\"", "what comes late still comes");
}

#[tokio::test]
async fn what_comes_together_is_told_in_its_order() {
    let peer = Peer::start(Manners { mumbles: true, ..Manners::good() }).await;
    let hub = hub(settings(&peer.url)).await;
    let task = hub.harness.task("two").await.unwrap();
    assert_eq!(summary(&task), "completed \"done\" | user: two | a \"x\"", "the message ends what has begun");
}

#[tokio::test]
async fn there_is_an_end_to_what_comes_after_the_end() {
    let peer = Peer::start(Manners { drivels: true, ..Manners::good() }).await;
    let hub = hub(settings(&peer.url)).await;
    let task = tokio::time::timeout(Duration::from_secs(30), hub.harness.task("two")).await;
    assert_eq!(task.expect("it ends").unwrap().status.state, TaskState::Completed);
}

#[tokio::test]
async fn an_agent_that_tells_of_another_task_or_of_too_much_has_failed() {
    for (manners, expected) in [
        (Manners { confuses: true, ..Manners::default() }, "the agent answered with another task"),
        (Manners { clutters: 20_000, ..Manners::default() }, "more than 10000 artifacts"),
    ] {
        let peer = Peer::start(manners).await;
        let hub = hub(Upstream { follow: Follow::Poll, ..settings(&peer.url) }).await;
        let mut told = hub.harness.stream("gate").await.unwrap();
        let failed = async {
            loop {
                let line = next_line(&mut told).await;
                if line.contains("failed") {
                    return line;
                }
            }
        };
        let last = tokio::time::timeout(Duration::from_secs(30), failed).await.expect("it fails");
        assert!(last.contains(expected), "{last}");
    }
}

#[tokio::test]
async fn a_reply_by_a_stream_keeps_the_name_of_its_conversation_too() {
    let peer = Peer::start(Manners { renames: true, ..Manners::good() }).await;
    let hub = hub(settings(&peer.url)).await;
    let answer = hub.harness.send("reply").await.unwrap();
    let SendMessageResponse::Message(message) = answer else { panic!("{answer:?}") };
    let ours = message.context_id.clone().unwrap();
    assert!(!ours.as_str().starts_with("up-"), "{ours}");
    let again = Say::from("reply").change(|req| req.message.context_id = Some(ours.clone()));
    hub.harness.send(again).await.unwrap();
    let derived = hub.factory.contexts.derive(&hub.harness.cx.caller, &ours);
    assert_eq!(sent(&peer)[1].context_id.as_ref().unwrap().as_str(), format!("up-{derived}"));
}

#[tokio::test]
async fn an_answer_that_was_on_its_way_when_the_hub_stopped_is_not_lost_without_a_word() {
    let (folder, peer) = (Folder::new(), Peer::start(Manners::good()).await);
    let store = folder.open().await;
    let first = hub_with(settings(&peer.url), Arc::clone(&store)).await;
    let asked = first.harness.task("ask").await.unwrap();
    first.harness.begin(Say::to(&asked, "mute")).await.unwrap();
    eventually("the answer", || peer.sends() == 2).await;
    first.harness.runtime.drain(Duration::ZERO).await;
    drop(first);
    store.close().await;
    drop(store);

    let store = folder.open().await;
    let next = hub_with(settings(&peer.url), Arc::clone(&store)).await;
    let patience = Instant::now() + Duration::from_secs(30);
    let words = loop {
        assert!(Instant::now() < patience, "nobody says that the hub stopped");
        let task = tasks(&next).await.remove(0);
        let words = summary(&task);
        if words.contains("the hub stopped") {
            break words;
        }
        assert!(!task.status.state.is_terminal(), "{words}");
        tokio::task::yield_now().await;
    };
    assert!(words.starts_with("input-required") && words.contains("which?"), "{words}");
    assert_eq!(peer.sends(), 2, "and not sent again");
    drop(next);
    store.close().await;
}

#[tokio::test]
async fn there_is_an_end_to_calls_at_a_time() {
    let peer = Peer::start(Manners::good()).await;
    let timeout = Duration::from_millis(50);
    let hub = hub(Upstream { max_concurrent: Some(1), timeout, ..settings(&peer.url) }).await;
    let mut told = hub.harness.stream("gate").await.unwrap();
    while !next_line(&mut told).await.contains("working") {}
    let error = hub.harness.task("two").await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after().is_some()), (ErrorKind::ResourceExhausted, true));
    peer.state.gate.notify_one();
    assert!(lines(told).await.last().unwrap().contains("completed"));
    assert_eq!(summary(&hub.harness.task("two").await.unwrap()), "completed | user: two | a \"xy\"");
}

#[tokio::test]
async fn a_cancel_reaches_the_agent() {
    for manners in [Manners::good(), Manners::default()] {
        let peer = Peer::start(manners).await;
        let hub = hub(settings(&peer.url)).await;
        let mut told = hub.harness.stream("gate").await.unwrap();
        let first = next_line(&mut told).await;
        while !next_line(&mut told).await.contains("working") {}
        assert!(first.starts_with("1 task"));
        let id = tasks(&hub).await[0].id.clone();
        assert_eq!(hub.harness.cancel(&id).await.unwrap().status.state, TaskState::Canceled);
        assert_eq!(peer.count(&[Op::CancelTask]), 1);

        let asked = hub.harness.task("ask").await.unwrap();
        assert_eq!(hub.harness.cancel(&asked.id).await.unwrap().status.state, TaskState::Canceled);
        assert_eq!(peer.count(&[Op::CancelTask]), 2, "also of a task that waits");
    }
}

#[tokio::test]
async fn calls_carry_their_trace_and_their_hops_and_go_round_in_no_circle() {
    let peer = Peer::start(Manners::good()).await;
    let hub = hub(settings(&peer.url)).await;
    let parent = format!("00-{}-{}-01", "a".repeat(32), "b".repeat(16));
    let traced = hub.harness.calling(|cx| {
        cx.trace = Some(nuncio_protocol::TraceContext { parent: parent.clone(), state: None });
        cx.hops = vec!["elsewhere/agent".to_owned()];
        cx.forwardable_headers.set("x-team", "billing");
    });
    traced.task("two").await.unwrap();
    let seen = peer.seen()[0].cx.clone();
    let own = format!("{}/peer", hub.id);
    assert_eq!(seen.hops, ["elsewhere/agent".to_owned(), own.clone()]);
    assert_eq!(
        seen.forwardable_headers.iter().collect::<Vec<_>>(),
        [("x-team", "billing")],
        "what may be handed on is"
    );
    let trace = seen.trace.unwrap();
    assert!(trace.parent.starts_with(&parent[..35]) && trace.parent != parent, "{trace:?}");
    for hops in [vec![own], vec!["x/y".to_owned(); 5]] {
        let error = hub.harness.calling(|cx| cx.hops = hops).task("two").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    }
    assert_eq!(peer.sends(), 1);
}

#[tokio::test]
async fn credentials_that_the_agent_refuses_are_no_fault_of_the_caller() {
    let peer = Peer::start(Manners { wants: BEARER, ..Manners::good() }).await;
    let mut wanted = settings(&peer.url);
    wanted.auth.credential = Some(Credential::Bearer(Secret::new("t0ken")));
    let hub = hub(wanted.clone()).await;
    wanted.auth.credential = Some(Credential::Bearer(Secret::new("0ld")));
    let hub = hub.change(wanted).await;
    let error = hub.harness.task("two").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    assert!(
        error.message().contains("credentials of the hub") && !error.message().contains("0ld"),
        "{error}"
    );
    assert!(matches!(hub.health().condition, Condition::Degraded(_)));
}
