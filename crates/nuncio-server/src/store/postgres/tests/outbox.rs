//! Webhooks that many hubs share: no delivery is lost between concurrent writes, leases, settlements and
//! registrations.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::join_all;
use nuncio_protocol::{Seq, TaskState};

use super::*;
use crate::store::{
    Attempt, Commit, DeliveryOutcome, DeliveryQuery, DeliveryState, Lease, Leases, Prune, Pruned, Redrive,
    Settled, Then, Webhook,
    conformance::{Writer, at, commit, commit_one, creation, opening, scope},
};

pub(super) fn hook(name: &str, target: &str) -> Webhook {
    Webhook { uid: name.into(), id: name.into(), target: target.into(), body: "{}".into() }
}

/// Asks for all webhooks that are due at any time.
pub(super) fn due() -> Lease {
    Lease {
        agents: vec!["agent".into()],
        now: at(1_000_000),
        after: "".into(),
        except: Vec::new(),
        in_hand: Vec::new(),
        limit: 100,
        each: 100,
        owed: 100,
    }
}

pub(super) fn owed(leases: &Leases) -> Vec<(String, Vec<u64>)> {
    let seqs = |leased: &crate::store::Leased| leased.owed.iter().map(|owed| owed.seq.0).collect();
    leases.leased.iter().map(|leased| (leased.webhook.uid.to_string(), seqs(leased))).collect()
}

fn outcome(seq: Seq, state: DeliveryState) -> DeliveryOutcome {
    let attempt = Attempt { at: at(1), took: 1, status: Some(200), cause: None, error: None };
    DeliveryOutcome { seq, state, attempt }
}

/// A task that begins with a webhook of its name and a delivery of the first entry.
async fn begin(store: &Arc<PostgresStore>, id: &str, target: &str) -> Writer {
    let ann = scope("ann");
    let entry =
        Commit { push: true, ..opening(&ann, id, None) }.attach(|with| with.webhook = Some(hook(id, target)));
    assert_eq!(commit_one(&**store, entry).await, Ok(()));
    Writer::open(&shared(store), &ann, creation(id, "c-1", 1), Seq(1))
}

fn entry(writer: &Writer) -> Commit {
    Commit { push: true, ..writer.entry(writer.status_event(TaskState::Working, 2)) }
}

/// A store whose owner counts as alive for long enough, even on a busy machine.
async fn patient(url: &str) -> Arc<PostgresStore> {
    let options = PostgresOptions { lapse: Duration::from_secs(600), ..options() };
    Arc::new(PostgresStore::connect(url, options).await.unwrap())
}

/// The delivered entries: webhook and number.
type Seen = BTreeSet<(Arc<str>, Seq)>;

/// Leases and settles until the writer is done and nothing is due. Each delivery must be new.
async fn deliver(store: Arc<PostgresStore>, writing: Arc<AtomicBool>, seen: Arc<Mutex<Seen>>) {
    let mut round = 0_usize;
    loop {
        let over = !writing.load(Ordering::Acquire);
        let lease = Lease { limit: 3, each: 2, after: format!("x:{}", round % 5).into(), ..due() };
        let leases = store.lease(&lease).await.unwrap();
        if over && leases.leased.is_empty() && leases.next.is_none() {
            return;
        }
        let mut settled = Vec::new();
        for leased in leases.leased {
            round += 1;
            let uid = &leased.webhook.uid;
            for (place, owed) in leased.owed.iter().enumerate() {
                // The last delivery of some fails for now; some outcomes are settled one by one.
                let fails = place > 0 && round.is_multiple_of(5);
                if !fails {
                    assert!(seen.lock().unwrap().insert((uid.clone(), owed.seq)), "{uid} {} twice", owed.seq);
                }
                let state = if fails { DeliveryState::Pending } else { DeliveryState::Delivered };
                let outcomes = vec![outcome(owed.seq, state)];
                settled.push(Settled { webhook: uid.clone(), outcomes, then: Then::Keep });
            }
            if round.is_multiple_of(2) {
                store.settle(std::mem::take(&mut settled)).await.unwrap();
            }
            let then = Then::Release(at(1));
            settled.push(Settled { webhook: uid.clone(), outcomes: Vec::new(), then });
        }
        store.settle(settled).await.unwrap();
    }
}

