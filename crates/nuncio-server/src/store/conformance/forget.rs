//! Checks of deletion: by age, and of everything of a caller.

use std::sync::Arc;

use nuncio_protocol::{Message, Part, Seq, TaskState};

use super::{Writer, at, commit_one, creation, events, key, opening, scope, stored, works};
use crate::store::{Commit, ErasureTarget, Prune, Pruned, Refused, Scope, Store, TaskQuery, TurnChange};

fn scope_of(agent: &str, tenant: Option<&str>, owner: Option<&str>) -> Arc<Scope> {
    Arc::new(Scope { agent: agent.into(), tenant: tenant.map(Into::into), owner: owner.map(Into::into) })
}

/// A task in this state since this time, with its id as its key.
async fn task(store: &Arc<dyn Store>, scope: &Arc<Scope>, id: &str, state: TaskState, when: i64) -> Writer {
    assert_eq!(commit_one(&**store, opening(scope, id, Some(key(id, 1)))).await, Ok(()), "{id}");
    let mut writer = Writer::open(store, scope, creation(id, "c-1", 1), Seq(1));
    writer.chunk("a", "x").await;
    writer.status(state, when).await;
    writer
}

async fn reply(store: &dyn Store, scope: &Arc<Scope>, name: &str, when: i64) {
    let reply = Arc::new(Message::agent("r", Part::text(name)));
    works(store.put_reply(scope, key(name, 1), reply, at(when)).await);
}

async fn prune(store: &dyn Store, agent: &str, what: Pruned, before: i64, limit: usize) -> usize {
    works(store.prune(&Prune { agent: agent.into(), what, before: at(before) }, limit).await)
}

/// Returns those of these tasks that exist; checks that log, list, totals and keys agree.
async fn left<'a>(store: &dyn Store, scope: &Scope, ids: &[&'a str]) -> Vec<&'a str> {
    let mut left = Vec::new();
    for id in ids {
        let there = stored(store, scope, &(*id).into()).await.is_some();
        assert_eq!(!events(store, scope, &(*id).into(), 0, 9).await.is_empty(), there, "the log of {id}");
        assert_eq!(works(store.idempotent_outcome(scope, id).await).is_some(), there, "the key of {id}");
        left.extend(there.then_some(*id));
    }
    counted(store, scope, left.len()).await;
    left
}

/// Checks that every total equals the length of its list, and that all states together have this many tasks.
async fn counted(store: &dyn Store, scope: &Scope, tasks: usize) {
    let mut sum = 0;
    for state in std::iter::once(None).chain(TaskState::ALL.iter().copied().map(Some)) {
        for context_id in [None, Some("c-1".into())] {
            let limit = 1_000;
            let query = TaskQuery { state, context_id, limit, count: true, ..TaskQuery::default() };
            let page = works(store.tasks(scope, &query).await);
            assert_eq!(page.total, Some(page.tasks.len()), "{query:?}");
            sum += page.tasks.len();
        }
    }
    assert_eq!(sum, 4 * tasks, "twice in the list of all, twice in that of a state");
}

/// Each state is pruned by itself; tasks of another agent, and younger ones, stay.
pub async fn tasks_are_pruned_by_state_agent_and_age(store: Arc<dyn Store>) {
    let (ann, other) = (scope("ann"), scope_of("other", None, Some("ann")));
    for (id, state, when) in [
        ("done-9", TaskState::Completed, 9),
        ("done-10", TaskState::Completed, 10),
        ("failed-9", TaskState::Failed, 9),
        ("asks-9", TaskState::InputRequired, 9),
    ] {
        task(&store, &ann, id, state, when).await;
    }
    task(&store, &other, "other-9", TaskState::Completed, 9).await;
    let all = ["done-9", "done-10", "failed-9", "asks-9"];
    assert_eq!(prune(&*store, "agent", Pruned::Tasks(TaskState::Completed), 9, 9).await, 0);
    assert_eq!(left(&*store, &ann, &all).await, all);
    assert_eq!(prune(&*store, "agent", Pruned::Tasks(TaskState::Completed), 10, 9).await, 1);
    assert_eq!(left(&*store, &ann, &all).await, ["done-10", "failed-9", "asks-9"]);
    assert_eq!(prune(&*store, "agent", Pruned::Tasks(TaskState::Completed), 10, 9).await, 0, "once");
    assert_eq!(prune(&*store, "agent", Pruned::Tasks(TaskState::InputRequired), 10, 9).await, 1);
    assert_eq!(prune(&*store, "agent", Pruned::Replies, 100, 9).await, 0, "keys of tasks are no replies");
    assert_eq!(left(&*store, &ann, &all).await, ["done-10", "failed-9"]);
    assert_eq!(left(&*store, &other, &["other-9"]).await, ["other-9"]);
}

