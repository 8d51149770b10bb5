//! Mailboxes whose hub and workers are killed again and again: every task ends once, no line is there twice or missing,
//! and nothing that has begun runs again, unless its mailbox says so. And two hubs that are one mailbox.

use std::{collections::HashMap, fs, path::Path, time::Duration, time::Instant};

use nuncio_protocol::RESUME_EXTENSION;
use nuncio_server::testing::postgres;
use nuncio_tests::{
    chance::Chance,
    eventually,
    hub::{free_address, start},
    post_office::{PostOffice, Sender, name_of, state_of, text_of},
    process::Process,
    raw::Raw,
    within,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{check_store, kills::kills, path};

/// Workers of each mailbox.
const WORKERS: usize = 3;

/// Tasks of each mailbox for each kill.
const TASKS_PER_KILL: u64 = 10;

/// The output of a run that came to its end.
const WHOLE: &str = "1 2 3 4 5 6 ";

/// The time after the last kill in which everything has to end: leases of killed workers expire.
const REST: Duration = Duration::from_secs(240);

const HEADERS: [(&str, &str); 2] = [("a2a-version", "1.0"), ("content-type", "application/json")];

/// Begun work is not repeated in the first mailbox, and is in the second.
const MAILBOXES: [(&str, &str); 2] = [
    ("once", "mailbox = { lease_seconds = 3, max_attempts = 1000 }"),
    ("again", "mailbox = { lease_seconds = 3, max_attempts = 1000, redeliver = true }"),
];

fn tables() -> String {
    MAILBOXES.map(|(name, settings)| format!("[agents.{name}]\n{settings}\n")).concat()
}

/// A program that notes each run, and says its lines one after the other.
fn program(folder: &Path) -> String {
    let runs = folder.join("runs");
    let script = format!(
        "read -r line\nid=${{line#*'\"taskId\":\"'}}\nid=${{id%%'\"'*}}\necho \"$1 $id\" >> {}\nfor n in 1 2 3 4 5 6; do\n  \
         echo \"{{\\\"text\\\":\\\"$n \\\"}}\"\n  [ $n = 3 ] && sleep 0.05\ndone\necho '{{\"completed\":\"\"}}'\n",
        runs.display()
    );
    fs::write(&runs, "").unwrap();
    let file = folder.join("work.sh");
    fs::write(&file, script).unwrap();
    format!("cmd+json:sh {}", path(&file))
}

/// The connectors of a mailbox, which are killed and start anew.
struct Connectors {
    args: Vec<Vec<String>>,
    running: Vec<Process>,
}

impl Connectors {
    async fn start(office: &PostOffice, program: &str) -> Self {
        let mut args: Vec<Vec<String>> = Vec::new();
        for (mailbox, _) in MAILBOXES {
            let file = office.folder.path().join(format!("{mailbox}.key"));
            fs::write(&file, office.key(mailbox).await).unwrap();
            for number in 1..=WORKERS {
                let (to, worker) = (format!("{program} {mailbox}"), format!("w{number}"));
                let all =
                    ["connect", mailbox, "--hub", &office.hub.base, "--key-file", path(&file), "--to", &to];
                let all = all.into_iter().chain(["--worker", &worker, "--concurrency", "4"]);
                args.push(all.map(str::to_owned).collect());
            }
        }
        let running = args.iter().map(|args| run(args)).collect();
        Self { args, running }
    }

    async fn kill(&mut self, number: usize) {
        let process = &mut self.running[number];
        process.signal("KILL").await;
        process.end().await;
        let log = process.stderr();
        assert!(!log.contains("panicked"), "{log}");
        self.running[number] = run(&self.args[number]);
    }
}

fn run(args: &[String]) -> Process {
    start(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Sends by a client that never gives up; gives the id of the task.
async fn insist(base: &str, mailbox: &str, number: u64) -> String {
    let raw = Raw::new(format!("{base}/agents/{mailbox}"));
    let (text, key) = (format!("{mailbox}-{number}"), format!("key-{mailbox}-{number}"));
    let body = json!({
        "message": { "messageId": text, "role": "ROLE_USER", "parts": [{ "text": text }] },
        "configuration": { "returnImmediately": true },
    });
    let headers = [&HEADERS[..], &[("idempotency-key", &*key)]].concat();
    loop {
        let answer = raw.try_ask("POST", "/message:send", &headers, body.to_string()).await;
        match answer {
            Some(answer) if answer.status == 200 => {
                return answer.json()["task"]["id"].as_str().unwrap().to_owned();
            }
            Some(answer) => assert!([429, 503].contains(&answer.status), "{}", answer.body),
            None => {}
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// The number of ends in the log of a task, and whether the last event is one.
async fn ends(base: &str, mailbox: &str, task: &str) -> (usize, bool) {
    let raw = Raw::new(format!("{base}/agents/{mailbox}"));
    let headers = [&HEADERS[..], &[("last-event-id", "0"), ("a2a-extensions", RESUME_EXTENSION)]].concat();
    let answer = raw.ask("POST", &format!("/tasks/{task}:subscribe"), &headers, "").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let is_end = |event: &Value| {
        let state = event["statusUpdate"]["status"]["state"].as_str().unwrap_or_default();
        ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"]
            .contains(&state)
    };
    let events = answer.events();
    (events.iter().filter(|event| is_end(event)).count(), events.last().is_some_and(is_end))
}

async fn survives(data: &str) {
    let (seed, kills) = (Chance::seed(), kills());
    eprintln!("{data}: NUNCIO_SEED={seed} NUNCIO_KILLS={kills}");
    let (begun, mut chance) = (Instant::now(), Chance::new(seed));
    let mut office = PostOffice::open(&free_address().to_string(), data, &tables()).await;
    let program = program(office.folder.path());
    let mut connectors = Connectors::start(&office, &program).await;
    let base = office.hub.base.clone();
    let sending: Vec<_> = MAILBOXES
        .map(|(mailbox, _)| {
            let base = base.clone();
            tokio::spawn(async move {
                let mut tasks = Vec::new();
                for number in 0..kills * TASKS_PER_KILL {
                    tasks.push(insist(&base, mailbox, number).await);
                }
                tasks
            })
        })
        .into();
    for _ in 0..kills {
        sleep(chance.millis(20..=400)).await;
        if chance.once_in(2) {
            office.kill().await;
            connectors.kill(usize::try_from(chance.of(0..=5)).unwrap()).await;
        } else {
            connectors.kill(usize::try_from(chance.of(0..=5)).unwrap()).await;
            office.kill().await;
        }
    }
    let killed = begun.elapsed();
    let deadline = Instant::now() + REST;
    let (mut completed, mut lost) = (0, 0);
    let mut all = Vec::new();
    for ((mailbox, _), sending) in MAILBOXES.iter().zip(sending) {
        for task in sending.await.unwrap() {
            all.push((*mailbox, task));
        }
    }
    let mut states = Vec::new();
    for (mailbox, id) in &all {
        let caller = Sender::to(&base, mailbox);
        let task = loop {
            let task = caller.get(id).await;
            if ["completed", "failed"].contains(&&*state_of(&task)) {
                break task;
            }
            assert!(Instant::now() < deadline, "{mailbox} {id} does not end: {task}");
            sleep(Duration::from_millis(50)).await;
        };
        states.push(task);
    }
    let noted = fs::read_to_string(office.folder.path().join("runs")).unwrap();
    let mut runs: HashMap<&str, usize> = HashMap::new();
    noted
        .lines()
        .filter_map(|line| line.split_once(' '))
        .for_each(|(_, id)| *runs.entry(id).or_default() += 1);
    for ((mailbox, id), task) in all.iter().zip(&states) {
        let (text, runs) = (text_of(task), runs.get(&**id).copied().unwrap_or_default());
        assert_eq!(ends(&base, mailbox, id).await, (1, true), "{mailbox} {id}: {task}");
        if state_of(task) == "completed" {
            completed += 1;
            assert_eq!(text, WHOLE, "{mailbox} {id}: {task}");
            assert!(runs >= 1, "{mailbox} {id}");
        } else {
            lost += 1;
            let why = task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default();
            assert!(*mailbox == "once" && why.contains("the worker was lost"), "{mailbox} {id}: {task}");
            assert!(WHOLE.starts_with(&text), "{mailbox} {id}: {text}");
        }
        assert!(*mailbox == "again" || runs <= 1, "{id} has begun {runs} times: {task}");
    }
    let again = runs.values().filter(|runs| **runs > 1).count();
    assert!(completed > lost, "{completed} completed, {lost} lost");
    for mut connector in connectors.running {
        connector.signal("TERM").await;
        connector.end().await;
    }
    office.hub.process.signal("TERM").await;
    assert_eq!(office.hub.process.end().await.code(), Some(0), "{}", office.hub.process.stderr());
    check_store(office.data()).await;
    eprintln!(
        "{} tasks, {kills} kills of the hub and of workers in {killed:.1?}: {completed} completed, {lost} failed with \
         their worker, {again} ran more than once where that is allowed; {:.1?} in all",
        all.len(),
        begun.elapsed(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_task_of_a_mailbox_ends_once_when_hub_and_workers_are_killed_over_sqlite() {
    survives("post.db").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_task_of_a_mailbox_ends_once_when_hub_and_workers_are_killed_over_postgresql() {
    survives(&postgres::database().await).await;
}

/// Two hubs on one database.
async fn two(settings: &str) -> ([PostOffice; 2], String) {
    let data = postgres::database().await;
    let tables = format!("[agents.coder]\nmailbox = {{ {settings} }}\n");
    let one = PostOffice::open("127.0.0.1:0", &data, &tables).await;
    let other = PostOffice::open("127.0.0.1:0", &data, &tables).await;
    let key = one.key("coder").await;
    let known = other.worker("coder", &key);
    eventually("the key at the other hub", async || {
        (known.try_claim("w0", "k0").await.status == 204).then_some(())
    })
    .await;
    ([one, other], key)
}

/// Sent to one, claimed at the other, lines at either; one is killed, and the other goes on with the same lease.
#[tokio::test(flavor = "multi_thread")]
async fn two_hubs_are_one_mailbox_and_one_may_die() {
    let ([mut one, other], key) = two("").await;
    let [here, there] = [&one, &other].map(|hub| hub.worker("coder", &key));
    // The claim waits at the one hub when the message comes to the other.
    let claiming = tokio::spawn({
        let there = there.clone();
        async move { there.claim("w1", "k1").await }
    });
    let task = one.caller("coder").send("work").await;
    let lease = within("the lease", claiming).await.unwrap();
    assert_eq!(lease["taskId"], task.as_str());
    assert_eq!(here.try_claim("w2", "k2").await.status, 204, "it is handed out once");
    for (number, worker) in (1..).zip([&here, &there, &there, &here]) {
        worker.write(&lease, number, &json!({"text": format!("{number} ")})).await;
        let known = if number % 2 == 0 { &here } else { &there };
        assert_eq!(known.heartbeat(name_of(&lease)).await.json()["have"], number);
    }
    assert_eq!(there.update(name_of(&lease), "6", "{\"text\":\"x\"}").await.json()["reason"], "gap");
    let second = other.caller("coder").send("more").await;
    let more = here.claim("w2", "k3").await;
    assert_eq!(more["taskId"], second.as_str());
    here.write(&more, 1, &json!({"text": "half "})).await;
    one.hub.process.signal("KILL").await;
    one.hub.process.end().await;
    // What the dead hub has answered is stored, and what it has handed out is known.
    assert_eq!(there.claim("w2", "k3").await["lease"], more["lease"]);
    let again = there.update(name_of(&more), "1", "{\"text\":\"half \"}\n{\"text\":\"whole\"}").await;
    assert_eq!((again.status, &again.json()["have"]), (200, &json!(2)), "{}", again.body);
    there.write(&more, 3, &json!({"completed": ""})).await;
    there.write(&lease, 5, &json!({"completed": ""})).await;
    for (task, expected) in [(&task, "1 2 3 4 "), (&second, "half whole")] {
        let task = other.caller("coder").get(task).await;
        assert_eq!((&*state_of(&task), &*text_of(&task)), ("completed", expected));
    }
}

/// Canceled at the one hub while the worker waits for news at the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_at_one_hub_reaches_the_worker_at_the_other() {
    let ([one, other], key) = two("lease_seconds = 600").await;
    let there = other.worker("coder", &key);
    let task = one.caller("coder").send("work").await;
    let lease = there.claim("w1", "k1").await;
    there.write(&lease, 1, &json!({"text": "begun"})).await;
    let beating = tokio::spawn({
        let (there, path) = (there.clone(), format!("/leases/{}:heartbeat", name_of(&lease)));
        async move { there.call("POST", &path, &[("prefer", "wait=50")], "").await }
    });
    let canceling = tokio::spawn({
        let (caller, task) = (one.caller("coder"), task.clone());
        async move { caller.cancel(&task).await }
    });
    let told = within("the news of the cancel", beating).await.unwrap();
    assert_eq!(told.json()["cancel"], true, "{}", told.body);
    assert_eq!(there.release(name_of(&lease)).await.status, 200);
    assert_eq!(canceling.await.unwrap().status, 200);
    other.caller("coder").until(&task, "canceled").await;
    assert_eq!(
        there.update(name_of(&lease), "2", "{\"text\":\"late\"}").await.json()["reason"],
        "lease-lost"
    );
}

/// Sends so many messages to a hub; the number of those that it has accepted.
async fn fill(hub: &PostOffice, count: usize) -> usize {
    let (caller, mut accepted) = (hub.caller("coder"), 0);
    for number in 0..count {
        let sent = caller.try_send(&format!("{} {number}", hub.hub.base)).await;
        match sent.status {
            // Sent without waiting, a message may be refused after its task is told: that is its end then.
            200 => {
                let id = sent.json()["task"]["id"].as_str().unwrap().to_owned();
                accepted += usize::from(is_accepted(&caller, &id).await);
            }
            429 | 503 => assert!(!sent.header("retry-after").is_empty(), "{}", sent.body),
            other => panic!("{other}: {}", sent.body),
        }
    }
    assert!(accepted < count, "some are refused");
    accepted
}

/// Waits until the message of a task has a row, or is refused.
async fn is_accepted(caller: &Sender, id: &str) -> bool {
    eventually("a row or a refusal", async || {
        let task = caller.get(id).await;
        let waits = task["metadata"]["nuncio.waitsFor"].is_object();
        (waits || state_of(&task) != "submitted").then_some(waits)
    })
    .await
}

/// Both hubs fill one mailbox at the same time: together they accept no more than it holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_is_as_large_at_two_hubs_as_at_one() {
    const MAX: usize = 200;
    let ([one, other], key) = two(&format!("max_waiting = {MAX}, serial = \"none\"")).await;
    let (filled, more) = tokio::join!(fill(&one, MAX), fill(&other, MAX));
    let accepted = filled + more;
    // Two sends at the same moment may both take the last place.
    assert!((MAX..=MAX + 2).contains(&accepted), "{accepted}");
    // What one hub finishes makes room at the other.
    let worker = one.worker("coder", &key);
    for number in 0..4 {
        let lease = worker.claim("w1", &format!("k{number}")).await;
        worker.write(&lease, 1, &json!({"completed": ""})).await;
    }
    let task = other.caller("coder").send("there is room").await;
    assert!(is_accepted(&other.caller("coder"), &task).await);
}
