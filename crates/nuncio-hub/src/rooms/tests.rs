//! The rules of a room, row by row, on each store.

mod ownership;
mod people;

use std::{path::PathBuf, sync::Arc};

use nuncio_protocol::{
    A2aService as _, CallContext, CancelTaskRequest, ErrorKind, GetTaskRequest, ListTasksRequest, Message,
    Part, SendMessageConfiguration, SendMessageRequest, SendMessageResponse, Task, TaskId, Version,
};
use nuncio_server::{
    Runtime,
    store::{MemoryStore, PostgresStore, SqliteOptions, SqliteStore, Store},
    testing::{card, postgres, summary},
};
use serde_json::json;

use super::{ROOM_EXTENSION, Rooms, SeatExecutor, SeatRules, Side, room::Room};
use crate::{config, telemetry::Metrics};

/// A hub with one room.
struct World {
    room: Arc<Room>,
    seats: [Runtime; 2],
}

fn settings(strict_turns: bool, rounds: config::Rounds) -> config::Room {
    config::Room { name: "talk".parse().unwrap(), strict_turns, rounds, ..config::Room::default() }
}

impl World {
    fn new(store: &Arc<dyn Store>, settings: config::Room) -> Self {
        let rooms = Rooms::new(store, &Arc::new(Metrics::default()));
        let settings = Arc::new(settings);
        let room = rooms.prepare(&settings);
        let seats = Side::BOTH.map(|side| {
            let runtime = Runtime::builder(card(), SeatExecutor { room: Arc::clone(&room), side })
                .interceptor(SeatRules { room: Arc::clone(&room), side })
                .agent(&*settings.seat_name(side == Side::B))
                .store(Arc::clone(store))
                .build();
            rooms.activate(&settings, side, &runtime);
            runtime
        });
        Self { room, seats }
    }

    fn seat(&self, side: Side) -> &Runtime {
        match side {
            Side::A => &self.seats[0],
            Side::B => &self.seats[1],
        }
    }

    /// The task of a seat in the last round.
    async fn task(&self, side: Side) -> Option<TaskId> {
        self.room.rounds().await.unwrap().last().map(|round| round.tasks.of(side).clone())
    }

    async fn say(
        &self,
        side: Side,
        id: &str,
        next: Option<serde_json::Value>,
        task: Option<TaskId>,
    ) -> nuncio_protocol::Result<Task> {
        let mut message = Message { task_id: task, ..Message::user(id, Part::text(id)) };
        match next {
            Some(serde_json::Value::String(alias)) => message.metadata.insert("nextState", alias),
            Some(next) => message.metadata.insert(ROOM_EXTENSION, next),
            None => {}
        }
        let configuration =
            SendMessageConfiguration { return_immediately: true, ..SendMessageConfiguration::default() };
        let request = SendMessageRequest {
            message,
            configuration: Some(configuration),
            ..SendMessageRequest::default()
        };
        let sent = self.seat(side).send_message(&CallContext::new(Version::V1_0), request).await;
        self.room.until_quiet().await;
        match sent? {
            SendMessageResponse::Task(task) => Ok(task),
            SendMessageResponse::Message(reply) => panic!("a direct reply: {reply:?}"),
        }
    }

    /// Does a step such as `a m1`, `b m2 hold`, `a new m3`, `a cancel` or `reset`.
    async fn step(&self, step: &str) -> Result<(), ErrorKind> {
        let words: Vec<&str> = step.split(' ').collect();
        let side = if words[0] == "b" { Side::B } else { Side::A };
        let next = |word: &&str| match word.strip_prefix("nextState=") {
            Some(alias) => json!(alias),
            None => json!({ "next": word }),
        };
        let done = match &words[..] {
            ["reset"] => self.room.reset(false).await.map(drop),
            ["reset", "hard"] => self.room.reset(true).await.map(drop),
            [_, "cancel"] => {
                let id = self.task(side).await.unwrap();
                let request = CancelTaskRequest { id, ..CancelTaskRequest::default() };
                self.seat(side).cancel_task(&CallContext::new(Version::V1_0), request).await.map(drop)
            }
            [_, "new", id, next_word @ ..] => {
                self.say(side, id, next_word.first().map(next), None).await.map(drop)
            }
            [_, id, next_word @ ..] => {
                let task = self.task(side).await;
                self.say(side, id, next_word.first().map(next), task).await.map(drop)
            }
            _ => panic!("{step}"),
        };
        done.map_err(|error| error.kind())
    }

