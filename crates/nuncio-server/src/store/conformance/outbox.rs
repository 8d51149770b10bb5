//! Checks of webhooks: their deliveries, leases and outcomes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use nuncio_protocol::{PushConfigId, Seq, TaskId, TaskState};

use super::{Handles, NOTICED, Writer, at, commit, commit_one, creation, opening, scope, works};
use crate::store::{
    Attempt, Backlog, Commit, Delivery, DeliveryId, DeliveryOutcome, DeliveryQuery, DeliveryState, Lease,
    Leased, Leases, MAX_WEBHOOKS, Prune, Pruned, Redrive, Refused, Scope, Settled, Store, Then, Webhook,
    outbox::MAX_ATTEMPTS,
};

/// A webhook with this name as uid and id, at this target.
fn hook(name: &str, target: &str) -> Webhook {
    Webhook {
        uid: name.into(),
        id: name.into(),
        target: target.into(),
        body: format!(r#"{{"name":"{name}"}}"#).into(),
    }
}

/// Asks for all webhooks that are due at this time.
fn due(now: i64) -> Lease {
    Lease {
        agents: vec!["agent".into()],
        now: at(now),
        after: "".into(),
        except: Vec::new(),
        in_hand: Vec::new(),
        limit: 100,
        each: 100,
        owed: 100,
    }
}

async fn put(store: &dyn Store, writer: &Writer, webhook: Webhook) {
    let kept = works(store.put_webhook(&writer.scope, &writer.task.id, webhook, at(1)).await);
    assert_eq!(kept, Ok(()));
}

/// Appends an entry with deliveries, recorded at `when`.
async fn tell(writer: &mut Writer, when: i64) {
    let entry = writer.entry(writer.status_event(TaskState::Working, when));
    assert_eq!(writer.offer(Commit { push: true, at: at(when), ..entry }).await, Ok(()));
}

/// A task that begins with a webhook and a delivery of the first entry.
async fn begin(store: &Arc<dyn Store>, scope: &Arc<Scope>, id: &str, webhook: Webhook) -> Writer {
    let mut writer = Writer::open(store, scope, creation(id, "c-1", 1), Seq::ZERO);
    let entry = Commit { push: true, ..opening(scope, id, None) }.attach(|with| with.webhook = Some(webhook));
    assert_eq!(writer.offer(entry).await, Ok(()));
    writer
}

async fn lease(store: &dyn Store, lease: &Lease) -> Leases {
    works(store.lease(lease).await)
}

/// The leased webhooks by uid, with the numbers of their pending entries.
fn owed(leases: &Leases) -> Vec<(&str, Vec<u64>)> {
    let owed = |leased: &Leased| leased.owed.iter().map(|owed| owed.seq.0).collect();
    leases.leased.iter().map(|leased| (&*leased.webhook.uid, owed(leased))).collect()
}

fn attempt(when: i64, status: u16) -> Attempt {
    Attempt {
        at: at(when),
        took: 7,
        status: Some(status),
        cause: None,
        error: (status != 200).then(|| "no".into()),
    }
}

fn outcome(seq: u64, state: DeliveryState, attempt: Attempt) -> DeliveryOutcome {
    DeliveryOutcome { seq: Seq(seq), state, attempt }
}

async fn settle(store: &dyn Store, uid: &str, outcomes: Vec<DeliveryOutcome>, then: Then) {
    works(store.settle(vec![Settled { webhook: uid.into(), outcomes, then }]).await);
}

/// All deliveries, oldest first: uid, entry, state.
async fn told(store: &dyn Store) -> Vec<(String, u64, DeliveryState)> {
    let (all, more) = works(store.deliveries(&DeliveryQuery { limit: 1_000, ..Default::default() }).await);
    assert!(!more);
    all.iter().rev().map(|one| (one.webhook.uid.to_string(), one.seq.0, one.state)).collect()
}

fn is(uid: &str, seq: u64, state: DeliveryState) -> (String, u64, DeliveryState) {
    (uid.to_owned(), seq, state)
}

/// Webhooks are put, read, listed and deleted by the owner of the task only.
pub async fn webhooks_are_kept_by_task_and_id(store: Arc<dyn Store>) {
    let writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    let (ann, task) = (&writer.scope, &writer.task.id);
    assert!(!works(store.task(ann, task).await).is_some_and(|stored| stored.pushes));
    for name in ["b", "a", "c"] {
        put(&*store, &writer, hook(name, "x:1")).await;
    }
    assert!(works(store.task(ann, task).await).is_some_and(|stored| stored.pushes));
    let ids = |hooks: Option<Vec<Webhook>>| {
        hooks.map(|hooks| hooks.into_iter().map(|hook| hook.id.to_string()).collect::<Vec<_>>())
    };
    let listed = |after: Option<&'static str>, limit| {
        let (store, after) = (&store, after.map(PushConfigId::from));
        async move { ids(works(store.webhooks(ann, task, after.as_ref(), limit).await)).unwrap_or_default() }
    };
    assert_eq!(listed(None, 9).await, ["a", "b", "c"]);
    assert_eq!(listed(None, 2).await, ["a", "b"]);
    assert_eq!(listed(Some("b"), 2).await, ["c"]);
    assert_eq!(works(store.webhook(ann, task, &"b".into()).await), Some(hook("b", "x:1")));
    assert_eq!(works(store.webhook(ann, task, &"d".into()).await), None);
    for (scope, id) in [(&*scope("bob"), task.clone()), (ann, "t-unknown".into())] {
        assert_eq!(works(store.webhooks(scope, &id, None, 9).await), None, "{id}");
        assert_eq!(works(store.webhook(scope, &id, &"a".into()).await), None, "{id}");
        assert_eq!(
            works(store.delete_webhook(scope, &id, &"a".into()).await),
            Err(Refused::NotFound),
            "{id}"
        );
        let put = works(store.put_webhook(scope, &id, hook("z", "x:1"), at(1)).await);
        assert_eq!(put, Err(Refused::NotFound), "{id}");
    }
    assert_eq!(works(store.delete_webhook(ann, task, &"b".into()).await), Ok(Some("b".into())));
    assert_eq!(works(store.delete_webhook(ann, task, &"b".into()).await), Ok(None), "REQ-160");
    assert_eq!(listed(None, 9).await, ["a", "c"]);
}

