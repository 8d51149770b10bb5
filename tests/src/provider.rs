//! A provider of models that answers by a script, and remembers its prompts.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// The pause between two pieces of an answer that comes in pieces.
const PIECE_PAUSE: Duration = Duration::from_millis(30);

/// An answer of the provider.
#[derive(Debug)]
pub enum Answer {
    /// Words, and whether the answer comes to its end.
    Words(&'static str, bool),
    /// Texts with a pause after each.
    Pieces(Vec<String>),
    /// A call of a tool with these arguments.
    Call(&'static str, Value),
    /// Several calls at once.
    Calls(Vec<(&'static str, Value)>),
}

/// A provider that answers by a script.
#[derive(Clone, Debug)]
pub struct Provider(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    address: SocketAddr,
    url: String,
    script: Mutex<VecDeque<Answer>>,
    prompts: Mutex<Vec<Value>>,
    /// The heads of these requests.
    heads: Mutex<Vec<String>>,
    models: Mutex<Vec<&'static str>>,
    /// Answers that the other side has broken off.
    closed: Mutex<usize>,
}

impl Provider {
    /// Answers in words; each has an end, or none.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn start(script: &[(&'static str, bool)]) -> Self {
        Self::scripted(script.iter().map(|(words, ends)| Answer::Words(words, *ends))).await
    }

    /// Answers by this script.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn scripted(script: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            address,
            url: format!("http://{address}/v1"),
            script: Mutex::new(script.into_iter().collect()),
            prompts: Mutex::default(),
            heads: Mutex::default(),
            models: Mutex::new(vec!["tiny", "llama3"]),
            closed: Mutex::default(),
        });
        let provider = Self(inner);
        let own = provider.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let own = own.clone();
                tokio::spawn(async move { own.serve(stream).await });
            }
        });
        provider
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The address of its API.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// The model, as the configuration names it.
    #[must_use]
    pub fn model(&self) -> String {
        format!("openai:{}#tiny", self.0.url)
    }

    /// The messages of each prompt.
    ///
    /// # Panics
    /// When a test has panicked meanwhile.
    #[must_use]
    pub fn prompts(&self) -> Vec<Value> {
        self.0.prompts.lock().unwrap().clone()
    }

    /// The heads of the requests with these prompts.
    ///
    /// # Panics
    /// When a test has panicked meanwhile.
    #[must_use]
    pub fn heads(&self) -> Vec<String> {
        self.0.heads.lock().unwrap().clone()
    }

    /// Lists these models from now on.
    ///
    /// # Panics
    /// When a test has panicked meanwhile.
    pub fn set_models(&self, models: &[&'static str]) {
        *self.0.models.lock().unwrap() = models.to_vec();
    }

    /// The number of answers that the other side has broken off.
    ///
    /// # Panics
    /// When a test has panicked meanwhile.
    #[must_use]
    pub fn closed(&self) -> usize {
        *self.0.closed.lock().unwrap()
    }

    async fn serve(self, mut stream: TcpStream) {
        let Some((head, body)) = read(&mut stream).await else { return };
        if head.starts_with("GET ") {
            let models: Vec<_> = self.0.models.lock().unwrap().iter().map(|id| json!({ "id": id })).collect();
            let list = json!({ "data": models }).to_string();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", list.len());
            let _ = stream.write_all(format!("{head}{list}").as_bytes()).await;
            return;
        }
        self.0.prompts.lock().unwrap().push(body["messages"].clone());
        self.0.heads.lock().unwrap().push(head);
        let Some(next) = self.0.script.lock().unwrap().pop_front() else { return };
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let mut answer = head.to_owned();
        let ends = match next {
            Answer::Words(words, ends) => {
                for word in words.split_inclusive(' ') {
                    answer.push_str(&event(&json!({ "delta": { "content": word } })));
                }
                if ends {
                    answer.push_str(&event(&json!({ "delta": {}, "finish_reason": "stop" })));
                }
                ends
            }
            Answer::Pieces(pieces) => {
                let _ = stream.write_all(head.as_bytes()).await;
                for piece in pieces {
                    let _ =
                        stream.write_all(event(&json!({ "delta": { "content": piece } })).as_bytes()).await;
                    tokio::time::sleep(PIECE_PAUSE).await;
                }
                answer = event(&json!({ "delta": {}, "finish_reason": "stop" }));
                true
            }
            Answer::Call(name, arguments) => {
                answer.push_str(&calls(&[(name, arguments)]));
                true
            }
            Answer::Calls(made) => {
                answer.push_str(&calls(&made));
                true
            }
        };
        if ends {
            answer.push_str("data: [DONE]\n\n");
        }
        let _ = stream.write_all(answer.as_bytes()).await;
        if !ends {
            let mut rest = [0; 64];
            while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
            *self.0.closed.lock().unwrap() += 1;
        }
    }
}

/// A chunk of an answer.
fn event(choice: &Value) -> String {
    format!("data: {}\n\n", json!({ "choices": [choice] }))
}

/// The chunk with these calls.
fn calls(calls: &[(&'static str, Value)]) -> String {
    let calls = (1..).zip(calls).map(|(number, (name, arguments))| {
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        json!({ "index": number - 1, "id": format!("call-{number}"), "function": function })
    });
    let calls: Vec<Value> = calls.collect();
    event(&json!({ "delta": { "tool_calls": calls }, "finish_reason": "tool_calls" }))
}

/// The head and the body of a request.
async fn read(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    while bytes.len() < end + length.unwrap_or(0) {
        stream.read_buf(&mut bytes).await.ok()?;
    }
    let body = serde_json::from_slice(&bytes[end..]).unwrap_or(Value::Null);
    Some((String::from_utf8_lossy(&bytes[..end]).into_owned(), body))
}
