//! The memory store: the contract, what it forgets, and random operations against a naive model.

use std::sync::Arc;

use futures_util::FutureExt as _;
use nuncio_protocol::{Event, Message, Part, Seq, Task, TaskState};
use proptest::prelude::*;

use crate::store::{
    Commit, MemoryStore, Outcome, Refused, Scope, Store, TaskQuery,
    conformance::{Writer, at, commit_one, context, creation, events, key, opening, scope, stored},
};

crate::store_conformance!(Arc::new(MemoryStore::default()));

async fn finished(store: &Arc<dyn Store>, id: &str) -> Writer {
    let mut writer = Writer::create(store, &scope("ann"), id, "c-1", 1).await;
    writer.status(TaskState::Completed, 2).await;
    writer
}

async fn known(store: &dyn Store, ids: &[&str]) -> Vec<bool> {
    let mut known = Vec::new();
    for id in ids {
        known.push(stored(store, &scope("ann"), &(*id).into()).await.is_some());
    }
    known
}

#[tokio::test]
async fn finished_tasks_are_forgotten_in_the_order_they_finished() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(2));
    let mut slow = Writer::create(&store, &scope("ann"), "slow", "c-1", 1).await;
    for id in ["one", "two"] {
        finished(&store, id).await;
    }
    slow.status(TaskState::Failed, 3).await;
    assert_eq!(known(&*store, &["one", "two", "slow"]).await, [false, true, true]);
    finished(&store, "three").await;
    assert_eq!(known(&*store, &["two", "slow", "three"]).await, [false, true, true]);
    let page = store
        .tasks(&scope("ann"), &TaskQuery { limit: 9, count: true, ..TaskQuery::default() })
        .await
        .unwrap();
    assert_eq!((page.tasks.len(), page.total), (2, Some(2)), "the list forgets with it");
}

#[tokio::test]
async fn tasks_in_motion_are_never_forgotten() {
    // Pain 15: caps on, but no task is lost under its executor or its caller.
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(0));
    let mut writers = Vec::new();
    for (i, state) in
        [TaskState::Working, TaskState::InputRequired, TaskState::AuthRequired].into_iter().enumerate()
    {
        let mut writer = Writer::create(&store, &scope("ann"), &format!("t-{i}"), "c-1", 1).await;
        writer.status(state, 2).await;
        writers.push(writer);
    }
    for i in 0..50 {
        finished(&store, &format!("done-{i}")).await;
    }
    assert_eq!(known(&*store, &["t-0", "t-1", "t-2", "done-49"]).await, [true, true, true, false]);
    writers[1].caller_says("blue").await;
    writers[1].status(TaskState::Completed, 3).await;
    assert_eq!(known(&*store, &["t-1"]).await, [false], "finished now");
}

#[tokio::test]
async fn keys_and_replies_are_forgotten_like_tasks() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1));
    let ann = scope("ann");
    for id in ["one", "two"] {
        assert_eq!(commit_one(&*store, opening(&ann, id, Some(key(id, 1)))).await, Ok(()));
        let mut writer = Writer::open(&store, &ann, creation(id, "c-1", 1), Seq(1));
        writer.status(TaskState::Completed, 2).await;
        let reply = Arc::new(Message::agent("r", Part::text(id)));
        store.keep_reply(&ann, key(&format!("reply-{id}"), 1), reply, at(1)).await.unwrap();
    }
    for (name, kept) in [("one", false), ("reply-one", false), ("two", true), ("reply-two", true)] {
        assert_eq!(store.answer(&ann, name).await.unwrap().is_some(), kept, "{name}");
    }
}

/// One random step. Tasks and scopes are few, so that steps meet.
#[derive(Clone, Debug)]
enum Step {
    Create {
        task: u8,
        owner: u8,
        context: u8,
        when: u8,
        key: Option<u8>,
    },
    Status {
        task: u8,
        owner: u8,
        state: TaskState,
        when: u8,
    },
    Chunk {
        task: u8,
        owner: u8,
        off: i8,
    },
    Reply {
        owner: u8,
        key: u8,
    },
    List {
        owner: u8,
        context: Option<u8>,
        state: Option<TaskState>,
        since: Option<u8>,
        after: Option<(u8, u8)>,
        limit: usize,
    },
    Read {
        task: u8,
        owner: u8,
        after: u8,
        limit: usize,
    },
    Answer {
        owner: u8,
        key: u8,
    },
}

