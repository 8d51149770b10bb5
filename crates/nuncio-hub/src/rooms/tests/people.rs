//! People in seats, seats at which nobody is, artifacts, and two hubs over one store.

use std::time::Duration;

use nuncio_protocol::{Artifact, Error};

use super::*;
use crate::rooms::{JoinRefusal, Words};

/// Runs a case over each store.
async fn over_all_stores(case: impl AsyncFn(&Arc<dyn Store>)) {
    let folder = File(std::env::temp_dir().join(format!("nuncio-people-{}", uuid::Uuid::now_v7())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let sqlite = SqliteStore::open(&folder.0.join("hub.db"), SqliteOptions::default()).await.unwrap();
    let url = postgres::database().await;
    let shared = PostgresStore::connect(&url, Default::default()).await;
    let stores: [Arc<dyn Store>; 3] =
        [Arc::new(MemoryStore::default()), Arc::new(sqlite), Arc::new(shared.unwrap())];
    for store in stores {
        case(&store).await;
        store.close().await;
    }
}

/// A room whose second seat is for a person.
fn for_a_person() -> config::Room {
    config::Room { person_b: true, ..settings(false, config::Rounds::One) }
}

impl World {
    /// The task of a seat in the last round, whoever holds it.
    async fn view(&self, side: Side) -> String {
        self.room.catch_up().await.unwrap();
        let rounds = self.room.rounds().await.unwrap();
        let task = self.room.task(side, rounds.last().unwrap()).await.unwrap().unwrap();
        summary(&task).trim_end_matches(" | ").to_owned()
    }

    /// The reason for which the hub has ended the task of a seat.
    async fn ended(&self, side: Side) -> serde_json::Value {
        let rounds = self.room.rounds().await.unwrap();
        let task = self.room.task(side, rounds.last().unwrap()).await.unwrap().unwrap();
        task.metadata.get(ROOM_EXTENSION).unwrap().get::<serde_json::Value>().unwrap()["ended"].clone()
    }

    async fn words(&self, side: Side, id: &str) -> Words {
        let parts = vec![Part::text(id)];
        Words { id: id.into(), parts, next: None, task: self.task(side).await, hops: Vec::new() }
    }

    /// Says something at seat b by a lease.
    async fn by_lease(&self, lease: &str, id: &str) -> Result<(), Error> {
        let said = self.room.say_as_holder(Side::B, lease, self.words(Side::B, id).await).await;
        self.room.until_quiet().await;
        said.map(drop)
    }

    async fn join(&self, name: &str) -> String {
        self.room.join(Side::B, name, false).await.unwrap().id
    }
}

#[tokio::test]
async fn a_message_waits_for_a_person_and_goes_on_when_one_joins() {
    over_all_stores(async |store| {
        let world = World::new(store, for_a_person());
        world.step("a m1").await.unwrap();
        assert_eq!(world.view(Side::A).await, "submitted | user: m1");
        assert_eq!(world.view(Side::B).await, "input-required \"m1\"");
        let lease = world.join("ann").await;
        assert_eq!(world.view(Side::A).await, "working | user: m1");
        world.by_lease(&lease, "m2").await.unwrap();
        assert_eq!(world.view(Side::A).await, "input-required \"m2\" | user: m1");
        world.step("a m3").await.unwrap();
        assert_eq!(world.view(Side::A).await, "working | user: m1; agent: m2; user: m3");
    })
    .await;
}

#[tokio::test]
async fn a_round_fails_at_once_where_nobody_waits_for_anybody() {
    over_all_stores(async |store| {
        let settings = config::Room { absent: config::Absent::Fail, ..for_a_person() };
        let world = World::new(store, settings);
        world.step("a m1").await.unwrap();
        assert_eq!(world.view(Side::A).await, "failed | user: m1");
        assert_eq!(world.view(Side::B).await, "failed \"m1\"");
        assert_eq!(
            (world.ended(Side::A).await, world.ended(Side::B).await),
            (json!("absent"), json!("absent"))
        );
    })
    .await;
}

#[tokio::test]
async fn a_message_for_which_nobody_comes_expires() {
    over_all_stores(async |store| {
        let settings = config::Room { absent_timeout: Duration::ZERO, ..for_a_person() };
        let world = World::new(store, settings);
        world.step("a m1").await.unwrap();
        world.room.expire().await.unwrap();
        assert_eq!(world.view(Side::A).await, "failed | user: m1");
        assert_eq!(
            (world.ended(Side::A).await, world.ended(Side::B).await),
            (json!("expired"), json!("expired"))
        );
    })
    .await;
}

/// The seed system stores messages of parties that have no lease any more.
#[tokio::test]
async fn a_holder_whose_seat_was_taken_over_says_nothing_more() {
    over_all_stores(async |store| {
        let world = World::new(store, for_a_person());
        world.step("a m1").await.unwrap();
        let ann = world.room.join(Side::B, "ann", false).await.unwrap();
        let refused = world.room.join(Side::B, "bob", false).await.unwrap_err();
        assert!(matches!(&refused, JoinRefusal::Held(name, Some(_)) if name == "ann"), "{refused:?}");
        let bob = world.room.join(Side::B, "bob", true).await.unwrap();
        assert_eq!((ann.generation, bob.generation), (1, 2));
        let seen = (world.view(Side::A).await, world.view(Side::B).await);
        for lease in [&*ann.id, "no-lease-at-all"] {
            let refused = world.by_lease(lease, "m2").await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        }
        world.room.renew(Side::B, &ann.id).await.unwrap_err();
        world.room.leave(Side::B, &ann.id).await.unwrap_err();
        assert_eq!((world.view(Side::A).await, world.view(Side::B).await), seen, "nothing was stored");
        world.by_lease(&bob.id, "m2").await.unwrap();
        assert_eq!(world.view(Side::B).await, "working | agent: m1; user: m2");
        world.room.leave(Side::B, &bob.id).await.unwrap();
        world.by_lease(&bob.id, "m3").await.unwrap_err();
    })
    .await;
}

#[tokio::test]
async fn a_lease_without_a_sign_is_over_and_the_next_holder_gets_the_whole_task() {
    over_all_stores(async |store| {
        let world = World::new(store, config::Room { lease: Duration::ZERO, ..for_a_person() });
        world.step("a m1").await.unwrap();
        let ann = world.join("ann").await;
        let before = (world.view(Side::A).await, world.view(Side::B).await);
        world.by_lease(&ann, "m2").await.unwrap_err();
        world.room.configure(Arc::new(for_a_person()));
        let bob = world.room.join(Side::B, "bob", false).await.unwrap();
        assert_eq!(bob.generation, 2);
        assert_eq!((world.view(Side::A).await, world.view(Side::B).await), before, "states are unchanged");
        world.by_lease(&bob.id, "m2").await.unwrap();
        assert_eq!(world.view(Side::B).await, "working | agent: m1; user: m2");
    })
    .await;
}

#[tokio::test]
async fn callers_of_a_seat_wait_while_a_person_holds_it() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let world = World::new(&store, settings(false, config::Rounds::One));
    world.step("a m1").await.unwrap();
    let lease = world.join("ann").await;
    for step in ["b m2", "b cancel", "b new m3"] {
        assert_eq!(world.step(step).await, Err(ErrorKind::PermissionDenied), "{step}");
    }
    world.by_lease(&lease, "m2").await.unwrap();
    world.room.leave(Side::B, &lease).await.unwrap();
    world.step("b m4").await.unwrap();
    assert_eq!(world.seen(Side::B).await, ["working | agent: m1; user: m2; user: m4"]);
}

#[tokio::test]
async fn an_artifact_of_one_side_is_at_both_once_with_its_maker() {
    over_all_stores(async |store| {
        let world = World::new(store, settings(false, config::Rounds::One));
        world.step("a m1").await.unwrap();
        let task = world.task(Side::B).await.unwrap();
        for text in ["draft", "draft", "final"] {
            let mut artifact = Artifact::new("r1", Part::text(text)).with_name("report");
            artifact.metadata.insert(ROOM_EXTENSION, json!({ "maker": "b" }));
            world.room.make(Side::B, &task, &artifact).await.unwrap();
        }
        let round = world.room.rounds().await.unwrap().pop().unwrap();
        assert_eq!(round.entries, 3, "the repeat is no entry");
        for side in Side::BOTH {
            let task = world.room.task(side, &round).await.unwrap().unwrap();
            assert_eq!(task.artifacts.len(), 1, "{side:?}");
            assert_eq!(task.artifacts[0].text(), "final");
            let maker = task.artifacts[0].metadata.get(ROOM_EXTENSION).unwrap();
            assert_eq!(maker.get::<serde_json::Value>().unwrap(), json!({ "maker": "b" }));
        }
        // The states are as they were.
        assert!(world.view(Side::A).await.starts_with("working"), "{}", world.view(Side::A).await);
        world.step("b m2 complete").await.unwrap();
        let late = world.room.make(Side::B, &task, &Artifact::new("r2", Part::text("late"))).await;
        assert_eq!(late.unwrap_err().kind(), ErrorKind::UnsupportedOperation);
    })
    .await;
}

#[tokio::test]
async fn a_round_between_agents_fails_with_its_last_message() {
    over_all_stores(async |store| {
        let settings = config::Room {
            agent_a: Some("x".to_owned()),
            agent_b: Some("y".to_owned()),
            opening: Some("talk".to_owned()),
            max_turns: 3,
            ..settings(false, config::Rounds::One)
        };
        let world = World::new(store, settings);
        world.room.begin_first().await.unwrap();
        world.room.begin_first().await.unwrap();
        for (side, id) in [(Side::A, "m1"), (Side::B, "m2"), (Side::A, "m3")] {
            // A repeat after a crash is none.
            for _ in 0..2 {
                world.room.say_as_agent(side, world.words(side, id).await).await.unwrap();
                world.room.until_quiet().await;
            }
        }
        assert_eq!(world.view(Side::A).await, "failed | user: m1; agent: m2; user: m3");
        assert_eq!(world.view(Side::B).await, "failed \"m3\" | agent: m1; user: m2");
        assert_eq!(
            (world.ended(Side::A).await, world.ended(Side::B).await),
            (json!("max-turns"), json!("max-turns"))
        );
        let late = world.room.say_as_agent(Side::B, world.words(Side::B, "m4").await).await;
        assert_eq!(late.unwrap_err().kind(), ErrorKind::UnsupportedOperation);
    })
    .await;
}

/// A hub for each seat, over one database.
#[tokio::test]
async fn two_hubs_serve_one_seat_each() {
    let url = postgres::database().await;
    let stores = [(); 2].map(|()| PostgresStore::connect(&url, Default::default()));
    let [one, other] = futures_util::future::join_all(stores).await.try_into().ok().unwrap();
    let [one, other]: [Arc<dyn Store>; 2] = [Arc::new(one.unwrap()), Arc::new(other.unwrap())];
    let here = World::new(&one, settings(false, config::Rounds::One));
    let there = World::new(&other, settings(false, config::Rounds::One));
    here.step("a m0").await.unwrap();
    for turn in 1..=6 {
        let (world, side) = if turn % 2 == 1 { (&there, "b") } else { (&here, "a") };
        world.step(&format!("{side} m{turn}")).await.unwrap();
    }
    // Both at once.
    let both = [here.step("a n1 hold"), there.step("b n1")];
    futures_util::future::try_join_all(both).await.unwrap();
    let ended = there.step("b n2 complete").await;
    let round = there.room.rounds().await.unwrap().pop().unwrap();
    let tasks = [there.room.task(Side::A, &round).await, there.room.task(Side::B, &round).await];
    assert_eq!(ended, Ok(()), "{round:?} {tasks:?}");
    let mut sides = Vec::new();
    for world in [&here, &there] {
        let round = world.room.rounds().await.unwrap().pop().unwrap();
        for side in Side::BOTH {
            world.room.catch_up().await.unwrap();
            let task = world.room.task(side, &round).await.unwrap().unwrap();
            let said = task.history.iter().chain(&task.status.message);
            let mut said: Vec<String> =
                said.map(|message| format!("{} {:?}", message.message_id, message.role)).collect();
            // Each sees itself as the user.
            let (user, agent) = if side == Side::A { ("User", "Agent") } else { ("Agent", "User") };
            said.iter_mut().for_each(|said| *said = said.replace(user, "1").replace(agent, "2"));
            said.sort();
            sides.push((task.status.state, said));
        }
    }
    assert_eq!(sides[0].1.len(), 10, "{:?}", sides[0]);
    assert!(sides.iter().all(|side| *side == sides[0]), "{sides:?}");
    // A lease of one hub is in force at the other.
    let lease = here.room.join(Side::B, "ann", false).await.unwrap();
    there.room.join(Side::B, "bob", false).await.unwrap_err();
    assert_eq!(there.step("b new m9").await, Err(ErrorKind::PermissionDenied));
    there.by_lease_of_new_round(&lease.id).await;
    drop((one, other));
}

impl World {
    /// Begins a round at seat b by a lease that another hub has given.
    async fn by_lease_of_new_round(&self, lease: &str) {
        let words = Words { task: None, ..self.words(Side::B, "m9").await };
        self.room.say_as_holder(Side::B, lease, words).await.unwrap();
        self.room.until_quiet().await;
        assert_eq!(self.view(Side::B).await, "working | user: m9");
    }
}
