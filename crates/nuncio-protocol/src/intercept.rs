//! Code around the calls of an [`A2aService`]: on a client before a call is sent, on a server before it is
//! executed, and afterwards around the answer.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use async_trait::async_trait;
use futures_core::Stream;

use crate::{
    A2aService, CallContext, CallHandler, Event, EventStream, Metadata, Result, SendMessageResponse,
    StreamItem,
    op::{Call, Reply},
};

/// Runs around every call of a service.
///
/// An interceptor may change the context and the call and continue with [`Next::run`]; it may refuse the
/// call with an error or answer it, by not continuing; and it may change the answer. The stream of a
/// streaming call is part of the answer: it may be wrapped, and its events arrive after `intercept` has
/// returned. Changes of the context are visible to the inner interceptors, and afterwards to the outer
/// ones.
///
/// ```
/// use nuncio_protocol::{CallContext, Error, ErrorKind, Interceptor, Next, Result};
/// use nuncio_protocol::op::{Call, Op, Reply};
///
/// /// Refuses to cancel tasks.
/// struct NoCancel;
///
/// #[async_trait::async_trait]
/// impl Interceptor for NoCancel {
///     async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply> {
///         if call.op() == Op::CancelTask {
///             return Err(Error::new(ErrorKind::PermissionDenied, "tasks cannot be canceled here"));
///         }
///         next.run(cx, call).await
///     }
/// }
/// ```
#[async_trait]
pub trait Interceptor: Send + Sync + 'static {
    /// Handles a call, usually by continuing with `next`.
    async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply>;
}

/// The rest of the chain: the inner interceptors and the service. A clone can run the same chain again.
#[derive(Clone)]
pub struct Next<'a> {
    interceptors: &'a [Arc<dyn Interceptor>],
    service: &'a dyn A2aService,
}

impl Next<'_> {
    /// Continues with the call.
    ///
    /// # Errors
    /// The error of the inner interceptors, or of the service.
    pub async fn run(self, cx: &mut CallContext, call: Call) -> Result<Reply> {
        match self.interceptors.split_first() {
            Some((first, interceptors)) => first.intercept(cx, call, Next { interceptors, ..self }).await,
            None => self.service.call(cx, call).await,
        }
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("interceptors", &self.interceptors.len()).finish_non_exhaustive()
    }
}

/// Interceptors in order, the outermost first.
#[derive(Clone, Default)]
pub struct Interceptors(Vec<Arc<dyn Interceptor>>);

impl Interceptors {
    /// Adds an interceptor inside of the existing ones.
    pub fn push(&mut self, interceptor: impl Interceptor) {
        self.0.push(Arc::new(interceptor));
    }

    /// True if there are no interceptors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Wraps the service in these interceptors. Without any, returns the service itself, at no cost.
    pub fn around(self, service: impl A2aService) -> Arc<dyn A2aService> {
        if self.is_empty() {
            return Arc::new(service);
        }
        Arc::new(Intercepted { service, interceptors: self })
    }

    /// Makes one call of the service with these interceptors around it.
    ///
    /// # Errors
    /// The error of the interceptors, or of the service.
    pub async fn call(&self, service: &dyn A2aService, cx: &CallContext, call: Call) -> Result<Reply> {
        Next { interceptors: &self.0, service }.run(&mut cx.clone(), call).await
    }
}

impl fmt::Debug for Interceptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interceptors").field(&self.0.len()).finish()
    }
}

struct Intercepted<S> {
    service: S,
    interceptors: Interceptors,
}

impl<S: A2aService> CallHandler for Intercepted<S> {
    async fn handle(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        self.interceptors.call(&self.service, cx, call).await
    }
}

impl Reply {
    /// Changes the metadata in the reply, where extensions put their data (spec 4.6.2): of the task or the
    /// direct reply, of each task of a page, of each event of a stream as it passes. Webhooks and cards
    /// have none and stay unchanged.
    #[must_use]
    pub fn map_metadata(self, mut change: impl FnMut(&mut Metadata) + Send + 'static) -> Self {
        match self {
            Self::Sent(SendMessageResponse::Task(mut task)) => {
                change(&mut task.metadata);
                Self::Sent(SendMessageResponse::Task(task))
            }
            Self::Sent(SendMessageResponse::Message(mut message)) => {
                change(&mut Arc::make_mut(&mut message).metadata);
                Self::Sent(SendMessageResponse::Message(message))
            }
            Self::Stream(events) => {
                let change = move |event: &mut Event| change(event.metadata_mut());
                Self::Stream(Box::pin(Changed { events, change }))
            }
            Self::Task(mut task) => {
                change(&mut task.metadata);
                Self::Task(task)
            }
            Self::Tasks(mut page) => {
                page.tasks.iter_mut().for_each(|task| change(&mut task.metadata));
                Self::Tasks(page)
            }
            Self::PushConfig(_) | Self::PushConfigs(_) | Self::Card(_) | Self::Empty => self,
        }
    }
}

/// A stream with its events changed as they pass.
struct Changed<F> {
    events: EventStream,
    change: F,
}

/// No field is structurally pinned: the stream is boxed, and the function is only called.
impl<F> Unpin for Changed<F> {}

impl<F: FnMut(&mut Event)> Stream for Changed<F> {
    type Item = Result<StreamItem>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = std::task::ready!(self.events.as_mut().poll_next(cx));
        Poll::Ready(item.map(|item| Ok(item?.changed(&mut self.change))))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.events.size_hint()
    }
}

#[cfg(test)]
mod tests;
