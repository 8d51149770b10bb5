//! Authentication: finds the caller of a request by its credential, and the agents and operations it may use.
//!
//! | caller | credential | principal |
//! |---|---|---|
//! | has an API key | `Authorization: Bearer KEY` or `X-API-Key: KEY` | the key's principal |
//! | has a token (JWT) | `Authorization: Bearer TOKEN` | `ISSUER#NAME` |
//! | anonymous, where allowed | none | none |
//!
//! Reading order: this file decides and `layer` applies the decision to requests. API keys are in `text`,
//! `key` and `keyring`, tokens in `jwt` and `issuer`. `auth_throttle` counts wrong credentials, `caller_id`
//! identifies callers for limits, `access` has the agents that a caller may use, `credential_expiry` ends
//! streams, `worker` has the keys of mailboxes, and `declare` writes the security schemes of cards.

mod layer;

mod worker;

mod text;

mod key;

mod keyring;

mod jwt;

mod issuer;

mod auth_throttle;

mod caller_id;

mod access;

mod credential_expiry;

mod declare;

use std::{collections::HashMap, convert::Infallible, net::IpAddr, sync::Arc, time::Duration};

use anyhow::Result;
use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, Uri, header};
use nuncio_client::Egress;
use nuncio_protocol::{AgentCard, Caller, SecurityScheme};
use nuncio_server::store::Store;
use tokio::{sync::watch, time::Instant};

pub(crate) use self::text::invitation_prefix;
pub(crate) use self::{
    access::Access,
    caller_id::CallerId,
    declare::retain_schemes_of_skills,
    layer::{Judge, Unjudged, identify, refuse_with},
    worker::{Invited, WorkerRefusal, for_this_worker},
};
use self::{
    access::Witness, auth_throttle::AuthThrottle, credential_expiry::CredentialExpiry, issuer::TrustedIssuer,
};
pub use self::{
    key::{ApiKey, ApiKeyLimits, NewApiKey},
    keyring::{Keyring, KeyringError},
    text::{KeyText, key_prefix},
};
use crate::{
    clock,
    config::{self, Anonymous, Cards},
    listen::Peer,
    trail::{Row, Trail, What},
};

/// The header for an API key besides `Authorization`.
const API_KEY: &str = "X-API-Key";
/// The refusal of credentials by a hub that knows none.
const NO_CREDENTIALS: &str =
    "there is no such key: this hub has no keys and no token issuers; call it without credentials";
/// Interval at which the keys of issuers are checked for age.
const ISSUER_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Authenticates callers.
pub(crate) struct Authenticator {
    settings: ArcSwap<Settings>,
    keyring: Arc<Keyring>,
    /// The keys of mailboxes.
    mailbox_keys: Arc<Keyring>,
    /// The invitations that were not redeemed.
    invitations: Arc<Keyring>,
    throttle: AuthThrottle,
    trail: Trail,
    egress: Egress,
    /// The hub listens on loopback only. (A proxy on this machine may still let in other callers.)
    on_loopback: bool,
    /// Counts changes of the settings.
    configured: watch::Sender<u64>,
}

struct Settings {
    anonymous: Anonymous,
    cards: Cards,
    issuers: Vec<Arc<TrustedIssuer>>,
}

/// A caller that is authenticated or may be anonymous.
struct KnownCaller {
    caller: Caller,
    access: Access,
    expiry: CredentialExpiry,
}

