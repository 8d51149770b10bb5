//! Bodies that would take many times their size once decoded: free-form data of millions of tiny values.

use std::fs;

use nuncio_protocol::{
    Json, Message, Part, SendMessageRequest,
    op::{Call, Op},
    pb,
};
use nuncio_tests::{
    data::Folder,
    http2::{Http2, encode, frame, rpc},
    hub::Hub,
    raw::{Answer, Raw},
    within,
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The size of a list: large enough that nothing else counts, and in the long form just below the default limit of a
/// body, with room for the envelope.
fn list_bytes() -> usize {
    const MIB: usize = 1024 * 1024;
    if crate::is_long() { 16 * MIB - 4096 } else { 4 * MIB }
}

/// The allowed growth of a hub, in sizes of the body: while it serves the body, and afterwards. The body is there as it
/// arrived, joined, and as text in the task; then in an answer that grows by doubling, or in the rows of a database.
const MAX_GROWTH: usize = 12;

/// The element that a list repeats, as JSON.
fn shapes(way: Way) -> &'static [&'static str] {
    match way {
        Way::JsonRpc | Way::HttpJson => &[r#"{"":0}"#, "[0]", "0"],
        // Of protobuf it is the shortest there is; a number takes eleven bytes.
        Way::Grpc => &["null"],
    }
}

/// The position of the list.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    Data,
    Metadata,
}

/// The binding and version of the request.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    JsonRpc,
    HttpJson,
    Grpc,
}

const HEADERS: [(&str, &str); 2] = [("a2a-version", "1.0"), ("content-type", "application/json")];

fn list(element: &str, bytes: usize) -> String {
    let mut list = String::with_capacity(bytes);
    list.push('[');
    while list.len() + element.len() + 2 < bytes {
        list.push_str(element);
        list.push(',');
    }
    list.push_str(element);
    list.push(']');
    list
}

/// The request that carries a list.
fn message(place: Place, list: &str) -> String {
    match place {
        Place::Data => format!(r#"{{"messageId":"m","role":"ROLE_USER","parts":[{{"data":{list}}}]}}"#),
        Place::Metadata => format!(
            r#"{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"x"}}],"metadata":{{"list":{list}}}}}"#
        ),
    }
}

/// The lists of a task that was sent one.
#[derive(Deserialize)]
struct Sent<'a> {
    id: String,
    #[serde(borrow)]
    history: Vec<Said<'a>>,
}

#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    parts: Vec<Content<'a>>,
    #[serde(borrow, default)]
    metadata: Option<Content<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default, alias = "list")]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Result<'a> {
    #[serde(borrow)]
    result: Outcome<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Outcome<'a> {
    #[serde(borrow)]
    Task(Sent<'a>),
}

#[derive(Deserialize)]
struct Got<'a> {
    #[serde(borrow)]
    result: Sent<'a>,
}

/// A hub under attack, and what it took before.
struct Victim {
    hub: Hub,
    before: usize,
    _folder: Folder,
}

impl Victim {
    async fn new(store: &str) -> Self {
        let folder = Folder::new();
        let file = folder.path().join("attack.db");
        let data = match store {
            "memory" => "memory",
            _ => file.to_str().unwrap(),
        };
        let hub = Hub::start(&["--data", data]).await;
        let before = memory(&hub, "VmHWM");
        Self { hub, before, _folder: folder }
    }

    async fn call(&self, method: &str, params: &str) -> Answer {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let answer = Raw::new(self.hub.agent("echo")).post(&HEADERS, body).await;
        assert_eq!(answer.status, 200, "{method}: {}", excerpt(&answer.body));
        answer
    }

