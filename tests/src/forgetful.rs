//! An agent that does not know repeats: a hub behind a relay through which no keys pass, and whose cards do not say
//! that they would.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, header};
use nuncio_protocol::RESUME_EXTENSION;
use reqwest::Client;
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinHandle};

/// More than any message of a test has.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Listens at a port of its own.
#[derive(Debug)]
pub struct Forgetful {
    /// Its address, such as `http://127.0.0.1:4711`.
    pub base: String,
    serving: JoinHandle<()>,
}

struct Relay {
    client: Client,
    here: String,
    there: String,
}

impl Forgetful {
    /// Starts before the hub at this base.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn before(hub: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address: SocketAddr = listener.local_addr().expect("a listener has an address");
        let base = format!("http://{address}");
        let client = Client::builder().no_proxy().build().expect("a client can be made");
        let relay = Relay { client, here: base.clone(), there: hub.to_owned() };
        let app = Router::new().fallback(pass).with_state(Arc::new(relay));
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        Self { base, serving }
    }
}

impl Drop for Forgetful {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn pass(State(relay): State<Arc<Relay>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    for gone in [header::HOST.as_str(), header::CONTENT_LENGTH.as_str(), "idempotency-key"] {
        parts.headers.remove(gone);
    }
    let Ok(body) = to_bytes(body, MAX_MESSAGE_BYTES).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let url = format!("{}{}", relay.there, parts.uri);
    let answer = relay.client.request(parts.method, url).headers(parts.headers).body(body).send().await;
    let Ok(answer) = answer else { return StatusCode::BAD_GATEWAY.into_response() };
    let status = answer.status();
    let media_type = answer.headers().get(header::CONTENT_TYPE).cloned();
    let body = if parts.uri.path().ends_with("agent-card.json") {
        match answer.bytes().await {
            Ok(card) => Body::from(relay.forget(&card)),
            Err(_) => return StatusCode::BAD_GATEWAY.into_response(),
        }
    } else {
        Body::from_stream(answer.bytes_stream())
    };
    let headers = media_type.map(|media_type| [(header::CONTENT_TYPE, media_type)]);
    (status, headers.into_iter().flatten().collect::<http::HeaderMap>(), body).into_response()
}

impl Relay {
    /// The card of an agent that is here and knows no repeats. (By gRPC one would come past us.)
    fn forget(&self, card: &Bytes) -> Vec<u8> {
        let text = String::from_utf8_lossy(card).replace(&self.there, &self.here);
        let mut card: Value = serde_json::from_str(&text).expect("a card is JSON");
        if let Some(extensions) = card["capabilities"]["extensions"].as_array_mut() {
            extensions.retain(|extension| extension["uri"] != RESUME_EXTENSION);
        }
        if let Some(interfaces) = card["supportedInterfaces"].as_array_mut() {
            interfaces.retain(|interface| interface["protocolBinding"] != "GRPC");
        }
        serde_json::to_vec(&card).expect("a card is JSON")
    }
}
