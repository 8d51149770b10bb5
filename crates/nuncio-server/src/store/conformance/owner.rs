//! Checks of owners one after the other: the tasks that a stopped owner leaves, and the right to continue
//! them.

use std::{collections::BTreeSet, sync::Arc};

use nuncio_protocol::{Seq, TaskState};

use super::{Handles, Writer, adopted, at, commit_one, events, key, opening, scope, stored, works};
use crate::store::{Commit, Orphan, Refused, Scope, Store, StoredTurn, TaskLog, TaskQuery, TurnChange};

/// A waiting turn.
pub(super) fn turn(id: &str) -> StoredTurn {
    StoredTurn { id: id.into(), begun: false, body: format!("body of {id}").into() }
}

/// A task of this agent in progress.
async fn working(store: &Arc<dyn Store>, agent: &str, id: &str) -> Writer {
    let scope = Arc::new(Scope { agent: agent.into(), ..(*scope("ann")).clone() });
    let mut writer = Writer::create(store, &scope, id, "c-1", 1).await;
    writer.status(TaskState::Working, 2).await;
    writer
}

fn ids(orphans: &[Orphan]) -> BTreeSet<&str> {
    orphans.iter().map(|orphan| orphan.stored.task.id.as_str()).collect()
}

/// Adopts tasks in progress, or with a turn that has not begun; no others, of this agent only, and never
/// twice.
pub async fn what_a_gone_owner_left_is_adopted_once<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    let ann = scope("ann");
    let mut left = vec![
        Writer::create(&store, &ann, "t-submitted", "c-1", 1).await,
        working(&store, "agent", "t-working").await,
    ];
    left[1].chunk("a", "x").await;
    // Asks its caller, and the caller's answer waits to be processed.
    let mut waiting = working(&store, "agent", "t-waiting").await;
    waiting.status(TaskState::InputRequired, 3).await;
    let queued = store.update_turn(&ann, &waiting.task.id, TurnChange::Queue(turn("1"))).await;
    assert_eq!(works(queued), Ok(()));
    left.push(waiting);
    for (id, state) in [
        ("t-asking", TaskState::InputRequired),
        ("t-locked", TaskState::AuthRequired),
        ("t-done", TaskState::Completed),
        ("t-canceled", TaskState::Canceled),
    ] {
        working(&store, "agent", id).await.status(state, 3).await;
    }
    let other = working(&store, "other", "t-other").await;
    let (left, other) = (left.into_iter().map(known).collect::<Vec<_>>(), known(other));
    drop(store);
    handles.die(gone).await;

    let store = handles.open().await;
    let orphans = adopted(&*store, "agent", 100).await;
    assert_eq!(ids(&orphans), BTreeSet::from(["t-submitted", "t-working", "t-waiting"]));
    for (scope, task, seq) in left {
        let orphan = orphans.iter().find(|orphan| orphan.stored.task.id == task.id);
        let orphan = orphan.map(|orphan| (&orphan.scope, &orphan.stored.task, orphan.stored.seq));
        assert_eq!(orphan, Some((&scope, &task, seq)), "as its log tells it");
    }
    for orphan in &orphans {
        let waits = orphan.stored.task.id.as_str() == "t-waiting";
        let turns = if waits { vec![turn("1")] } else { Vec::new() };
        assert_eq!((&orphan.turns, orphan.stored.held), (&turns, false), "{orphan:?}");
    }
    assert!(works(store.adopt("agent", 100).await).is_empty(), "given once");
    assert!(works(store.adopt("nobody", 100).await).is_empty());
    let orphans = adopted(&*store, "other", 100).await;
    assert_eq!(orphans.len(), 1);
    assert_eq!(orphans[0].stored.task, other.1);
}

/// The values of a writer, without its store.
fn known(writer: Writer) -> (Arc<Scope>, nuncio_protocol::Task, Seq) {
    (writer.scope, writer.task, writer.seq)
}

