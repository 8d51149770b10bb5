//! Checks of operators' queries: tasks of all callers, and counts.

use std::{collections::BTreeMap, sync::Arc};

use nuncio_protocol::{Seq, TaskState};

use super::{Writer, at, stored, works};
use crate::store::{
    AdminTask, AdminTaskPage, AdminTaskQuery, ErasureTarget, Keyset, Prune, Pruned, Scope, Store, TaskCount,
};

const STATES: [TaskState; 4] =
    [TaskState::Working, TaskState::InputRequired, TaskState::Completed, TaskState::Failed];

fn scopes() -> Vec<Arc<Scope>> {
    let names = [
        ("a", None, None),
        ("a", None, Some("ann")),
        ("a", Some("x"), Some("ann")),
        ("b", None, Some("ann")),
        ("b\0", None, Some("")),
        ("c", None, Some("bob\0")),
    ];
    let scope = |(agent, tenant, owner): (&str, Option<&str>, Option<&str>)| {
        Arc::new(Scope { agent: agent.into(), tenant: tenant.map(Into::into), owner: owner.map(Into::into) })
    };
    names.into_iter().map(scope).collect()
}

/// Creates tasks of many callers in many states; returns the expected list.
async fn fill(store: &Arc<dyn Store>) -> Vec<AdminTask> {
    let mut wanted = Vec::new();
    for (i, scope) in scopes().iter().enumerate() {
        for (j, state) in STATES.into_iter().enumerate() {
            // Some times occur more than once.
            let (id, context, when) = (format!("t-{i}-{j}"), format!("c-{j}"), 10 + ((i + j) % 5) as i64);
            let mut writer = Writer::create(store, scope, &id, &context, 1).await;
            writer.chunk("a", "x").await;
            writer.status(state, when).await;
            wanted.push(AdminTask {
                scope: Arc::clone(scope),
                id: id.into(),
                context_id: context.into(),
                state,
                at: at(when),
                seq: Seq(3),
            });
        }
    }
    wanted.sort_by(|a, b| (b.at, &b.id).cmp(&(a.at, &a.id)));
    wanted
}

fn matches(query: &AdminTaskQuery, task: &AdminTask) -> bool {
    query.agent.as_ref().is_none_or(|agent| *agent == task.scope.agent)
        && query.owner.as_ref().is_none_or(|owner| Some(owner) == task.scope.owner.as_ref())
        && query.state.is_none_or(|state| state == task.state)
        && query.context_id.as_ref().is_none_or(|context| *context == task.context_id)
        && query.id_prefix.as_ref().is_none_or(|prefix| task.id.as_str().starts_with(prefix))
        && query.since.is_none_or(|since| task.at >= since)
        && query.before.is_none_or(|before| task.at < before)
}

/// Newest status first, over all callers, by every filter and in pages of every size.
pub async fn tasks_of_all_callers_are_listed(store: Arc<dyn Store>) {
    let all = fill(&store).await;
    let names = |names: &[&str]| -> Vec<Option<Arc<str>>> {
        names.iter().map(|name| Some(Arc::from(*name))).chain([None]).collect()
    };
    for agent in names(&["a", "b", "b\0", "none"]) {
        for owner in names(&["ann", "", "bob\0", "none"]) {
            for state in
                [None, Some(TaskState::Working), Some(TaskState::Completed), Some(TaskState::Rejected)]
            {
                for since in [None, Some(at(12)), Some(at(99))] {
                    let query = AdminTaskQuery {
                        agent: agent.clone(),
                        owner: owner.clone(),
                        state,
                        since,
                        ..AdminTaskQuery::default()
                    };
                    let wanted: Vec<AdminTask> =
                        all.iter().filter(|task| matches(&query, task)).cloned().collect();
                    for limit in [1, 5, 100] {
                        assert_eq!(pages(&*store, &query, limit).await, wanted, "{query:?} by {limit}");
                    }
                }
            }
        }
    }
    let none = works(store.all_tasks(&AdminTaskQuery::default()).await);
    assert_eq!(none, AdminTaskPage { tasks: Vec::new(), more: true }, "none were asked for");
}

