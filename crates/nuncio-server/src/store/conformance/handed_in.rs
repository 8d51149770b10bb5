//! Checks of turns that other owners hand in.

use std::sync::Arc;

use futures_util::future::join_all;
use nuncio_protocol::{Seq, TaskId, TaskState};

use super::{Handles, Writer, adopted, at, commit_one, key, owner::turn, scope, works};
use crate::store::{
    ErasureTarget, HandIn, IdempotencyKey, Outcome, Refused, Scope, Store, StoredTurn, WaitingQuery,
};

fn handed(id: &str, key: IdempotencyKey) -> HandIn {
    HandIn { turn: turn(id), key, at: at(1), max_waiting: 3 }
}

async fn hand_in(store: &dyn Store, scope: &Scope, id: &str, handed: HandIn) -> Result<(), Refused> {
    works(store.hand_in(scope, &id.into(), handed).await)
}

fn query(tasks: Option<&[&str]>) -> WaitingQuery {
    let tasks = tasks.map(|ids| ids.iter().map(|id| TaskId::from(*id)).collect());
    WaitingQuery { agent: "agent".into(), tasks, except: Vec::new(), limit: 9 }
}

async fn waiting(store: &dyn Store, query: &WaitingQuery) -> Vec<(String, StoredTurn)> {
    let found = works(store.waiting_turns(query).await);
    found.into_iter().map(|waiting| (waiting.task_id.to_string(), waiting.turn)).collect()
}

/// Accepted only for a task that another owner holds; the first reason against it is told, and changes nothing.
pub async fn a_turn_is_handed_in_to_the_owner_of_its_task<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    let ann = scope("ann");
    for id in ["t-busy", "t-rest", "t-waits", "t-ended"] {
        let mut writer = Writer::create(&store, &ann, id, "c-1", 1).await;
        match id {
            "t-rest" | "t-waits" => writer.status(TaskState::InputRequired, 2).await,
            "t-ended" => writer.status(TaskState::Completed, 2).await,
            _ => writer.status(TaskState::Working, 2).await,
        }
        if id == "t-waits" {
            let queued =
                store.update_turn(&ann, &id.into(), crate::store::TurnChange::Queue(turn("0"))).await;
            assert_eq!(works(queued), Ok(()));
        }
    }
    drop(store);
    handles.die(gone).await;

    let store: Arc<dyn Store> = handles.open().await;
    Writer::create(&store, &ann, "t-mine", "c-1", 1).await;
    let bob = scope("bob");
    let cases = [
        (&bob, "t-busy", handed("1", key("k-1", 1)), Err(Refused::NotFound)),
        (&ann, "t-none", handed("1", key("k-1", 1)), Err(Refused::NotFound)),
        (&ann, "t-rest", handed("1", key("k-1", 1)), Err(Refused::NotHeld)),
        (&ann, "t-mine", handed("1", key("k-1", 1)), Err(Refused::NotHeld)),
        (&ann, "t-ended", handed("1", key("k-1", 1)), Err(Refused::Version(Seq(2)))),
        (&ann, "t-busy", handed("1", key("k-1", 1)), Ok(())),
        // The same again, as after a lost answer. Its turn has another id, and is not stored.
        (&ann, "t-busy", handed("2", key("k-1", 1)), Ok(())),
        (&ann, "t-busy", handed("3", key("k-1", 2)), Err(Refused::KeyTaken)),
        (&ann, "t-waits", handed("4", key("k-1", 1)), Err(Refused::KeyTaken)),
        (&ann, "t-waits", handed("5", key("k-2", 1)), Ok(())),
        (&ann, "t-waits", HandIn { max_waiting: 2, ..handed("6", key("k-3", 1)) }, Err(Refused::Full)),
        (&ann, "t-busy", handed("7", key("k-4", 1)), Ok(())),
    ];
    for (scope, id, handed, wanted) in cases {
        let told = format!("{scope:?} {id} {handed:?}");
        assert_eq!(hand_in(&*store, scope, id, handed).await, wanted, "{told}");
    }
    for (name, wanted) in [("k-1", Some("t-busy")), ("k-2", Some("t-waits")), ("k-3", None)] {
        let found = works(store.idempotent_outcome(&ann, name).await).map(|answer| answer.outcome);
        let found = found.map(|outcome| match outcome {
            Outcome::Task(id) => id.to_string(),
            Outcome::Reply(_) | Outcome::Reserved { .. } => String::new(),
        });
        assert_eq!(found.as_deref(), wanted, "{name}");
    }
    assert!(
        works(store.task(&ann, &"t-busy".into()).await).is_some_and(|stored| stored.held),
        "it is not ours"
    );
    assert_eq!(waiting(&*store, &query(None)).await, []);
    let mut orphans = adopted(&*store, "agent", 9).await;
    orphans.sort_by(|a, b| a.stored.task.id.cmp(&b.stored.task.id));
    let turns: Vec<_> =
        orphans.iter().map(|orphan| (orphan.stored.task.id.as_str(), &*orphan.turns)).collect();
    assert_eq!(turns, [("t-busy", &[turn("1"), turn("7")][..]), ("t-waits", &[turn("0"), turn("5")][..])]);
}

