//! The link to a remote agent: connections, credentials and limits from its settings, the current card, and
//! the agent's health as its answers show it.
//!
//! Reading order: this file, `card`, `refusal` (errors for callers).

pub(super) mod card;
pub(super) mod refusal;

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use arc_swap::ArcSwapOption;
use nuncio_client::{
    CardCache, Client, Credentials, Egress, FOREIGN_HOST, FetchedCard, InterfaceHosts, RESUME_EXTENSION,
    RetryPolicy, Trust, TrustedKeys, was_not_sent,
};
use nuncio_protocol::{
    AgentCard, CallContext, Caller, Error, ErrorKind, Result as CallResult, Version,
    op::Op,
    retry::{Backoff, Breaker, BreakerPolicy},
};
use nuncio_server::{CallerPermit, CallerPool, CallerShare};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout};
use url::Host;

use crate::{
    agents::{
        probe::{Condition, Probe},
        upstream_auth::{self, credentials, read},
    },
    config::{CardSource, Upstream},
    fleet::UpstreamAccess,
};

/// Retries by the client itself: calls that were not sent, safe calls, and streams. Longer outages are
/// handled by polling the task.
const RETRY: RetryPolicy =
    RetryPolicy { retries: 2, base: Duration::from_millis(200), cap: Duration::from_secs(5) };

/// Time for which an extended card is cached.
const KEEP_EXTENDED: Duration = Duration::from_secs(60);

/// Retry-after of errors for which the agent gave none.
pub(crate) const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Consecutive failures that open the breaker of an agent, and its pauses: calls are refused at once
/// instead of waiting for an attempt that is likely to fail.
const BREAKER: BreakerPolicy =
    BreakerPolicy { failures: 5, pauses: Backoff::doubling(Duration::from_secs(2), Duration::from_secs(60)) };

/// Maximum time for which other calls wait for the outcome of a trial call.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The connection to one agent. A change of its settings makes a new link.
pub(crate) struct Link {
    /// The agent's name on this hub.
    name: Arc<str>,
    pub(crate) settings: Upstream,
    pub(crate) egress: Egress,
    pub(crate) credentials: Credentials,
    pub(crate) probe: Arc<Probe>,
    /// Cards, cached as their HTTP headers allow.
    cards: CardCache,
    /// Keys of trusted card signatures.
    keys: TrustedKeys,
    connected: ArcSwapOption<Connected>,
    breaker: Mutex<Breaker<Instant>>,
    /// Permits for calls, if there is a limit.
    calls: Option<CallerPool>,
    /// The agent has refused to stream, although its card declares streaming.
    refuses_streams: AtomicBool,
    /// The last call failed, even if the card can be fetched.
    calls_fail: AtomicBool,
}

/// An agent with a known card.
pub(crate) struct Connected {
    pub(crate) client: Client,
    pub(crate) card: Arc<FetchedCard>,
    /// A client for the next version of the card, for an agent that refuses the first one.
    other: Option<Client>,
    switched: AtomicBool,
    /// The extended card and the time of its fetch. Locked during a fetch, so that concurrent callers share
    /// one request.
    extended: tokio::sync::Mutex<Option<(Instant, AgentCard)>>,
}

impl Connected {
    /// The client to use now.
    pub(super) fn client(&self) -> &Client {
        self.other.as_ref().filter(|_| self.switched.load(Ordering::Relaxed)).unwrap_or(&self.client)
    }

    /// Switches to the other version; false if there is none, or it is used already.
    pub(super) fn switch(&self) -> bool {
        self.other.is_some() && !self.switched.swap(true, Ordering::Relaxed)
    }

    /// True if a message may be repeated under its idempotency key.
    pub(super) fn knows_repeats(&self) -> bool {
        self.card.card.extension(RESUME_EXTENSION).is_some()
    }

