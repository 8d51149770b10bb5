//! Checks of one task: its log, its scope, its idempotency key.

use std::sync::Arc;

use futures_util::future::join_all;
use nuncio_protocol::{
    Artifact, Event, Message, Part, Seq, Task, TaskArtifactUpdateEvent, TaskState, Timestamp, fold,
};

use super::{Writer, at, commit, commit_one, events, key, opening, scope, stored};
use crate::store::{Attached, Commit, Outcome, Refused, Scope, Store, TaskQuery};

/// Invariant 5 of ARCHITECTURE.md: sequence numbers of a task begin at 1 and have no gap.
pub async fn numbers_begin_at_one_and_have_no_gap(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    writer.status(TaskState::Working, 2).await;
    writer.chunk("a", "x").await;
    writer.caller_says("hurry").await;
    writer.status(TaskState::Completed, 3).await;
    let log = events(&*store, &writer.scope, &writer.task.id, 0, 100).await;
    let numbers: Vec<u64> = log.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!(stored(&*store, &writer.scope, &writer.task.id).await, Some((writer.task, Seq(5))));
}

/// The conditional append: the loser gets the version of the log, and has changed nothing.
pub async fn an_entry_is_refused_unless_the_log_is_where_it_expects(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    writer.status(TaskState::Working, 2).await;
    let entry =
        |expected: u64| Commit { expected: Seq(expected), ..writer.entry(writer.chunk_event("a", "x")) };
    let creation = Commit { expected: Seq::ZERO, ..entry(0) };
    for (entry, why) in [(entry(1), "behind"), (entry(3), "ahead"), (creation, "created already")] {
        let entry = entry.attach(|with| with.idempotency = Some(key("k", 1)));
        assert_eq!(commit_one(&*store, entry).await, Err(Refused::Version(Seq(2))), "{why}");
    }
    assert_eq!(stored(&*store, &writer.scope, &writer.task.id).await, Some((writer.task.clone(), Seq(2))));
    let entry = entry(2).attach(|with| with.idempotency = Some(key("k", 1)));
    assert_eq!(commit_one(&*store, entry).await, Ok(()), "what was refused took no key");
}

/// Terminal is terminal: a writer that does not know of the end, and happens to expect the right number, is
/// refused too.
pub async fn an_ended_task_takes_no_more_entries(store: Arc<dyn Store>) {
    for (i, state) in TaskState::ALL.iter().filter(|state| state.is_terminal()).enumerate() {
        let mut writer = Writer::create(&store, &scope("ann"), &format!("t-{i}"), "c-1", 1).await;
        let more = Commit { expected: Seq(2), ..writer.entry(writer.chunk_event("a", "x")) };
        let end = writer.entry(writer.status_event(*state, 2));
        let results = commit(&*store, vec![end.clone(), more.clone()]).await;
        assert_eq!(results, [Ok(()), Err(Refused::Version(Seq(2)))], "{state}, together");
        writer.advance(&end.event);
        for take in [false, true] {
            let entry = Commit { take, ..more.clone() };
            assert_eq!(commit_one(&*store, entry).await, Err(Refused::Version(Seq(2))), "{state}");
        }
        let read = stored(&*store, &writer.scope, &writer.task.id).await;
        assert_eq!(read, Some((writer.task, Seq(2))), "{state}");
    }
}

/// Concurrent writers of one task: the expected version decides.
pub async fn one_of_many_writers_wins(store: Arc<dyn Store>) {
    let writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    let attempts = join_all((0..16).map(|i| {
        let (store, entry) = (Arc::clone(&store), writer.entry(writer.chunk_event("a", &i.to_string())));
        async move { commit_one(&*store, entry).await }
    }))
    .await;
    let won = attempts.iter().filter(|result| result.is_ok()).count();
    assert_eq!(won, 1);
    let lost = attempts.iter().filter(|result| **result == Err(Refused::Version(Seq(2)))).count();
    assert_eq!(lost, 15, "{attempts:?}");
}

/// A batch is one transaction over many tasks; a refused entry does not affect the others.
pub async fn entries_of_a_batch_stand_or_fall_alone(store: Arc<dyn Store>) {
    let (ann, bob) = (scope("ann"), scope("bob"));
    let one = Writer::create(&store, &ann, "t-1", "c-1", 1).await;
    let two = Writer::create(&store, &bob, "t-2", "c-1", 1).await;
    let third = opening(&ann, "t-3", None);
    let batch = vec![
        one.entry(one.status_event(TaskState::Working, 2)),
        Commit { expected: Seq(7), ..two.entry(two.status_event(TaskState::Working, 2)) },
        third.clone(),
        // The next entry of a task that this batch creates.
        Commit { expected: Seq(1), event: Arc::new(one_chunk("t-3")), ..third },
        Commit { task_id: "t-9".into(), ..one.entry(one.chunk_event("a", "x")) },
        two.entry(two.status_event(TaskState::Working, 3)),
    ];
    let results = commit(&*store, batch).await;
    let expected = [Ok(()), Err(Refused::Version(Seq(1))), Ok(()), Ok(()), Err(Refused::NotFound), Ok(())];
    assert_eq!(results, expected);
    let seqs = [(&ann, "t-1", 2), (&bob, "t-2", 2), (&ann, "t-3", 2)];
    for (scope, id, seq) in seqs {
        let found = stored(&*store, scope, &id.into()).await.map(|(_, seq)| seq);
        assert_eq!(found, Some(Seq(seq)), "{id}");
    }
}