    /// The tasks of a seat, the first round first.
    async fn seen(&self, side: Side) -> Vec<String> {
        let request = ListTasksRequest { include_artifacts: Some(true), ..ListTasksRequest::default() };
        let page = self.seat(side).list_tasks(&CallContext::new(Version::V1_0), request).await.unwrap();
        let round = |task: &Task| {
            let about = task.metadata.get(ROOM_EXTENSION).unwrap().get::<serde_json::Value>().unwrap();
            about["round"].as_u64().unwrap()
        };
        let mut tasks = page.tasks;
        tasks.sort_by_key(round);
        tasks.iter().map(|task| summary(task).trim_end_matches(" | ").to_owned()).collect()
    }
}

/// A row of the table of semantics: steps, the refusal of the last one, and the tasks of either seat.
#[derive(Clone, Copy)]
struct Row {
    says: &'static str,
    steps: &'static [&'static str],
    refused: Option<ErrorKind>,
    a: &'static [&'static str],
    b: &'static [&'static str],
}

const fn row(
    says: &'static str,
    steps: &'static [&'static str],
    a: &'static [&'static str],
    b: &'static [&'static str],
) -> Row {
    Row { says, steps, refused: None, a, b }
}

const fn refused(kind: ErrorKind, row: Row) -> Row {
    Row { refused: Some(kind), ..row }
}

const ROWS: &[Row] = &[
    row(
        "the first message begins a round",
        &["a m1"],
        &["working | user: m1"],
        &["input-required \"m1\" | "],
    ),
    row("either seat may begin", &["b m1"], &["input-required \"m1\" | "], &["working | user: m1"]),
    row(
        "an answer hands over",
        &["a m1", "b m2"],
        &["input-required \"m2\" | user: m1"],
        &["working | agent: m1; user: m2"],
    ),
    row(
        "yield hands over as no word does",
        &["a m1 yield", "b m2 yield", "a m3"],
        &["working | user: m1; agent: m2; user: m3"],
        &["input-required \"m3\" | agent: m1; user: m2"],
    ),
    row("hold keeps talking", &["a m1 hold"], &["input-required | user: m1"], &["working \"m1\" | "]),
    row(
        "the alias of another bridge is read",
        &["a m1 nextState=working", "a m2"],
        &["working | user: m1; user: m2"],
        &["input-required \"m2\" | agent: m1"],
    ),
    row(
        "complete",
        &["a m1", "b m2 complete"],
        &["completed \"m2\" | user: m1"],
        &["completed | agent: m1; user: m2"],
    ),
    row("fail", &["a m1", "b m2 fail"], &["failed \"m2\" | user: m1"], &["failed | agent: m1; user: m2"]),
    row("reject", &["a m1 reject"], &["rejected | user: m1"], &["rejected \"m1\" | "]),
    row("authorize", &["a m1 authorize"], &["working | user: m1"], &["auth-required \"m1\" | "]),
    row(
        "who has to authorize has the floor",
        &["a m1 authorize", "b m2"],
        &["input-required \"m2\" | user: m1"],
        &["working | agent: m1; user: m2"],
    ),
    row(
        "a message out of turn changes nothing but the transcript",
        &["a m1", "a m2 hold"],
        &["working | user: m1; user: m2"],
        &["input-required \"m2\" | agent: m1"],
    ),
    refused(
        ErrorKind::UnsupportedOperation,
        row(
            "a message to an ended round is refused, and not stored",
            &["a m1", "b m2 complete", "a m3"],
            &["completed \"m2\" | user: m1"],
            &["completed | agent: m1; user: m2"],
        ),
    ),
    row(
        "a message without a task begins the next round, and ends the open one for both",
        &["a m1", "a new m2"],
        &["canceled | user: m1", "working | user: m2"],
        &["canceled | agent: m1", "input-required \"m2\" | "],
    ),
    row(
        "the other seat may begin the next round as well",
        &["a m1", "b new m2"],
        &["canceled | user: m1", "input-required \"m2\" | "],
        &["canceled | agent: m1", "working | user: m2"],
    ),
    row(
        "after the end the next round begins",
        &["a m1 complete", "a new m2"],
        &["completed | user: m1", "working | user: m2"],
        &["completed \"m1\" | ", "input-required \"m2\" | "],
    ),
    row("cancel", &["a m1", "a cancel"], &["canceled | user: m1"], &["canceled | agent: m1"]),
    row(
        "cancel by the other seat",
        &["a m1", "b cancel"],
        &["canceled | user: m1"],
        &["canceled | agent: m1"],
    ),
    refused(
        ErrorKind::TaskNotCancelable,
        row(
            "cancel of an ended task",
            &["a m1 complete", "b cancel"],
            &["completed | user: m1"],
            &["completed \"m1\" | "],
        ),
    ),
    row(
        "the same message twice is there once",
        &["a m1", "b m2", "a m3", "a m3"],
        &["working | user: m1; agent: m2; user: m3"],
        &["input-required \"m3\" | agent: m1; user: m2"],
    ),
    row(
        "a repeated first message opens no second round",
        &["a m1", "b m2", "a new m1"],
        &["input-required \"m2\" | user: m1"],
        &["working | agent: m1; user: m2"],
    ),
    row(
        "a repeated first message of an ended round opens none either",
        &["a m1 complete", "a new m1"],
        &["completed | user: m1"],
        &["completed \"m1\" | "],
    ),
    row(
        "a soft reset ends the round for both",
        &["a m1", "reset"],
        &["canceled | user: m1"],
        &["canceled | agent: m1"],
    ),
    row(
        "a hard reset begins the next round as well",
        &["a m1", "reset hard", "a m2"],
        &["canceled | user: m1", "working | user: m2"],
        &["canceled | agent: m1", "input-required \"m2\" | "],
    ),
];

