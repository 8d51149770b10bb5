//! Checks of reservations: a message is in progress before it has a task or a reply.

use std::sync::Arc;

use futures_util::future::join_all;
use nuncio_protocol::{Event, Message, Part, Seq, TaskId, TaskState};

use super::{
    Handles, NOTICED, Writer, at, commit, commit_one, creation, events, key, opening, scope, stored, works,
};
use crate::store::{
    AdminTaskQuery, Commit, ErasureTarget, IdempotencyKey, Outcome, Refused, Reservation, Scope, Store,
    TaskQuery,
};

pub(in crate::store) fn reservation(
    scope: &Arc<Scope>,
    id: &str,
    idempotency: Option<IdempotencyKey>,
) -> Reservation {
    Reservation {
        scope: Arc::clone(scope),
        task_id: id.into(),
        idempotency,
        at: at(1),
        body: id.to_owned().into(),
    }
}

async fn reserve(
    store: &dyn Store,
    scope: &Arc<Scope>,
    id: &str,
    idempotency: Option<IdempotencyKey>,
) -> Result<(), Refused> {
    works(store.reserve(reservation(scope, id, idempotency)).await)
}

/// The entry that creates a reserved task.
fn reserved(scope: &Arc<Scope>, id: &str) -> Commit {
    opening(scope, id, None).attach(|with| with.reserved = true)
}

/// The answer of a key, as a short text.
async fn answer(store: &dyn Store, scope: &Scope, key: &str) -> Option<String> {
    let answer = works(store.idempotent_outcome(scope, key).await)?;
    Some(match answer.outcome {
        Outcome::Task(id) => format!("task {id}"),
        Outcome::Reply(reply) => format!("reply {}", reply.text()),
        Outcome::Reserved { reservation, abandoned } => {
            let key = reservation.idempotency.as_ref();
            assert_eq!(key.map(|key| key.digest), Some(answer.digest), "{reservation:?}");
            assert_eq!(&*reservation.scope, scope);
            assert_eq!(&reservation.body[..], reservation.task_id.as_str().as_bytes());
            let whose = if abandoned { "abandoned" } else { "reserved" };
            format!("{whose} {}", reservation.task_id)
        }
    })
}

/// Waits until the store has noticed that the owner of a reservation has stopped.
#[expect(clippy::expect_used, reason = "a check of the contract: too late is wrong")]
async fn until_abandoned(store: &dyn Store, scope: &Scope, key: &str) {
    let noticed = async {
        let mut again = tokio::time::interval(std::time::Duration::from_millis(100));
        while answer(store, scope, key).await.is_some_and(|answer| answer.starts_with("reserved")) {
            again.tick().await;
        }
    };
    tokio::time::timeout(NOTICED, noticed).await.expect("that an owner is gone is noticed");
}

/// Checks that no read shows a task that is only reserved.
async fn is_nowhere(store: &dyn Store, scope: &Arc<Scope>, id: &str) {
    let task: TaskId = id.into();
    assert_eq!(stored(store, scope, &task).await, None);
    assert!(events(store, scope, &task, 0, 9).await.is_empty());
    let all = TaskQuery { limit: 9, count: true, ..TaskQuery::default() };
    let page = works(store.tasks(scope, &all).await);
    assert_eq!((page.tasks.len(), page.total), (0, Some(0)));
    let all = AdminTaskQuery { limit: 9, ..AdminTaskQuery::default() };
    assert!(works(store.all_tasks(&all).await).tasks.is_empty());
    assert!(works(store.find_task(&task).await).is_none());
    assert!(works(store.count_tasks().await).is_empty());
    assert!(works(store.adopt(&scope.agent, 9).await).is_empty());
}

