//! The messages of an agent that has only a webhook: a hub posts each of them as a task, and the response is the answer.

use std::sync::Arc;

use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, LINK, RETRY_AFTER},
};
use jiff::Timestamp;
use nuncio_protocol::{
    Event, Message, Part, Role, SendMessageResponse, Task, Version,
    op::{Op, Reply},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use url::Url;
use uuid::Uuid;

use super::{Accepted, Notification, Receipt, Receiver, Rejected, head::text};
use crate::choose::jsonrpc_dialect;

/// The member of the task's metadata with the lease.
const LEASE: &str = "nuncio.lease";

/// The header with the id that all deliveries of a message have in common.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A message for the agent. It is answered by the response to the request that brought it.
///
/// ```
/// use http::HeaderMap;
/// use nuncio_client::{Receiver, receiver::Delivery};
///
/// # async fn example(key: &str) -> nuncio_client::protocol::Result<()> {
/// let receiver = Receiver::builder().mailbox_key(key).build()?;
///
/// // In the handler of `POST /hook`, with the headers and the body as they came:
/// # let (headers, body) = (HeaderMap::new(), Vec::new());
/// let response: http::Response<Vec<u8>> = match receiver.accept_delivery(&headers, &body).await {
///     Ok(delivery) => {
///         let answer = format!("you said: {}", delivery.message().text());
///         delivery.reply(answer)
///     }
///     Err(rejected) => rejected.to_response(),
/// };
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it is answered by one of its methods"]
pub struct Delivery {
    notification: Notification,
    receipt: Receipt,
    task: Task,
    message: Arc<Message>,
    lease: LeaseData,
    update: Option<Url>,
    repeat_id: Option<String>,
    /// The body was the result of a JSON-RPC response, and so is the answer; its id.
    envelope: Option<String>,
}

/// The data of the lease, beside the task.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseData {
    resumed: bool,
    memo: Option<nuncio_protocol::Json>,
    principal: Option<String>,
    tenant: Option<String>,
    answer_seconds: u64,
    earlier: Vec<Task>,
    references: Vec<Task>,
}

#[derive(Deserialize)]
struct Envelope {
    jsonrpc: Option<String>,
    id: Option<String>,
}

/// A JSON-RPC response.
#[derive(Serialize)]
struct Enveloped<'a> {
    jsonrpc: &'static str,
    id: &'a str,
    result: &'a RawValue,
}

/// Problem details (RFC 9457).
#[derive(Serialize)]
struct Problem<'a> {
    status: u16,
    detail: &'a str,
}

impl Receiver {
    /// Checks a request that brings a message for an agent.
    ///
    /// # Errors
    /// It is not to be handled; [`Rejected::to_response`] is the answer.
    pub async fn accept_delivery(&self, headers: &HeaderMap, body: &[u8]) -> Result<Delivery, Rejected> {
        self.accept_delivery_at(headers, body, Timestamp::now().as_second()).await
    }

    pub(super) async fn accept_delivery_at(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: i64,
    ) -> Result<Delivery, Rejected> {
        let Accepted { notification, receipt } = self.accept_at(headers, body, now).await?;
        let invalid = |why: &str| Rejected::Invalid(why.to_owned());
        let Event::Task(task) = &notification.event else {
            return Err(invalid("the body is no task, so it asks nothing"));
        };
        let asked = task.history.iter().rev().find(|message| message.role == Role::User);
        let message = Arc::clone(asked.ok_or_else(|| invalid("the task has no message to answer"))?);
        let lease = task.metadata.get(LEASE).and_then(|lease| serde_json::from_str(lease.as_str()).ok());
        let envelope = serde_json::from_slice::<Envelope>(body).ok();
        let envelope = envelope.filter(|envelope| envelope.jsonrpc.is_some());
        Ok(Delivery {
            task: task.clone(),
            message,
            lease: lease.unwrap_or_default(),
            update: text(headers, LINK.as_str())?.and_then(edit_link),
            repeat_id: text(headers, IDEMPOTENCY_KEY)?.map(str::to_owned),
            envelope: envelope.map(|envelope| envelope.id.unwrap_or_default()),
            notification,
            receipt,
        })
    }
}

impl Delivery {
    /// The message to answer.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The task, with everything that was said in it.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// The delivery as a notification, with the proofs of its sender.
    #[must_use]
    pub fn notification(&self) -> &Notification {
        &self.notification
    }

    /// The earlier tasks of the conversation, oldest first.
    #[must_use]
    pub fn earlier(&self) -> &[Task] {
        &self.lease.earlier
    }

    /// The caller's tasks that the message refers to.
    #[must_use]
    pub fn references(&self) -> &[Task] {
        &self.lease.references
    }

    /// The id of the lease.
    #[must_use]
    pub fn lease(&self) -> &str {
        self.notification.id.as_deref().unwrap_or_default()
    }

    /// An id that all deliveries of this message have in common: a message whose answer got lost is delivered again, as
    /// another lease.
    #[must_use]
    pub fn repeat_id(&self) -> Option<&str> {
        self.repeat_id.as_deref()
    }

