//! No caller can keep another one from being served.

use futures_util::FutureExt as _;

use super::*;

fn caller(name: &str) -> CallerKey {
    CallerKey::from(&Caller::authenticated(name))
}

/// Takes as many permits as the caller can have now.
fn flood(pool: &CallerPool, who: &str) -> Vec<CallerPermit> {
    std::iter::from_fn(|| pool.try_acquire(&caller(who))).collect()
}

#[test]
fn one_caller_leaves_a_share_for_others() {
    for (capacity, percent, alone, other) in [
        (10_000, 25, 7_500, 2_500),
        (32, 25, 24, 8),
        (4, 25, 3, 1),
        (3, 25, 2, 1),
        (2, 25, 1, 1),
        // One permit is held by another caller.
        (1, 25, 1, 0),
        (10, 50, 5, 5),
        (10, 100, 10, 0),
        (10, 0, 10, 0),
        (0, 25, 0, 0),
    ] {
        let pool = CallerPool::new(capacity, CallerShare::percent(percent));
        let held = flood(&pool, "ann");
        assert_eq!(held.len(), alone, "{capacity} {percent}");
        assert_eq!(flood(&pool, "bob").len(), other, "{capacity} {percent}");
        drop(held);
        assert_eq!(flood(&pool, "eve").len(), alone, "{capacity} {percent}: all were given back");
        assert!(pool.lock().callers.is_empty(), "nobody is remembered");
    }
}

#[test]
fn who_holds_more_than_its_share_gets_no_more_until_it_holds_less() {
    let pool = CallerPool::new(8, CallerShare::percent(25));
    let mut ann = flood(&pool, "ann");
    let mut others = flood(&pool, "bob");
    assert_eq!((ann.len(), others.len()), (6, 2));
    assert!(pool.try_acquire(&caller("eve")).is_none(), "there are no more");
    for (left, other) in [(5, "eve"), (4, "joe"), (3, "ida"), (2, "max")] {
        ann.truncate(left);
        assert!(pool.try_acquire(&caller("ann")).is_none(), "{left}: what it gives back is for others");
        others.extend(pool.try_acquire(&caller(other)));
    }
    assert_eq!(others.len(), 6);
    ann.truncate(1);
    assert!(pool.try_acquire(&caller("ann")).is_some(), "it is below its share again");
}

#[test]
fn callers_are_told_apart_by_principal_and_tenant() {
    let share = CallerShare::percent(50);
    let pool = CallerPool::new(2, share);
    let keys = [
        CallerKey::default(),
        caller("ann"),
        CallerKey::from(&Caller::authenticated("ann").of_tenant("north")),
        CallerKey::from(&Scope {
            agent: "a".into(),
            tenant: Some("south".into()),
            owner: Some("ann".into()),
        }),
    ];
    for first in &keys {
        let held = pool.try_acquire(first);
        assert!(held.is_some());
        for second in &keys {
            assert_eq!(pool.try_acquire(second).is_some(), first != second, "{first:?} {second:?}");
        }
    }
    assert_eq!(CallerKey::from(&Caller::anonymous()), CallerKey::from(&Scope::default()));
}

#[tokio::test]
async fn a_permit_goes_to_the_waiting_caller_that_holds_the_fewest() {
    let pool = CallerPool::new(4, CallerShare::percent(25));
    let mut held = flood(&pool, "ann");
    held.extend(flood(&pool, "bob"));
    let holders = |held: &[CallerPermit]| -> Vec<CallerKey> {
        held.iter().map(|permit| permit.caller.clone()).collect()
    };
    assert_eq!(holders(&held), ["ann", "ann", "ann", "bob"].map(caller));
    let mut waiting: Vec<_> = ["ann", "bob", "eve", "eve", "joe"]
        .map(|who| Box::pin(async { pool.acquire(&caller(who)).await }))
        .into();
    assert!(waiting.iter_mut().all(|it| it.now_or_never().is_none()), "nothing is free");
    for (gives_back, gets) in [("ann", "eve"), ("ann", "joe"), ("ann", "ann"), ("bob", "bob"), ("eve", "eve")]
    {
        let at = held.iter().position(|permit| permit.caller == caller(gives_back)).unwrap();
        drop(held.remove(at));
        let mut granted = Vec::new();
        waiting.retain_mut(|it| match it.now_or_never() {
            Some(permit) => {
                granted.push(permit);
                false
            }
            None => true,
        });
        assert_eq!(holders(&granted), [caller(gets)], "{gives_back} gives back");
        held.extend(granted);
    }
    assert!(waiting.is_empty());
}

#[tokio::test]
async fn whoever_stops_waiting_leaves_the_queue() {
    let pool = CallerPool::new(1, CallerShare::default());
    let held = pool.try_acquire(&caller("ann")).unwrap();
    for _ in 0..3 {
        assert!(pool.acquire(&caller("bob")).now_or_never().is_none());
    }
    assert_eq!(pool.lock().callers.len(), 1, "bob is forgotten");
    let mut bob = Box::pin(async { pool.acquire(&caller("bob")).await });
    assert!((&mut bob).now_or_never().is_none());
    assert!(pool.try_acquire(&caller("bob")).is_none(), "behind the one that waits");
    drop(held);
    // Granted, and dropped before it was polled.
    drop(bob);
    assert!(pool.try_acquire(&caller("eve")).is_some(), "it was given back");
}

#[test]
fn a_share_may_change_at_any_time() {
    let share = CallerShare::default();
    let pool = CallerPool::new(8, share.clone());
    let held = flood(&pool, "ann");
    assert_eq!(held.len(), 8);
    drop(held);
    share.set(25);
    assert_eq!(flood(&pool, "ann").len(), 6);
}
