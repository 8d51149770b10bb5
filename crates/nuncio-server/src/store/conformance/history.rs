//! Checks of the times of entries, and of links between tasks.

use std::sync::Arc;

use nuncio_protocol::{Event, Message, Part, TaskId, TaskState};

use super::{Writer, at, commit_one, creation, opening, scope, works};
use crate::store::{Commit, Links, MAX_CHILDREN, Prune, Pruned, Scope, Store};

/// Each entry keeps the time given with it, even if the clock jumps.
pub async fn each_entry_has_its_own_time(store: Arc<dyn Store>) {
    // REQ-014: times have milliseconds. The clock jumps back, and stands still.
    let moments = [1_700_000_000_123, 1_700_000_000_124, 5, -7_000, 1_700_000_000_124, 0];
    let ann = scope("ann");
    let opened = Commit { at: at(moments[0]), ..opening(&ann, "t-1", None) };
    assert_eq!(commit_one(&*store, opened).await, Ok(()));
    let mut writer = Writer::open(&store, &ann, creation("t-1", "c-1", 1), nuncio_protocol::Seq(1));
    for moment in &moments[1..] {
        let entry = Commit { at: at(*moment), ..writer.entry(writer.chunk_event("a", "x")) };
        assert_eq!(writer.offer(entry).await, Ok(()));
    }
    for after in 0..moments.len() {
        let page = works(store.events(&ann, &writer.task.id, nuncio_protocol::Seq(after as u64), 2).await);
        let told: Vec<_> = page.iter().map(|entry| entry.at).collect();
        let wanted: Vec<_> = moments[after..].iter().take(2).map(|moment| at(*moment)).collect();
        assert_eq!(told, wanted, "after {after}");
    }
}

/// Creates a task whose first message refers to others.
async fn refers(store: &Arc<dyn Store>, scope: &Arc<Scope>, id: &str, to: &[&str]) -> Writer {
    let mut task = creation(id, "c-1", 1);
    task.history = vec![Arc::new(Message {
        reference_task_ids: to.iter().map(|id| TaskId::from(*id)).collect(),
        ..Message::user("m-1", Part::text("hello"))
    })];
    let entry = Commit { event: Arc::new(Event::Task(task.clone())), ..opening(scope, id, None) };
    let mut writer = Writer::open(store, scope, task, nuncio_protocol::Seq::ZERO);
    assert_eq!(writer.offer(entry).await, Ok(()));
    writer
}

async fn links(store: &dyn Store, scope: &Scope, id: &str) -> (Vec<String>, Vec<String>) {
    let Links { parents, children } = works(store.links(scope, &id.into()).await);
    let text = |ids: Vec<TaskId>| ids.iter().map(ToString::to_string).collect();
    (text(parents), text(children))
}

fn linked(parents: &[&str], children: &[&str]) -> (Vec<String>, Vec<String>) {
    let text = |ids: &[&str]| ids.iter().map(ToString::to_string).collect();
    (text(parents), text(children))
}

/// References in callers' messages link tasks in both directions, each link once, in the order of ids.
pub async fn references_link_tasks_both_ways(store: Arc<dyn Store>) {
    let ann = scope("ann");
    for id in ["t-1", "t-2", "t-3"] {
        refers(&store, &ann, id, &[]).await;
    }
    let mut child = refers(&store, &ann, "t-9", &["t-2", "t-1", "t-2", "t-unknown"]).await;
    refers(&store, &ann, "t-8", &["t-1"]).await;
    assert_eq!(links(&*store, &ann, "t-9").await, linked(&["t-1", "t-2"], &[]));
    assert_eq!(links(&*store, &ann, "t-1").await, linked(&[], &["t-8", "t-9"]));
    assert_eq!(links(&*store, &ann, "t-2").await, linked(&[], &["t-9"]));
    assert_eq!(links(&*store, &ann, "t-unknown").await, linked(&[], &[]));

    // Later messages count as well, and a settled task keeps its links.
    child.status(TaskState::InputRequired, 2).await;
    let said = child.message_event("also", &["t-3", "t-1"]);
    child.append(said).await;
    child.status(TaskState::Completed, 3).await;
    assert_eq!(links(&*store, &ann, "t-9").await, linked(&["t-1", "t-2", "t-3"], &[]));
    assert_eq!(links(&*store, &ann, "t-3").await, linked(&[], &["t-9"]));

    // A reference may precede its task.
    refers(&store, &ann, "t-unknown", &[]).await;
    assert_eq!(links(&*store, &ann, "t-9").await, linked(&["t-1", "t-2", "t-3", "t-unknown"], &[]));
    assert_eq!(links(&*store, &ann, "t-unknown").await, linked(&[], &["t-9"]));
}

