//! Limits of callers, alone and together.

use nuncio_protocol::ErrorKind;
use nuncio_server::CallerPool;

use super::*;
use crate::config::Rate;

/// So slow that nothing comes back while a test runs.
fn rate(burst: u32) -> Option<Rate> {
    Some(Rate { per_second: 0.001, burst: Some(burst) })
}

fn gate(limits: &Limits, agent: &AgentLimits) -> Gate {
    Gate::new(&Arc::new(Callers::new(limits, &HashMap::new())), agent)
}

fn caller(name: &str) -> Caller {
    Caller::authenticated(name)
}

/// The number of calls that are admitted one after the other, while all stay open.
fn count(gate: &Gate, caller: &Caller, op: Op) -> usize {
    let permits: Vec<_> = std::iter::from_fn(|| gate.admit(caller, op).ok()).take(100).collect();
    permits.len()
}

#[test]
fn without_limits_nothing_is_counted() {
    let gate = gate(&Limits::default(), &AgentLimits::default());
    assert!(gate.admit(&caller("a"), Op::SendStreamingMessage).unwrap().is_empty());
    assert_eq!(count(&gate, &caller("a"), Op::SendMessage), 100);
}

#[test]
fn requests_at_once_and_when_to_come_again() {
    let gate = gate(&Limits { rate: rate(3), ..Limits::default() }, &AgentLimits::default());
    for (who, expected) in
        [(caller("a"), 3), (caller("b"), 3), (caller("a").of_tenant("t"), 3), (Caller::anonymous(), 3)]
    {
        assert_eq!(count(&gate, &who, Op::GetTask), expected, "{who:?}");
        let error = gate.admit(&who, Op::ListTasks).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        let wait = error.retry_after().unwrap();
        assert!(wait > Duration::from_secs(900) && wait <= Duration::from_secs(1000), "{wait:?}");
    }
}

#[test]
fn what_is_in_progress_counts_until_it_ends() {
    let limits = Limits { tasks: Some(2), streams: Some(3), ..Limits::default() };
    let gate = gate(&limits, &AgentLimits::default());
    let a = caller("a");
    for (op, expected) in [
        (Op::SendMessage, 2),
        (Op::SendStreamingMessage, 2),
        (Op::SubscribeToTask, 3),
        (Op::GetTask, 100),
        (Op::SendMessage, 2),
    ] {
        assert_eq!(count(&gate, &a, op), expected, "{op:?}");
    }
    let held: Vec<_> = (0..2).map(|_| gate.admit(&a, Op::SendStreamingMessage).unwrap()).collect();
    assert_eq!(count(&gate, &a, Op::SubscribeToTask), 1, "both count as streams, too");
    assert_eq!(count(&gate, &a, Op::SendMessage), 0);
    assert_eq!(count(&gate, &caller("b"), Op::SendMessage), 2, "others are not concerned");
    let error = gate.admit(&a, Op::SendMessage).err().unwrap();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    drop(held);
    assert_eq!(count(&gate, &a, Op::SendMessage), 2);
}

#[test]
fn an_agent_has_limits_for_all_callers_together() {
    let agent = AgentLimits { tasks: Some(3), ..AgentLimits::default() };
    let gate = gate(&Limits { tasks: Some(2), ..Limits::default() }, &agent);
    let _held = [
        gate.admit(&caller("a"), Op::SendMessage).unwrap(),
        gate.admit(&caller("a"), Op::SendMessage).unwrap(),
    ];
    assert_eq!(count(&gate, &caller("b"), Op::SendMessage), 1);
    let error = gate.admit(&caller("a"), Op::SendMessage).err().unwrap();
    assert!(error.message().contains("you"), "{error}");
    // What the agent refused, the caller has back.
    assert_eq!(count(&gate, &caller("b"), Op::SendMessage), 1);
}

