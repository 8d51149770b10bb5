//! Idempotency keys. A repeated send joins the first one while that is in flight; afterwards it finds the
//! outcome in the store.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use hmac::{Hmac, KeyInit as _, Mac as _};
use nuncio_protocol::{CallContext, ContextId, Error, Result, SendMessageRequest, Seq};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{OnceCell, watch},
    time::timeout_at,
};

use super::{Core, admit::Admitted, live::LiveTaskRef, unavailable};
use crate::store::{IdempotencyKey, IdempotentAnswer, Outcome, Scope, Store};

/// A send that was admitted and has no outcome in the store yet; a repeat joins it.
#[derive(Clone)]
pub(super) struct InFlight {
    digest: [u8; 32],
    live: LiveTaskRef,
    /// Closed when the send is over, or was refused.
    stage: watch::Receiver<Stage>,
}

/// The stage of a send in flight.
#[derive(Clone, Copy)]
enum Stage {
    /// It may still be refused.
    Undecided,
    /// It waits for its turn.
    Queued,
    /// Its execution has begun, after this entry.
    Begun(Seq),
}

/// The key of a send in flight: scope and idempotency key.
type InFlightKey = (Arc<Scope>, Arc<str>);

/// The sends under idempotency keys.
pub(super) struct Sends {
    store: Arc<dyn Store>,
    in_flight: Mutex<HashMap<InFlightKey, InFlight>>,
    names: OnceCell<Names>,
}

impl Sends {
    pub(super) fn new(store: &Arc<dyn Store>) -> Self {
        Self { store: Arc::clone(store), in_flight: Mutex::default(), names: OnceCell::new() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<InFlightKey, InFlight>> {
        self.in_flight.lock()
    }

    /// Enters a send under this key. If there is one in flight already, returns that one instead.
    pub(super) fn enter(
        self: &Arc<Self>,
        key: &IdempotencyKey,
        live: &LiveTaskRef,
    ) -> Result<InFlightGuard, InFlight> {
        let slot: InFlightKey = (Arc::clone(&live.scope), Arc::clone(&key.key));
        match self.lock().entry(slot.clone()) {
            Entry::Occupied(first) => Err(first.get().clone()),
            Entry::Vacant(vacant) => {
                let (sender, stage) = watch::channel(Stage::Undecided);
                vacant.insert(InFlight { digest: key.digest, live: live.clone(), stage });
                Ok(InFlightGuard { sends: Arc::clone(self), slot, stage: sender })
            }
        }
    }

    pub(super) async fn names(&self) -> Result<&Names> {
        let make = || async { Ok(Names(self.store.secret("repeats").await?)) };
        self.names.get_or_try_init(make).await
    }
}

/// Removes the send from those in flight when it has an outcome or was refused.
pub(super) struct InFlightGuard {
    sends: Arc<Sends>,
    slot: InFlightKey,
    stage: watch::Sender<Stage>,
}

impl InFlightGuard {
    /// Reports to waiting repeats that the execution has begun, and after which entry.
    pub(super) fn begins_after(&self, turn: Seq) {
        self.stage.send_replace(Stage::Begun(turn));
    }

    /// Reports to waiting repeats that the send is queued.
    pub(super) fn waits(&self) {
        self.stage.send_replace(Stage::Queued);
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.sends.lock().remove(&self.slot);
    }
}

impl Core {
    /// Claims an idempotency key for this send, or returns the outcome of the first send under it.
    pub(super) async fn claim(
        self: &Arc<Self>,
        cx: &CallContext,
        key: &IdempotencyKey,
        live: &LiveTaskRef,
        immediately: bool,
    ) -> Result<Result<InFlightGuard, Admitted>> {
        let patience = self.patience(cx);
        let guard = loop {
            let mut first = match self.sends.enter(key, live) {
                Ok(guard) => break guard,
                Err(first) => first,
            };
            same_request(first.digest, key)?;
            // The first one may still be refused, or turn out to be a repeat itself: then its entry is
            // removed, and this send tries again.
            let told = |stage: &Stage| match stage {
                Stage::Undecided => false,
                Stage::Queued => immediately,
                Stage::Begun(_) => true,
            };
            let came = timeout_at(patience, first.stage.wait_for(told)).await;
            let stage = match came.map(|came| came.map(|stage| *stage)) {
                Ok(Ok(stage)) => stage,
                Ok(Err(_)) => continue,
                Err(_) => *first.stage.borrow(),
            };
            return match stage {
                Stage::Begun(_) if first.live.lock().is_lost() => {
                    // The first one was lost and is about to end: then the store has the outcome.
                    let ended = async { while first.stage.changed().await.is_ok() {} };
                    timeout_at(patience, ended).await.map_err(|_| unavailable())?;
                    continue;
                }
                Stage::Begun(turn) => Ok(Err(Admitted::Joined(first.live, turn))),
                Stage::Queued => Ok(Err(Admitted::Queued(first.live))),
                Stage::Undecided => Err(unavailable()),
            };
        };
        let mut signals = None;
        loop {
            let Some(IdempotentAnswer { digest, outcome }) =
                self.store.idempotent_outcome(&live.scope, &key.key).await?
            else {
                return Ok(Ok(guard));
            };
            same_request(digest, key)?;
            match outcome {
                Outcome::Task(id) => return Ok(Err(Admitted::Known(id))),
                Outcome::Reply(reply) => return Ok(Err(Admitted::Replied(reply))),
                Outcome::Reserved { reservation, abandoned } => {
                    Box::pin(self.await_reserved(*reservation, abandoned, patience, &mut signals)).await?;
                }
            }
        }
    }
}

/// Makes ids for a send under a key. They are the same for each repeat, also on another server that shares
/// the store, and if nothing of the first send was stored. No other send has them.
pub(super) struct Names([u8; 32]);

impl Names {
    fn name(&self, what: &str, scope: &Scope, key: &IdempotencyKey) -> Result<uuid::Uuid> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).map_err(Error::internal)?;
        let send =
            (what, (&*scope.agent, scope.tenant.as_deref(), scope.owner.as_deref()), &*key.key, key.digest);
        mac.update(&serde_json::to_vec(&send).map_err(Error::internal)?);
        let mac: [u8; 32] = mac.finalize().into_bytes().into();
        let mut name = [0; 16];
        name.copy_from_slice(&mac[..16]);
        Ok(uuid::Builder::from_custom_bytes(name).into_uuid())
    }

