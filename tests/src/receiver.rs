//! A receiver of notifications that keeps what it gets, and reacts as it is told, path by path: well, badly,
//! not at all, or in what is no HTTP.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{
        TcpListener,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use crate::eventually;

/// The answer to a notification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum React {
    /// An answer of this status.
    Status(u16),
    /// The same, to be tried again after so many seconds.
    RetryAfter(u16, u64),
    /// 200, after a while.
    Slow(Duration),
    /// Nothing, until it is told otherwise: then that.
    Hang,
    /// The connection ends in the middle of the headers.
    Break,
    /// An answer that is no HTTP.
    Garbage,
    /// Headers without end.
    EndlessHeaders,
    /// 200, and a body without end.
    EndlessBody,
    /// Sends the caller elsewhere.
    Redirect(String),
}

/// A notification as it came.
#[derive(Clone, Debug)]
pub struct Post {
    /// The path and query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
}

impl Post {
    /// A header; empty if there is none.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The id of the delivery.
    #[must_use]
    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }

    /// The webhook that it is of.
    #[must_use]
    pub fn webhook(&self) -> &str {
        self.id().rsplit_once('-').map_or("", |(webhook, _)| webhook)
    }

    /// The entry that it is about.
    ///
    /// # Panics
    /// When it does not say.
    #[must_use]
    pub fn seq(&self) -> u64 {
        let seq = self.id().rsplit_once('-').and_then(|(_, seq)| seq.parse().ok());
        seq.unwrap_or_else(|| panic!("no delivery id: {self:?}"))
    }

    /// The number of the attempt.
    ///
    /// # Panics
    /// When it does not say.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.header("webhook-attempt").parse().unwrap_or_else(|_| panic!("no attempt: {self:?}"))
    }
}

/// A server that notes every POST.
#[derive(Debug)]
pub struct Receiver {
    /// Its address.
    pub address: SocketAddr,
    kept: Arc<Kept>,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct Kept {
    posts: Mutex<Vec<Arc<Post>>>,
    reactions: watch::Sender<Reactions>,
    /// Notifications without an answer, by webhook; and webhooks that had two at a time.
    waiting: Mutex<HashMap<String, usize>>,
    crowded: Mutex<Vec<String>>,
    connections: AtomicUsize,
    peak_connections: AtomicUsize,
    peak_waiting: AtomicUsize,
}

#[derive(Debug)]
struct Reactions {
    by_path: HashMap<String, React>,
    others: React,
}

impl Receiver {
    /// At a port of its own; takes everything.
    pub async fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// The same at this address.
    ///
    /// # Panics
    /// When it cannot listen there.
    pub async fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.expect("the receiver can listen");
        let address = listener.local_addr().expect("a listener has an address");
        let reactions = Reactions { by_path: HashMap::new(), others: React::Status(200) };
        let kept = Arc::new(Kept {
            posts: Mutex::default(),
            reactions: watch::Sender::new(reactions),
            waiting: Mutex::default(),
            crowded: Mutex::default(),
            connections: AtomicUsize::new(0),
            peak_connections: AtomicUsize::new(0),
            peak_waiting: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&kept);
        let serving = tokio::spawn(async move {
            // Connections go with the receiver.
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("the receiver accepts");
                let kept = Arc::clone(&shared);
                let open = kept.connections.fetch_add(1, Ordering::SeqCst) + 1;
                kept.peak_connections.fetch_max(open, Ordering::SeqCst);
                connections.spawn(async move {
                    let (from, to) = stream.into_split();
                    let mut connection = Connection { kept: &kept, from: BufReader::new(from), to };
                    while connection.serve().await.is_some() {}
                    kept.connections.fetch_sub(1, Ordering::SeqCst);
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, kept, serving }
    }

    /// The URL of this path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// From now on a path reacts so, to what waits there, too.
    pub fn set(&self, path: &str, react: React) {
        self.kept.reactions.send_modify(|reactions| drop(reactions.by_path.insert(path.to_owned(), react)));
    }

    /// From now on all paths react so that nothing else was said of.
    pub fn set_others(&self, react: React) {
        self.kept.reactions.send_modify(|reactions| reactions.others = react);
    }

    /// From now on all paths react so.
    pub fn set_all(&self, react: React) {
        self.kept.reactions.send_modify(|reactions| {
            reactions.by_path.clear();
            reactions.others = react;
        });
    }

    /// All that came, in order.
    #[must_use]
    pub fn posts(&self) -> Vec<Arc<Post>> {
        lock(&self.kept.posts).clone()
    }

    /// The requests to this path.
    #[must_use]
    pub fn posts_to(&self, path: &str) -> Vec<Arc<Post>> {
        let mut posts = self.posts();
        posts.retain(|post| post.path == path);
        posts
    }

    /// The number of requests.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.kept.posts).len()
    }

    /// Waits until so many have come to this path.
    ///
    /// # Panics
    /// When they do not come.
    pub async fn expect(&self, path: &str, count: usize) -> Vec<Arc<Post>> {
        eventually("notifications", async || Some(self.posts_to(path)).filter(|posts| posts.len() >= count))
            .await
    }

    /// The number of requests without an answer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        lock(&self.kept.waiting).values().sum()
    }

    /// The webhooks that had more than one notification on the way at a time.
    #[must_use]
    pub fn crowded(&self) -> Vec<String> {
        lock(&self.kept.crowded).clone()
    }

    /// The maximum number of unanswered requests at one time.
    #[must_use]
    pub fn peak_waiting(&self) -> usize {
        self.kept.peak_waiting.load(Ordering::SeqCst)
    }

    /// The maximum number of open connections at one time.
    #[must_use]
    pub fn peak_connections(&self) -> usize {
        self.kept.peak_connections.load(Ordering::SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    fn reaction(&self, path: &str) -> React {
        let reactions = self.reactions.borrow();
        reactions.by_path.get(path).unwrap_or(&reactions.others).clone()
    }

    /// Notes what came; it waits for its answer until what is given back is dropped.
    fn note(&self, post: Post) -> Waiting<'_> {
        let webhook = post.webhook().to_owned();
        let mut waiting = lock(&self.waiting);
        let count = waiting.entry(webhook.clone()).or_default();
        *count += 1;
        if *count > 1 {
            lock(&self.crowded).push(webhook.clone());
        }
        let all = waiting.values().sum();
        drop(waiting);
        self.peak_waiting.fetch_max(all, Ordering::SeqCst);
        lock(&self.posts).push(Arc::new(post));
        Waiting { kept: self, webhook }
    }
}

struct Waiting<'a> {
    kept: &'a Kept,
    webhook: String,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.kept.waiting);
        if let Some(count) = waiting.get_mut(&self.webhook) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.webhook);
            }
        }
    }
}

