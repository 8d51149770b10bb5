//! Checks an agent with the official Rust SDK.
//! Arguments: base URL, `--binding NAME`, `--skip NAMES`, `--talk`, `--push`.

use std::sync::Arc;

use a2a::{
    AuthenticationInfo, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, Message, Part, PartContent, Role, SendMessageConfiguration, SendMessageRequest,
    SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task, TaskId, TaskPushNotificationConfig,
    TaskState, TaskStatus, error_code, new_task_id,
};
use a2a_client::{
    A2AClient, A2AClientFactory, Transport, agent_card::AgentCardResolver, jsonrpc::JsonRpcTransportFactory,
    rest::RestTransportFactory,
};
use a2a_grpc::GrpcTransportFactory;
use futures::future::BoxFuture;
use nuncio_peers_rust1::{
    CREDENTIALS, Failure, Options, Outcome, Suite, TOKEN, Webhook, collect, collect_while, expect,
    expect_code, run,
};
use serde_json::json;

struct Agent {
    client: A2AClient<Box<dyn Transport>>,
}

async fn connect(options: &Options) -> Result<Agent, Failure> {
    // Proxy variables of the machine must not come between two local processes.
    let http = || reqwest::Client::builder().no_proxy().build().expect("a client without TLS");
    let mut card = AgentCardResolver::new(Some(http())).resolve(&options.url).await?;
    expect!(!card.name.is_empty() && !card.version.is_empty(), "name or version missing: {card:?}");
    card.supported_interfaces.retain(|interface| {
        interface.protocol_binding == options.binding && interface.protocol_version.starts_with("1.")
    });
    expect!(!card.supported_interfaces.is_empty(), "no such interface on the card");
    let factory = A2AClientFactory::builder()
        .no_defaults()
        .register(Arc::new(JsonRpcTransportFactory::new(Some(http()))))
        .register(Arc::new(RestTransportFactory::new(Some(http()))))
        .register(Arc::new(GrpcTransportFactory::new()))
        .build();
    Ok(Agent { client: factory.create_from_card(&card).await? })
}

impl Agent {
    async fn task(&self, request: &SendMessageRequest) -> Result<Task, Failure> {
        match self.client.send_message(request).await? {
            SendMessageResponse::Task(task) => Ok(task),
            SendMessageResponse::Message(message) => {
                Err(Failure(format!("expected a task, got {message:?}")))
            }
        }
    }

    async fn hold(&self) -> Result<Task, Failure> {
        let mut request = say_text("hold");
        request.configuration = Some(SendMessageConfiguration {
            accepted_output_modes: None,
            task_push_notification_config: None,
            history_length: None,
            return_immediately: Some(true),
        });
        let task = self.task(&request).await?;
        expect_state(&task.status, &[TaskState::Submitted, TaskState::Working])?;
        Ok(task)
    }

    async fn get(&self, id: &TaskId, history_length: Option<i32>) -> Result<Task, a2a::A2AError> {
        self.client.get_task(&GetTaskRequest { id: id.clone(), history_length, tenant: None }).await
    }

    async fn cancel(&self, id: &TaskId) -> Result<Task, a2a::A2AError> {
        self.client.cancel_task(&CancelTaskRequest { id: id.clone(), metadata: None, tenant: None }).await
    }

    /// Streams to the end; a refusal comes before the stream or in it.
    async fn stream(&self, request: &SendMessageRequest) -> Result<Vec<StreamResponse>, a2a::A2AError> {
        collect(self.client.send_streaming_message(request).await?).await
    }
}

fn say(parts: Vec<Part>) -> SendMessageRequest {
    let message = Message::new(Role::User, parts);
    SendMessageRequest { message, configuration: None, metadata: None, tenant: None }
}

fn say_text(text: &str) -> SendMessageRequest {
    say(vec![Part::text(text)])
}