fn one_chunk(id: &str) -> Event {
    Event::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id: id.into(),
        artifact: Arc::new(Artifact::new("a", Part::text("x"))),
        ..TaskArtifactUpdateEvent::default()
    })
}

/// Invariant 9 of ARCHITECTURE.md, REQ-087 to REQ-090: another agent, tenant or owner reads, lists and writes
/// nothing.
#[expect(clippy::expect_used, reason = "a check of the contract, not of failures")]
pub async fn not_yours_is_not_found(store: Arc<dyn Store>) {
    let own =
        Arc::new(Scope { agent: "agent".into(), tenant: Some("acme".into()), owner: Some("ann".into()) });
    let writer = Writer::create(&store, &own, "t-1", "c-1", 1).await;
    assert_eq!(commit_one(&*store, opening(&own, "t-2", Some(key("k", 1)))).await, Ok(()));
    let foreign = [
        Scope { agent: "other".into(), ..(*own).clone() },
        Scope { tenant: Some("rival".into()), ..(*own).clone() },
        Scope { tenant: None, ..(*own).clone() },
        Scope { owner: Some("bob".into()), ..(*own).clone() },
        Scope { owner: None, ..(*own).clone() },
    ];
    let all = TaskQuery { limit: 10, count: true, ..TaskQuery::default() };
    for scope in foreign.map(Arc::new) {
        let id = &writer.task.id;
        assert_eq!(stored(&*store, &scope, id).await, None, "{scope:?}");
        assert!(events(&*store, &scope, id, 0, 10).await.is_empty(), "{scope:?}");
        let page = store.tasks(&scope, &all).await.expect("the store works");
        assert_eq!((page.tasks.len(), page.more, page.total), (0, false, Some(0)), "{scope:?}");
        assert!(store.idempotent_outcome(&scope, "k").await.expect("the store works").is_none(), "{scope:?}");
        let entry = Commit { scope: Arc::clone(&scope), ..writer.entry(writer.chunk_event("a", "x")) };
        assert_eq!(commit_one(&*store, entry).await, Err(Refused::NotFound), "{scope:?}");
    }
    assert_eq!(stored(&*store, &own, &writer.task.id).await, Some((writer.task, Seq(1))), "untouched");
}

/// A snapshot is only an optimization: every read agrees with the log.
pub async fn a_task_and_its_log_agree(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    agree(&*store, &writer).await;
    writer.chunk("a", "x").await;
    writer.status(TaskState::InputRequired, 2).await;
    agree(&*store, &writer).await;
    writer.caller_says("blue").await;
    writer.chunk("a", "y").await;
    writer.chunk("b", "z").await;
    agree(&*store, &writer).await;
    writer.status(TaskState::Working, 3).await;
    agree(&*store, &writer).await;
    writer.status(TaskState::Completed, 4).await;
    agree(&*store, &writer).await;
}

pub(super) async fn agree(store: &dyn Store, writer: &Writer) {
    let mut told = Task::default();
    for (_, event) in events(store, &writer.scope, &writer.task.id, 0, 1_000).await {
        match &*event {
            Event::Task(created) => told = created.clone(),
            event => assert_eq!(fold(&mut told, event, Timestamp::EPOCH), Ok(()), "{event:?}"),
        }
    }
    assert_eq!(told, writer.task, "the log");
    let (read, seq) = stored(store, &writer.scope, &writer.task.id).await.unwrap_or_default();
    assert_eq!((read, seq), (writer.task.clone(), writer.seq), "the task");
}

/// The reads of a subscriber that lags or resumes.
pub async fn events_come_in_pages(store: Arc<dyn Store>) {
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    for i in 2..=10 {
        writer.chunk("a", &i.to_string()).await;
    }
    let (scope, id) = (&writer.scope, &writer.task.id);
    for (after, limit, expected) in [
        (0, 100, (1..=10).collect::<Vec<u64>>()),
        (0, 3, vec![1, 2, 3]),
        (3, 3, vec![4, 5, 6]),
        (8, 3, vec![9, 10]),
        (10, 3, vec![]),
        (11, 3, vec![]),
        (u64::MAX, 3, vec![]),
        (4, 0, vec![]),
    ] {
        let page = events(&*store, scope, id, after, limit).await;
        let numbers: Vec<u64> = page.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(numbers, expected, "after {after}, at most {limit}");
    }
    assert!(events(&*store, scope, &"t-unknown".into(), 0, 10).await.is_empty());
}

