//! Push notification configs in their stored form: the fields that delivery needs, and the config itself,
//! sealed because it may hold secrets.

use std::sync::Arc;

use http::HeaderValue;
use nuncio_protocol::{
    CallContext, Error, PushConfigId, Result, TaskId, TaskPushNotificationConfig, TraceContext, Version,
};
use serde::{Deserialize, Serialize};
use url::Url;

use super::{courier::Courier, seal::Vault};
use crate::{id::new_id, store::Webhook};

/// Limits of a caller's values, in bytes.
const MAX_URL_BYTES: usize = 2_048;
const MAX_ID_BYTES: usize = 256;
const MAX_SECRET_BYTES: usize = 8_192;

/// The stored form of a config: the body of a [`Webhook`].
#[derive(Serialize, Deserialize)]
struct StoredConfig {
    /// The version of the call that created the config; notifications are sent in this version (trap T-43).
    version: Arc<str>,
    /// The origin of the URL, for display. The rest of a URL may be secret.
    origin: String,
    /// The config as JSON, sealed.
    sealed: String,
    /// The trace context of the call that created the config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<(String, Option<String>)>,
}

/// An unsealed config.
pub(super) struct Config {
    pub(super) url: Url,
    pub(super) given: TaskPushNotificationConfig,
    pub(super) version: Version,
    pub(super) trace: Option<TraceContext>,
}

/// Validates and seals a caller's config; returns the webhook to store and the config to return to the
/// caller. `field` is the path of the config in the request, for error messages.
pub(super) fn seal(
    vault: &Vault,
    courier: &dyn Courier,
    cx: &CallContext,
    task_id: &TaskId,
    mut config: TaskPushNotificationConfig,
    field: &str,
) -> Result<(Webhook, TaskPushNotificationConfig)> {
    let url = check(courier, &config, field)?;
    let id = config.id.get_or_insert_with(|| name(cx.version, task_id)).clone();
    config.task_id = Some(task_id.clone());
    let given = serde_json::to_string(&config).map_err(Error::internal)?;
    let kept = StoredConfig {
        version: cx.version.as_str().into(),
        origin: url.origin().ascii_serialization(),
        sealed: vault.seal(&place(task_id, &id), &given)?,
        trace: cx.trace.as_ref().map(|trace| (trace.parent.clone(), trace.state.clone())),
    };
    let target =
        format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(0));
    let body = serde_json::to_string(&kept).map_err(Error::internal)?;
    Ok((Webhook { uid: new_id::<String>().into(), id, target: target.into(), body: body.into() }, config))
}

/// Unseals a webhook's config; `None` if our key cannot open it.
pub(super) fn open(vault: &Vault, task_id: &TaskId, webhook: &Webhook) -> Option<Config> {
    let kept: StoredConfig = serde_json::from_str(&webhook.body).ok()?;
    let given = vault.open(&place(task_id, &webhook.id), &kept.sealed)?;
    let given: TaskPushNotificationConfig = serde_json::from_str(&given).ok()?;
    Some(Config {
        url: Url::parse(&given.url).ok()?,
        given,
        version: Version::parse(&kept.version)?,
        trace: kept.trace.map(|(parent, state)| TraceContext { parent, state }),
    })
}

/// The origin of a webhook's URL, for display. The rest of a URL may be secret.
#[must_use]
pub fn shown_url(webhook: &Webhook) -> String {
    serde_json::from_str(&webhook.body)
        .map_or_else(|_| webhook.target.to_string(), |kept: StoredConfig| kept.origin)
}

/// The id for a config without one. A v0.3 caller may also read its config without an id; the id is then the
/// task's.
fn name(version: Version, task_id: &TaskId) -> PushConfigId {
    match version {
        Version::V1_0 => new_id(),
        Version::V0_3 => task_id.as_str().into(),
    }
}

/// The context to which a sealed config is bound: one webhook of one task.
fn place(task_id: &TaskId, id: &PushConfigId) -> String {
    format!("{task_id}/{id}")
}

pub(super) fn check(courier: &dyn Courier, config: &TaskPushNotificationConfig, field: &str) -> Result<Url> {
    let wrong = |name: &str, why: String| Error::invalid_field(format!("{field}{name}"), why);
    if config.url.len() > MAX_URL_BYTES {
        return Err(wrong("url", format!("at most {MAX_URL_BYTES} bytes are allowed")));
    }
    let url = Url::parse(&config.url).map_err(|error| wrong("url", format!("is not a URL: {error}")))?;
    courier.check(&url).map_err(|why| wrong("url", why))?;
    if config.id.as_ref().is_some_and(|id| id.as_str().len() > MAX_ID_BYTES) {
        return Err(wrong("id", format!("at most {MAX_ID_BYTES} bytes are allowed")));
    }
    if config.tenant.as_ref().is_some_and(|tenant| tenant.len() > MAX_ID_BYTES) {
        return Err(wrong("tenant", format!("at most {MAX_ID_BYTES} bytes are allowed")));
    }
    let authentication = config.authentication.as_ref();
    let scheme = authentication.map(|authentication| authentication.scheme.as_str());
    let is_scheme = |scheme: &str| (1..=MAX_ID_BYTES).contains(&scheme.len()) && scheme.bytes().all(is_token);
    if !scheme.is_none_or(is_scheme) {
        return Err(wrong("authentication.scheme", "expected one HTTP scheme, such as Bearer".to_owned()));
    }
    let credentials = authentication.and_then(|authentication| authentication.credentials.as_ref());
    for (name, secret) in [("token", config.token.as_ref()), ("authentication.credentials", credentials)] {
        let sendable =
            |secret: &String| secret.len() <= MAX_SECRET_BYTES && HeaderValue::from_str(secret).is_ok();
        if !secret.is_none_or(sendable) {
            return Err(wrong(
                name,
                format!("expected at most {MAX_SECRET_BYTES} bytes that a header can hold"),
            ));
        }
    }
    Ok(url)
}

/// A character of a token (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