/// Another transaction, open until the test ends it.
struct Other(tokio_postgres::Client);

impl Other {
    async fn begin(url: &str, statements: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("SET search_path = nuncio; BEGIN; {statements}")).await.unwrap();
        Self(client)
    }

    /// Waits until a lock of this transaction is waited for, then runs the statements and commits.
    async fn end(self, url: &str, statements: &str) {
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually("the lock", async || (postgres::run(url, waiting).await != [["0"]]).then_some(())).await;
        self.0.batch_execute(&format!("{statements}; COMMIT")).await.unwrap();
    }
}

/// The settlement saw nothing pending, and the entry saw that the webhook was due.
#[tokio::test]
async fn an_entry_that_waited_for_a_settlement_makes_its_webhook_due() {
    let url = postgres::database().await;
    let store = patient(&url).await;
    let mut writer = begin(&store, "t-1", "x:1").await;
    let other = Other::begin(&url, "SELECT FROM webhooks FOR UPDATE").await;
    let settled = other.end(&url, "UPDATE deliveries SET state = 1; UPDATE webhooks SET due_at = NULL");
    let (written, ()) = tokio::join!(writer.offer(entry(&writer.clone())), settled);
    assert_eq!(written, Ok(()));
    assert_eq!(problems(&url).await, [""; 0]);
    assert_eq!(owed(&store.lease(&due()).await.unwrap()), [("t-1".to_owned(), vec![2])]);
}

/// The transaction that stopped the webhook saw none of its later deliveries.
#[tokio::test]
async fn an_entry_that_waited_for_a_stop_is_not_owed() {
    let url = postgres::database().await;
    let store = patient(&url).await;
    let mut writer = begin(&store, "t-1", "x:1").await;
    let other = Other::begin(&url, "SELECT FROM webhooks FOR UPDATE").await;
    let stop = "UPDATE deliveries SET state = 2; UPDATE webhooks SET due_at = NULL, stopped = true";
    let (written, ()) = tokio::join!(writer.offer(entry(&writer.clone())), other.end(&url, stop));
    assert_eq!(written, Ok(()));
    assert_eq!(problems(&url).await, [""; 0]);
    assert_eq!(owed(&store.lease(&due()).await.unwrap()), []);
}

/// The entry saw that the webhook was due, and the settlement does not know of the entry yet.
#[tokio::test]
async fn a_settlement_that_waited_for_an_entry_leaves_its_webhook_due() {
    let url = postgres::database().await;
    let store = patient(&url).await;
    let mut writer = begin(&store, "t-1", "x:1").await;
    writer.status(TaskState::Working, 2).await;
    assert_eq!(store.lease(&due()).await.unwrap().leased.len(), 1);
    let owe =
        "SELECT FROM webhooks FOR UPDATE; INSERT INTO deliveries (webhook, seq, since) VALUES ('t-1', 2, 1)";
    let other = Other::begin(&url, owe).await;
    let outcomes = vec![outcome(Seq(1), DeliveryState::Delivered)];
    let settled = Settled { webhook: "t-1".into(), outcomes, then: Then::Release(at(1)) };
    let (settled, ()) = tokio::join!(store.settle(vec![settled]), other.end(&url, ""));
    settled.unwrap();
    assert_eq!(problems(&url).await, [""; 0]);
    assert_eq!(owed(&store.lease(&due()).await.unwrap()), [("t-1".to_owned(), vec![2])]);
}

