//! A file that somebody has written over in the middle: found, told, and never repaired in silence.

use std::{
    fs,
    io::{Seek as _, SeekFrom, Write as _},
    path::Path,
};

use nuncio_protocol::{A2aService, ErrorKind, GetTaskRequest, Task};
use nuncio_tests::{
    data::Folder,
    hub::{Hub, cli, start},
};

use crate::{
    address, check_store,
    load::{Reached, a_task, cx, say},
    path, stop,
};

const PAGE: u64 = 4096;

/// Overwrites some pages from this one on.
fn overwrite(file: &Path, page: u64, pages: usize) {
    let mut file = fs::OpenOptions::new().write(true).open(file).unwrap();
    file.seek(SeekFrom::Start(page * PAGE)).unwrap();
    file.write_all(&vec![0xA5; pages * usize::try_from(PAGE).unwrap()]).unwrap();
}

async fn get(service: &dyn A2aService, task: &Task) -> nuncio_protocol::Result<Task> {
    service.get_task(&cx(), GetTaskRequest { id: task.id.clone(), ..GetTaskRequest::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_in_the_middle_is_found_and_told_and_left_as_it_is() {
    let folder = Folder::new();
    let file = folder.path().join("nuncio.db");
    let hub = Hub::start(&["--data", path(&file)]).await;
    let reached = Reached::new(address(&hub));
    let mut tasks = Vec::new();
    for n in 0..100 {
        let words = format!("{n} {}", "words ".repeat(1_500));
        tasks.push(a_task(reached.agent("echo").send_message(&cx(), say(&words, false)).await.unwrap()));
    }
    stop(hub).await;
    check_store(path(&file)).await;

    let pages = fs::metadata(&file).unwrap().len() / PAGE;
    overwrite(&file, pages / 2, 24);
    let damaged = fs::read(&file).unwrap();
    let found = cli(&["store", "check", "--data", path(&file)]).await;
    assert_eq!(found.code, Some(9), "{found:?}");
    assert!(fs::read(&file).unwrap() == damaged, "looking changes nothing");

    // It is told at the start, or where it is met: to the caller as a failure of ours, to the operator in words.
    let mut hub = start(&["serve", "--demo", "--listen", "127.0.0.1:0", "-o", "json", "--data", path(&file)]);
    match hub.line().await {
        None => {
            assert_eq!(hub.end().await.code(), Some(9), "{}", hub.stderr());
            assert!(hub.stderr().contains("damaged"), "{}", hub.stderr());
        }
        Some(line) => {
            let announced: serde_json::Value = serde_json::from_str(&line).unwrap();
            let reached = Reached::new(announced["listen"].as_str().unwrap().parse().unwrap());
            let (mut whole, mut lost) = (0, 0);
            for task in &tasks {
                match get(&**reached.agent("echo"), task).await {
                    Ok(read) => {
                        assert_eq!(read, *task, "what is shown is what was said");
                        whole += 1;
                    }
                    Err(error) => {
                        assert_ne!(
                            error.kind(),
                            ErrorKind::TaskNotFound,
                            "it is not forgotten, it is damaged"
                        );
                        lost += 1;
                    }
                }
            }
            eprintln!("{whole} tasks are whole, {lost} are not; {}", hub.stderr());
            assert!(whole > 0 && lost > 0, "{whole} {lost}");
            assert!(
                hub.stderr().contains("malformed") || hub.stderr().contains("damaged"),
                "{}",
                hub.stderr()
            );
            hub.signal("TERM").await;
            hub.end().await;
        }
    }
    let found = cli(&["store", "check", "--data", path(&file)]).await;
    assert_eq!(found.code, Some(9), "it is still damaged: {found:?}");
}
