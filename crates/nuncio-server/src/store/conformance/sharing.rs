//! Checks of owners at the same time: accepted and refused writers.

use std::{collections::BTreeSet, sync::Arc};

use futures_util::future::join_all;
use nuncio_protocol::{Seq, TaskId, TaskState};

use super::{
    Handles, Writer, adopted, at, commit, commit_one, events, key, opening,
    owner::{held, turn},
    scope, stored, works,
};
use crate::store::{Commit, Moved, Refused, Scope, Store, TaskQuery, TurnChange};

async fn two<H: Handles>(handles: &H) -> [Arc<dyn Store>; 2] {
    [handles.open().await, handles.open().await]
}

/// The owner that creates a task owns it: while the task is in progress, others read it and cannot write.
pub async fn a_task_in_progress_is_its_owners_alone<H: Handles>(handles: &H) {
    let [mine, other] = two(handles).await;
    let mut writer = Writer::create(&mine, &scope("ann"), "t-1", "c-1", 1).await;
    for when in 2..4 {
        let mut stranger = writer.on(&other);
        assert_eq!((held(&*mine, &writer).await, held(&*other, &writer).await), (false, true));
        let right = stranger.entry(stranger.status_event(TaskState::Canceled, 9));
        let wrong = Commit { expected: Seq(9), ..right.clone() };
        let with_key = right.clone().attach(|with| with.idempotency = Some(key("k", 1)));
        for entry in [right, wrong, with_key] {
            assert_eq!(stranger.offer(entry).await, Err(Refused::Held), "whatever version it expects");
        }
        for change in [TurnChange::Queue(turn("1")), TurnChange::Begin("1".into())] {
            let result = other.update_turn(&writer.scope, &writer.task.id, change).await;
            assert_eq!(works(result), Err(Refused::Held));
        }
        assert!(works(other.idempotent_outcome(&writer.scope, "k").await).is_none(), "refused takes no key");
        let read = stored(&*other, &writer.scope, &writer.task.id).await;
        assert_eq!(read, Some((writer.task.clone(), writer.seq)));
        writer.status(TaskState::Working, when).await;
    }
    let foreign = Commit { scope: scope("bob"), ..writer.entry(writer.chunk_event("a", "x")) };
    assert_eq!(commit_one(&*other, foreign).await, Err(Refused::NotFound), "not yours is not even held");
    let again = opening(&writer.scope, "t-1", None);
    assert_eq!(commit_one(&*other, again).await, Err(Refused::Version(writer.seq)), "made already");
}

/// A conversation may continue at any of the owners.
pub async fn a_settled_task_moves_to_whoever_goes_on_with_it<H: Handles>(handles: &H) {
    let stores = two(handles).await;
    for (i, state) in [TaskState::InputRequired, TaskState::AuthRequired].into_iter().enumerate() {
        let mut writer = Writer::create(&stores[0], &scope("ann"), &format!("t-{i}"), "c-1", 1).await;
        for when in 2..6 {
            writer.status(state, when).await;
            let (next, former) = (&stores[when as usize % 2], &stores[(when as usize + 1) % 2]);
            assert!(!held(&**next, &writer).await, "nobody works on it");
            writer = writer.on(next);
            writer.caller_says("blue").await;
            writer.status(TaskState::Working, when).await;
            let mut late = writer.on(former);
            let entry = late.entry(late.chunk_event("a", "x"));
            assert_eq!(late.offer(entry).await, Err(Refused::Held), "{when}");
            assert!(held(&**former, &writer).await);
        }
    }
}

