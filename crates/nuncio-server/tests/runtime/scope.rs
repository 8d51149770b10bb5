//! Not yours is not found, in every operation and with the same words.

use nuncio_server::{
    protocol::{A2aService as _, Error, ErrorKind, GetTaskRequest, ListTasksRequest, Task},
    testing::{Harness, Say, ScriptedExecutor, Step},
};

/// Every operation that names a task, and what it answers.
async fn every_operation(harness: &Harness, task: &Task) -> Vec<(&'static str, Error)> {
    let id = &task.id;
    vec![
        ("get", harness.get(id).await.unwrap_err()),
        ("cancel", harness.cancel(id).await.unwrap_err()),
        ("send", harness.task(Say::to(task, "hi")).await.unwrap_err()),
        ("stream", harness.stream(Say::to(task, "hi")).await.err().unwrap()),
        ("subscribe", harness.subscribe(id).await.err().unwrap()),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_foreign_task_and_an_unknown_one_cannot_be_told_apart() {
    // REQ-086 to REQ-089, REQ-097, REQ-112, REQ-130, REQ-145, invariant 9
    let executor = || ScriptedExecutor::steps([Step::Working, Step::InputRequired("which?")]);
    let harness = Harness::new(executor());
    let ann = harness.as_caller("ann");
    let idle = ann.task("hi").await.unwrap();
    let running = Harness::new(ScriptedExecutor::steps([Step::Working, Step::Hang]));
    let moving = running.as_caller("ann").begin("hi").await.unwrap();
    for (harness, task) in [(&harness, &idle), (&running, &moving)] {
        let others = [
            harness.as_caller("bob"),
            harness.clone(),
            harness.as_caller("ann").calling(|cx| cx.tenant = Some("acme".to_owned())),
        ];
        for other in others {
            let unknown = Task { id: "t-unknown".into(), ..Task::default() };
            let (foreign, unknown) =
                (every_operation(&other, task).await, every_operation(&other, &unknown).await);
            for ((operation, foreign), (_, unknown)) in foreign.into_iter().zip(unknown) {
                assert_eq!(foreign.kind(), ErrorKind::TaskNotFound, "{operation}");
                assert_eq!(foreign.message(), unknown.message(), "{operation}");
                let members = |error: &Error| error.metadata().keys().cloned().collect::<Vec<_>>();
                assert_eq!(members(&foreign), members(&unknown), "{operation}");
            }
            let list = other.runtime.list_tasks(&other.cx, ListTasksRequest::default()).await.unwrap();
            assert_eq!((list.tasks.len(), list.total_size), (0, 0), "REQ-090");
        }
    }
    assert_eq!(ann.get(&idle.id).await.unwrap(), idle, "and nothing has changed");
}

#[tokio::test(start_paused = true)]
async fn the_tenant_of_the_request_counts_before_that_of_the_binding() {
    let harness = Harness::new(ScriptedExecutor::steps([]));
    let acme = harness.calling(|cx| cx.tenant = Some("acme".to_owned()));
    let task = acme.task("hi").await.unwrap();
    let get = |tenant: Option<&str>| GetTaskRequest {
        id: task.id.clone(),
        tenant: tenant.map(str::to_owned),
        ..GetTaskRequest::default()
    };
    assert!(acme.runtime.get_task(&acme.cx, get(None)).await.is_ok());
    assert!(acme.runtime.get_task(&harness.cx, get(Some("acme"))).await.is_ok());
    assert!(acme.runtime.get_task(&acme.cx, get(Some("rival"))).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_event_of_a_task_is_no_ones_business_before_it_exists() {
    // A task begins with its first event: before that its id, which the agent knows, is not found.
    let (ids, mut known) = tokio::sync::mpsc::unbounded_channel();
    let harness = Harness::new(ScriptedExecutor::new(move |cx, out| {
        ids.send(cx.task_id.clone()).unwrap();
        async move {
            tokio::time::sleep(crate::secs(5)).await;
            out.working().await.map(drop)
        }
    }));
    let sender = harness.clone();
    let sending = tokio::spawn(async move { sender.task("hi").await });
    let id = known.recv().await.unwrap();
    assert_eq!(crate::refused(harness.get(&id).await), ErrorKind::TaskNotFound);
    assert_eq!(crate::refused(harness.subscribe(&id).await), ErrorKind::TaskNotFound);
    let task = sending.await.unwrap().unwrap();
    assert_eq!(harness.get(&id).await.unwrap().id, task.id);
}