/// Refused entries and messages of the agent create no links.
pub async fn only_what_callers_said_links(store: Arc<dyn Store>) {
    let ann = scope("ann");
    refers(&store, &ann, "t-1", &[]).await;
    let mut writer = refers(&store, &ann, "t-2", &[]).await;
    let late =
        Commit { expected: nuncio_protocol::Seq(9), ..writer.entry(writer.message_event("x", &["t-1"])) };
    assert!(writer.offer(late).await.is_err());
    let said =
        Message { reference_task_ids: vec!["t-1".into()], ..Message::agent("m-2", Part::text("as in t-1")) };
    let Event::StatusUpdate(mut status) = writer.status_event(TaskState::Completed, 2) else { return };
    status.status.message = Some(Arc::new(said));
    writer.append(Event::StatusUpdate(status)).await;
    assert_eq!(links(&*store, &ann, "t-1").await, linked(&[], &[]));
    assert_eq!(links(&*store, &ann, "t-2").await, linked(&[], &[]));
}

/// REQ-087: a reference to a task of another caller is visible to neither.
pub async fn links_stay_in_their_scope(store: Arc<dyn Store>) {
    let (ann, bob) = (scope("ann"), scope("bob"));
    refers(&store, &ann, "t-ann", &["t-bob"]).await;
    refers(&store, &bob, "t-bob", &["t-ann"]).await;
    for scope in [&ann, &bob] {
        for id in ["t-ann", "t-bob"] {
            assert_eq!(links(&*store, scope, id).await, linked(&[], &[]), "{id} for {scope:?}");
        }
    }
}

/// Links are deleted with either of the tasks.
pub async fn links_are_forgotten_with_their_tasks(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let mut parent = refers(&store, &ann, "t-1", &[]).await;
    let mut child = refers(&store, &ann, "t-2", &["t-1"]).await;
    refers(&store, &ann, "t-3", &["t-1", "t-2"]).await;
    let forget = async |state| {
        let prune = Prune { agent: "agent".into(), what: Pruned::Tasks(state), before: at(100) };
        assert_eq!(works(store.prune(&prune, 9).await), 1);
    };
    child.status(TaskState::Completed, 2).await;
    forget(TaskState::Completed).await;
    assert_eq!(links(&*store, &ann, "t-1").await, linked(&[], &["t-3"]));
    assert_eq!(links(&*store, &ann, "t-2").await, linked(&[], &[]));
    assert_eq!(links(&*store, &ann, "t-3").await, linked(&["t-1"], &[]));
    // Another task under the same id inherits nothing.
    refers(&store, &ann, "t-2", &[]).await;
    assert_eq!(links(&*store, &ann, "t-1").await, linked(&[], &["t-3"]));
    parent.status(TaskState::Failed, 3).await;
    forget(TaskState::Failed).await;
    assert!(!links(&*store, &ann, "t-3").await.0.contains(&"t-1".to_owned()));
}

/// The number of children returned is limited, so that a task with very many is read at a bounded cost.
pub async fn children_are_told_up_to_a_number(store: Arc<dyn Store>) {
    let ann = scope("ann");
    refers(&store, &ann, "t-0", &[]).await;
    let child = |i: usize| {
        let mut commit = opening(&ann, &format!("t-child-{i:04}"), None);
        let mut task = creation(commit.task_id.as_str(), "c-1", 1);
        let said = Message { reference_task_ids: vec!["t-0".into()], ..Message::user("m", Part::text("x")) };
        task.history = vec![Arc::new(said)];
        commit.event = Arc::new(Event::Task(task));
        commit
    };
    let results = super::commit(&*store, (0..MAX_CHILDREN + 5).map(child).collect()).await;
    assert!(results.iter().all(Result::is_ok));
    let (_, children) = links(&*store, &ann, "t-0").await;
    assert_eq!(children.len(), MAX_CHILDREN);
    assert_eq!((children[0].as_str(), children[999].as_str()), ("t-child-0000", "t-child-0999"));
}
