//! One interface of an agent: calls as raw requests of its version and binding.

use http::Method;
use nuncio_client::grpc_url;
use nuncio_protocol::{
    AgentCard, AgentInterface, Binding, Error, Result, Version,
    op::{Call, Op, Verb},
    pb::{self, Codec},
    v03,
    wire::{
        Dialect, V1, jsonrpc,
        rest::{self, Paths},
    },
};
use serde_json::{Value, json};
use url::Url;

use crate::{
    outcome::InterfaceId,
    wire::{Request, frame},
};

/// An interface with a version and a binding that the auditor speaks.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) id: InterfaceId,
    pub(crate) version: Version,
    pub(crate) binding: Binding,
    pub(crate) url: Url,
    pub(crate) tenant: Option<String>,
    /// The extensions that the card requires, which every call lists.
    pub(crate) extensions: Vec<String>,
    /// Further extensions that every call lists.
    pub(crate) offered: Vec<String>,
}

impl Interface {
    /// Reads an interface of a card that came from `home`.
    ///
    /// # Errors
    /// The reason why it cannot be called.
    pub(crate) fn read(
        listed: &AgentInterface,
        home: &Url,
        card: &AgentCard,
        offered: &[String],
    ) -> Result<Self, String> {
        let version = listed.version();
        let version = version
            .ok_or_else(|| format!("the version {:?} is unknown to the auditor", listed.protocol_version))?;
        let binding = listed.binding();
        let binding = binding
            .ok_or_else(|| format!("the binding {:?} is unknown to the auditor", listed.protocol_binding))?;
        let url = match binding {
            Binding::Grpc => grpc_url(&listed.url, home).map_err(|error| error.message().to_owned())?,
            Binding::JsonRpc | Binding::HttpJson => http_url(&listed.url)?,
        };
        let required = card.capabilities.extensions.iter().filter(|extension| extension.required);
        let extensions = required.map(|extension| extension.uri.clone()).collect();
        let (id, tenant, offered) = (identify(listed), listed.tenant.clone(), offered.to_vec());
        Ok(Self { id, version, binding, url, tenant, extensions, offered })
    }