    /// The address for lines after [`Self::begun`], of the pull API. It is not signed: send the key of the mailbox only to
    /// an address that you know as your hub's.
    #[must_use]
    pub fn update_url(&self) -> Option<&Url> {
        self.update.as_ref()
    }

    /// The seconds that [`Self::begun`] gives for each further line.
    #[must_use]
    pub fn answer_seconds(&self) -> u64 {
        self.lease.answer_seconds
    }

    /// True if an earlier delivery had begun. What it has written is in the task.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.lease.resumed
    }

    /// The memo that an earlier delivery has left.
    #[must_use]
    pub fn memo(&self) -> Option<&nuncio_protocol::Json> {
        self.lease.memo.as_ref()
    }

    /// The caller; `None` for the anonymous one.
    #[must_use]
    pub fn principal(&self) -> Option<&str> {
        self.lease.principal.as_deref()
    }

    /// The tenant that the caller has proved to belong to.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.lease.tenant.as_deref()
    }

    /// Answers with a text: the task is completed.
    #[must_use]
    pub fn reply(self, text: impl Into<String>) -> Response<Vec<u8>> {
        let message = Message::agent(Uuid::now_v7().to_string(), vec![Part::text(text)]);
        self.answer(SendMessageResponse::Message(Arc::new(message)))
    }

    /// Answers with a message, or with a task: its artifacts and its status are those of the caller's task. A task that
    /// is not settled is as good as [`Self::begun`].
    #[must_use]
    pub fn answer(self, answer: SendMessageResponse) -> Response<Vec<u8>> {
        let version = self.notification.version;
        let dialect = jsonrpc_dialect(version);
        let mut body = Vec::new();
        if let Err(error) = dialect.encode_reply(Op::SendMessage, &Reply::Sent(answer), &mut body) {
            tracing::error!(%error, "an answer cannot be encoded");
            return response(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", Vec::new());
        }
        if let Some(id) = &self.envelope {
            let wrapped = serde_json::from_slice::<Box<RawValue>>(&body)
                .and_then(|result| serde_json::to_vec(&Enveloped { jsonrpc: "2.0", id, result: &result }));
            // What was encoded a moment ago is JSON.
            body = wrapped.unwrap_or(body);
        }
        let content_type = match version {
            Version::V1_0 => "application/a2a+json",
            Version::V0_3 => "application/json",
        };
        self.receipt.done();
        response(StatusCode::OK, content_type, body)
    }

    /// Says that the agent has begun: its lines follow, to [`Self::update_url`] and with the key of the mailbox.
    #[must_use]
    pub fn begun(self) -> Response<Vec<u8>> {
        self.receipt.done();
        response(StatusCode::ACCEPTED, "text/plain", Vec::new())
    }

    /// Refuses the message: the task fails.
    #[must_use]
    pub fn refuse(self, reason: &str) -> Response<Vec<u8>> {
        self.receipt.done();
        problem(StatusCode::UNPROCESSABLE_ENTITY, reason)
    }

    /// Asks for the message again, not before so many seconds: the agent is not free now.
    #[must_use]
    pub fn later(self, seconds: u64) -> Response<Vec<u8>> {
        let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, "the agent is not free now");
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        response
    }

    /// Says that this webhook is gone: the hub posts nothing more until its operator says so.
    #[must_use]
    pub fn gone(self) -> Response<Vec<u8>> {
        problem(StatusCode::GONE, "this webhook is gone")
    }
}

impl Rejected {
    /// The response to the sender.
    #[must_use]
    pub fn to_response(&self) -> Response<Vec<u8>> {
        match self {
            // No refusal of the message, which would fail its task.
            Self::Duplicate(_) | Self::InProgress(_) => {
                problem(StatusCode::SERVICE_UNAVAILABLE, &self.to_string())
            }
            rejected => problem(rejected.status(), &rejected.to_string()),
        }
    }
}

fn problem(status: StatusCode, detail: &str) -> Response<Vec<u8>> {
    // Numbers and texts are always JSON.
    let body = serde_json::to_vec(&Problem { status: status.as_u16(), detail }).unwrap_or_default();
    response(status, "application/problem+json", body)
}

