//! The rows of the table as functions. They are written from the table's text and share no code with the
//! translation.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use nuncio_protocol::{ErrorKind, Timestamp, Version};
use serde_json::{Number, Value, json};

use crate::{
    path::{FREE, Object, visit},
    wire::Kind,
};

pub(super) fn always(_: &Value) -> bool {
    true
}

pub(super) fn is_zero(value: &Value) -> bool {
    *value == 0
}

pub(super) fn is_false(value: &Value) -> bool {
    *value == false
}

pub(super) fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or_default()
}

/// The side that cannot express a value.
pub(super) fn by_sender(kind: Kind) -> ErrorKind {
    match kind {
        Kind::Call(_) => ErrorKind::InvalidParams,
        Kind::Reply(_) | Kind::Event | Kind::Error => ErrorKind::InvalidAgentResponse,
    }
}

pub(super) fn unsupported_operation(_: Kind) -> ErrorKind {
    ErrorKind::UnsupportedOperation
}

pub(super) fn version_not_supported(_: Kind) -> ErrorKind {
    ErrorKind::VersionNotSupported
}

pub(super) fn empty_object(_: &Value, _: &str) -> Option<Value> {
    Some(json!({}))
}

pub(super) fn blocking(_: &Value, _: &str) -> Option<Value> {
    Some(json!({"blocking": true}))
}

pub(super) fn yes(_: &Value, _: &str) -> Option<Value> {
    Some(true.into())
}

pub(super) fn no(_: &Value, _: &str) -> Option<Value> {
    Some(false.into())
}

pub(super) fn json_rpc(_: &Value, _: &str) -> Option<Value> {
    Some("JSONRPC".into())
}

// Webhooks

pub(super) fn has_no_task(config: &Value) -> bool {
    text(config, "taskId").is_empty()
}

pub(super) fn id_of_task(whole: &Value, _: &str) -> Option<Value> {
    whole.get("taskId").cloned()
}

pub(super) fn own_id(whole: &Value, _: &str) -> Option<Value> {
    whole.get("id").cloned()
}

/// Of a webhook without any id, below the task that is its parent.
pub(super) fn named_after_task(whole: &Value, member: &str) -> Option<Value> {
    let task = text(whole, "parent").strip_prefix("tasks/")?;
    Some(if member == "name" {
        format!("tasks/{task}/pushNotificationConfigs/{task}").into()
    } else {
        task.into()
    })
}

pub(super) fn has_no_scheme(authentication: &Value) -> bool {
    text(authentication, "scheme").is_empty() && text(authentication, "credentials").is_empty()
}

pub(super) fn bearer_if_empty(scheme: &mut Value) {
    if *scheme == "" {
        *scheme = "Bearer".into();
    }
}

fn schemes_are_empty(authentication: &Object) -> bool {
    authentication.get("schemes").is_none_or(is_default)
}

pub(super) fn says_nothing(authentication: &Value) -> bool {
    authentication.as_object().is_some_and(schemes_are_empty)
        && text(authentication, "credentials").is_empty()
}

pub(super) fn first_only(list: &mut Value) {
    if let Value::Array(list) = list {
        list.truncate(1);
    }
}

pub(super) fn bearer(authentication: &Object) -> Option<Value> {
    let meant = schemes_are_empty(authentication) && authentication.contains_key("credentials");
    meant.then(|| json!(["Bearer"]))
}

// Events

/// True after the states that end an interaction, and after no other.
pub(super) fn is_last(update: &Object) -> Option<Value> {
    if update.get("kind").is_some_and(|kind| kind != "status-update") {
        return None;
    }
    let state = update.get("status")?["state"].as_str()?.trim_start_matches("TASK_STATE_");
    let state = state.to_ascii_lowercase().replace('_', "-");
    let last = ["completed", "failed", "canceled", "cancelled", "rejected", "input-required"];
    Some(last.contains(&state.as_str()).into())
}

/// The base64 text of content that is not such text already; on the wire it is base64 once more.
pub(super) fn to_base64_text(content: &mut Value) {
    let Some(text) = content.as_str().filter(|text| !text.is_empty()) else { return };
    if STANDARD.decode(text).is_ok_and(|content| STANDARD.decode(content).is_err()) {
        *content = STANDARD.encode(text).into();
    }
}

pub(super) fn cut_to_milliseconds(timestamp: &mut Value) {
    if let Some(moment) = timestamp.as_str().and_then(|text| Timestamp::parse(text).ok()) {
        *timestamp = moment.to_string().into();
    }
}

// Protobuf

/// Up to here protobuf can say every integer.
const MAX_INTEGER: u64 = 1 << 53;

