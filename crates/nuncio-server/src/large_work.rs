//! Work on large content: megabytes that are decoded or encoded.
//!
//! It is done on blocking threads, because an async worker would hold up every other call that it serves; and on one
//! core less than there are, because threads that all have work share the cores, and small calls would wait for theirs.

use std::{num::NonZero, sync::LazyLock, thread::available_parallelism};

use nuncio_protocol::{Error, Result};
use tokio::sync::Semaphore;

/// Content from this size on is large.
pub(crate) const LARGE: usize = 256 * 1024;

/// The cores of a process are shared by all of its servers.
static PERMITS: LazyLock<Semaphore> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, NonZero::get);
    Semaphore::new(cores.saturating_sub(1).max(1))
});

/// Does some work on a blocking thread, when it is its turn. The work is done to its end also if nobody waits any more.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    // The semaphore is never closed.
    let permit = PERMITS.acquire().await.map_err(Error::internal)?;
    let working = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(permit);
        done
    });
    working.await.map_err(Error::internal)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn large_work_leaves_a_core_and_the_async_worker_to_others() {
        let cores = available_parallelism().map_or(1, NonZero::get);
        let (here, running) = (std::thread::current().id(), Arc::new(AtomicUsize::new(0)));
        let works = (0..4 * cores).map(|_| {
            let running = Arc::clone(&running);
            run(move || {
                let at_once = running.fetch_add(1, Ordering::SeqCst) + 1;
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                (std::thread::current().id() == here, at_once)
            })
        });
        for done in join_all(works).await {
            let (is_here, at_once) = done.unwrap();
            assert!(!is_here && at_once < cores.max(2), "{at_once} at once on {cores} cores");
        }
    }
}