/// The limit takes the oldest, over all callers of the agent.
pub async fn the_oldest_are_pruned_first(store: Arc<dyn Store>) {
    let scopes = [scope("ann"), scope("bob"), scope_of("agent", Some("acme"), None)];
    let plan = [
        (0, "t-50", 50),
        (1, "t-10", 10),
        (2, "t-30", 30),
        (0, "t-20", 20),
        (1, "t-40", 40),
        (2, "t-60", 60),
    ];
    for (i, id, when) in plan {
        task(&store, &scopes[i], id, TaskState::Completed, when).await;
        // The order of writing differs from that of the times.
        reply(&*store, &scopes[i], &format!("reply-{when}"), when).await;
    }
    let what = [Pruned::Tasks(TaskState::Completed), Pruned::Replies];
    assert_eq!(prune(&*store, "agent", what[0], 100, 0).await, 0);
    for (limit, gone, kept) in [(1, 1, 20), (2, 2, 40), (1, 1, 50), (9, 2, 70)] {
        for what in what {
            assert_eq!(prune(&*store, "agent", what, 100, limit).await, gone, "{what:?}, before {kept}");
        }
        for (i, id, when) in plan {
            let there = stored(&*store, &scopes[i], &id.into()).await.is_some();
            assert_eq!(there, when >= kept, "{id}, before {kept}");
            let answer = works(store.idempotent_outcome(&scopes[i], &format!("reply-{when}")).await);
            assert_eq!(answer.is_some(), when >= kept, "the reply of {when}, before {kept}");
        }
    }
}

/// Pain 15: a task in progress is never deleted, at any age.
pub async fn tasks_in_progress_are_never_pruned(store: Arc<dyn Store>) {
    let ann = scope("ann");
    task(&store, &ann, "working", TaskState::Working, 2).await;
    task(&store, &ann, "submitted", TaskState::Submitted, 2).await;
    // It was interrupted and continues, with a clock that jumped back.
    let mut again = task(&store, &ann, "again", TaskState::InputRequired, 5).await;
    again.caller_says("blue").await;
    again.status(TaskState::Working, 3).await;
    for state in TaskState::ALL {
        assert_eq!(prune(&*store, "agent", Pruned::Tasks(*state), 1_000, 9).await, 0, "{state}");
    }
    let all = ["working", "submitted", "again"];
    assert_eq!(left(&*store, &ann, &all).await, all);
    again.status(TaskState::Completed, 6).await;
    assert_eq!(prune(&*store, "agent", Pruned::Tasks(TaskState::Completed), 1_000, 9).await, 1);
    assert_eq!(left(&*store, &ann, &all).await, ["working", "submitted"]);
}

/// Deletion leaves no trace: the id and the keys can be used again.
pub async fn what_is_forgotten_leaves_no_trace(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let mut writer = task(&store, &ann, "t-1", TaskState::Working, 2).await;
    let queued = TurnChange::Queue(super::owner::turn("1"));
    assert_eq!(works(store.update_turn(&ann, &writer.task.id, queued).await), Ok(()));
    let mut later = writer.entry(writer.message_event("more", &[]));
    later.attached.idempotency = Some(key("later", 2));
    assert_eq!(writer.offer(later).await, Ok(()));
    writer.status(TaskState::Completed, 3).await;
    reply(&*store, &ann, "reply", 3).await;
    assert_eq!(prune(&*store, "agent", Pruned::Tasks(TaskState::Completed), 9, 9).await, 1);
    assert_eq!(prune(&*store, "agent", Pruned::Replies, 9, 9).await, 1);

    let entry = Commit { expected: writer.seq, ..opening(&ann, "t-1", None) };
    assert_eq!(commit_one(&*store, entry).await, Err(Refused::NotFound));
    let begin = TurnChange::Begin("1".into());
    assert_eq!(works(store.update_turn(&ann, &writer.task.id, begin).await), Err(Refused::NotFound));
    for name in ["t-1", "later", "reply"] {
        assert!(works(store.idempotent_outcome(&ann, name).await).is_none(), "{name}");
        let again = opening(&ann, &format!("new-{name}"), Some(key(name, 9)));
        assert_eq!(commit_one(&*store, again).await, Ok(()), "{name} is free");
    }
    let mut anew = task(&store, &scope("bob"), "t-1", TaskState::Working, 2).await;
    anew.status(TaskState::InputRequired, 3).await;
    let log = events(&*store, &anew.scope, &anew.task.id, 0, 99).await;
    assert_eq!(log.len() as u64, anew.seq.0, "nothing of the former");
    assert_eq!(stored(&*store, &anew.scope, &anew.task.id).await, Some((anew.task, anew.seq)));
}

