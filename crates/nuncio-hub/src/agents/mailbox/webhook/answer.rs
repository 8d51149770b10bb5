//! The meaning of what a webhook has answered. Pure.

use std::time::Duration;

use http::StatusCode;
use nuncio_client::receiver::read_body;
use nuncio_protocol::{
    Event, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent, Timestamp, Version,
    wire::{Dialect as _, V1},
};
use nuncio_server::{
    push::{Failure, NoAnswer, ReceiverAnswer},
    store::FailureCause,
};

use crate::agents::mailbox::lines::{self, Line};

/// The consequence of a delivery.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Verdict {
    /// The whole answer.
    Answered(Vec<Line>),
    /// The agent works, and writes lines.
    Begun,
    /// The task fails, for this reason.
    Refused(String),
    /// To be delivered again. It counts as an attempt if the agent may have begun.
    Retry { counts: bool, after: Duration },
    /// Nothing was sent, and nothing is to be sent before this time.
    Later(Timestamp),
    /// The webhook is gone for good.
    Gone,
}

impl Verdict {
    /// The label of metrics.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Answered(_) => "answered",
            Self::Begun => "begun",
            Self::Refused(_) => "refused",
            Self::Retry { .. } => "retried",
            Self::Later(_) => "held_back",
            Self::Gone => "gone",
        }
    }
}

/// Judges the outcome of a delivery in this version.
pub(super) fn judge(outcome: Result<ReceiverAnswer, NoAnswer>, version: Version) -> Verdict {
    let answer = match outcome {
        Ok(answer) => answer,
        Err(NoAnswer::Later(at)) => return Verdict::Later(at),
        Err(NoAnswer::Failure(failure)) => return judge_failure(&failure),
    };
    let (status, after) = (answer.response.status, answer.response.retry_after.unwrap_or_default());
    match status.as_u16() {
        200 => read(&answer.body, version),
        202 => Verdict::Begun,
        410 => Verdict::Gone,
        // The agent has not taken it: it is away, or not free.
        408 | 425 | 429 | 502 | 503 | 504 | 300..400 => Verdict::Retry { counts: false, after },
        500..600 => Verdict::Retry { counts: true, after },
        400..500 => Verdict::Refused(format!("the webhook refused the message: {}", shown(status))),
        _ => Verdict::Refused(format!(
            "the webhook answered {}; expected 200 with a message or a task, or 202",
            shown(status)
        )),
    }
}

fn judge_failure(failure: &Failure) -> Verdict {
    let again = |counts| Verdict::Retry { counts, after: Duration::ZERO };
    match failure {
        Failure::Blocked(_) => {
            Verdict::Refused("the address of the webhook is not allowed by this hub".to_owned())
        }
        Failure::Failed(cause, why) => match cause {
            FailureCause::Dns | FailureCause::Connect | FailureCause::Tls => again(false),
            FailureCause::Timeout | FailureCause::Broken | FailureCause::Other => again(true),
            FailureCause::Internal | FailureCause::Blocked => Verdict::Refused(why.to_string()),
        },
    }
}

/// Reads the answer of a 200: a message, or a task.
fn read(body: &[u8], version: Version) -> Verdict {
    let unreadable = |why: &str| {
        Verdict::Refused(format!(
            "the webhook answered 200 without a message or a task that can be read: {why}"
        ))
    };
    match read_body(body, Some(version)) {
        Ok((_, Event::Message(message))) => match lines_of([Event::Message(message)]) {
            Ok(lines) => Verdict::Answered(lines),
            Err(why) => unreadable(&why),
        },
        // What it has so far, it says again in its lines, which are numbered from 1.
        Ok((_, Event::Task(task))) if !task.status.state.is_settled() => Verdict::Begun,
        Ok((_, Event::Task(task))) => match lines_of(events(task)) {
            Ok(lines) => Verdict::Answered(lines),
            Err(why) => unreadable(&why),
        },
        Ok(_) => unreadable("it is an update"),
        Err(rejected) => unreadable(&rejected.to_string()),
    }
}

/// The events that make this task: its artifacts, and its status.
fn events(task: Task) -> Vec<Event> {
    let mut status = task.status;
    // An agent may end a task as canceled, which only the caller can do here.
    if status.state == TaskState::Canceled {
        status.state = TaskState::Failed;
    }
    let artifact = |artifact| {
        let update =
            TaskArtifactUpdateEvent { artifact, last_chunk: true, ..TaskArtifactUpdateEvent::default() };
        Event::ArtifactUpdate(update)
    };
    let last = TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() };
    task.artifacts.into_iter().map(artifact).chain([Event::StatusUpdate(last)]).collect()
}

/// Events as the lines of a worker, under the same rules.
fn lines_of(events: impl IntoIterator<Item = Event>) -> Result<Vec<Line>, String> {
    let mut body = Vec::new();
    for event in events {
        V1.encode_event(&event, &mut body);
        body.push(b'\n');
    }
    lines::parse(&body).map_err(|wrong| wrong.why)
}