#[test]
fn a_key_may_say_otherwise_and_change_its_mind() {
    let default_bounds = Limits { tasks: Some(1), rate: rate(2), ..Limits::default() };
    let special = |tasks| {
        HashMap::from([(
            CallerId::from(&caller("a")),
            ApiKeyLimits {
                tasks: Some(tasks),
                per_second: Some(1000.0),
                burst: Some(50),
                ..ApiKeyLimits::default()
            },
        )])
    };
    let callers = Arc::new(Callers::new(&default_bounds, &special(5)));
    let gate = Gate::new(&callers, &AgentLimits::default());
    assert_eq!(count(&gate, &caller("a"), Op::SendMessage), 5);
    assert_eq!(count(&gate, &caller("b"), Op::SendMessage), 1);
    callers.configure(&default_bounds, &special(7));
    assert_eq!(count(&gate, &caller("a"), Op::SendMessage), 7);
    assert_eq!(count(&gate, &caller("b"), Op::GetTask), 1, "who has the same as before goes on as before");
    callers.configure(&Limits::default(), &HashMap::new());
    assert_eq!(count(&gate, &caller("b"), Op::SendMessage), 100);
}

/// Keys of one principal in two tenants had the limits of whichever came last.
#[test]
fn a_key_says_it_for_its_own_tenant() {
    let tasks = |tasks| ApiKeyLimits { tasks: Some(tasks), ..ApiKeyLimits::default() };
    let callers = [caller("a"), caller("a").of_tenant("north"), caller("a").of_tenant("south")];
    let [none, north, _] = &callers;
    let special = HashMap::from([(CallerId::from(none), tasks(3)), (CallerId::from(north), tasks(5))]);
    let default_bounds = Limits { tasks: Some(1), ..Limits::default() };
    let gate = Gate::new(&Arc::new(Callers::new(&default_bounds, &special)), &AgentLimits::default());
    for (caller, expected) in callers.iter().zip([3, 5, 1]) {
        assert_eq!(count(&gate, caller, Op::SendMessage), expected, "{caller:?}");
    }
}

#[test]
fn nobody_begins_anything_while_the_hub_ends() {
    let callers = Arc::new(Callers::new(&Limits::default(), &HashMap::new()));
    let gate = Gate::new(&callers, &AgentLimits::default());
    callers.close();
    for op in Op::TABLE.iter().map(|row| row.op) {
        let begins = matches!(op, Op::SendMessage | Op::SendStreamingMessage);
        let refused = gate.admit(&caller("a"), op).err();
        assert_eq!(refused.as_ref().map(Error::kind), begins.then_some(ErrorKind::Unavailable), "{op:?}");
        assert_eq!(refused.is_some_and(|error| error.retry_after().is_some()), begins, "{op:?}");
    }
}

#[test]
fn who_does_not_come_is_forgotten_and_who_is_still_there_is_not() {
    let callers = Arc::new(Callers::new(&Limits { streams: Some(9), ..Limits::default() }, &HashMap::new()));
    let gate = Gate::new(&callers, &AgentLimits::default());
    for name in 0..100 {
        drop(gate.admit(&caller(&name.to_string()), Op::GetTask).unwrap());
    }
    let held = gate.admit(&caller("follows"), Op::SubscribeToTask).unwrap();
    let known = || callers.quotas.lock().len();
    callers.forget(Instant::now());
    assert_eq!(known(), 101);
    let later = Instant::now() + FORGET;
    callers.forget(later);
    assert_eq!(known(), 1);
    drop(held);
    callers.forget(later);
    assert_eq!(known(), 0);
}

/// As long as all callers are one, nothing is kept free for others.
#[test]
fn a_share_is_for_callers_that_are_told_apart() {
    let limits = |caller_share_percent| Limits { caller_share_percent, ..Limits::default() };
    let callers = Callers::new(&limits(25), &HashMap::new());
    let pool = CallerPool::new(8, callers.share().clone());
    let held = || std::iter::from_fn(|| pool.try_acquire(&(&caller("a")).into())).collect::<Vec<_>>().len();
    assert_eq!(held(), 8);
    callers.tell_apart(true);
    assert_eq!(held(), 6);
    callers.configure(&limits(50), &HashMap::new());
    assert_eq!(held(), 4);
    callers.configure(&limits(0), &HashMap::new());
    assert_eq!(held(), 8);
    callers.configure(&limits(25), &HashMap::new());
    callers.tell_apart(false);
    assert_eq!(held(), 8);
}