/// The reason why a request is refused.
enum AuthRefusal {
    /// The request has no credential.
    Missing,
    /// The request has no credential; only callers on this machine need none, and this one is on another.
    Foreign,
    /// The credential is wrong, expired or revoked.
    Invalid(&'static str),
    /// The credential is the valid key of this mailbox, which calls no agent.
    MailboxKey(String),
    /// Too many wrong credentials came from this address; for this long it gets no other reason.
    TooMany(Duration),
    /// The credential cannot be verified now.
    Unavailable,
}

impl Authenticator {
    /// Loads the API keys from the store.
    pub(crate) async fn open(
        config: &config::Identity,
        store: &Arc<dyn Store>,
        trail: Trail,
        on_loopback: bool,
    ) -> Result<Arc<Self>> {
        let egress = Egress::operator()?;
        let keyring = Arc::new(Keyring::open(Arc::clone(store)).await?);
        let mailbox_keys = Arc::new(Keyring::open_mailboxes(Arc::clone(store)).await?);
        let invitations = Arc::new(Keyring::open_invitations(Arc::clone(store)).await?);
        let settings = ArcSwap::from_pointee(Settings::new(config, &[], &egress)?);
        let (throttle, configured) = Default::default();
        Ok(Arc::new(Self {
            settings,
            keyring,
            mailbox_keys,
            invitations,
            throttle,
            trail,
            egress,
            on_loopback,
            configured,
        }))
    }

    /// Replaces the settings. An issuer with unchanged settings is kept with its fetched keys; streams that
    /// were opened with tokens of a removed or changed issuer end.
    pub(crate) fn configure(&self, config: &config::Identity) -> Result<()> {
        let settings = Arc::new(Settings::new(config, &self.settings.load().issuers, &self.egress)?);
        let before = self.settings.swap(Arc::clone(&settings));
        let stays = |issuer: &Arc<TrustedIssuer>| settings.issuers.iter().any(|now| Arc::ptr_eq(now, issuer));
        before.issuers.iter().filter(|issuer| !stays(issuer)).for_each(|issuer| issuer.ended.cancel());
        self.configured.send_modify(|changes| *changes += 1);
        Ok(())
    }

    pub(crate) fn keyring(&self) -> &Arc<Keyring> {
        &self.keyring
    }

    /// The keys of mailboxes, each named after its mailbox.
    pub(crate) fn mailbox_keys(&self) -> &Arc<Keyring> {
        &self.mailbox_keys
    }

    /// The invitations, each named after the mailbox that it becomes.
    pub(crate) fn invitations(&self) -> &Arc<Keyring> {
        &self.invitations
    }

    pub(crate) fn trail(&self) -> &Trail {
        &self.trail
    }

    /// True if no caller, or no caller on this machine, needs a credential.
    fn allows_anonymous(&self) -> bool {
        match self.settings.load().anonymous {
            Anonymous::Always => true,
            Anonymous::Never => false,
            Anonymous::Loopback => self.on_loopback && !self.has_any(),
        }
    }

    /// True if every caller needs a credential.
    pub(crate) fn is_closed(&self) -> bool {
        !self.allows_anonymous()
    }

    /// Access to the cards of visible agents.
    pub(crate) fn cards(&self) -> Cards {
        self.settings.load().cards
    }

    /// Admits a request that has no credential, where that is allowed.
    fn admit_anonymous(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<KnownCaller, AuthRefusal> {
        if !self.allows_anonymous() {
            return Err(AuthRefusal::Missing);
        }
        let is_for_all = self.settings.load().anonymous == Anonymous::Always;
        if is_for_all || peer.is_local(uri, headers) {
            Ok(KnownCaller::anonymous())
        } else {
            Err(AuthRefusal::Foreign)
        }
    }

    /// True if there are API keys or issuers, so that a credential can mean something.
    pub(crate) fn has_any(&self) -> bool {
        !self.settings.load().issuers.is_empty() || self.keyring.has_any()
    }

    /// The security schemes of which a caller must satisfy one; empty if anonymous callers are allowed.
    pub(crate) fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        if self.allows_anonymous() { Vec::new() } else { self.known_schemes() }
    }

    /// The security schemes by which callers can say who they are.
    pub(crate) fn known_schemes(&self) -> Vec<(String, SecurityScheme)> {
        declare::schemes(self.settings.load().issuers.iter().map(|issuer| &**issuer))
    }

    /// Writes the security schemes and requirements of this hub on a card. An agent that `asks` for consent needs to
    /// know its callers, also where the hub does not.
    pub(crate) fn declare(&self, card: &mut AgentCard, asks: bool) {
        declare::declare(card, if asks { self.known_schemes() } else { self.schemes() });
    }