/// The next owner begins them; their keys find the task as long as it is there.
pub async fn what_was_handed_in_is_adopted_and_forgotten_with_its_task<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    let ann = scope("ann");
    let writer = Writer::create(&store, &ann, "t-1", "c-1", 1).await;
    let (task, seq) = (writer.task.clone(), writer.seq);
    drop((store, writer));
    handles.die(gone).await;

    let store: Arc<dyn Store> = handles.open().await;
    for (id, name) in [("1", "k-1"), ("2", "k-2")] {
        assert_eq!(hand_in(&*store, &ann, "t-1", handed(id, key(name, 1))).await, Ok(()));
    }
    assert_eq!(adopted(&*store, "agent", 9).await.len(), 1);
    let own = [("t-1".to_owned(), turn("1")), ("t-1".to_owned(), turn("2"))];
    assert_eq!(waiting(&*store, &query(None)).await, own, "adopted with the task");
    let mut writer = Writer::open(&store, &ann, task, seq);
    let says = writer.entry(writer.message_event("more", &[]));
    let begun = StoredTurn { begun: true, ..turn("1") };
    assert_eq!(writer.offer(says.attach(|with| with.turn = Some(begun))).await, Ok(()));
    assert_eq!(waiting(&*store, &query(None)).await, own[1..]);
    writer.status(TaskState::Completed, 2).await;
    assert_eq!(waiting(&*store, &query(None)).await, []);
    // Known, whatever has become of its turn.
    assert_eq!(hand_in(&*store, &ann, "t-1", handed("3", key("k-2", 1))).await, Ok(()));
    assert_eq!(waiting(&*store, &query(None)).await, []);
    let whose = ErasureTarget { agent: None, tenant: None, owner: Some("ann".into()) };
    while works(store.erase(&whose, 9).await) > 0 {}
    assert!(works(store.idempotent_outcome(&ann, "k-2").await).is_none());
}

