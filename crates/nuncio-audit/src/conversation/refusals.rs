//! Messages that have to be refused. They count as messages only if the agent accepts them.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use nuncio_protocol::{
    Binding, ContextId, Message, Part, SendMessageRequest, TaskId, Version,
    op::{Call, Op},
};
use serde_json::{Value, json};

use super::{Conversation, message, send as sending};
use crate::{
    probe::{Probe, UNKNOWN},
    wire::{Request, frame},
};

/// A media type that no agent has.
const UNKNOWN_MEDIA_TYPE: &str = "application/x-nuncio-audit";
/// The context of nobody.
const OTHER_CONTEXT: &str = "nuncio-audit-other-context";
/// The text of messages that have to be refused.
const TEXT: &str = "nuncio audit: this message has to be refused";

/// Sends the messages that have to be refused.
pub(super) async fn send(probe: &Probe<'_>, seen: &mut Conversation) {
    refuse(probe, seen, "empty-params", without_message(probe)).await;
    // 0.3 has no least number of parts, and lets an agent ignore unknown members of a part.
    if probe.interface.version == Version::V1_0 {
        let mut empty = message(TEXT);
        empty.parts.clear();
        refuse(probe, seen, "empty-parts", request(probe, empty)).await;
        if probe.interface.binding != Binding::Grpc {
            refuse(probe, seen, "two-members", with_two_members(probe)).await;
        }
    }
    let mut unknown = message(TEXT);
    unknown.task_id = Some(TaskId::from(UNKNOWN));
    refuse(probe, seen, "unknown-task", request(probe, unknown)).await;
    if !probe.card.accepts_input(UNKNOWN_MEDIA_TYPE) {
        let file = Part::raw(Bytes::from_static(b"nuncio")).with_media_type(UNKNOWN_MEDIA_TYPE);
        let strange = Message { parts: vec![file], ..message(TEXT) };
        refuse(probe, seen, "media-type", request(probe, strange)).await;
    }
    let Some((id, is_ended)) = seen.task().map(|task| (task.id.clone(), task.status.state.is_terminal()))
    else {
        return;
    };
    let to_task = |context: Option<&str>| {
        let mut late = message(TEXT);
        late.task_id = Some(id.clone());
        late.context_id = context.map(ContextId::from);
        request(probe, late)
    };
    refuse(probe, seen, "context-mismatch", to_task(Some(OTHER_CONTEXT))).await;
    if is_ended {
        refuse(probe, seen, "message-ended", to_task(None)).await;
    }
}

fn request(probe: &Probe<'_>, message: Message) -> Option<Request> {
    probe.request(Call::SendMessage(Box::new(sending(message, true)))).ok()
}

/// A send whose parameters are empty.
fn without_message(probe: &Probe<'_>) -> Option<Request> {
    let request = request(probe, message(TEXT))?;
    Some(match probe.interface.binding {
        Binding::Grpc if probe.interface.tenant.is_some() => {
            probe.request(Call::SendMessage(Box::default())).ok()?
        }
        Binding::Grpc => request.with_body(frame(&[])),
        Binding::HttpJson => request.with_body("{}"),
        Binding::JsonRpc => {
            let mut body: Value = serde_json::from_slice(&request.body).ok()?;
            body["params"] = probe.interface.with_tenant(json!({}));
            request.with_body(body.to_string())
        }
    })
}

/// A send with a part that is text and data at once.
fn with_two_members(probe: &Probe<'_>) -> Option<Request> {
    let request = request(probe, message(TEXT))?;
    let mut body: Value = serde_json::from_slice(&request.body).ok()?;
    let params = if body["params"].is_object() { &mut body["params"] } else { &mut body };
    let parts = if params["message"]["content"].is_array() { "content" } else { "parts" };
    let part = &mut params["message"][parts][0];
    part["data"] = json!({ "nuncio": "audit" });
    Some(request.with_body(body.to_string()))
}

/// Sends a message that has to be refused. One that is accepted counts, and its task is canceled later.
async fn refuse(probe: &Probe<'_>, seen: &mut Conversation, name: &'static str, request: Option<Request>) {
    let Some(request) = request else { return };
    let answer = probe.answer(Op::SendMessage, request).await;
    if answer.success().is_some() {
        probe.session.messages.fetch_add(1, Ordering::Relaxed);
        seen.begun.extend(answer.task().map(|task| task.id.clone()));
    }
    seen.calls.insert(name, answer);
}

/// A send to a task by another caller, for the isolation of callers.
pub(crate) fn to_task(id: &TaskId) -> SendMessageRequest {
    let mut late = message(TEXT);
    late.task_id = Some(id.clone());
    sending(late, true)
}
