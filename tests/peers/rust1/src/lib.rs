//! The runner of the checks, and the receiver of notifications.

use std::{env, panic, process, sync::Arc, time::Duration};

use a2a::A2AError;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use futures::{FutureExt as _, Stream, StreamExt as _, future::BoxFuture};
use tokio::{
    net::TcpListener,
    sync::{Mutex, mpsc, oneshot},
    time::timeout,
};

/// Bounds one check: an agent that never answers is a failure, not a hang.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// The time after which a stream without events counts as open. It is no multiple of half a second, when the
/// Python 0.3 server looks up from its queue and may lose an event.
const SUBSCRIBED_AFTER: Duration = Duration::from_millis(2750);

/// The token that the webhooks of the checks are given. Some SDKs send this, some the credentials, some both.
pub const TOKEN: &str = "t0ken";

/// The credentials that the webhooks of the checks are given.
pub const CREDENTIALS: &str = "s3cret";

/// The result of a check: how it failed, or why it does not apply.
pub type Outcome = Result<(), Failure>;

/// The reason why a check did not pass.
#[derive(Debug)]
pub struct Failure(pub String);

impl From<A2AError> for Failure {
    fn from(error: A2AError) -> Self {
        Self(format!("error {}: {}", error.code, error.message))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self(format!("the SDK cannot read it: {error}"))
    }
}

/// Fails the check with what was found, unless the condition holds.
#[macro_export]
macro_rules! expect {
    ($condition:expr, $($found:tt)+) => {
        if !$condition {
            return Err($crate::Failure(format!($($found)+)));
        }
    };
}

/// Expects an error with this code, by which the SDK tells errors apart.
pub fn expect_code<T>(result: Result<T, A2AError>, code: i32) -> Outcome {
    match result {
        Ok(_) => Err(Failure(format!("no error; expected {code}"))),
        Err(error) if error.code == code => Ok(()),
        Err(error) => Err(Failure(format!("expected {code}, got {}: {}", error.code, error.message))),
    }
}

/// All events of a stream, up to its end or its first error.
pub async fn collect<T>(stream: impl Stream<Item = Result<T, A2AError>> + Unpin) -> Result<Vec<T>, A2AError> {
    stream.collect::<Vec<_>>().await.into_iter().collect()
}

/// All events of a stream; once it is open, the action runs.
pub async fn collect_while<T, A>(
    mut stream: impl Stream<Item = Result<T, A2AError>> + Unpin,
    action: impl Future<Output = Result<A, A2AError>>,
) -> Result<(Vec<T>, A), A2AError> {
    let first = timeout(SUBSCRIBED_AFTER, stream.next()).await.ok().flatten().transpose()?;
    let (rest, acted) = futures::try_join!(collect(stream), action)?;
    Ok((first.into_iter().chain(rest).collect(), acted))
}

/// The arguments of the client.
#[derive(Debug, Clone)]
pub struct Options {
    /// The base URL of the agent.
    pub url: String,
    /// The name that cards have for the binding.
    pub binding: &'static str,
    talk: bool,
    push: bool,
    skip: Vec<String>,
}

impl Options {
    /// Reads the command line, or ends with a message.
    pub fn read() -> Self {
        let mut args = env::args().skip(1);
        let mut options =
            Self { url: String::new(), binding: "JSONRPC", talk: false, push: false, skip: Vec::new() };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--talk" => options.talk = true,
                "--push" => options.push = true,
                "--skip" => {
                    options.skip = args.next().unwrap_or_default().split(',').map(str::to_owned).collect();
                }
                "--binding" => {
                    options.binding = match args.next().as_deref() {
                        Some("jsonrpc") => "JSONRPC",
                        Some("rest") => "HTTP+JSON",
                        Some("grpc") => "GRPC",
                        other => usage(&format!("unknown binding {other:?}: use jsonrpc, rest or grpc")),
                    }
                }
                url if options.url.is_empty() && !url.starts_with('-') => {
                    options.url = url.trim_end_matches('/').to_owned();
                }
                other => usage(&format!("unknown argument {other}")),
            }
        }
        if options.url.is_empty() {
            usage("missing argument: the base URL of the agent");
        }
        options
    }
}