/// A parked task is not adopted, is held by nobody, and goes on with any owner; the next entry that does not park it
/// puts it into the hands of its writer.
pub async fn a_parked_task_is_in_nobodys_hands<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    let ann = scope("ann");
    let opens = opening(&ann, "t-opened", None).attach(|with| with.park = true);
    assert_eq!(commit_one(&*store, opens).await, Ok(()));
    let mut parked = working(&store, "agent", "t-parked").await;
    let entry = parked.entry(parked.chunk_event("a", "x"));
    assert_eq!(parked.offer(entry.attach(|with| with.park = true)).await, Ok(()));
    let mut resumed = working(&store, "agent", "t-resumed").await;
    let entry = resumed.entry(resumed.chunk_event("a", "x"));
    assert_eq!(resumed.offer(entry.attach(|with| with.park = true)).await, Ok(()));
    resumed.status(TaskState::Working, 3).await;
    let (task, seq) = (parked.task.clone(), parked.seq);
    drop((store, parked, resumed));
    handles.die(gone).await;

    let store: Arc<dyn Store> = handles.open().await;
    assert_eq!(ids(&adopted(&*store, "agent", 100).await), BTreeSet::from(["t-resumed"]));
    for id in ["t-opened", "t-parked"] {
        let found = works(store.task(&ann, &id.into()).await);
        assert!(found.is_some_and(|found| !found.held && !found.task.status.state.is_settled()), "{id}");
    }
    let mut next = Writer::open(&store, &ann, task, seq);
    let entry = next.entry(next.chunk_event("a", "y"));
    assert_eq!(next.offer(entry.attach(|with| with.park = true)).await, Ok(()), "any owner writes to it");
    next.status(TaskState::Completed, 4).await;
}

/// A start with very many orphans adopts them in several calls.
pub async fn adoption_is_bounded<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    let all: BTreeSet<String> = (0..7).map(|i| format!("t-{i}")).collect();
    for id in &all {
        working(&store, "agent", id).await;
    }
    drop(store);
    handles.die(gone).await;

    let store = handles.open().await;
    assert!(works(store.adopt("agent", 0).await).is_empty());
    let mut given = Vec::new();
    while given.len() < all.len() {
        given.extend(adopted(&*store, "agent", 3).await.into_iter().map(|orphan| orphan.stored.task.id));
    }
    assert_eq!(given.len(), all.len(), "each once");
    assert_eq!(given.iter().map(ToString::to_string).collect::<BTreeSet<_>>(), all);
    assert!(works(store.adopt("agent", 3).await).is_empty());
}

/// An adopting owner owns the task: it appends at the end of the log, and leaves behind the tasks that it
/// does not finish.
pub async fn an_adopted_task_goes_on_and_is_adopted_again<H: Handles>(handles: &H) {
    let first = handles.open().await;
    let store: Arc<dyn Store> = first.clone();
    let tasks = [working(&store, "agent", "t-1").await, working(&store, "agent", "t-2").await].map(known);
    drop(store);
    handles.die(first).await;

    let second = handles.open().await;
    let store: Arc<dyn Store> = second.clone();
    assert_eq!(ids(&adopted(&*store, "agent", 9).await), BTreeSet::from(["t-1", "t-2"]));
    let [mut ended, mut left] = tasks.map(|(scope, task, seq)| Writer::open(&store, &scope, task, seq));
    ended.status(TaskState::Failed, 3).await;
    left.chunk("a", "x").await;
    let (ended, left) = (known(ended), known(left));
    drop(store);
    handles.die(second).await;

    let third = handles.open().await;
    let orphans = adopted(&*third, "agent", 9).await;
    assert_eq!(ids(&orphans), BTreeSet::from(["t-2"]));
    assert_eq!((&orphans[0].stored.task, orphans[0].stored.seq), (&left.1, left.2));
    assert_eq!(stored(&*third, &ended.0, &ended.1.id).await, Some((ended.1, ended.2)));
}