/// The number is limited because each webhook makes every entry of the task more expensive.
pub async fn a_task_has_only_so_many_webhooks(store: Arc<dyn Store>) {
    let writer = Writer::create(&store, &scope("ann"), "t-1", "c-1", 1).await;
    for i in 0..MAX_WEBHOOKS {
        put(&*store, &writer, hook(&format!("h{i}"), "x:1")).await;
    }
    let more = works(store.put_webhook(&writer.scope, &writer.task.id, hook("more", "x:1"), at(1)).await);
    assert_eq!(more, Err(Refused::Full));
    put(&*store, &writer, hook("h0", "y:1")).await;
}

/// An entry causes deliveries for the webhooks that exist when it is recorded, including its own.
pub async fn an_entry_is_owed_to_the_webhooks_that_are_there(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let mut writer = begin(&store, &ann, "t-1", hook("a", "x:1")).await;
    let mut silent = Writer::create(&store, &ann, "t-2", "c-1", 1).await;
    tell(&mut silent, 2).await;
    writer.status(TaskState::Working, 2).await;
    put(&*store, &writer, hook("b", "x:1")).await;
    tell(&mut writer, 3).await;
    let said = writer.entry(writer.message_event("more", &[]));
    assert_eq!(writer.offer(said.attach(|with| with.webhook = Some(hook("c", "x:1")))).await, Ok(()));
    tell(&mut writer, 4).await;
    let leases = lease(&*store, &due(9)).await;
    let mut all = owed(&leases);
    all.sort_unstable();
    assert_eq!(all, [("a", vec![1, 3, 5]), ("b", vec![3, 5]), ("c", vec![5])]);
    assert!(leases.leased.iter().all(|leased| leased.task_id == writer.task.id && leased.scope == ann));
    let since: Vec<_> = leases.leased[0].owed.iter().map(|owed| (owed.since, owed.attempts)).collect();
    assert_eq!(since.last(), Some(&(at(4), 0)));
}