    /// The id by which other agents can recognise a repeat.
    pub(super) fn of_turn(&self, scope: &Scope, key: &IdempotencyKey) -> Result<Arc<str>> {
        Ok(self.name("turn", scope, key)?.to_string().into())
    }

    /// The id of the context that the send begins.
    pub(super) fn of_context(&self, scope: &Scope, key: &IdempotencyKey) -> Result<ContextId> {
        Ok(self.name("context", scope, key)?.to_string().into())
    }
}

/// The most bytes of an idempotency key.
const MAX_KEY_BYTES: usize = 256;

/// Begins the keys that are message ids. No header can have it, so that no caller's key is taken for one.
const MESSAGE_ID: &str = "\u{1f}messageId:";

impl Core {
    /// The key of a send: the caller's own, or else the id of its message, where the agent wants that.
    pub(super) fn idempotency_key(
        &self,
        cx: &CallContext,
        req: &SendMessageRequest,
    ) -> Result<Option<IdempotencyKey>> {
        if let Some(key) = cx.idempotency_key.as_deref() {
            if key.is_empty() || key.len() > MAX_KEY_BYTES {
                let why = format!("expected 1 to {MAX_KEY_BYTES} bytes");
                return Err(Error::invalid_field("Idempotency-Key", why));
            }
            return Ok(Some(IdempotencyKey { key: key.into(), digest: digest(req)? }));
        }
        if !self.agent.rules().dedupe_message_id {
            return Ok(None);
        }
        // The way in which the caller waits is not part of the message.
        let key = format!("{MESSAGE_ID}{}", req.message.message_id.as_str());
        Ok(Some(IdempotencyKey { key: key.into(), digest: digest(&req.message)? }))
    }
}

fn digest(said: &impl Serialize) -> Result<[u8; 32]> {
    Ok(Sha256::digest(serde_json::to_vec(said).map_err(Error::internal)?).into())
}

fn same_request(digest: [u8; 32], key: &IdempotencyKey) -> Result<()> {
    if digest == key.digest {
        return Ok(());
    }
    let (field, why) = if key.key.starts_with(MESSAGE_ID) {
        ("message.messageId", "was used with another message; take a new id")
    } else {
        ("Idempotency-Key", "was used with another request; take a new key")
    };
    Err(Error::invalid_field(field, why))
}