/// The filters of an operator that looks for one conversation, one id or old tasks, alone and together.
pub async fn tasks_are_found_by_context_age_and_the_beginning_of_their_id(store: Arc<dyn Store>) {
    let all = fill(&store).await;
    // An id that ends a range of ids, and the one with the last character that can follow.
    for id in ["t-1\u{10ffff}", "t-2"] {
        Writer::create(&store, &all[0].scope, id, "c-1", 30).await;
    }
    let mut all = all;
    for id in ["t-2", "t-1\u{10ffff}"] {
        let task = AdminTask {
            id: id.into(),
            context_id: "c-1".into(),
            state: TaskState::Submitted,
            at: at(30),
            seq: Seq(1),
            scope: Arc::clone(&all[0].scope),
        };
        all.insert(usize::from(id != "t-2"), task);
    }
    for context in [None, Some("c-1"), Some("none")] {
        for prefix in
            [None, Some(""), Some("t-"), Some("t-1"), Some("t-1-3"), Some("t-1\u{10ffff}"), Some("T")]
        {
            for before in [None, Some(at(30)), Some(at(12)), Some(at(1))] {
                for (agent, state) in [(None, None), (Some("a"), None), (None, Some(TaskState::Working))] {
                    let query = AdminTaskQuery {
                        agent: agent.map(Into::into),
                        state,
                        context_id: context.map(Into::into),
                        id_prefix: prefix.map(str::to_owned),
                        before,
                        ..AdminTaskQuery::default()
                    };
                    let wanted: Vec<AdminTask> =
                        all.iter().filter(|task| matches(&query, task)).cloned().collect();
                    for limit in [1, 100] {
                        assert_eq!(pages(&*store, &query, limit).await, wanted, "{query:?} by {limit}");
                    }
                }
            }
        }
    }
}

/// The size of the data is known.
pub async fn the_size_of_the_data_is_known(store: Arc<dyn Store>) {
    fill(&store).await;
    assert!(works(store.size().await) > 0);
}

/// All pages of this size.
async fn pages(store: &dyn Store, query: &AdminTaskQuery, limit: usize) -> Vec<AdminTask> {
    let mut found: Vec<AdminTask> = Vec::new();
    loop {
        let after = found.last().map(|last| Keyset { timestamp: last.at, id: last.id.clone() });
        let page = works(store.all_tasks(&AdminTaskQuery { after, limit, ..query.clone() }).await);
        assert!(page.tasks.len() <= limit && (!page.more || page.tasks.len() == limit), "{query:?}");
        found.extend(page.tasks);
        if !page.more {
            return found;
        }
    }
}

/// The task is found with its scope, as its owner would see it.
pub async fn a_task_is_found_whoever_owns_it(store: Arc<dyn Store>) {
    for task in fill(&store).await {
        let found = works(store.find_task(&task.id).await);
        let found = found.map(|(scope, found)| (scope, found.task, found.seq));
        let own = stored(&*store, &task.scope, &task.id).await;
        assert_eq!(found, own.map(|(own, seq)| ((*task.scope).clone(), own, seq)), "{}", task.id);
    }
    assert!(works(store.find_task(&"none".into()).await).is_none());
}

fn counted(tasks: &[AdminTask]) -> Vec<TaskCount> {
    let mut counts: BTreeMap<(Arc<str>, TaskState), u64> = BTreeMap::new();
    for task in tasks {
        *counts.entry((Arc::clone(&task.scope.agent), task.state)).or_default() += 1;
    }
    counts.into_iter().map(|((agent, state), tasks)| TaskCount { agent, state, tasks }).collect()
}

/// The counts follow every change, and leave out deleted tasks.
pub async fn tasks_are_counted_by_agent_and_state(store: Arc<dyn Store>) {
    assert_eq!(works(store.count_tasks().await), []);
    let mut tasks = fill(&store).await;
    assert_eq!(works(store.count_tasks().await), counted(&tasks));
    let moving = tasks.iter_mut().find(|task| task.state == TaskState::Working);
    if let Some(task) = moving {
        let Some((whole, seq)) = stored(&*store, &task.scope, &task.id).await else { panic!("it is there") };
        let mut writer = Writer::open(&store, &task.scope, whole, seq);
        writer.status(TaskState::Canceled, 20).await;
        task.state = TaskState::Canceled;
    }
    assert_eq!(works(store.count_tasks().await), counted(&tasks));
    let prune = Prune { agent: "a".into(), what: Pruned::Tasks(TaskState::Completed), before: at(99) };
    assert_eq!(works(store.prune(&prune, 99).await), 3);
    tasks.retain(|task| &*task.scope.agent != "a" || task.state != TaskState::Completed);
    assert_eq!(works(store.count_tasks().await), counted(&tasks));
    let whose = ErasureTarget { agent: None, tenant: None, owner: Some("ann".into()) };
    assert!(works(store.erase(&whose, 99).await) > 0);
    tasks.retain(|task| !whose.is(&task.scope));
    assert_eq!(works(store.count_tasks().await), counted(&tasks));
}