/// The data of a caller is erased in any state; that of others stays.
pub async fn a_callers_data_is_erased(store: Arc<dyn Store>) {
    let scopes = [
        ("plain", scope_of("agent", None, Some("ann"))),
        ("acme", scope_of("agent", Some("acme"), Some("ann"))),
        ("empty", scope_of("agent", Some(""), Some("ann"))),
        ("other", scope_of("other", None, Some("ann"))),
        ("bob", scope_of("agent", Some("acme"), Some("bob"))),
        ("nobody", scope_of("agent", None, None)),
        ("blank", scope_of("agent", None, Some(""))),
    ];
    let whose = |agent: Option<&str>, tenant: Option<&str>, owner: Option<&str>| ErasureTarget {
        agent: agent.map(Into::into),
        tenant: tenant.map(Into::into),
        owner: owner.map(Into::into),
    };
    let cases: [(ErasureTarget, &[&str]); 8] = [
        (whose(None, None, Some("ann")), &["plain", "acme", "empty", "other"]),
        (whose(Some("agent"), None, Some("ann")), &["plain", "acme", "empty"]),
        (whose(None, Some("acme"), Some("ann")), &["acme"]),
        (whose(None, Some(""), Some("ann")), &["empty"]),
        (whose(Some("other"), Some("acme"), Some("ann")), &[]),
        (whose(None, None, None), &["nobody"]),
        (whose(None, None, Some("")), &["blank"]),
        (whose(None, None, Some("zoe")), &[]),
    ];
    for (whose, gone) in cases {
        for (name, scope) in &scopes {
            for (i, state) in TaskState::ALL.iter().copied().enumerate().skip(1) {
                task(&store, scope, &format!("{name}-{i}"), state, 2).await;
            }
            reply(&*store, scope, "reply", 1).await;
        }
        // Eight tasks and a reply of each.
        let (mut erased, all) = (0, gone.len() * TaskState::ALL.len());
        while erased < all {
            let step = works(store.erase(&whose, 7).await);
            assert!((1..=7).contains(&step), "{whose:?}: {step}");
            erased += step;
        }
        assert_eq!((erased, works(store.erase(&whose, 7).await)), (all, 0), "{whose:?}");
        for (name, scope) in &scopes {
            let there = !gone.contains(name);
            counted(&*store, scope, if there { 8 } else { 0 }).await;
            assert_eq!(
                works(store.idempotent_outcome(scope, "reply").await).is_some(),
                there,
                "{name}: {whose:?}"
            );
        }
        for (_, scope) in &scopes {
            let rest = ErasureTarget { agent: None, tenant: None, owner: scope.owner.clone() };
            works(store.erase(&rest, 1_000).await);
        }
    }
}

/// An owner that still writes to an erased task gets `NotFound`.
pub async fn an_erased_task_takes_no_more_entries(store: Arc<dyn Store>) {
    let mut writer = task(&store, &scope("ann"), "t-1", TaskState::Working, 2).await;
    let whose = ErasureTarget { agent: None, tenant: None, owner: Some("ann".into()) };
    assert_eq!(works(store.erase(&whose, 0).await), 0);
    assert_eq!(works(store.erase(&whose, 9).await), 1);
    let entry = writer.entry(writer.status_event(TaskState::Completed, 3));
    assert_eq!(writer.offer(entry).await, Err(Refused::NotFound));
    assert!(left(&*store, &scope("ann"), &["t-1"]).await.is_empty());
    assert!(works(store.adopt("agent", 9).await).is_empty());
}
