//! A hub with one agent in proxy mode, and what stands behind it: an agent of ours, or one that answers what a test
//! says and remembers what it was asked.

mod guarded;
mod limited;
mod ownership;
mod push;
mod raw;
mod streams;
mod translated;

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use axum::{Router, body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use nuncio_client::{Candidate, Credentials, Direct, Egress};
use nuncio_protocol::{AgentCard, AgentInterface, Binding, Caller, Version};
use nuncio_server::{
    bind::{self, BindOptions},
    store::{MemoryStore, Store},
};
use tokio::net::TcpListener;
use url::Url;

use crate::{
    agent_urls::AgentUrls,
    agents::{
        AgentFactory,
        demo::{echo, slow},
    },
    config::{self, AgentKind, AgentOrigin, Mode, Upstream},
    fleet::{Fleet, ServedAgent},
    identity::{Keyring, NewApiKey},
    limits::Callers,
    listen::Peer,
    pipeline::{Pipeline, Stations},
    push::Pushing,
    registry::PrepareAgent as _,
    routes::RouteTable,
    telemetry::Requests,
};

const NAME: &str = "up";

/// Every way to call.
const FORMS: [(Binding, Version); 6] = [
    (Binding::JsonRpc, Version::V1_0),
    (Binding::JsonRpc, Version::V0_3),
    (Binding::HttpJson, Version::V1_0),
    (Binding::HttpJson, Version::V0_3),
    (Binding::Grpc, Version::V1_0),
    (Binding::Grpc, Version::V0_3),
];

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    (listener, base)
}

fn serve(listener: TcpListener, router: Router) {
    tokio::spawn(async move { axum::serve(listener, router).await });
}

fn interface(base: &str, (binding, version): (Binding, Version)) -> AgentInterface {
    let url = match binding {
        Binding::Grpc => base.trim_start_matches("http://").to_owned(),
        Binding::JsonRpc | Binding::HttpJson => base.to_owned(),
    };
    AgentInterface {
        url: if binding == Binding::Grpc { format!("http://{url}") } else { url },
        protocol_binding: binding.as_str().to_owned(),
        protocol_version: version.as_str().to_owned(),
        tenant: None,
    }
}

fn card(base: &str, forms: &[(Binding, Version)]) -> AgentCard {
    let mut card = AgentCard::new("theirs", "An agent.").with_streaming();
    card.supported_interfaces = forms.iter().map(|form| interface(base, *form)).collect();
    card.default_input_modes = vec!["*/*".to_owned()];
    card.capabilities.push_notifications = Some(true);
    card
}

/// A request that an agent has received.
#[derive(Clone, Debug)]
struct Asked {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// An agent that answers what a test says.
struct Canned {
    base: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// The headers of those who looked for its card.
    looked: Arc<Mutex<Vec<HeaderMap>>>,
}

impl Canned {
    async fn start(
        forms: &[(Binding, Version)],
        answer: impl Fn(&Asked) -> Response + Send + Sync + 'static,
    ) -> Self {
        Self::on(listen().await, forms, answer)
    }