/// Rows of rooms with other settings.
const STRICT: &[Row] = &[
    refused(
        ErrorKind::UnsupportedOperation,
        row(
            "strict turns refuse a message out of turn",
            &["a m1", "a m2"],
            &["working | user: m1"],
            &["input-required \"m1\" | "],
        ),
    ),
    row(
        "strict turns admit the end at any time",
        &["a m1", "a m2 fail"],
        &["failed | user: m1; user: m2"],
        &["failed \"m2\" | agent: m1"],
    ),
];

const PARALLEL: &[Row] = &[row(
    "parallel rounds stay open",
    &["a m1", "a new m2", "b m3"],
    &["working | user: m1", "input-required \"m3\" | user: m2"],
    &["input-required \"m1\" | ", "working | agent: m2; user: m3"],
)];

/// A file that is removed with the test.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

async fn check(store: impl AsyncFn(usize) -> Arc<dyn Store>) {
    let mut number = 0;
    for (rows, settings) in [
        (ROWS, settings(false, config::Rounds::One)),
        (STRICT, settings(true, config::Rounds::One)),
        (PARALLEL, settings(false, config::Rounds::Parallel)),
    ] {
        for row in rows {
            let world = World::new(&store(number).await, settings.clone());
            number += 1;
            let (last, before) = row.steps.split_last().unwrap();
            for step in before {
                world.step(step).await.unwrap_or_else(|error| panic!("{}: {step}: {error:?}", row.says));
            }
            assert_eq!(world.step(last).await.err(), row.refused, "{}", row.says);
            let trimmed = |rows: &[&str]| {
                rows.iter().map(|row| row.trim_end_matches(" | ").to_owned()).collect::<Vec<_>>()
            };
            assert_eq!(world.seen(Side::A).await, trimmed(row.a), "{}: seat a", row.says);
            assert_eq!(world.seen(Side::B).await, trimmed(row.b), "{}: seat b", row.says);
        }
    }
}

#[tokio::test]
async fn every_row_holds_in_memory() {
    check(async |_| Arc::new(MemoryStore::default()) as Arc<dyn Store>).await;
}

#[tokio::test]
async fn every_row_holds_on_sqlite() {
    let folder = File(std::env::temp_dir().join(format!("nuncio-rooms-{}", uuid::Uuid::now_v7())));
    std::fs::create_dir_all(&folder.0).unwrap();
    check(async |number| {
        let file = folder.0.join(format!("{number}.db"));
        Arc::new(SqliteStore::open(&file, SqliteOptions::default()).await.unwrap()) as Arc<dyn Store>
    })
    .await;
}

#[tokio::test]
async fn every_row_holds_on_postgres() {
    check(async |_| {
        let url = postgres::database().await;
        Arc::new(PostgresStore::connect(&url, Default::default()).await.unwrap()) as Arc<dyn Store>
    })
    .await;
}

