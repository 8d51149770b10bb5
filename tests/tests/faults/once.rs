//! Programs that note each of their runs: under one `Idempotency-Key` there is one run, and it has left a task or a
//! reply, whatever is killed, and at however many hubs it was asked for.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nuncio_protocol::{
    A2aService, Message, Part, SendMessageConfiguration, SendMessageRequest, SendMessageResponse, TaskState,
};
use nuncio_server::testing::postgres;
use nuncio_tests::{
    chance::Chance,
    data::Folder,
    hub::{Hub, free_address},
};
use tokio::task::JoinSet;

use crate::{
    address, check_store, kill,
    kills::kills,
    ledger::Ledger,
    load::{Reached, insist, keyed, say, was_cut_off},
    path, stop,
    verify::{by_message, until_settled},
};

const CALLERS: u64 = 8;

/// A program whose output is text, and one whose answer is a message without a task.
const PROGRAMS: [&str; 2] = ["tally", "clerk"];

/// The number of starts after which a hub counts as broken.
const MAX_STARTS: usize = 5;

/// Each notes the name of the message before it does anything else. One whose hub is killed before it has written the
/// message sees none, and has nothing to do.
const TALLY: &str =
    "name=$(cat)\n[ -n \"$name\" ] || exit 1\necho \"$name\" >> \"$1\"\nsleep 0.05\necho done\n";
const CLERK: &str = r#"name=$(sed 's/.*"messageId":"\([^"]*\)".*/\1/')
[ -n "$name" ] || exit 1
echo "$name" >> "$1"
sleep 0.05
echo '{"message": "done"}'
"#;

/// The programs, and what they have noted.
struct Programs {
    folder: Folder,
}

impl Programs {
    fn new() -> Self {
        let folder = Folder::new();
        for (program, script) in PROGRAMS.iter().zip([TALLY, CLERK]) {
            fs::write(folder.path().join(format!("{program}.sh")), script).unwrap();
            fs::write(folder.path().join(program), "").unwrap();
        }
        Self { folder }
    }

    fn notes(&self, program: &str) -> PathBuf {
        self.folder.path().join(program)
    }

    /// The arguments of a hub that has them as agents.
    fn args(&self, data: &str) -> Vec<String> {
        let mut args = ["--data", data, "--log-level", "warn"].map(str::to_owned).to_vec();
        for (program, format) in PROGRAMS.iter().zip(["cmd", "cmd+json"]) {
            let script = self.folder.path().join(format!("{program}.sh"));
            let notes = self.notes(program);
            args.extend([
                "--agent".to_owned(),
                format!("{program}={format}:sh {} {}", path(&script), path(&notes)),
            ]);
        }
        args
    }

    /// The number of times that each message was seen.
    fn runs(&self, program: &str) -> BTreeMap<String, usize> {
        let mut runs = BTreeMap::new();
        for name in fs::read_to_string(self.notes(program)).unwrap().lines() {
            *runs.entry(name.to_owned()).or_default() += 1;
        }
        runs
    }
}

/// Starts a hub. A program that is just being started may keep the lock of a hub that was killed for a moment.
async fn start(listen: SocketAddr, args: &[String]) -> Hub {
    for _ in 1..MAX_STARTS {
        let (listen, args) = (listen.to_string(), args.to_vec());
        let started = tokio::spawn(async move {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            Hub::of_agents(&listen, &args).await
        });
        if let Ok(hub) = started.await {
            return hub;
        }
    }
    panic!("the hub did not start");
}

/// A message that says its own name.
fn request(immediately: bool) -> SendMessageRequest {
    let name = say("", false).message.message_id;
    let configuration =
        SendMessageConfiguration { return_immediately: immediately, ..SendMessageConfiguration::default() };
    SendMessageRequest {
        message: Message::user(name.clone(), Part::text(name.as_str())),
        configuration: Some(configuration),
        ..SendMessageRequest::default()
    }
}

