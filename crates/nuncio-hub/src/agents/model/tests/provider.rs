//! A provider that answers by a script, and remembers what it was asked.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

/// The reaction to one request.
pub(super) enum Reply {
    /// A status with headers and a body.
    Status(u16, &'static [(&'static str, &'static str)], String),
    /// Events, then the end of the stream.
    Events(Vec<Vec<u8>>),
    /// Events, then nothing until the other side closes the connection.
    Hang(Vec<Vec<u8>>),
    /// A connection that is closed without an answer.
    Close,
}

/// A request to the provider.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) head: String,
    pub(super) body: Value,
}

/// A provider on a port of its own.
#[derive(Clone)]
pub(super) struct ScriptedProvider(Arc<Inner>);

struct Inner {
    port: u16,
    script: Mutex<VecDeque<Reply>>,
    asked: Mutex<Vec<Asked>>,
    /// The number of hanging answers whose connection the other side has closed.
    closed: Mutex<usize>,
    changed: Notify,
}

impl ScriptedProvider {
    pub(super) async fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let inner = Arc::new(Inner {
            port: listener.local_addr().unwrap().port(),
            script: Mutex::new(script.into_iter().collect()),
            asked: Mutex::default(),
            closed: Mutex::default(),
            changed: Notify::new(),
        });
        let own = Self(inner);
        let provider = own.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let provider = provider.clone();
                tokio::spawn(async move { provider.serve(stream).await });
            }
        });
        own
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.0.port)
    }

    /// The requests for answers so far.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.0.asked.lock().clone()
    }

    /// Waits until so many hanging answers were closed by the other side.
    pub(super) async fn until_closed(&self, number: usize) {
        loop {
            let changed = self.0.changed.notified();
            if *self.0.closed.lock() >= number {
                return;
            }
            changed.await;
        }
    }

    async fn serve(self, mut stream: TcpStream) {
        let Some(asked) = read(&mut stream).await else { return };
        if asked.path.ends_with("/models") {
            let list = json!({ "object": "list", "data": [{ "id": "tiny" }, { "id": "other" }] }).to_string();
            return write(&mut stream, 200, &[("content-type", "application/json")], &list).await;
        }
        self.0.asked.lock().push(asked);
        let reply = self.0.script.lock().pop_front();
        match reply.unwrap_or_else(|| Reply::Status(418, &[], "the script is over".to_owned())) {
            Reply::Status(status, headers, body) => write(&mut stream, status, headers, &body).await,
            Reply::Events(events) => self::events(&mut stream, &events).await,
            Reply::Close => {}
            Reply::Hang(events) => {
                self::events(&mut stream, &events).await;
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
                *self.0.closed.lock() += 1;
                self.0.changed.notify_waiters();
            }
        }
    }
}

/// Each as a write of its own.
async fn events(stream: &mut TcpStream, events: &[Vec<u8>]) {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nconnection: close\r\n\r\n";
    let _ = stream.write_all(head.as_bytes()).await;
    for event in events {
        let _ = stream.write_all(event).await;
        let _ = stream.flush().await;
    }
}

async fn write(stream: &mut TcpStream, status: u16, headers: &[(&str, &str)], body: &str) {
    let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes()).await;
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let length: usize = length.unwrap_or(0);
    while bytes.len() < head_end + length {
        stream.read_buf(&mut bytes).await.ok()?;
    }
    let path = head.split(' ').nth(1)?.to_owned();
    let body = serde_json::from_slice(&bytes[head_end..]).unwrap_or(Value::Null);
    Some(Asked { path, head, body })
}