/// Refused entries cause no deliveries; accepted ones of a batch do, one by one.
pub async fn a_batch_owes_what_it_appends(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let mut writer = begin(&store, &ann, "t-1", hook("a", "x:1")).await;
    let mut batch = Vec::new();
    for (i, push) in [true, false, true].into_iter().enumerate() {
        let entry = writer.entry(writer.status_event(TaskState::Working, i as i64));
        writer.advance(&entry.event);
        batch.push(Commit { push, ..entry });
    }
    // A webhook gets no deliveries of the entries before it in the batch.
    let last = writer.entry(writer.status_event(TaskState::Completed, 9));
    batch.push(Commit { push: true, ..last }.attach(|with| with.webhook = Some(hook("b", "x:1"))));
    assert!(commit(&*store, batch).await.iter().all(Result::is_ok));
    let late =
        Commit { expected: Seq(2), push: true, ..writer.entry(writer.status_event(TaskState::Working, 9)) };
    assert!(commit_one(&*store, late.attach(|with| with.webhook = Some(hook("c", "x:1")))).await.is_err());
    let wrong = Commit { push: true, ..opening(&ann, "t-1", None) }
        .attach(|with| with.webhook = Some(hook("d", "x:1")));
    assert!(commit_one(&*store, wrong).await.is_err());
    let leases = lease(&*store, &due(9)).await;
    let mut all = owed(&leases);
    all.sort_unstable();
    assert_eq!(all, [("a", vec![1, 2, 4, 5]), ("b", vec![5])]);
}

/// A leased webhook is not leased again; a released one is due at the time that its holder sets.
pub async fn what_is_due_is_leased_once_until_it_is_released(store: Arc<dyn Store>) {
    let mut writer = begin(&store, &scope("ann"), "t-1", hook("a", "x:1")).await;
    tell(&mut writer, 5).await;
    assert_eq!(owed(&lease(&*store, &due(0)).await), [], "not yet");
    assert_eq!(lease(&*store, &due(0)).await.next, Some(at(1)));
    let other = Lease { agents: vec!["other".into()], ..due(9) };
    assert_eq!(owed(&lease(&*store, &other).await), [], "of another agent");
    let some = lease(&*store, &Lease { owed: 1, ..due(9) }).await;
    assert_eq!(owed(&some), [("a", vec![1])]);
    assert_eq!(some.leased[0].webhook, hook("a", "x:1"));
    let again = Lease { in_hand: vec!["a".into()], ..due(9) };
    assert_eq!(owed(&lease(&*store, &again).await), []);
    settle(&*store, "a", vec![outcome(1, DeliveryState::Delivered, attempt(9, 200))], Then::Keep).await;
    assert_eq!(owed(&lease(&*store, &again).await), [], "kept");
    // A delivery added during the lease is not lost.
    tell(&mut writer, 6).await;
    let failed = outcome(2, DeliveryState::Pending, attempt(9, 500));
    settle(&*store, "a", vec![failed], Then::Release(at(20))).await;
    assert_eq!(owed(&lease(&*store, &due(19)).await), []);
    assert_eq!(lease(&*store, &due(19)).await.next, Some(at(20)));
    let then = lease(&*store, &due(20)).await;
    assert_eq!(owed(&then), [("a", vec![2, 3])]);
    assert_eq!((then.leased[0].owed[0].attempts, then.leased[0].owed[1].attempts), (1, 0));
    let all = [2, 3].map(|seq| outcome(seq, DeliveryState::Delivered, attempt(20, 204)));
    settle(&*store, "a", all.to_vec(), Then::Release(at(20))).await;
    let rest = lease(&*store, &due(99)).await;
    assert_eq!((owed(&rest), rest.next), (vec![], None), "nothing is owed");
    tell(&mut writer, 30).await;
    assert_eq!(owed(&lease(&*store, &due(30)).await), [("a", vec![4])], "due with the entry");
}