/// Otherwise a registration could miss an entry: not visible when the webhook is put, and without a delivery
/// later. And a deletion must include the deliveries of concurrent entries.
#[tokio::test]
async fn whoever_changes_the_webhooks_of_a_task_waits_for_its_writer() {
    let url = postgres::database().await;
    let store = patient(&url).await;
    let mut writer = begin(&store, "t-1", "x:1").await;
    writer.status(TaskState::Working, 2).await;
    let (ann, task) = (scope("ann"), "t-1".into());
    let write = "UPDATE tasks SET context_id = context_id";
    let other = Other::begin(&url, write).await;
    let put = store.put_webhook(&ann, &task, hook("w", "x:1"), at(1));
    let (put, ()) = tokio::join!(put, other.end(&url, ""));
    assert_eq!(put.unwrap(), Ok(()));
    let other = Other::begin(&url, write).await;
    let name = "w".into();
    let drop = store.delete_webhook(&ann, &task, &name);
    let owe =
        "INSERT INTO deliveries (webhook, seq, since) VALUES ('w', 2, 1); UPDATE webhooks SET due_at = 1";
    let (dropped, ()) = tokio::join!(drop, other.end(&url, owe));
    assert_eq!(dropped.unwrap(), Ok(Some("w".into())));
    assert_eq!(problems(&url).await, [""; 0]);
}

/// A lease does not wait for locked rows, and reports that there are more.
#[tokio::test]
async fn what_somebody_writes_to_is_left_for_the_next_lease() {
    let url = postgres::database().await;
    let store = patient(&url).await;
    for id in ["t-1", "t-2"] {
        begin(&store, id, "x:1").await;
    }
    let _other = Other::begin(&url, "SELECT FROM webhooks WHERE uid = 't-1' FOR UPDATE").await;
    let leases = store.lease(&due()).await.unwrap();
    assert_eq!(owed(&leases), [("t-2".to_owned(), vec![1])]);
    assert_eq!(leases.next, Some(at(1)));
}

/// Checks all the time that no pending delivery is without a due time. The next entry would repair it, so a
/// check at the end would not show it.
async fn watch(url: String, writing: Arc<AtomicBool>) {
    let watcher = Other::begin(&url, "").await.0;
    let lost = "SELECT uid FROM webhooks w WHERE due_at IS NULL
        AND EXISTS (SELECT FROM deliveries WHERE webhook = w.uid AND state = 0)";
    while writing.load(Ordering::Acquire) {
        assert!(watcher.query(lost, &[]).await.unwrap().is_empty(), "something is pending, and not due");
    }
}

/// The critical moment: the last pending delivery is settled while the next entry adds one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_owed_while_others_settle_is_not_lost() {
    const TASKS: usize = 2;
    const ROUNDS: usize = 300;
    let url = postgres::database().await;
    let hubs = join_all((0..4).map(|_| patient(&url))).await;
    let mut writers = Vec::new();
    for i in 0..TASKS {
        writers.push(begin(&hubs[i % 2], &format!("t-{i}"), &format!("x:{}", i % 4)).await);
    }
    let (writing, seen) = (Arc::new(AtomicBool::new(true)), Arc::default());
    let delivering = [2, 3]
        .map(|hub| tokio::spawn(deliver(Arc::clone(&hubs[hub]), Arc::clone(&writing), Arc::clone(&seen))));
    let watching = tokio::spawn(watch(url.clone(), Arc::clone(&writing)));
    let (mine, other): (Vec<_>, Vec<_>) = writers.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
    let write = |store: Arc<PostgresStore>, mut writers: Vec<(usize, Writer)>| {
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let batch: Vec<Commit> = writers.iter().rev().map(|(_, writer)| entry(writer)).collect();
                assert!(commit(&*store, batch.clone()).await.iter().all(Result::is_ok));
                writers
                    .iter_mut()
                    .rev()
                    .zip(&batch)
                    .for_each(|((_, writer), entry)| writer.advance(&entry.event));
            }
        })
    };
    for written in [write(Arc::clone(&hubs[0]), mine), write(Arc::clone(&hubs[1]), other)] {
        written.await.unwrap();
    }
    writing.store(false, Ordering::Release);
    watching.await.unwrap();
    for delivered in delivering {
        delivered.await.unwrap();
    }
    let all = TASKS * (ROUNDS + 1);
    assert_eq!(seen.lock().unwrap().len(), all, "everything is delivered, and once");
    let told = DeliveryQuery { state: Some(DeliveryState::Delivered), limit: all, ..Default::default() };
    let (told, more) = hubs[0].deliveries(&told).await.unwrap();
    assert_eq!((told.len(), more), (all, false));
    assert_eq!(
        postgres::run(&url, "SELECT count(*) FROM nuncio.webhooks WHERE due_at IS NOT NULL").await,
        [["0"]]
    );
    assert_eq!(problems(&url).await, [""; 0]);
}

