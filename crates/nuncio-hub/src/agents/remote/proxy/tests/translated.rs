//! Callers and agents that speak differently.

use futures_util::StreamExt as _;
use nuncio_protocol::{
    A2aService as _, CallContext, Event, GetTaskRequest, Message, Part, SendMessageRequest,
    SendMessageResponse, TaskState,
};

use super::*;

#[tokio::test]
async fn every_form_reaches_every_form() {
    for theirs in FORMS {
        let upstream = agent(&[theirs], false).await;
        for apart in [false, true] {
            let hub = hub(&upstream, apart).await;
            for ours in FORMS {
                let service = hub.service("ann", ours);
                let cx = CallContext::default();
                let say = || SendMessageRequest {
                    message: Message::user("m", [Part::text("hi")]),
                    ..SendMessageRequest::default()
                };
                let SendMessageResponse::Task(task) = service.send_message(&cx, say()).await.unwrap() else {
                    panic!("a task was expected")
                };
                assert_eq!(task.status.state, TaskState::Completed, "{ours:?} to {theirs:?}");
                let get = GetTaskRequest { id: task.id.clone(), ..GetTaskRequest::default() };
                assert_eq!(service.get_task(&cx, get).await.unwrap().id, task.id, "ids pass through");
                let mut events = service.send_streaming_message(&cx, say()).await.unwrap();
                let mut last = None;
                while let Some(item) = events.next().await {
                    last = Some(Arc::clone(item.unwrap().event()));
                }
                let done = matches!(last.as_deref(), Some(Event::StatusUpdate(update)) if update.status.state == TaskState::Completed);
                assert!(done, "{ours:?} to {theirs:?}: {last:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_call_that_comes_round_in_a_circle_is_refused() {
    let upstream = agent(&FORMS, false).await;
    let hub = hub(&upstream, false).await;
    for form in FORMS {
        let cx = CallContext { hops: vec!["hub-1/up".to_owned()], ..CallContext::default() };
        let say = SendMessageRequest {
            message: Message::user("m", [Part::text("hi")]),
            ..SendMessageRequest::default()
        };
        let error = hub.service("ann", form).send_message(&cx, say).await.unwrap_err();
        assert!(error.message().contains("circle"), "{form:?} {error}");
    }
}

#[tokio::test]
async fn the_card_says_what_the_agent_can_do_and_where_the_hub_is() {
    let upstream = agent(&FORMS, false).await;
    let hub = hub(&upstream, false).await;
    let card = &hub.agent.shown().card;
    assert_eq!(card.name, "theirs");
    assert!(
        card.supported_interfaces
            .iter()
            .all(|interface| interface.url.contains(hub.base.trim_start_matches("http://")))
    );
    assert_eq!(card.capabilities.push_notifications, Some(false));
    assert_eq!(card.capabilities.streaming, Some(true));
}
