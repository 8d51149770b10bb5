//! A stream that is handed on, piece by piece as it comes. Nothing is held back, but for the first event where the
//! caller's ownership of its task has to be recorded before it is shown.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use nuncio_client::ForwardBody;
use nuncio_protocol::{Caller, Error, ErrorKind, Result, wire::sse::Decoder};
use nuncio_server::{
    CallerPermit,
    bind::{AnswerForm, Subject},
};

use super::{super::link::refusal, late, owners::Owners, progress::Progress};

/// The largest first event that is looked at, and the most that is held back for it.
const LARGEST: usize = 16 << 20;

/// What stands around each event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Framing {
    Sse,
    Grpc,
}

/// For whom the task of an answer is to be recorded.
pub(super) struct Learning {
    pub(super) owners: Arc<Owners>,
    pub(super) caller: Caller,
}

/// A stream on its way back.
pub(super) struct Passing {
    /// Whose answer it is, for the log.
    agent: Arc<str>,
    body: ForwardBody,
    form: AnswerForm,
    framing: Framing,
    state: State,
    progress: Progress,
    /// The last bytes that were handed on: an error can be told only between two events.
    tail: [u8; 2],
    /// It has said how it ended, or has no way to say it.
    is_whole: bool,
    /// What is said by a stream is under way until that ends.
    _place: Option<CallerPermit>,
}

enum State {
    /// Until the first event is whole.
    Learning {
        learning: Learning,
        first: Box<First>,
        held: VecDeque<Frame<Bytes>>,
        /// How many bytes that is.
        size: usize,
    },
    /// Until its task is recorded.
    Recording {
        recording: Recording,
        held: VecDeque<Frame<Bytes>>,
    },
    /// What was held goes out first.
    Passing {
        held: VecDeque<Frame<Bytes>>,
    },
    Over,
}

type Recording = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

impl Passing {
    pub(super) fn new(
        agent: &Arc<str>,
        body: ForwardBody,
        (form, framing): (AnswerForm, Framing),
        learning: Option<Learning>,
        progress: Progress,
        place: Option<CallerPermit>,
    ) -> Self {
        let state = match learning {
            Some(learning) => State::Learning {
                learning,
                first: Box::new(First::new(framing)),
                held: VecDeque::new(),
                size: 0,
            },
            None => State::Passing { held: VecDeque::new() },
        };
        let agent = Arc::clone(agent);
        let is_whole = framing == Framing::Sse;
        Self { agent, body, form, framing, state, progress, tail: *b"\n\n", is_whole, _place: place }
    }

    /// The same for an answer whose head has said how it ended.
    pub(super) fn whole(self) -> Self {
        Self { is_whole: true, ..self }
    }

    /// What the caller is told of an answer that has no end.
    fn broken(&self, error: &Error) -> Error {
        tracing::warn!(agent = &*self.agent, %error, "the agent broke off its answer");
        refusal::shown(error, false)
    }