/// A reserved key is taken, although there is no task yet.
pub async fn a_reservation_takes_its_key_and_shows_no_task(store: Arc<dyn Store>) {
    let ann = scope("ann");
    assert_eq!(reserve(&*store, &ann, "t-1", Some(key("k", 1))).await, Ok(()));
    is_nowhere(&*store, &ann, "t-1").await;
    assert_eq!(answer(&*store, &ann, "k").await.as_deref(), Some("reserved t-1"));
    assert_eq!(reserve(&*store, &ann, "t-1", Some(key("k", 1))).await, Ok(()), "the same once more");
    assert_eq!(reserve(&*store, &ann, "t-2", Some(key("k", 1))).await, Err(Refused::KeyTaken));
    assert_eq!(commit_one(&*store, opening(&ann, "t-2", Some(key("k", 1)))).await, Err(Refused::KeyTaken));
    is_nowhere(&*store, &ann, "t-2").await;
    assert_eq!(
        reserve(&*store, &scope("bob"), "t-3", Some(key("k", 1))).await,
        Ok(()),
        "each has their keys"
    );
    assert_eq!(reserve(&*store, &ann, "t-4", None).await, Ok(()), "without a key");
    is_nowhere(&*store, &ann, "t-4").await;
    let mut later = Writer::create(&store, &ann, "t-5", "c-1", 1).await;
    let entry =
        later.entry(later.message_event("x", &[])).attach(|with| with.idempotency = Some(key("k", 1)));
    assert_eq!(later.offer(entry).await, Err(Refused::KeyTaken), "of a later entry, too");
    assert!(works(store.abandoned("agent", 9).await).is_empty());
}

/// The first entry ends the reservation: the key finds the task, and both stay.
pub async fn a_reserved_task_begins_with_its_first_entry(store: Arc<dyn Store>) {
    let ann = scope("ann");
    for (id, idempotency) in [("t-1", Some(key("k", 1))), ("t-2", None)] {
        assert_eq!(reserve(&*store, &ann, id, idempotency).await, Ok(()), "{id}");
        assert_eq!(commit_one(&*store, reserved(&ann, id)).await, Ok(()), "{id}");
        let again = commit_one(&*store, reserved(&ann, id)).await;
        assert_eq!(again, Err(Refused::Version(Seq(1))), "{id} is there");
        let mut writer = Writer::open(&store, &ann, creation(id, "c-1", 1), Seq(1));
        writer.status(TaskState::Completed, 2).await;
        assert_eq!(stored(&*store, &ann, &id.into()).await, Some((writer.task, Seq(2))), "{id}");
    }
    assert_eq!(answer(&*store, &ann, "k").await.as_deref(), Some("task t-1"));
    assert_eq!(reserve(&*store, &ann, "t-3", Some(key("k", 1))).await, Err(Refused::KeyTaken));
    works(store.release(&ann, &"t-1".into()).await);
    assert_eq!(answer(&*store, &ann, "k").await.as_deref(), Some("task t-1"), "there is nothing to release");
}

/// Entries of a batch are accepted or refused one by one, with and without reservations.
pub async fn a_reserved_task_without_its_reservation_is_refused(store: Arc<dyn Store>) {
    let (ann, bob) = (scope("ann"), scope("bob"));
    assert_eq!(reserve(&*store, &ann, "t-1", Some(key("k", 1))).await, Ok(()));
    assert_eq!(reserve(&*store, &ann, "t-2", None).await, Ok(()));
    let end = |id: &str| {
        let writer = Writer::open(&store, &ann, creation(id, "c-1", 1), Seq(1));
        writer.entry(writer.status_event(TaskState::Completed, 2))
    };
    let batch = vec![
        reserved(&ann, "t-unknown"),
        end("t-unknown"),
        reserved(&bob, "t-1"),
        reserved(&ann, "t-1"),
        end("t-1"),
        opening(&ann, "t-3", Some(key("k", 1))),
        reserved(&ann, "t-2"),
    ];
    let results = commit(&*store, batch).await;
    let not_found = Err(Refused::NotFound);
    let expected =
        [not_found.clone(), not_found.clone(), not_found, Ok(()), Ok(()), Err(Refused::KeyTaken), Ok(())];
    assert_eq!(results, expected);
    assert_eq!(stored(&*store, &ann, &"t-1".into()).await.map(|(_, seq)| seq), Some(Seq(2)));
    assert_eq!(answer(&*store, &ann, "k").await.as_deref(), Some("task t-1"));
}