/// The result of a lease may be lost: then its holder does not know of the lease.
pub async fn what_its_holder_does_not_know_of_is_leased_again(store: Arc<dyn Store>) {
    begin(&store, &scope("ann"), "t-1", hook("a", "x:1")).await;
    assert_eq!(owed(&lease(&*store, &due(9)).await), [("a", vec![1])]);
    assert_eq!(owed(&lease(&*store, &due(9)).await), [("a", vec![1])]);
}

/// Targets are leased in turn, and excluded ones are skipped.
pub async fn targets_take_turns(store: Arc<dyn Store>) {
    let ann = scope("ann");
    for (target, tasks) in [("a:1", 3), ("b:1", 1), ("c:1", 2), ("c:2", 1)] {
        for i in 0..tasks {
            let name = format!("{target}-{i}");
            begin(&store, &ann, &name, hook(&name, target)).await;
        }
    }
    let names = |leases: &Leases| {
        leases.leased.iter().map(|leased| leased.webhook.uid.to_string()).collect::<Vec<_>>()
    };
    let one_each = Lease { each: 1, ..due(9) };
    let mut seen = BTreeSet::new();
    let mut lease = one_each.clone();
    for (after, limit, expected) in
        [("b:1", 2, vec!["c:1", "c:2"]), ("c:2", 3, vec!["a:1", "b:1", "c:1"]), ("a:1", 9, vec!["a:1"])]
    {
        lease = Lease { after: after.into(), limit, ..lease };
        let leases = works(store.lease(&lease).await);
        let targets: Vec<_> = leases.leased.iter().map(|leased| leased.webhook.target.to_string()).collect();
        assert_eq!(targets, expected, "after {after}");
        lease.in_hand.extend(leases.leased.iter().map(|leased| Arc::clone(&leased.webhook.uid)));
        seen.extend(names(&leases));
    }
    assert_eq!(seen.len(), 6);
    lease.except = vec!["a:1".into()];
    let none = works(store.lease(&lease).await);
    assert_eq!((names(&none), none.next), (vec![], None), "the last one is at a target that is left out");
    lease.except.clear();
    assert_eq!(works(store.lease(&lease).await).leased.len(), 1);
}

/// Of one target, the webhooks that are due longest come first.
pub async fn the_longest_due_comes_first(store: Arc<dyn Store>) {
    let ann = scope("ann");
    for (name, when) in [("late", 3), ("early", 1), ("middle", 2)] {
        begin(&store, &ann, name, hook(name, "x:1")).await;
        lease(&*store, &due(9)).await;
        settle(&*store, name, Vec::new(), Then::Release(at(when))).await;
    }
    let leases = lease(&*store, &Lease { each: 2, ..due(9) }).await;
    let names: Vec<_> = owed(&leases).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["early", "middle"]);
    assert_eq!(leases.next, Some(at(3)), "the third is due, and left for the next call");
}

/// A receiver that is gone (410) gets nothing more.
pub async fn a_stopped_webhook_is_owed_nothing(store: Arc<dyn Store>) {
    let mut writer = begin(&store, &scope("ann"), "t-1", hook("a", "x:1")).await;
    tell(&mut writer, 2).await;
    lease(&*store, &due(9)).await;
    settle(&*store, "a", vec![outcome(1, DeliveryState::Dead, attempt(9, 410))], Then::Stop).await;
    tell(&mut writer, 3).await;
    let dead = [is("a", 1, DeliveryState::Dead), is("a", 2, DeliveryState::Dead)];
    assert_eq!(told(&*store).await, dead);
    assert_eq!(owed(&lease(&*store, &due(9)).await), []);
    assert_eq!(works(store.webhook(&writer.scope, &writer.task.id, &"a".into()).await), None);
    assert_eq!(works(store.webhooks(&writer.scope, &writer.task.id, None, 9).await), Some(Vec::new()));
    put(&*store, &writer, Webhook { uid: "new".into(), ..hook("a", "y:1") }).await;
    tell(&mut writer, 4).await;
    assert_eq!(owed(&lease(&*store, &due(9)).await), [("a", vec![4])], "put again, it is owed again");
}

