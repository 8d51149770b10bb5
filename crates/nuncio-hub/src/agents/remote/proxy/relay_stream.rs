//! Relays a stream frame by frame. Nothing is held back, except the first event while the owner of its task
//! has to be recorded.

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
    CallerPermit, GrowingReservation,
    bind::{AnswerForm, Subject},
};

use super::{super::link::refusal, late, owners::Owners, progress::Progress};

/// Maximum size in bytes of the first event, and of the data held back for it.
const MAX_FIRST_EVENT_BYTES: usize = 16 << 20;

/// The framing of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Framing {
    Sse,
    Grpc,
}

/// The caller to record as the owner of the task of an answer.
pub(super) struct Learning {
    pub(super) owners: Arc<Owners>,
    pub(super) caller: Caller,
    /// The memory of data that is held back.
    pub(super) reservation: GrowingReservation,
}

/// A response body that is relayed.
pub(super) struct RelayStream {
    /// The name of the agent, for the log.
    agent: Arc<str>,
    body: ForwardBody,
    form: AnswerForm,
    framing: Framing,
    state: RelayState,
    progress: Progress,
    /// The last two bytes relayed: an error can be sent only between two events.
    tail: [u8; 2],
    /// The end of the answer is known, or its framing has no end marker.
    is_whole: bool,
    /// Held until the stream ends.
    _place: Option<CallerPermit>,
}

enum RelayState {
    /// Until the first event is complete.
    Learning {
        learning: Learning,
        first: Box<First>,
        held: VecDeque<Frame<Bytes>>,
        /// The size of the held data in bytes.
        size: usize,
    },
    /// Until the owner of its task is recorded.
    Recording {
        recording: Recording,
        held: VecDeque<Frame<Bytes>>,
    },
    /// Relaying; held data goes out first.
    RelayStream {
        held: VecDeque<Frame<Bytes>>,
    },
    Over,
}

type Recording = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

impl RelayStream {
    pub(super) fn new(
        agent: &Arc<str>,
        body: ForwardBody,
        (form, framing): (AnswerForm, Framing),
        learning: Option<Learning>,
        progress: Progress,
        place: Option<CallerPermit>,
    ) -> Self {
        let state = match learning {
            Some(learning) => RelayState::Learning {
                learning,
                first: Box::new(First::new(framing)),
                held: VecDeque::new(),
                size: 0,
            },
            None => RelayState::RelayStream { held: VecDeque::new() },
        };
        let agent = Arc::clone(agent);
        let is_whole = framing == Framing::Sse;
        Self { agent, body, form, framing, state, progress, tail: *b"\n\n", is_whole, _place: place }
    }

    /// The same, for an answer with its final status in the headers.
    pub(super) fn whole(self) -> Self {
        Self { is_whole: true, ..self }
    }

    /// Logs an incomplete answer, and returns the error for the caller.
    fn broken(&self, error: &Error) -> Error {
        tracing::warn!(agent = &*self.agent, %error, "the answer of the agent is incomplete");
        refusal::shown(error, false)
    }

    /// The next frame to send; `None` at the end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        loop {
            match &mut self.state {
                RelayState::Over => return Poll::Ready(None),
                RelayState::RelayStream { held } => {
                    if let Some(frame) = held.pop_front() {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    return poll_body(&mut self.body, &mut self.progress, cx);
                }
                RelayState::Recording { recording, held } => {
                    let recorded = ready!(recording.as_mut().poll(cx));
                    let held = std::mem::take(held);
                    self.state = RelayState::RelayStream { held };
                    if let Err(error) = recorded {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                RelayState::Learning { learning, first, held, size } => {
                    let frame = match ready!(poll_body(&mut self.body, &mut self.progress, cx)) {
                        Some(Ok(frame)) => frame,
                        Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                        None => {
                            self.state = RelayState::RelayStream { held: std::mem::take(held) };
                            continue;
                        }
                    };
                    let whole = frame.data_ref().and_then(|data| first.push(data));
                    // Data that is no event, such as keep-alive comments, may go on without end.
                    *size += frame.data_ref().map_or(0, |data| data.len() + size_of::<Frame<Bytes>>());
                    if let Err(short) = learning.reservation.grow_to(*size) {
                        return Poll::Ready(Some(Err(short)));
                    }
                    let is_over = frame.is_trailers() || first.is_hopeless() || *size > MAX_FIRST_EVENT_BYTES;
                    held.push_back(frame);
                    if whole.is_some() || is_over {
                        self.learn(whole.as_ref());
                    }
                }
            }
        }
    }

    /// Continues after the first event: records the owner of its task, if it has one.
    fn learn(&mut self, event: Option<&Bytes>) {
        let RelayState::Learning { learning, held, .. } =
            std::mem::replace(&mut self.state, RelayState::Over)
        else {
            return;
        };
        self.state = match event.and_then(|event| self.form.subject(event)) {
            Some(subject) => RelayState::Recording { recording: record(learning, subject), held },
            None => RelayState::RelayStream { held },
        };
    }

    fn is_between_events(&self) -> bool {
        match self.framing {
            Framing::Sse => matches!(&self.tail, b"\n\n" | b"\r\r" | b"\r\n"),
            // The error goes into the trailers, wherever the messages end.
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

/// The next frame of the answer, or an error if it is late.
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

impl Body for RelayStream {
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
                this.state = RelayState::Over;
                let told = this.broken(&error);
                // In the middle of an event no error can be sent; the connection is closed instead.
                Some(if this.is_between_events() { Ok(this.form.last_words(told)) } else { Err(told) })
            }
            // Without trailers the outcome is unknown.
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

    /// True once the last frame was relayed. HTTP/2 then ends the stream with that frame: a gRPC answer
    /// without a message is one HEADERS frame (`Trailers-Only`), and no empty DATA frame may follow it.
    fn is_end_stream(&self) -> bool {
        match &self.state {
            RelayState::Over => true,
            RelayState::Recording { .. } => false,
            RelayState::Learning { held, .. } | RelayState::RelayStream { held } => {
                self.is_whole && held.is_empty() && self.body.is_end_stream()
            }
        }
    }
}

/// Collects the first event of a stream.
enum First {
    Sse { decoder: Decoder, failed: bool },
    Grpc(BytesMut),
}

impl First {
    fn new(framing: Framing) -> Self {
        match framing {
            Framing::Sse => Self::Sse { decoder: Decoder::new(MAX_FIRST_EVENT_BYTES), failed: false },
            Framing::Grpc => Self::Grpc(BytesMut::new()),
        }
    }

    /// Adds data; returns the event once it is complete.
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

    /// True if no event can be decoded from the data.
    fn is_hopeless(&self) -> bool {
        match self {
            Self::Sse { failed, .. } => *failed,
            Self::Grpc(buffer) => buffer.len() > MAX_FIRST_EVENT_BYTES,
        }
    }
}
