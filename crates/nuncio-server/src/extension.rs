//! What the author of an extension of the protocol writes (spec 4.6).

use nuncio_protocol::{AgentExtension, Interceptor};

/// An extension: an interceptor that declares itself.
///
/// The declaration goes on the agent's cards. [`Interceptor::intercept`] is then called around each call
/// whose caller declared the same URI (`A2A-Extensions`), and not around others: an extension is inactive
/// unless it is asked for, and another version of it is another URI. If the declaration says `required`,
/// a call without it is refused before anything here runs.
///
/// Data of an extension goes into `metadata` under its URI (spec 4.6.2). What `intercept` changes in a call
/// reaches the executor; what it changes in an answer only this caller sees, it is not recorded. An
/// executor asks [`Execution::extension`](crate::Execution::extension) whether it is active.
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
/// /// Tells when things were sent out, in seconds since 1970.
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
    /// What the cards say: the URI, version included, a description, whether callers must declare it, and
    /// its settings. Asked once, when the extension is added.
    fn declaration(&self) -> AgentExtension;
}
