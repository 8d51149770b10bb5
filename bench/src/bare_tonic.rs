//! The limit of gRPC: a bare tonic service that reads typed messages and answers as the echo agent would,
//! with new ids and the present time, and keeps nothing.

use std::{
    convert::Infallible,
    time::{Duration, SystemTime},
};

use anyhow::Result;
use axum::{Router, body::Body, extract::Request, response::Response, routing::any};
use futures_util::stream;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use nuncio_protocol::pb::{
    SERVICE,
    generated::{
        Artifact, GetTaskRequest, Message, Part, Role, SendMessageRequest, SendMessageResponse,
        StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent, part,
        send_message_response, stream_response,
    },
};
use tonic::{Status, server::Grpc};
use tonic_prost::ProstCodec;
use tower::service_fn;
use uuid::Uuid;

use crate::bare::GET_TEXT;

/// As the hub has it.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The accept loop of the hub, without the hub's own layers.
pub(crate) async fn serve(listener: tokio::net::TcpListener) -> Result<()> {
    let router = Router::new().route(&format!("/{SERVICE}/{{rpc}}"), any(answer));
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http2().timer(TokioTimer::new()).keep_alive_interval(Some(KEEP_ALIVE));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (server, service) = (server.clone(), TowerToHyperService::new(router.clone()));
        tokio::spawn(async move {
            let _ = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        });
    }
}

/// Finds the method by its path and hands it to tonic, as generated code does.
async fn answer(request: Request) -> Result<Response, Infallible> {
    let rpc = request.uri().path().rsplit('/').next().unwrap_or_default();
    let response = match rpc {
        "SendMessage" => {
            let call = service_fn(async |request: tonic::Request<_>| send(request.into_inner()));
            Grpc::new(ProstCodec::default()).unary(call, request).await
        }
        "SendStreamingMessage" => {
            let call = service_fn(async |request: tonic::Request<_>| {
                let events = events(request.into_inner())?;
                Ok(tonic::Response::new(stream::iter(events.map(Ok))))
            });
            Grpc::new(ProstCodec::default()).server_streaming(call, request).await
        }
        "GetTask" => {
            let call = service_fn(async |request: tonic::Request<_>| get(request.into_inner()));
            Grpc::new(ProstCodec::default()).unary(call, request).await
        }
        _ => Status::unimplemented("").into_http(),
    };
    Ok(response.map(Body::new))
}

fn id() -> String {
    Uuid::now_v7().to_string()
}

fn status(state: TaskState) -> Option<TaskStatus> {
    let timestamp = Some(SystemTime::now().into());
    Some(TaskStatus { state: state.into(), message: None, timestamp })
}

fn artifact(artifact_id: String, parts: Vec<Part>) -> Artifact {
    Artifact { artifact_id, name: "echo".to_owned(), parts, ..Artifact::default() }
}

/// The message as the history has it.
fn received(request: SendMessageRequest, task_id: &str, context_id: &str) -> Result<Message, Status> {
    let message = request.message.ok_or_else(|| Status::invalid_argument("message: required"))?;
    Ok(Message { task_id: task_id.to_owned(), context_id: context_id.to_owned(), ..message })
}

fn send(request: SendMessageRequest) -> Result<tonic::Response<SendMessageResponse>, Status> {
    let (task_id, context_id) = (id(), id());
    let message = received(request, &task_id, &context_id)?;
    let task = Task {
        id: task_id,
        context_id,
        status: status(TaskState::Completed),
        artifacts: vec![artifact(id(), message.parts.clone())],
        history: vec![message],
        metadata: None,
    };
    let payload = Some(send_message_response::Payload::Task(task));
    Ok(tonic::Response::new(SendMessageResponse { payload }))
}

fn get(request: GetTaskRequest) -> Result<tonic::Response<Task>, Status> {
    let task_id = request.id;
    let content = Some(part::Content::Text(GET_TEXT.to_owned()));
    let message = Message {
        message_id: task_id.clone(),
        context_id: task_id.clone(),
        task_id: task_id.clone(),
        role: Role::User.into(),
        parts: vec![Part { content, ..Part::default() }],
        ..Message::default()
    };
    Ok(tonic::Response::new(Task {
        id: task_id.clone(),
        context_id: task_id.clone(),
        status: status(TaskState::Completed),
        artifacts: vec![artifact(task_id, message.parts.clone())],
        history: vec![message],
        metadata: None,
    }))
}

fn events(request: SendMessageRequest) -> Result<impl Iterator<Item = StreamResponse> + Send, Status> {
    let (task_id, context_id) = (id(), id());
    let message = received(request, &task_id, &context_id)?;
    let artifact = artifact(id(), message.parts.clone());
    let update = |state| {
        stream_response::Payload::StatusUpdate(TaskStatusUpdateEvent {
            task_id: task_id.clone(),
            context_id: context_id.clone(),
            status: status(state),
            metadata: None,
        })
    };
    let (working, completed) = (update(TaskState::Working), update(TaskState::Completed));
    let echo = TaskArtifactUpdateEvent {
        task_id: task_id.clone(),
        context_id: context_id.clone(),
        artifact: Some(artifact),
        last_chunk: true,
        ..TaskArtifactUpdateEvent::default()
    };
    let submitted = Task {
        id: task_id,
        context_id,
        status: status(TaskState::Submitted),
        history: vec![message],
        ..Task::default()
    };
    let payloads = [
        stream_response::Payload::Task(submitted),
        working,
        stream_response::Payload::ArtifactUpdate(echo),
        completed,
    ];
    Ok(payloads.into_iter().map(|payload| StreamResponse { payload: Some(payload) }))
}
