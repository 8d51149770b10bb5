//! The hub is killed while its agents are elsewhere and go on: every task ends as the agent's does, and each message
//! is said to the agent once, whether it would know a repeat or not.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nuncio_protocol::{TaskId, TaskState};
use nuncio_tests::{
    chance::Chance,
    data::Folder,
    forgetful::Forgetful,
    hub::{Hub, free_address},
};
use tokio::task::JoinSet;

use crate::{
    address, check_store, kill,
    ledger::Ledger,
    load::{AGENTS, Load, Reached, a_task, insist, keyed, say},
    path, stop,
    verify::{by_message, until_settled, verify},
};

const CALLERS: u64 = 12;
const KILLS: u64 = 6;

/// The command-line arguments for each of these agents that is at that hub.
pub(crate) fn upstreams(hub: &Hub) -> Vec<(&'static str, String)> {
    AGENTS.iter().map(|agent| (*agent, hub.agent(agent))).collect()
}

/// A hub between, that comes again after each kill.
struct Near {
    listen: SocketAddr,
    args: Vec<String>,
    hub: Hub,
}

impl Near {
    async fn start(data: &Path, base: &str) -> Self {
        let agents =
            AGENTS.iter().flat_map(|agent| ["--agent".to_owned(), format!("{agent}={base}/agents/{agent}")]);
        let args = ["--data", path(data), "--log-level", "warn"].map(str::to_owned);
        let (listen, args) = (free_address(), args.into_iter().chain(agents).collect::<Vec<_>>());
        let hub = Self::begin(listen, &args).await;
        Self { listen, args, hub }
    }

    async fn begin(listen: SocketAddr, args: &[String]) -> Hub {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Hub::of_agents(&listen.to_string(), &args).await
    }

    async fn fall_and_rise(&mut self, chance: &mut Chance) {
        tokio::time::sleep(Duration::from_millis(300) + chance.millis(20..=700)).await;
        kill(&mut self.hub).await;
        self.hub = Self::begin(self.listen, &self.args).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_end_as_their_agents_end_them_when_the_hub_is_killed() {
    let seed = Chance::seed();
    eprintln!("NUNCIO_SEED={seed}");
    let mut chance = Chance::new(seed);
    let far = Hub::start(&["--log-level", "warn"]).await;
    let folder = Folder::new();
    let data = folder.path().join("nuncio.db");
    let mut near = Near::start(&data, &far.base).await;
    let (reached, ledger): (_, Arc<Ledger>) = (Arc::new(Reached::new(near.listen)), Arc::default());
    let mut load = Load::start(CALLERS, &[Arc::clone(&reached)], &ledger, seed);
    for _ in 0..KILLS {
        near.fall_and_rise(&mut chance).await;
        load.check();
    }
    load.end().await;
    let ends = verify(&reached, &ledger).await;
    let behind = Reached::new(address(&far));
    for agent in AGENTS {
        let theirs = by_message(&**behind.agent(agent)).await;
        for (message, tasks) in &theirs {
            assert!(tasks.len() == 1, "{agent} {message} has begun two tasks: {tasks:#?}");
        }
        for (message, ours) in by_message(&**reached.agent(agent)).await {
            let (ours, theirs) = (&ours[0], theirs.get(&message).map(|theirs| &theirs[0]));
            // What is canceled before it is sent is not sent.
            let alike = match theirs {
                Some(theirs) => theirs.status.state == ours.status.state,
                None => ours.status.state == TaskState::Canceled,
            };
            assert!(alike, "{agent} {message}: {ours:#?}\n{theirs:#?}");
        }
    }
    stop(near.hub).await;
    stop(far).await;
    check_store(path(&data)).await;
    eprintln!("{} tasks told of; {ends:?}", ledger.len());
}

/// The answers to callers of agents that do not recognise repeats: agent, message, task.
type Told = Arc<Mutex<Vec<(&'static str, String, TaskId)>>>;

/// Says one thing after the other, each under a key until there is an answer.
async fn insist_on_answers(hub: Arc<Reached>, told: Told, stop: Arc<AtomicBool>, mut chance: Chance) {
    let nobody = Ledger::default();
    while !stop.load(Ordering::Relaxed) {
        let (agent, words) = if chance.once_in(2) { ("echo", "hello") } else { ("slow", "5 20ms") };
        let (req, service) = (say(words, chance.once_in(3)), hub.agent(agent));
        let attempt = || async { service.send_message(&keyed(&req), req.clone()).await };
        let task = insist(&nobody, agent, attempt).await.map(a_task).unwrap();
        told.lock().unwrap().push((agent, req.message.message_id.as_str().to_owned(), task.id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_knows_no_repeats_is_asked_once_when_the_hub_is_killed() {
    let seed = Chance::seed();
    eprintln!("NUNCIO_SEED={seed}");
    let mut chance = Chance::new(seed);
    let far = Hub::start(&["--log-level", "warn"]).await;
    let relay = Forgetful::before(&far.base).await;
    let folder = Folder::new();
    let data = folder.path().join("nuncio.db");
    let mut near = Near::start(&data, &relay.base).await;
    let reached = Arc::new(Reached::new(near.listen));
    let (told, over): (Told, Arc<AtomicBool>) = (Arc::default(), Arc::default());
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let chance = Chance::new(seed.wrapping_add(number + 1));
        callers.spawn(insist_on_answers(Arc::clone(&reached), Arc::clone(&told), Arc::clone(&over), chance));
    }
    for _ in 0..KILLS {
        near.fall_and_rise(&mut chance).await;
    }
    over.store(true, Ordering::Relaxed);
    callers.join_all().await;
    let behind = Reached::new(address(&far));
    let (told, mut lost) = (std::mem::take(&mut *told.lock().unwrap()), 0);
    for agent in ["echo", "slow"] {
        until_settled(reached.agent(agent), agent).await;
        until_settled(behind.agent(agent), agent).await;
        let (ours, theirs) =
            (by_message(&**reached.agent(agent)).await, by_message(&**behind.agent(agent)).await);
        for (message, tasks) in &theirs {
            assert!(tasks.len() == 1, "{agent} {message} has begun two tasks: {tasks:#?}");
        }
        for (_, message, id) in told.iter().filter(|(of, ..)| *of == agent) {
            let [task] = &ours[message][..] else { panic!("{agent} {message}: {:#?}", ours[message]) };
            assert_eq!(task.id, *id);
            let theirs = theirs.get(message).map(|theirs| theirs[0].status.state);
            let said = task.status.message.as_ref().map(|message| message.text().into_owned());
            match task.status.state {
                TaskState::Completed => assert_eq!(theirs, Some(TaskState::Completed), "{task:#?}"),
                TaskState::Failed => {
                    assert!(said.unwrap_or_default().contains("was not sent again"), "{task:#?}");
                    lost += 1;
                }
                _ => panic!("{task:#?}"),
            }
        }
    }
    stop(near.hub).await;
    stop(far).await;
    check_store(path(&data)).await;
    eprintln!("{} tasks told of, of {lost} nobody knows whether the agent got the message", told.len());
}
