//! Checks of lists: order, filters, pages, totals.

use std::{collections::HashMap, sync::Arc};

use nuncio_protocol::{Event, Seq, Task, TaskState};

use super::{Writer, at, commit, context, creation, opening, scope};
use crate::store::{Commit, Keyset, Scope, Store, TaskPage, TaskQuery};

/// Tasks in every phase: finished, interrupted and in progress, some with equal times.
async fn some_tasks(store: &Arc<dyn Store>, scope: &Arc<Scope>) -> Vec<Writer> {
    let plan = [
        ("t-a", "c-1", TaskState::Completed, 10),
        ("t-b", "c-1", TaskState::Working, 20),
        ("t-c", "c-2", TaskState::Completed, 20),
        ("t-d", "c-1", TaskState::InputRequired, 20),
        ("t-e", "c-2", TaskState::Failed, 30),
        ("t-f", "c-1", TaskState::Completed, 40),
        ("t-g", "c-2", TaskState::Working, 5),
        ("t-h", "c-2", TaskState::AuthRequired, 40),
        ("t-i", "c-1", TaskState::Canceled, 7),
    ];
    let mut writers = Vec::new();
    for (id, context_id, state, when) in plan {
        let mut writer = Writer::create(store, scope, id, context_id, 1).await;
        writer.chunk("a", "x").await;
        writer.status(state, when).await;
        writers.push(writer);
    }
    writers.push(Writer::create(store, scope, "t-j", "c-2", 15).await);
    writers
}

/// The expected list, computed naively.
fn expected(writers: &[Writer], query: &TaskQuery) -> Vec<Task> {
    let mut tasks: Vec<Task> = writers.iter().map(|writer| writer.task.clone()).collect();
    tasks.retain(|task| {
        query.context_id.as_ref().is_none_or(|wanted| *wanted == task.context_id)
            && query.state.is_none_or(|wanted| wanted == task.status.state)
            && query.since.is_none_or(|since| task.status.timestamp >= Some(since))
    });
    tasks.sort_by(|a, b| (b.status.timestamp, &b.id).cmp(&(a.status.timestamp, &a.id)));
    tasks
}

#[expect(clippy::expect_used, reason = "a check of the contract, not of failures")]
async fn page(store: &dyn Store, scope: &Scope, query: &TaskQuery) -> TaskPage {
    let page = store.tasks(scope, query).await.expect("the store works");
    assert!(page.tasks.len() <= query.limit, "more than asked for");
    assert_eq!(page.total.is_some(), query.count, "counted if and only if asked for");
    page
}

fn place(task: &Task) -> Option<Keyset> {
    Some(Keyset { timestamp: task.status.timestamp?, id: task.id.clone() })
}

fn ids(tasks: &[Task]) -> Vec<&str> {
    tasks.iter().map(|task| task.id.as_str()).collect()
}

/// REQ-118: sorted by the time of the status, newest first, then by id.
pub async fn the_list_is_newest_status_first_then_by_id(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let mut writers = some_tasks(&store, &ann).await;
    let all = TaskQuery { limit: 100, ..TaskQuery::default() };
    let listed = page(&*store, &ann, &all).await.tasks;
    assert_eq!(ids(&listed), ["t-h", "t-f", "t-e", "t-d", "t-c", "t-b", "t-j", "t-a", "t-i", "t-g"]);
    assert_eq!(listed, expected(&writers, &all), "whole tasks");

    // A new status moves a task, an artifact does not.
    writers[6].status(TaskState::Completed, 50).await;
    writers[3].caller_says("blue").await;
    writers[3].status(TaskState::Working, 45).await;
    writers[1].chunk("a", "y").await;
    assert_eq!(page(&*store, &ann, &all).await.tasks, expected(&writers, &all));
}

/// REQ-123 to REQ-125: every filter alone and every combination, the time inclusive (trap T-26).
pub async fn filters_narrow_alone_and_together(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let writers = some_tasks(&store, &ann).await;
    let contexts = [None, Some("c-1"), Some("c-2"), Some("c-unknown")];
    let times = [None, Some(0), Some(20), Some(21), Some(1_000)];
    for context_id in contexts {
        for state in std::iter::once(None).chain(TaskState::ALL.iter().copied().map(Some)) {
            for since in times {
                let query = TaskQuery {
                    context_id: context_id.map(context),
                    state,
                    since: since.map(at),
                    limit: 100,
                    count: true,
                    ..TaskQuery::default()
                };
                let (found, wanted) = (page(&*store, &ann, &query).await, expected(&writers, &query));
                assert_eq!(ids(&found.tasks), ids(&wanted), "{query:?}");
                assert_eq!((found.total, found.more), (Some(wanted.len()), false), "{query:?}");
            }
        }
    }
}

