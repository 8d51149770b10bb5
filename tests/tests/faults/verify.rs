//! Holds what callers were told against what the hub has kept.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use nuncio_protocol::{
    A2aService, Content, Event, GetTaskRequest, ListTasksRequest, Part, Role, Seq, StreamItem, Task, TaskId,
    TaskState, Timestamp, fold,
};

use crate::{
    ledger::{Ledger, Told},
    load::{AGENTS, Reached, cx, insist, log_after},
};

/// The time for tasks to settle after the last fault.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of tasks that are read at the same time.
const CONCURRENT_READS: usize = 16;

/// The number of tasks by agent and final state.
pub(crate) type Ends = BTreeMap<(&'static str, String), usize>;

/// Waits until all tasks have settled, then looks at each of them. Panics at the first that is not right.
pub(crate) async fn verify(hub: &Reached, ledger: &Ledger) -> Ends {
    let told = ledger.all();
    let mut ends = Ends::new();
    let mut known = 0;
    for agent in AGENTS {
        let service = hub.agent(agent);
        until_settled(service, agent).await;
        let tasks = listed(&**service).await;
        for id in told.iter().filter(|(_, told)| told.agent == agent).map(|(id, _)| id) {
            assert!(
                tasks.iter().any(|task| task.id == *id),
                "{agent}: {id} was acknowledged and is not listed"
            );
            known += 1;
        }
        let nobody = Told::default();
        let looks = tasks.iter().map(|task| {
            let told = told.get(&task.id).unwrap_or(&nobody);
            look(&**service, agent, &task.id, told)
        });
        let seen: Vec<Task> = stream::iter(looks).buffer_unordered(CONCURRENT_READS).collect().await;
        one_task_per_key(&seen);
        for task in &seen {
            *ends.entry((agent, format!("{:?}", task.status.state))).or_default() += 1;
        }
    }
    assert_eq!(known, told.len(), "every task that was told of belongs to one of the agents");
    ends
}

/// Waits until nothing is in progress.
pub(crate) async fn until_settled(service: &Arc<dyn A2aService>, agent: &str) {
    let begun = Instant::now();
    for state in [TaskState::Submitted, TaskState::Working] {
        loop {
            let req =
                ListTasksRequest { status: Some(state), page_size: Some(5), ..ListTasksRequest::default() };
            let (req, nobody) = (&req, Ledger::default());
            let attempt = || async move { service.list_tasks(&cx(), req.clone()).await };
            let page = insist(&nobody, agent, attempt).await.unwrap();
            if page.total_size == 0 {
                break;
            }
            assert!(begun.elapsed() < SETTLE_TIMEOUT, "{agent}: stuck: {:#?}", page.tasks);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// All tasks of an agent, by pages; none twice, and as many as the first page promised.
pub(crate) async fn listed(service: &dyn A2aService) -> Vec<Task> {
    let mut req = ListTasksRequest { page_size: Some(100), ..ListTasksRequest::default() };
    let (mut tasks, mut ids, mut total) = (Vec::new(), HashSet::new(), None);
    loop {
        let page = service.list_tasks(&cx(), req.clone()).await.unwrap();
        total = total.or(usize::try_from(page.total_size).ok());
        for task in page.tasks {
            assert!(ids.insert(task.id.clone()), "{} is listed twice", task.id);
            tasks.push(task);
        }
        if page.next_page_token.is_empty() {
            break;
        }
        req.page_token = Some(page.next_page_token);
    }
    assert_eq!(Some(tasks.len()), total, "as many as were promised");
    let order: Vec<_> = tasks.iter().map(|task| task.status.timestamp).collect();
    assert!(order.is_sorted_by(|a, b| a >= b), "the newest status first");
    tasks
}

/// All tasks of an agent, by the message that has begun them.
pub(crate) async fn by_message(service: &dyn A2aService) -> HashMap<String, Vec<Task>> {
    let get = |task: Task| async move {
        let req = GetTaskRequest { id: task.id, ..GetTaskRequest::default() };
        service.get_task(&cx(), req).await.unwrap()
    };
    let mut tasks =
        stream::iter(listed(service).await.into_iter().map(get)).buffer_unordered(CONCURRENT_READS);
    let mut begun: HashMap<String, Vec<Task>> = HashMap::new();
    while let Some(task) = tasks.next().await {
        begun.entry(task.history[0].message_id.as_str().to_owned()).or_default().push(task);
    }
    begun
}

/// Looks at one task from all sides.
pub(crate) async fn look(service: &dyn A2aService, agent: &'static str, id: &TaskId, told: &Told) -> Task {
    let task = rested(service, id).await;
    let log = log_after(service, &task, Seq::ZERO).await;
    let history = replay(&task, &log);
    let at_end = history.last().unwrap_or_else(|| panic!("{id}: an empty log"));
    assert_eq!(whole(at_end), whole(&task), "{id}: the task is what its log says");
    for watched in &told.watched {
        check_watched(id, &log, &history, watched);
    }
    for answer in &told.answers {
        let was_so = history.iter().any(|task| whole(task) == whole(answer));
        assert!(was_so, "{id}: was answered, and never was so: {answer:#?}\n{history:#?}");
    }
    for message in &told.said {
        let kept = task.history.iter().any(|kept| kept.message_id.as_str() == message);
        assert!(kept, "{id}: {message} was answered and is not kept: {task:#?}");
    }
    check_resume(service, &task, &log).await;
    check_end(agent, &task, told);
    task
}

/// The task, when nobody works on it: also not on an answer to its question.
async fn rested(service: &dyn A2aService, id: &TaskId) -> Task {
    let begun = Instant::now();
    loop {
        let req = GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() };
        let task = service.get_task(&cx(), req).await.unwrap_or_else(|error| panic!("{id}: {error:?}"));
        let asks = task.status.state.is_interrupted();
        if task.status.state.is_terminal() || (asks && task.status.message.is_some()) {
            return task;
        }
        assert!(begun.elapsed() < SETTLE_TIMEOUT, "{id} is stuck: {task:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The task after each entry. What callers said is in the log and not on the wire: each number that is missing
/// there must be one of these, and they are all.
fn replay(task: &Task, log: &[StreamItem]) -> Vec<Task> {
    let id = &task.id;
    let mut said = task.history.iter().filter(|message| message.role == Role::User).skip(1);
    let mut states: Vec<Task> = Vec::new();
    let mut apply = |event: &Event| {
        let Some(mut state) = states.last().cloned() else {
            let Event::Task(first) = event else { panic!("{id}: the log begins with {event:?}") };
            states.push(first.clone());
            return 1;
        };
        fold(&mut state, event, Timestamp::EPOCH).unwrap_or_else(|error| panic!("{id}: {error}: {event:?}"));
        states.push(state);
        states.len() as u64
    };
    let mut at = 0;
    for item in log {
        let seq = item.seq().unwrap_or_else(|| panic!("{id}: an event without a number")).0;
        assert!(seq > at, "{id}: {seq} comes after {at}");
        while at + 1 < seq {
            let message = said.next().unwrap_or_else(|| panic!("{id}: {} is missing: {log:#?}", at + 1));
            at = apply(&Event::Message(Arc::clone(message)));
        }
        at = apply(item.event());
    }
    assert!(said.next().is_none(), "{id}: something was said that has no number: {task:#?}");
    states
}

/// The task with each text that came in pieces as one part: so it is stored, while a client that appends the pieces of
/// a stream has a part of each.
fn whole(task: &Task) -> Task {
    let mut task = task.clone();
    for artifact in &mut task.artifacts {
        let mut parts: Vec<Part> = Vec::new();
        for part in &artifact.parts {
            match (parts.last_mut().map(|last| &mut last.content), &part.content) {
                (Some(Content::Text(text)), Content::Text(more)) => text.push_str(more),
                _ => parts.push(part.clone()),
            }
        }
        Arc::make_mut(artifact).parts = parts;
    }
    task
}

/// The events of a watcher, over all its connections, are the log: none is missing, doubled or changed.
fn check_watched(id: &TaskId, log: &[StreamItem], history: &[Task], watched: &[StreamItem]) {
    let entry = |seq: Seq| log.iter().position(|item| item.seq() == Some(seq));
    let at = |item: &StreamItem| item.seq().unwrap_or_else(|| panic!("{id}: no number"));
    for (n, item) in watched.iter().enumerate() {
        let seq = at(item);
        match &**item.event() {
            Event::Task(shown) => {
                assert_eq!(n, 0, "{id}: a task in the middle of a stream");
                let index = usize::try_from(seq.0 - 1).unwrap();
                assert_eq!(history.get(index).map(whole), Some(whole(shown)), "{id}: was never so at {seq}");
            }
            event => {
                let kept =
                    entry(seq).unwrap_or_else(|| panic!("{id}: {seq} was shown and is lost: {event:?}"));
                assert_eq!(**log[kept].event(), *event, "{id}: {seq} was shown otherwise");
            }
        }
        if let Some(before) = n.checked_sub(1).map(|before| at(&watched[before])) {
            let next = log.iter().find(|item| at(item) > before).map(at);
            assert_eq!(Some(seq), next, "{id}: what comes after {before}: {watched:#?}");
        }
    }
}

/// From wherever one comes back, the rest is the same.
async fn check_resume(service: &dyn A2aService, task: &Task, log: &[StreamItem]) {
    if !task.status.state.is_terminal() {
        return;
    }
    let from = log[log.len() / 2].seq().unwrap();
    let rest = log_after(service, task, from).await;
    let shape = |items: &[StreamItem]| -> Vec<_> {
        items.iter().map(|item| (item.seq(), Arc::clone(item.event()))).collect()
    };
    assert_eq!(shape(&rest), shape(&log[log.len() / 2 + 1..]), "{}: resumed after {from}", task.id);
}

/// An agent that may be asked again has done its work; another one has, or says that it was cut off.
fn check_end(agent: &str, task: &Task, told: &Told) {
    let words = task.history[0].text().into_owned();
    let (state, id) = (task.status.state, &task.id);
    let artifact: String = task.artifacts.iter().map(|artifact| artifact.text().into_owned()).collect();
    let said = task.status.message.as_ref().map(|message| message.text().into_owned()).unwrap_or_default();
    if told.was_canceled() {
        assert_eq!(state, TaskState::Canceled, "{id}");
    }
    let number = |text: &str| -> u64 { text.parse().unwrap() };
    match (agent, state) {
        ("conformance", TaskState::Failed) => {
            assert!(said.contains("not marked as idempotent"), "{id}: failed without the reason: {said:?}");
        }
        ("conformance", TaskState::Completed) if words.starts_with("chunks") => {
            let chunks = number(words.split(' ').nth(1).unwrap());
            let whole: String = (1..=chunks).map(|n| format!("chunk {n}\n")).collect();
            assert_eq!(artifact, whole, "{id}");
        }
        ("conformance", TaskState::Completed) => assert!(["ask", "sleep 1"].contains(&&*words), "{id}"),
        ("conformance", TaskState::InputRequired) => assert_eq!(words, "ask", "{id}"),
        ("conformance", TaskState::Canceled) => assert!(words.starts_with("sleep"), "{id}"),
        ("echo", TaskState::Canceled) => assert_eq!(words, "hold", "{id}"),
        ("echo", TaskState::Completed) => assert_eq!(artifact, words, "{id}"),
        ("slow", TaskState::Canceled) => {}
        ("slow", TaskState::Completed) => {
            let from = number(words.split(' ').next().unwrap());
            let whole: String = (1..=from).rev().map(|n| format!("{n} ")).collect();
            assert_eq!(artifact, format!("{whole}done"), "{id}");
        }
        _ => panic!("{agent}: {id} {words:?} has ended in {state:?}: {said}"),
    }
}

/// Every message of ours was sent under a key or once, so it has begun one task at most.
fn one_task_per_key(tasks: &[Task]) {
    let mut begun: HashMap<&str, &TaskId> = HashMap::new();
    for task in tasks {
        let key = task.history[0].message_id.as_str();
        if !key.starts_with("m-") {
            continue;
        }
        if let Some(other) = begun.insert(key, &task.id) {
            panic!("{key} has begun two tasks: {other} and {}", task.id);
        }
    }
}
