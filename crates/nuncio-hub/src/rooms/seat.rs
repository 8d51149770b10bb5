//! A seat as an agent: the executor of its messages, and the checks before them.
//!
//! Everybody who may call the agent of a seat, and is among its holders if those are named, acts as one caller: the
//! seat. For everybody else there are no tasks here.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use nuncio_protocol::{
    CallContext, CancelTaskRequest, Error, ErrorKind, Event, GetTaskRequest, Interceptor, Next, Result,
    SendMessageRequest, SendMessageResponse, StreamItem, SubscribeToTaskRequest, Task, TaskId,
    op::{Call, Reply},
};
use nuncio_server::{Emitter, ExecContext, Executor};

use super::{Room, Side, lease::Authority, wire::WireCall};

/// Attempts to admit a message while another hub writes to the seat.
const MAX_ATTEMPTS: u32 = 6;
/// Pause after the first attempt.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Executes the messages of a seat.
pub(crate) struct SeatExecutor {
    pub(crate) room: Arc<Room>,
    pub(crate) side: Side,
}

#[async_trait]
impl Executor for SeatExecutor {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        self.room.say(self.side, &cx, out).await
    }

    /// The task is canceled by another way than a call to the seat: by administration, or because its caller left. An
    /// execution is stopped also when another hub wrote to its task first, or at a shutdown: that ends no round. (A task
    /// that was canceled meanwhile ends it by the sweeper.)
    async fn cancel(&self, cx: ExecContext) -> Result<()> {
        if cx.cancellation.is_cancelled() {
            return Ok(());
        }
        self.room.cancel(self.side, &cx.task_id).await.map(drop)
    }

    /// A message is applied once, by its id in the record.
    fn is_idempotent(&self) -> bool {
        true
    }
}

/// The rules of a room around the calls of a seat.
pub(crate) struct SeatRules {
    pub(crate) room: Arc<Room>,
    pub(crate) side: Side,
}

#[async_trait]
impl Interceptor for SeatRules {
    async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply> {
        let wire = WireCall::new(self.side, cx, &call);
        self.room.wire().note_call(wire, cx, &call);
        let answer = self.answer(cx, call, next).await;
        self.room.wire().note_answer(wire, &answer);
        Ok(match answer? {
            Reply::Stream(events) => {
                let room = Arc::clone(&self.room);
                let noted = events.inspect(move |item| {
                    if let Ok(item) = item {
                        room.wire().note_out(wire, &**item.event());
                    }
                });
                Reply::Stream(Box::pin(noted))
            }
            reply => reply,
        })
    }
}

impl SeatRules {
    async fn answer(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply> {
        let by = Authority::of(cx, self.room.secret());
        let principal = cx.caller.principal().map(|name| &**name);
        let holds = by != Authority::Caller || self.room.settings().holds(self.side == Side::B, principal);
        if !holds {
            return match call {
                Call::SendMessage(_) | Call::SendStreamingMessage(_) => Err(Error::new(
                    ErrorKind::PermissionDenied,
                    "this seat is held by another caller; ask the operator of the room",
                )),
                // It has no task here, and is told so.
                call => next.run(cx, call).await,
            };
        }
        cx.caller = self.room.holder(self.side);
        match call {
            Call::SendMessage(request) => self.send(cx, &by, request, false, next).await,
            Call::SendStreamingMessage(request) => self.send(cx, &by, request, true, next).await,
            Call::CancelTask(request) => {
                self.room.check_authority(self.side, &by).await?;
                self.cancel(cx, request, next).await
            }
            Call::GetTask(_) | Call::ListTasks(_) | Call::SubscribeToTask(_) => {
                self.look().await;
                next.run(cx, call).await
            }
            call => next.run(cx, call).await,
        }
    }

    /// Brings the seats up to the record, if that can be done now.
    async fn look(&self) {
        if let Err(error) = self.room.catch_up().await {
            tracing::debug!(room = &**self.room.name(), %error, "a seat is behind");
        }
    }

    async fn send(
        &self,
        cx: &mut CallContext,
        by: &Authority,
        request: Box<SendMessageRequest>,
        streams: bool,
        next: Next<'_>,
    ) -> Result<Reply> {
        let (id, task) = (request.message.message_id.clone(), request.message.task_id.clone());
        let in_flight = self.room.depart(self.side, &id).await;
        let mut attempts = 0;
        loop {
            self.look().await;
            if let Some(known) = self.room.find_repeat(self.side, &id, task.as_ref()).await? {
                return repeat(cx, known, streams, next).await;
            }
            self.room.check(self.side, by, &request.message).await?;
            let request = request.clone();
            let call = if streams { Call::SendStreamingMessage(request) } else { Call::SendMessage(request) };
            attempts += 1;
            match next.clone().run(cx, call).await {
                // Another hub wrote to the task of the seat first, and nothing of the message is stored.
                Err(error) if error.kind() == ErrorKind::Unavailable && attempts < MAX_ATTEMPTS => {
                    tokio::time::sleep(RETRY_INTERVAL * attempts).await;
                }
                reply => {
                    if reply.is_ok() {
                        in_flight.admit();
                    }
                    return reply;
                }
            }
        }
    }

    async fn cancel(
        &self,
        cx: &mut CallContext,
        request: Box<CancelTaskRequest>,
        next: Next<'_>,
    ) -> Result<Reply> {
        self.look().await;
        if self.room.cancel(self.side, &request.id).await? {
            return task(cx, request.id, next).await.map(Reply::Task);
        }
        // The task is unknown, or has ended.
        next.run(cx, Call::CancelTask(request)).await
    }
}

async fn task(cx: &mut CallContext, id: TaskId, next: Next<'_>) -> Result<Task> {
    let request = GetTaskRequest { id, ..GetTaskRequest::default() };
    match next.run(cx, Call::GetTask(Box::new(request))).await? {
        Reply::Task(task) => Ok(task),
        _ => Err(Error::internal("a task was expected")),
    }
}

/// The answer to a message that the round has already: its task, or what follows in it.
async fn repeat(cx: &mut CallContext, id: TaskId, streams: bool, next: Next<'_>) -> Result<Reply> {
    if streams {
        let request = SubscribeToTaskRequest { id: id.clone(), ..SubscribeToTaskRequest::default() };
        match next.clone().run(cx, Call::SubscribeToTask(Box::new(request))).await {
            // It has ended: the stream is its end.
            Err(error) if error.kind() == ErrorKind::UnsupportedOperation => {}
            stream => return stream,
        }
    }
    let task = task(cx, id, next).await?;
    if !streams {
        return Ok(Reply::Sent(SendMessageResponse::Task(task)));
    }
    let item = StreamItem::new(None, Arc::new(Event::Task(task)));
    Ok(Reply::Stream(Box::pin(futures_util::stream::once(std::future::ready(Ok(item))))))
}