fn reply_to(task: &TaskId, context: &str, text: &str) -> SendMessageRequest {
    let mut request = say_text(text);
    request.message.task_id = Some(task.clone());
    request.message.context_id = Some(context.to_owned());
    request
}

fn expect_state(status: &TaskStatus, states: &[TaskState]) -> Outcome {
    expect!(states.contains(&status.state), "state is {:?}", status.state);
    Ok(())
}

fn text_of(parts: &[Part]) -> String {
    parts.iter().filter_map(Part::as_text).collect()
}

fn text_of_artifacts(task: &Task) -> String {
    task.artifacts.iter().flatten().map(|artifact| text_of(&artifact.parts)).collect()
}

fn task_of(event: &StreamResponse) -> Option<&TaskId> {
    match event {
        StreamResponse::Task(task) => Some(&task.id),
        StreamResponse::Message(_) => None,
        StreamResponse::StatusUpdate(update) => Some(&update.task_id),
        StreamResponse::ArtifactUpdate(update) => Some(&update.task_id),
    }
}

async fn send(agent: Arc<Agent>) -> Outcome {
    let request = say_text("hello");
    let task = agent.task(&request).await?;
    expect_state(&task.status, &[TaskState::Completed])?;
    expect!(!task.id.is_empty() && !task.context_id.is_empty(), "an id is missing: {task:?}");
    expect!(text_of_artifacts(&task) == "hello", "artifacts are {:?}", task.artifacts);
    let found = task.history.iter().flatten().find(|m| m.message_id == request.message.message_id);
    let good = found.is_some_and(|m| m.role == Role::User && text_of(&m.parts) == "hello");
    expect!(good, "history is {:?}", task.history);
    Ok(())
}

async fn stream(agent: Arc<Agent>) -> Outcome {
    let events = agent.stream(&say_text("hello")).await?;
    let Some(StreamResponse::Task(first)) = events.first() else {
        return Err(Failure(format!("events are {events:?}")));
    };
    expect!(events.iter().all(|event| task_of(event) == Some(&first.id)), "events are {events:?}");
    let (mut states, mut text) = (Vec::new(), String::new());
    for event in &events {
        match event {
            StreamResponse::StatusUpdate(update) => states.push(update.status.state.clone()),
            StreamResponse::ArtifactUpdate(update) => text += &text_of(&update.artifact.parts),
            StreamResponse::Task(_) | StreamResponse::Message(_) => {}
        }
    }
    expect!(states.contains(&TaskState::Working), "states are {states:?}");
    expect!(states.last() == Some(&TaskState::Completed), "states are {states:?}");
    expect!(matches!(events.last(), Some(StreamResponse::StatusUpdate(_))), "events are {events:?}");
    expect!(text == "hello", "artifacts are {text:?}");
    Ok(())
}

async fn get(agent: Arc<Agent>) -> Outcome {
    let task = agent.task(&say_text("hello")).await?;
    let again = agent.get(&task.id, None).await?;
    expect!(again.id == task.id && again.context_id == task.context_id, "got {again:?}");
    expect_state(&again.status, &[TaskState::Completed])?;
    expect!(text_of_artifacts(&again) == "hello", "artifacts are {:?}", again.artifacts);
    Ok(())
}

async fn history_zero(agent: Arc<Agent>) -> Outcome {
    let task = agent.task(&say_text("hello")).await?;
    let again = agent.get(&task.id, Some(0)).await?;
    expect!(again.history.iter().flatten().count() == 0, "history is {:?}", again.history);
    Ok(())
}

