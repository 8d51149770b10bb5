//! Calls as bytes on every wire, and answers as they come back.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use nuncio_protocol::{
    Version,
    op::{Call, Op},
    pb, v03,
    wire::{
        Dialect, V1, jsonrpc,
        rest::{self, Paths},
    },
};
use reqwest::Method;

use crate::{Running, TEST_TIMEOUT};

/// A binding in a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    JsonRpc(Version),
    Rest(Version),
    Grpc(Version),
}

pub(crate) const WIRES: [Wire; 6] = [
    Wire::JsonRpc(Version::V1_0),
    Wire::Rest(Version::V1_0),
    Wire::Grpc(Version::V1_0),
    Wire::JsonRpc(Version::V0_3),
    Wire::Rest(Version::V0_3),
    Wire::Grpc(Version::V0_3),
];

/// The answer as a caller sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, Vec<u8>>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The same with another name in place of this one, of the same length, wherever it stands.
    pub(crate) fn renamed(mut self, from: &str, to: &str) -> Self {
        assert_eq!(from.len(), to.len(), "else lengths differ");
        rename(&mut self.body, from, to);
        for value in self.headers.values_mut() {
            rename(value, from, to);
        }
        self
    }

    pub(crate) fn text(&self) -> String {
        let headers = self.headers.iter().map(|(name, value)| format!("{name}: {}\n", value.escape_ascii()));
        format!("{}\n{}\n{}", self.status, headers.collect::<String>(), self.body.escape_ascii())
    }

    /// True if the call was carried out.
    pub(crate) fn is_ok(&self) -> bool {
        let is_error = self.headers.get("grpc-status").is_some_and(|status| status != b"0");
        let body = String::from_utf8_lossy(&self.body);
        self.status < 300 && !is_error && !body.contains("\"error\":")
    }
}

fn rename(bytes: &mut [u8], from: &str, to: &str) {
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(from.len()).position(|window| window == from.as_bytes()) {
        at += found;
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
    }
}

impl Wire {
    pub(crate) fn version(self) -> Version {
        match self {
            Self::JsonRpc(version) | Self::Rest(version) | Self::Grpc(version) => version,
        }
    }

    fn dialect(self) -> &'static dyn Dialect {
        match (self, self.version()) {
            (_, Version::V1_0) => &V1,
            (Self::Rest(_), Version::V0_3) => &v03::Rest,
            (_, Version::V0_3) => &v03::JsonRpc,
        }
    }

    /// False if there is no such operation here.
    pub(crate) fn has(self, op: Op) -> bool {
        match self {
            Self::JsonRpc(_) => self.dialect().method(op).is_some(),
            Self::Rest(Version::V1_0) => true,
            // Its paths are those of 1.0 below another prefix; it lists no tasks.
            Self::Rest(Version::V0_3) => op != Op::ListTasks,
            Self::Grpc(_) => (self.codec().rpc_name)(op).is_some(),
        }
    }

    fn codec(self) -> &'static pb::Codec {
        match self.version() {
            Version::V1_0 => &pb::CODEC,
            Version::V0_3 => &v03::pb::CODEC,
        }
    }

    /// Calls an agent with a key; `None` if this wire cannot say it.
    pub(crate) async fn call(
        self,
        hub: &Running,
        agent: &str,
        key: Option<&str>,
        call: Call,
    ) -> Option<Answer> {
        self.call_as(hub, agent, key, &[], call).await
    }

    /// The same with these headers besides.
    pub(crate) async fn call_as(
        self,
        hub: &Running,
        agent: &str,
        key: Option<&str>,
        headers: &[(&str, &str)],
        call: Call,
    ) -> Option<Answer> {
        let op = call.op();
        if !self.has(op) {
            return None;
        }
        let address = format!("{}/agents/{agent}", hub.url);
        let json = "application/json";
        let (method, url, media_type, body) = match self {
            Self::JsonRpc(_) => {
                let mut body = Vec::new();
                let method = self.dialect().method(op)?;
                jsonrpc::encode_request(1, method, &mut body, |out| self.dialect().encode_call(&call, out))
                    .ok()?;
                (Method::POST, address, json, body)
            }
            Self::Rest(version) => {
                let paths = if version == Version::V1_0 { Paths::V1 } else { v03::PATHS };
                let out = rest::encode_request(&paths, self.dialect(), call).ok()?;
                let method = out.verb.as_str().parse().unwrap();
                (method, format!("{address}{}", out.target()), json, out.body.unwrap_or_default())
            }
            Self::Grpc(version) => {
                let mut call = call;
                if version == Version::V1_0 {
                    call.set_tenant(Some(agent.to_owned()));
                }
                let mut message = Vec::new();
                (self.codec().encode_call)(&call, &mut message).ok()?;
                let length = u32::try_from(message.len()).unwrap().to_be_bytes();
                let frame = [&[0][..], &length, &message].concat();
                let url = format!("{}/{}/{}", hub.url, self.codec().service, (self.codec().rpc_name)(op)?);
                (Method::POST, url, "application/grpc", frame)
            }
        };
        let grpc = matches!(self, Self::Grpc(_));
        let client = if grpc { &hub.http2 } else { &hub.http };
        let mut request = client.request(method, url).header("a2a-version", self.version().as_str());
        if !body.is_empty() {
            request = request.header("content-type", media_type).body(body);
        }
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Some(read(request).await)
    }
}

/// Asks for what stands at a path.
pub(crate) async fn get(hub: &Running, path: &str, key: Option<&str>) -> Answer {
    get_as(hub, path, key, &[]).await
}

/// The same with these headers besides.
pub(crate) async fn get_as(hub: &Running, path: &str, key: Option<&str>, headers: &[(&str, &str)]) -> Answer {
    let mut request = hub.http.get(format!("{}{path}", hub.url));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(key) = key {
        request = request.header("x-api-key", key);
    }
    read(request).await
}

/// The id of every request: answers repeat it, and are to be alike.
pub(crate) const REQUEST_ID: &str = "request-of-a-test";

pub(crate) async fn read(request: reqwest::RequestBuilder) -> Answer {
    let answer = async {
        let response = request.header("x-request-id", REQUEST_ID).send().await.unwrap();
        let status = response.status().as_u16();
        let header = |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
            let value = value.as_bytes().to_vec();
            // Readable, so that names in it can be found.
            let value = match name.as_str().ends_with("-bin") {
                true => STANDARD_NO_PAD.decode(&value).unwrap(),
                false => value,
            };
            (name.to_string(), value)
        };
        let mut headers: BTreeMap<_, _> = response.headers().iter().map(header).collect();
        headers.remove("date");
        Answer { status, headers, body: response.bytes().await.unwrap().to_vec() }
    };
    tokio::time::timeout(TEST_TIMEOUT, answer).await.unwrap()
}