    /// The extended card, fetched with the hub's credentials and cached for [`KEEP_EXTENDED`].
    ///
    /// # Errors
    /// The card cannot be fetched.
    pub(super) async fn extended_card(&self, patience: Duration) -> CallResult<AgentCard> {
        let mut kept = self.extended.lock().await;
        if let Some((_, card)) = kept.as_ref().filter(|(at, _)| at.elapsed() < KEEP_EXTENDED) {
            return Ok(card.clone());
        }
        let client = self.client();
        let deadline = Some((Instant::now() + patience).into_std());
        let cx = CallContext { deadline, ..client.context() };
        let card = client.service().get_extended_agent_card(&cx, Default::default()).await?;
        *kept = Some((Instant::now(), card.clone()));
        Ok(card)
    }
}

impl Link {
    /// Prepares connections and credentials. Makes no call.
    ///
    /// # Errors
    /// A file of the settings cannot be read, or a setting is wrong.
    pub(crate) fn open(
        name: &str,
        settings: Upstream,
        probe: Arc<Probe>,
        share: CallerShare,
    ) -> Result<Self> {
        let egress = egress(&settings)?;
        // The card may be on another origin; the operator has configured both.
        let credentials = credentials(&settings.auth)?.allow_origin(&settings.url);
        let mut keys = TrustedKeys::new();
        for file in &settings.trust.keys {
            let text = String::from_utf8_lossy(&read("trust.keys", file)?).into_owned();
            keys.extend(TrustedKeys::parse(&text).context("trust.keys: there is no key in the file")?);
        }
        if settings.trust.require && keys.is_empty() {
            bail!("signatures are required, but no key is trusted; set trust.keys");
        }
        let calls = settings.max_concurrent.map(|most| CallerPool::new(most, share));
        Ok(Self {
            name: name.into(),
            egress,
            credentials,
            probe,
            cards: CardCache::new(),
            keys,
            connected: ArcSwapOption::empty(),
            breaker: Mutex::new(Breaker::new(BREAKER)),
            calls,
            refuses_streams: AtomicBool::new(false),
            calls_fail: AtomicBool::new(false),
            settings,
        })
    }

    /// Uses this card from now on; false if it is in use already.
    ///
    /// # Errors
    /// The signature does not satisfy the settings, the card has no interface that we support, or its
    /// interfaces are on hosts that the operator has not allowed.
    pub(crate) fn connect(&self, card: Arc<FetchedCard>) -> CallResult<bool> {
        if self
            .connected
            .load()
            .as_ref()
            .is_some_and(|now| now.card.json == card.json && now.card.url == card.url)
        {
            return Ok(false);
        }
        let client = self.client(&card, self.settings.version)?;
        let next = client
            .candidates()
            .iter()
            .map(|candidate| candidate.version)
            .find(|next| *next != client.version());
        let other = next.map(|version| self.client(&card, Some(version))).transpose()?;
        self.warn_of_foreign(&client, &card);
        let connected =
            Connected { client, card, other, switched: AtomicBool::new(false), extended: Default::default() };
        self.connected.store(Some(Arc::new(connected)));
        self.refuses_streams.store(false, Ordering::Relaxed);
        Ok(true)
    }

    /// A client for the agent of this card, in the given version, if any.
    fn client(&self, card: &Arc<FetchedCard>, version: Option<Version>) -> CallResult<Client> {
        let mut builder = Client::builder()
            .egress(self.egress.clone())
            .credentials(self.credentials.clone())
            .interface_hosts(hosts(&self.settings))
            .file_bytes(self.settings.file_bytes)
            .retry(RETRY)
            .trust(self.trust(card));
        if let Some(version) = version {
            builder = builder.version(version);
        }
        if let Some(binding) = self.settings.binding {
            builder = builder.binding(binding);
        }
        builder.with_card(Arc::clone(card)).map_err(|error| self.explained(error))
    }

