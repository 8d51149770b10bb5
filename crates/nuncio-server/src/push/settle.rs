//! Stores the outcomes of deliveries, in batches, as the journal does with entries.

use std::{collections::HashMap, sync::Arc, time::Duration};

use nuncio_protocol::retry::Backoff;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::store::{Outbox, Settled, StoreError, Then};

/// The maximum number of outcomes in a batch.
const BATCH: usize = 512;

/// The time for which an outcome without a waiter is held back: usually the webhook's next outcome comes
/// meanwhile, and both are one write. If the process dies within it, those deliveries are sent again.
const SETTLE_DELAY: Duration = Duration::from_millis(20);

/// The pauses between writes while the store is unavailable.
const RETRY_BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(20), Duration::from_secs(1));

/// The pause of an outcome that the store refuses while it accepts others.
const REFUSED_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// The queue of outcomes to store.
#[derive(Clone)]
pub(super) struct Settler(mpsc::UnboundedSender<Handed>);

/// An outcome, and the sender to notify when it is stored.
type Handed = (Settled, Option<oneshot::Sender<()>>);

impl Settler {
    /// Starts the writer. It ends when all senders are dropped, or when `given_up` is cancelled.
    pub(super) fn start(store: Arc<dyn Outbox>, given_up: CancellationToken) -> Self {
        let (settler, mut queue) = mpsc::unbounded_channel::<Handed>();
        tokio::spawn(async move {
            let mut queued = Vec::new();
            while queue.recv_many(&mut queued, BATCH).await > 0 {
                let _ = timeout(SETTLE_DELAY, until_waited_for(&mut queue, &mut queued)).await;
                if !write(&store, merge(queued.drain(..)), &given_up).await {
                    return;
                }
            }
        });
        Self(settler)
    }

    /// Queues an outcome. Outcomes are stored in this order, soon.
    pub(super) fn note(&self, settled: Settled) {
        let _ = self.0.send((settled, None));
    }

    /// Queues an outcome and waits until it is stored.
    pub(super) async fn settle(&self, settled: Settled) {
        let (written, done) = oneshot::channel();
        let _ = self.0.send((settled, Some(written)));
        let _ = done.await;
    }
}

/// Receives until an outcome has a waiter, or the batch is full.
async fn until_waited_for(queue: &mut mpsc::UnboundedReceiver<Handed>, queued: &mut Vec<Handed>) {
    while queued.len() < BATCH && queued.iter().all(|(_, waiter)| waiter.is_none()) {
        let capacity = BATCH - queued.len();
        if queue.recv_many(queued, capacity).await == 0 {
            return;
        }
    }
}

/// The merged outcomes of one webhook, and their waiters.
struct Sum {
    settled: Settled,
    waiters: Vec<oneshot::Sender<()>>,
}

impl Sum {
    /// Notifies the waiters that the outcomes are stored.
    fn tell(self) {
        for waiter in self.waiters {
            // A waiter that is gone does not matter.
            let _ = waiter.send(());
        }
    }
}

/// Merges outcomes by webhook; the last one decides what follows.
fn merge(handed: impl Iterator<Item = Handed>) -> Vec<Sum> {
    let mut merged: Vec<Sum> = Vec::new();
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    for (settled, waiter) in handed {
        match places.get(&settled.webhook).and_then(|place| merged.get_mut(*place)) {
            Some(known) if known.settled.then == Then::Keep => {
                known.settled.outcomes.extend(settled.outcomes);
                known.settled.then = settled.then;
                known.waiters.extend(waiter);
            }
            _ => {
                places.insert(Arc::clone(&settled.webhook), merged.len());
                merged.push(Sum { settled, waiters: waiter.into_iter().collect() });
            }
        }
    }
    merged
}

/// Stores a batch, with retries. An outcome that the store refuses is retried apart at intervals, and keeps
/// its lease; the others do not wait for it. Returns false if `given_up` is cancelled.
async fn write(store: &Arc<dyn Outbox>, batch: Vec<Sum>, given_up: &CancellationToken) -> bool {
    let Err(error) = insist(&**store, &batch, given_up).await else {
        batch.into_iter().for_each(Sum::tell);
        return true;
    };
    if given_up.is_cancelled() {
        return false;
    }
    tracing::error!(%error, "cannot store delivery outcomes as one batch; storing each by itself");
    for sum in batch {
        let one = [sum];
        match insist(&**store, &one, given_up).await {
            Ok(()) => one.into_iter().for_each(Sum::tell),
            Err(_) if given_up.is_cancelled() => return false,
            Err(error) => {
                let webhook = &one[0].settled.webhook;
                tracing::error!(%webhook, %error, "cannot store delivery outcomes of a webhook; trying again later");
                tokio::spawn(now_and_then(Arc::clone(store), one, given_up.clone()));
            }
        }
    }
    true
}

async fn now_and_then(store: Arc<dyn Outbox>, one: [Sum; 1], given_up: CancellationToken) {
    while given_up.run_until_cancelled(tokio::time::sleep(REFUSED_RETRY_INTERVAL)).await.is_some() {
        if insist(&*store, &one, &given_up).await.is_ok() {
            return one.into_iter().for_each(Sum::tell);
        }
    }
}

/// Stores a batch, and retries while the store is unavailable.
async fn insist(store: &dyn Outbox, batch: &[Sum], given_up: &CancellationToken) -> Result<(), StoreError> {
    let (mut pause, mut told) = (RETRY_BACKOFF.base, false);
    loop {
        let settled = batch.iter().map(|sum| sum.settled.clone()).collect();
        match store.settle(settled).await {
            Err(error) if error.is_down() && !given_up.is_cancelled() => {
                if !std::mem::replace(&mut told, true) {
                    tracing::error!(%error, "cannot store delivery outcomes; trying again");
                }
            }
            answer => return answer,
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = RETRY_BACKOFF.after(pause),
            () = given_up.cancelled() => {}
        }
    }
}
