//! Every row of the table of consent, over every store, and decisions that were cut off or made twice.

use nuncio_protocol::{Error, ErrorKind, Task, TaskState};
use nuncio_server::{
    Runtime,
    store::{MemoryStore, SqliteOptions, SqliteStore},
    testing::{FailingStore, Harness, Say, ScriptedExecutor, card, postgres, summary},
};
use parking_lot::Mutex as Lock;
use serde_json::Value;

use super::*;
use crate::{agents::hex::random_hex, clock, trail::TrailWriter};

const ASKS: &str = "waits for the consent of peer's owner";

/// A hub with one agent that asks. The agent says that it ran, or asks for more.
struct World {
    consents: Arc<Consents>,
    ann: Harness,
    ran: Arc<Lock<Vec<String>>>,
    trail: TrailWriter,
}

impl World {
    fn over(store: &Arc<dyn Store>) -> Self {
        let ran = Arc::<Lock<Vec<String>>>::default();
        let notes = Arc::clone(&ran);
        let agent = ScriptedExecutor::new(move |cx, out| {
            notes.lock().push(cx.text().into_owned());
            async move {
                if cx.text() == "question" {
                    return out.input_required("more?").await.map(drop);
                }
                out.text("answer", cx.text()).await.map(drop)
            }
        });
        let (trail, writer) = Trail::new(store);
        let consents = Arc::new(Consents::new(store, &trail));
        let runtime = Runtime::builder(card(), agent)
            .agent("peer")
            .store(Arc::clone(store))
            .wrap_executor(|inner| Arc::new(AskFirst::new("peer", &consents, inner)))
            .build();
        let unused = Arc::new(MemoryStore::default().into());
        let anybody = Harness { runtime, store: unused, cx: Default::default() };
        Self { consents, ann: anybody.as_caller("ann"), ran, trail: writer }
    }

    async fn decides(&self, principal: &str, decision: Decision) -> Result<CallerAccess, DecisionError> {
        self.consents.decide(Some(&self.ann.runtime), &caller(principal), decision).await
    }

    async fn sweeps(&self, after: Duration) {
        let runtime = self.ann.runtime.clone();
        let at = clock::later(clock::now(), after);
        self.consents.sweep_at(at, |agent| (agent == "peer").then(|| runtime.clone())).await.unwrap();
    }

    async fn standing(&self, principal: &str) -> Option<(Standing, usize)> {
        let stored = self.consents.find(&caller(principal)).await.unwrap()?;
        Some((stored.access.standing, stored.access.held.len()))
    }

    /// Holds these messages, each with a task of its own.
    async fn holds(&self, said: &[&str]) -> Vec<Task> {
        let mut tasks = Vec::new();
        for said in said {
            let task = self.ann.task(*said).await.unwrap();
            assert_eq!(state(&task), (TaskState::AuthRequired, ASKS.to_owned()));
            tasks.push(task);
        }
        tasks
    }

    async fn is_rejected(&self, tasks: &[Task]) {
        for task in tasks {
            let task = self.ann.get(&task.id).await.unwrap();
            assert_eq!(state(&task), (TaskState::Rejected, "declined".to_owned()));
        }
        assert!(self.ran.lock().is_empty());
    }

    /// True once the agent has got exactly these messages.
    async fn has_run(&self, tasks: &[Task], said: &[&str]) {
        for task in tasks {
            self.ann.until(&task.id, TaskState::Completed).await.unwrap();
        }
        assert_eq!(*self.ran.lock(), said);
    }
}

fn caller(principal: &str) -> CallerKey {
    CallerKey { agent: "peer".into(), tenant: None, principal: principal.into() }
}

fn state(task: &Task) -> (TaskState, String) {
    let said = task.status.message.as_ref().map(|message| message.text().into_owned());
    (task.status.state, said.unwrap_or_default())
}

fn kind<T: std::fmt::Debug>(refused: Result<T, Error>) -> ErrorKind {
    refused.unwrap_err().kind()
}

