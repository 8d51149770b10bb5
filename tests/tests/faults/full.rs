//! A disk without room. The limit on the size of files stands for it: it can be raised while the hub runs.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use nuncio_protocol::{CallContext, ErrorKind, GetTaskRequest};
use nuncio_tests::{
    chance::Chance,
    data::Folder,
    eventually,
    hub::Hub,
    process::{Output, run},
};
use tokio::process::Command;

use crate::{
    address, check_store,
    ledger::Ledger,
    load::{Load, Reached, a_task, cx, say},
    path, stop,
    verify::{listed, verify},
};

const CALLERS: u64 = 8;

/// The most that a file may hold, in bytes.
const LIMIT: &str = "--fsize=3000000:";

async fn prlimit(args: &[&str]) -> Output {
    let mut command = Command::new("prlimit");
    command.args(args);
    run(command, "").await
}

/// A hub whose files cannot grow beyond the limit. The signal that would end it for that is turned off, so
/// that it is told by an error, as from a disk.
async fn limited(file: &Path) -> Hub {
    let program = ["prlimit", LIMIT, "sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""];
    Hub::start_by(&program, "127.0.0.1:0", &["--data", path(file)]).await
}

/// A call that is not waited for as long as a disk may be full.
fn brief() -> CallContext {
    CallContext { deadline: Some(Instant::now() + Duration::from_secs(3)), ..cx() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_waited_for_and_loses_nothing() {
    let there = prlimit(&["--version"]).await;
    assert_eq!(there.code, Some(0), "prlimit of util-linux is needed: {there:?}");
    let folder = Folder::new();
    let file = folder.path().join("nuncio.db");
    let seed = Chance::seed();
    eprintln!("full: NUNCIO_SEED={seed}");
    let hub = limited(&file).await;
    let (reached, ledger): (_, Arc<Ledger>) = (Arc::new(Reached::new(address(&hub))), Arc::default());
    let mut load = Load::start(CALLERS, &[Arc::clone(&reached)], &ledger, seed);

    // Fill it.
    let echo = reached.agent("echo");
    let words = "a lot of words ".repeat(500);
    let mut kept = Vec::new();
    eventually("a full disk", async || match echo.send_message(&brief(), say(&words, false)).await {
        Ok(answer) => {
            let task = a_task(answer);
            ledger.answered("echo", &task);
            kept.push(task);
            None
        }
        // Whoever was let in before waits.
        Err(error) => {
            let waits = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::DeadlineExceeded);
            waits.then_some(())
        }
    })
    .await;
    let refusal = eventually("a refusal that says when to come back", async || {
        let answer = echo.send_message(&brief(), say("hello", false)).await;
        answer.err().filter(|error| error.retry_after().is_some())
    });
    assert_eq!(refusal.await.kind(), ErrorKind::Unavailable);
    let ready = format!("{}/readyz", hub.base);
    eventually("the hub is not ready", async || {
        (reqwest::get(&ready).await.unwrap().status() == 503).then_some(())
    })
    .await;

    // What is there can be read.
    assert!(kept.len() > 3, "there was room for some: {}", kept.len());
    for task in &kept {
        let req = GetTaskRequest { id: task.id.clone(), ..GetTaskRequest::default() };
        assert_eq!(echo.get_task(&cx(), req).await.unwrap(), *task);
    }
    let shown = listed(&**echo).await;
    assert!(kept.iter().all(|task| shown.iter().any(|shown| shown.id == task.id)));
    load.check();

    // Room again: nothing needs to be done.
    let pid = hub.process.id().to_string();
    let raised = prlimit(&["--pid", &pid, "--fsize=unlimited:"]).await;
    assert_eq!(raised.code, Some(0), "{raised:?}");
    eventually("the hub is ready again", async || {
        (reqwest::get(&ready).await.unwrap().status() == 200).then_some(())
    })
    .await;
    let wanted = ledger.len() + 20;
    eventually("more tasks", async || (ledger.len() >= wanted).then_some(())).await;
    load.end().await;
    let ends = verify(&reached, &ledger).await;
    stop(hub).await;
    check_store(path(&file)).await;
    eprintln!("full: {} tasks told of, shed {} times; {ends:?}", ledger.len(), ledger.shed());
}