/// REQ-159: a deleted webhook has no deliveries, even if it is leased.
pub async fn a_dropped_webhook_is_owed_nothing(store: Arc<dyn Store>) {
    let mut writer = begin(&store, &scope("ann"), "t-1", hook("a", "x:1")).await;
    let (ann, task) = (Arc::clone(&writer.scope), writer.task.id.clone());
    lease(&*store, &due(9)).await;
    works(store.delete_webhook(&ann, &task, &"a".into()).await).unwrap_or_default();
    settle(&*store, "a", vec![outcome(1, DeliveryState::Pending, attempt(9, 500))], Then::Release(at(1)))
        .await;
    tell(&mut writer, 2).await;
    assert_eq!(owed(&lease(&*store, &due(99)).await), []);
    assert_eq!(told(&*store).await, []);
    assert!(!works(store.task(&ann, &task).await).is_some_and(|stored| stored.pushes));
}

/// Trap T-20: a replacement takes over the pending deliveries.
pub async fn a_replaced_webhook_keeps_what_it_is_owed(store: Arc<dyn Store>) {
    let mut writer = begin(&store, &scope("ann"), "t-1", hook("a", "x:1")).await;
    lease(&*store, &due(9)).await;
    settle(&*store, "a", vec![outcome(1, DeliveryState::Pending, attempt(9, 500))], Then::Release(at(1_000)))
        .await;
    let new = Webhook { uid: "other".into(), body: "{}".into(), ..hook("a", "y:2") };
    let kept = works(store.put_webhook(&writer.scope, &writer.task.id, new.clone(), at(20)).await);
    assert_eq!(kept, Ok(()));
    tell(&mut writer, 21).await;
    let leases = lease(&*store, &due(21)).await;
    assert_eq!(owed(&leases), [("a", vec![1, 2])], "due at once, under the old name");
    assert_eq!(leases.leased[0].webhook, Webhook { uid: "a".into(), ..new });
    assert_eq!(
        works(store.webhooks(&writer.scope, &writer.task.id, None, 9).await).map(|all| all.len()),
        Some(1)
    );
}

/// Deliveries show their outcome and the last attempts.
pub async fn deliveries_tell_what_became_of_them(store: Arc<dyn Store>) {
    begin(&store, &scope("ann"), "t-1", hook("a", "x:1")).await;
    let tries = MAX_ATTEMPTS as i64 + 3;
    for i in 0..tries {
        lease(&*store, &due(100 + i)).await;
        let failed = outcome(1, DeliveryState::Pending, attempt(i, 503));
        settle(&*store, "a", vec![failed], Then::Release(at(101 + i))).await;
    }
    let one = DeliveryQuery { id: DeliveryId::parse("a-1"), limit: 2, ..DeliveryQuery::default() };
    let (found, more) = works(store.deliveries(&one).await);
    let [delivery] = &found[..] else { panic!("one delivery, not {found:?}") };
    assert_eq!((delivery.id().to_string(), more), ("a-1".to_owned(), false));
    assert_eq!((delivery.attempts, delivery.due), (tries as u32, Some(at(100 + tries))));
    assert_eq!((delivery.task_id.as_str(), &*delivery.scope.agent), ("t-1", "agent"));
    let recent: Vec<Attempt> = (3..tries).map(|i| attempt(i, 503)).collect();
    assert_eq!(delivery.recent, recent, "the last ones");
    lease(&*store, &due(999)).await;
    let (found, _) = works(store.deliveries(&one).await);
    assert_eq!(found[0].due, None, "somebody has it in hand");
    settle(
        &*store,
        "a",
        vec![outcome(1, DeliveryState::Delivered, attempt(999, 200))],
        Then::Release(at(999)),
    )
    .await;
    let (found, _) = works(store.deliveries(&one).await);
    assert_eq!((found[0].state, found[0].due), (DeliveryState::Delivered, None));
}

