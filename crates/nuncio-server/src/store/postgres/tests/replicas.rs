//! Several hubs on one database, and lost connections.

use futures_util::future::join_all;
use nuncio_protocol::{Seq, TaskState};

use super::*;
use crate::store::{
    Commit, HandIn, Heard, Refused, StoredTurn, TaskQuery, Topic, WaitingQuery,
    conformance::{Writer, at, commit_one, creation, events, key, opening, scope, stored},
};

/// A missing heartbeat is noticed by the clock of the database, without any action of the stopped owner.
#[tokio::test]
async fn what_a_silent_owner_left_is_adopted_after_its_lapse() {
    let url = postgres::database().await;
    let (one, two) = (connect(&url).await, connect(&url).await);
    let ann = scope("ann");
    let mut writer = Writer::create(&shared(&one), &ann, "t-1", "c-1", 1).await;
    writer.status(TaskState::Working, 2).await;
    assert!(two.adopt("agent", 9).await.unwrap().is_empty(), "its owner is alive");
    assert!(two.task(&ann, &"t-1".into()).await.unwrap().unwrap().held);
    one.fall_silent();
    let orphans = eventually("the lapse", async || {
        let orphans = two.adopt("agent", 9).await.unwrap();
        (!orphans.is_empty()).then_some(orphans)
    })
    .await;
    assert_eq!((orphans[0].stored.seq, orphans[0].stored.held, orphans[0].busy), (Seq(2), false, true));
    let late = writer.entry(writer.status_event(TaskState::Completed, 3));
    assert_eq!(commit_one(&*one, late.clone()).await, Err(Refused::Held), "it was thought gone");
    assert_eq!(commit_one(&*two, late).await, Ok(()));
}

/// Stopped owners are removed once they have no tasks left, and their counts are kept.
#[tokio::test]
async fn owners_that_are_long_gone_are_forgotten() {
    let url = postgres::database().await;
    let brief = PostgresOptions { lapse: Duration::from_millis(300), ..options() };
    let gone = PostgresStore::connect(&url, brief.clone()).await.unwrap();
    let gone = Arc::new(gone);
    let mut done = Writer::create(&shared(&gone), &scope("ann"), "t-1", "c-1", 1).await;
    done.status(TaskState::Completed, 2).await;
    Writer::create(&shared(&gone), &scope("ann"), "t-2", "c-1", 1).await;
    drop(done);
    gone.close().await;
    let store = PostgresStore::connect(&url, brief).await.unwrap();
    let owners = async || postgres::run(&url, "SELECT count(*) FROM nuncio.owners").await[0][0].clone();
    assert_eq!(store.adopt("agent", 9).await.unwrap().len(), 1);
    eventually("the cleaning", async || (owners().await == "1").then_some(())).await;
    let query = TaskQuery { limit: 9, count: true, ..TaskQuery::default() };
    assert_eq!(store.tasks(&scope("ann"), &query).await.unwrap().total, Some(2));
    assert_eq!(problems(&url).await, [""; 0]);
}

/// Many batches of two hubs over the same tasks: no deadlock, no gap, and each entry is written once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hubs_write_to_the_same_tasks_at_once() {
    const TASKS: usize = 20;
    const ROUNDS: usize = 30;
    let url = postgres::database().await;
    let stores = [connect(&url).await, connect(&url).await];
    let ann = scope("ann");
    let ids: Vec<String> = (0..TASKS).map(|i| format!("t-{i:02}")).collect();
    let hub = |number: usize, store: Arc<PostgresStore>| {
        let (ann, ids) = (Arc::clone(&ann), ids.clone());
        tokio::spawn(async move {
            let mut seqs = vec![0_u64; ids.len()];
            let mut written = 0;
            for round in 0..ROUNDS {
                // The hubs use the tasks in opposite orders.
                let order: Vec<usize> =
                    (0..ids.len()).map(|i| if number == 0 { i } else { ids.len() - 1 - i }).collect();
                let entry = |i: usize| {
                    let writer =
                        Writer::open(&shared(&store), &ann, creation(&ids[i], "c-1", 1), Seq(seqs[i].max(1)));
                    let key = Some(key(&format!("{}-{number}-{round}", ids[i]), 1));
                    if seqs[i] == 0 {
                        return opening(&ann, &ids[i], key);
                    }
                    let event = writer.status_event(TaskState::InputRequired, round as i64);
                    Commit { take: true, ..writer.entry(event) }.attach(|with| with.idempotency = key)
                };
                let batch: Vec<Commit> = order.iter().map(|i| entry(*i)).collect();
                for (i, result) in order.iter().zip(store.commit(batch).await.unwrap()) {
                    match result {
                        Ok(()) => (seqs[*i], written) = (seqs[*i] + 1, written + 1),
                        Err(Refused::Version(seq)) => seqs[*i] = seq.0,
                        Err(refused) => panic!("{refused:?}"),
                    }
                }
            }
            written
        })
    };
    let [one, two] = stores.clone();
    let written = join_all([hub(0, one), hub(1, two)]).await;
    let written: usize = written.into_iter().map(Result::unwrap).sum();
    let mut found = 0;
    for id in &ids {
        let log = events(&*stores[0], &ann, &id.as_str().into(), 0, 1_000).await;
        assert!(log.iter().map(|(seq, _)| *seq).eq(1..=log.len() as u64), "{id} has a gap");
        found += log.len();
    }
    assert_eq!(found, written, "what was said to be written is there, and nothing else");
    assert_eq!(problems(&url).await, [""; 0]);
}

