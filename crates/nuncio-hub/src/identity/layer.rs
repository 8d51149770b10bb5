//! The authentication step of every request: inserts `Caller` and `Access`, or refuses in the request's
//! binding.

use std::{
    net::{IpAddr, Ipv4Addr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::Request,
    response::Response,
};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use http_body::{Frame, SizeHint};
use nuncio_protocol::{Caller, Error, ErrorKind};
use nuncio_server::bind;

use super::{AuthRefusal, Authenticator, CredentialExpiry, KnownCaller, NO_CREDENTIALS, credential_headers};
use crate::{listen::Peer, target::Target};

/// Retry-After of a refusal because an issuer cannot be reached.
const ISSUER_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The party that judges the credentials of a request, where the hub has none to compare them with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Judge {
    Hub,
    /// The agent that is called: it receives the credentials.
    Agent,
    /// The agent, if the one that the call turns out to be for receives the credentials.
    AgentOfTenant,
}

/// Credentials that nobody has judged yet. An extension of requests whose agent is known only later; each agent that
/// does not receive the credentials refuses them.
#[derive(Clone)]
pub(crate) struct Unjudged {
    identity: Arc<Authenticator>,
    headers: Vec<HeaderName>,
    peer: IpAddr,
}

impl Unjudged {
    /// The headers with the credentials.
    pub(crate) fn headers(&self) -> &[HeaderName] {
        &self.headers
    }

    /// The refusal of the credentials.
    pub(crate) fn refuse(&self) -> Error {
        told(&self.identity.refuse(NO_CREDENTIALS, self.peer)).0
    }
}

/// Authenticates the request and passes it to `next`, or refuses it. A public card is readable without a
/// credential, but not with a wrong one: a caller that sends one needs to learn that it is wrong.
pub(crate) async fn identify<F: Future<Output = Response>>(
    identity: &Arc<Authenticator>,
    target: Target,
    reads_public_card: bool,
    judge: impl Fn(&Uri, &HeaderMap) -> Judge,
    mut request: Box<Request>,
    next: impl FnOnce(Box<Request>) -> F,
) -> Response {
    let nowhere = Ipv4Addr::UNSPECIFIED.into();
    let peer = request.extensions().get::<Peer>().copied().unwrap_or(Peer::new(nowhere, nowhere));
    let mut judged_by = Judge::Hub;
    let (uri, headers) = (request.uri(), request.headers());
    let is_for_agent = || {
        judged_by = judge(uri, headers);
        judged_by != Judge::Hub
    };
    match identity.find(uri, headers, &peer, is_for_agent).await {
        Ok(KnownCaller { caller, access, expiry }) => {
            let is_somebody = caller.principal().is_some();
            if judged_by == Judge::AgentOfTenant {
                let (identity, headers) =
                    (Arc::clone(identity), credential_headers(request.headers()).collect());
                request.extensions_mut().insert(Unjudged { identity, headers, peer: peer.address });
            }
            request.extensions_mut().insert(caller);
            request.extensions_mut().insert(access);
            let mut response = next(request).await;
            if is_somebody {
                for_this_caller(response.headers_mut());
            }
            if expiry.is_never() || !is_stream(&response) {
                return response;
            }
            let is_grpc = bind::is_grpc(response.headers());
            response.map(|body| Body::new(ExpiringBody::new(body, expiry, is_grpc)))
        }
        // Without an `Access` in the request, the caller sees no other agent.
        Err(AuthRefusal::Missing) if reads_public_card => {
            request.extensions_mut().insert(Caller::anonymous());
            next(request).await
        }
        Err(refused) => refuse(target, &request, &refused),
    }
}

fn refuse(target: Target, request: &Request, refused: &AuthRefusal) -> Response {
    let (error, challenge) = told(refused);
    let mut response = refuse_with(target, request, error);
    if let Some(value) = challenge.and_then(|challenge| HeaderValue::from_str(&challenge).ok()) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
    response
}

/// The error of a refusal, and the challenge that goes with it.
pub(super) fn told(refused: &AuthRefusal) -> (Error, Option<String>) {
    match refused {
        AuthRefusal::Missing => {
            let how = "authentication required; send an API key or a token as Authorization: Bearer";
            (Error::new(ErrorKind::Unauthenticated, how), Some("Bearer realm=\"nuncio\"".to_owned()))
        }
        AuthRefusal::Foreign => {
            let how = "authentication required, because the call comes from another machine: it came through a proxy \
                       or names another host; send an API key or a token as Authorization: Bearer";
            (Error::new(ErrorKind::Unauthenticated, how), Some("Bearer realm=\"nuncio\"".to_owned()))
        }
        AuthRefusal::Invalid(why) => {
            // RFC 6750, section 3. The reason is our own text and has no quotes in it.
            let challenge =
                format!("Bearer realm=\"nuncio\", error=\"invalid_token\", error_description=\"{why}\"");
            (Error::new(ErrorKind::Unauthenticated, *why), Some(challenge))
        }
        AuthRefusal::MailboxKey(mailbox) => {
            let why = format!(
                "this key opens the mailbox {mailbox} and calls no agent; nuncio key create makes a key for callers"
            );
            let challenge =
                format!("Bearer realm=\"nuncio\", error=\"invalid_token\", error_description=\"{why}\"");
            (Error::new(ErrorKind::Unauthenticated, why), Some(challenge))
        }
        AuthRefusal::TooMany(wait) => {
            let why = "too many wrong credentials came from this address; wait before you try again";
            (Error::new(ErrorKind::ResourceExhausted, why).with_retry_after(*wait), None)
        }
        AuthRefusal::Unavailable => {
            let why = "the token cannot be verified at present, because its issuer does not answer";
            (Error::new(ErrorKind::Unavailable, why).with_retry_after(ISSUER_RETRY_AFTER), None)
        }
    }
}

/// Answers with an error of the binding. The answer is the same whether or not the agent exists.
pub(crate) fn refuse_with(target: Target, request: &Request, error: Error) -> Response {
    let mut response = bind::refuse(target.agent_path(request.uri().path()), request, error);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Marks the response as private: a shared cache could otherwise serve it to callers who may not see it,
/// even where the response itself declares that it is public.
pub(super) fn for_this_caller(headers: &mut HeaderMap) {
    headers.append(header::VARY, HeaderValue::from_static("authorization, x-api-key"));
    let Some(said) = headers.get(header::CACHE_CONTROL) else {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private"));
        return;
    };
    let said = said.to_str().unwrap_or_default();
    let is = |directive: &str, name: &str| directive.trim().eq_ignore_ascii_case(name);
    if ["no-store", "private"].iter().any(|own| said.split(',').any(|directive| is(directive, own))) {
        return;
    }
    let shared = |directive: &&str| {
        let name = directive.split('=').next().unwrap_or_default();
        is(name, "public") || is(name, "s-maxage") || name.trim().is_empty()
    };
    let kept = said.split(',').filter(|directive| !shared(directive)).map(str::trim);
    let text = ["private"].into_iter().chain(kept).collect::<Vec<_>>().join(", ");
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.insert(header::CACHE_CONTROL, value);
    }
}

fn is_stream(response: &Response) -> bool {
    let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    media_type.is_some_and(|media_type| {
        media_type.starts_with("text/event-stream") || media_type.starts_with("application/grpc")
    })
}

/// Ends the response stream when the caller's credential expires or is revoked. A reconnect is then refused.
struct ExpiringBody {
    body: Body,
    /// A gRPC stream reports the reason in its trailers.
    is_grpc: bool,
    expiry: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_over: bool,
}

impl ExpiringBody {
    fn new(body: Body, expiry: CredentialExpiry, is_grpc: bool) -> Self {
        Self { body, is_grpc, expiry: Box::pin(expiry.expired()), is_over: false }
    }
}

/// The trailers of a gRPC stream that ends because its credential has expired.
fn unauthenticated() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("16"));
    // Printable ASCII: gRPC needs no percent-encoding for it.
    let why = "the credential of this stream has expired or was revoked";
    trailers.insert("grpc-message", HeaderValue::from_static(why));
    trailers
}

impl HttpBody for ExpiringBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if self.expiry.as_mut().poll(cx).is_ready() {
            self.is_over = true;
            return Poll::Ready(self.is_grpc.then(|| Ok(Frame::trailers(unauthenticated()))));
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        // The body's own trailers end the stream; ours must not follow them.
        self.is_over = matches!(&frame, Poll::Ready(Some(Ok(frame))) if frame.is_trailers());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