    /// Sends a list in this way, and gives the id of the task that has it.
    async fn send(&self, way: Way, place: Place, list: &str) -> String {
        let params = format!(r#"{{"message":{}}}"#, message(place, list));
        let task = match way {
            Way::JsonRpc => self.call("SendMessage", &params).await.body,
            Way::HttpJson => {
                let raw = Raw::new(self.hub.agent("echo"));
                let answer = raw.ask("POST", "/message:send", &HEADERS, params).await;
                assert_eq!(answer.status, 200, "{}", excerpt(&answer.body));
                format!(r#"{{"result":{}}}"#, answer.body)
            }
            Way::Grpc => return self.send_grpc(place, list).await,
        };
        let Result { result: Outcome::Task(task) } =
            serde_json::from_str(&task).unwrap_or_else(|error| panic!("{error}: {}", excerpt(&task)));
        task.id
    }

    async fn send_grpc(&self, place: Place, list: &str) -> String {
        let list: Json = list.parse().unwrap();
        let mut message = Message::user("m", Part::text("x"));
        match place {
            Place::Data => message.parts = vec![Part::data(list)],
            Place::Metadata => message.metadata.insert("list", list),
        }
        let tenant = Some("echo".to_owned());
        let call = Call::SendMessage(Box::new(SendMessageRequest {
            tenant,
            message,
            ..SendMessageRequest::default()
        }));
        let body = frame(&encode(&pb::CODEC, &call));
        let address = self.hub.announced["listen"].as_str().unwrap().parse().unwrap();
        let mut connection = Http2::connect(address).await;
        let mut incoming = connection.begin(&rpc(&pb::CODEC, Op::SendMessage), &[], body).await;
        let answer = within("the task", incoming.message()).await.expect("an answer");
        let nuncio_protocol::op::Reply::Sent(nuncio_protocol::SendMessageResponse::Task(task)) =
            pb::decode_reply(Op::SendMessage, answer).unwrap()
        else {
            panic!("expected a task");
        };
        task.id.as_str().to_owned()
    }

    /// Fails unless the task has exactly this list, and the hub has taken no more for it than it may.
    async fn check(&self, what: &str, place: Place, id: &str, list: &str) {
        let body = self.call("GetTask", &format!(r#"{{"id":"{id}"}}"#)).await.body;
        let Got { result } = serde_json::from_str(&body).unwrap();
        let kept = match place {
            Place::Data => result.history[0].parts[0].data,
            Place::Metadata => result.history[0].metadata.as_ref().and_then(|metadata| metadata.data),
        };
        assert!(kept.is_some_and(|kept| kept.get() == list), "{what}: the list is another one");
        for kind in ["VmHWM", "VmRSS"] {
            let growth = memory(&self.hub, kind).saturating_sub(self.before);
            let times = growth as f64 / list.len() as f64;
            assert!(growth < MAX_GROWTH * list.len(), "{what}: {kind} grew by {times:.1} times the body");
        }
    }

    async fn still_serves(mut self) {
        let id = self.send(Way::JsonRpc, Place::Data, "[1]").await;
        assert!(!id.is_empty());
        self.hub.process.signal("TERM").await;
        assert_eq!(self.hub.process.end().await.code(), Some(0), "{}", self.hub.process.stderr());
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(300).collect()
}

/// Bytes that the hub's process takes: `VmRSS` now, `VmHWM` at most so far.
pub(crate) fn memory(hub: &Hub, kind: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", hub.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(kind)).expect("the kernel tells");
    let kib: usize = line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
    kib * 1024
}

async fn attack(store: &str, ways: &[Way]) {
    let places = ways.iter().flat_map(|way| [(*way, Place::Data), (*way, Place::Metadata)]);
    for (way, place, shape) in
        places.flat_map(|(way, place)| shapes(way).iter().map(move |shape| (way, place, shape)))
    {
        let what = format!("{place:?} of {shape} by {way:?} in {store}");
        let victim = Victim::new(store).await;
        let list = list(shape, list_bytes());
        let id = victim.send(way, place, &list).await;
        victim.check(&what, place, &id, &list).await;
        victim.still_serves().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_tiny_values_take_little_more_than_their_text_in_memory() {
    attack("memory", &[Way::JsonRpc, Way::HttpJson, Way::Grpc]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_tiny_values_take_little_more_than_their_text_in_a_database() {
    attack("sqlite", &[Way::JsonRpc, Way::Grpc]).await;
}