/// An owner that was presumed stopped and has leased the webhook again may not know of outcomes that others
/// stored.
pub async fn what_is_done_is_not_undone_by_a_late_word(store: Arc<dyn Store>) {
    let mut writer = begin(&store, &scope("ann"), "t-1", hook("a", "x:1")).await;
    tell(&mut writer, 2).await;
    lease(&*store, &due(9)).await;
    let done = [
        outcome(1, DeliveryState::Delivered, attempt(9, 200)),
        outcome(2, DeliveryState::Dead, attempt(9, 400)),
    ];
    settle(&*store, "a", done.to_vec(), Then::Keep).await;
    let late = [1, 2].map(|seq| outcome(seq, DeliveryState::Pending, attempt(9, 503)));
    settle(&*store, "a", late.to_vec(), Then::Release(at(9))).await;
    assert_eq!(told(&*store).await, [is("a", 1, DeliveryState::Delivered), is("a", 2, DeliveryState::Dead)]);
    assert_eq!(owed(&lease(&*store, &due(99)).await), []);
    let (all, _) = works(store.deliveries(&DeliveryQuery { limit: 9, ..Default::default() }).await);
    assert!(all.iter().all(|one| one.attempts == 1 && one.recent.len() == 1), "{all:?}");
}

/// Newest first, in pages of every size, by every filter.
pub async fn deliveries_are_listed_in_pages(store: Arc<dyn Store>) {
    let other = Arc::new(Scope { agent: "other".into(), ..(*scope("ann")).clone() });
    for (name, scope) in [("a", &scope("ann")), ("b", &scope("bob")), ("c", &other)] {
        let target = if name == "b" { "y:1" } else { "x:1" };
        let mut writer = begin(&store, scope, &format!("t-{name}"), hook(name, target)).await;
        tell(&mut writer, 2).await;
        tell(&mut writer, 3).await;
    }
    lease(&*store, &due(9)).await;
    let sent = |seq, state| outcome(seq, state, attempt(9, 200));
    let outcomes = vec![sent(1, DeliveryState::Delivered), sent(2, DeliveryState::Dead)];
    settle(&*store, "b", outcomes, Then::Release(at(9))).await;
    let list = async |query: DeliveryQuery| {
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let (page, more) = works(store.deliveries(&DeliveryQuery { after, ..query.clone() }).await);
            assert!(page.len() <= query.limit);
            ids.extend(page.iter().map(|one| one.id().to_string()));
            if !more {
                return ids.join(" ");
            }
            after = page.last().map(Delivery::id);
        }
    };
    let all = DeliveryQuery { limit: 100, ..DeliveryQuery::default() };
    for limit in 1..11 {
        let page = DeliveryQuery { limit, ..all.clone() };
        assert_eq!(list(page).await, "c-3 c-2 c-1 b-3 b-2 b-1 a-3 a-2 a-1", "{limit}");
    }
    let cases = [
        (DeliveryQuery { agent: Some("other".into()), ..all.clone() }, "c-3 c-2 c-1"),
        (DeliveryQuery { task_id: Some(TaskId::from("t-a")), ..all.clone() }, "a-3 a-2 a-1"),
        (DeliveryQuery { state: Some(DeliveryState::Dead), ..all.clone() }, "b-2"),
        (DeliveryQuery { state: Some(DeliveryState::Delivered), ..all.clone() }, "b-1"),
        (
            DeliveryQuery { state: Some(DeliveryState::Pending), limit: 3, ..all.clone() },
            "c-3 c-2 c-1 b-3 a-3 a-2 a-1",
        ),
        (DeliveryQuery { since: Some(at(3)), ..all.clone() }, "c-3 b-3 a-3"),
        (DeliveryQuery { target: Some("y:1".into()), ..all.clone() }, "b-3 b-2 b-1"),
        (
            DeliveryQuery { target: Some("x:1".into()), task_id: Some(TaskId::from("t-a")), ..all.clone() },
            "a-3 a-2 a-1",
        ),
        (DeliveryQuery { target: Some("x".into()), ..all.clone() }, ""),
        (DeliveryQuery { id: DeliveryId::parse("b-3"), ..all.clone() }, "b-3"),
        (DeliveryQuery { id: DeliveryId::parse("b-9"), ..all.clone() }, ""),
    ];
    for (query, expected) in cases {
        assert_eq!(list(query.clone()).await, expected, "{query:?}");
    }
}

