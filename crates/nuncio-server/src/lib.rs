//! A server SDK for A2A agents: implement [`Executor`], build a [`Runtime`] with it, and put that on the wire
//! with [`bind::router`]. Tasks, streams with replay, cancel, listing and both protocol versions are
//! included.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use nuncio_server::{Emitter, ExecContext, Executor, Runtime, bind};
//! use nuncio_server::protocol::{AgentCard, Result};
//!
//! struct Shout;
//!
//! #[async_trait::async_trait]
//! impl Executor for Shout {
//!     async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
//!         out.working().await?;
//!         out.text("shout", cx.text().to_uppercase()).await?;
//!         Ok(()) // returning completes the task
//!     }
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let card = AgentCard::new("shout", "Shouts back.")
//!     .served_at("http://127.0.0.1:2650")
//!     .with_streaming();
//! let runtime = Runtime::builder(card, Shout).build();
//! let agent = bind::Agent::new(Arc::new(runtime.clone()), &runtime.card(), bind::BindOptions::default())?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:2650").await?;
//! axum::serve(listener, bind::router(&agent)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Streamed text, such as the tokens of a model, is a [`TextStream`]: one part in the task, and pieces of limited
//! frequency on streams. [`ExecContext::earlier`] reads the conversation before a message.
//!
//! Code around every call is an [`Interceptor`](protocol::Interceptor), and an [`Extension`] of the protocol
//! is one that declares itself: both go into the [`RuntimeBuilder`].
//!
//! Call [`Runtime::drain`] before the process ends: it waits for running tasks and ends the remaining ones.
//!
//! The reading order follows a request: [`bind`] opens the envelope, [`runtime`] admits the call, runs the
//! executor and records its events, [`store`] stores them.
//!
//! | feature | adds |
//! |---|---|
//! | `grpc` | the gRPC binding |
//! | `push` | push notifications, delivered with retries ([`push`]) |
//! | `sqlite`, `postgres` | tasks that outlive the process |
//! | `test-util` | scripted executors, a harness, and the conformance suite for stores |

pub mod bind;
mod caller_pool;
mod clock;
mod extension;
mod id;
mod large_work;
mod memory;
#[cfg(feature = "push")]
pub mod push;
#[cfg(not(feature = "push"))]
#[path = "push/absent.rs"]
mod push;
pub mod runtime;
mod size;
pub mod store;
mod task_quota;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;

/// The protocol's own types.
pub use nuncio_protocol as protocol;

pub use self::{
    caller_pool::{CallerKey, CallerPermit, CallerPool, CallerShare},
    extension::Extension,
    memory::{GrowingReservation, MemoryAccount, MemoryUsage, MemoryUse},
    runtime::{
        CommitObserver, Committed, DEFAULT_PACE, Earlier, EarlierLimit, Emitter, ExecContext, Execution,
        Executor, HandedTurn, HeldMessage, Limits, Retention, Runtime, RuntimeBuilder, TextStream, TurnEntry,
        TurnRun,
    },
    size::MAX_MEMO_BYTES,
    task_quota::{CountedTask, TaskQuota},
};