/// Ten thousand chunks of one artifact are ten thousand small entries, not ten thousand growing ones.
#[expect(clippy::expect_used, reason = "a check of the contract, not of failures")]
pub async fn an_event_costs_its_own_size(store: Arc<dyn Store>) {
    const PIECES: usize = 10_000;
    let mut writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    let piece = writer.chunk_event("a", "0123456789");
    let size = serde_json::to_vec(&piece).expect("an event is JSON").len();
    for expected in (1..=PIECES as u64).map(Seq) {
        let entry = Commit {
            scope: Arc::clone(&writer.scope),
            task_id: writer.task.id.clone(),
            expected,
            event: Arc::new(piece.clone()),
            at: at(1),
            snapshot: None,
            take: false,
            push: false,
            attached: Attached::default(),
        };
        assert_eq!(commit_one(&*store, entry).await, Ok(()), "{expected}");
    }
    let (mut read, mut bytes, mut after) = (0, 0, 1);
    loop {
        let page = events(&*store, &writer.scope, &writer.task.id, after, 500).await;
        let Some((last, _)) = page.last() else { break };
        after = *last;
        read += page.len();
        bytes += page
            .iter()
            .map(|(_, event)| serde_json::to_vec(event).expect("an event is JSON").len())
            .sum::<usize>();
    }
    assert_eq!((read, bytes), (PIECES, PIECES * size));
    let (task, seq) = stored(&*store, &writer.scope, &writer.task.id).await.unwrap_or_default();
    assert_eq!((task.artifacts.len(), task.artifacts[0].parts.len()), (1, PIECES));
    (writer.task, writer.seq) = (task, seq);
    writer.status(TaskState::Completed, 2).await;
    assert_eq!(stored(&*store, &writer.scope, &writer.task.id).await, Some((writer.task, writer.seq)));
}

/// The key is claimed in the transaction that creates the task, or not at all.
#[expect(clippy::expect_used, reason = "a check of the contract, not of failures")]
pub async fn a_key_finds_its_task_and_is_taken(store: Arc<dyn Store>) {
    let create = |owner: &str, id: &str, digest: u8| opening(&scope(owner), id, Some(key("k", digest)));
    assert_eq!(commit_one(&*store, create("ann", "t-1", 1)).await, Ok(()));
    assert_eq!(commit_one(&*store, create("ann", "t-2", 2)).await, Err(Refused::KeyTaken));
    assert_eq!(stored(&*store, &scope("ann"), &"t-2".into()).await, None, "refused is not made");
    assert_eq!(commit_one(&*store, create("bob", "t-3", 3)).await, Ok(()), "keys are the caller's own");
    for (owner, id, digest) in [("ann", "t-1", 1), ("bob", "t-3", 3)] {
        let answer =
            store.idempotent_outcome(&scope(owner), "k").await.expect("the store works").expect("an answer");
        assert_eq!(answer.digest, [digest; 32]);
        assert!(matches!(answer.outcome, Outcome::Task(task) if task.as_str() == id), "{owner}");
    }
    assert!(store.idempotent_outcome(&scope("ann"), "other").await.expect("the store works").is_none());
}

/// A later entry claims its key in the same transaction, or is not appended.
#[expect(clippy::expect_used, reason = "a check of the contract, not of failures")]
pub async fn a_later_entry_has_a_key_of_its_own(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let writer = Writer::create(&store, &ann, "t-1", "c-1", 1).await;
    assert_eq!(commit_one(&*store, opening(&ann, "t-2", Some(key("taken", 1)))).await, Ok(()));
    let said = |digest: &str, idempotency| {
        writer
            .entry(Event::Message(Arc::new(Message::user(digest, Part::text("more")))))
            .attach(|with| with.idempotency = Some(idempotency))
    };
    let (refused, taken) = (said("m-1", key("taken", 2)), said("m-2", key("free", 3)));
    assert_eq!(commit_one(&*store, refused).await, Err(Refused::KeyTaken));
    let seq = stored(&*store, &ann, &writer.task.id).await.map(|(_, seq)| seq);
    assert_eq!(seq, Some(Seq(1)), "nothing was appended");
    assert_eq!(commit_one(&*store, taken).await, Ok(()));
    let answer =
        store.idempotent_outcome(&ann, "free").await.expect("the store works").expect("the key is known");
    assert!(matches!(answer.outcome, Outcome::Task(id) if id.as_str() == "t-1"));
}

/// A direct reply is stored for repeats; the first answer of a key stays.
#[expect(clippy::expect_used, reason = "a check of the contract, not of failures")]
pub async fn a_kept_reply_stands(store: Arc<dyn Store>) {
    let ann = scope("ann");
    for (text, digest) in [("first", 1), ("second", 2)] {
        let reply = Arc::new(Message::agent(text, Part::text(text)));
        store.put_reply(&ann, key("k", digest), reply, at(1)).await.expect("the store works");
    }
    let answer = store.idempotent_outcome(&ann, "k").await.expect("the store works").expect("an answer");
    assert_eq!(answer.digest, [1; 32]);
    assert!(matches!(answer.outcome, Outcome::Reply(reply) if reply.text() == "first"));
    assert_eq!(commit_one(&*store, opening(&ann, "t-1", Some(key("k", 1)))).await, Err(Refused::KeyTaken));
}
