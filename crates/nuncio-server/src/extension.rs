//! The interface for authors of protocol extensions (spec 4.6).

use nuncio_protocol::{AgentExtension, Interceptor};

/// An extension: an interceptor that declares itself.
///
/// The declaration goes on the agent's cards. [`Interceptor::intercept`] is then called around each call that
/// declares the same URI (`A2A-Extensions`), and only around those: an extension is inactive unless the
/// caller asks for it. Another version of an extension has another URI. If the declaration says `required`,
/// a call without it is refused before the interceptor runs.
///
/// Data of an extension goes into `metadata` under its URI (spec 4.6.2). Changes of `intercept` to a call
/// reach the executor. Changes to a response are seen by this caller only and are not recorded. An executor
/// can ask [`Execution::extension`](crate::Execution::extension) whether the extension is active.
///
/// ```
/// use std::time::{SystemTime, UNIX_EPOCH};
///
/// use nuncio_server::{Emitter, ExecContext, Executor, Extension, Runtime};
/// use nuncio_server::protocol::{
///     A2aService, AgentCard, AgentExtension, CallContext, Interceptor, Message, Next, Part, Result,
///     SendMessageRequest, SendMessageResponse,
///     op::{Call, Reply},
/// };
///
/// /// Adds the time of sending, in seconds since 1970.
/// struct Timestamps;
///
/// const TIMESTAMPS: &str = "https://example.com/extensions/timestamps/v1";
///
/// impl Extension for Timestamps {
///     fn declaration(&self) -> AgentExtension {
///         let description = "when each task, reply and event was sent out".to_owned();
///         AgentExtension { uri: TIMESTAMPS.to_owned(), description, ..AgentExtension::default() }
///     }
/// }
///
/// #[async_trait::async_trait]
/// impl Interceptor for Timestamps {
///     async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply> {
///         let reply = next.run(cx, call).await?;
///         Ok(reply.map_metadata(|metadata| {
///             let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
///             metadata.insert(TIMESTAMPS, now.as_secs());
///         }))
///     }
/// }
///
/// struct Parrot;
///
/// #[async_trait::async_trait]
/// impl Executor for Parrot {
///     async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
///         out.message(Part::text(cx.text())).await
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let card = AgentCard::new("parrot", "Says it again.");
/// let runtime = Runtime::builder(card, Parrot).extension(Timestamps).build();
/// assert!(runtime.card().extension(TIMESTAMPS).is_some());
///
/// let mut cx = CallContext::default();
/// for declared in [false, true] {
///     let message = Message::user("m-1", Part::text("hello"));
///     let req = SendMessageRequest { message, ..SendMessageRequest::default() };
///     let SendMessageResponse::Message(reply) = runtime.send_message(&cx, req).await? else { panic!() };
///     assert_eq!(reply.metadata.contains_key(TIMESTAMPS), declared);
///     cx.extensions.push(TIMESTAMPS.to_owned());
/// }
/// # Ok(())
/// # }
/// ```
pub trait Extension: Interceptor {
    /// The declaration on the cards: the URI, which includes the version, a description, whether callers must
    /// declare the extension, and its settings. Called once, when the extension is added.
    fn declaration(&self) -> AgentExtension;
}
