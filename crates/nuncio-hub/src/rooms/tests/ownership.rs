//! Ownership: three principals do anything anywhere, and nobody learns of a task of a seat that another one holds.

use nuncio_protocol::{Caller, SubscribeToTaskRequest};

use super::*;

/// Numbers without a source of chance, so that a failure can be repeated.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

#[tokio::test]
async fn whoever_has_no_seat_sees_nothing_but_unknown_whatever_is_called() {
    let holders = |name: &str| Some(vec![name.to_owned()]);
    for seed in 1..=8 {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let settings = config::Room {
            holders_a: holders("ann"),
            holders_b: holders("bob"),
            ..settings(false, config::Rounds::Parallel)
        };
        let world = World::new(&store, settings);
        let mut numbers = Numbers(seed);
        let mut known: Vec<TaskId> = vec!["never-made".into()];
        for step in 0..120 {
            let name = ["ann", "bob", "eve"][numbers.below(3)];
            let side = Side::BOTH[numbers.below(2)];
            let holds = (name == "ann" && side == Side::A) || (name == "bob" && side == Side::B);
            let cx = CallContext { caller: Caller::authenticated(name), ..CallContext::new(Version::V1_0) };
            let id = known[numbers.below(known.len())].clone();
            let own: Vec<TaskId> =
                world.room.rounds().await.unwrap().iter().map(|round| round.tasks.of(side).clone()).collect();
            let says = format!("seed {seed} step {step}: {name} at {side:?} about {id}");
            let seat = world.seat(side);
            let (what, outcome) = match numbers.below(5) {
                0 | 1 => {
                    let task = (numbers.below(3) > 0).then(|| id.clone());
                    let message =
                        Message { task_id: task, ..Message::user(format!("m{step}"), Part::text("x")) };
                    let configuration = SendMessageConfiguration {
                        return_immediately: true,
                        ..SendMessageConfiguration::default()
                    };
                    let request = SendMessageRequest {
                        message,
                        configuration: Some(configuration),
                        ..SendMessageRequest::default()
                    };
                    let sent = seat.send_message(&cx, request).await;
                    world.room.until_quiet().await;
                    ("send", sent.map(drop))
                }
                2 => {
                    let request = GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() };
                    ("get", seat.get_task(&cx, request).await.map(drop))
                }
                3 => {
                    let request = CancelTaskRequest { id: id.clone(), ..CancelTaskRequest::default() };
                    ("cancel", seat.cancel_task(&cx, request).await.map(drop))
                }
                _ => {
                    let request = SubscribeToTaskRequest { id: id.clone(), tenant: None };
                    ("subscribe", seat.subscribe_to_task(&cx, request).await.map(drop))
                }
            };
            if !holds {
                let refused = outcome.unwrap_err();
                let expected =
                    if what == "send" { ErrorKind::PermissionDenied } else { ErrorKind::TaskNotFound };
                assert_eq!(refused.kind(), expected, "{says}: {what}: {refused:?}");
                assert!(!refused.message().contains(id.as_str()), "{says}: {refused}");
                let listed = seat.list_tasks(&cx, ListTasksRequest::default()).await.unwrap();
                assert!(listed.tasks.is_empty(), "{says}");
            } else if !own.contains(&id) && what != "send" && outcome.is_ok() {
                // A round that is over is in the list no more, and its task is still of the seat.
                let listed = seat.list_tasks(&cx, ListTasksRequest::default()).await.unwrap();
                assert!(listed.tasks.iter().any(|task| task.id == id), "{says}: {what}");
            }
            for round in world.room.rounds().await.unwrap() {
                known.extend(Side::BOTH.map(|side| round.tasks.of(side).clone()));
            }
            known.sort();
            known.dedup();
        }
    }
}

/// The seed system invents tasks that it does not know.
#[tokio::test]
async fn a_message_to_an_unknown_task_makes_none() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let world = World::new(&store, settings(false, config::Rounds::One));
    world.step("a m1").await.unwrap();
    let foreign = world.task(Side::B).await;
    for task in [Some("never-made".into()), foreign] {
        let refused = world.say(Side::A, "m2", None, task).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TaskNotFound);
    }
    assert_eq!(world.seen(Side::A).await, ["working | user: m1"]);
    assert_eq!(world.seen(Side::B).await, ["input-required \"m1\""]);
}

/// The seed system stores messages to ended rounds, and revives them.
#[tokio::test]
async fn an_ended_round_stays_as_it_is() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    for end in ["a m2 complete", "b m2 reject", "a cancel", "reset"] {
        let world = World::new(
            &store,
            config::Room {
                name: format!("r{}", end.len()).parse().unwrap(),
                ..settings(false, config::Rounds::One)
            },
        );
        world.step("a m1").await.unwrap();
        world.step(end).await.unwrap();
        let before = (world.seen(Side::A).await, world.seen(Side::B).await);
        for step in ["a m3", "b m3", "a m3 hold", "b m3 complete"] {
            assert_eq!(world.step(step).await, Err(ErrorKind::UnsupportedOperation), "{end}: {step}");
        }
        assert_eq!((world.seen(Side::A).await, world.seen(Side::B).await), before, "{end}");
    }
}