/// One hub writes while another registers a webhook: all entries after the registration are delivered,
/// without a gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_after_a_webhook_was_put_is_owed() {
    const ENTRIES: u64 = 12;
    let url = postgres::database().await;
    let (one, two) = (patient(&url).await, patient(&url).await);
    for round in 0..10 {
        let id = format!("t-{round}");
        let mut writer = Writer::create(&shared(&one), &scope("ann"), &id, "c-1", 1).await;
        let put = {
            let (two, id) = (Arc::clone(&two), id.clone());
            tokio::spawn(async move {
                two.put_webhook(&scope("ann"), &id.as_str().into(), hook(&id, "x:1"), at(1))
                    .await
                    .unwrap()
                    .unwrap();
            })
        };
        let mut first = None;
        while writer.seq < Seq(ENTRIES) || first.is_none() {
            if first.is_none() && put.is_finished() {
                first = Some(writer.seq.next().0);
            }
            assert_eq!(writer.offer(entry(&writer)).await, Ok(()));
        }
        let query = DeliveryQuery { task_id: Some(id.as_str().into()), limit: 10_000, ..Default::default() };
        let (found, _) = two.deliveries(&query).await.unwrap();
        let seqs: Vec<u64> = found.iter().rev().map(|one| one.seq.0).collect();
        let least = seqs.first().copied().unwrap_or(u64::MAX);
        assert!(seqs.iter().copied().eq(least..=writer.seq.0), "{seqs:?}");
        assert!(Some(least) <= first, "{least} is the first, and it was there at {first:?}");
    }
    assert_eq!(problems(&url).await, [""; 0]);
}

