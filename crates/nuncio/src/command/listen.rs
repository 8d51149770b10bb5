//! `nuncio listen`: a receiver of notifications that shows them.

mod show;

use std::{net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, FromRequest as _, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse as _, Response},
    routing::post,
};
use nuncio_client::{
    Receiver, TrustedKeys,
    notification::WebhookSecret,
    receiver::{Accepted, Receipt},
};
use serde_json::json;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};

use super::{card::read_key, hint::program, signals::Signals};
use crate::{
    args::{Hidden, Listen},
    exit,
    output::{self, Format},
};

/// How long requests may take that are under way when we end.
const GRACE: Duration = Duration::from_secs(5);
/// How long the body of a request may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn run(listen: Listen, format: Format) -> Result<ExitCode> {
    let made_up = made_up_token(&listen)?;
    let receiver = receiver(&listen, made_up.as_deref())?;
    let mut signals = Signals::listen()?;
    let socket = TcpListener::bind(listen.listen).await.with_context(|| {
        format!(
            "cannot listen on {}; is another one listening? say --listen with another port",
            listen.listen
        )
    })?;
    announce(&listen, socket.local_addr()?, made_up.as_deref(), format)?;

    let (inbox, arrivals) = mpsc::channel(1);
    let (stop, stopped) = oneshot::channel::<()>();
    let served = axum::serve(socket, router(receiver, inbox)).with_graceful_shutdown(async {
        // Done when the other end is dropped.
        let _ = stopped.await;
    });
    let serving = tokio::spawn(served.into_future());
    let outcome = tokio::select! {
        outcome = show_all(arrivals, &listen, format) => outcome,
        () = signals.next() => Ok(()),
    };
    drop(stop);
    // Answers that are on their way may arrive; who sends nothing does not keep us.
    let _ = tokio::time::timeout(GRACE, serving).await;
    outcome?;
    output::note("stopped");
    Ok(ExitCode::SUCCESS)
}

fn asks_for_proof(listen: &Listen) -> bool {
    let is_set = |hidden: &Hidden| hidden.given().is_some();
    listen.token.as_ref().is_some_and(is_set)
        || listen.secrets.iter().any(is_set)
        || listen.jwks.is_some()
        || !listen.keys.is_empty()
}

/// A token where no proof is asked for: other programs of this machine, and web pages that it shows, could
/// make up notifications (REQ-170).
fn made_up_token(listen: &Listen) -> Result<Option<String>> {
    if asks_for_proof(listen) {
        return Ok(None);
    }
    if !listen.listen.ip().is_loopback() {
        return Err(exit::usage(format!(
            "--listen {}: anybody who can reach us could make up notifications; add --token, --secret, --jwks or \
             --key, or listen on 127.0.0.1",
            listen.listen
        )));
    }
    Ok(Some(format!("{:032x}", rand::random::<u128>())))
}

fn receiver(listen: &Listen, made_up: Option<&str>) -> Result<Receiver> {
    let mut builder = Receiver::builder();
    for token in listen.token.iter().filter_map(Hidden::given).chain(made_up) {
        builder = builder.token(token);
    }
    for secret in listen.secrets.iter().filter_map(Hidden::given) {
        let secret: WebhookSecret =
            secret.parse().map_err(|error| exit::usage(format!("--secret: {error}")))?;
        builder = builder.secret(secret);
    }
    for path in &listen.keys {
        builder = builder.keys(read_key(path, TrustedKeys::parse)?);
    }
    if let Some(url) = &listen.jwks {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(exit::usage(format!("--jwks {}: expected http or https", url.scheme())));
        }
        builder = builder.jwks_url(url.clone());
    }
    if !listen.audiences.is_empty() && listen.jwks.is_none() && listen.keys.is_empty() {
        return Err(exit::usage("--audience: stands in signatures by keys; add --jwks or --key"));
    }
    for url in &listen.audiences {
        builder = builder.audience(url.clone());
    }
    for task in &listen.tasks {
        builder = builder.task(task.as_str());
    }
    Ok(builder.build()?)
}