/// The number and age of pending deliveries, over all callers, leased or not.
pub async fn what_is_owed_is_counted(store: Arc<dyn Store>) {
    let counted = async || works(store.backlog().await);
    assert_eq!(counted().await, Backlog::default());
    for (name, when) in [("ann", 3), ("bob", 4)] {
        let mut writer = begin(&store, &scope(name), &format!("t-{name}"), hook(name, "x:1")).await;
        tell(&mut writer, when).await;
    }
    let since = |oldest| Some(at(oldest));
    assert_eq!(counted().await, Backlog { pending: 4, oldest: since(1) });
    lease(&*store, &due(9)).await;
    assert_eq!(counted().await, Backlog { pending: 4, oldest: since(1) }, "in hand it is still owed");
    for name in ["ann", "bob"] {
        let first = vec![outcome(1, DeliveryState::Delivered, attempt(9, 200))];
        settle(&*store, name, first, Then::Release(at(9))).await;
    }
    assert_eq!(counted().await, Backlog { pending: 2, oldest: since(3) });
    lease(&*store, &due(9)).await;
    settle(&*store, "ann", vec![outcome(2, DeliveryState::Dead, attempt(9, 400))], Then::Release(at(9)))
        .await;
    settle(&*store, "bob", Vec::new(), Then::Stop).await;
    assert_eq!(counted().await, Backlog::default(), "what was given up is owed no more");
}

/// Dead or delivered deliveries become pending again, as if they were new; those of a receiver that is gone
/// (410) only if that one delivery is requested.
pub async fn what_is_redriven_is_due_again(store: Arc<dyn Store>) {
    let mut writer = begin(&store, &scope("ann"), "t-1", hook("a", "x:1")).await;
    for when in [2, 3, 4] {
        tell(&mut writer, when).await;
    }
    lease(&*store, &due(9)).await;
    let dead = |seq| outcome(seq, DeliveryState::Dead, attempt(9, 400));
    let sent = outcome(4, DeliveryState::Delivered, attempt(9, 200));
    settle(&*store, "a", vec![dead(1), dead(2), dead(3), sent], Then::Release(at(9))).await;
    let since = |agent: Option<&str>, since| Redrive::Dead { agent: agent.map(Into::into), since: at(since) };
    assert_eq!(works(store.redrive(&since(Some("other"), 0), at(50)).await), 0);
    assert_eq!(works(store.redrive(&since(Some("agent"), 3), at(50)).await), 1);
    let again = lease(&*store, &due(50)).await;
    assert_eq!(owed(&again), [("a", vec![3])]);
    assert_eq!((again.leased[0].owed[0].since, again.leased[0].owed[0].attempts), (at(50), 0));
    settle(&*store, "a", vec![outcome(3, DeliveryState::Delivered, attempt(50, 200))], Then::Stop).await;
    assert_eq!(works(store.redrive(&since(None, 0), at(60)).await), 0, "the receiver wants no more");
    let one = |id: &str| DeliveryId::parse(id).map_or(since(None, 99), Redrive::One);
    assert_eq!(works(store.redrive(&one("a-9"), at(60)).await), 0);
    assert_eq!(works(store.redrive(&one("b-1"), at(60)).await), 0);
    assert_eq!(works(store.redrive(&one("a-4"), at(60)).await), 1, "delivered is no reason");
    assert_eq!(works(store.redrive(&since(None, 0), at(60)).await), 2, "it was asked to take one again");
    assert_eq!(owed(&lease(&*store, &due(60)).await), [("a", vec![1, 2, 4])], "in order");
}