/// A cursor from before the filter's time must not cause a panic.
pub async fn a_cursor_beyond_the_time_filter_gives_an_empty_page(store: Arc<dyn Store>) {
    let ann = scope("ann");
    some_tasks(&store, &ann).await;
    let after = Some(Keyset { timestamp: at(10), id: "t-a".into() });
    for context_id in [None, Some(context("c-1"))] {
        for state in [None, Some(TaskState::Completed)] {
            for since in [10, 11, 30] {
                let query = TaskQuery {
                    context_id: context_id.clone(),
                    state,
                    since: Some(at(since)),
                    after: after.clone(),
                    limit: 10,
                    ..TaskQuery::default()
                };
                let page = page(&*store, &ann, &query).await;
                assert_eq!((ids(&page.tasks), page.more), (Vec::new(), false), "{query:?}");
            }
        }
    }
}

/// REQ-119 for tasks that do not change, with and without filters.
pub async fn every_page_size_shows_each_task_exactly_once(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let writers = some_tasks(&store, &ann).await;
    for context_id in [None, Some(context("c-1"))] {
        for state in [None, Some(TaskState::Completed)] {
            for limit in 1..=writers.len() + 1 {
                let query =
                    TaskQuery { context_id: context_id.clone(), state, limit, ..TaskQuery::default() };
                let wanted = expected(&writers, &query);
                assert_eq!(walk(&*store, &ann, query.clone()).await, wanted, "{query:?}");
            }
        }
    }
}

async fn walk(store: &dyn Store, scope: &Scope, mut query: TaskQuery) -> Vec<Task> {
    let mut tasks = Vec::new();
    loop {
        let page = page(store, scope, &query).await;
        query.after = page.tasks.last().and_then(place);
        assert!(!page.more || query.after.is_some(), "more after an empty page");
        tasks.extend(page.tasks);
        if !page.more {
            return tasks;
        }
    }
}

/// Product table, `ListTasks`: a task that does not change between the pages appears exactly once.
pub async fn unchanged_tasks_are_listed_once_while_others_change(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let mut writers = some_tasks(&store, &ann).await;
    let restless = ["t-b", "t-d", "t-g", "t-j"];
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut query = TaskQuery { limit: 2, ..TaskQuery::default() };
    let mut when = 15;
    loop {
        let page = page(&*store, &ann, &query).await;
        for task in &page.tasks {
            *seen.entry(task.id.to_string()).or_default() += 1;
        }
        query.after = page.tasks.last().and_then(place);
        if !page.more {
            break;
        }
        for writer in writers.iter_mut().filter(|writer| restless.contains(&writer.task.id.as_str())) {
            when += 1;
            writer.status(TaskState::Working, when).await;
        }
        Writer::create(&store, &ann, &format!("t-new-{when}"), "c-1", when).await;
    }
    for writer in &writers {
        let id = writer.task.id.as_str();
        if !restless.contains(&id) {
            assert_eq!(seen.get(id), Some(&1), "{id} in {seen:?}");
        }
    }
}

/// REQ-127: totals count before paging and after filtering.
pub async fn totals_count_every_match_whatever_the_page(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let writers = some_tasks(&store, &ann).await;
    Writer::create(&store, &scope("bob"), "t-z", "c-1", 1).await;
    for state in [None, Some(TaskState::Completed), Some(TaskState::Working)] {
        for context_id in [None, Some(context("c-1"))] {
            let after = [None, Some(Keyset { timestamp: at(20), id: "t-c".into() })];
            for after in after {
                let query = TaskQuery {
                    state,
                    context_id: context_id.clone(),
                    after,
                    limit: 1,
                    count: true,
                    ..TaskQuery::default()
                };
                let total = page(&*store, &ann, &query).await.total;
                assert_eq!(total, Some(expected(&writers, &query).len()), "{query:?}");
            }
        }
    }
}