fn shown(status: StatusCode) -> String {
    status.to_string().chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use nuncio_protocol::Part;
    use nuncio_server::push::ReceiverResponse;
    use serde_json::json;

    use super::*;

    fn answer(status: u16, body: &str) -> Result<ReceiverAnswer, NoAnswer> {
        let response = ReceiverResponse {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: Some(Duration::from_secs(7)),
            excerpt: String::new(),
        };
        Ok(ReceiverAnswer { response, body: Bytes::copy_from_slice(body.as_bytes()) })
    }

    #[test]
    fn every_status_has_its_consequence() {
        let after = Duration::from_secs(7);
        for (statuses, expected) in [
            (&[202][..], Some(Verdict::Begun)),
            (&[410], Some(Verdict::Gone)),
            (&[408, 425, 429, 502, 503, 504, 301, 307], Some(Verdict::Retry { counts: false, after })),
            (&[500, 501, 507, 599], Some(Verdict::Retry { counts: true, after })),
            (&[400, 401, 403, 404, 405, 409, 413, 415, 422, 499, 201, 204], None),
        ] {
            for status in statuses {
                let verdict = judge(answer(*status, ""), Version::V1_0);
                match &expected {
                    Some(expected) => assert_eq!(verdict, *expected, "{status}"),
                    None => {
                        assert!(
                            matches!(&verdict, Verdict::Refused(why) if why.contains(&status.to_string())),
                            "{verdict:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn only_what_may_have_been_received_counts() {
        use FailureCause::{Broken, Connect, Dns, Timeout, Tls};
        for (cause, counts) in [(Dns, false), (Connect, false), (Tls, false), (Timeout, true), (Broken, true)]
        {
            let failed = Err(NoAnswer::Failure(Failure::Failed(cause, "why".into())));
            assert_eq!(
                judge(failed, Version::V1_0),
                Verdict::Retry { counts, after: Duration::ZERO },
                "{cause:?}"
            );
        }
        let blocked = Err(NoAnswer::Failure(Failure::Blocked("10.0.0.1".into())));
        let Verdict::Refused(why) = judge(blocked, Version::V1_0) else { panic!() };
        assert!(!why.contains("10.0.0.1"), "an address is nobody's business: {why}");
    }

    #[test]
    fn an_answer_is_read_in_every_version_and_envelope() {
        let hi = || vec![Line::Status(TaskState::Completed, vec![Part::text("hi")])];
        let new = json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}});
        let old = json!({"kind": "message", "messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "hi"}]});
        let wrapped = json!({"jsonrpc": "2.0", "id": "1", "result": old});
        for (version, body) in
            [(Version::V1_0, &new), (Version::V0_3, &old), (Version::V0_3, &wrapped), (Version::V1_0, &old)]
        {
            assert_eq!(judge(answer(200, &body.to_string()), version), Verdict::Answered(hi()), "{body}");
        }
    }

    #[test]
    fn a_task_is_its_artifacts_and_its_status() {
        let task = |state: &str| {
            json!({"task": {"id": "t", "contextId": "c",
                "artifacts": [{"artifactId": "a", "parts": [{"text": "A"}]}],
                "status": {"state": state, "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "?"}]}}}})
        };
        for (state, expected) in [
            ("TASK_STATE_COMPLETED", Some(TaskState::Completed)),
            ("TASK_STATE_INPUT_REQUIRED", Some(TaskState::InputRequired)),
            ("TASK_STATE_REJECTED", Some(TaskState::Rejected)),
            ("TASK_STATE_CANCELED", Some(TaskState::Failed)),
            ("TASK_STATE_WORKING", None),
            ("TASK_STATE_SUBMITTED", None),
        ] {
            let verdict = judge(answer(200, &task(state).to_string()), Version::V1_0);
            let Some(expected) = expected else {
                assert_eq!(verdict, Verdict::Begun, "{state}");
                continue;
            };
            let Verdict::Answered(lines) = verdict else { panic!("{verdict:?}") };
            let [Line::Event(Event::ArtifactUpdate(_)), Line::Event(Event::StatusUpdate(last))] = &lines[..]
            else {
                panic!("{lines:?}")
            };
            assert_eq!(last.status.state, expected, "{state}");
        }
    }

    #[test]
    fn what_is_no_answer_fails_the_task() {
        for body in [
            "",
            "ok",
            "{}",
            "[]",
            r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#,
            r#"{"jsonrpc":"2.0","id":"1","error":{"code":-32000,"message":"no"}}"#,
        ] {
            let verdict = judge(answer(200, body), Version::V1_0);
            assert!(
                matches!(&verdict, Verdict::Refused(why) if why.contains("answered 200 without")),
                "{body}: {verdict:?}"
            );
        }
    }
}
