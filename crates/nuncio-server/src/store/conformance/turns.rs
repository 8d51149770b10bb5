//! Checks of turns: stored with an entry or alone, begun, and deleted by a status.

use std::sync::Arc;

use nuncio_protocol::{Event, TaskState};

use super::{Handles, Writer, adopted, commit_one, creation, opening, owner::turn, scope, works};
use crate::store::{Commit, Refused, Store, StoredTurn, TaskLog, TurnChange};

async fn change(store: &dyn Store, writer: &Writer, change: TurnChange) -> Result<(), Refused> {
    works(store.update_turn(&writer.scope, &writer.task.id, change).await)
}

async fn queue(store: &dyn Store, writer: &Writer, id: &str) {
    assert_eq!(change(store, writer, TurnChange::Queue(turn(id))).await, Ok(()), "{id}");
}

async fn begin(store: &dyn Store, writer: &Writer, id: &str) -> Result<(), Refused> {
    change(store, writer, TurnChange::Begin(id.into())).await
}

fn begun(id: &str) -> StoredTurn {
    StoredTurn { begun: true, ..turn(id) }
}

/// A turn is refused like an entry; a missing turn cannot begin.
pub async fn unknown_turns_and_turns_of_unknown_tasks_are_not_found(store: Arc<dyn Store>) {
    let writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    assert_eq!(begin(&*store, &writer, "1").await, Err(Refused::NotFound));
    queue(&*store, &writer, "1").await;
    for (scope, id) in [(scope("bob"), "t-1"), (scope("ann"), "t-unknown")] {
        for change in [TurnChange::Queue(turn("2")), TurnChange::Begin("1".into())] {
            let result = works(store.update_turn(&scope, &id.into(), change).await);
            assert_eq!(result, Err(Refused::NotFound), "{scope:?} {id}");
        }
    }
    assert_eq!(begin(&*store, &writer, "2").await, Err(Refused::NotFound), "refused is not kept");
    assert_eq!(begin(&*store, &writer, "1").await, Ok(()));
    assert_eq!(begin(&*store, &writer, "1").await, Ok(()), "it has begun, as asked");
    let twin = Writer::create(&store, &scope("ann"), "t-2", "c-1", 1).await;
    assert_eq!(begin(&*store, &twin, "1").await, Err(Refused::NotFound), "a turn is of one task");
}

/// A parked task keeps the turns that wait, and loses those that have begun, also the one of the entry itself.
pub async fn parking_drops_the_turns_that_have_begun(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    for id in ["1", "2"] {
        queue(&*store, &writer, id).await;
    }
    assert_eq!(begin(&*store, &writer, "1").await, Ok(()));
    let entry = writer.entry(writer.chunk_event("a", "x"));
    let parks = entry.attach(|with| {
        with.park = true;
        with.turn = Some(begun("3"));
    });
    assert_eq!(writer.offer(parks).await, Ok(()));
    for (id, wanted) in [("1", Err(Refused::NotFound)), ("2", Ok(())), ("3", Err(Refused::NotFound))] {
        assert_eq!(begin(&*store, &writer, id).await, wanted, "{id}");
    }
    let opens = opening(&scope("ann"), "t-2", None).attach(|with| {
        with.park = true;
        with.turn = Some(begun("1"));
    });
    assert_eq!(commit_one(&*store, opens).await, Ok(()));
    let opened = Writer::open(&store, &scope("ann"), creation("t-2", "c-1", 1), nuncio_protocol::Seq(1));
    assert_eq!(begin(&*store, &opened, "1").await, Err(Refused::NotFound));
}

/// A terminal status deletes every turn, an interrupted one those that have begun, any other none.
pub async fn a_status_drops_the_turns_that_it_ends(store: Arc<dyn Store>) {
    for (i, state) in TaskState::ALL.iter().copied().skip(1).enumerate() {
        let mut writer = Writer::create(&store, &scope("ann"), &format!("t-{i}"), "c-1", 1).await;
        for id in ["1", "2"] {
            queue(&*store, &writer, id).await;
        }
        assert_eq!(begin(&*store, &writer, "1").await, Ok(()));
        writer.status(state, 2).await;
        let left = ["1", "2"].map(|id| (begin(&*store, &writer, id), id));
        let wanted = match state {
            state if state.is_terminal() => [Err(Refused::NotFound), Err(Refused::NotFound)],
            state if state.is_interrupted() => [Err(Refused::NotFound), Ok(())],
            _ => [Ok(()), Ok(())],
        };
        for ((left, id), wanted) in left.into_iter().zip(wanted) {
            assert_eq!(left.await, wanted, "{id} after {state}");
        }
    }
}

/// Adoption returns the turns in order, with their bodies and states.
pub async fn turns_outlive_their_owner<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    let ann = scope("ann");
    let first = opening(&ann, "t-1", None).attach(|with| with.turn = Some(turn("01")));
    let mut writer = Writer::open(&store, &ann, creation("t-1", "c-1", 1), nuncio_protocol::Seq::ZERO);
    assert_eq!(writer.offer(first).await, Ok(()));
    queue(&*store, &writer, "02").await;
    let said = writer.entry(writer.message_event("more", &[])).attach(|with| with.turn = Some(turn("03")));
    assert_eq!(writer.offer(said).await, Ok(()));
    let mut large = turn("04");
    large.body = (0..=255).cycle().take(300_000).collect::<Vec<u8>>().into();
    assert_eq!(change(&*store, &writer, TurnChange::Queue(large.clone())).await, Ok(()));
    assert_eq!(begin(&*store, &writer, "01").await, Ok(()));
    // Stored as begun with an entry, under an existing id: it replaces that turn.
    let working = writer.entry(writer.status_event(TaskState::Working, 2));
    assert_eq!(writer.offer(working.attach(|with| with.turn = Some(begun("02")))).await, Ok(()));
    let mut other = Writer::create(&store, &ann, "t-2", "c-1", 1).await;
    other.chunk("a", "x").await;
    drop((writer, other, store));
    handles.die(gone).await;

    let store = handles.open().await;
    let orphans = adopted(&*store, "agent", 9).await;
    let of = |id: &str| {
        let found = orphans.iter().find(|orphan| orphan.stored.task.id.as_str() == id);
        found.map(|orphan| orphan.turns.clone())
    };
    assert_eq!(of("t-1"), Some(vec![begun("01"), begun("02"), turn("03"), large]));
    assert_eq!(of("t-2"), Some(Vec::new()));
    let task = &"t-1".into();
    let begin = works(store.update_turn(&ann, task, TurnChange::Begin("03".into())).await);
    assert_eq!(begin, Ok(()), "the new owner goes on with them");
}