/// A whole number that was written with a fraction of nothing.
pub(super) fn to_integers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let double = number.as_f64().unwrap_or_default();
            let minus_zero = double == 0.0 && double.is_sign_negative();
            if double.fract() == 0.0 && double.abs() <= MAX_INTEGER as f64 && !minus_zero {
                *number = Number::from(double as i64);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(to_integers),
        Value::Object(object) => object.values_mut().for_each(to_integers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_too_large(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let magnitude = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            magnitude.is_some_and(|magnitude| magnitude > MAX_INTEGER)
        }
        Value::Array(list) => list.iter().any(is_too_large),
        Value::Object(object) => object.values().any(is_too_large),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

pub(super) fn without_large_integers(details: &mut Value) {
    if let Value::Array(list) = details {
        list.retain(|detail| !is_too_large(detail));
    }
}

fn any(document: &Value, path: &str, is: fn(&Value) -> bool) -> bool {
    let mut found = false;
    visit(&mut document.clone(), path, &mut |object, key| found |= object.get(key).is_some_and(is));
    found
}

/// Has an integer beyond 2^53 where the protocol gives no shape.
pub(super) fn has_large_integer(document: &Value) -> bool {
    FREE.iter().any(|name| any(document, &format!("**.{name}"), is_too_large))
}

/// Has a moment before the year 1.
pub(super) fn has_early_moment(document: &Value) -> bool {
    let early =
        |value: &Value| value.as_str().is_some_and(|text| text.starts_with(['-', '0']) && text < "0001");
    any(document, "**.timestamp", early) || any(document, "statusTimestampAfter", early)
}

// Cards, down

fn is_reached(interface: &Value) -> bool {
    let version = Version::parse(text(interface, "protocolVersion"));
    version == Some(Version::V0_3) && !text(interface, "url").is_empty()
}

pub(super) fn is_not_reached(card: &Value) -> bool {
    !card["supportedInterfaces"].as_array().is_some_and(|list| list.iter().any(is_reached))
}

pub(super) fn reached_only(interfaces: &mut Value) {
    if let Value::Array(list) = interfaces {
        list.retain(is_reached);
    }
}

pub(super) fn without_patch(version: &mut Value) {
    *version = "0.3".into();
}

pub(super) fn json_rpc_if_empty(binding: &mut Value) {
    if *binding == "" {
        *binding = "JSONRPC".into();
    }
}

pub(super) fn distinct(list: &mut Value) {
    if let Value::Array(list) = list {
        let mut seen = Vec::new();
        list.retain(|value| {
            let is_new = !seen.contains(value);
            seen.push(value.clone());
            is_new
        });
    }
}

pub(super) fn is_device_code(scheme: &Value) -> bool {
    scheme["oauth2SecurityScheme"]["flows"]["deviceCode"].is_object()
}

// Cards, up

pub(super) fn protocol_version(_: &Object) -> Option<Value> {
    Some("0.3.0".into())
}

/// The main address, then the others, each once.
pub(super) fn every_interface(card: &Object) -> Option<Value> {
    let main = json!({"url": card.get("url")?, "transport": card.get("preferredTransport")?});
    let additional = card.get("additionalInterfaces").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut all = Value::Array([main].into_iter().chain(additional).collect());
    distinct(&mut all);
    Some(all)
}

const WRAPPERS: [&str; 5] = [
    "apiKeySecurityScheme",
    "httpAuthSecurityScheme",
    "oauth2SecurityScheme",
    "openIdConnectSecurityScheme",
    "mtlsSecurityScheme",
];

/// Neither by its `type`, as in JSON, nor by its member, as in protobuf.
pub(super) fn is_unknown_scheme(scheme: &Value) -> bool {
    let known = ["apiKey", "http", "oauth2", "openIdConnect", "mutualTLS"].contains(&text(scheme, "type"));
    !known && !WRAPPERS.iter().any(|wrapper| scheme[*wrapper].is_object())
}

const FLOWS: [&str; 4] = ["authorizationCode", "clientCredentials", "implicit", "password"];

pub(super) fn has_no_flow(scheme: &Value) -> bool {
    let is_oauth = scheme["type"] == "oauth2" || scheme["oauth2SecurityScheme"].is_object();
    let flows = scheme.get("flows").unwrap_or(&scheme["oauth2SecurityScheme"]["flows"]);
    is_oauth && !FLOWS.iter().any(|flow| flows[*flow].is_object())
}

/// One scheme per flow, and one requirement per choice among them.
pub(super) fn split_flows(card: &mut Value) {
    let Some(Value::Object(schemes)) = card.get_mut("securitySchemes").map(Value::take) else { return };
    let mut names: Vec<(String, Vec<String>)> = Vec::new();
    let mut split = Object::new();
    for (name, scheme) in schemes {
        let flows: Vec<&str> = FLOWS.into_iter().filter(|flow| scheme["flows"][*flow].is_object()).collect();
        let mut own = Vec::new();
        for (i, flow) in flows.iter().enumerate() {
            let own_name = if i == 0 { name.clone() } else { format!("{name}-{flow}") };
            let mut part = scheme.clone();
            part["flows"] = json!({*flow: scheme["flows"][*flow]});
            split.insert(own_name.clone(), part);
            own.push(own_name);
        }
        if flows.is_empty() {
            split.insert(name.clone(), scheme);
            own.push(name.clone());
        }
        names.push((name, own));
    }
    card["securitySchemes"] = split.into();
    let spread = &mut |object: &mut Object, key: &str| {
        let Some(Value::Array(requirements)) = object.get_mut(key) else { return };
        let before = std::mem::take(requirements);
        for requirement in before {
            let mut choices = vec![Object::new()];
            for (scheme, scopes) in requirement.as_object().into_iter().flatten() {
                let own = vec![scheme.clone()];
                let found = names.iter().find(|(name, _)| name == scheme).map_or(&own, |(_, own)| own);
                let with = |name: &String| {
                    let chosen = choices.iter().cloned();
                    let add = |mut choice: Object| {
                        choice.insert(name.clone(), scopes.clone());
                        choice
                    };
                    chosen.map(add).collect::<Vec<_>>()
                };
                choices = found.iter().flat_map(with).collect();
            }
            requirements.extend(choices.into_iter().map(Value::Object));
        }
    };
    visit(card, "security", spread);
    visit(card, "skills[].security", spread);
}

// Errors, up

const INTERNAL: i64 = -32603;

fn kind_of(code: &Value) -> Option<ErrorKind> {
    code.as_i64().and_then(|code| code.try_into().ok()).and_then(ErrorKind::from_code)
}

pub(super) fn internal_if_unknown(code: &mut Value) {
    if kind_of(code).is_none() {
        *code = INTERNAL.into();
    }
}

/// Our details of an error, then those of the peer, each with its type.
fn details(kind: ErrorKind, data: Option<&Value>) -> Value {
    let info = "type.googleapis.com/google.rpc.ErrorInfo";
    let mut details = vec![json!({"@type": info, "reason": kind.row().reason, "domain": "a2a-protocol.org"})];
    let said = match data {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(list)) => list.clone(),
        Some(other) => vec![other.clone()],
    };
    for detail in said {
        let wrapped = |name: &str| json!({"@type": format!("type.googleapis.com/google.protobuf.{name}")});
        let mut typed = match &detail {
            Value::Object(object) if object.contains_key("@type") => {
                details.push(detail);
                continue;
            }
            Value::Object(_) => wrapped("Struct"),
            _ => wrapped("Value"),
        };
        typed["value"] = detail;
        details.push(typed);
    }
    details.into()
}

pub(super) fn with_reason(error: &Object) -> Option<Value> {
    Some(details(kind_of(error.get("code")?)?, error.get("data")))
}

pub(super) fn object_with_reason(error: &Object) -> Option<Value> {
    with_reason(error).map(|details| json!({"details": details}))
}

/// The error of an answer as in v1.0, from its body.
pub(super) fn error_of_answer(body: &Object) -> Option<Value> {
    let kind = kind_of(body.get("code")?)?;
    Some(json!({
        "code": status_of(body.get("code")?.as_i64()?)?,
        "status": kind.row().grpc.name,
        "message": body.get("message")?,
        "details": body.get("data")?,
    }))
}

/// The class of error that a message begins with.
fn class(message: &Value) -> Option<ErrorKind> {
    match message.as_str()?.split(':').next()? {
        "TaskNotFoundError" => Some(ErrorKind::TaskNotFound),
        "TaskNotCancelableError" => Some(ErrorKind::TaskNotCancelable),
        _ => None,
    }
}

/// The code that an answer without one stands for: by the class in its message, else by the HTTP status.
pub(super) fn code_of_answer(answer: &Value, _: &str) -> Option<Value> {
    let by_status = || match answer["status"].as_u64()? {
        404 => Some(ErrorKind::TaskNotFound),
        409 => Some(ErrorKind::TaskNotCancelable),
        _ => None,
    };
    let kind = class(&answer["body"]["message"]).or_else(by_status)?;
    Some(kind.row().code.into())
}

/// The name of the class of errors that goes with the code.
pub(super) fn class_of_answer(answer: &Value, _: &str) -> Option<Value> {
    let code = answer["body"].get("code").cloned().or_else(|| code_of_answer(answer, ""));
    let name = match code.as_ref().and_then(Value::as_i64).unwrap_or(INTERNAL) {
        -32001 => "TaskNotFoundError",
        -32002 => "TaskNotCancelableError",
        -32602 => "InvalidParamsError",
        INTERNAL => "InternalError",
        _ => return None,
    };
    Some(name.into())
}

/// The HTTP status that goes with the code.
pub(super) fn status_of_code(answer: &Object) -> Option<Value> {
    status_of(answer.get("body")?["code"].as_i64()?).map(Value::from)
}

fn status_of(code: i64) -> Option<u16> {
    match code {
        -32001 => Some(404),
        -32002 => Some(409),
        -32602 => Some(422),
        _ => None,
    }
}

/// The gRPC code of the class of error that the message begins with.
pub(super) fn code_of_class(status: &Object) -> Option<Value> {
    class(status.get("message")?).map(|kind| kind.row().grpc.number.into())
}