    /// A subscription to changes of security schemes (which cards show) and of the limits of keys.
    pub(crate) fn changes(&self) -> IdentityChanges {
        IdentityChanges { keys: self.keyring.changes(), settings: self.configured.subscribe() }
    }

    /// The limits of keys that have their own, by caller.
    pub(crate) fn limits(&self) -> HashMap<CallerId, ApiKeyLimits> {
        let keys = self.keyring.list().into_iter().map(|(key, _)| key);
        keys.filter(|key| !key.limits.is_empty()).map(|key| (CallerId::from(&key), key.limits)).collect()
    }

    /// Keeps API keys and issuers' keys current for as long as it is polled.
    pub(crate) async fn work(&self) -> Infallible {
        let issuers = async {
            let mut looks = tokio::time::interval(ISSUER_CHECK_INTERVAL);
            loop {
                looks.tick().await;
                let issuers = self.settings.load().issuers.clone();
                futures_util::future::join_all(issuers.iter().map(|issuer| issuer.keep_fresh())).await;
            }
        };
        tokio::select! {
            never = self.keyring.follow() => never,
            never = self.mailbox_keys.follow() => never,
            never = self.invitations.follow() => never,
            never = issuers => never,
        }
    }

    /// Stores the last-used times that are not stored yet.
    pub(crate) async fn close(&self) {
        self.keyring.note_use().await;
        self.mailbox_keys.note_use().await;
    }

    /// Identifies the caller. Credentials are always verified, unless they are for the agent (`is_for_agent`) and could be
    /// for no one else.
    async fn find(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        peer: &Peer,
        is_for_agent: impl FnOnce() -> bool,
    ) -> Result<KnownCaller, AuthRefusal> {
        let shown = shown(headers);
        let has_none = || !self.has_any() && self.allows_anonymous();
        if matches!(shown, PresentedCredential::Nothing) || (has_none() && is_for_agent()) {
            return self.admit_anonymous(uri, headers, peer);
        }
        let found = match shown {
            PresentedCredential::Text(text) => self.judge(text, peer.address).await,
            PresentedCredential::Nothing | PresentedCredential::Wrong => {
                Err(AuthRefusal::Invalid("expected an API key or a bearer token"))
            }
        };
        match found {
            Err(AuthRefusal::Invalid(why)) => {
                let why = if self.has_any() { why } else { NO_CREDENTIALS };
                Err(self.refuse(why, peer.address))
            }
            Err(AuthRefusal::MailboxKey(mailbox)) => {
                let detail = Some(format!("the key of the mailbox {mailbox} calls no agent"));
                self.trail.note(Row {
                    peer: Some(peer.address),
                    detail,
                    ..Row::of(What::CredentialsRefused)
                });
                Err(AuthRefusal::MailboxKey(mailbox))
            }
            found => found,
        }
    }

    /// Counts wrong credentials. Only they are throttled: a valid one passes even if others at the same
    /// address fail.
    fn refuse(&self, why: &'static str, peer: IpAddr) -> AuthRefusal {
        let now = Instant::now();
        if let Some(wait) = self.throttle.wait(peer, now) {
            self.trail.note(Row { peer: Some(peer), ..Row::of(What::AttemptsLimited) });
            return AuthRefusal::TooMany(wait);
        }
        self.throttle.failed(peer, now);
        let detail = Some(why.to_owned());
        self.trail.note(Row { peer: Some(peer), detail, ..Row::of(What::CredentialsRefused) });
        AuthRefusal::Invalid(why)
    }