async fn list_tasks(agent: Arc<Agent>) -> Outcome {
    let task = agent.task(&say_text("hello")).await?;
    // Without a page size, and in its own context, so that the tasks of other checks do not matter.
    let mut request = ListTasksRequest {
        context_id: Some(task.context_id.clone()),
        status: None,
        page_size: None,
        page_token: None,
        history_length: None,
        status_timestamp_after: None,
        include_artifacts: None,
        tenant: None,
    };
    let page = agent.client.list_tasks(&request).await?;
    expect!(page.tasks.len() == 1 && page.tasks[0].id == task.id, "listed {:?}", page.tasks);
    expect_state(&page.tasks[0].status, &[TaskState::Completed])?;
    expect!(text_of_artifacts(&page.tasks[0]).is_empty(), "artifacts listed without being asked for");
    expect!(page.total_size == 1, "total size is {}", page.total_size);
    (request.page_size, request.include_artifacts) = (Some(100), Some(true));
    let page = agent.client.list_tasks(&request).await?;
    expect!(page.tasks.len() == 1 && text_of_artifacts(&page.tasks[0]) == "hello", "listed {:?}", page.tasks);
    Ok(())
}

async fn not_found(agent: Arc<Agent>) -> Outcome {
    expect_code(agent.get(&new_task_id(), None).await, error_code::TASK_NOT_FOUND)?;
    expect_code(agent.cancel(&new_task_id()).await, error_code::TASK_NOT_FOUND)
}

async fn refused_stream(agent: Arc<Agent>) -> Outcome {
    let unknown = SubscribeToTaskRequest { id: new_task_id(), tenant: None };
    let refused = async { collect(agent.client.subscribe_to_task(&unknown).await?).await };
    expect_code(refused.await, error_code::TASK_NOT_FOUND)?;
    let task = agent.task(&say_text("hello")).await?;
    let refused = agent.stream(&reply_to(&task.id, &task.context_id, "more")).await;
    expect_code(refused, error_code::UNSUPPORTED_OPERATION)
}

async fn cancel(agent: Arc<Agent>) -> Outcome {
    let task = agent.hold().await?;
    expect_state(&agent.cancel(&task.id).await?.status, &[TaskState::Canceled])?;
    expect_state(&agent.get(&task.id, None).await?.status, &[TaskState::Canceled])
}

async fn cancel_again(agent: Arc<Agent>) -> Outcome {
    let task = agent.hold().await?;
    agent.cancel(&task.id).await?;
    expect_code(agent.cancel(&task.id).await, error_code::TASK_NOT_CANCELABLE)
}

async fn finished(agent: Arc<Agent>) -> Outcome {
    let task = agent.task(&say_text("hello")).await?;
    let more = reply_to(&task.id, &task.context_id, "more");
    expect_code(agent.client.send_message(&more).await, error_code::UNSUPPORTED_OPERATION)
}

fn new_file() -> Part {
    let all = (0..=255).collect::<Vec<u8>>();
    Part::raw(all).with_filename("all.bin").with_media_type("application/octet-stream")
}

async fn parts(agent: Arc<Agent>) -> Outcome {
    let data = json!({"n": 1.0, "deep": {"list": [1.0, "two", true, null]}});
    let url = Part::url("https://files.example/a.txt").with_filename("a.txt").with_media_type("text/plain");
    let request = say(vec![Part::text("hello"), Part::data(data), new_file(), url]);
    let task = agent.task(&request).await?;
    expect_state(&task.status, &[TaskState::Completed])?;
    let kept = task.history.iter().flatten().find(|m| m.message_id == request.message.message_id);
    let Some(kept) = kept else { return Err(Failure(format!("history is {:?}", task.history))) };
    expect!(kept.parts.len() == 4, "parts came back as {:?}", kept.parts);
    for (kept, sent) in kept.parts.iter().zip(&request.message.parts) {
        // JSON has one kind of numbers, the types of the SDK have two.
        let same = match (&kept.content, &sent.content) {
            (PartContent::Data(kept), PartContent::Data(_)) => {
                kept["n"].as_f64() == Some(1.0)
                    && kept["deep"]["list"][0].as_f64() == Some(1.0)
                    && kept["deep"]["list"]
                        .as_array()
                        .is_some_and(|list| list[1..] == [json!("two"), json!(true), json!(null)])
            }
            _ => kept == sent,
        };
        expect!(same, "{sent:?} came back as {kept:?}");
    }
    Ok(())
}

