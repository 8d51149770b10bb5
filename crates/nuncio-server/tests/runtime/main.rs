//! The runtime in process: no sockets, paused time. One module per topic.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cancel;
mod disconnect;
mod drain;
mod earlier;
mod emit;
mod faults;
mod follow_up;
mod handed_in;
mod handover;
mod hooks;
mod idempotency;
mod journal;
mod limits;
mod list;
mod memo;
mod memory;
mod names;
mod once;
mod parked;
mod push;
mod push_paused;
mod push_races;
mod races;
mod recover;
mod replace;
mod resume;
mod scope;
mod send;
mod stream;
mod task_bytes;
mod text_stream;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nuncio_server::protocol::{Error, ErrorKind};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The kind of the error; panics with the answer if there is none.
#[track_caller]
fn refused<T>(result: Result<T, Error>) -> ErrorKind {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(error) => error.kind(),
    }
}

/// Tells whether it was dropped.
#[derive(Clone, Default)]
struct Dropped(Arc<AtomicBool>);

impl Dropped {
    fn is_dropped(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// The values to drop.
    fn guard(&self) -> impl Drop + Send + use<> {
        struct Guard(Arc<AtomicBool>);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        Guard(Arc::clone(&self.0))
    }
}

/// Lets everything run that can run without time passing.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