    /// Adds the remedy to an error about an interface on another host.
    fn explained(&self, error: Error) -> Error {
        let Some(host) = error.metadata().get(FOREIGN_HOST) else { return error };
        let name = &*self.name;
        let why = format!(
            "{}; if calls may go there, add allow_hosts = [\"{host}\"] to [agents.{name}], or --agent-allow-host \
             {name}={host}",
            error.message()
        );
        Error::new(error.kind(), why)
    }

    /// Logs the interfaces that are not used because of their host.
    fn warn_of_foreign(&self, client: &Client, card: &FetchedCard) {
        let hosts = hosts(&self.settings);
        for interface in &client.card().supported_interfaces {
            let Some(binding) = interface.binding() else { continue };
            if let Err(error) =
                hosts.judge(interface, binding, &card.url).map_err(|error| self.explained(error))
            {
                tracing::warn!(agent = &*self.name, %error, "an interface of an agent is not used");
            }
        }
    }

    /// The required proof for the signatures of this card: none without trusted keys. With keys, signatures
    /// have to be valid if they exist or are required.
    fn trust(&self, card: &FetchedCard) -> Trust {
        let is_signed = card.json["signatures"].as_array().is_some_and(|signatures| !signatures.is_empty());
        if self.keys.is_empty() || !(is_signed || self.settings.trust.require) {
            return Trust::Ignore;
        }
        Trust::Require(self.keys.clone())
    }

    /// The means to call the agent as this link does.
    pub(crate) fn access(&self) -> UpstreamAccess {
        let url = match &self.settings.card {
            Some(CardSource::Url(card)) => card,
            Some(CardSource::File(_)) | None => &self.settings.url,
        };
        UpstreamAccess {
            url: url.clone(),
            egress: self.egress.clone(),
            credentials: self.credentials.clone(),
            hosts: hosts(&self.settings),
        }
    }

    /// The agent, if its card is known.
    pub(crate) fn connected(&self) -> Option<Arc<Connected>> {
        self.connected.load_full()
    }

    /// Admits a message: checks the breaker and acquires a permit, if there is a limit. The permit is held
    /// until the message is done.
    ///
    /// # Errors
    /// `Unavailable` while the breaker is open, `ResourceExhausted` without a free permit; both have a
    /// retry-after.
    pub(crate) async fn admit(&self, caller: &Caller) -> CallResult<Option<CallerPermit>> {
        self.may_pass()?;
        let Some(calls) = &self.calls else { return Ok(None) };
        match timeout(self.settings.timeout, calls.acquire(&caller.into())).await {
            Ok(permit) => Ok(Some(permit)),
            Err(_) => {
                let error = Error::new(
                    ErrorKind::ResourceExhausted,
                    "the agent is at its limit of concurrent messages; retry later",
                );
                Err(error.with_retry_after(DEFAULT_RETRY_AFTER))
            }
        }
    }

    /// Admits a call of any operation. Only messages need a permit, so that a cancel never waits for one.
    ///
    /// # Errors
    /// As for [`Self::admit`].
    pub(crate) async fn admit_call(&self, caller: &Caller, op: Op) -> CallResult<Option<CallerPermit>> {
        match op {
            Op::SendMessage | Op::SendStreamingMessage => self.admit(caller).await,
            _ => self.may_pass().map(|()| None),
        }
    }

    /// Refuses calls while the breaker is open.
    fn may_pass(&self) -> CallResult<()> {
        let now = Instant::now();
        self.breaker()
            .check(now, TRIAL_TIMEOUT)
            .map_err(|until| self.out_of_reach().with_retry_after((until - now).max(Duration::from_secs(1))))
    }

    /// The error for callers while the agent cannot be reached.
    pub(crate) fn out_of_reach(&self) -> Error {
        let health = self.probe.health();
        refusal::out_of_reach(health.condition.reason().unwrap_or("it has not been contacted yet"))
    }

