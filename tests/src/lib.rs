//! Shared code of the whole-system tests. The tests themselves are in `tests/`:
//!
//! | test | what it holds |
//! |---|---|
//! | `matrix` | each scenario once, over the bare runtime and every wire: identical results |
//! | `through` | the same scenarios through a hub that stands before the agent, in both of its modes |
//! | `bad_input` | what a careless or hostile caller sends, over real sockets, in both versions |
//! | `process` | the real binary: the hub driven by the command line, signals included |
//! | `faults` | hubs that are killed, databases that go away, full disks: nothing acknowledged is lost |
//! | `attacks` | requests within every limit and made to hurt: the hub stays alive and within its bounds |
//! | `worker` | workers of a mailbox, and the connector, against a scripted hub |
//! | `interop` | the official SDKs as clients of ours and as servers for our client |
//!
//! Reading order: [`agent`] (an agent that plays a script), [`world`] (that agent, reached in several ways),
//! [`between`] (a hub before it), [`transcript`] (what was observed, comparable between ways), [`process`] (children
//! that end with the test), [`hub`] (the binary), [`receiver`] (of notifications, that does what it is told),
//! [`forward`], [`forgetful`] and [`chance`] (what goes wrong), [`peer`] (the official SDKs), [`issuer`] (of tokens),
//! [`mailbox`] (the hub of a worker), [`post_office`] (the hub with mailboxes and plain workers),
//! [`torn`] (what lies between them and cuts),
//! [`provider`] (of models, by a script),
//! [`webhook`] (our receiver), [`raw`] and [`http2`] (what no client would send).
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking, its helpers too")]

pub mod agent;
pub mod between;
pub mod chance;
pub mod data;
pub mod forgetful;
pub mod forward;
pub mod http2;
pub mod hub;
pub mod issuer;
pub mod mailbox;
pub mod peer;
pub mod post_office;
pub mod process;
pub mod provider;
pub mod raw;
pub mod receiver;
pub mod torn;
pub mod transcript;
pub mod webhook;
pub mod world;

use std::time::Duration;

use futures_util::StreamExt as _;
use nuncio_protocol::{EventStream, StreamItem};

/// The timeout for operations that are immediate; only a failing test waits this long.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Between two looks at something that gives no signal.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits for a future, with patience.
///
/// # Panics
/// When it does not come.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// Looks again and again until there is something to see; for where there is truly no signal.
///
/// # Panics
/// When it never comes.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    within(what, async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
    .await
}

/// The next event of a stream.
///
/// # Panics
/// When the stream ends, fails or hangs.
pub async fn next(stream: &mut EventStream) -> StreamItem {
    within("an event", stream.next()).await.expect("the stream has ended").expect("the stream has failed")
}

/// All events until the stream ends.
///
/// # Panics
/// When the stream fails or does not end.
pub async fn rest(stream: EventStream) -> Vec<StreamItem> {
    let events = within("the end of the stream", stream.collect::<Vec<_>>()).await;
    events.into_iter().map(|item| item.expect("the stream has failed")).collect()
}