    fn on(
        (listener, base): (TcpListener, String),
        forms: &[(Binding, Version)],
        answer: impl Fn(&Asked) -> Response + Send + Sync + 'static,
    ) -> Self {
        let (asked, looked) = <(Arc<Mutex<Vec<Asked>>>, Arc<Mutex<Vec<HeaderMap>>>)>::default();
        let json = serde_json::to_string(&card(&base, forms)).unwrap();
        let (log, looks, answer) = (Arc::clone(&asked), Arc::clone(&looked), Arc::new(answer));
        let handle = move |request: Request| {
            let (log, answer, json) = (Arc::clone(&log), Arc::clone(&answer), json.clone());
            let looks = Arc::clone(&looks);
            async move {
                let (parts, body) = request.into_parts();
                if parts.uri.path().ends_with("agent-card.json") {
                    looks.lock().unwrap().push(parts.headers);
                    return typed(StatusCode::OK, "application/json", json);
                }
                let body = body.collect().await.unwrap().to_bytes();
                let path = parts.uri.path_and_query().unwrap().to_string();
                let asked = Asked { method: parts.method, path, headers: parts.headers, body };
                log.lock().unwrap().push(asked.clone());
                answer(&asked)
            }
        };
        serve(listener, Router::new().fallback(handle));
        Self { base, asked, looked }
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn typed(status: StatusCode, media_type: &str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", media_type.parse().unwrap());
    response
}

/// An agent of ours, on the wire in these forms.
async fn agent(forms: &[(Binding, Version)], is_slow: bool) -> String {
    let (listener, base) = listen().await;
    let card = card(&base, forms);
    let builder = if is_slow { slow::agent(card.clone()) } else { echo::agent(card.clone()) };
    let mut shown = card;
    shown.capabilities.push_notifications = Some(false);
    let agent = bind::Agent::new(Arc::new(builder.build()), &shown, BindOptions::default()).unwrap();
    serve(listener, bind::router(&agent));
    base
}

/// A hub before an agent.
struct Hub {
    base: String,
    agent: Arc<ServedAgent>,
    keyring: Arc<Keyring>,
    /// Of callers, where they are told apart.
    keys: HashMap<&'static str, String>,
}

async fn hub(upstream: &str, apart: bool) -> Hub {
    hub_with(Upstream::new(Url::parse(upstream).unwrap()), apart, None, Arc::new(MemoryStore::default()))
        .await
}

/// A hub before an agent that was there, and is not; and where it was.
async fn left_alone(form: (Binding, Version)) -> (Hub, SocketAddr, String) {
    let (listener, base) = listen().await;
    let address = listener.local_addr().unwrap();
    let json = serde_json::to_string(&card(&base, &[form])).unwrap();
    let cards =
        Router::new().fallback(move || async move { typed(StatusCode::OK, "application/json", json) });
    let serving = tokio::spawn(async move { axum::serve(listener, cards).await });
    let hub = hub(&base, false).await;
    serving.abort();
    let _ = serving.await;
    (hub, address, base)
}

async fn hub_with(
    mut settings: Upstream,
    apart: bool,
    pushing: Option<Pushing>,
    store: Arc<dyn Store>,
) -> Hub {
    settings.mode = Mode::Proxy;
    hub_of(settings, apart, pushing, store, &Bounds::default()).await
}

/// The calls of callers.
#[derive(Clone, Debug, Default)]
struct Bounds {
    /// Each of them.
    caller: config::Limits,
    /// All together.
    agent: config::AgentLimits,
}

async fn hub_of(
    settings: Upstream,
    apart: bool,
    pushing: Option<Pushing>,
    store: Arc<dyn Store>,
    bounds: &Bounds,
) -> Hub {
    let (listener, base) = listen().await;
    let urls = AgentUrls::new(&Url::parse(&base).unwrap(), Some(NAME));
    let options = BindOptions::default();
    let factory = AgentFactory {
        urls: urls.clone(),
        pushing,
        options: options.clone(),
        callers: Arc::new(Callers::new(&bounds.caller, &HashMap::new())),
        ..crate::registry::tests::factory(&store).await
    };
    let mut keys = HashMap::new();
    for name in ["ann", "bob", "eve"].iter().filter(|_| apart) {
        let (_, key) = factory.identity.keyring().create(NewApiKey::named(*name)).await.unwrap();
        keys.insert(*name, key.reveal().to_owned());
    }
    let kind = AgentKind::Upstream(Box::new(settings));
    let wanted = config::Agent {
        limits: bounds.agent.clone(),
        ..config::Agent::new(NAME.parse().unwrap(), kind, AgentOrigin::Flag)
    };
    let factory = Arc::new(factory);
    let activate = Arc::clone(&factory).prepare(wanted, None).await.unwrap();
    let agent = activate().unwrap();
    let fleet = Arc::new(Fleet::new(&factory.urls));
    fleet.put([Arc::clone(&agent)]);
    if !apart {
        // Where nobody has a key, headers that make a call foreign are not what is tested.
        let open = config::Identity { anonymous: config::Anonymous::Always, ..config::Identity::default() };
        factory.identity.configure(&open).unwrap();
    }
    let (routes, _health) = RouteTable::new(&fleet, &store, &urls, &options).await.unwrap();
    let requests = Requests::new(Arc::clone(&factory.telemetry.metrics));
    let identity = Arc::clone(&factory.identity);
    let pipeline =
        Pipeline::new(Stations { requests, origins: Arc::default(), identity, routes: Arc::new(routes) });
    // The edge says where requests come from, and there is none here.
    let local = Ipv4Addr::LOCALHOST.into();
    let peer = axum::Extension(Peer::new(local, local));
    serve(listener, Router::new().fallback_service(pipeline).layer(peer));
    Hub { base, agent, keyring: Arc::clone(factory.identity.keyring()), keys }
}

impl Hub {
    /// The agent as this caller reaches it in one form.
    fn service(&self, caller: &str, form: (Binding, Version)) -> Direct {
        let (binding, version) = form;
        let base = match binding {
            Binding::Grpc => self.base.clone(),
            Binding::JsonRpc | Binding::HttpJson => format!("{}/agents/{NAME}", self.base),
        };
        let candidate = Candidate { interface: interface(&base, form), version, binding };
        let credentials = match self.keys.get(caller) {
            Some(key) => Credentials::none().bearer(key).unwrap(),
            None => Credentials::none(),
        };
        let home = Url::parse(&self.base).unwrap();
        Direct::new(&Egress::operator().unwrap(), &candidate, &credentials, &home).unwrap()
    }

    /// The address of this form, and the request for it.
    async fn ask(&self, caller: &str, asked: Asked) -> (StatusCode, HeaderMap, Bytes, Option<HeaderMap>) {
        let response = self.open(caller, asked).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned();
        (parts.status, parts.headers, body.to_bytes(), trailers)
    }

    async fn open(&self, caller: &str, asked: Asked) -> http::Response<hyper::body::Incoming> {
        let is_grpc = asked.headers.get("content-type").is_some_and(|value| value == "application/grpc");
        let authority = self.base.trim_start_matches("http://");
        let socket = TokioIo::new(tokio::net::TcpStream::connect(authority).await.unwrap());
        let uri = format!("{}{}", if is_grpc { &*self.base } else { "" }, asked.path);
        let mut request =
            http::Request::builder().method(asked.method).uri(uri).body(Full::new(asked.body)).unwrap();
        *request.headers_mut() = asked.headers;
        if let Some(key) = self.keys.get(caller) {
            request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        }
        if is_grpc {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), socket).await.unwrap();
            tokio::spawn(connection);
            return sender.send_request(request).await.unwrap();
        }
        request.headers_mut().insert("host", HeaderValue::from_str(authority).unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    }
}

/// A request that is posted.
fn posted(path: &str, media_type: &str, version: Version, body: impl Into<Bytes>) -> Asked {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", media_type.parse().unwrap());
    headers.insert("a2a-version", HeaderValue::from_static(version.as_str()));
    Asked { method: Method::POST, path: path.to_owned(), headers, body: body.into() }
}

/// A message in its frame.
fn framed(message: &[u8]) -> Bytes {
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(message);
    frame.into()
}
