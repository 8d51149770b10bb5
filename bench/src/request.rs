//! Requests as bytes, made once and patched per call, so that the generator costs little.

use clap::ValueEnum;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Kind {
    /// A blocking send.
    Send,
    /// A send that streams.
    Stream,
    /// A finished task.
    Get,
}

/// In which version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Wire {
    /// JSON-RPC 1.0.
    V1,
    /// JSON-RPC 0.3.
    V03,
}

impl Wire {
    /// What stands in every good answer to a request of the benchmark.
    pub(crate) fn completed(self) -> &'static [u8] {
        match self {
            Self::V1 => b"TASK_STATE_COMPLETED",
            Self::V03 => b"\"completed\"",
        }
    }

    fn version(self) -> &'static str {
        match self {
            Self::V1 => "1.0",
            Self::V03 => "0.3",
        }
    }
}

/// A place that is patched: as wide as an id.
const HOLE: &str = "00000000-0000-4000-8000-000000000000";

/// An HTTP request with holes.
pub(crate) struct Template {
    bytes: Vec<u8>,
    holes: Vec<usize>,
}

impl Template {
    pub(crate) fn send(path: &str, wire: Wire, text: &str, stream: bool) -> Self {
        let body = match (wire, stream) {
            (Wire::V1, _) => {
                let method = if stream { "SendStreamingMessage" } else { "SendMessage" };
                format!(
                    r#"{{"jsonrpc":"2.0","id":"{HOLE}","method":"{method}","params":{{"message":{{"messageId":"{HOLE}","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}}}}}"#
                )
            }
            (Wire::V03, _) => {
                let method = if stream { "message/stream" } else { "message/send" };
                format!(
                    r#"{{"jsonrpc":"2.0","id":"{HOLE}","method":"{method}","params":{{"message":{{"kind":"message","messageId":"{HOLE}","role":"user","parts":[{{"kind":"text","text":"{text}"}}]}}}}}}"#
                )
            }
        };
        Self::http(path, wire, &body)
    }

    pub(crate) fn on_task(path: &str, wire: Wire, method: (&str, &str), task: &str) -> Self {
        let method = match wire {
            Wire::V1 => method.0,
            Wire::V03 => method.1,
        };
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":"{HOLE}","method":"{method}","params":{{"id":"{task}"}}}}"#);
        Self::http(path, wire, &body)
    }

    fn http(path: &str, wire: Wire, body: &str) -> Self {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\naccept: application/json, text/event-stream\r\na2a-version: {}\r\n\r\n{body}",
            body.len(),
            wire.version()
        );
        let holes = request.match_indices(HOLE).map(|(at, _)| at).collect();
        Self { bytes: request.into_bytes(), holes }
    }

    /// The request with this number in its holes.
    pub(crate) fn fill(&mut self, number: u64) -> &[u8] {
        let digits = format!("{number:012x}");
        for &hole in &self.holes {
            self.bytes[hole + 24..hole + 36].copy_from_slice(digits.as_bytes());
        }
        &self.bytes
    }
}

/// A text of this many bytes.
pub(crate) fn text(prefix: &str, bytes: usize) -> String {
    let mut text = prefix.to_owned();
    while text.len() < bytes {
        text.push_str("the quick brown fox jumps over the lazy dog and runs away ");
    }
    text.truncate(bytes.max(prefix.len()));
    text
}