/// Where we listen, and a line to paste that makes a notification come.
fn announce(listen: &Listen, address: SocketAddr, made_up: Option<&str>, format: Format) -> Result<()> {
    let port = address.port();
    let url = if address.ip().is_unspecified() {
        format!("http://HOST:{port}/")
    } else {
        format!("http://{address}/")
    };
    if format == Format::Json {
        let mut announced = json!({ "listen": address.to_string(), "url": url });
        if let Some(token) = made_up {
            announced["token"] = json!(token);
        }
        return output::json(&announced);
    }
    let token = match (made_up, &listen.token) {
        (Some(token), _) => format!(" --push-token {token}"),
        // Theirs is their secret.
        (None, Some(_)) => " --push-token …".to_owned(),
        (None, None) => String::new(),
    };
    output::note(&format!("nuncio {} waits for notifications at {url}", env!("CARGO_PKG_VERSION")));
    output::note(&format!(
        "  try   {} send http://127.0.0.1:2602/agents/echo \"hello\" --push {url}{token}",
        program()
    ));
    if address.ip().is_loopback() {
        output::note(
            "  a hub calls an address of its own machine only if it was started with --allow-private-push",
        );
    }
    output::note("Ctrl-C stops");
    Ok(())
}

/// A notification, and whoever waits for the answer.
struct Arrival {
    accepted: Accepted,
    answer: oneshot::Sender<Response>,
}

/// Shows what comes, one after the other, as many as there are to be.
async fn show_all(mut arrivals: mpsc::Receiver<Arrival>, listen: &Listen, format: Format) -> Result<()> {
    let mut left = if listen.once { Some(1) } else { listen.count };
    while left != Some(0) {
        let Some(Arrival { accepted, answer }) = arrivals.recv().await else { return Ok(()) };
        let status = listen.answer.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.unwrap_or(StatusCode::NO_CONTENT);
        show::notification(format, &accepted.notification, status)?;
        settle(accepted.receipt, status);
        let retry_after = listen.retry_after.map(|seconds| [(RETRY_AFTER, HeaderValue::from(seconds))]);
        // Whoever has hung up comes again.
        let _ =
            answer.send((status, retry_after.map(HeaderMap::from_iter).unwrap_or_default()).into_response());
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// What the sender will take for delivered is not shown again.
fn settle(receipt: Receipt, status: StatusCode) {
    if status.is_success() {
        receipt.done();
    }
}

struct Shared {
    receiver: Receiver,
    inbox: mpsc::Sender<Arrival>,
}

fn router(receiver: Receiver, inbox: mpsc::Sender<Arrival>) -> Router {
    let limit = DefaultBodyLimit::max(receiver.max_body());
    let notify = || post(notify);
    Router::new()
        .route("/", notify())
        .route("/{*path}", notify())
        .layer(limit)
        .with_state(Arc::new(Shared { receiver, inbox }))
}

async fn notify(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let refuse = |status: StatusCode, why: &str| {
        output::note(&format!("answered {} and not shown: {}", status.as_u16(), show::one_line(why)));
        (status, format!("{why}\n")).into_response()
    };
    let headers = request.headers().clone();
    let body = match tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, &())).await {
        Ok(Ok(body)) => body,
        Ok(Err(rejection)) => return refuse(rejection.status(), &rejection.body_text()),
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
    };
    let accepted = match shared.receiver.accept(&headers, &body).await {
        Ok(accepted) => accepted,
        Err(rejected) => return refuse(rejected.status(), &rejected.to_string()),
    };
    let (answer, answered) = oneshot::channel();
    // Both fail when we are about to end: the sender tries again, and may find the next one.
    let _ = shared.inbox.send(Arrival { accepted, answer }).await;
    answered.await.unwrap_or_else(|_| StatusCode::SERVICE_UNAVAILABLE.into_response())
}