/// An owner holds a task with a waiting turn, even while the task is idle: otherwise an entry of another
/// owner would move the task away, and the turn would never run.
pub async fn turns_are_the_owners_alone<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    writer.status(TaskState::InputRequired, 2).await;
    queue(&*store, &writer, "1").await;
    let (task, seq) = (writer.task.clone(), writer.seq);
    drop((store, writer));
    handles.die(gone).await;

    let next = handles.open().await;
    let store: Arc<dyn Store> = next.clone();
    let writer = Writer::open(&store, &scope("ann"), task, seq);
    let changes =
        || [TurnChange::Queue(turn("2")), TurnChange::Begin("1".into()), TurnChange::Drop("1".into())];
    for wanted in changes() {
        assert_eq!(change(&*store, &writer, wanted.clone()).await, Err(Refused::Held), "{wanted:?}");
    }
    let entry = writer.entry(writer.status_event(TaskState::Working, 3));
    assert_eq!(commit_one(&*store, entry).await, Err(Refused::Held));
    assert!(works(store.task(&writer.scope, &writer.task.id).await).is_some_and(|stored| stored.held));
    let orphans = adopted(&*store, "agent", 9).await;
    assert_eq!((orphans[0].busy, &orphans[0].turns), (false, &vec![turn("1")]), "nothing has changed");
    for wanted in changes() {
        assert_eq!(change(&*store, &writer, wanted.clone()).await, Ok(()), "{wanted:?}");
    }
    assert_eq!(begin(&*store, &writer, "1").await, Err(Refused::NotFound), "dropped");
    let again = TurnChange::Drop("1".into());
    assert_eq!(change(&*store, &writer, again).await, Ok(()), "gone already is no error");
}

/// A task that no owner holds goes to the owner that queues a turn for it.
pub async fn a_turn_moves_a_task_at_rest<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    writer.status(TaskState::InputRequired, 2).await;
    let (task, seq) = (writer.task.clone(), writer.seq);
    drop((store, writer));
    handles.die(gone).await;

    let next = handles.open().await;
    let store: Arc<dyn Store> = next.clone();
    let writer = Writer::open(&store, &scope("ann"), task, seq);
    queue(&*store, &writer, "1").await;
    drop((store, writer));
    handles.die(next).await;

    let last = handles.open().await;
    let orphans = adopted(&*last, "agent", 9).await;
    assert_eq!((orphans.len(), &orphans[0].turns), (1, &vec![turn("1")]), "left by the one that queued it");
}

/// The entry that settles a task also deletes its own turn, where the state requires it.
pub async fn only_turns_that_wait_make_an_orphan_of_a_settled_task<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    let cases = [
        ("t-begun", TaskState::InputRequired, begun("1"), None),
        ("t-waits", TaskState::InputRequired, turn("1"), Some(vec![turn("1")])),
        ("t-ended", TaskState::Completed, turn("1"), None),
        ("t-works", TaskState::Working, begun("1"), Some(vec![begun("1")])),
    ];
    for made_so in [true, false] {
        for (id, state, kept, _) in &cases {
            settle(&store, &format!("{id}-{made_so}"), *state, kept.clone(), made_so).await;
        }
    }
    drop(store);
    handles.die(gone).await;

    let store = handles.open().await;
    let orphans = adopted(&*store, "agent", 100).await;
    for made_so in [true, false] {
        for (id, state, _, wanted) in &cases {
            let id = format!("{id}-{made_so}");
            let found = orphans.iter().find(|orphan| orphan.stored.task.id.as_str() == id);
            assert_eq!(found.map(|orphan| &orphan.turns), wanted.as_ref(), "{id} in {state}");
        }
    }
}

/// Brings a task into this state, with a turn in the same entry: the first, or the second.
async fn settle(store: &Arc<dyn Store>, id: &str, state: TaskState, kept: StoredTurn, made_so: bool) {
    let ann = scope("ann");
    let mut task = creation(id, "c-1", 1);
    if made_so {
        task.status.state = state;
        let snapshot = state.is_settled().then(|| task.clone());
        let mut writer = Writer::open(store, &ann, task.clone(), nuncio_protocol::Seq::ZERO);
        let event = Arc::new(Event::Task(task));
        let entry =
            Commit { event, snapshot, ..opening(&ann, id, None) }.attach(|with| with.turn = Some(kept));
        assert_eq!(writer.offer(entry).await, Ok(()));
        return;
    }
    let mut writer = Writer::create(store, &ann, id, "c-1", 1).await;
    let entry = writer.entry(writer.status_event(state, 2)).attach(|with| with.turn = Some(kept));
    assert_eq!(writer.offer(entry).await, Ok(()));
}