#[tokio::test]
async fn secrets_are_the_same_for_all() {
    let url = postgres::database().await;
    let stores = [connect(&url).await, connect(&url).await, connect(&url).await];
    let made = join_all(stores.iter().map(|store| store.secret("cursor"))).await;
    let made: Vec<[u8; 32]> = made.into_iter().map(Result::unwrap).collect();
    assert!(made.iter().all(|secret| *secret == made[0]), "made at once, and once");
    assert_ne!(stores[0].secret("other").await.unwrap(), made[0]);
}

/// Connections that the server closes are reopened automatically.
#[tokio::test]
async fn a_store_goes_on_after_its_connections_were_ended() {
    let url = postgres::database().await;
    let store = connect(&url).await;
    let ann = scope("ann");
    let mut writer = Writer::create(&shared(&store), &ann, "t-1", "c-1", 1).await;
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for round in 2..5 {
        assert!(store.adopt("agent", 1).await.unwrap().is_empty());
        let ended: u64 = postgres::run(&url, end).await[0][0].parse().unwrap();
        assert!(ended > 1, "the store has connections");
        assert!(stored(&*store, &ann, &"t-1".into()).await.is_some(), "a read is simply asked again");
        let entry = writer.entry(writer.status_event(TaskState::Working, round));
        // The outcome of a commit may be unknown, but never wrong: it is repeated until it is accepted.
        let seq = eventually("a commit", async || match store.commit(vec![entry.clone()]).await {
            Ok(results) => match results[0] {
                Ok(()) => Some(entry.expected.next()),
                Err(Refused::Version(seq)) => Some(seq),
                _ => panic!("{results:?}"),
            },
            Err(error) => {
                assert!(error.is_down(), "{error}");
                None
            }
        })
        .await;
        writer = Writer::open(&shared(&store), &ann, writer.task.clone(), seq);
        eventually("adoption", async || store.adopt("agent", 1).await.ok()).await;
    }
    assert_eq!(stored(&*store, &ann, &"t-1".into()).await.map(|(_, seq)| seq), Some(Seq(4)));
}

/// While the server is down, calls fail quickly, with an error that allows retries; when it is back, they
/// work.
#[tokio::test]
async fn a_store_waits_for_a_server_that_restarts() {
    let data = std::env::temp_dir().join(format!("nuncio-restart-{}", std::process::id()));
    let data_name = data.display().to_string();
    let server = postgres::Server::start(&["--no-sync", "--data", &data_name]);
    let port = server.url().rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
    let store = connect(server.url()).await;
    let ann = scope("ann");
    Writer::create(&shared(&store), &ann, "t-1", "c-1", 1).await;
    drop(server);
    for _ in 0..3 {
        let failed = store.commit(vec![opening(&ann, "t-2", None)]).await.expect_err("there is no server");
        assert!(failed.is_down(), "{failed}");
        assert!(store.task(&ann, &"t-1".into()).await.expect_err("no server").is_down());
        assert!(store.ready().await.is_err());
    }
    let _server = postgres::Server::start(&["--no-sync", "--data", &data_name, "--port", &port]);
    eventually("the store", async || store.ready().await.ok()).await;
    assert_eq!(stored(&*store, &ann, &"t-1".into()).await, Some((creation("t-1", "c-1", 1), Seq(1))));
    eventually("a commit", async || {
        let done = store.commit(vec![Commit { at: at(2), ..opening(&ann, "t-2", None) }]).await.ok()?;
        matches!(done[0], Ok(()) | Err(Refused::Version(_))).then_some(())
    })
    .await;
    drop(_server);
    let _ = std::fs::remove_dir_all(data);
}

/// A commit at one owner is heard by the others, with the task's id, and not by itself.
#[tokio::test]
async fn a_commit_is_signalled_to_the_other_owners() {
    let url = postgres::database().await;
    let (one, two) = (connect(&url).await, connect(&url).await);
    let tasks = || Topic::Tasks("agent".into());
    let (mut own, mut heard) = (one.signals().subscribe(tasks()), two.signals().subscribe(tasks()));
    let mut strangers = two.signals().subscribe(Topic::Tasks("other".into()));
    let mut writer = Writer::create(&shared(&one), &scope("ann"), "t-'1\\", "c-1", 1).await;
    let is_named = |heard: &Heard| matches!(heard, Heard::Keys(keys) if keys.contains("t-'1\\"));
    // The connections may not listen yet: then the next commit is heard.
    for when in 2.. {
        if is_named(&heard.next().await) {
            break;
        }
        writer.status(TaskState::Working, when).await;
    }
    assert!(!is_named(&own.next().await), "a server knows what it writes");
    assert!(!is_named(&strangers.next().await));
    one.signals().send(Topic::Records("key".into()), "k");
    let mut records = two.signals().subscribe(Topic::Records("key".into()));
    while !matches!(records.next().await, Heard::Keys(_)) {
        one.signals().send(Topic::Records("key".into()), "k");
    }
}

