//! Checks of webhooks.

use nuncio_protocol::{ErrorKind, Version};
use serde_json::Value;

use super::{Row, Run, errors::contested_body};
use crate::{
    answer::{Answer, Typed},
    interface::Interface,
    observed::{Checked, Observed},
    outcome::Unseen,
    probe::refused_with,
    push::{CREDENTIALS, Delivery, PushSeen, SCHEME, created, is_repeated},
};

/// Webhooks over one interface, as checks read them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushTalk<'a> {
    pub(crate) interface: &'a Interface,
    pub(crate) seen: &'a PushSeen,
    /// True if the agent can reach the receiver.
    pub(crate) can_arrive: bool,
}

pub(super) const CHECKS: &[Row] = &[
    ("push.create", Run::Pushed(create)),
    ("push.get", Run::Pushed(get)),
    ("push.list", Run::Pushed(list)),
    ("push.delete", Run::Pushed(delete)),
    ("push.arrives", Run::Pushed(arrives)),
    ("push.shape", Run::Pushed(shape)),
    ("push.type", Run::Pushed(media_type)),
    ("push.credentials", Run::Pushed(credentials)),
    ("push.retried", Run::Pushed(retried)),
    ("push.private", Run::Pushed(private)),
];

/// The answer to a call about webhooks.
fn answer<'a>(talk: &'a PushTalk<'_>, name: &'static str) -> Result<&'a Answer, Observed> {
    if talk.seen.is_address_refused() {
        let why =
            "the agent refuses webhooks on this machine; give it an address that it accepts with --push-url";
        return Err(Observed::no_setup(why));
    }
    if let Some(why) = &talk.seen.refusal {
        return Err(Observed::no_setup(format!("a message with a webhook made no task: {why}")));
    }
    talk.seen.calls.get(name).ok_or_else(|| Observed::no_setup("no webhook could be created"))?.seen()
}

fn create(talk: &PushTalk<'_>) -> Checked {
    let answer = answer(talk, "create")?;
    if let Some(contested) = contested_body(talk.interface, answer) {
        return Ok(contested);
    }
    let Some(config) = created(answer) else {
        return Err(Observed::broken(format!("a webhook cannot be created: {}", answer.shown()))
            .seen(answer.shown())
            .on(&answer.exchange));
    };
    if config.id.as_ref().is_none_or(|id| id.as_str().is_empty()) {
        return Err(Observed::broken("the created webhook has no id").expecting("id").on(&answer.exchange));
    }
    Ok(Observed::met().on(&answer.exchange))
}

fn get(talk: &PushTalk<'_>) -> Checked {
    let got = answer(talk, "get")?;
    if created(got).is_none() {
        return Err(Observed::broken(format!("the created webhook cannot be read: {}", got.shown()))
            .on(&got.exchange));
    }
    let unknown = answer(talk, "get-unknown")?;
    // 0.3 has no error for a webhook that does not exist.
    if talk.interface.version == Version::V0_3 && unknown.error().is_some() {
        return Ok(Observed::met().on(&unknown.exchange));
    }
    refused_with(unknown, &[ErrorKind::TaskNotFound])
}

fn list(talk: &PushTalk<'_>) -> Checked {
    let id = created(answer(talk, "create")?).and_then(|config| config.id.clone());
    let answer = answer(talk, "list")?;
    let Some(Ok(Typed::PushConfigs(page))) = answer.success().map(|success| &success.typed) else {
        return Err(
            Observed::broken(format!("webhooks cannot be listed: {}", answer.shown())).on(&answer.exchange)
        );
    };
    if page.configs.iter().any(|config| config.id == id) {
        return Ok(Observed::met().on(&answer.exchange));
    }
    Err(Observed::broken("the list does not have the created webhook").on(&answer.exchange))
}

fn delete(talk: &PushTalk<'_>) -> Checked {
    for name in ["delete", "delete-again"] {
        // In 0.3 a second delete may fail.
        if name == "delete-again" && talk.interface.version == Version::V0_3 {
            continue;
        }
        let answer = answer(talk, name)?;
        if answer.error().is_some() {
            let which =
                if name == "delete" { "a webhook cannot be deleted" } else { "a second delete fails" };
            return Err(Observed::broken(format!("{which}: {}", answer.shown()))
                .seen(answer.shown())
                .on(&answer.exchange));
        }
    }
    let deleted = created(answer(talk, "create")?).and_then(|config| config.id.clone());
    let after = answer(talk, "get-deleted")?;
    if let Some(config) = created(after) {
        if config.id != deleted {
            return Ok(Observed::no_setup("the agent answers with another webhook than that of the id"));
        }
        return Err(Observed::broken("the deleted webhook can still be read").on(&after.exchange));
    }
    Ok(Observed::met().on(&after.exchange))
}