/// Webhooks are deleted with their task.
pub async fn webhooks_are_forgotten_with_their_tasks(store: Arc<dyn Store>) {
    let mut writer = begin(&store, &scope("ann"), "t-1", hook("a", "x:1")).await;
    begin(&store, &scope("ann"), "t-2", hook("b", "x:1")).await;
    writer.status(TaskState::Completed, 2).await;
    let done = Prune { agent: "agent".into(), what: Pruned::Tasks(TaskState::Completed), before: at(9) };
    assert_eq!(works(store.prune(&done, 9).await), 1);
    assert_eq!(told(&*store).await, [is("b", 1, DeliveryState::Pending)]);
    assert_eq!(owed(&lease(&*store, &due(9)).await), [("b", vec![1])]);
    settle(&*store, "a", vec![outcome(1, DeliveryState::Delivered, attempt(9, 200))], Then::Release(at(9)))
        .await;
    let ann = crate::store::ErasureTarget { agent: None, tenant: None, owner: Some("ann".into()) };
    assert_eq!(works(store.erase(&ann, 9).await), 1);
    assert_eq!(told(&*store).await, []);
}

/// Webhooks leased by a stopped owner are free for the next one, with all pending deliveries.
pub async fn what_a_gone_owner_had_in_hand_is_free<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    let store: Arc<dyn Store> = gone.clone();
    let mut writer = begin(&store, &scope("ann"), "t-1", hook("a", "x:1")).await;
    tell(&mut writer, 2).await;
    assert_eq!(owed(&lease(&*store, &due(9)).await), [("a", vec![1, 2])]);
    settle(&*store, "a", vec![outcome(1, DeliveryState::Delivered, attempt(9, 200))], Then::Keep).await;
    drop((writer, store));
    handles.die(gone).await;

    let store = handles.open().await;
    let free = async {
        let mut again = tokio::time::interval(Duration::from_millis(100));
        loop {
            again.tick().await;
            let leases = lease(&*store, &due(9)).await;
            if !leases.leased.is_empty() {
                return leases;
            }
        }
    };
    let leases = tokio::time::timeout(NOTICED, free).await.unwrap_or_default();
    assert_eq!(owed(&leases), [("a", vec![2])]);
    assert_eq!(leases.leased[0].webhook, hook("a", "x:1"));
}

/// Several hubs share the work, and no webhook is leased twice.
pub async fn a_webhook_is_in_one_owners_hands<H: Handles>(handles: &H) {
    let stores: [Arc<dyn Store>; 3] = [handles.open().await, handles.open().await, handles.open().await];
    let ann = scope("ann");
    for i in 0..30 {
        let name = format!("h{i:02}");
        begin(&stores[i % 3], &ann, &name, hook(&name, &format!("x:{}", i % 4))).await;
    }
    let mut seen = BTreeSet::new();
    let mut known = vec![Vec::<Arc<str>>::new(); 3];
    for _ in 0..10 {
        let leases = stores.iter().zip(&known).map(|(store, known)| {
            let lease = Lease { limit: 3, in_hand: known.clone(), ..due(9) };
            async move { works(store.lease(&lease).await) }
        });
        for (place, leases) in join_all(leases).await.into_iter().enumerate() {
            for leased in leases.leased {
                assert!(seen.insert(Arc::clone(&leased.webhook.uid)), "{} twice", leased.webhook.uid);
                known[place].push(leased.webhook.uid);
            }
        }
    }
    assert_eq!(seen.len(), 30, "all of them");
    let (mine, other) = (&known[0][0], &stores[1]);
    settle(&**other, mine, vec![outcome(1, DeliveryState::Delivered, attempt(9, 200))], Then::Release(at(9)))
        .await;
    let still = Lease { in_hand: known[1].clone(), ..due(9) };
    assert_eq!(owed(&lease(&**other, &still).await), [], "it is not theirs to settle");
    settle(&*stores[0], mine, Vec::new(), Then::Release(at(9))).await;
    assert_eq!(owed(&lease(&**other, &still).await), [(&**mine, vec![1])]);
}