/// A direct reply replaces the reservation.
pub async fn a_reply_ends_a_reservation(store: Arc<dyn Store>) {
    let ann = scope("ann");
    assert_eq!(reserve(&*store, &ann, "t-1", Some(key("k", 1))).await, Ok(()));
    for text in ["first", "second"] {
        let reply = Arc::new(Message::agent("r", Part::text(text)));
        works(store.put_reply(&ann, key("k", 1), reply, at(2)).await);
        assert_eq!(answer(&*store, &ann, "k").await.as_deref(), Some("reply first"));
    }
    is_nowhere(&*store, &ann, "t-1").await;
    assert_eq!(commit_one(&*store, reserved(&ann, "t-1")).await, Err(Refused::NotFound), "it is over");
}

/// A release leaves no trace of the reservation.
pub async fn a_released_key_is_free(store: Arc<dyn Store>) {
    let (ann, id) = (scope("ann"), TaskId::from("t-1"));
    assert_eq!(reserve(&*store, &ann, "t-1", Some(key("k", 1))).await, Ok(()));
    works(store.release(&scope("bob"), &id).await);
    assert_eq!(answer(&*store, &ann, "k").await.as_deref(), Some("reserved t-1"), "not yours is not there");
    for _ in 0..2 {
        works(store.release(&ann, &id).await);
        assert_eq!(answer(&*store, &ann, "k").await, None);
    }
    assert_eq!(commit_one(&*store, reserved(&ann, "t-1")).await, Err(Refused::NotFound));
    assert_eq!(reserve(&*store, &ann, "t-2", Some(key("k", 2))).await, Ok(()), "for another request, too");
}

/// Erasing a caller deletes its reservations, and they cannot be used any more.
pub async fn reservations_are_erased_with_their_caller(store: Arc<dyn Store>) {
    let (ann, bob) = (scope("ann"), scope("bob"));
    for (scope, id) in [(&ann, "t-1"), (&ann, "t-2"), (&bob, "t-3")] {
        assert_eq!(reserve(&*store, scope, id, Some(key(id, 1))).await, Ok(()));
    }
    assert_eq!(reserve(&*store, &ann, "t-4", None).await, Ok(()));
    let whose = ErasureTarget { agent: None, tenant: None, owner: Some("ann".into()) };
    let mut erased = Vec::new();
    for _ in 0..3 {
        erased.push(works(store.erase(&whose, 2).await));
    }
    assert_eq!(erased, [2, 1, 0]);
    for id in ["t-1", "t-2", "t-4"] {
        assert_eq!(answer(&*store, &ann, id).await, None);
        assert_eq!(commit_one(&*store, reserved(&ann, id)).await, Err(Refused::NotFound), "{id}");
    }
    assert_eq!(answer(&*store, &bob, "t-3").await.as_deref(), Some("reserved t-3"));
    assert_eq!(commit_one(&*store, reserved(&bob, "t-3")).await, Ok(()));
}

/// The reservations of a stopped owner are listed as abandoned, and another owner may take them.
pub async fn what_a_gone_owner_reserved_is_abandoned<H: Handles>(handles: &H) {
    let (gone, ann) = (handles.open().await, scope("ann"));
    let other = Arc::new(Scope { agent: "other".into(), ..(*ann).clone() });
    for (scope, id) in [(&ann, "t-1"), (&ann, "t-2"), (&other, "t-3")] {
        assert_eq!(reserve(&*gone, scope, id, Some(key(id, 1))).await, Ok(()));
    }
    assert_eq!(reserve(&*gone, &ann, "t-4", None).await, Ok(()));
    handles.die(gone).await;

    let store: Arc<dyn Store> = handles.open().await;
    until_abandoned(&*store, &ann, "t-1").await;
    assert_eq!(answer(&*store, &ann, "t-1").await.as_deref(), Some("abandoned t-1"));
    let mut left = works(store.abandoned("agent", 9).await);
    left.sort_by(|a, b| a.task_id.cmp(&b.task_id));
    let expected = [("t-1", Some(key("t-1", 1))), ("t-2", Some(key("t-2", 1))), ("t-4", None)];
    assert_eq!(left, expected.map(|(id, key)| reservation(&ann, id, key)));
    assert_eq!(works(store.abandoned("agent", 2).await).len(), 2, "at most so many");
    assert!(works(store.adopt("agent", 9).await).is_empty(), "they are no tasks");
    works(store.release(&ann, &"t-1".into()).await);
    assert_eq!(answer(&*store, &ann, "t-1").await.as_deref(), Some("abandoned t-1"), "not ours to release");
    assert_eq!(reserve(&*store, &ann, "t-9", Some(key("t-1", 1))).await, Err(Refused::KeyTaken));
    assert_eq!(commit_one(&*store, reserved(&ann, "t-1")).await, Err(Refused::Held));
    for id in ["t-1", "t-4"] {
        let take = Commit { take: true, ..reserved(&ann, id) };
        assert_eq!(commit_one(&*store, take.clone()).await, Ok(()), "{id}");
        assert_eq!(commit_one(&*store, take).await, Err(Refused::Version(Seq(1))), "{id}, once");
    }
    assert_eq!(answer(&*store, &ann, "t-1").await.as_deref(), Some("task t-1"));
    assert_eq!(works(store.abandoned("agent", 9).await), [reservation(&ann, "t-2", Some(key("t-2", 1)))]);
}