fn usage(message: &str) -> ! {
    eprintln!("{message}");
    process::exit(2);
}

/// One check of an agent, by its name.
pub type Check<A> = (&'static str, fn(Arc<A>) -> BoxFuture<'static, Outcome>);

/// The checks of the client: those for every agent; those with `--talk`, for agents that ask back; those with
/// `--push`, for agents with webhooks.
#[derive(Debug)]
pub struct Suite<'a, A> {
    /// Run always.
    pub checks: &'a [Check<A>],
    /// Run with `--talk`.
    pub talk: &'a [Check<A>],
    /// Run with `--push`.
    pub push: &'a [Check<A>],
}

/// Runs the checks, prints a line for each and exits with 1 if one failed.
pub async fn run<A>(options: &Options, agent: Result<A, Failure>, suite: Suite<'_, A>) {
    panic::set_hook(Box::new(|_| {}));
    let agent = match agent {
        Ok(agent) => Arc::new(agent),
        Err(why) => {
            println!("FAIL card: {}", one_line(&why.0));
            process::exit(1);
        }
    };
    println!("ok card");
    let talk = suite.talk.iter().filter(|_| options.talk);
    let push = suite.push.iter().filter(|_| options.push);
    let mut failed = false;
    for (name, check) in suite.checks.iter().chain(talk).chain(push) {
        if options.skip.iter().any(|skipped| skipped == name) {
            println!("skip {name}: as asked");
            continue;
        }
        let run = panic::AssertUnwindSafe(check(Arc::clone(&agent))).catch_unwind();
        let why = match timeout(CHECK_TIMEOUT, run).await {
            Ok(Ok(Ok(()))) => {
                println!("ok {name}");
                continue;
            }
            Ok(Ok(Err(why))) => one_line(&why.0),
            Ok(Err(_)) => "it panicked".to_owned(),
            Err(_) => format!("no result after {CHECK_TIMEOUT:?}"),
        };
        println!("FAIL {name}: {why}");
        failed = true;
    }
    process::exit(i32::from(failed));
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A receiver of notifications. Ends when it is dropped.
#[derive(Debug)]
pub struct Webhook {
    /// Its address.
    pub url: String,
    posts: Mutex<mpsc::UnboundedReceiver<Bytes>>,
    _stop: oneshot::Sender<()>,
}

impl Webhook {
    /// Opens a receiver. It takes posts that show the token or the credentials.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let (sender, posts) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let router = Router::new().route("/hook", post(receive)).with_state(sender);
        tokio::spawn(async move {
            let serve = axum::serve(listener, router);
            drop(serve.with_graceful_shutdown(stopped.map(drop)).await);
        });
        Self { url: format!("http://{address}/hook"), posts: Mutex::new(posts), _stop: stop }
    }

    /// The body of the next notification.
    ///
    /// # Panics
    /// When the receiver has ended.
    pub async fn next(&self) -> Bytes {
        self.posts.lock().await.recv().await.expect("the receiver runs")
    }
}

async fn receive(
    State(posts): State<mpsc::UnboundedSender<Bytes>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let bearer = format!("Bearer {CREDENTIALS}");
    let shown = [
        ("a2a-notification-token", TOKEN),
        ("x-a2a-notification-token", TOKEN),
        ("authorization", bearer.as_str()),
    ]
    .map(|(name, expected)| headers.get(name).map(|found| found == expected));
    if shown.contains(&Some(false)) || !shown.contains(&Some(true)) || posts.send(body).is_err() {
        return StatusCode::UNAUTHORIZED;
    }
    StatusCode::NO_CONTENT
}