    async fn judge(&self, text: &str, peer: IpAddr) -> Result<KnownCaller, AuthRefusal> {
        if text::is_key(text) {
            let given = text::read(text).ok_or(AuthRefusal::Invalid("the key is mistyped or cut off"))?;
            let now = clock::now();
            // Only the holder of a valid key of a mailbox learns of it.
            let refused = |why| match self.mailbox_keys.look_up(&given, now) {
                Ok(entry) => AuthRefusal::MailboxKey(entry.name().to_owned()),
                Err(_) => AuthRefusal::Invalid(why),
            };
            let entry = self.keyring.find(&given, now).map_err(refused)?;
            let access = self.access(&entry.caller, entry.agents.clone(), Some(entry.id()), peer);
            let (keyring, id) = (Arc::clone(&self.keyring), entry.id().to_owned());
            let expiry = CredentialExpiry::Key { keyring, id, hash: given.hash };
            return Ok(KnownCaller { caller: entry.caller.clone(), access, expiry });
        }
        let issuers = self.settings.load().issuers.clone();
        if issuers.is_empty() || !jwt::is_token(text) {
            return Err(AuthRefusal::Invalid("there is no such key"));
        }
        // Boxed: calls with an API key, or without a credential, do not pay for the size of this future.
        match Box::pin(jwt::verify(text, &issuers)).await {
            Ok(jwt::Bearer { caller, agents, until, issuer }) => {
                let access = self.access(&caller, agents, None, peer);
                Ok(KnownCaller { caller, access, expiry: CredentialExpiry::Token { at: until, issuer } })
            }
            Err(jwt::TokenRefusal::Invalid(why)) => Err(AuthRefusal::Invalid(why)),
            Err(jwt::TokenRefusal::Unreachable) => Err(AuthRefusal::Unavailable),
        }
    }

    fn access(
        &self,
        caller: &Caller,
        agents: Option<Arc<[String]>>,
        key: Option<&str>,
        peer: IpAddr,
    ) -> Access {
        let witness = Witness {
            trail: self.trail.clone(),
            principal: caller.principal().cloned(),
            key: key.map(str::to_owned),
            peer,
        };
        Access::to(agents, witness)
    }
}

impl Settings {
    fn new(config: &config::Identity, before: &[Arc<TrustedIssuer>], egress: &Egress) -> Result<Self> {
        let issuer = |settings: &config::Issuer| match before.iter().find(|known| known.settings == *settings)
        {
            Some(known) => Ok(Arc::clone(known)),
            None => TrustedIssuer::new(settings.clone(), egress).map(Arc::new),
        };
        let issuers = config.jwt.iter().map(issuer).collect::<Result<_>>()?;
        Ok(Self { anonymous: config.anonymous, cards: config.cards, issuers })
    }
}

impl KnownCaller {
    fn anonymous() -> Self {
        Self { caller: Caller::anonymous(), access: Access::all(), expiry: CredentialExpiry::Never }
    }
}

/// The headers by which a request shows credentials.
pub(crate) fn credential_headers(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let all = [header::AUTHORIZATION, HeaderName::from_static("x-api-key")];
    all.into_iter().filter(|name| headers.contains_key(name))
}

/// The credential of a request, unchecked.
enum PresentedCredential<'a> {
    Nothing,
    Text(&'a str),
    /// A header that holds neither a key nor a token, or two that differ.
    Wrong,
}

fn shown(headers: &HeaderMap) -> PresentedCredential<'_> {
    let mut texts = headers.get_all(header::AUTHORIZATION).iter().map(|value| {
        let (scheme, text) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| text.trim())
    });
    let mut keys = headers.get_all(API_KEY).iter().map(|value| value.to_str().ok().map(str::trim));
    let Some(first) = texts.next().or_else(|| keys.next()) else { return PresentedCredential::Nothing };
    // If two differ, it is ambiguous which one is meant.
    match first {
        Some(text) if texts.chain(keys).all(|other| other == Some(text)) => PresentedCredential::Text(text),
        _ => PresentedCredential::Wrong,
    }
}

/// A subscription to changes of security schemes or limits.
pub(crate) struct IdentityChanges {
    keys: watch::Receiver<u64>,
    settings: watch::Receiver<u64>,
}

impl IdentityChanges {
    /// Returns after the next change.
    pub(crate) async fn next(&mut self) {
        // An error means that the identity is gone, and then no caller of `next` is left.
        tokio::select! {
            _ = self.keys.changed() => {}
            _ = self.settings.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests;
