//! Broken webhooks, and callers that are not isolated.

use axum::response::Response;
use http::HeaderValue;
use serde_json::{Value, json};

use super::{Case, Depth, UNKNOWN, internal, json_response, send};
use crate::{
    agent::{Behaviour, CALLER},
    breaker::{Asked, Breaker, Told, WHOLE},
    courier::Notify,
};

fn pushing() -> Behaviour {
    Behaviour { pushes: true, ..Default::default() }
}

fn push(check: &'static str, after: fn(&Asked, &mut Told)) -> Case {
    let breaker = Breaker { after: Some(after), ..WHOLE };
    Case { depth: Depth::Push, behaviour: pushing(), ..send(check, breaker) }
}

fn notified(check: &'static str, notify: Option<Notify>) -> Case {
    Case { depth: Depth::Push, behaviour: Behaviour { notify, ..pushing() }, ..send(check, WHOLE) }
}

/// An internal error instead of what a method answers.
fn fail(told: &mut Told) {
    let id = told.body()["id"].clone();
    *told.body() = json!({ "jsonrpc": "2.0", "id": id, "error": internal() });
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = webhooks();
    cases.extend(notifications());
    cases.extend(isolation());
    cases
}

fn webhooks() -> Vec<Case> {
    vec![
        push("push.create", |asked, told| {
            if asked.rpc() == "CreateTaskPushNotificationConfig"
                && let Some(result) = told.body()["result"].as_object_mut()
            {
                result.remove("id");
            }
        }),
        push("push.get", |asked, told| {
            if asked.json["params"]["id"] == "nuncio-audit-unknown" {
                fail(told);
            }
        }),
        push("push.list", |asked, told| {
            if asked.rpc() == "ListTaskPushNotificationConfigs" && told.body()["result"].is_object() {
                told.body()["result"]["configs"] = json!([]);
            }
        }),
        push("push.delete", |asked, told| {
            if asked.rpc() == "DeleteTaskPushNotificationConfig" {
                fail(told);
            }
        }),
        Case {
            depth: Depth::Push,
            behaviour: Behaviour { private_webhooks: true, ..pushing() },
            ..send("push.private", WHOLE)
        },
    ]
}

fn notifications() -> Vec<Case> {
    vec![
        notified("push.arrives", None),
        notified(
            "push.shape",
            Some(|headers, body, _| {
                let mut json: Value = serde_json::from_slice(&body).unwrap_or_default();
                json["kind"] = json!("task");
                Some((headers, json.to_string().into()))
            }),
        ),
        notified(
            "push.type",
            Some(|mut headers, body, _| {
                headers.insert("content-type", HeaderValue::from_static("text/plain"));
                Some((headers, body))
            }),
        ),
        notified(
            "push.credentials",
            Some(|mut headers, body, _| {
                headers.remove("authorization");
                Some((headers, body))
            }),
        ),
        notified("push.retried", Some(|headers, body, number| (number == 0).then_some((headers, body)))),
    ]
}

/// The second caller is taken for the first in this method.
macro_rules! mixed_up {
    ($check:literal, $method:literal) => {{
        fn before(asked: &mut Asked) {
            if asked.rpc() == $method && asked.header("authorization").contains("second") {
                asked.headers.insert(CALLER, HeaderValue::from_static("alice"));
            }
        }
        Case {
            depth: Depth::Key,
            behaviour: Behaviour {
                needs_caller: true,
                card: super::operations::closed,
                ..Default::default()
            },
            ..send($check, Breaker { before: Some(before), ..WHOLE })
        }
    }};
}

/// The second caller may make webhooks for every task that exists.
fn accept_webhook(asked: &Asked) -> Option<Response> {
    let is_second = asked.rpc() == "CreateTaskPushNotificationConfig"
        && asked.header("authorization").contains("second")
        && asked.json["params"]["taskId"] != UNKNOWN;
    let made =
        json!({ "taskId": asked.json["params"]["taskId"], "id": "w", "url": asked.json["params"]["url"] });
    is_second
        .then(|| json_response(200, &json!({ "jsonrpc": "2.0", "id": asked.json["id"], "result": made })))
}

fn isolation() -> Vec<Case> {
    let pushes = |case: Case| Case { behaviour: Behaviour { pushes: true, ..case.behaviour }, ..case };
    vec![
        mixed_up!("isolation.get", "GetTask"),
        mixed_up!("isolation.cancel", "CancelTask"),
        mixed_up!("isolation.subscribe", "SubscribeToTask"),
        mixed_up!("isolation.send", "SendMessage"),
        pushes(mixed_up!("isolation.push", "ListTaskPushNotificationConfigs")),
        // By deleting a webhook that is not there another caller learns that the task is.
        pushes(mixed_up!("isolation.push", "DeleteTaskPushNotificationConfig")),
        Case {
            depth: Depth::Key,
            behaviour: Behaviour { needs_caller: true, card: super::operations::closed, ..pushing() },
            ..send("isolation.push", Breaker { instead: Some(accept_webhook), ..WHOLE })
        },
        mixed_up!("isolation.list", "ListTasks"),
    ]
}
