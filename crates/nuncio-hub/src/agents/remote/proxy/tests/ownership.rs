//! Not yours is not found, on every operation in every form; and nobody asks the agent.

use futures_util::StreamExt as _;
use nuncio_protocol::{
    A2aService, CallContext, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Error, ErrorKind,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, Message, Part, SendMessageConfiguration, SendMessageRequest, SendMessageResponse,
    SubscribeToTaskRequest, Task, TaskId, TaskPushNotificationConfig,
};

use super::*;

fn say(text: &str, task: Option<&TaskId>) -> SendMessageRequest {
    let mut message = Message::user("m", [Part::text(text)]);
    message.task_id = task.cloned();
    SendMessageRequest { message, ..SendMessageRequest::default() }
}

async fn make(service: &dyn A2aService, text: &str) -> Task {
    let mut req = say(text, None);
    // One that holds is not waited for.
    let return_immediately = text == "hold";
    req.configuration =
        Some(SendMessageConfiguration { return_immediately, ..SendMessageConfiguration::default() });
    match service.send_message(&CallContext::default(), req).await.unwrap() {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(_) => panic!("a task was expected"),
    }
}

/// The outcome of each operation on this task.
async fn try_all(service: &dyn A2aService, id: &TaskId) -> Vec<(&'static str, Option<Error>)> {
    let (cx, task_id) = (&CallContext::default(), id.clone());
    let webhook = TaskPushNotificationConfig {
        task_id: Some(id.clone()),
        id: Some("w".into()),
        url: "https://hook.example/".to_owned(),
        ..TaskPushNotificationConfig::default()
    };
    let mut refers = say("hi", None);
    refers.message.reference_task_ids = vec![id.clone()];
    let stream = match service.send_streaming_message(cx, say("hi", Some(id))).await {
        Ok(mut events) => events.next().await.and_then(Result::err),
        Err(error) => Some(error),
    };
    let subscribe = SubscribeToTaskRequest { id: id.clone(), ..SubscribeToTaskRequest::default() };
    let follow = match service.subscribe_to_task(cx, subscribe).await {
        Ok(mut events) => events.next().await.and_then(Result::err),
        Err(error) => Some(error),
    };
    let get = GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() };
    let cancel = CancelTaskRequest { id: id.clone(), ..CancelTaskRequest::default() };
    let get_hook =
        GetTaskPushNotificationConfigRequest { task_id: task_id.clone(), id: "w".into(), tenant: None };
    let list_hooks =
        ListTaskPushNotificationConfigsRequest { task_id: task_id.clone(), ..Default::default() };
    let drop_hook = DeleteTaskPushNotificationConfigRequest { task_id, id: "w".into(), tenant: None };
    vec![
        ("get", service.get_task(cx, get).await.err()),
        ("subscribe", follow),
        ("send", service.send_message(cx, say("hi", Some(id))).await.err()),
        ("stream", stream),
        ("refer", service.send_message(cx, refers).await.err()),
        ("create webhook", service.create_task_push_notification_config(cx, webhook).await.err()),
        ("get webhook", service.get_task_push_notification_config(cx, get_hook).await.err()),
        ("list webhooks", service.list_task_push_notification_configs(cx, list_hooks).await.err()),
        ("delete webhook", service.delete_task_push_notification_config(cx, drop_hook).await.err()),
        ("cancel", service.cancel_task(cx, cancel).await.err()),
    ]
}

/// The text without the id of a request, which differs from one to the next.
fn without_request_id(text: String) -> String {
    const MEMBER: &str = "\"requestId\": String(\"";
    match text.split_once(MEMBER) {
        Some((before, after)) => {
            let after = after.split_once('"').map_or("", |(_, after)| after);
            format!("{before}{MEMBER}\"{after}")
        }
        None => text,
    }
}

