//! An echo agent on the official Rust SDK, in all bindings. Argument: port.

use std::{env, sync::Arc};

use a2a::{
    A2AError, AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Artifact, Message, Part, PartContent,
    Role, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
    new_artifact_id,
};
use a2a_grpc::GrpcHandler;
use a2a_pb::proto::a2a_service_server::A2aServiceServer;
use a2a_server::{
    AgentExecutor, DefaultRequestHandler, ExecutorContext, HttpPushSender, HttpPushSenderConfig,
    InMemoryPushConfigStore, InMemoryTaskStore, StaticAgentCard, agent_card::agent_card_router,
    jsonrpc::jsonrpc_router, rest::rest_router,
};
use axum::Router;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;

struct Echo;

fn status(cx: &ExecutorContext, state: TaskState, message: Option<Message>) -> StreamResponse {
    let (task_id, context_id) = cx.task_info();
    let status = TaskStatus { state, message, timestamp: None };
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent { task_id, context_id, status, metadata: None })
}

/// The text, or for "file" the size of the file in bytes and the file itself.
fn answer(text: String, parts: &[Part]) -> Vec<Part> {
    let file = parts.iter().find_map(|part| match &part.content {
        PartContent::Raw(raw) => Some((raw.len(), part.clone())),
        _ => None,
    });
    match file {
        Some((size, file)) if text == "file" => vec![Part::text(size.to_string()), file],
        _ => vec![Part::text(text)],
    }
}

impl AgentExecutor for Echo {
    fn execute(&self, cx: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let message = cx.message.clone().expect("an execution has a message");
        let text: String = message.parts.iter().filter_map(Part::as_text).collect();
        // The SDK stores a task before its first execution, so that a stored task does not show a follow-up.
        let first = message.task_id.is_none();
        let (task_id, context_id) = cx.task_info();
        let mut events = Vec::new();
        if first && text.starts_with("message") {
            let mut reply = Message::new(Role::Agent, vec![Part::text(text)]);
            reply.context_id = Some(context_id);
            return stream::iter([Ok(StreamResponse::Message(reply))]).boxed();
        }
        if first {
            events.push(StreamResponse::Task(Task {
                id: task_id.clone(),
                context_id: context_id.clone(),
                status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: None },
                artifacts: None,
                history: Some(vec![message.clone()]),
                metadata: None,
            }));
        }
        events.push(status(&cx, TaskState::Working, None));
        if first && text == "ask" {
            let mut question = Message::new(Role::Agent, vec![Part::text("What shall I echo?")]);
            (question.task_id, question.context_id) = (Some(task_id), Some(context_id));
            events.push(status(&cx, TaskState::InputRequired, Some(question)));
        } else if first && text.starts_with("hold") {
            return stream::iter(events.into_iter().map(Ok)).chain(stream::pending()).boxed();
        } else {
            let artifact = Artifact {
                artifact_id: new_artifact_id(),
                name: Some("echo".to_owned()),
                description: None,
                parts: answer(text, &message.parts),
                metadata: None,
                extensions: None,
            };
            events.push(StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id,
                context_id,
                artifact,
                append: None,
                last_chunk: Some(true),
                metadata: None,
            }));
            events.push(status(&cx, TaskState::Completed, None));
        }
        stream::iter(events.into_iter().map(Ok)).boxed()
    }

    fn cancel(&self, cx: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        stream::iter([Ok(status(&cx, TaskState::Canceled, None))]).boxed()
    }
}

#[tokio::main]
async fn main() {
    let port = env::args().nth(1).expect("missing argument: the port");
    let http = TcpListener::bind(format!("127.0.0.1:{port}")).await.expect("the port is free");
    let grpc = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let url = format!("http://127.0.0.1:{port}");
    let capabilities = AgentCapabilities {
        streaming: Some(true),
        push_notifications: Some(true),
        extensions: None,
        extended_agent_card: None,
    };
    let card = AgentCard {
        name: "Echo (Rust SDK)".to_owned(),
        description: "Echoes what it is sent.".to_owned(),
        version: "1.0.0".to_owned(),
        supported_interfaces: vec![
            AgentInterface::new(format!("{url}/"), "JSONRPC"),
            AgentInterface::new(format!("{url}/rest"), "HTTP+JSON"),
            AgentInterface::new(grpc.local_addr().expect("it is bound").to_string(), "GRPC"),
        ],
        capabilities: capabilities.clone(),
        default_input_modes: vec!["text/plain".to_owned(), "application/octet-stream".to_owned()],
        default_output_modes: vec!["text/plain".to_owned()],
        skills: vec![AgentSkill {
            id: "echo".to_owned(),
            name: "Echo".to_owned(),
            description: "Echoes text.".to_owned(),
            tags: vec!["echo".to_owned()],
            examples: None,
            input_modes: None,
            output_modes: None,
            security_requirements: None,
        }],
        provider: None,
        documentation_url: None,
        icon_url: None,
        security_schemes: None,
        security_requirements: None,
        signatures: None,
    };
    // Webhooks of the tests are on this machine.
    let sender = HttpPushSender::new(Some(HttpPushSenderConfig { validate_urls: false, ..<_>::default() }));
    let handler = DefaultRequestHandler::new(Echo, InMemoryTaskStore::new())
        .with_push_notifications(InMemoryPushConfigStore::new(), sender)
        .with_capabilities(capabilities);
    let handler = Arc::new(handler);
    let services = tonic::transport::Server::builder()
        .add_service(A2aServiceServer::new(GrpcHandler::new(Arc::clone(&handler))));
    tokio::spawn(services.serve_with_incoming(TcpListenerStream::new(grpc)));
    let app = Router::new()
        .merge(agent_card_router(Arc::new(StaticAgentCard::new(card))))
        .merge(jsonrpc_router(Arc::clone(&handler)))
        .nest("/rest", rest_router(handler));
    println!("listening on {port}");
    axum::serve(http, app).await.expect("serving does not end by itself");
}