fn state() -> impl Strategy<Value = TaskState> {
    proptest::sample::select(TaskState::ALL[1..].to_vec())
}

fn step() -> impl Strategy<Value = Step> {
    let (task, owner, context, when, key) = (0..6u8, 0..2u8, 0..2u8, 0..8u8, 0..3u8);
    prop_oneof![
        3 => (task.clone(), owner.clone(), context.clone(), when.clone(), proptest::option::of(key.clone()))
            .prop_map(|(task, owner, context, when, key)| Step::Create { task, owner, context, when, key }),
        4 => (task.clone(), owner.clone(), state(), when.clone())
            .prop_map(|(task, owner, state, when)| Step::Status { task, owner, state, when }),
        2 => (task.clone(), owner.clone(), -1..2i8).prop_map(|(task, owner, off)| Step::Chunk { task, owner, off }),
        1 => (owner.clone(), key.clone()).prop_map(|(owner, key)| Step::Reply { owner, key }),
        4 => (
            owner.clone(),
            proptest::option::of(context),
            proptest::option::of(state()),
            proptest::option::of(when.clone()),
            proptest::option::of((when, task.clone())),
            1..4usize,
        )
            .prop_map(|(owner, context, state, since, after, limit)| Step::List { owner, context, state, since, after, limit }),
        2 => (task, owner.clone(), 0..6u8, 0..6usize)
            .prop_map(|(task, owner, after, limit)| Step::Read { task, owner, after, limit }),
        1 => (owner, key).prop_map(|(owner, key)| Step::Answer { owner, key }),
    ]
}

/// The same store, the naive way: lists that are searched from front to back.
#[derive(Default)]
struct Model {
    tasks: Vec<ModelTask>,
    answers: Vec<(u8, u8, Option<String>)>,
}

struct ModelTask {
    owner: u8,
    task: Task,
    log: usize,
}

fn owned(owner: u8) -> Arc<Scope> {
    scope(&format!("owner-{owner}"))
}

fn name(task: u8) -> String {
    format!("t-{task}")
}

impl Model {
    fn find(&mut self, task: u8) -> Option<&mut ModelTask> {
        self.tasks.iter_mut().find(|known| known.task.id.as_str() == name(task))
    }

    fn create(&mut self, task: Task, owner: u8, key: Option<u8>, number: u8) -> Result<(), Refused> {
        if let Some(known) = self.find(number) {
            return Err(Refused::Version(Seq(known.log as u64)));
        }
        if let Some(key) = key {
            if self.answers.iter().any(|(of, taken, _)| (*of, *taken) == (owner, key)) {
                return Err(Refused::KeyTaken);
            }
            self.answers.push((owner, key, Some(task.id.to_string())));
        }
        self.tasks.push(ModelTask { owner, task, log: 1 });
        Ok(())
    }

    fn list(&self, owner: u8, query: &TaskQuery) -> (Vec<Task>, usize) {
        let own = self.tasks.iter().filter(|known| known.owner == owner).map(|known| known.task.clone());
        let mut tasks: Vec<Task> = own
            .filter(|task| query.context_id.as_ref().is_none_or(|wanted| *wanted == task.context_id))
            .filter(|task| query.state.is_none_or(|wanted| wanted == task.status.state))
            .filter(|task| query.since.is_none_or(|since| task.status.timestamp >= Some(since)))
            .collect();
        let total = tasks.len();
        tasks.sort_by(|a, b| (b.status.timestamp, &b.id).cmp(&(a.status.timestamp, &a.id)));
        if let Some(after) = &query.after {
            tasks.retain(|task| (task.status.timestamp, &task.id) < (Some(after.timestamp), &after.id));
        }
        (tasks, total)
    }
}