    /// Records the health that the outcome of a call shows; `None` is a success.
    pub(crate) fn record_outcome(&self, error: Option<&Error>) {
        let condition = self.condition(error);
        self.calls_fail.store(condition != Condition::Up, Ordering::Relaxed);
        self.saw(condition);
    }

    /// Like [`Self::record_outcome`], for a result.
    pub(crate) fn learn<T>(&self, outcome: &CallResult<T>) {
        self.record_outcome(outcome.as_ref().err());
    }

    /// Records the health that a fetch of the card shows. A fetched card does not override failing calls.
    pub(super) fn record_card_outcome<T>(&self, outcome: &CallResult<T>) {
        let condition = self.condition(outcome.as_ref().err());
        if condition != Condition::Up || !self.calls_fail.load(Ordering::Relaxed) {
            self.saw(condition);
        }
    }

    fn condition(&self, error: Option<&Error>) -> Condition {
        let condition = match error {
            None => Condition::Up,
            Some(error) if was_not_sent(error) => {
                self.breaker().failed(Instant::now());
                return Condition::Down(error.message().to_owned());
            }
            Some(error) => match error.kind() {
                ErrorKind::Unavailable
                | ErrorKind::DeadlineExceeded
                | ErrorKind::InvalidAgentResponse
                | ErrorKind::Unauthenticated
                | ErrorKind::PermissionDenied => Condition::Degraded(error.message().to_owned()),
                // The agent has answered, and the error is about the call.
                _ => Condition::Up,
            },
        };
        self.breaker().succeeded();
        self.probe.answered();
        condition
    }

    /// Stores the condition of the agent, and logs a change.
    pub(crate) fn saw(&self, condition: Condition) {
        if !self.probe.saw(condition.clone()) {
            return;
        }
        let (agent, url) = (&*self.name, &self.shown());
        match condition {
            Condition::Up => tracing::info!(agent, url, "the agent answers"),
            Condition::Degraded(reason) => {
                tracing::warn!(agent, url, reason, "the agent answers with errors")
            }
            Condition::Down(reason) => tracing::warn!(agent, url, reason, "the agent cannot be reached"),
            Condition::Unknown => {}
        }
    }

    /// The agent's URL for the log, without the query, which may be secret.
    fn shown(&self) -> String {
        let url = &self.settings.url;
        format!("{}{}", url.origin().ascii_serialization(), url.path())
    }

    /// Remembers that the agent does not stream, although its card declares it.
    pub(super) fn note_no_streams(&self) {
        if !self.refuses_streams.swap(true, Ordering::Relaxed) {
            let (agent, url) = (&*self.name, self.shown());
            tracing::warn!(agent, url, "the agent refuses to stream, although its card declares streaming");
        }
    }

    /// True if the agent should be asked for a stream.
    pub(super) fn streams(&self, connected: &Connected) -> bool {
        connected.client.card().capabilities.streaming == Some(true)
            && !self.refuses_streams.load(Ordering::Relaxed)
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker<Instant>> {
        self.breaker.lock()
    }
}

/// The hosts where an agent may be called: those that the operator has configured; a card cannot add one.
fn hosts(settings: &Upstream) -> InterfaceHosts {
    let mut hosts = InterfaceHosts::default().allow_url(&settings.url);
    if let Some(CardSource::Url(card)) = &settings.card {
        hosts = hosts.allow_url(card);
    }
    settings.allow_hosts.iter().fold(hosts, InterfaceHosts::allow)
}

/// The IP addresses among the allowed hosts.
fn allowed_addresses(settings: &Upstream) -> Vec<IpAddr> {
    let address = |host: &Host| match host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(IpAddr::V4(*address)),
        Host::Ipv6(address) => Some(IpAddr::V6(*address)),
    };
    settings.allow_hosts.iter().filter_map(address).collect()
}

/// The egress for an agent, with its TLS settings.
pub(crate) fn egress(settings: &Upstream) -> Result<Egress> {
    upstream_auth::egress(&settings.auth, allowed_addresses(settings))
}
