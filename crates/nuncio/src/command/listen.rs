//! `nuncio listen`: receives notifications and prints them.

mod show;

use std::{io::ErrorKind, net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Result, anyhow};
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
use serde_json::{Map, json};
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

/// Time for requests in flight to finish at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn run(listen: Listen, format: Format) -> Result<ExitCode> {
    let generated = random_token(&listen)?;
    let receiver = receiver(&listen, generated.as_deref())?;
    let mut signals = Signals::listen()?;
    let socket = TcpListener::bind(listen.listen).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow!(
                "cannot listen on {}: the address is in use; choose another port with --listen",
                listen.listen
            )
        }
        _ => anyhow!("cannot listen on {}: {error}; choose another address with --listen", listen.listen),
    })?;
    announce(&listen, socket.local_addr()?, generated.as_deref(), format)?;

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
    // Lets answers arrive; idle connections do not delay the end.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, serving).await;
    outcome?;
    output::note("stopped");
    Ok(ExitCode::SUCCESS)
}

fn requires_proof(listen: &Listen) -> bool {
    let is_set = |hidden: &Hidden| hidden.given().is_some();
    listen.token.as_ref().is_some_and(is_set)
        || listen.secrets.iter().any(is_set)
        || listen.jwks.is_some()
        || !listen.keys.is_empty()
}

/// A random token where no proof is required: other programs of this machine, and web pages in its browser, could
/// forge notifications (REQ-170).
fn random_token(listen: &Listen) -> Result<Option<String>> {
    if requires_proof(listen) {
        return Ok(None);
    }
    if !listen.listen.ip().is_loopback() {
        return Err(exit::usage(format!(
            "--listen {}: anybody who reaches this address could forge notifications; add --token, --secret, --jwks or \
             --key, or listen on 127.0.0.1",
            listen.listen
        )));
    }
    Ok(Some(format!("{:032x}", rand::random::<u128>())))
}

fn receiver(listen: &Listen, generated: Option<&str>) -> Result<Receiver> {
    let mut builder = Receiver::builder();
    for token in listen.token.iter().filter_map(Hidden::given).chain(generated) {
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
        return Err(exit::usage("--audience: only signatures by keys have an audience; add --jwks or --key"));
    }
    for url in &listen.audiences {
        builder = builder.audience(url.clone());
    }
    for task in &listen.tasks {
        builder = builder.task(task.as_str());
    }
    Ok(builder.build()?)
}

/// Prints the URL, and a command that causes a notification.
fn announce(listen: &Listen, address: SocketAddr, generated: Option<&str>, format: Format) -> Result<()> {
    let port = address.port();
    let url = if address.ip().is_unspecified() {
        format!("http://HOST:{port}/")
    } else {
        format!("http://{address}/")
    };
    if format == Format::Json {
        let mut announced = Map::from_iter([
            ("listen".to_owned(), json!(address.to_string())),
            ("url".to_owned(), json!(url)),
        ]);
        announced.extend(generated.map(|token| ("token".to_owned(), json!(token))));
        return output::json(&announced);
    }
    let token = match (generated, &listen.token) {
        (Some(token), _) => format!(" --push-token {token}"),
        // The user's own token is not shown.
        (None, Some(_)) => " --push-token …".to_owned(),
        (None, None) => String::new(),
    };
    output::note(&format!("nuncio {} listens for notifications at {url}", env!("CARGO_PKG_VERSION")));
    output::note(&format!(
        "  try   {} send http://127.0.0.1:2602/agents/echo \"hello\" --push {url}{token}",
        program()
    ));
    if address.ip().is_loopback() {
        output::note("  a hub posts to its own machine only if it was started with --allow-private-push");
    }
    output::note("Ctrl-C stops");
    Ok(())
}

/// A notification, and the channel for its answer.
struct Arrival {
    accepted: Accepted,
    answer: oneshot::Sender<Response>,
}

/// Prints notifications one after the other, up to the limit of the options.
async fn show_all(mut arrivals: mpsc::Receiver<Arrival>, listen: &Listen, format: Format) -> Result<()> {
    let mut left = if listen.once { Some(1) } else { listen.count };
    while left != Some(0) {
        let Some(Arrival { accepted, answer }) = arrivals.recv().await else { return Ok(()) };
        let status = listen.answer.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.unwrap_or(StatusCode::NO_CONTENT);
        show::notification(format, &accepted.notification, status)?;
        settle(accepted.receipt, status);
        let retry_after = listen.retry_after.map(|seconds| [(RETRY_AFTER, HeaderValue::from(seconds))]);
        // A sender that has hung up will retry.
        let _ =
            answer.send((status, retry_after.map(HeaderMap::from_iter).unwrap_or_default()).into_response());
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// Marks the notification as seen if the sender will not repeat it.
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
    // Both fail when the command is about to end: the sender retries, and may find the next listener.
    let _ = shared.inbox.send(Arrival { accepted, answer }).await;
    answered.await.unwrap_or_else(|_| StatusCode::SERVICE_UNAVAILABLE.into_response())
}