#[tokio::test]
async fn foreign_and_unknown_are_the_same_on_every_operation_in_every_form() {
    // One agent that is spoken to raw in all forms, and one to which everything but one form is translated.
    for forms in [&FORMS[..], &FORMS[2..3]] {
        let upstream = agent(forms, false).await;
        let hub = hub(&upstream, true).await;
        for form in FORMS {
            let (ann, bob) = (hub.service("ann", form), hub.service("bob", form));
            let task = make(&ann, "hold").await;
            let unknown = TaskId::from("0".repeat(task.id.as_str().len()).as_str());
            let foreign = try_all(&bob, &task.id).await;
            let none = try_all(&bob, &unknown).await;
            for ((op, foreign), (_, unknown_error)) in foreign.iter().zip(&none) {
                let told = |error: &Option<Error>, id: &TaskId| {
                    let error = error.as_ref().unwrap_or_else(|| panic!("{op} in {form:?} is done"));
                    (
                        error.kind(),
                        error.to_string().replace(id.as_str(), "ID"),
                        without_request_id(format!("{:?}", error.details())).replace(id.as_str(), "ID"),
                    )
                };
                assert_eq!(told(foreign, &task.id), told(unknown_error, &unknown), "{op} in {form:?}");
            }
            let get = GetTaskRequest { id: task.id.clone(), ..GetTaskRequest::default() };
            assert_eq!(ann.get_task(&CallContext::default(), get).await.unwrap().id, task.id);
        }
    }
}

#[tokio::test]
async fn nobody_asks_the_agent_for_what_is_not_the_callers() {
    let upstream = Canned::start(&FORMS, |_| panic!("nobody is to ask")).await;
    let hub = hub(&upstream.base, true).await;
    for form in FORMS {
        for (op, error) in try_all(&hub.service("bob", form), &"t".into()).await {
            let kind = error.map(|error| error.kind());
            let expected =
                matches!(kind, Some(ErrorKind::TaskNotFound | ErrorKind::PushNotificationNotSupported));
            assert!(expected, "{op} in {form:?}: {kind:?}");
        }
    }
    assert_eq!(upstream.asked().len(), 0);
}

#[tokio::test]
async fn a_list_has_the_callers_tasks_and_no_others() {
    for forms in [&FORMS[..], &FORMS[2..3]] {
        let upstream = agent(forms, false).await;
        let hub = hub(&upstream, true).await;
        let form = FORMS[0];
        let (ann, bob) = (hub.service("ann", form), hub.service("bob", form));
        let mut own = Vec::new();
        for n in 0..5 {
            own.push(make(&ann, &format!("a{n}")).await.id);
            make(&bob, &format!("b{n}")).await;
        }
        let mut seen = Vec::new();
        let mut req = ListTasksRequest { page_size: Some(2), ..ListTasksRequest::default() };
        loop {
            let page = ann.list_tasks(&CallContext::default(), req.clone()).await.unwrap();
            assert_eq!(page.total_size, 5);
            assert!(page.tasks.len() <= 2);
            seen.extend(page.tasks.into_iter().map(|task| task.id));
            if page.next_page_token.is_empty() {
                break;
            }
            req.page_token = Some(page.next_page_token);
        }
        own.reverse();
        assert_eq!(seen, own);
        let eve = hub.service("eve", form);
        let all = eve.list_tasks(&CallContext::default(), ListTasksRequest::default()).await.unwrap();
        assert_eq!((all.tasks.len(), all.total_size), (0, 0));
    }
}

/// To the agent all callers are one: who counts from 1 as well would be given the answer to somebody else.
#[tokio::test]
async fn keys_of_messages_are_told_apart_as_callers_are() {
    let upstream = Canned::start(&FORMS[..1], |_| {
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"message":{"messageId":"r","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}}"#;
        typed(StatusCode::OK, "application/json", answer)
    })
    .await;
    let hub = hub(&upstream.base, true).await;
    // As it came, and translated.
    for form in [FORMS[0], FORMS[2]] {
        let mut keys = Vec::new();
        for (caller, key) in [("ann", "1"), ("ann", "1"), ("ann", "2"), ("bob", "1")] {
            let cx = CallContext { idempotency_key: Some(key.to_owned()), ..CallContext::default() };
            hub.service(caller, form).send_message(&cx, say("hi", None)).await.unwrap();
            let asked = upstream.asked().pop().unwrap();
            keys.push(asked.headers["idempotency-key"].to_str().unwrap().to_owned());
        }
        assert_eq!(keys[0], keys[1], "a repeat is one");
        assert!(keys[0] != keys[2] && keys[0] != keys[3], "{form:?}: {keys:?}");
    }
}
