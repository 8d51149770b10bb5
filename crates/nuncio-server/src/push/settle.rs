//! What became of deliveries, on its way to the store: in batches, as the journal does it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use nuncio_protocol::retry::Backoff;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::store::{Outbox, Settled, StoreError, Then};

/// How many go into one batch.
const BATCH: usize = 512;

/// How long what nobody waits for may wait for company: usually what its webhook is owed next is told by then,
/// and all of it is one write. If the process ends meanwhile, that much is posted again.
const LINGER: Duration = Duration::from_millis(20);

/// How long a store that fails is left alone, at first and at most.
const PAUSES: Backoff = Backoff::doubling(Duration::from_millis(20), Duration::from_secs(1));

/// How long something is left alone that the store cannot take, though others it can.
const LONG_PAUSE: Duration = Duration::from_secs(60);

/// Where outcomes are handed in.
#[derive(Clone)]
pub(super) struct Settler(mpsc::UnboundedSender<Handed>);

/// What happened, and who waits for it to be written down.
type Handed = (Settled, Option<oneshot::Sender<()>>);

impl Settler {
    /// Starts the loop. It ends when nobody can hand in anything any more, or the store is given up.
    pub(super) fn start(store: Arc<dyn Outbox>, given_up: CancellationToken) -> Self {
        let (settler, mut queue) = mpsc::unbounded_channel::<Handed>();
        tokio::spawn(async move {
            let mut queued = Vec::new();
            while queue.recv_many(&mut queued, BATCH).await > 0 {
                let _ = timeout(LINGER, until_waited_for(&mut queue, &mut queued)).await;
                if !write(&store, merge(queued.drain(..)), &given_up).await {
                    return;
                }
            }
        });
        Self(settler)
    }

    /// LeaseTable in what happened, in order; it is written down soon.
    pub(super) fn note(&self, settled: Settled) {
        let _ = self.0.send((settled, None));
    }

    /// LeaseTable in what happened, and waits until it is written down.
    pub(super) async fn settle(&self, settled: Settled) {
        let (written, done) = oneshot::channel();
        let _ = self.0.send((settled, Some(written)));
        let _ = done.await;
    }
}

/// Receives until somebody waits, or it is enough.
async fn until_waited_for(queue: &mut mpsc::UnboundedReceiver<Handed>, queued: &mut Vec<Handed>) {
    while queued.len() < BATCH && queued.iter().all(|(_, waiter)| waiter.is_none()) {
        let room = BATCH - queued.len();
        if queue.recv_many(queued, room).await == 0 {
            return;
        }
    }
}

/// What became of one webhook, and who waits for it.
struct Sum {
    settled: Settled,
    waiters: Vec<oneshot::Sender<()>>,
}

impl Sum {
    /// It is written down.
    fn tell(self) {
        for waiter in self.waiters {
            // Whoever does not wait any more does not want to know.
            let _ = waiter.send(());
        }
    }
}

/// One per webhook: what happened last decides what happens then.
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

/// Writes until it is written. What the store cannot take stays in hand and is tried now and then: the others
/// do not wait for it. False: nobody waits for the store any more.
async fn write(store: &Arc<dyn Outbox>, batch: Vec<Sum>, given_up: &CancellationToken) -> bool {
    let Err(error) = insist(&**store, &batch, given_up).await else {
        batch.into_iter().for_each(Sum::tell);
        return true;
    };
    if given_up.is_cancelled() {
        return false;
    }
    tracing::error!(%error, "what became of webhooks cannot be written down together; each is tried by itself");
    for sum in batch {
        let one = [sum];
        match insist(&**store, &one, given_up).await {
            Ok(()) => one.into_iter().for_each(Sum::tell),
            Err(_) if given_up.is_cancelled() => return false,
            Err(error) => {
                let webhook = &one[0].settled.webhook;
                tracing::error!(%webhook, %error, "what became of a webhook cannot be written down");
                tokio::spawn(now_and_then(Arc::clone(store), one, given_up.clone()));
            }
        }
    }
    true
}

async fn now_and_then(store: Arc<dyn Outbox>, one: [Sum; 1], given_up: CancellationToken) {
    while given_up.run_until_cancelled(tokio::time::sleep(LONG_PAUSE)).await.is_some() {
        if insist(&*store, &one, &given_up).await.is_ok() {
            return one.into_iter().for_each(Sum::tell);
        }
    }
}

/// Writes as soon as the store is there.
async fn insist(store: &dyn Outbox, batch: &[Sum], given_up: &CancellationToken) -> Result<(), StoreError> {
    let (mut pause, mut told) = (PAUSES.base, false);
    loop {
        let settled = batch.iter().map(|sum| sum.settled.clone()).collect();
        match store.settle(settled).await {
            Err(error) if error.is_down() && !given_up.is_cancelled() => {
                if !std::mem::replace(&mut told, true) {
                    tracing::error!(%error, "what became of webhooks could not be written down; trying again");
                }
            }
            answer => return answer,
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = PAUSES.after(pause),
            () = given_up.cancelled() => {}
        }
    }
}