async fn subscribe(agent: Arc<Agent>) -> Outcome {
    let task = agent.hold().await?;
    let request = SubscribeToTaskRequest { id: task.id.clone(), tenant: None };
    let events = agent.client.subscribe_to_task(&request).await?;
    let (events, canceled) = collect_while(events, agent.cancel(&task.id)).await?;
    expect_state(&canceled.status, &[TaskState::Canceled])?;
    expect!(matches!(events.first(), Some(StreamResponse::Task(_))), "events are {events:?}");
    match events.last() {
        Some(StreamResponse::StatusUpdate(update)) => expect_state(&update.status, &[TaskState::Canceled]),
        _ => Err(Failure(format!("events are {events:?}"))),
    }
}

async fn ask(agent: Arc<Agent>) -> Outcome {
    let task = agent.task(&say_text("ask")).await?;
    expect_state(&task.status, &[TaskState::InputRequired])?;
    let question = task.status.message.as_ref().map(|message| text_of(&message.parts));
    expect!(question.is_some_and(|text| !text.is_empty()), "no question: {:?}", task.status);
    let done = agent.task(&reply_to(&task.id, &task.context_id, "answer")).await?;
    expect!(done.id == task.id, "another task: {done:?}");
    expect_state(&done.status, &[TaskState::Completed])?;
    expect!(text_of_artifacts(&done) == "answer", "artifacts are {:?}", done.artifacts);
    Ok(())
}

async fn ask_by_stream(agent: Arc<Agent>) -> Outcome {
    let asked = agent.stream(&say_text("ask")).await?;
    let Some(StreamResponse::StatusUpdate(last)) = asked.last() else {
        return Err(Failure(format!("events are {asked:?}")));
    };
    expect_state(&last.status, &[TaskState::InputRequired])?;
    let answered = agent.stream(&reply_to(&last.task_id, &last.context_id, "answer")).await?;
    match answered.last() {
        Some(StreamResponse::StatusUpdate(last)) => expect_state(&last.status, &[TaskState::Completed]),
        _ => Err(Failure(format!("events are {answered:?}"))),
    }
}

async fn message(agent: Arc<Agent>) -> Outcome {
    let plain = agent.client.send_message(&say_text("message hello")).await?;
    let SendMessageResponse::Message(plain) = plain else {
        return Err(Failure(format!("expected a message, got {plain:?}")));
    };
    let events = agent.stream(&say_text("message hello")).await?;
    let [StreamResponse::Message(streamed)] = &events[..] else {
        return Err(Failure(format!("events are {events:?}")));
    };
    for reply in [&plain, streamed] {
        expect!(reply.role == Role::Agent && text_of(&reply.parts) == "message hello", "got {reply:?}");
    }
    Ok(())
}

async fn file(agent: Arc<Agent>) -> Outcome {
    let task = agent.task(&say(vec![Part::text("file"), new_file()])).await?;
    expect_state(&task.status, &[TaskState::Completed])?;
    expect!(text_of_artifacts(&task) == "256", "the agent read {} bytes", text_of_artifacts(&task));
    let parts = task.artifacts.iter().flatten().flat_map(|artifact| &artifact.parts).collect::<Vec<_>>();
    expect!(parts.len() == 2 && *parts[1] == new_file(), "the file came back as {parts:?}");
    Ok(())
}

fn new_webhook(url: &str, id: &str, task: &str) -> TaskPushNotificationConfig {
    let credentials = Some(CREDENTIALS.to_owned());
    TaskPushNotificationConfig {
        url: url.to_owned(),
        id: Some(id.to_owned()),
        task_id: task.to_owned(),
        token: Some(TOKEN.to_owned()),
        authentication: Some(AuthenticationInfo { scheme: "Bearer".to_owned(), credentials }),
        tenant: None,
    }
}