/// Runs a case over every store.
async fn over_every_store<F: Future<Output = ()>>(case: impl Fn(World) -> F) {
    let folder = std::env::temp_dir().join(format!("nuncio-consent-{}", random_hex::<8>()));
    std::fs::create_dir_all(&folder).unwrap();
    let sqlite = SqliteStore::open(&folder.join("hub.db"), SqliteOptions::default()).await.unwrap();
    let url = postgres::database().await;
    let shared = nuncio_server::store::PostgresStore::connect(&url, Default::default()).await.unwrap();
    let stores: [Arc<dyn Store>; 3] = [Arc::new(MemoryStore::default()), Arc::new(sqlite), Arc::new(shared)];
    for store in stores {
        case(World::over(&store)).await;
        store.close().await;
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn messages_are_held_until_the_caller_is_accepted_and_then_run_in_order() {
    over_every_store(|world| async move {
        let first = world.holds(&["one"]).await.remove(0);
        let more = world.ann.task(Say::to(&first, "two")).await.unwrap();
        assert_eq!((more.id.clone(), state(&more).0), (first.id.clone(), TaskState::AuthRequired));
        let other = world.holds(&["three"]).await.remove(0);
        // A fourth is refused, and takes nothing from those that are held.
        assert_eq!(kind(world.ann.task("four").await), ErrorKind::ResourceExhausted);
        let fourth = world.ann.task(Say::to(&first, "four")).await.unwrap();
        let (held, why) = state(&fourth);
        assert!(held == TaskState::AuthRequired && why.contains("this one is not kept"), "{why}");
        let backlog = world.consents.backlog().await.unwrap();
        assert!(backlog.requests == 1 && backlog.oldest.is_some(), "{backlog:?}");
        assert!(world.ran.lock().is_empty());

        let access = world.decides("ann", Decision::Accept).await.unwrap();
        assert_eq!((access.standing, access.held.len()), (Standing::Accepted, 3));
        world.ann.until(&other.id, TaskState::Completed).await.unwrap();
        world.ann.until(&first.id, TaskState::Completed).await.unwrap();
        let ran = world.ran.lock().clone();
        let at = |said: &str| ran.iter().position(|ran| ran == said);
        assert!(ran.len() == 2 || at("one") < at("two"), "{ran:?}");
        assert!(at("one").is_some() && at("three").is_some() && at("four").is_none(), "{ran:?}");
        assert_eq!(world.standing("ann").await, Some((Standing::Accepted, 0)), "the grant is kept");
        let later = world.ann.task("later").await.unwrap();
        assert_eq!(later.status.state, TaskState::Completed);
        assert_eq!(world.consents.backlog().await.unwrap(), Backlog::default());
    })
    .await;
}

#[tokio::test]
async fn a_follow_up_of_a_held_message_is_the_next_message_of_its_task() {
    over_every_store(|world| async move {
        let first = world.holds(&["question"]).await.remove(0);
        world.ann.task(Say::to(&first, "answer")).await.unwrap();
        world.decides("ann", Decision::Accept).await.unwrap();
        world.has_run(&[first], &["question", "answer"]).await;
    })
    .await;
}

#[tokio::test]
async fn declined_and_expired_requests_are_rejected_and_the_next_message_asks_again() {
    over_every_store(|world| async move {
        let tasks = world.holds(&["one", "two"]).await;
        world.decides("ann", Decision::Decline).await.unwrap();
        world.is_rejected(&tasks).await;
        let tasks = world.holds(&["three"]).await;
        let second = Duration::from_secs(1);
        world.sweeps(REQUEST_LIFETIME - 60 * second).await;
        assert_eq!(world.standing("ann").await, Some((Standing::Waiting, 1)));
        world.sweeps(REQUEST_LIFETIME + second).await;
        world.is_rejected(&tasks).await;
        world.sweeps(Duration::from_secs(3600)).await;
        assert_eq!(world.standing("ann").await, Some((Standing::Declined, 0)));
        world.sweeps(Duration::from_secs(25 * 3600)).await;
        assert_eq!(world.standing("ann").await, None, "nothing is left");
        world.holds(&["four"]).await;
    })
    .await;
}

#[tokio::test]
async fn a_blocked_caller_is_rejected_now_and_later_until_that_is_revoked() {
    over_every_store(|world| async move {
        let tasks = world.holds(&["one"]).await;
        world.decides("ann", Decision::Block).await.unwrap();
        let later = world.ann.task("two").await.unwrap();
        world.is_rejected(&[&tasks[..], &[later]].concat()).await;
        world.decides("ann", Decision::Revoke).await.unwrap();
        world.holds(&["three"]).await;
    })
    .await;
}

#[tokio::test]
async fn a_grant_may_come_first_and_is_only_for_its_caller_until_it_is_revoked() {
    over_every_store(|world| async move {
        for decision in [Decision::Decline, Decision::Revoke] {
            let refused = world.decides("ann", decision).await;
            assert!(matches!(refused, Err(DecisionError::NothingToDecide)), "{decision}");
        }
        world.decides("ann", Decision::Accept).await.unwrap();
        let asked = world.ann.task("question").await.unwrap();
        assert_eq!(asked.status.state, TaskState::InputRequired);
        let bob = world.ann.as_caller("bob").task("two").await.unwrap();
        let north = world.ann.calling(|cx| cx.caller = cx.caller.clone().of_tenant("north"));
        for held in [bob, north.task("three").await.unwrap()] {
            assert_eq!(state(&held), (TaskState::AuthRequired, ASKS.to_owned()));
            assert_eq!(kind(world.ann.get(&held.id).await), ErrorKind::TaskNotFound);
        }
        world.decides("ann", Decision::Revoke).await.unwrap();
        // Also the answer to a question of before waits.
        let held = world.ann.task(Say::to(&asked, "answer")).await.unwrap();
        assert_eq!(state(&held), (TaskState::AuthRequired, ASKS.to_owned()));
        assert_eq!(*world.ran.lock(), ["question"]);
        world.decides("ann", Decision::Accept).await.unwrap();
        world.has_run(&[held], &["question", "answer"]).await;
    })
    .await;
}

#[tokio::test]
async fn a_canceled_task_leaves_its_request_and_never_runs() {
    over_every_store(|world| async move {
        let tasks = world.holds(&["one", "two"]).await;
        for (at, left) in [(0, (Standing::Waiting, 1)), (1, (Standing::Declined, 0))] {
            let canceled = world.ann.cancel(&tasks[at].id).await.unwrap();
            assert_eq!(canceled.status.state, TaskState::Canceled);
            assert_eq!(world.standing("ann").await, Some(left));
        }
        world.decides("ann", Decision::Accept).await.unwrap();
        assert!(world.ran.lock().is_empty());
    })
    .await;
}

/// The hub stops when the decision is stored and before anything follows from it.
#[tokio::test]
async fn a_decision_that_was_cut_off_is_carried_out_by_the_sweeper_and_once() {
    over_every_store(|world| async move {
        for decision in [Decision::Decline, Decision::Block, Decision::Accept] {
            if world.standing("ann").await.is_some_and(|(standing, _)| standing == Standing::Blocked) {
                world.decides("ann", Decision::Revoke).await.unwrap();
            }
            let tasks = world.holds(&["question", "two"]).await;
            world.consents.decide(None, &caller("ann"), decision).await.unwrap();
            assert!(world.standing("ann").await.is_some_and(|(_, held)| held == 2));
            world.sweeps(Duration::ZERO).await;
            if decision == Decision::Accept {
                world.ann.until(&tasks[0].id, TaskState::InputRequired).await.unwrap();
                world.ann.until(&tasks[1].id, TaskState::Completed).await.unwrap();
                // The task is interrupted again, and the message has run all the same.
                world.sweeps(Duration::ZERO).await;
                let ran = world.ran.lock().clone();
                assert_eq!(ran.len(), 2, "{ran:?}");
            } else {
                world.is_rejected(&tasks).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn hubs_that_decide_at_the_same_time_run_a_message_once() {
    let data = MemoryStore::default();
    let worlds = [(); 2].map(|()| {
        let store: Arc<dyn Store> = Arc::new(FailingStore::waiting(data.another()));
        World::over(&store)
    });
    let [one, other] = &worlds;
    let tasks = one.holds(&["question", "two"]).await;
    let both = tokio::join!(one.decides("ann", Decision::Accept), other.decides("ann", Decision::Accept));
    assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
    for world in &worlds {
        world.sweeps(Duration::ZERO).await;
    }
    one.ann.until(&tasks[0].id, TaskState::InputRequired).await.unwrap();
    one.ann.until(&tasks[1].id, TaskState::Completed).await.unwrap();
    let ran = one.ran.lock().len() + other.ran.lock().len();
    assert_eq!(ran, 2);
}

#[tokio::test]
async fn erasure_takes_grants_blocks_and_requests() {
    over_every_store(|world| async move {
        world.holds(&["one"]).await;
        world.decides("bob", Decision::Block).await.unwrap();
        world.consents.erase("ann", Some("north"), None).await.unwrap();
        world.consents.erase("ann", None, Some("another")).await.unwrap();
        assert!(world.standing("ann").await.is_some(), "of another tenant, or at another agent");
        world.consents.erase("ann", None, None).await.unwrap();
        assert_eq!(world.standing("ann").await, None);
        assert!(world.standing("bob").await.is_some());
    })
    .await;
}

#[tokio::test]
async fn a_request_leaves_one_row_and_an_anonymous_caller_none() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let world = World::over(&store);
    let anybody = world.ann.calling(|cx| cx.caller = nuncio_protocol::Caller::anonymous());
    let refused = anybody.task("one").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unauthenticated);
    assert!(refused.message().contains("asks for consent, so its callers need credentials"), "{refused}");
    world.holds(&["one", "two"]).await;
    let World { trail, consents, .. } = world;
    trail.close().await;
    let rows = consents.trail.page(None, 10).await.unwrap();
    let [(_, row)] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.what, row.count), (crate::trail::What::AccessRequested, 1));
    assert_eq!((row.agent.as_deref(), row.principal.as_deref()), (Some("peer"), Some("ann")));
}

/// A caller learns from the task of a declined request what it learns from a blocked one.
#[tokio::test]
async fn declined_and_blocked_tasks_are_the_same() {
    let shown = async |decision: Decision| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let world = World::over(&store);
        let task = world.holds(&["one"]).await.remove(0);
        world.decides("ann", decision).await.unwrap();
        let task = world.ann.get(&task.id).await.unwrap();
        (summary(&task), without_ids(serde_json::to_value(&task).unwrap()))
    };
    assert_eq!(shown(Decision::Decline).await, shown(Decision::Block).await);
}

fn without_ids(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let is_own = |name: &str| name.ends_with("Id") || name == "id" || name == "timestamp";
            let left = members.into_iter().filter(|(name, _)| !is_own(name));
            Value::Object(left.map(|(name, value)| (name, without_ids(value))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(without_ids).collect()),
        other => other,
    }
}