/// Without its connection nothing is heard, and it comes back by itself.
#[tokio::test]
async fn signals_survive_the_end_of_their_connection() {
    let url = postgres::database().await;
    let (one, two) = (connect(&url).await, connect(&url).await);
    let topic = || Topic::Records("key".into());
    let mut heard = two.signals().subscribe(topic());
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for _ in 0..3 {
        eventually("a signal", async || {
            one.signals().send(topic(), "k");
            matches!(heard.next().await, Heard::Keys(_)).then_some(())
        })
        .await;
        postgres::run(&url, end).await;
        while heard.next().await != Heard::Everything {}
    }
}

/// The heartbeat finds what stopped owners left, for all agents at once, and says so per agent.
#[tokio::test]
async fn orphans_are_signalled_to_their_agents() {
    let url = postgres::database().await;
    let (one, two) = (connect(&url).await, connect(&url).await);
    let mut orphans = two.signals().subscribe(Topic::Orphans("agent".into()));
    Writer::create(&shared(&one), &scope("ann"), "t-1", "c-1", 1).await;
    one.close().await;
    orphans.next().await;
    assert_eq!(two.adopt("agent", 9).await.unwrap().len(), 1);
}

/// The owner hears of a turn that was handed in: by a signal, and without signals by its own heartbeat.
#[tokio::test]
async fn an_owner_hears_of_turns_that_were_handed_in() {
    for signals in [true, false] {
        let url = postgres::database().await;
        let options = PostgresOptions { signals, beat: Duration::from_millis(100), ..options() };
        let open = async || Arc::new(PostgresStore::connect(&url, options.clone()).await.unwrap());
        let (mine, other) = (open().await, open().await);
        let mut heard = mine.signals().subscribe(Topic::Turns("agent".into()));
        Writer::create(&shared(&mine), &scope("ann"), "t-1", "c-1", 1).await;
        let turn = StoredTurn { id: "1".into(), begun: false, body: "x".into() };
        let handed = HandIn { turn: turn.clone(), key: key("k", 1), at: at(1), max_waiting: 1 };
        other.hand_in(&scope("ann"), &"t-1".into(), handed).await.unwrap().unwrap();
        let key = if signals { "t-1" } else { "" };
        tokio::time::timeout(Duration::from_secs(60), heard.until(key)).await.expect("the owner hears of it");
        let query = WaitingQuery { agent: "agent".into(), tasks: None, except: Vec::new(), limit: 9 };
        let waiting = mine.waiting_turns(&query).await.unwrap();
        assert_eq!(waiting.iter().map(|waiting| &waiting.turn).collect::<Vec<_>>(), [&turn]);
    }
}

/// Several commits of one hub under way: no deadlock between their tasks and counters, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_commits_of_one_hub_are_under_way() {
    const WRITERS: usize = 12;
    let url = postgres::database().await;
    let store = connect(&format!("{url}?commits=4")).await;
    assert_eq!(store.concurrent_commits(), 4);
    let store = shared(&store);
    let callers = ["ann", "bob", "eve"];
    let writers = (0..WRITERS).map(|number| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for round in 0..10 {
                // Each changes the counters of two callers in one commit, in another order than its neighbour.
                let names = [callers[(number + round) % 3], callers[(number + round + 1) % 3]];
                let ids = names.map(|name| format!("t-{number}-{round}-{name}"));
                let opens: Vec<Commit> =
                    names.iter().zip(&ids).map(|(name, id)| opening(&scope(name), id, None)).collect();
                assert_eq!(store.commit(opens).await.unwrap(), [Ok(()), Ok(())]);
                let ends = names.iter().zip(&ids).map(|(name, id)| {
                    let writer = Writer::open(&store, &scope(name), creation(id, "c-1", 1), Seq(1));
                    writer.entry(writer.status_event(TaskState::Completed, 2))
                });
                assert_eq!(store.commit(ends.rev().collect()).await.unwrap(), [Ok(()), Ok(())]);
            }
        })
    });
    join_all(writers).await.into_iter().for_each(Result::unwrap);
    let mut total = 0;
    for name in callers {
        let state = Some(TaskState::Completed);
        let query = TaskQuery { limit: 1, count: true, state, ..TaskQuery::default() };
        total += store.tasks(&scope(name), &query).await.unwrap().total.unwrap();
    }
    assert_eq!(total, WRITERS * 10 * 2);
    assert_eq!(problems(&url).await, [""; 0]);
}
