//! ListTasks through the runtime: pages, tokens, what is shown.

use nuncio_server::{
    Limits,
    protocol::{
        A2aService as _, ErrorKind, GetTaskRequest, ListTasksRequest, ListTasksResponse, Part, Result,
        TaskState, Timestamp,
    },
    testing::{Harness, Say, ScriptedExecutor, Step},
};

use crate::refused;

async fn list(harness: &Harness, change: impl FnOnce(&mut ListTasksRequest)) -> Result<ListTasksResponse> {
    let mut request = ListTasksRequest::default();
    change(&mut request);
    harness.runtime.list_tasks(&harness.cx, request).await
}

/// An agent with so many finished tasks.
async fn agent(tasks: usize) -> Harness {
    let harness = Harness::new(ScriptedExecutor::steps([Step::Artifact("a", "x")]));
    for i in 0..tasks {
        let context = format!("c-{}", i % 2);
        harness
            .task(Say::from("hi").change(|request| request.message.context_id = Some(context.into())))
            .await
            .unwrap();
    }
    harness
}

#[tokio::test(start_paused = true)]
async fn pages_go_through_everything_exactly_once() {
    // REQ-117 to REQ-120, REQ-127
    let harness = agent(25).await;
    for size in [1, 7, 25, 100] {
        let (mut ids, mut token, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = list(&harness, |request| {
                request.page_size = Some(size);
                request.page_token = token.clone();
            });
            let page = page.await.unwrap();
            assert_eq!((page.page_size, page.total_size), (size, 25));
            ids.extend(page.tasks.iter().map(|task| (task.status.timestamp, task.id.clone())));
            pages += 1;
            if page.next_page_token.is_empty() {
                break;
            }
            token = Some(page.next_page_token);
        }
        assert_eq!(pages, 25_usize.div_ceil(size as usize), "{size}: no empty page at the end");
        assert!(ids.is_sorted_by(|a, b| a > b), "newest first, then by id");
        assert_eq!(ids.len(), 25);
    }
    let page = list(&harness, |_| {}).await.unwrap();
    assert_eq!((page.page_size, page.tasks.len()), (50, 25), "REQ-121");
}

