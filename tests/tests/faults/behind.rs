//! The hub is killed while its agents are elsewhere and go on: every task ends as the agent's does, and what was
//! acknowledged is said to the agent once.

use std::{sync::Arc, time::Duration};

use nuncio_protocol::TaskState;
use nuncio_tests::{
    chance::Chance,
    data::Folder,
    hub::{Hub, free_address},
};

use crate::{
    address, check_store, kill,
    ledger::Ledger,
    load::{AGENTS, Load, Reached},
    path, stop,
    verify::{by_message, verify},
};

const CALLERS: u64 = 12;
const KILLS: u64 = 6;

/// How each of these agents is named on the command line, if it is at that hub.
pub(crate) fn upstreams(hub: &Hub) -> Vec<(&'static str, String)> {
    AGENTS.iter().map(|agent| (*agent, hub.agent(agent))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_end_as_their_agents_end_them_when_the_hub_is_killed() {
    let seed = Chance::seed();
    eprintln!("NUNCIO_SEED={seed}");
    let mut chance = Chance::new(seed);
    let far = Hub::start(&["--log-level", "warn"]).await;
    let folder = Folder::new();
    let data = folder.path().join("nuncio.db");
    let agents: Vec<String> = upstreams(&far).iter().map(|(name, url)| format!("{name}={url}")).collect();
    let mut args = vec!["--data", path(&data), "--log-level", "warn"];
    args.extend(agents.iter().flat_map(|agent| ["--agent", agent]));
    let listen = free_address();
    let mut hub = Hub::of_agents(&listen.to_string(), &args).await;
    let (reached, ledger): (_, Arc<Ledger>) = (Arc::new(Reached::new(listen)), Arc::default());
    let mut load = Load::start(CALLERS, &[Arc::clone(&reached)], &ledger, seed);
    for _ in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(300) + chance.millis(20..=700)).await;
        kill(&mut hub).await;
        load.check();
        hub = Hub::of_agents(&listen.to_string(), &args).await;
    }
    load.end().await;
    let ends = verify(&reached, &ledger).await;
    let behind = Reached::new(address(&far));
    let mut doubled = 0;
    for agent in AGENTS {
        let theirs = by_message(&**behind.agent(agent)).await;
        for (message, ours) in by_message(&**reached.agent(agent)).await {
            let ours = &ours[0];
            let theirs = theirs.get(&message).map(Vec::as_slice).unwrap_or_default();
            let states: Vec<_> = theirs.iter().map(|task| task.status.state).collect();
            // Who cancels while nobody knows yet whether the agent has the message cancels ours alone.
            let alone = ours.status.state == TaskState::Canceled;
            assert!(
                alone || states.contains(&ours.status.state),
                "{agent} {message}: {ours:#?}\n{theirs:#?}"
            );
            // A task that was acknowledged before its agent was asked is asked for once. Any other is not known to
            // a hub that is killed before the agent's first word: the caller's repeat is a new task, there too.
            if ours.history[0].text() == "hold" {
                assert!(theirs.len() <= 1, "{agent} {message} was sent twice: {theirs:#?}");
            }
            doubled += usize::from(theirs.len() > 1);
        }
    }
    eprintln!("{doubled} sends that were repeated by their callers have begun two tasks of their agent");
    stop(hub).await;
    stop(far).await;
    check_store(path(&data)).await;
    eprintln!("{} tasks told of; {ends:?}", ledger.len());
}