/// Does the step to both and compares.
fn agree(store: &Arc<dyn Store>, model: &mut Model, step: &Step) {
    match *step {
        Step::Create { task, owner, context, when, key: slot } => {
            let created = creation(&name(task), &format!("c-{context}"), i64::from(when));
            let key = slot.map(|slot| key(&format!("k-{slot}"), 1));
            let entry = Commit {
                event: Arc::new(Event::Task(created.clone())),
                ..opening(&owned(owner), created.id.as_str(), key)
            };
            let done = commit_one(&**store, entry).now_or_never().unwrap();
            assert_eq!(done, model.create(created, owner, slot, task));
        }
        Step::Status { task, owner, state, when } => {
            append(store, model, task, owner, 0, |writer| writer.status_event(state, i64::from(when)));
        }
        Step::Chunk { task, owner, off } => {
            append(store, model, task, owner, off, |writer| writer.chunk_event("a", "x"))
        }
        Step::Reply { owner, key: slot } => {
            let reply = Arc::new(Message::agent("r", Part::text("r")));
            store
                .keep_reply(&owned(owner), key(&format!("k-{slot}"), 1), reply, at(1))
                .now_or_never()
                .unwrap()
                .unwrap();
            if model.answers.iter().all(|(of, taken, _)| (*of, *taken) != (owner, slot)) {
                model.answers.push((owner, slot, None));
            }
        }
        Step::List { owner, context: in_context, state, since, after, limit } => {
            let query = TaskQuery {
                context_id: in_context.map(|number| context(&format!("c-{number}"))),
                state,
                since: since.map(|when| at(i64::from(when))),
                after: after.map(|(when, task)| crate::store::Keyset {
                    timestamp: at(i64::from(when)),
                    id: name(task).into(),
                }),
                limit,
                count: true,
                ..TaskQuery::default()
            };
            let page = store.tasks(&owned(owner), &query).now_or_never().unwrap().unwrap();
            let (mut tasks, total) = model.list(owner, &query);
            let more = tasks.len() > limit;
            tasks.truncate(limit);
            assert_eq!((page.tasks, page.more, page.total), (tasks, more, Some(total)), "{query:?}");
        }
        Step::Read { task, owner, after, limit } => {
            let (scope, id) = (owned(owner), name(task).into());
            let known = model.find(task).filter(|known| known.owner == owner);
            let wanted = known.as_ref().map(|known| (known.task.clone(), Seq(known.log as u64)));
            let last = known.map_or(0, |known| known.log as u64);
            assert_eq!(stored(&**store, &scope, &id).now_or_never().unwrap(), wanted);
            let page = events(&**store, &scope, &id, u64::from(after), limit).now_or_never().unwrap();
            let numbers: Vec<u64> = page.iter().map(|(seq, _)| *seq).collect();
            let wanted: Vec<u64> = (u64::from(after) + 1..=last).take(limit).collect();
            assert_eq!(numbers, wanted);
        }
        Step::Answer { owner, key } => {
            let answer = store.answer(&owned(owner), &format!("k-{key}")).now_or_never().unwrap().unwrap();
            let found = answer.map(|answer| match answer.outcome {
                Outcome::Task(id) => Some(id.to_string()),
                Outcome::Reply(_) => None,
            });
            let wanted = model.answers.iter().find(|(of, taken, _)| (*of, *taken) == (owner, key));
            assert_eq!(found, wanted.map(|(_, _, task)| task.clone()));
        }
    }
}

/// Appends in this owner's name, at the version `off` away from the true one.
fn append(
    store: &Arc<dyn Store>,
    model: &mut Model,
    task: u8,
    owner: u8,
    off: i8,
    event: impl Fn(&Writer) -> Event,
) {
    let Some(known) = model.find(task).filter(|known| !known.task.status.state.is_terminal()) else { return };
    let mut writer = Writer::open(store, &owned(owner), known.task.clone(), Seq(known.log as u64));
    let mut entry = writer.entry(event(&writer));
    entry.expected = Seq((known.log as u64).saturating_add_signed(i64::from(off)).max(1));
    let wanted = match () {
        () if known.owner != owner => Err(Refused::NotFound),
        () if entry.expected != writer.seq => Err(Refused::Version(writer.seq)),
        () => Ok(()),
    };
    let event = Arc::clone(&entry.event);
    let done = commit_one(&**store, entry).now_or_never().unwrap();
    assert_eq!(done, wanted);
    if done.is_ok() {
        nuncio_protocol::fold(&mut writer.task, &event, at(0)).unwrap();
        (known.task, known.log) = (writer.task, known.log + 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_agree_with_a_naive_model(steps in proptest::collection::vec(step(), 1..80)) {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let mut model = Model::default();
        for step in steps {
            agree(&store, &mut model, &step);
        }
    }
}