/// Two thousand tasks in all states: every filter and every page size agrees with the naive list.
pub async fn pages_and_totals_hold_over_many_tasks(store: Arc<dyn Store>) {
    const TASKS: i64 = 2_000;
    let ann = scope("ann");
    let mut writers = Vec::new();
    for first in (0..TASKS).step_by(200) {
        let mut batch = Vec::new();
        for i in first..first + 200 {
            // Ten tasks share a time; tasks adjacent in time are not adjacent by id.
            let (id, when) = (format!("t-{:04}", i * 7 % TASKS), i / 10);
            let created = creation(&id, &format!("c-{}", i % 5), when);
            batch.push(Commit { event: Arc::new(Event::Task(created.clone())), ..opening(&ann, &id, None) });
            let mut writer = Writer::open(&store, &ann, created, Seq(1));
            let state = TaskState::ALL[1 + (i / 3 % 8) as usize];
            if state != TaskState::Submitted {
                let entry = writer.entry(writer.status_event(state, when));
                writer.advance(&entry.event);
                batch.push(entry);
            }
            writers.push(writer);
        }
        assert!(commit(&*store, batch).await.iter().all(Result::is_ok));
    }
    for limit in [9, 100, 333, 1_999, 2_000, 5_000] {
        let query = TaskQuery { limit, ..TaskQuery::default() };
        assert!(walk(&*store, &ann, query.clone()).await == expected(&writers, &query), "{query:?}");
    }
    for context_id in [None, Some("c-0"), Some("c-3")] {
        for state in std::iter::once(None).chain(TaskState::ALL.iter().copied().map(Some)) {
            for since in [None, Some(60), Some(150)] {
                let (context_id, since) = (context_id.map(context), since.map(at));
                let query =
                    TaskQuery { context_id, state, since, limit: 90, count: true, ..TaskQuery::default() };
                let wanted = expected(&writers, &query);
                let first = page(&*store, &ann, &query).await;
                assert_eq!(first.total, Some(wanted.len()), "{query:?}");
                let query = TaskQuery { count: false, ..query };
                assert!(walk(&*store, &ann, query.clone()).await == wanted, "{query:?}");
            }
        }
    }
}

const MIB: usize = 1024 * 1024;

/// Large content in one chunk and in many, in ended tasks and in others: a page has as many tasks as fit, and
/// at least one.
pub async fn a_page_ends_with_its_bytes(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let mut all = Vec::new();
    for number in 0..30 {
        let id = format!("t-{number:02}");
        let mut writer = Writer::create(&store, &ann, &id, "c-1", 1).await;
        // One of them is larger than a page.
        let bytes = if number == 17 { 6 * MIB } else { MIB };
        match number % 3 {
            0 => writer.chunk("a", &"x".repeat(bytes)).await,
            _ => {
                for _ in 0..bytes / (32 * 1024) {
                    writer.chunk("a", &"x".repeat(32 * 1024)).await;
                }
            }
        }
        let state = if number % 3 == 2 { TaskState::Working } else { TaskState::Completed };
        writer.status(state, 2 + number).await;
        all.push(id);
    }
    all.reverse();
    for without_artifacts in [false, true] {
        let mut query = TaskQuery {
            limit: 100,
            max_bytes: Some(4 * MIB),
            count: true,
            without_artifacts,
            ..TaskQuery::default()
        };
        let mut walked = Vec::new();
        loop {
            let page = page(&*store, &ann, &query).await;
            assert_eq!(page.total, Some(30), "of all pages");
            let texts =
                page.tasks.iter().flat_map(|task| &task.artifacts).map(|artifact| artifact.text().len());
            let bytes: usize = texts.sum();
            assert!(bytes <= 4 * MIB || page.tasks.len() == 1, "{bytes} bytes of {} tasks", page.tasks.len());
            walked.extend(page.tasks.iter().map(|task| task.id.to_string()));
            assert!(!page.tasks.is_empty(), "an empty page after {walked:?}");
            assert_eq!(page.more, walked.len() < all.len(), "after {walked:?}");
            if !page.more {
                break;
            }
            query.after = page.tasks.last().and_then(place);
        }
        assert_eq!(walked, all, "each once, in order; without artifacts: {without_artifacts}");
    }
}

