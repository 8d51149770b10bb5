//! Checks of names: any text can be an id, a key or a scope, and is stored unchanged.

use std::sync::Arc;

use nuncio_protocol::{Event, Message, Part, Seq, Task, TaskId, TaskState};

use super::{Writer, commit, commit_one, context, creation, events, key, opening, scope, stored, works};
use crate::store::{Commit, Keyset, Outcome, Scope, Store, TaskQuery};

/// Names that careless stores confuse, sorted by their bytes.
fn names() -> Vec<String> {
    let long: String = (0..500).map(|i: u32| char::from(b'a' + (i * i % 26) as u8)).collect();
    let mut names: Vec<String> = [
        "a",
        "A",
        "a ",
        " a",
        "B",
        "b",
        "_",
        "-",
        "10",
        "9",
        "é",
        "e\u{301}",
        "ß",
        "ss",
        "漢字",
        "🦀",
        "İ",
        "i",
        "it's",
        "\"quoted\"",
        "a%",
        "a_",
        "a\\",
        "a;--",
        "$1",
        "?",
        ":id",
        "null",
        "a\nb",
        "a\tb",
        "../a",
        "a\0b",
        "a\0",
    ]
    .map(Into::into)
    .to_vec();
    names.extend([format!("{long}x"), format!("{long}y")]);
    names.sort_unstable();
    names
}

/// Task ids are compared and ordered by their bytes: no collation, no case folding, no patterns.
pub async fn ids_are_told_apart_and_ordered_by_their_bytes(store: Arc<dyn Store>) {
    let (ann, names) = (scope("ann"), names());
    // All have the same status time, so that the id decides.
    let batch = names.iter().map(|name| opening(&ann, name, None)).collect();
    assert!(commit(&*store, batch).await.iter().all(Result::is_ok));
    let mut query = TaskQuery { limit: 4, count: true, ..TaskQuery::default() };
    for state in [None, Some(TaskState::Submitted)] {
        for context_id in [None, Some(context("c-1"))] {
            (query.state, query.context_id, query.after) = (state, context_id, None);
            let mut listed: Vec<TaskId> = Vec::new();
            loop {
                let page = works(store.tasks(&ann, &query).await);
                assert_eq!(page.total, Some(names.len()));
                listed.extend(page.tasks.iter().map(|task| task.id.clone()));
                query.after =
                    page.tasks.last().map(|task| Keyset { timestamp: super::at(1), id: task.id.clone() });
                if !page.more {
                    break;
                }
            }
            assert!(
                listed.iter().map(TaskId::as_str).eq(names.iter().rev().map(String::as_str)),
                "{listed:?}"
            );
        }
    }
    for name in &names {
        let id: TaskId = name.as_str().into();
        let (task, seq) = stored(&*store, &ann, &id).await.unwrap_or_default();
        assert_eq!((task.id.as_str(), seq), (name.as_str(), Seq(1)));
        assert_eq!(events(&*store, &ann, &id, 0, 9).await.len(), 1, "{name:?}");
    }
    assert_eq!(stored(&*store, &ann, &"".into()).await, None);
}

/// Contexts and idempotency keys, which callers choose freely.
pub async fn contexts_and_keys_are_told_apart_by_their_bytes(store: Arc<dyn Store>) {
    let (ann, names) = (scope("ann"), names());
    for (i, name) in names.iter().enumerate() {
        let id = format!("t-{i}");
        let event = Arc::new(Event::Task(creation(&id, name, 1)));
        let entry = Commit { event, ..opening(&ann, &id, Some(key(name, i as u8))) };
        assert_eq!(commit_one(&*store, entry).await, Ok(()), "{name:?}");
    }
    for (i, name) in names.iter().enumerate() {
        let id = format!("t-{i}");
        let context_id = Some(context(name));
        let query = TaskQuery { context_id, limit: 9, count: true, ..TaskQuery::default() };
        let page = works(store.tasks(&ann, &query).await);
        assert_eq!((page.tasks.as_slice(), page.total), (&[creation(&id, name, 1)][..], Some(1)), "{name:?}");
        let answer = works(store.idempotent_outcome(&ann, name).await);
        let found = answer.map(|answer| (answer.digest[0] as usize, answer.outcome));
        assert!(matches!(found, Some((digest, Outcome::Task(task))) if digest == i && task.as_str() == id));
    }
}