/// All transactions that lock several webhooks run concurrently: none fails because of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_lock_many_webhooks_do_not_lock_each_other_out() {
    let url = postgres::database().await;
    let hubs = join_all((0..3).map(|_| patient(&url))).await;
    let mut batch = Vec::new();
    let ann = scope("ann");
    // The order of the uids is not that of the tasks.
    for i in 0..20 {
        let webhook = Webhook { uid: format!("w-{:02}", (i * 7) % 20).into(), ..hook("w", "x:1") };
        batch.push(
            Commit { push: true, ..opening(&ann, &format!("t-{i:02}"), None) }
                .attach(|with| with.webhook = Some(webhook)),
        );
    }
    assert!(commit(&*hubs[0], batch).await.iter().all(Result::is_ok));
    let mut writers: Vec<Writer> = (0..20)
        .map(|i| Writer::open(&shared(&hubs[0]), &ann, creation(&format!("t-{i:02}"), "c-1", 1), Seq(1)))
        .collect();
    let writing = Arc::new(AtomicBool::new(true));
    let settling = {
        let (store, writing) = (Arc::clone(&hubs[1]), Arc::clone(&writing));
        tokio::spawn(async move {
            while writing.load(Ordering::Acquire) {
                let leases = store.lease(&due()).await.unwrap();
                let settled = leases.leased.iter().rev().map(|leased| Settled {
                    webhook: Arc::clone(&leased.webhook.uid),
                    outcomes: leased.owed.iter().map(|owed| outcome(owed.seq, DeliveryState::Dead)).collect(),
                    then: Then::Release(at(1)),
                });
                store.settle(settled.collect()).await.unwrap();
            }
        })
    };
    let redriving = {
        let (store, writing) = (Arc::clone(&hubs[2]), Arc::clone(&writing));
        tokio::spawn(async move {
            let prune =
                Prune { agent: "agent".into(), what: Pruned::Tasks(TaskState::Completed), before: at(9) };
            while writing.load(Ordering::Acquire) {
                store.redrive(&Redrive::Dead { agent: None, since: at(0) }, at(3)).await.unwrap();
                store.prune(&prune, 3).await.unwrap();
            }
        })
    };
    for round in 0..30 {
        let ends = |i: usize| (i + round).is_multiple_of(30);
        let state = |i| if ends(i) { TaskState::Completed } else { TaskState::Working };
        let entry = |(i, writer): (usize, &Writer)| Commit {
            push: true,
            ..writer.entry(writer.status_event(state(i), 2))
        };
        let batch: Vec<Commit> = writers.iter().enumerate().map(entry).collect();
        assert!(commit(&*hubs[0], batch.clone()).await.iter().all(Result::is_ok));
        writers.iter_mut().zip(&batch).for_each(|(writer, entry)| writer.advance(&entry.event));
        writers.retain(|writer| writer.task.status.state != TaskState::Completed);
    }
    writing.store(false, Ordering::Release);
    settling.await.unwrap();
    redriving.await.unwrap();
    assert_eq!(problems(&url).await, [""; 0]);
}

/// A batch may register the same webhook several times, and a stopped one.
#[tokio::test]
async fn a_batch_may_put_a_webhook_more_than_once() {
    let url = postgres::database().await;
    let store = connect(&url).await;
    let mut writer = begin(&store, "t-1", "x:1").await;
    store.lease(&due()).await.unwrap();
    let stop = Settled { webhook: "t-1".into(), outcomes: Vec::new(), then: Then::Stop };
    store.settle(vec![stop]).await.unwrap();
    let mut batch = Vec::new();
    for webhook in [None, Some("first"), Some("second"), None] {
        let named = |body: &str| Webhook { uid: "new".into(), body: body.into(), ..hook("w", "y:1") };
        let again = |_: &str| Webhook { uid: "other".into(), ..hook("t-1", "y:1") };
        for make in [&named as &dyn Fn(&str) -> Webhook, &again] {
            batch.push(entry(&writer).attach(|with| with.webhook = webhook.map(make)));
            writer.advance(&batch[batch.len() - 1].event);
        }
    }
    assert!(commit(&*store, batch).await.iter().all(Result::is_ok));
    let leases = store.lease(&due()).await.unwrap();
    let expected = [("new".to_owned(), (4..=9).collect()), ("t-1".to_owned(), (5..=9).collect())];
    assert_eq!(owed(&leases), expected, "from the first on that named them");
    assert_eq!(&*leases.leased[0].webhook.body, "second");
    assert_eq!(problems(&url).await, [""; 0]);
}