/// Writes check the owner, even if it has stopped: until a task is adopted or taken, nobody else writes to
/// it.
pub async fn what_a_gone_owner_left_is_held_until_it_is_adopted_or_taken<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    let tasks = [working(&store, "agent", "t-1").await, working(&store, "agent", "t-2").await].map(known);
    drop(store);
    handles.die(gone).await;

    let next = handles.open().await;
    let store: Arc<dyn Store> = next.clone();
    let [mut one, mut two] = tasks.map(|(scope, task, seq)| Writer::open(&store, &scope, task, seq));
    for writer in [&mut one, &mut two] {
        assert!(held(&*store, writer).await);
        let entry = writer.entry(writer.chunk_event("a", "x"));
        assert_eq!(writer.offer(entry).await, Err(Refused::Held));
    }
    let entry = Commit { take: true, ..one.entry(one.chunk_event("a", "x")) };
    assert_eq!(one.offer(entry).await, Ok(()));
    assert!(!held(&*store, &one).await);
    one.status(TaskState::Completed, 3).await;
    assert_eq!(ids(&adopted(&*store, "agent", 9).await), BTreeSet::from(["t-2"]));
    assert!(!held(&*store, &two).await);
    two.status(TaskState::Completed, 3).await;
}

pub(super) async fn held(store: &dyn Store, writer: &Writer) -> bool {
    works(store.task(&writer.scope, &writer.task.id).await).is_some_and(|stored| stored.held)
}

/// A task that waits for its caller can be continued by any owner.
pub async fn a_settled_task_of_a_gone_owner_needs_no_adoption<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    let mut asking = working(&store, "agent", "t-asking").await;
    asking.status(TaskState::InputRequired, 3).await;
    let left = known(working(&store, "agent", "t-left").await);
    let (scope, task, seq) = known(asking);
    drop(store);
    handles.die(gone).await;

    let next = handles.open().await;
    let store: Arc<dyn Store> = next.clone();
    let mut asking = Writer::open(&store, &scope, task, seq);
    assert!(!held(&*store, &asking).await);
    asking.caller_says("blue").await;
    asking.status(TaskState::Working, 4).await;
    assert!(!held(&*store, &asking).await);
    let orphans = adopted(&*store, "agent", 9).await;
    assert_eq!(ids(&orphans), BTreeSet::from([left.1.id.as_str()]), "what moved is no orphan");
}

/// No acknowledged write is lost with the process that made it.
pub async fn what_was_committed_outlives_its_owner<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    let ann = scope("ann");
    assert_eq!(commit_one(&*store, opening(&ann, "t-1", Some(key("k", 7)))).await, Ok(()));
    let mut writers = Vec::new();
    for (i, state) in TaskState::ALL.iter().skip(1).enumerate() {
        let mut writer = Writer::create(&store, &ann, &format!("t-state-{i}"), "c-1", 1).await;
        let entry = writer.entry(writer.message_event("see", &["t-1"]));
        assert_eq!(writer.offer(entry).await, Ok(()));
        writer.status(*state, 2).await;
        writers.push(writer);
    }
    let reply = Arc::new(nuncio_protocol::Message::agent("r", nuncio_protocol::Part::text("yes")));
    works(store.put_reply(&ann, key("reply", 8), reply, at(1)).await);
    let before = told(&*store, &ann).await;
    let writers: Vec<_> = writers.into_iter().map(known).collect();
    drop(store);
    handles.die(gone).await;

    let store = handles.open().await;
    assert_eq!(told(&*store, &ann).await, before);
    for (scope, task, seq) in writers {
        assert_eq!(events(&*store, &scope, &task.id, 0, 100).await.len() as u64, seq.0);
        assert_eq!(stored(&*store, &scope, &task.id).await, Some((task, seq)));
    }
}

/// The data of this caller, as text.
async fn told(store: &dyn Store, scope: &Scope) -> String {
    let mut totals = Vec::new();
    for state in std::iter::once(None).chain(TaskState::ALL.iter().copied().map(Some)) {
        let page = works(store.tasks(scope, &TaskQuery { state, count: true, ..TaskQuery::default() }).await);
        totals.push(page.total);
    }
    let answers = (
        works(store.idempotent_outcome(scope, "k").await),
        works(store.idempotent_outcome(scope, "reply").await),
    );
    let links = works(store.links(scope, &"t-1".into()).await);
    let secret = works(store.secret("name").await);
    format!("{totals:?} {answers:?} {links:?} {secret:?}")
}
