//! ListTasks, which exists since 1.0.

use std::collections::HashSet;

use nuncio_protocol::{
    Binding, ErrorKind, ListTasksRequest, ListTasksResponse, Result, Task, TaskId, TaskState, Version,
};
use nuncio_tests::{
    transcript::Transcript,
    world::{By, Party, Way, World, say, say_to},
};

async fn list(party: &Party, req: ListTasksRequest) -> Result<ListTasksResponse> {
    party.service.list_tasks(&party.cx(), req).await
}

/// A task in this conversation.
async fn task_in(party: &Party, context: &str, script: &str) -> Task {
    let mut req = say("m-1", script);
    req.message.context_id = Some(context.into());
    party.task(req).await
}

fn ids(page: &ListTasksResponse) -> HashSet<TaskId> {
    page.tasks.iter().map(|task| task.id.clone()).collect()
}

/// REQ-117, REQ-118, REQ-121, REQ-123, REQ-124, REQ-126, REQ-127.
pub(crate) async fn filters_combine(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let done_a = task_in(&world.alice, "a", "text x 1; completed").await;
    let asked_a = task_in(&world.alice, "a", "ask Which?").await;
    let done_b = task_in(&world.alice, "b", "completed").await;
    let all = list(&world.alice, ListTasksRequest::default()).await.unwrap();
    assert_eq!((all.tasks.len(), all.total_size, all.page_size), (3, 3, 50));
    assert_eq!(all.next_page_token, "");
    let times: Vec<_> = all.tasks.iter().map(|task| task.status.timestamp.unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "newest first: {times:?}");
    assert!(all.tasks.iter().all(|task| task.artifacts.is_empty()), "artifacts only if asked for");

    let (a, completed) = (Some("a".into()), Some(TaskState::Completed));
    let cases = [
        (ListTasksRequest { context_id: a.clone(), ..<_>::default() }, vec![&done_a, &asked_a]),
        (ListTasksRequest { status: completed, ..<_>::default() }, vec![&done_a, &done_b]),
        (ListTasksRequest { context_id: a.clone(), status: completed, ..<_>::default() }, vec![&done_a]),
        (ListTasksRequest { context_id: Some("c".into()), ..<_>::default() }, vec![]),
        (
            ListTasksRequest { status: Some(TaskState::Unspecified), ..<_>::default() },
            vec![&done_a, &asked_a, &done_b],
        ),
    ];
    for (req, expected) in cases {
        let page = list(&world.alice, req.clone()).await.unwrap();
        assert_eq!(ids(&page), expected.iter().map(|task| task.id.clone()).collect(), "{req:?}");
        assert_eq!(page.total_size, i32::try_from(expected.len()).unwrap(), "{req:?}");
    }

    // Inclusive (trap T-26): the moment of the newest status still finds it.
    let since = ListTasksRequest { status_timestamp_after: Some(times[0]), ..<_>::default() };
    assert!(ids(&list(&world.alice, since).await.unwrap()).contains(&all.tasks[0].id));

    let whole = ListTasksRequest {
        context_id: a,
        status: completed,
        include_artifacts: Some(true),
        ..<_>::default()
    };
    let whole = list(&world.alice, whole).await.unwrap();
    assert_eq!(whole.tasks, [done_a], "with artifacts, a listed task is the whole task");
    seen.note("whole", &whole);
    let answered = world.alice.task(say_to(&asked_a, "m-2", "completed")).await;
    let bare = ListTasksRequest {
        context_id: Some("a".into()),
        history_length: Some(0),
        status_timestamp_after: answered.status.timestamp,
        ..<_>::default()
    };
    let bare = list(&world.alice, bare).await.unwrap();
    assert_eq!(bare.tasks[0].id, answered.id, "a new status brings a task to the top");
    assert!(bare.tasks[0].history.is_empty());
    seen
}