/// PostgreSQL does not accept every character; callers may send them all.
#[tokio::test]
async fn names_of_any_characters_come_back() {
    let store = connect(&postgres::database().await).await;
    let (ann, task) = (scope("ann"), "t-1".into());
    Writer::create(&shared(&store), &ann, "t-1", "c-1", 1).await;
    let strange = "a\0b\u{1}";
    let put = Webhook { body: strange.into(), ..hook(strange, strange) };
    let said = Writer::open(&shared(&store), &ann, creation("t-1", "c-1", 1), Seq(1));
    assert_eq!(
        commit_one(&*store, entry(&said).attach(|with| with.webhook = Some(put.clone()))).await,
        Ok(())
    );
    assert_eq!(store.put_webhook(&ann, &task, put.clone(), at(1)).await.unwrap(), Ok(()));
    assert_eq!(store.webhooks(&ann, &task, None, 9).await.unwrap(), Some(vec![put.clone()]));
    assert_eq!(store.lease(&due()).await.unwrap().leased[0].webhook, put);
    let known = Lease { in_hand: vec![Arc::clone(&put.uid)], ..due() };
    assert_eq!(store.lease(&known).await.unwrap().leased.len(), 0);
    let outcomes = vec![outcome(Seq(2), DeliveryState::Dead)];
    store.settle(vec![Settled { webhook: Arc::clone(&put.uid), outcomes, then: Then::Stop }]).await.unwrap();
    let (told, _) = store.deliveries(&DeliveryQuery { limit: 9, ..Default::default() }).await.unwrap();
    assert_eq!((&told[0].webhook, told[0].state), (&put, DeliveryState::Dead));
    assert_eq!(store.redrive(&Redrive::One(told[0].id()), at(2)).await.unwrap(), 1);
    assert_eq!(store.delete_webhook(&ann, &task, &put.id).await.unwrap(), Ok(Some(put.uid)));
}

/// By the clock of the database, or because the owner has no row any more.
#[tokio::test]
async fn what_a_silent_holder_had_in_hand_is_free_after_its_lapse() {
    for forgotten in [false, true] {
        let url = postgres::database().await;
        let (one, two) = (connect(&url).await, connect(&url).await);
        begin(&one, "t-1", "x:1").await;
        assert_eq!(one.lease(&due()).await.unwrap().leased.len(), 1);
        one.fall_silent();
        if forgotten {
            let gone = format!("DELETE FROM nuncio.owners WHERE epoch = {}", one.epoch);
            postgres::run(&url, &gone).await;
        }
        let leases = eventually("the lapse", async || {
            let leases = two.lease(&due()).await.unwrap();
            (!leases.leased.is_empty()).then_some(leases)
        })
        .await;
        assert_eq!(owed(&leases), [("t-1".to_owned(), vec![1])]);
        let late = outcome(Seq(1), DeliveryState::Dead);
        let late = Settled { webhook: "t-1".into(), outcomes: vec![late], then: Then::Stop };
        one.settle(vec![late]).await.unwrap();
        let known = Lease { in_hand: vec!["t-1".into()], ..due() };
        assert_eq!(two.lease(&known).await.unwrap().leased.len(), 0, "it is still in hand");
        let (told, _) = two.deliveries(&DeliveryQuery { limit: 9, ..Default::default() }).await.unwrap();
        assert_eq!((told[0].state, told[0].attempts), (DeliveryState::Pending, 0));
    }
}

/// After any loss of connections, every delivery is still pending, or settled.
#[tokio::test]
async fn an_outbox_goes_on_after_its_connections_were_ended() {
    let url = postgres::database().await;
    let store = patient(&url).await;
    begin(&store, "t-1", "x:1").await;
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for round in 1..4 {
        let leased = eventually("a lease", async || store.lease(&due()).await.ok()).await;
        assert_eq!(owed(&leased), [("t-1".to_owned(), vec![1])], "its holder does not know that it has it");
        postgres::run(&url, end).await;
        let failed = outcome(Seq(1), DeliveryState::Pending);
        let settled = Settled { webhook: "t-1".into(), outcomes: vec![failed], then: Then::Release(at(1)) };
        eventually("settling", async || match store.settle(vec![settled.clone()]).await {
            Ok(()) => Some(()),
            Err(error) => {
                assert!(error.is_down(), "{error}");
                None
            }
        })
        .await;
        postgres::run(&url, end).await;
        let list = DeliveryQuery { limit: 9, ..Default::default() };
        let (told, _) = eventually("the list", async || store.deliveries(&list).await.ok()).await;
        assert_eq!(told[0].attempts, round, "counted once");
    }
    assert_eq!(problems(&url).await, [""; 0]);
}