fn response(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Vec<u8>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The address of `Link: <…>; rel="edit"` (RFC 8288).
fn edit_link(link: &str) -> Option<Url> {
    link.split(',').find_map(|one| {
        let (target, parameters) = one.trim().strip_prefix('<')?.split_once('>')?;
        let is_edit = parameters.split(';').any(|parameter| {
            let (name, value) = parameter.trim().split_once('=').unwrap_or_default();
            name.trim().eq_ignore_ascii_case("rel")
                && value.trim().trim_matches('"').eq_ignore_ascii_case("edit")
        });
        if is_edit { Url::parse(target).ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{notification::WebhookSecret, receiver::read_body};

    const NOW: i64 = 1_800_000_000;
    const KEY: &str = "nuncio_0123456789ab_secret";

    fn task(text: &str) -> Value {
        json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_SUBMITTED"},
            "metadata": {"nuncio.lease": {"resumed": true, "memo": {"at": 7}, "principal": "ann", "answerSeconds": 86400}},
            "history": [{"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}]})
    }

    fn old_task(text: &str) -> Value {
        json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "submitted"},
            "history": [{"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": text}]}]})
    }

    fn secret() -> WebhookSecret {
        WebhookSecret::of_mailbox_key(KEY)
    }

    fn headers(id: &str, body: &str) -> HeaderMap {
        let signature = secret().sign(id, NOW, body.as_bytes());
        let link = format!("<https://hub.example/mailboxes/coder/leases/{id}:update>; rel=\"edit\"");
        let headers = [
            ("content-type", "application/json"),
            ("webhook-id", id),
            ("webhook-timestamp", &NOW.to_string()),
            ("webhook-signature", &signature),
            ("idempotency-key", "r-1"),
            ("link", &link),
        ];
        let read =
            |(name, value): (&str, &str)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
        headers.map(read).into_iter().collect()
    }

    async fn delivered(id: &str, body: &Value) -> Delivery {
        let receiver = Receiver::builder().mailbox_key(KEY).build().unwrap();
        let body = body.to_string();
        receiver.accept_delivery_at(&headers(id, &body), body.as_bytes(), NOW).await.unwrap()
    }

    #[tokio::test]
    async fn a_message_is_read_and_answered_in_its_version_and_envelope() {
        let wrapped = json!({"jsonrpc": "2.0", "id": "d", "result": old_task("hi")});
        for (body, version, member) in [
            (json!({"task": task("hi")}), Version::V1_0, "message"),
            (old_task("hi"), Version::V0_3, "kind"),
            (wrapped, Version::V0_3, "jsonrpc"),
        ] {
            let delivery = delivered("l.1", &body).await;
            assert_eq!((&*delivery.message().text(), delivery.lease()), ("hi", "l.1"));
            assert_eq!(delivery.update_url().unwrap().path(), "/mailboxes/coder/leases/l.1:update");
            assert_eq!(delivery.repeat_id(), Some("r-1"));
            let response = delivery.reply("hello");
            assert_eq!(response.status(), StatusCode::OK);
            let answer: Value = serde_json::from_slice(response.body()).unwrap();
            assert!(answer.get(member).is_some(), "{answer}");
            let (read, event) = read_body(response.body(), None).unwrap();
            let Event::Message(said) = event else { panic!("{answer}") };
            assert_eq!((read, &*said.text()), (version, "hello"));
        }
    }

    #[tokio::test]
    async fn the_data_of_the_lease_is_there() {
        let delivery = delivered("l.1", &json!({"task": task("hi")})).await;
        assert!(delivery.is_resumed() && delivery.answer_seconds() == 86_400);
        assert_eq!((delivery.principal(), delivery.tenant()), (Some("ann"), None));
        assert_eq!(delivery.memo().unwrap().as_str(), "{\"at\":7}");
    }

    #[tokio::test]
    async fn every_other_answer_has_its_status() {
        type Give = fn(Delivery) -> Response<Vec<u8>>;
        let cases: [(Give, u16); 4] = [
            (Delivery::begun, 202),
            (|delivery| delivery.refuse("not mine"), 422),
            (|delivery| delivery.later(30), 503),
            (Delivery::gone, 410),
        ];
        for (give, expected) in cases {
            let response = give(delivered("l.1", &json!({"task": task("hi")})).await);
            assert_eq!(response.status().as_u16(), expected);
        }
        let later = delivered("l.1", &json!({"task": task("hi")})).await.later(30);
        assert_eq!(later.headers()[RETRY_AFTER], "30");
    }

    #[tokio::test]
    async fn what_is_forged_or_asks_nothing_is_refused() {
        let receiver = Receiver::builder().mailbox_key(KEY).build().unwrap();
        let body = json!({"task": task("hi")}).to_string();
        let mut forged = headers("l.1", &body);
        forged.insert("webhook-id", "l.2".parse().unwrap());
        let refused = receiver.accept_delivery_at(&forged, body.as_bytes(), NOW).await.unwrap_err();
        assert_eq!(refused.to_response().status(), StatusCode::UNAUTHORIZED);
        let update = json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}});
        let silent =
            json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}});
        for body in [update.to_string(), silent.to_string()] {
            let refused = receiver.accept_delivery_at(&headers("l.3", &body), body.as_bytes(), NOW).await;
            assert_eq!(refused.unwrap_err().to_response().status(), StatusCode::BAD_REQUEST);
        }
    }

    #[test]
    fn the_address_for_lines_is_the_edit_link() {
        for (link, expected) in [
            ("<https://h/a>; rel=\"edit\"", Some("https://h/a")),
            ("<https://h/a>; rel=next, <https://h/b>; title=x; REL=edit", Some("https://h/b")),
            ("<https://h/a>; rel=\"next\"", None),
            ("https://h/a; rel=edit", None),
            ("<no address>; rel=edit", None),
        ] {
            assert_eq!(edit_link(link).as_ref().map(Url::as_str), expected, "{link}");
        }
    }
}