/// REQ-119, REQ-120, REQ-127; product: a task unchanged between pages appears exactly once.
pub(crate) async fn pages_have_no_gaps_and_no_doubles(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    let mut expected = Vec::new();
    for _ in 0..7 {
        expected.push(task_in(&world.alice, "a", "completed").await.id);
    }
    let (mut got, mut token, mut sizes) = (Vec::new(), None, Vec::new());
    loop {
        let req = ListTasksRequest { page_size: Some(3), page_token: token.take(), ..<_>::default() };
        let page = list(&world.alice, req).await.unwrap();
        assert_eq!((page.page_size, page.total_size), (3, 7));
        sizes.push(page.tasks.len());
        got.extend(page.tasks.into_iter().map(|task| task.id));
        // Comes between the pages and must not disturb them.
        task_in(&world.alice, "a", "completed").await;
        if page.next_page_token.is_empty() {
            break;
        }
        token = Some(page.next_page_token);
    }
    assert_eq!(sizes, [3, 3, 1]);
    assert_eq!(got.len(), 7);
    assert_eq!(got.iter().collect::<HashSet<_>>(), expected.iter().collect::<HashSet<_>>());
    seen.note("sizes", &sizes);
    seen
}

/// REQ-090, REQ-122, REQ-127: tasks, counts and cursors of others are not seen.
pub(crate) async fn a_list_is_the_callers_own(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    for _ in 0..2 {
        task_in(&world.alice, "shared", "completed").await;
    }
    let his = task_in(&world.bob, "shared", "completed").await;
    let page = list(&world.bob, ListTasksRequest { context_id: Some("shared".into()), ..<_>::default() });
    let page = page.await.unwrap();
    assert_eq!(page.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(), [&his.id]);
    assert_eq!(page.total_size, 1);
    let nothing = list(&world.nobody, ListTasksRequest::default()).await.unwrap();
    assert_eq!((nothing.tasks.len(), nothing.total_size), (0, 0));
    seen.note("his", &page);
    seen.note("nothing", &nothing);

    let hers = ListTasksRequest { page_size: Some(1), ..<_>::default() };
    let token = list(&world.alice, hers.clone()).await.unwrap().next_page_token;
    let stolen = ListTasksRequest { page_token: Some(token.clone()), ..hers.clone() };
    let error = list(&world.bob, stolen.clone()).await.unwrap_err();
    assert_eq!(error.violations()[0].field, "pageToken");
    seen.error("stolen", &error);
    let bent = ListTasksRequest { context_id: Some("shared".into()), ..stolen };
    let error = list(&world.alice, bent).await.unwrap_err();
    assert_eq!(error.violations()[0].field, "pageToken", "a cursor is for the filters it was made with");
    seen.error("bent", &error);
    seen
}

/// REQ-116, REQ-121, REQ-122.
pub(crate) async fn wrong_parameters_of_a_list_are_named(way: Way) -> Transcript {
    let (world, mut seen) = (World::open(way).await, Transcript::default());
    for (req, field) in [
        (ListTasksRequest { page_size: Some(0), ..<_>::default() }, "pageSize"),
        (ListTasksRequest { page_size: Some(101), ..<_>::default() }, "pageSize"),
        (ListTasksRequest { page_size: Some(-1), ..<_>::default() }, "pageSize"),
        (ListTasksRequest { history_length: Some(-1), ..<_>::default() }, "historyLength"),
        (ListTasksRequest { page_token: Some("forged".to_owned()), ..<_>::default() }, "pageToken"),
    ] {
        let error = list(&world.alice, req).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams);
        assert_eq!(error.violations()[0].field, field);
        seen.error(field, &error);
    }
    seen
}

pub(crate) async fn is_refused_in_0_3() {
    for binding in Binding::ALL {
        let world = World::open(Way::wire(*binding, Version::V0_3, By::Client)).await;
        let error = list(&world.alice, ListTasksRequest::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation, "{binding:?}");
    }
}
