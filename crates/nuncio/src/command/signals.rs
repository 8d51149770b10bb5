//! The signals to stop.

use anyhow::{Context as _, Result};

/// The signals to stop, listened to from the start, so that none is lost.
#[cfg(unix)]
pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(super) fn listen() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(windows)]
pub(super) struct Signals {
    interrupt: tokio::signal::windows::CtrlC,
}

#[cfg(windows)]
impl Signals {
    pub(super) fn listen() -> Result<Self> {
        Ok(Self { interrupt: tokio::signal::windows::ctrl_c().context("cannot listen to signals")? })
    }

    pub(super) async fn next(&mut self) {
        self.interrupt.recv().await;
    }
}