/// The notifications that arrived.
fn deliveries<'a>(talk: &'a PushTalk<'_>) -> Result<&'a [Delivery], Observed> {
    answer(talk, "sent")?;
    if talk.seen.deliveries.is_empty() {
        return Err(Observed::no_setup("no notification arrived"));
    }
    Ok(&talk.seen.deliveries)
}

fn arrives(talk: &PushTalk<'_>) -> Checked {
    let sent = answer(talk, "sent")?;
    if !talk.seen.deliveries.is_empty() {
        return Ok(Observed::met());
    }
    if !talk.can_arrive {
        let why =
            "the agent may not be able to reach this machine; give the address of a tunnel with --push-url";
        return Ok(Observed::unseen(Unseen::Setup, why));
    }
    if !talk.seen.has_ended {
        return Ok(Observed::unseen(Unseen::Slow, "no notification arrived before the task had ended"));
    }
    Err(Observed::broken("no notification arrived").expecting("a POST to the webhook").on(&sent.exchange))
}

const MEMBERS: &[&str] = &["task", "message", "statusUpdate", "artifactUpdate"];
const KINDS: &[&str] = &["task", "message", "status-update", "artifact-update"];

fn shape(talk: &PushTalk<'_>) -> Checked {
    for delivery in deliveries(talk)? {
        let body: Value = serde_json::from_slice(&delivery.body).unwrap_or_default();
        let members = MEMBERS.iter().filter(|name| body[**name].is_object()).count();
        let has_kind = body["kind"].as_str().is_some_and(|kind| KINDS.contains(&kind));
        let is_formed = match talk.interface.version {
            Version::V1_0 => members == 1 && body.get("kind").is_none(),
            Version::V0_3 => has_kind || members == 1,
        };
        if !is_formed {
            let expected = match talk.interface.version {
                Version::V1_0 => "exactly one of task, message, statusUpdate, artifactUpdate",
                Version::V0_3 => "a task with kind",
            };
            return Err(Observed::broken("a notification has another form")
                .seen(crate::wire::shortened(&String::from_utf8_lossy(&delivery.body)))
                .expecting(expected));
        }
    }
    Ok(Observed::met())
}

fn media_type(talk: &PushTalk<'_>) -> Checked {
    let first = &deliveries(talk)?[0];
    let seen = first.headers.get("content-type").map(String::as_str).unwrap_or_default();
    let seen = seen.split(';').next().unwrap_or_default().trim();
    let expected = match talk.interface.version {
        Version::V1_0 => "application/a2a+json",
        Version::V0_3 => "application/json",
    };
    Ok(if seen == expected {
        Observed::met()
    } else if seen == "application/json" {
        Observed::info(
            "notifications are application/json: 1.0.0 says so; 1.0.1 asks for application/a2a+json",
        )
    } else {
        Observed::broken("notifications have another media type").seen(seen).expecting(expected)
    })
}

fn credentials(talk: &PushTalk<'_>) -> Checked {
    let expected = format!("{SCHEME} {CREDENTIALS}");
    let without = |delivery: &&Delivery| {
        delivery.headers.get("authorization").is_none_or(|value| !value.eq_ignore_ascii_case(&expected))
    };
    match deliveries(talk)?.iter().find(without) {
        None => Ok(Observed::met()),
        Some(_) if talk.interface.version == Version::V0_3 => Ok(Observed::info(
            "a notification does not carry the credentials of its webhook: the specification of 0.3 lets the server \
             authenticate itself, its guide demands it",
        )),
        Some(delivery) => {
            let seen = if delivery.headers.contains_key("authorization") {
                "another value"
            } else {
                "no Authorization"
            };
            Err(Observed::broken("a notification does not carry the credentials of its webhook")
                .seen(seen)
                .expecting(format!("Authorization: {expected}")))
        }
    }
}

fn retried(talk: &PushTalk<'_>) -> Checked {
    if is_repeated(deliveries(talk)?) {
        return Ok(Observed::met());
    }
    Err(Observed::broken("the notification that was answered with 503 was not sent again in time")
        .expecting("the same notification once more"))
}

fn private(talk: &PushTalk<'_>) -> Checked {
    let answer = answer(talk, "private")?;
    if answer.error().is_some() {
        return Ok(Observed::met().on(&answer.exchange));
    }
    Err(Observed::broken("a webhook at the private address 10.255.255.1 is accepted")
        .seen(answer.shown())
        .expecting("error -32602 (INVALID_PARAMS)")
        .on(&answer.exchange))
}