struct Connection<'a> {
    kept: &'a Kept,
    from: BufReader<OwnedReadHalf>,
    to: OwnedWriteHalf,
}

impl Connection<'_> {
    /// Serves one request; `None` when the connection is over.
    async fn serve(&mut self) -> Option<()> {
        let post = self.read().await?;
        let path = post.path.clone();
        let kept = self.kept;
        let waiting = kept.note(post);
        let mut changes = kept.reactions.subscribe();
        let react = loop {
            match kept.reaction(&path) {
                React::Hang => {}
                react => break react,
            }
            tokio::select! {
                changed = changes.changed() => changed.ok()?,
                // Whoever waits says nothing more: it has hung up.
                _ = self.from.fill_buf() => return None,
            }
        };
        let plain = |status: u16, more: &str| {
            format!("HTTP/1.1 {status} Whatever\r\ncontent-length: 2\r\n{more}\r\nok")
        };
        let answer = match react {
            React::Status(status) => plain(status, ""),
            React::RetryAfter(status, seconds) => plain(status, &format!("retry-after: {seconds}\r\n")),
            React::Slow(pause) => {
                tokio::select! {
                    () = tokio::time::sleep(pause) => plain(200, ""),
                    _ = self.from.fill_buf() => return None,
                }
            }
            React::Redirect(to) => plain(307, &format!("location: {to}\r\n")),
            React::Break => {
                self.to.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").await.ok()?;
                return None;
            }
            React::Garbage => {
                self.to.write_all(b"220 mail.example ESMTP\r\n500 what?\r\n\r\n").await.ok()?;
                return None;
            }
            React::EndlessHeaders => {
                return self.endless("HTTP/1.1 200 OK\r\n", "x-more: and more\r\n").await;
            }
            React::EndlessBody => {
                // Its status is the answer.
                drop(waiting);
                return self.endless("HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n", "more").await;
            }
            React::Hang => return None,
        };
        // Before the answer: whoever has it may send the next at once, by another connection.
        drop(waiting);
        self.to.write_all(answer.as_bytes()).await.ok()
    }

    /// Until the other end has had enough.
    async fn endless(&mut self, first: &str, more: &str) -> Option<()> {
        self.to.write_all(first.as_bytes()).await.ok()?;
        let more = more.repeat(1_000);
        while self.to.write_all(more.as_bytes()).await.is_ok() {}
        None
    }

    async fn read(&mut self) -> Option<Post> {
        let mut line = String::new();
        self.from.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        let mut words = line.split_whitespace();
        let (method, path) = (words.next()?, words.next()?.to_owned());
        assert_eq!(method, "POST", "{line}");
        let mut headers = HeaderMap::new();
        loop {
            let mut line = String::new();
            self.from.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            headers.append(name, HeaderValue::from_str(value.trim()).ok()?);
        }
        let length = headers.get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        self.from.read_exact(&mut body).await.ok()?;
        Some(Post { path, headers, body })
    }
}
