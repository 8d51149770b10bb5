//! The time of a page of 100 tasks out of a million. Not part of the test command: it writes a gigabyte and compares
//! with a clock.
//!
//! ```sh
//! cargo test -p nuncio-tests --test process dashboard_many -- --ignored --nocapture
//! ```

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use nuncio_protocol::{Artifact, Event, Part, Seq, Task, TaskState, TaskStatus, Timestamp};
use nuncio_server::store::{Attached, Commit, Scope, SqliteOptions, SqliteStore, TaskLog as _};
use nuncio_tests::hub::Hub;
use reqwest::{Client, redirect::Policy};

use crate::{directory, path};

const BATCH: u64 = 2_000;
/// Limit of the median on the server, over a connection on this machine.
const MAX_MEDIAN: Duration = Duration::from_millis(50);
const REQUESTS: usize = 50;

fn commit(number: u64, first: i64) -> Commit {
    let state = if number.is_multiple_of(10) { TaskState::Failed } else { TaskState::Completed };
    let at = Timestamp::from_millis(first + i64::try_from(number).unwrap() * 100).unwrap();
    let artifact =
        Artifact { artifact_id: "a".into(), parts: vec![Part::text("x".repeat(256))], ..Artifact::default() };
    let task = Task {
        id: format!("task-{number:08}").into(),
        context_id: format!("context-{}", number / 5).into(),
        status: TaskStatus { state, timestamp: Some(at), ..TaskStatus::default() },
        artifacts: vec![Arc::new(artifact)],
        ..Task::default()
    };
    let agent = if number.is_multiple_of(3) { "slow" } else { "echo" };
    Commit {
        scope: Arc::new(Scope {
            agent: agent.into(),
            tenant: None,
            owner: Some(format!("caller-{}", number % 100).into()),
        }),
        task_id: task.id.clone(),
        expected: Seq::ZERO,
        event: Arc::new(Event::Task(task.clone())),
        at,
        snapshot: Some(task),
        take: false,
        push: false,
        attached: Attached::default(),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes a gigabyte and compares with a clock"]
#[expect(clippy::print_stdout, reason = "the figures are its result")]
async fn a_page_of_100_tasks_out_of_a_million_takes_less_than_50_ms() {
    let tasks: u64 = std::env::var("NUNCIO_TASKS").ok().map_or(1_000_000, |text| text.parse().unwrap());
    let state = directory("dashboard-many");
    let (data, token) = (state.join("nuncio.db"), state.join("hub.token"));
    let store = SqliteStore::open(&data, SqliteOptions::default()).await.unwrap();
    let first = 1_760_000_000_000;
    for begin in (0..tasks).step_by(usize::try_from(BATCH).unwrap()) {
        let batch = (begin..(begin + BATCH).min(tasks)).map(|number| commit(number, first)).collect();
        store.commit(batch).await.unwrap().into_iter().for_each(|stored| stored.unwrap());
    }
    drop(store);
    let arguments = ["--data", path(&data), "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let hub = Hub::start(&[&arguments[..], &["--keep-days", "0"]].concat()).await;
    let base = format!("http://{}", hub.announced["admin"]["listen"].as_str().unwrap());
    let client = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    let login = client.post(format!("{base}/ui/login")).header("sec-fetch-site", "same-origin");
    let form = format!("admin_token={}", fs::read_to_string(&token).unwrap().trim_end());
    let signed_in = login.body(form).send().await.unwrap();
    let cookie = signed_in.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let middle = Timestamp::from_millis(first + i64::try_from(tasks).unwrap() * 50).unwrap();
    for page in [
        "/ui/tasks".to_owned(),
        "/ui/tasks?state=failed".to_owned(),
        "/ui/tasks?agent=slow".to_owned(),
        "/ui/tasks?principal=caller-7".to_owned(),
        "/ui/tasks?context=context-77".to_owned(),
        "/ui/tasks?id=task-000007".to_owned(),
        format!("/ui/tasks?before={middle}"),
        format!("/ui/tasks?state=failed&before={middle}"),
    ] {
        let mut times = Vec::new();
        let mut rows = 0;
        for _ in 0..REQUESTS {
            let begin = Instant::now();
            let answer = client.get(format!("{base}{page}")).header("cookie", &cookie).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{page}");
            let text = answer.text().await.unwrap();
            times.push(begin.elapsed());
            rows = text.matches("<tr id=").count();
        }
        times.sort();
        let (median, slowest) = (times[REQUESTS / 2], times[REQUESTS - 1]);
        println!("{tasks} tasks, {page}: {rows} rows, median {median:?}, slowest {slowest:?}");
        assert!(median < MAX_MEDIAN, "{page}: {median:?}");
    }
}
