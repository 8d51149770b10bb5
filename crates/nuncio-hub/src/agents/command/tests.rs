//! Real programs behind a real runtime: mostly `sh`, which every system has.

mod callers;
mod ends;
mod json;
mod text;

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    path::PathBuf,
    time::Duration,
};

use nuncio_protocol::{CallContext, EventStream, Message, Part, SendMessageRequest};
use nuncio_server::{
    CallerShare,
    store::MemoryStore,
    testing::{FailingStore, Harness, Say, lines, next_line},
};
use rustix::process::{Pid, test_kill_process};
use url::Url;

use super::*;

/// A shell script as a program.
fn script(format: Format, script: &str) -> Command {
    Command::new(format, "sh", ["-c".to_owned(), script.to_owned()])
}

/// Keeps callers apart, as in a hub.
fn isolation() -> Isolation {
    Isolation { contexts: ContextKey::new(&[7; 32]), share: CallerShare::default() }
}

/// An agent that runs it.
fn agent(settings: &Command) -> Harness {
    agent_with(settings, &isolation())
}

fn agent_with(settings: &Command, isolation: &Isolation) -> Harness {
    let urls = AgentUrls::new(&Url::parse("http://127.0.0.1:2602").unwrap(), None);
    let store: Arc<FailingStore> = Arc::new(MemoryStore::default().into());
    let runtime = super::agent(&urls, "coder", settings, isolation).store(Arc::clone(&store) as _).build();
    Harness { runtime, store, cx: CallContext::default() }
}

/// The outcome of a message to a script.
async fn run(format: Format, text: &str, message: impl Into<Say>) -> Vec<String> {
    lines(agent(&script(format, text)).stream(message).await.unwrap()).await
}

/// The events without numbers, with pieces of text joined: the operating system decides where they are cut.
fn whole(seen: &[String]) -> Vec<String> {
    const PIECE: &str = "artifact output ";
    let mut whole: Vec<String> = Vec::new();
    for line in seen {
        let line = line.split_once(' ').map_or("", |(_, line)| line);
        match (line.strip_prefix(PIECE), whole.last_mut().filter(|last| last.starts_with(PIECE))) {
            (Some(piece), Some(last)) => {
                let text = piece.strip_prefix("+\"").unwrap_or_else(|| panic!("not added: {seen:?}"));
                assert_eq!(last.pop(), Some('"'), "there is more after the last: {seen:?}");
                last.push_str(text);
            }
            (Some(_) | None, _) => whole.push(line.to_owned()),
        }
    }
    whole
}

/// The events of text output.
fn worked(rest: &[&str]) -> Vec<String> {
    ["task submitted", "status working"].iter().chain(rest).map(|&line| line.to_owned()).collect()
}

/// The next line that is no mere beginning.
async fn next_news(stream: &mut EventStream) -> String {
    loop {
        let line = next_line(stream).await;
        if !line.ends_with("task submitted") && !line.ends_with("status working") {
            return line;
        }
    }
}

fn say(parts: Vec<Part>) -> Say {
    SendMessageRequest { message: Message::user("m-1", parts), ..SendMessageRequest::default() }.into()
}

/// A folder for one test, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("nuncio-command-{:032x}", rand::random::<u128>()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The gate at which programs wait (`read x < "$GATE"`) until the test opens it.
struct Gate {
    path: PathBuf,
    file: File,
    _folder: Folder,
}

impl Gate {
    fn new() -> Self {
        let folder = Folder::new();
        let path = folder.0.join("gate");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        // For both directions: neither side waits for the other to open it.
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        Self { path, file, _folder: folder }
    }

    /// A script that knows the gate.
    fn script(&self, format: Format, text: &str) -> Command {
        let mut settings = script(format, text);
        settings.environment.0.insert("GATE".to_owned(), self.path.to_str().unwrap().to_owned());
        settings
    }

    fn open(&mut self, times: usize) {
        self.file.write_all("\n".repeat(times).as_bytes()).unwrap();
    }
}

/// The process whose number a program has said: `3 artifact output "1234\n"`.
fn pid(line: &str) -> Pid {
    let digits: String = line.split('"').nth(1).unwrap().trim().to_owned();
    Pid::from_raw(digits.parse().unwrap_or_else(|_| panic!("no number in {line}"))).unwrap()
}

/// Waits until the process has ended. It is no child of ours, so there is nothing that would wake us.
async fn gone(pid: Pid) {
    let patience = tokio::time::Instant::now() + Duration::from_secs(30);
    while test_kill_process(pid).is_ok() && !is_zombie(pid) {
        assert!(tokio::time::Instant::now() < patience, "process {pid} lives on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Ended, and nobody cares: so it is where the first process of a container is no real init.
fn is_zombie(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}