/// The newest tasks of a conversation but for one, without a gap, as far as there is room for them.
pub async fn a_strict_page_ends_before_what_does_not_fit(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let plan = [("t-1", 1), ("t-2", 300), ("t-3", 60), ("t-4", 60), ("t-5", 900)];
    // Tasks of which there are snapshots, and tasks that are told by their logs.
    for state in [TaskState::Completed, TaskState::Working] {
        let context_id = format!("c-{state}");
        for (when, (id, kib)) in (1..).zip(plan) {
            let mut writer = Writer::create(&store, &ann, &format!("{id}-{state}"), &context_id, 1).await;
            for _ in 0..kib / 30 {
                writer.chunk("a", &"x".repeat(30 * 1024)).await;
            }
            writer.status(state, when).await;
        }
        // Kept apart.
        let mut newest = Writer::create(&store, &ann, &format!("t-6-{state}"), &context_id, 9).await;
        newest.chunk("a", &"x".repeat(400 * 1024)).await;
        let query = |kib: usize| TaskQuery {
            context_id: Some(context(&context_id)),
            limit: 10,
            max_bytes: Some(kib * 1024),
            strict_bytes: true,
            count: true,
            ..TaskQuery::default()
        };
        for (except, kib, expected) in [
            (None, 2_000, &["t-6", "t-5", "t-4", "t-3", "t-2", "t-1"][..]),
            (None, 450, &["t-6"]),
            (None, 350, &[]),
            (Some("t-6"), 2_000, &["t-5", "t-4", "t-3", "t-2", "t-1"]),
            (Some("t-6"), 950, &["t-5"]),
            // Smaller ones behind the one that does not fit are not shown in its place.
            (Some("t-6"), 500, &[]),
            (Some("t-5"), 600, &["t-6", "t-4", "t-3"]),
        ] {
            let except = except.map(|id| format!("{id}-{state}").as_str().into());
            let all = 6 - usize::from(except.is_some());
            let page = page(&*store, &ann, &TaskQuery { except, ..query(kib) }).await;
            let expected: Vec<String> = expected.iter().map(|id| format!("{id}-{state}")).collect();
            assert_eq!(ids(&page.tasks), expected, "{kib}");
            assert_eq!((page.more, page.total), (expected.len() < all, Some(6)), "{kib} {expected:?}");
        }
        if state.is_terminal() {
            let lean =
                TaskQuery { except: Some(newest.task.id.clone()), without_artifacts: true, ..query(100) };
            assert_eq!(page(&*store, &ann, &lean).await.tasks.len(), 5, "what is not shown takes no room");
        }
    }
}

/// Exact up to the bound; beyond it a store may estimate, says so, and is not far off where tasks came evenly.
pub async fn a_total_is_exact_up_to_its_bound(store: Arc<dyn Store>) {
    const TASKS: usize = 120;
    let ann = scope("ann");
    for number in 0..TASKS {
        let context = format!("c-{}", number % 2);
        let mut writer = Writer::create(&store, &ann, &format!("t-{number:03}"), &context, 1).await;
        let state = if number % 4 < 2 { TaskState::Completed } else { TaskState::Failed };
        writer.status(state, 1_000 + number as i64).await;
    }
    let contexts = [None, Some(context("c-0"))];
    let states = [None, Some(TaskState::Completed)];
    for context_id in &contexts {
        for state in states {
            for since in [None, Some(at(1)), Some(at(1_020)), Some(at(1_110))] {
                for max_counted in [None, Some(TASKS), Some(20)] {
                    let query = TaskQuery {
                        context_id: context_id.clone(),
                        state,
                        since,
                        limit: 1,
                        count: true,
                        max_counted,
                        ..TaskQuery::default()
                    };
                    let matches = |number: &usize| {
                        (context_id.is_none() || number.is_multiple_of(2))
                            && (state.is_none() || number % 4 < 2)
                            && since.is_none_or(|since| at(1_000 + *number as i64) >= since)
                    };
                    let wanted = (0..TASKS).filter(matches).count();
                    let found = page(&*store, &ann, &query).await;
                    let total = found.total.unwrap_or_default();
                    if found.is_estimate {
                        assert!(max_counted == Some(20) && wanted >= 20, "{query:?}");
                        assert!(
                            total * 5 >= wanted * 4 && total * 4 <= wanted * 5,
                            "{total} of {wanted} {query:?}"
                        );
                    } else {
                        assert_eq!(total, wanted, "{query:?}");
                    }
                }
            }
        }
    }
}