/// A cancel, for example, may take a task from its owner, which is refused at its next entry.
pub async fn taking_over_wins_and_the_former_owner_is_refused<H: Handles>(handles: &H) {
    let [mine, other] = two(handles).await;
    let mut former = Writer::create(&mine, &scope("ann"), "t-1", "c-1", 1).await;
    former.status(TaskState::Working, 2).await;
    let mut taker = former.on(&other);
    let take = |entry: Commit| Commit { take: true, ..entry };
    let late = Commit { expected: Seq(1), ..take(taker.entry(taker.chunk_event("a", "x"))) };
    assert_eq!(taker.offer(late).await, Err(Refused::Version(Seq(2))), "taking is no leave to be wrong");
    let foreign = Commit { scope: scope("bob"), ..take(taker.entry(taker.chunk_event("a", "x"))) };
    assert_eq!(taker.offer(foreign).await, Err(Refused::NotFound));
    assert!(held(&*other, &former).await, "a refused entry takes nothing");

    let entry = take(taker.entry(taker.chunk_event("a", "x")));
    assert_eq!(taker.offer(entry).await, Ok(()));
    for expected in [former.seq, taker.seq] {
        let entry = Commit { expected, ..former.entry(former.chunk_event("a", "y")) };
        assert_eq!(former.offer(entry).await, Err(Refused::Held));
    }
    assert_eq!((held(&*mine, &taker).await, held(&*other, &taker).await), (true, false));
    taker.status(TaskState::Canceled, 3).await;
    assert_eq!(stored(&*mine, &taker.scope, &taker.task.id).await, Some((taker.task, Seq(4))));
}

/// Several owners take a task concurrently: the expected version decides.
pub async fn one_of_many_owners_wins<H: Handles>(handles: &H) {
    let stores = two(handles).await;
    let mut writer = Writer::create(&stores[0], &scope("ann"), "t-1", "c-1", 1).await;
    for _ in 0..8 {
        let attempts = join_all((0..8).map(|i| {
            let store = Arc::clone(&stores[i % 2]);
            let entry = writer.entry(writer.chunk_event("a", &i.to_string()));
            async move { commit_one(&*store, Commit { take: true, ..entry }).await }
        }))
        .await;
        assert_eq!(attempts.iter().filter(|result| result.is_ok()).count(), 1, "{attempts:?}");
        let next = writer.seq.next();
        let lost = attempts.iter().filter(|result| **result == Err(Refused::Version(next))).count();
        assert_eq!(lost, 7, "{attempts:?}");
        let read = stored(&*stores[0], &writer.scope, &writer.task.id).await;
        (writer.task, writer.seq) = read.unwrap_or_default();
    }
}

/// Tasks of a running owner are not adopted.
pub async fn what_a_living_owner_works_on_is_not_adopted<H: Handles>(handles: &H) {
    let [mine, other] = two(handles).await;
    let mut writer = Writer::create(&mine, &scope("ann"), "t-1", "c-1", 1).await;
    let queued = mine.update_turn(&writer.scope, &writer.task.id, TurnChange::Queue(turn("1"))).await;
    assert_eq!(works(queued), Ok(()));
    for store in [&mine, &other] {
        assert!(works(store.adopt("agent", 9).await).is_empty());
    }
    writer.status(TaskState::Working, 2).await;
}

/// Two owners that adopt concurrently get different tasks.
pub async fn an_orphan_is_given_to_one_of_many<H: Handles>(handles: &H) {
    const ORPHANS: usize = 40;
    let gone = handles.open().await;
    let heirs = two(handles).await;
    let batch: Vec<Commit> = (0..ORPHANS).map(|i| opening(&scope("ann"), &format!("t-{i}"), None)).collect();
    assert_eq!(commit(&*gone, batch).await, vec![Ok(()); ORPHANS]);
    handles.die(gone).await;

    let mut given: Vec<(usize, TaskId)> = Vec::new();
    given.extend(adopted(&*heirs[0], "agent", 3).await.into_iter().map(|orphan| (0, orphan.stored.task.id)));
    while given.len() < ORPHANS {
        let both = join_all(heirs.iter().map(|heir| heir.adopt("agent", 3))).await;
        let before = given.len();
        for (heir, orphans) in both.into_iter().enumerate() {
            given.extend(works(orphans).into_iter().map(|orphan| (heir, orphan.stored.task.id)));
        }
        assert!(given.len() > before, "the owner is gone, so the rest is there for the taking");
    }
    let distinct: BTreeSet<&TaskId> = given.iter().map(|(_, id)| id).collect();
    assert_eq!((distinct.len(), given.len()), (ORPHANS, ORPHANS));
    for (heir, id) in &given {
        let read = works(heirs[*heir].task(&scope("ann"), id).await).map(|stored| stored.held);
        let other = works(heirs[1 - *heir].task(&scope("ann"), id).await).map(|stored| stored.held);
        assert_eq!((read, other), (Some(false), Some(true)), "{id}");
    }
}

