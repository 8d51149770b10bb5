//! Write an A2A agent: implement [`Executor`], give it to [`Runtime`], put it on the wire with
//! [`bind::router`]. Tasks, streams with replay, cancel, listing, both protocol versions: all there.
//!
//! Reading order follows the request: [`bind`] opens the envelope, [`runtime`] admits, runs the
//! executor and records, [`store`] keeps.
//!
//! | feature | adds |
//! |---|---|
//! | `test-util` | scripted executors, a harness, and the conformance suite for stores |

pub mod bind;
mod executor;
pub mod runtime;
pub mod store;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;

/// The protocol's own types.
pub use nuncio_protocol as protocol;

pub use self::{
    executor::{Emitter, ExecContext, Execution, Executor},
    runtime::{Limits, Runtime, RuntimeBuilder},
};
