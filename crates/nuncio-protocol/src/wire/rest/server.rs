//! Server: decodes a request as an operation with parameters.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess},
};
use serde_json::value::{RawValue, to_raw_value};

use super::{
    Paths,
    escape::unescape,
    route::{Route, find_route},
};
use crate::{
    Error, ErrorKind, Result,
    lenient::Key,
    op::{Call, Op, Verb},
    wire::Dialect,
};

/// A received request: an operation and its parameters, as JSON text.
#[derive(Debug)]
pub struct RestRequest<'a> {
    /// The tenant in the path; the parameters may have one, too.
    pub tenant: Option<String>,
    /// The operation.
    pub op: Op,
    /// One object, including path variables and query; the body itself if there are none.
    pub params: Cow<'a, RawValue>,
}

impl RestRequest<'_> {
    /// Decodes the parameters, and adds the tenant of the path to them.
    ///
    /// # Errors
    /// `InvalidParams` with the field; also for a tenant that differs from the one in the path.
    pub fn decode_call(self, dialect: &dyn Dialect) -> Result<Call> {
        let mut call = dialect.decode_call(self.op, Some(&self.params))?;
        if let Some(tenant) = self.tenant {
            if call.tenant().is_some_and(|other| other != tenant) {
                return Err(disagrees("tenant"));
            }
            call.set_tenant(Some(tenant));
        }
        Ok(call)
    }
}

/// The reason why a request is refused.
#[derive(Debug)]
pub enum RestRefusal {
    /// No route has this path: 404.
    NotFound,
    /// The path exists, but not for this method: 405.
    MethodNotAllowed {
        /// The allowed methods, for the `Allow` header.
        allow: Vec<Verb>,
    },
    /// The request is wrong.
    Invalid(Error),
}

impl RestRefusal {
    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::NotFound => 404,
            Self::MethodNotAllowed { .. } => 405,
            Self::Invalid(error) => error.kind().row().http,
        }
    }

    /// The error for the body of the answer.
    #[must_use]
    pub fn into_error(self) -> Error {
        match self {
            Self::NotFound => Error::new(ErrorKind::MethodNotFound, "there is nothing at this path"),
            Self::MethodNotAllowed { allow } => {
                let allow: Vec<_> = allow.into_iter().map(Verb::as_str).collect();
                let message = format!("this path does not allow that method, only {}", allow.join(", "));
                Error::new(ErrorKind::MethodNotFound, message)
            }
            Self::Invalid(error) => error,
        }
    }
}

impl From<Error> for RestRefusal {
    fn from(error: Error) -> Self {
        Self::Invalid(error)
    }
}

/// Decodes a request. `path` is below the agent's URL and, like `query`, escaped.
///
/// # Errors
/// [`RestRefusal`], which distinguishes an unknown path from a wrong method and from wrong content.
pub fn decode_request<'a>(
    paths: &Paths,
    verb: &str,
    path: &str,
    query: Option<&str>,
    body: &'a [u8],
) -> Result<RestRequest<'a>, RestRefusal> {
    find_route(paths, verb, path)?.decode(verb, query, body)
}

impl Route<'_> {
    /// Decodes the parameters from path, query and body.
    ///
    /// # Errors
    /// [`RestRefusal::Invalid`] if they are wrong.
    pub fn decode<'a>(
        self,
        verb: &str,
        query: Option<&str>,
        body: &'a [u8],
    ) -> Result<RestRequest<'a>, RestRefusal> {
        let params = if verb == Verb::Post.as_str() {
            merge_body(&self, body)?
        } else {
            merge_query(&self, query.unwrap_or_default())?
        };
        Ok(RestRequest { tenant: self.tenant, op: self.op, params })
    }
}

/// The members of an object, in order.
#[derive(Default)]
struct ParameterMembers<'a>(Vec<(Cow<'a, str>, Value<'a>)>);

/// The value of a member.
#[derive(Serialize)]
#[serde(untagged)]
enum Value<'a> {
    Text(Cow<'a, str>),
    Number(i64),
    Boolean(bool),
    /// JSON text as received.
    Json(&'a RawValue),
}

impl<'a> ParameterMembers<'a> {
    fn push(&mut self, name: &'static str, value: Value<'a>) {
        self.0.push((Cow::Borrowed(name), value));
    }

    fn with_variables(route: &Route<'a>) -> Result<Self> {
        let mut members = Self::default();
        for (name, value) in route.variables.into_iter().flatten() {
            members.push(name, Value::Text(decode_text(name, value)?));
        }
        Ok(members)
    }

    fn to_params(&self) -> Result<Cow<'static, RawValue>> {
        to_raw_value(self).map(Cow::Owned).map_err(Error::internal)
    }
}

impl Serialize for ParameterMembers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ParameterMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = ParameterMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ParameterMembers<'de>, A::Error> {
                let mut members = ParameterMembers::default();
                while let Some((Key(name), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                    members.0.push((name, Value::Json(value)));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

fn decode_text<'t>(field: &str, text: &'t str) -> Result<Cow<'t, str>> {
    unescape(text).ok_or_else(|| Error::invalid_field(field, "expected percent-encoded UTF-8"))
}