/// Agent, tenant and caller are three separate names, and an absent name differs from an empty one.
pub async fn scopes_are_told_apart_by_each_of_their_names(store: Arc<dyn Store>) {
    let optional = [None, Some(""), Some("a"), Some("A"), Some("a:b"), Some("é"), Some("it's"), Some("null")];
    let mut scopes = Vec::new();
    for agent in ["", "a", "A", "a:b"] {
        for tenant in optional {
            for owner in optional {
                let (tenant, owner) = (tenant.map(Into::into), owner.map(Into::into));
                scopes.push(Arc::new(Scope { agent: agent.into(), tenant, owner }));
            }
        }
    }
    let opened = scopes.iter().enumerate();
    let batch = opened.map(|(i, scope)| opening(scope, &format!("t-{i}"), Some(key("k", 1)))).collect();
    assert!(commit(&*store, batch).await.iter().all(Result::is_ok), "keys are of their scope");
    for (i, scope) in scopes.iter().enumerate() {
        let query = TaskQuery { limit: 9, count: true, ..TaskQuery::default() };
        let page = works(store.tasks(scope, &query).await);
        let ids: Vec<&str> = page.tasks.iter().map(|task| task.id.as_str()).collect();
        assert_eq!((ids, page.total), (vec![format!("t-{i}").as_str()], Some(1)), "{scope:?}");
        let next = format!("t-{}", (i + 1) % scopes.len());
        assert_eq!(stored(&*store, scope, &next.as_str().into()).await, None, "{scope:?}");
        let answer = works(store.idempotent_outcome(scope, "k").await).map(|answer| answer.outcome);
        assert!(matches!(answer, Some(Outcome::Task(id)) if id.as_str() == format!("t-{i}")), "{scope:?}");
    }
}

/// A caller may refer to any text, without harm to its own task or to others in the batch.
pub async fn strange_references_harm_nobody(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let noise: String = (0..20_000).map(|i: u32| char::from(b'!' + (i * i / 7 % 90) as u8)).collect();
    let strange = ["", "\0", "it's", noise.as_str(), "t-1", "t-2", "t-2"];
    let mut task = creation("t-1", "c-1", 1);
    task.history = vec![Arc::new(Message {
        reference_task_ids: strange.iter().map(|id| TaskId::from(*id)).collect(),
        ..Message::user("m-1", Part::text("\0"))
    })];
    let event = Arc::new(Event::Task(task.clone()));
    let batch = vec![
        opening(&ann, "t-0", None),
        Commit { event, ..opening(&ann, "t-1", None) },
        opening(&ann, "t-2", None),
    ];
    assert_eq!(commit(&*store, batch).await, [Ok(()), Ok(()), Ok(())]);
    assert_eq!(stored(&*store, &ann, &"t-1".into()).await, Some((task, Seq(1))));
    let parents = works(store.links(&ann, &"t-1".into()).await).parents;
    assert!(parents.contains(&"t-2".into()), "{parents:?}");
}

/// Times that are equal, go backwards, or precede the epoch.
pub async fn any_moment_has_its_place_in_the_list(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let moments =
        [0, -1, 1, 1, -62_135_596_800_000, 253_400_000_000_000, 1, 0, 1_700_000_000_001, 1_700_000_000_000];
    let mut tasks: Vec<Task> = Vec::new();
    for (i, moment) in moments.into_iter().enumerate() {
        let mut writer = Writer::create(&store, &ann, &format!("t-{i}"), "c-1", 1_000_000).await;
        writer.status([TaskState::Working, TaskState::Completed][i % 2], moment).await;
        tasks.push(writer.task);
    }
    tasks.sort_by(|a, b| (b.status.timestamp, &b.id).cmp(&(a.status.timestamp, &a.id)));
    for (place, task) in tasks.iter().enumerate() {
        let since = task.status.timestamp;
        let after = since.map(|timestamp| Keyset { timestamp, id: task.id.clone() });
        let query = TaskQuery { after, limit: 99, count: true, ..TaskQuery::default() };
        let page = works(store.tasks(&ann, &query).await);
        assert_eq!((page.tasks.as_slice(), page.total), (&tasks[place + 1..], Some(tasks.len())));
        let query = TaskQuery { since, limit: 99, count: true, ..TaskQuery::default() };
        let wanted: Vec<Task> = tasks.iter().filter(|task| task.status.timestamp >= since).cloned().collect();
        let page = works(store.tasks(&ann, &query).await);
        assert_eq!((page.total, page.tasks), (Some(wanted.len()), wanted));
    }
}