    /// The names and shapes of the version, for the bindings with JSON.
    pub(crate) fn dialect(&self) -> &'static dyn Dialect {
        match (self.version, self.binding) {
            (Version::V1_0, _) => &V1,
            (Version::V0_3, Binding::HttpJson) => &v03::Rest,
            (Version::V0_3, Binding::JsonRpc | Binding::Grpc) => &v03::JsonRpc,
        }
    }

    pub(crate) fn codec(&self) -> &'static Codec {
        match self.version {
            Version::V1_0 => &pb::CODEC,
            Version::V0_3 => &v03::pb::CODEC,
        }
    }

    pub(crate) fn paths(&self) -> Paths {
        match self.version {
            Version::V1_0 => Paths::V1,
            Version::V0_3 => v03::PATHS,
        }
    }

    /// The error in an answer of HTTP+JSON.
    pub(crate) fn decode_error(&self, status: u16, body: &[u8]) -> Error {
        match self.version {
            Version::V1_0 => rest::decode_error(status, body),
            Version::V0_3 => v03::decode_rest_error(status, body),
        }
    }

    /// The media type of JSON bodies.
    pub(crate) fn media_type(&self) -> &'static str {
        match (self.version, self.binding) {
            (Version::V1_0, Binding::HttpJson) => "application/a2a+json",
            _ => "application/json",
        }
    }

    /// The header in which a call lists extensions.
    pub(crate) fn extensions_header(&self) -> &'static str {
        match self.version {
            Version::V1_0 => "a2a-extensions",
            Version::V0_3 => "x-a2a-extensions",
        }
    }

    /// The name of an operation in this version and binding; `None` if it does not exist.
    pub(crate) fn method(&self, op: Op) -> Option<&'static str> {
        match self.binding {
            Binding::Grpc => (self.codec().rpc_name)(op),
            Binding::JsonRpc | Binding::HttpJson => {
                if self.version == Version::V0_3 && op == Op::ListTasks {
                    None
                } else {
                    Some(op.name())
                }
            }
        }
    }

    /// A call as a request.
    ///
    /// # Errors
    /// The version does not have the operation.
    pub(crate) fn request(&self, mut call: Call) -> Result<Request> {
        call.set_tenant(self.tenant.clone());
        let op = call.op();
        match self.binding {
            Binding::JsonRpc => {
                let dialect = self.dialect();
                let method = dialect.method(op).ok_or_else(|| Error::internal("no such method"))?;
                let mut body = Vec::new();
                jsonrpc::encode_request(1, method, &mut body, |out| dialect.encode_call(&call, out))?;
                Ok(self.post(op).with_body(body))
            }
            Binding::HttpJson => self.rest(call),
            Binding::Grpc => {
                let mut message = Vec::new();
                (self.codec().encode_call)(&call, &mut message)?;
                let rpc = self.method(op).ok_or_else(|| Error::internal("no such rpc"))?;
                Ok(self.rpc(rpc, &message))
            }
        }
    }

    fn rest(&self, call: Call) -> Result<Request> {
        let op = call.op();
        if self.method(op).is_none() {
            return Err(Error::internal("no such route"));
        }
        let outgoing = rest::encode_request(&self.paths(), self.dialect(), call)?;
        let method = match outgoing.verb {
            Verb::Get => Method::GET,
            Verb::Post => Method::POST,
            Verb::Delete => Method::DELETE,
        };
        let mut request = self.describe(Request::new(method, self.below(&outgoing.target())), op);
        if let Some(body) = outgoing.body {
            request = request.header("content-type", self.media_type()).with_body(body);
        }
        Ok(request)
    }

    /// The URL of a path and query below the interface.
    pub(crate) fn below(&self, target: &str) -> Url {
        let base =
            format!("{}{}", self.url.origin().ascii_serialization(), self.url.path().trim_end_matches('/'));
        Url::parse(&format!("{base}{target}")).unwrap_or_else(|_| self.url.clone())
    }

    /// A JSON-RPC request with any method and params, and the tenant of the interface.
    pub(crate) fn call(&self, method: &str, params: &Value) -> Request {
        let params = self.with_tenant(params.clone());
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.post(Op::GetTask).with_body(body.to_string())
    }

    /// The params of a call with the tenant of the interface.
    pub(crate) fn with_tenant(&self, mut params: Value) -> Value {
        if let Some(tenant) = &self.tenant {
            params["tenant"] = json!(tenant);
        }
        params
    }

    /// A POST to the interface, without a body.
    pub(crate) fn post(&self, op: Op) -> Request {
        self.describe(Request::new(Method::POST, self.url.clone()), op)
            .header("content-type", self.media_type())
    }

    /// An rpc with these bytes as its message.
    pub(crate) fn rpc(&self, rpc: &str, message: &[u8]) -> Request {
        let mut url = self.url.clone();
        url.set_path(&format!("/{}/{rpc}", self.codec().service));
        let mut request = Request::new(Method::POST, url)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .with_body(frame(message));
        request.http2 = true;
        self.versioned(request)
    }

    fn describe(&self, request: Request, op: Op) -> Request {
        let accept = match (op.row().streaming, self.media_type()) {
            (true, "application/json") => "text/event-stream, application/json",
            (true, _) => "text/event-stream, application/a2a+json, application/json",
            (false, "application/json") => "application/json",
            (false, _) => "application/a2a+json, application/json",
        };
        self.versioned(request.header("accept", accept))
    }

    /// Adds the version, which clients of 0.3 do not send, and the required extensions.
    fn versioned(&self, mut request: Request) -> Request {
        let listed: Vec<_> = self.extensions.iter().chain(&self.offered).map(String::as_str).collect();
        if !listed.is_empty() {
            request = request.header(self.extensions_header(), &listed.join(","));
        }
        match self.version {
            Version::V1_0 => request.header("a2a-version", self.version.as_str()),
            Version::V0_3 => request,
        }
    }
}

/// The names and shapes of a notification, which tells its version by its members.
pub(crate) fn notification_dialect(body: &Value) -> &'static dyn Dialect {
    if body["kind"].is_string() { &v03::JsonRpc } else { &V1 }
}

/// The name of an interface in reports.
pub(crate) fn identify(listed: &AgentInterface) -> InterfaceId {
    let version = listed
        .version()
        .map_or_else(|| listed.protocol_version.clone(), |version| version.as_str().to_owned());
    let binding = listed
        .binding()
        .map_or_else(|| listed.protocol_binding.clone(), |binding| binding.as_str().to_owned());
    InterfaceId { version, binding, url: listed.url.clone() }
}

fn http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| format!("{text:?} is not an http or https URL"))
}
