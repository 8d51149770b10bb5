//! Webhook agents: mailboxes whose messages the hub posts to the address of the agent (`deliver_to`).
//!
//! ```text
//! row, task parked ──► take: lease ──► post ──► 200: the answer is the task
//!        ▲                               │ ├──► 202: begun; lines follow by the pull API
//!        └── 5xx, silence: not before T ◄┘ └──► 4xx: FAILED; 410: nothing more is posted
//! ```
//! Reading order: this file has the settings, `deliver` takes turns and posts them, `request` makes a post, `answer`
//! judges what came back, `switch` remembers that a webhook is gone.
//!
//! **Invariant:** a delivery is a lease of the lease engine. It is a row before it is sent, so a hub that is killed
//! repeats it and two hubs never deliver one lease; what comes after the end of a lease changes nothing.

mod answer;
mod deliver;
mod request;
mod switch;

#[cfg(test)]
pub(super) use self::deliver::Next;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicI64},
};

use anyhow::{Context as _, Result, ensure};
use nuncio_client::{Egress, notification::WebhookSecret};
use nuncio_protocol::Version;
use nuncio_server::push::{Push, PushOptions, Sign, sign_by_secrets};
use tokio::sync::Semaphore;
use url::Url;

use crate::{
    agents::AgentFactory,
    clock,
    config::{self, Mailbox as Settings},
    identity::Authenticator,
};

/// Deliveries of one mailbox that one hub has under way.
const MAX_DELIVERIES: usize = 32;

/// The webhook of a mailbox.
pub(super) struct Webhook {
    pub(super) url: Url,
    version: Version,
    push: Push,
    options: PushOptions,
    /// For an address that the operator has chosen; that of anybody else is guarded by the engine.
    egress: Option<Egress>,
    identity: Arc<Authenticator>,
    /// The places for deliveries.
    places: Arc<Semaphore>,
    /// The receiver fails or is paused: no turn is taken before this time.
    closed_until: AtomicI64,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("target", &self.origin()).finish_non_exhaustive()
    }
}

impl Webhook {
    /// The webhook of these settings, if they have one.
    pub(super) fn of(
        desired: &config::Agent,
        settings: &Settings,
        factory: &AgentFactory,
    ) -> Result<Option<Self>> {
        let Some(url) = settings.deliver_to.clone() else { return Ok(None) };
        let pushing = factory.pushing.as_ref().context(
            "deliver_to: webhooks are off; set push.enabled = true, or remove deliver_to and fetch the messages",
        )?;
        let (version, dialect) = settings.deliver_as.format();
        let mut options = pushing.options_of(desired)?;
        options.dialect = dialect;
        let egress = if settings.guarded {
            let refused = pushing.push.check_receiver(&url).err();
            ensure!(refused.is_none(), "deliver_to: {}", refused.unwrap_or_default());
            None
        } else {
            Some(Egress::builder().refuse_link_local(Vec::new()).build()?)
        };
        Ok(Some(Self {
            url,
            version,
            push: pushing.push.clone(),
            options,
            egress,
            identity: Arc::clone(&factory.identity),
            places: Arc::new(Semaphore::new(MAX_DELIVERIES)),
            closed_until: AtomicI64::new(0),
        }))
    }

    /// The address without its path, which may be secret.
    pub(super) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// The options of a delivery of this mailbox: it is signed with the secrets of the settings, and with the hash of
    /// the key of the mailbox, which the agent has.
    fn options(&self, mailbox: &str) -> PushOptions {
        let hashes = self.identity.mailbox_keys().hashes(mailbox, clock::now());
        let own = hashes.iter().filter_map(|hash| WebhookSecret::from_bytes(hash).ok()).collect::<Vec<_>>();
        let own = (!own.is_empty()).then(|| sign_by_secrets(own));
        let mut options = self.options.clone();
        options.sign = match (own, options.sign.take()) {
            (Some(own), Some(set)) => Some(both(own, set)),
            (own, set) => own.or(set),
        };
        options
    }
}

/// Signs with the secrets of both.
fn both(one: Sign, other: Sign) -> Sign {
    Arc::new(move |unsigned| {
        let signed: Vec<_> = [one(unsigned), other(unsigned)].into_iter().flatten().collect();
        (!signed.is_empty()).then(|| signed.join(" "))
    })
}