/// The answer to each message, by program.
type Told = Arc<Mutex<Vec<(&'static str, String, SendMessageResponse)>>>;

async fn insist_on_answers(hub: Arc<Reached>, told: Told, over: Arc<AtomicBool>, mut chance: Chance) {
    let nobody = Ledger::default();
    while !over.load(Ordering::Relaxed) {
        let program = PROGRAMS[usize::from(chance.once_in(3))];
        let (req, service) = (request(chance.once_in(6)), hub.agent(program));
        let attempt = || async { service.send_message(&keyed(&req), req.clone()).await };
        let answer = insist(&nobody, program, attempt).await.unwrap();
        told.lock().unwrap().push((program, req.message.message_id.as_str().to_owned(), answer));
    }
}

/// No message was seen twice, and of each that was seen there is a task or a reply: the one that was told.
async fn check(
    hub: &Reached,
    programs: &Programs,
    told: &[(&'static str, String, SendMessageResponse)],
) -> usize {
    let mut cut_off = 0;
    for program in PROGRAMS {
        let service = hub.agent(program);
        until_settled(service, program).await;
        let (runs, tasks) = (programs.runs(program), by_message(&**service).await);
        let twice: Vec<_> = runs.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{program} ran twice for {twice:?}");
        let told: HashMap<&str, &SendMessageResponse> = told
            .iter()
            .filter(|(of, ..)| *of == program)
            .map(|(_, name, answer)| (&**name, answer))
            .collect();
        for name in runs.keys() {
            let replied = matches!(told.get(name.as_str()), Some(SendMessageResponse::Message(_)));
            assert!(replied || tasks.contains_key(name), "{program} ran for {name}, and nothing tells of it");
        }
        for (name, tasks) in &tasks {
            let [task] = &tasks[..] else { panic!("{program} {name} has several tasks: {tasks:#?}") };
            match told.get(name.as_str()) {
                Some(SendMessageResponse::Task(told)) => assert_eq!(told.id, task.id),
                answer => panic!("{program} {name} has a task, and was answered {answer:?}"),
            }
            match task.status.state {
                TaskState::Completed => assert_eq!(runs.get(name), Some(&1), "{task:#?}"),
                _ => assert!(was_cut_off(task), "{task:#?}"),
            }
            cut_off += usize::from(was_cut_off(task));
        }
    }
    cut_off
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_runs_once_under_a_key_when_the_hub_is_killed() {
    let seed = Chance::seed();
    eprintln!("NUNCIO_SEED={seed} NUNCIO_KILLS={}", kills());
    let mut chance = Chance::new(seed);
    let (programs, folder) = (Programs::new(), Folder::new());
    let data = folder.path().join("nuncio.db");
    let (listen, args) = (free_address(), programs.args(path(&data)));
    let mut hub = start(listen, &args).await;
    let reached = Arc::new(Reached::of(listen, &PROGRAMS));
    let (told, over): (Told, Arc<AtomicBool>) = Default::default();
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let chance = Chance::new(seed.wrapping_add(number + 1));
        callers.spawn(insist_on_answers(Arc::clone(&reached), Arc::clone(&told), Arc::clone(&over), chance));
    }
    for _ in 0..kills() {
        tokio::time::sleep(Duration::from_millis(100) + chance.millis(20..=300)).await;
        kill(&mut hub).await;
        hub = start(listen, &args).await;
    }
    over.store(true, Ordering::Relaxed);
    callers.join_all().await;
    let told = std::mem::take(&mut *told.lock().unwrap());
    let cut_off = check(&reached, &programs, &told).await;
    stop(hub).await;
    check_store(path(&data)).await;
    eprintln!("{} messages answered, {cut_off} of them cut off", told.len());
}

/// The same message at two hubs at the same moment; now and then as a stream, or without waiting.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_runs_once_under_a_key_that_two_hubs_get_at_once() {
    let (programs, data) = (Programs::new(), postgres::database().await);
    let args = programs.args(&data);
    let (first, second) = (start(free_address(), &args).await, start(free_address(), &args).await);
    let (one, two) = (Reached::of(address(&first), &PROGRAMS), Reached::of(address(&second), &PROGRAMS));
    let mut told = Vec::new();
    for round in 0..kills() * 3 {
        for program in PROGRAMS {
            let req = request(round % 3 == 2);
            let name = req.message.message_id.as_str().to_owned();
            let nobody = Ledger::default();
            let ask = |service: &Arc<dyn A2aService>| {
                let (service, req) = (Arc::clone(service), req.clone());
                async move { service.send_message(&keyed(&req), req).await }
            };
            let (here, there) = tokio::join!(
                insist(&nobody, program, || ask(one.agent(program))),
                insist(&nobody, program, || ask(two.agent(program))),
            );
            let (here, there) = (here.unwrap(), there.unwrap());
            match (&here, &there) {
                (SendMessageResponse::Task(here), SendMessageResponse::Task(there)) => {
                    assert_eq!(here.id, there.id, "{program} {name}");
                }
                (SendMessageResponse::Message(here), SendMessageResponse::Message(there)) => {
                    assert_eq!(here, there, "{program} {name}");
                }
                other => panic!("{program} {name}: {other:?}"),
            }
            told.push((program, name, here));
        }
    }
    assert_eq!(check(&one, &programs, &told).await, 0, "nothing was cut off");
    for program in PROGRAMS {
        let runs = programs.runs(program);
        assert_eq!(runs.len() as u64, kills() * 3, "{program}: each ran");
    }
    stop(first).await;
    stop(second).await;
    check_store(&data).await;
}