    /// The next piece as it goes out; with `None` it is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        loop {
            match &mut self.state {
                State::Over => return Poll::Ready(None),
                State::Passing { held } => {
                    if let Some(frame) = held.pop_front() {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    return poll_body(&mut self.body, &mut self.progress, cx);
                }
                State::Recording { recording, held } => {
                    let recorded = ready!(recording.as_mut().poll(cx));
                    let held = std::mem::take(held);
                    self.state = State::Passing { held };
                    if let Err(error) = recorded {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                State::Learning { first, held, size, .. } => {
                    let frame = match ready!(poll_body(&mut self.body, &mut self.progress, cx)) {
                        Some(Ok(frame)) => frame,
                        Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                        None => {
                            self.state = State::Passing { held: std::mem::take(held) };
                            continue;
                        }
                    };
                    let whole = frame.data_ref().and_then(|data| first.push(data));
                    // What is no event, such as a comment that keeps a connection open, comes without an end.
                    *size += frame.data_ref().map_or(0, |data| data.len() + size_of::<Frame<Bytes>>());
                    let is_over = frame.is_trailers() || first.is_hopeless() || *size > LARGEST;
                    held.push_back(frame);
                    if whole.is_some() || is_over {
                        self.learn(whole.as_ref());
                    }
                }
            }
        }
    }

    /// Goes on from the first event, whoever it is about.
    fn learn(&mut self, event: Option<&Bytes>) {
        let State::Learning { learning, held, .. } = std::mem::replace(&mut self.state, State::Over) else {
            return;
        };
        self.state = match event.and_then(|event| self.form.subject(event)) {
            Some(subject) => State::Recording { recording: record(learning, subject), held },
            None => State::Passing { held },
        };
    }

    fn is_between_events(&self) -> bool {
        match self.framing {
            Framing::Sse => matches!(&self.tail, b"\n\n" | b"\r\r" | b"\r\n"),
            // What is wrong stands in the trailers, wherever the messages end.
            Framing::Grpc => true,
        }
    }

    fn note(&mut self, data: &[u8]) {
        match data {
            [] => {}
            [last] => self.tail = [self.tail[1], *last],
            [.., before, last] => self.tail = [*before, *last],
        }
    }
}

/// The next piece of the answer, or an error if it does not come in time.
fn poll_body(
    body: &mut ForwardBody,
    progress: &mut Progress,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>>>> {
    match Pin::new(body).poll_frame(cx) {
        Poll::Ready(frame) => {
            if let Some(Ok(frame)) = &frame
                && let Some(data) = frame.data_ref()
            {
                progress.push(data);
            }
            Poll::Ready(frame)
        }
        Poll::Pending => progress.poll_late(cx).map(|()| Some(Err(late()))),
    }
}

fn record(learning: Learning, subject: Subject) -> Recording {
    Box::pin(async move { learning.owners.record(&learning.caller, &subject).await })
}

impl Body for Passing {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let frame = match ready!(this.poll(cx)) {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.note(data);
                }
                this.is_whole |= frame.is_trailers();
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                this.state = State::Over;
                let told = this.broken(&error);
                // In the middle of an event there is nothing to be said; that the connection ends says it.
                Some(if this.is_between_events() { Ok(this.form.last_words(told)) } else { Err(told) })
            }
            // Without trailers nobody knows how it ended.
            None if !this.is_whole => {
                this.is_whole = true;
                let why = "the agent ended its answer without a status";
                let told = this.broken(&Error::new(ErrorKind::Unavailable, why));
                Some(Ok(this.form.last_words(told)))
            }
            None => None,
        };
        Poll::Ready(frame)
    }

    /// True as soon as the last frame was handed on. HTTP/2 then ends the stream with that frame: a gRPC answer
    /// without a message is one HEADERS frame (`Trailers-Only`), and no empty DATA frame follows it.
    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Over => true,
            State::Recording { .. } => false,
            State::Learning { held, .. } | State::Passing { held } => {
                self.is_whole && held.is_empty() && self.body.is_end_stream()
            }
        }
    }
}

/// The first event of a stream, while it arrives.
enum First {
    Sse { decoder: Decoder, failed: bool },
    Grpc(BytesMut),
}

impl First {
    fn new(framing: Framing) -> Self {
        match framing {
            Framing::Sse => Self::Sse { decoder: Decoder::new(LARGEST), failed: false },
            Framing::Grpc => Self::Grpc(BytesMut::new()),
        }
    }

    /// Takes what has come; the event, once it is whole.
    fn push(&mut self, data: &Bytes) -> Option<Bytes> {
        match self {
            Self::Sse { decoder, failed } => {
                decoder.push(data.clone());
                match decoder.next_frame() {
                    Ok(frame) => frame.map(|frame| Bytes::copy_from_slice(frame.data.as_bytes())),
                    Err(_) => {
                        *failed = true;
                        None
                    }
                }
            }
            Self::Grpc(buffer) => {
                buffer.extend_from_slice(data);
                let ([_, length @ ..], message) = buffer.split_first_chunk::<5>()?;
                let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
                message.get(..length).map(Bytes::copy_from_slice)
            }
        }
    }

    /// True if no event will come of it.
    fn is_hopeless(&self) -> bool {
        match self {
            Self::Sse { failed, .. } => *failed,
            Self::Grpc(buffer) => buffer.len() > LARGEST,
        }
    }
}