/// The body with the path variables, which it may repeat but not contradict.
fn merge_body<'a>(route: &Route<'_>, body: &'a [u8]) -> Result<Cow<'a, RawValue>> {
    let body = read_body(route.op, body)?;
    if route.variables[0].is_none() {
        return Ok(Cow::Borrowed(body));
    }
    let mut members = ParameterMembers::with_variables(route)?;
    let own = members.0.len();
    let sent: ParameterMembers<'_> = serde_json::from_str(body.get()).map_err(not_json)?;
    for (name, value) in sent.0 {
        match members.0[..own].iter().find(|(variable, _)| is_same_field(variable, &name)) {
            None => members.0.push((name, value)),
            Some((_, bound)) if is_unset(&value) || is_same_text(bound, &value) => {}
            Some((variable, _)) => return Err(disagrees(variable)),
        }
    }
    members.to_params()
}

fn is_same_field(variable: &str, name: &str) -> bool {
    name == variable || (variable == "taskId" && name == "task_id")
}

fn is_unset(value: &Value<'_>) -> bool {
    matches!(value, Value::Json(json) if matches!(json.get(), "null" | "\"\""))
}

fn is_same_text(bound: &Value<'_>, sent: &Value<'_>) -> bool {
    match (bound, sent) {
        // Different escapes of the same string are equal.
        (Value::Text(bound), Value::Json(sent)) => {
            serde_json::from_str::<String>(sent.get()).is_ok_and(|sent| sent == *bound)
        }
        _ => false,
    }
}

fn disagrees(field: &str) -> Error {
    Error::invalid_field(field, "differs from the one in the path")
}

/// The body as one object.
fn read_body(op: Op, body: &[u8]) -> Result<&RawValue> {
    let text = std::str::from_utf8(body)
        .map_err(|_| Error::new(ErrorKind::ParseError, "invalid JSON payload: the body is not UTF-8"))?;
    // These two have all parameters in the path (REQ-059, trap T-01).
    let may_be_empty = matches!(op, Op::CancelTask | Op::SubscribeToTask);
    if may_be_empty && matches!(text.trim(), "" | "null") {
        return serde_json::from_str("{}").map_err(Error::internal);
    }
    let json: &RawValue = serde_json::from_str(text).map_err(not_json)?;
    if !json.get().starts_with('{') {
        return Err(Error::new(ErrorKind::InvalidRequest, "expected a JSON object as the body"));
    }
    Ok(json)
}

#[expect(clippy::needless_pass_by_value, reason = "handed to map_err")]
fn not_json(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::ParseError, format!("invalid JSON payload: {error}"))
}

/// The type of a query parameter.
enum ParameterType {
    Text,
    Number,
    Boolean,
    /// Text in which a plus sign is part of the offset, not a space.
    Time,
}

/// All query parameters (spec 11.5). Names are as in JSON (REQ-050), and as in JSON those of the proto are
/// accepted as well. Any other name, such as `A2A-Version` (REQ-074), is not a field and is ignored.
const QUERY: &[(&str, &str, ParameterType)] = &[
    ("tenant", "tenant", ParameterType::Text),
    ("contextId", "context_id", ParameterType::Text),
    ("status", "status", ParameterType::Text),
    ("pageSize", "page_size", ParameterType::Number),
    ("pageToken", "page_token", ParameterType::Text),
    ("historyLength", "history_length", ParameterType::Number),
    ("statusTimestampAfter", "status_timestamp_after", ParameterType::Time),
    ("includeArtifacts", "include_artifacts", ParameterType::Boolean),
];

/// The query, each value in its own type (REQ-052), with the path variables.
fn merge_query(route: &Route<'_>, query: &str) -> Result<Cow<'static, RawValue>> {
    let mut members = ParameterMembers::with_variables(route)?;
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(name) = unescape(name) else { continue };
        let known = QUERY.iter().find(|(own, original, _)| *own == name || *original == name);
        let Some((name, _, kind)) = known else { continue };
        if members.0.iter().any(|(seen, _)| seen == name) {
            return Err(Error::invalid_field(*name, "given twice"));
        }
        if let Some(value) = read_value(name, kind, value)? {
            members.push(name, value);
        }
    }
    members.to_params()
}

/// Decodes a value to its type; `None` if it is unset.
fn read_value(name: &str, kind: &ParameterType, value: &str) -> Result<Option<Value<'static>>> {
    let text = match kind {
        ParameterType::Time => decode_text(name, value)?.into_owned(),
        // Form encoders write a space as a plus sign; RFC 3986 has `%20`. A plus sign itself is `%2B` in
        // both.
        ParameterType::Text | ParameterType::Number | ParameterType::Boolean => {
            decode_text(name, &value.replace('+', " "))?.into_owned()
        }
    };
    Ok(match kind {
        ParameterType::Text | ParameterType::Time => Some(Value::Text(text.into())),
        // An empty value is unset, as in `?historyLength=`.
        ParameterType::Number | ParameterType::Boolean if text.is_empty() => None,
        ParameterType::Number => {
            let number = text.parse().map_err(|_| Error::invalid_field(name, "expected a whole number"))?;
            Some(Value::Number(number))
        }
        ParameterType::Boolean => {
            let flag = text.parse().map_err(|_| Error::invalid_field(name, "expected true or false"))?;
            Some(Value::Boolean(flag))
        }
    })
}
