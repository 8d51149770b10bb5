//! A message whose task is watched by three readers: the sender, one to the end, and one that leaves.

use std::sync::atomic::Ordering;

use nuncio_protocol::{
    ContextId, Event, TaskId,
    op::{Call, Op},
};
use tokio::time::Instant;

use super::{message, send};
use crate::{
    answer::{Answer, SeenEvent, read_frame},
    probe::{Probe, on_task},
    wire::{End, Exchange, Opened, Stream},
};

/// A stream as it was seen.
#[derive(Debug)]
pub(crate) struct StreamSeen {
    /// The exchange so far, for reports.
    pub(crate) exchange: Exchange,
    /// The answer, if it was not a stream.
    pub(crate) refused: Option<Answer>,
    pub(crate) events: Vec<SeenEvent>,
    /// The ids of the events.
    pub(crate) ids: Vec<Option<String>>,
    pub(crate) end: End,
    /// The events of a second reader, from its snapshot on, and their end.
    pub(crate) second: Option<(Vec<SeenEvent>, End)>,
    /// True if a third reader left before the end.
    pub(crate) one_left: bool,
}

impl StreamSeen {
    /// Sends a message and watches its task.
    pub(super) async fn watch(
        probe: &Probe<'_>,
        text: &str,
        context: Option<ContextId>,
        begun: &mut Vec<TaskId>,
    ) -> Self {
        let mut message = message(text);
        message.context_id = context;
        let call = Call::SendStreamingMessage(Box::new(send(message, false)));
        probe.session.messages.fetch_add(1, Ordering::Relaxed);
        let time = probe.session.message_timeout;
        let opened = match probe.request(call) {
            Ok(request) => probe.session.stream(request, time).await,
            Err(_) => Opened::Answer(Box::new(super::unreachable_answer(probe).exchange)),
        };
        match opened {
            Opened::Stream(stream) => Self::follow(probe, *stream, Instant::now() + time, begun).await,
            Opened::Answer(exchange) => {
                let answer = Answer::read(probe.interface, Op::SendMessage, (*exchange).clone());
                begun.extend(answer.task().map(|task| task.id.clone()));
                Self {
                    exchange: *exchange,
                    refused: Some(answer),
                    events: Vec::new(),
                    ids: Vec::new(),
                    end: End::Closed,
                    second: None,
                    one_left: false,
                }
            }
        }
    }

    async fn follow(probe: &Probe<'_>, mut stream: Stream, by: Instant, begun: &mut Vec<TaskId>) -> Self {
        stream.advance(by).await;
        let first = stream.frames.first().map(|frame| read_frame(probe.interface, frame));
        let task = first
            .as_ref()
            .and_then(|seen| seen.event.as_ref().ok())
            .and_then(|event| event.task_id().cloned());
        begun.extend(task.clone());
        let (mut second, mut one_left) = (None, false);
        if let (Some(task), None) = (&task, &stream.end)
            && !is_over(first.as_ref())
        {
            second = subscribe(probe, task, by).await;
            one_left = subscribe(probe, task, by).await.is_some();
        }
        match &mut second {
            Some(second) => {
                tokio::join!(stream.finish(by), second.finish(by));
            }
            None => stream.finish(by).await,
        }
        let read = |stream: &Stream| -> Vec<SeenEvent> {
            stream.frames.iter().map(|frame| read_frame(probe.interface, frame)).collect()
        };
        Self {
            exchange: stream.exchange(),
            refused: None,
            events: read(&stream),
            ids: stream.frames.iter().map(|frame| frame.id.clone()).collect(),
            end: stream.end.clone().unwrap_or(End::Slow),
            second: second.map(|second| (read(&second), second.end.clone().unwrap_or(End::Slow))),
            one_left,
        }
    }

    /// The events that could be decoded.
    pub(crate) fn typed(&self) -> Vec<&Event> {
        self.events.iter().filter_map(|seen| seen.event.as_ref().ok()).collect()
    }
}

fn is_over(seen: Option<&SeenEvent>) -> bool {
    let status = seen.and_then(|seen| seen.event.as_ref().ok()).and_then(Event::status);
    status.is_some_and(|status| status.state.is_terminal())
}

/// Subscribes, and waits for the snapshot.
async fn subscribe(probe: &Probe<'_>, task: &TaskId, by: Instant) -> Option<Stream> {
    let request = probe.request(on_task(Op::SubscribeToTask, task.as_str())).ok()?;
    let Opened::Stream(mut stream) = probe.session.stream(request, probe.session.timeout).await else {
        return None;
    };
    stream.advance(by).await;
    let first = read_frame(probe.interface, stream.frames.first()?);
    first.event.is_ok().then_some(*stream)
}