async fn webhooks(agent: Arc<Agent>) -> Outcome {
    const URL: &str = "http://receiver.example/hook";
    let task = agent.task(&say_text("hello")).await?.id;
    let same = |found: &TaskPushNotificationConfig, id: &str| {
        expect!(
            found.task_id == task && found.id.as_deref() == Some(id) && found.url == URL,
            "got {found:?}"
        );
        Ok(())
    };
    let ids = async || {
        let request = ListTaskPushNotificationConfigsRequest {
            task_id: task.clone(),
            page_size: None,
            page_token: None,
            tenant: None,
        };
        let page = agent.client.list_push_configs(&request).await?;
        let mut ids = page.configs.into_iter().filter_map(|config| config.id).collect::<Vec<_>>();
        ids.sort();
        Ok::<_, Failure>(ids)
    };
    let get = async |task_id: &TaskId| {
        let request =
            GetTaskPushNotificationConfigRequest { task_id: task_id.clone(), id: "w-1".into(), tenant: None };
        agent.client.get_push_config(&request).await
    };
    let delete = async |task_id: &TaskId| {
        let request = DeleteTaskPushNotificationConfigRequest {
            task_id: task_id.clone(),
            id: "w-1".into(),
            tenant: None,
        };
        agent.client.delete_push_config(&request).await
    };
    for id in ["w-1", "w-2"] {
        same(&agent.client.create_push_config(&new_webhook(URL, id, &task)).await?, id)?;
    }
    same(&get(&task).await?, "w-1")?;
    let all = ids().await?;
    expect!(all == ["w-1", "w-2"], "listed {all:?}");
    delete(&task).await?;
    let left = ids().await?;
    expect!(left == ["w-2"], "listed {left:?}");
    expect_code(get(&task).await, error_code::TASK_NOT_FOUND)?;
    expect_code(get(&new_task_id()).await, error_code::TASK_NOT_FOUND)?;
    expect_code(delete(&new_task_id()).await, error_code::TASK_NOT_FOUND)
}

async fn notified(agent: Arc<Agent>) -> Outcome {
    let webhook = Webhook::open().await;
    let mut request = say_text("hello");
    request.configuration = Some(SendMessageConfiguration {
        accepted_output_modes: None,
        task_push_notification_config: Some(new_webhook(&webhook.url, "w-1", "")),
        history_length: None,
        return_immediately: None,
    });
    let task = agent.task(&request).await?;
    let (mut text, mut state) = (String::new(), TaskState::Unspecified);
    while state != TaskState::Completed {
        let event: StreamResponse = serde_json::from_slice(&webhook.next().await)?;
        expect!(task_of(&event) == Some(&task.id), "notified of {event:?}");
        match event {
            StreamResponse::Task(told) => {
                (state, text) = (told.status.state.clone(), text_of_artifacts(&told))
            }
            StreamResponse::StatusUpdate(update) => state = update.status.state,
            StreamResponse::ArtifactUpdate(update) => text += &text_of(&update.artifact.parts),
            StreamResponse::Message(_) => {}
        }
    }
    expect!(text == "hello", "notified of artifacts {text:?}");
    Ok(())
}

/// The list of checks under their names.
macro_rules! checks {
    ($($name:ident),+ $(,)?) => {
        &[$({
            let run: fn(Arc<Agent>) -> BoxFuture<'static, Outcome> = |agent| Box::pin($name(agent));
            (stringify!($name), run)
        }),+]
    };
}

#[tokio::main]
async fn main() {
    let options = Options::read();
    let suite = Suite {
        checks: checks![
            send,
            stream,
            get,
            history_zero,
            list_tasks,
            not_found,
            refused_stream,
            cancel,
            cancel_again,
            finished,
            parts,
            subscribe,
        ],
        talk: checks![ask, ask_by_stream, message, file],
        push: checks![webhooks, notified],
    };
    run(&options, connect(&options).await, suite).await;
}