#[tokio::test]
async fn concurrent_repeats_of_a_first_message_open_one_round() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let world = World::new(&store, settings(false, config::Rounds::One));
    let sends = (0..8).map(|_| world.say(Side::A, "m1", None, None));
    let tasks = futures_util::future::try_join_all(sends).await.unwrap();
    assert!(tasks.iter().all(|task| task.id == tasks[0].id));
    assert_eq!(world.seen(Side::A).await, ["working | user: m1"]);
    assert_eq!(world.seen(Side::B).await, ["input-required \"m1\""]);
}

#[tokio::test]
async fn both_seats_may_speak_at_once_and_have_the_same_words() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let world = World::new(&store, settings(false, config::Rounds::One));
    world.step("a m0").await.unwrap();
    let (a, b) = (world.task(Side::A).await, world.task(Side::B).await);
    let ids: Vec<String> = (1..=10).map(|number| format!("n{number}")).collect();
    let sends = ids.iter().enumerate().map(|(at, id)| {
        let (side, task) = if at % 2 == 0 { (Side::A, a.clone()) } else { (Side::B, b.clone()) };
        world.say(side, id, None, task)
    });
    futures_util::future::try_join_all(sends).await.unwrap();
    world.room.catch_up().await.unwrap();
    let round = world.room.rounds().await.unwrap().pop().unwrap();
    for side in Side::BOTH {
        let task = world.room.task(side, &round).await.unwrap().unwrap();
        let said = task.history.iter().chain(&task.status.message);
        let mut said: Vec<String> = said.map(|message| message.message_id.to_string()).collect();
        said.sort();
        let mut wanted: Vec<String> = ids.iter().cloned().chain(["m0".to_owned()]).collect();
        wanted.sort();
        assert_eq!(said, wanted, "{side:?}");
    }
}

/// Seats with holders of their own: everybody else finds nothing, and says nothing.
#[tokio::test]
async fn only_holders_have_a_seat() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let holders = |name: &str| Some(vec![name.to_owned()]);
    let settings = config::Room {
        holders_a: holders("ann"),
        holders_b: holders("bob"),
        ..settings(false, config::Rounds::One)
    };
    let world = World::new(&store, settings);
    let by = |name: &str| CallContext {
        caller: nuncio_protocol::Caller::authenticated(name),
        ..CallContext::new(Version::V1_0)
    };
    let message = |id: &str| SendMessageRequest {
        message: Message::user(id, Part::text(id)),
        configuration: Some(SendMessageConfiguration {
            return_immediately: true,
            ..SendMessageConfiguration::default()
        }),
        ..SendMessageRequest::default()
    };
    world.seat(Side::A).send_message(&by("ann"), message("m1")).await.unwrap();
    world.room.until_quiet().await;
    for side in Side::BOTH {
        let id = world.task(side).await.unwrap();
        for name in ["ann", "bob", "eve"] {
            let holds = (name == "ann") == (side == Side::A) && name != "eve";
            let get = GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() };
            let got = world.seat(side).get_task(&by(name), get).await;
            let listed = world.seat(side).list_tasks(&by(name), ListTasksRequest::default()).await.unwrap();
            assert_eq!(listed.tasks.len(), usize::from(holds), "{name} at {side:?}");
            if holds {
                got.unwrap();
                continue;
            }
            assert_eq!(got.unwrap_err().kind(), ErrorKind::TaskNotFound, "{name} at {side:?}");
            let cancel = CancelTaskRequest { id: id.clone(), ..CancelTaskRequest::default() };
            let canceled = world.seat(side).cancel_task(&by(name), cancel).await;
            assert_eq!(canceled.unwrap_err().kind(), ErrorKind::TaskNotFound, "{name} at {side:?}");
            let sent = world.seat(side).send_message(&by(name), message("m9")).await;
            assert_eq!(sent.unwrap_err().kind(), ErrorKind::PermissionDenied, "{name} at {side:?}");
        }
    }
}

/// A limit of bytes, an erasure, or administration: the other seat does not wait for ever.
#[tokio::test]
async fn a_round_ends_with_a_task_that_has_ended_otherwise() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let world = World::new(&store, settings(false, config::Rounds::One));
    world.step("a m1").await.unwrap();
    world.seat(Side::B).erase(Some("rooms"), &world.room.holder(Side::B)).await.unwrap();
    world.room.end_with_tasks().await.unwrap();
    assert_eq!(world.seen(Side::A).await, ["canceled | user: m1"]);
    assert!(world.room.rounds().await.unwrap().iter().all(super::Round::has_ended));
}
