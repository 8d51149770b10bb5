//! The clock jumps, forwards and backwards, while the hub works and while it is away. Order, lists and streams
//! do not depend on it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use nuncio_protocol::{A2aService, CallContext, ListTasksRequest, SendMessageResponse, Seq};
use nuncio_server::testing::postgres;
use nuncio_tests::{
    chance::Chance,
    data::Folder,
    hub::{Hub, free_address},
    process::run,
};
use tokio::process::Command;

use crate::{
    check_store, kill,
    ledger::Ledger,
    load::{Load, Reached, a_task, cx, say},
    path, stop,
    verify::verify,
};

const HOUR: i64 = 3_600_000;

/// The library that lies about the time, made with the compiler that SQLite needs anyway.
async fn library(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/clock.c");
    let library = folder.join("clock.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
    let made = run(cc, "").await;
    assert_eq!(made.code, Some(0), "{made:?}");
    library
}

/// A hub whose clock is set by a file.
struct Clocked {
    library: PathBuf,
    clock: PathBuf,
    listen: String,
    data: String,
}

impl Clocked {
    async fn start(&self) -> Hub {
        let preload = format!("LD_PRELOAD={}", path(&self.library));
        let clock = format!("NUNCIO_TEST_CLOCK={}", path(&self.clock));
        let program = ["env", &preload, &clock];
        Hub::start_by(&program, &self.listen, &["--data", &self.data, "--log-level", "warn"]).await
    }

    fn set(&self, millis: i64) {
        // In one step: a clock that is half written tells another time.
        let half = self.clock.with_extension("half");
        fs::write(&half, millis.to_string()).unwrap();
        fs::rename(half, &self.clock).unwrap();
    }
}

/// The ids of all tasks, newest first, by pages of two.
async fn pages(service: &dyn A2aService) -> Vec<String> {
    let mut req = ListTasksRequest { page_size: Some(2), ..ListTasksRequest::default() };
    let mut ids = Vec::new();
    loop {
        let page = service.list_tasks(&cx(), req.clone()).await.unwrap();
        ids.extend(page.tasks.iter().map(|task| task.id.as_str().to_owned()));
        if page.next_page_token.is_empty() {
            return ids;
        }
        req.page_token = Some(page.next_page_token);
    }
}

async fn jumps(data: &str, folder: &Path) {
    let clocked = Clocked {
        library: library(folder).await,
        clock: folder.join("clock"),
        listen: free_address().to_string(),
        data: data.to_owned(),
    };
    clocked.set(0);
    let mut hub = clocked.start().await;
    let reached = Arc::new(Reached::new(clocked.listen.parse().unwrap()));
    let echo = Arc::clone(reached.agent("echo"));

    // One task per hour, made in this order: lists go by the clock, each task is there once.
    let hours = [0, 24, -24, 1, -1, 12, -48];
    let (mut made, mut sent) = (Vec::new(), Vec::new());
    for hour in hours {
        clocked.set(hour * HOUR);
        let (req, key) = (say("hello", false), format!("hour {hour}"));
        let cx = CallContext { idempotency_key: Some(key), ..cx() };
        let task = a_task(echo.send_message(&cx, req.clone()).await.unwrap());
        made.push((hour, task.id.as_str().to_owned()));
        sent.push((cx, req, task));
    }
    let at = |n: usize| sent[n].2.status.timestamp.unwrap().as_millis();
    assert!(at(1) - at(0) > 23 * HOUR, "the hub sees the clock that is set");
    made.sort_by_key(|(hour, _)| -hour);
    let expected: Vec<String> = made.into_iter().map(|(_, id)| id).collect();
    assert_eq!(pages(&*echo).await, expected);
    kill(&mut hub).await;
    clocked.set(-72 * HOUR);
    hub = clocked.start().await;
    assert_eq!(pages(&*echo).await, expected, "also after a restart before all of it");
    for (cx, req, task) in &sent {
        let cx = CallContext { deadline: crate::load::cx().deadline, ..cx.clone() };
        let again = echo.send_message(&cx, req.clone()).await.unwrap();
        assert_eq!(again, SendMessageResponse::Task(task.clone()), "a key is good at any time");
    }

    // Under load, with the hub killed in between.
    let (seed, ledger): (_, Arc<Ledger>) = (Chance::seed(), Arc::default());
    eprintln!("clock: NUNCIO_SEED={seed}");
    let mut chance = Chance::new(seed);
    let load = Load::start(8, &[Arc::clone(&reached)], &ledger, seed);
    for n in 0..24 {
        tokio::time::sleep(chance.millis(20..=200)).await;
        clocked.set(i64::try_from(chance.of(0..=100)).unwrap() * HOUR - 50 * HOUR);
        if n % 8 == 7 {
            kill(&mut hub).await;
            hub = clocked.start().await;
        }
    }
    load.end().await;
    let ends = verify(&reached, &ledger).await;
    let log = crate::load::log_after(&*echo, &sent[0].2, Seq::ZERO).await;
    assert_eq!(log.len(), 4, "{log:?}");
    stop(hub).await;
    check_store(data).await;
    eprintln!("clock: {} tasks told of; {ends:?}", ledger.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_changes_no_order_over_sqlite() {
    let folder = Folder::new();
    jumps(path(&folder.path().join("nuncio.db")), folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_changes_no_order_over_postgresql() {
    let folder = Folder::new();
    jumps(&postgres::database().await, folder.path()).await;
}