/// Fencing: a slow owner that returns after its tasks were adopted changes nothing.
pub async fn an_owner_that_was_thought_gone_is_refused<H: Handles>(handles: &H) {
    let slow = handles.open().await;
    let heir: Arc<dyn Store> = handles.open().await;
    let store: Arc<dyn Store> = slow.clone();
    let mut former = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    handles.die(slow).await;
    assert_eq!(adopted(&*heir, "agent", 9).await.len(), 1);
    let mut writer = former.on(&heir);
    writer.status(TaskState::Working, 2).await;
    for expected in [former.seq, writer.seq] {
        let entry = Commit { expected, ..former.entry(former.chunk_event("a", "x")) };
        // It is refused; or the store is closed to it, which is as good.
        if let Ok(results) = store.commit(vec![entry]).await {
            assert_eq!(results, [Err(Refused::Held)]);
        }
    }
    former.seq = writer.seq;
    assert_eq!(stored(&*heir, &writer.scope, &writer.task.id).await, Some((writer.task, former.seq)));
}

/// After a commit has returned, every reader sees the entry, by any handle.
pub async fn what_one_owner_commits_every_owner_reads<H: Handles>(handles: &H) {
    let [mine, other] = two(handles).await;
    let ann = scope("ann");
    let mut writer = Writer::create(&mine, &ann, "t-1", "c-1", 1).await;
    for when in 2..30 {
        writer.chunk("a", "x").await;
        writer.status(TaskState::Working, when).await;
        let read = stored(&*other, &ann, &writer.task.id).await;
        assert_eq!(read, Some((writer.task.clone(), writer.seq)));
        let log = events(&*other, &ann, &writer.task.id, writer.seq.0 - 2, 9).await;
        assert_eq!(log.len(), 2);
        assert_eq!(listed(&*other, &ann).await, (Some(at(when)), Some(1)));
    }
    assert_eq!(commit_one(&*mine, opening(&ann, "t-2", Some(key("k", 1)))).await, Ok(()));
    let repeat = opening(&ann, "t-3", Some(key("k", 1)));
    assert_eq!(commit_one(&*other, repeat).await, Err(Refused::KeyTaken), "keys are taken for all");
    let secrets = join_all([&mine, &other].map(|store| store.secret("name"))).await;
    let secrets: Vec<[u8; 32]> = secrets.into_iter().map(works).collect();
    assert_eq!(secrets[0], secrets[1], "made once");
}

async fn listed(store: &dyn Store, scope: &Scope) -> (Option<nuncio_protocol::Timestamp>, Option<usize>) {
    let query = TaskQuery { state: Some(TaskState::Working), limit: 1, count: true, ..TaskQuery::default() };
    let page = works(store.tasks(scope, &query).await);
    (page.tasks.first().and_then(|task| task.status.timestamp), page.total)
}

/// An owner can ask which tasks have new entries of other owners.
pub async fn what_others_write_is_seen_to_move<H: Handles>(handles: &H) {
    let [mine, other] = two(handles).await;
    let mut writers = Vec::new();
    for id in ["t-1", "t-2", "t-3"] {
        writers.push(Writer::create(&mine, &scope("ann"), id, "c-1", 1).await);
    }
    let mut known: Vec<(TaskId, Seq)> =
        writers.iter().map(|writer| (writer.task.id.clone(), writer.seq)).collect();
    known.push(("t-unknown".into(), Seq::ZERO));
    for store in [&mine, &other] {
        assert_eq!(works(store.changed_since(&known).await), []);
        assert_eq!(works(store.changed_since(&[]).await), []);
    }
    writers[2].status(TaskState::Working, 2).await;
    writers[0].chunk("a", "x").await;
    let mut moved = works(other.changed_since(&known).await);
    moved.sort();
    let seen = |id: &str, held| Moved { id: id.into(), seq: Seq(2), held, in_hand: held };
    assert_eq!(moved, [seen("t-1", true), seen("t-3", true)], "their owner works on them");
    writers[0].status(TaskState::InputRequired, 3).await;
    let moved = works(other.changed_since(&known[..1]).await);
    assert_eq!(moved, [Moved { seq: Seq(3), ..seen("t-1", false) }], "anybody may go on with it");
}