#[tokio::test(start_paused = true)]
async fn a_page_size_or_a_length_out_of_range_is_refused() {
    // REQ-116, REQ-121
    let harness = agent(1).await;
    for size in [0, 101, -1, i32::MIN, i32::MAX] {
        assert_eq!(
            refused(list(&harness, |request| request.page_size = Some(size)).await),
            ErrorKind::InvalidParams
        );
    }
    assert_eq!(
        refused(list(&harness, |request| request.history_length = Some(-1)).await),
        ErrorKind::InvalidParams
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_is_good_for_the_list_it_came_from() {
    // REQ-122, and the trap of page tokens as offsets
    let harness = agent(4).await;
    let page = |harness: &Harness, token: &str| {
        let (harness, token) = (harness.clone(), Some(token.to_owned()));
        async move { list(&harness, |request| (request.page_size, request.page_token) = (Some(1), token)).await }
    };
    let token = list(&harness, |request| request.page_size = Some(1)).await.unwrap().next_page_token;
    assert!(page(&harness, &token).await.is_ok());
    let mut forged = token.clone();
    forged.replace_range(4..5, if &token[4..5] == "A" { "B" } else { "A" });
    for bad in [&*forged, "2", "garbage", "AAAA", &token[1..], &format!("{token}AAAA")] {
        assert_eq!(refused(page(&harness, bad).await), ErrorKind::InvalidParams, "{bad}");
    }
    assert_eq!(
        refused(page(&harness.as_caller("bob"), &token).await),
        ErrorKind::InvalidParams,
        "another caller"
    );
    let other_filter = list(&harness, |request| {
        (request.page_token, request.status) = (Some(token.clone()), Some(TaskState::Completed));
    });
    assert_eq!(refused(other_filter.await), ErrorKind::InvalidParams, "another list");
    let other_size =
        list(&harness, |request| (request.page_token, request.page_size) = (Some(token), Some(100)));
    assert_eq!(other_size.await.unwrap().tasks.len(), 3, "the page size may change");
}

#[tokio::test(start_paused = true)]
async fn the_total_is_counted_once_and_carried_on() {
    let harness = agent(3).await;
    let first = list(&harness, |request| request.page_size = Some(2)).await.unwrap();
    harness.task("one more").await.unwrap();
    let token = Some(first.next_page_token);
    let second =
        list(&harness, |request| (request.page_size, request.page_token) = (Some(2), token)).await.unwrap();
    assert_eq!((first.total_size, second.total_size, second.tasks.len()), (3, 3, 1));
    assert_eq!(list(&harness, |_| {}).await.unwrap().total_size, 4);
}

#[tokio::test(start_paused = true)]
async fn filters_combine_and_the_time_is_inclusive() {
    // REQ-123, REQ-124
    let harness = agent(6).await;
    let all = list(&harness, |_| {}).await.unwrap();
    let newest = all.tasks[0].status.timestamp;
    for (expected, page) in [
        (3, list(&harness, |request| request.context_id = Some("c-1".into())).await),
        (6, list(&harness, |request| request.status = Some(TaskState::Completed)).await),
        (0, list(&harness, |request| request.status = Some(TaskState::Working)).await),
        (0, list(&harness, |request| request.status_timestamp_after = Some(Timestamp::MAX)).await),
        (
            3,
            list(&harness, |request| {
                request.context_id = Some("c-0".into());
                request.status = Some(TaskState::Completed);
                request.status_timestamp_after = Some(Timestamp::EPOCH);
            })
            .await,
        ),
    ] {
        let page = page.unwrap();
        assert_eq!((page.tasks.len(), page.total_size), (expected, expected as i32));
    }
    let since = list(&harness, |request| request.status_timestamp_after = newest).await.unwrap();
    assert!(since.tasks.iter().any(|task| task.id == all.tasks[0].id), "trap T-26");
}

#[tokio::test(start_paused = true)]
async fn artifacts_are_shown_on_request() {
    // REQ-126
    let harness = agent(1).await;
    for (asked, shown) in [(None, 0), (Some(false), 0), (Some(true), 1)] {
        let page = list(&harness, |request| request.include_artifacts = asked).await.unwrap();
        assert_eq!(page.tasks[0].artifacts.len(), shown, "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn running_tasks_are_listed_as_they_are() {
    let harness = Harness::new(ScriptedExecutor::steps([Step::Working, Step::Hang]));
    let task = harness.begin("hi").await.unwrap();
    harness.until(&task.id, TaskState::Working).await.unwrap();
    let page = list(&harness, |request| request.status = Some(TaskState::Working)).await.unwrap();
    assert_eq!(page.tasks, [harness.get(&task.id).await.unwrap()]);
}

/// A list of 30 tasks was one answer of all that they hold.
#[tokio::test(start_paused = true)]
async fn a_page_is_bounded_in_bytes_and_the_token_goes_on() {
    const MIB: usize = 1024 * 1024;
    let limits = Limits { max_page_bytes: 4 * MIB, ..Limits::default() };
    let harness = Harness::with(ScriptedExecutor::steps([]), |builder| builder.limits(limits));
    let large = |request: &mut nuncio_server::protocol::SendMessageRequest| {
        request.message.parts = vec![Part::text("x".repeat(MIB))];
    };
    let mut made = Vec::new();
    for _ in 0..30 {
        made.push(harness.task(Say::from("").change(large)).await.unwrap().id);
    }
    for (history, pages) in [(None, 10), (Some(0), 1), (Some(1), 10)] {
        let (mut walked, mut token, mut sizes) = (Vec::new(), None, Vec::new());
        loop {
            let page = list(&harness, |request| {
                (request.page_size, request.page_token) = (Some(100), token.clone());
                request.history_length = history;
            });
            let page = page.await.unwrap();
            assert_eq!((page.page_size, page.total_size), (100, 30), "the total is of all pages");
            walked.extend(page.tasks.iter().map(|task| task.id.clone()));
            sizes.push(page.tasks.len());
            if page.next_page_token.is_empty() {
                break;
            }
            token = Some(page.next_page_token);
        }
        assert_eq!(sizes.len(), pages, "{history:?}: {sizes:?}");
        walked.sort();
        assert_eq!(walked, made, "{history:?}: each exactly once");
    }
    let one = GetTaskRequest { id: made[0].clone(), history_length: Some(0), ..GetTaskRequest::default() };
    assert!(harness.runtime.get_task(&harness.cx, one).await.unwrap().history.is_empty());
}