/// Of owners that concurrently reserve the same key one gets it, and the others see the reservation.
pub async fn one_of_many_owners_has_a_key<H: Handles>(handles: &H) {
    let stores: [Arc<dyn Store>; 2] = [handles.open().await, handles.open().await];
    let ann = scope("ann");
    for round in 0..8 {
        let name = format!("k-{round}");
        let attempts = join_all((0..8).map(|i| {
            let (store, name, ann) = (&stores[i % 2], &name, &ann);
            async move { reserve(&**store, ann, &format!("t-{name}-{i}"), Some(key(name, 1))).await }
        }))
        .await;
        let won: Vec<usize> = (0..8).filter(|i| attempts[*i].is_ok()).collect();
        assert_eq!(won.len(), 1, "{attempts:?}");
        assert!(attempts.iter().flat_map(|lost| lost.as_ref().err()).all(|lost| *lost == Refused::KeyTaken));
        let (mine, other) = (&stores[won[0] % 2], &stores[(won[0] + 1) % 2]);
        let id = format!("t-{name}-{}", won[0]);
        for store in [mine, other] {
            assert_eq!(answer(&**store, &ann, &name).await, Some(format!("reserved {id}")));
            assert!(works(store.abandoned("agent", 9).await).is_empty());
        }
        // No call of the other owner interferes.
        works(other.release(&ann, &id.as_str().into()).await);
        let reply = Arc::new(Message::agent("r", Part::text("other")));
        works(other.put_reply(&ann, key(&name, 1), reply, at(2)).await);
        assert_eq!(commit_one(&**other, reserved(&ann, &id)).await, Err(Refused::Held));
        assert_eq!(answer(&**other, &ann, &name).await, Some(format!("reserved {id}")));
        assert_eq!(commit_one(&**mine, reserved(&ann, &id)).await, Ok(()));
        assert_eq!(answer(&**other, &ann, &name).await, Some(format!("task {id}")));
    }
}

/// An owner that was presumed stopped is refused when another has created its task.
pub async fn a_reservation_that_was_taken_is_lost<H: Handles>(handles: &H) {
    let (mine, other): (Arc<dyn Store>, Arc<dyn Store>) = (handles.open().await, handles.open().await);
    let ann = scope("ann");
    assert_eq!(reserve(&*mine, &ann, "t-1", Some(key("k", 1))).await, Ok(()));
    let take = Commit { take: true, ..reserved(&ann, "t-1") };
    assert_eq!(commit_one(&*other, take).await, Ok(()));
    assert_eq!(commit_one(&*mine, reserved(&ann, "t-1")).await, Err(Refused::Version(Seq(1))));
    works(mine.release(&ann, &"t-1".into()).await);
    let reply = Arc::new(Message::agent("r", Part::text("late")));
    works(mine.put_reply(&ann, key("k", 1), reply, at(2)).await);
    assert_eq!(answer(&*mine, &ann, "k").await.as_deref(), Some("task t-1"));
    let log = events(&*mine, &ann, &"t-1".into(), 0, 9).await;
    assert!(matches!(&log[..], [(1, event)] if matches!(&**event, Event::Task(_))), "{log:?}");
}