/// Only the owner is told, of the tasks and turns that it asks for.
pub async fn the_owner_sees_the_turns_that_wait<H: Handles>(handles: &H) {
    let mine: Arc<dyn Store> = handles.open().await;
    let other: Arc<dyn Store> = handles.open().await;
    let ann = scope("ann");
    let mut writers = Vec::new();
    for id in ["t-1", "t-2"] {
        writers.push(Writer::create(&mine, &ann, id, "c-1", 1).await);
        for turn in ["1", "2"] {
            let name = format!("{id}-{turn}");
            assert_eq!(hand_in(&*other, &ann, id, handed(&name, key(&name, 1))).await, Ok(()));
        }
    }
    let all = ["t-1-1", "t-1-2", "t-2-1", "t-2-2"];
    let ids = |found: Vec<(String, StoredTurn)>| -> Vec<String> {
        found.into_iter().map(|(_, turn)| turn.id.to_string()).collect()
    };
    let except = vec!["t-1-1".into(), "t-2-2".into()];
    let cases = [
        (query(None), &all[..]),
        (query(Some(&["t-2", "t-none"])), &all[2..]),
        (query(Some(&[])), &[][..]),
        (WaitingQuery { except, ..query(None) }, &all[1..3]),
        (WaitingQuery { limit: 3, ..query(None) }, &all[..3]),
        (WaitingQuery { agent: "other".into(), ..query(None) }, &[][..]),
    ];
    for (query, wanted) in cases {
        assert_eq!(ids(waiting(&*mine, &query).await), wanted, "{query:?}");
    }
    assert_eq!(ids(waiting(&*other, &query(None)).await), [""; 0], "they are not its tasks");
    // The owner keeps the task as long as a turn waits.
    writers[0].status(TaskState::InputRequired, 2).await;
    let entry = writers[0].entry(writers[0].chunk_event("a", "x"));
    assert_eq!(commit_one(&*other, entry).await, Err(Refused::Held));
    let says = writers[0].entry(writers[0].message_event("more", &[]));
    let begun = StoredTurn { begun: true, ..turn("t-1-1") };
    assert_eq!(writers[0].offer(says.attach(|with| with.turn = Some(begun))).await, Ok(()));
    assert_eq!(ids(waiting(&*mine, &query(Some(&["t-1"]))).await), ["t-1-2"]);
    writers[1].status(TaskState::Failed, 2).await;
    assert_eq!(ids(waiting(&*mine, &query(None)).await), ["t-1-2"], "an end ends them");
    let late = hand_in(&*other, &ann, "t-2", handed("late", key("late", 1))).await;
    assert_eq!(late, Err(Refused::Version(writers[1].seq)));
}

/// An owner that comes to rest, and another that hands in at the same time: the turn waits and the task is held,
/// or the task is at rest and nothing waits.
pub async fn a_turn_waits_or_the_task_is_at_rest<H: Handles>(handles: &H) {
    let mine: Arc<dyn Store> = handles.open().await;
    let other: Arc<dyn Store> = handles.open().await;
    let ann = scope("ann");
    for round in 0..20 {
        let id = format!("t-{round}");
        let mut writer = Writer::create(&mine, &ann, &id, "c-1", 1).await;
        let turn = handed(&id, key(&id, 1));
        let (_, handed) =
            tokio::join!(writer.status(TaskState::InputRequired, 2), hand_in(&*other, &ann, &id, turn));
        let waits = waiting(&*mine, &query(Some(&[&id]))).await.len();
        let held = works(other.task(&ann, &id.as_str().into()).await).is_some_and(|stored| stored.held);
        match handed {
            Ok(()) => assert_eq!((waits, held), (1, true), "{id}"),
            Err(refused) => assert_eq!((refused, waits, held), (Refused::NotHeld, 0, false), "{id}"),
        }
    }
}

/// However often and wherever a message is handed in, it waits once.
pub async fn one_of_many_hand_ins_under_a_key_is_stored<H: Handles>(handles: &H) {
    let mine: Arc<dyn Store> = handles.open().await;
    let others: [Arc<dyn Store>; 2] = [handles.open().await, handles.open().await];
    let ann = scope("ann");
    Writer::create(&mine, &ann, "t-1", "c-1", 1).await;
    for round in 0..5 {
        let name = format!("k-{round}");
        let all = join_all((0..8).map(|i| {
            let (store, ann) = (Arc::clone(&others[i % 2]), Arc::clone(&ann));
            let handed = HandIn { max_waiting: 99, ..handed(&format!("{round}-{i}"), key(&name, 1)) };
            async move { hand_in(&*store, &ann, "t-1", handed).await }
        }));
        assert_eq!(all.await, vec![Ok(()); 8]);
        assert_eq!(waiting(&*mine, &query(None)).await.len(), round + 1);
    }
}
