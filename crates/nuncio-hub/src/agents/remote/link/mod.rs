//! The link to a remote agent: connections, credentials and bounds by its settings, the card that is known, and its
//! health as its answers show it.
//!
//! Reading order: this file, `card`, `probe` (health), `refusal` (what callers are told when it goes wrong).

pub(super) mod card;
pub(super) mod probe;
pub(super) mod refusal;

use std::{
    fs,
    net::IpAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use arc_swap::ArcSwapOption;
use nuncio_client::{
    CardCache, Client, ClientCredentials, Credentials, Egress, FOREIGN_HOST, FetchedCard, InterfaceHosts,
    RESUME_EXTENSION, RetryPolicy, Trust, TrustedKeys, was_not_sent,
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

use self::probe::{Condition, Probe};
use crate::config::{Auth, CardSource, Credential, Upstream};

/// What the client itself tries again: calls that reached nobody, safe calls, and streams. What takes longer is
/// followed by looking at the task.
const RETRY: RetryPolicy =
    RetryPolicy { retries: 2, base: Duration::from_millis(200), cap: Duration::from_secs(5) };

/// How long an extended card is shown before it is asked for again.
const KEEP_EXTENDED: Duration = Duration::from_secs(60);

/// The time to come back where nobody has said more.
pub(crate) const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The failures in a row that open the circuit of an agent, and for how long: callers are told at once, instead of
/// waiting for one more attempt that comes to nothing.
const BREAKER: BreakerPolicy =
    BreakerPolicy { failures: 5, pauses: Backoff::doubling(Duration::from_secs(2), Duration::from_secs(60)) };

/// The longest time that the others wait for the outcome of the call that tries.
const TRIAL: Duration = Duration::from_secs(10);

/// The way to one agent. Settings that change make a new one.
pub(crate) struct Link {
    /// What the agent is called here.
    name: Arc<str>,
    pub(crate) settings: Upstream,
    pub(crate) egress: Egress,
    pub(crate) credentials: Credentials,
    pub(crate) probe: Arc<Probe>,
    /// Cards as their answers say they may be kept.
    cards: CardCache,
    /// Whose signatures count.
    keys: TrustedKeys,
    connected: ArcSwapOption<Connected>,
    breaker: Mutex<Breaker<Instant>>,
    /// For calls, if there is a bound.
    calls: Option<CallerPool>,
    /// The card says that it streams, and it does not.
    refuses_streams: AtomicBool,
    /// The last call was not answered as it should, whatever the card looks like.
    calls_fail: AtomicBool,
}

/// An agent whose card is known.
pub(crate) struct Connected {
    pub(crate) client: Client,
    pub(crate) card: Arc<FetchedCard>,
    /// By the next version of its card, for an agent that does not speak what its card promises first.
    other: Option<Client>,
    switched: AtomicBool,
    /// The card for those who are known, and when it came. Held while it is fetched: the others wait for it.
    extended: tokio::sync::Mutex<Option<(Instant, AgentCard)>>,
}

impl Connected {
    /// What to talk to it with.
    pub(super) fn client(&self) -> &Client {
        self.other.as_ref().filter(|_| self.switched.load(Ordering::Relaxed)).unwrap_or(&self.client)
    }

    /// It does not speak the version that was tried; true if there is another one to try.
    pub(super) fn switch(&self) -> bool {
        self.other.is_some() && !self.switched.swap(true, Ordering::Relaxed)
    }

    /// True if a message may be repeated under its key.
    pub(super) fn knows_repeats(&self) -> bool {
        self.card.card.extension(RESUME_EXTENSION).is_some()
    }

    /// Its card for those who are known, as the hub is; asked for once in a while, however many want it.
    ///
    /// # Errors
    /// It cannot be had.
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
    /// Makes ready for calls; nobody is called yet.
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
        // The card may be elsewhere; the operator has named both.
        let credentials = credentials(&settings.auth)?.allow_origin(&settings.url);
        let mut keys = TrustedKeys::new();
        for file in &settings.trust.keys {
            let text = String::from_utf8_lossy(&read("trust.keys", file)?).into_owned();
            keys.extend(TrustedKeys::parse(&text).context("trust.keys: there is no key in the file")?);
        }
        if settings.trust.require && keys.is_empty() {
            bail!("signatures are required, but no key is trusted; name the keys");
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

    /// Uses this card from now on; false if it is the one that is used already.
    ///
    /// # Errors
    /// Its signature is not what the settings demand, it offers nothing that we speak, or that at a host where nobody
    /// has allowed it to be.
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

    /// Talks to the agent of this card, in this version if one is named.
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

    /// Says what to do about an interface that is at a foreign host.
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

    /// Says which interfaces are not used because of where they are.
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

    /// What the signatures of this card have to prove: nothing without keys; with keys, those that are there have
    /// to hold.
    fn trust(&self, card: &FetchedCard) -> Trust {
        let is_signed = card.json["signatures"].as_array().is_some_and(|signatures| !signatures.is_empty());
        if self.keys.is_empty() || !(is_signed || self.settings.trust.require) {
            return Trust::Ignore;
        }
        Trust::Require(self.keys.clone())
    }

    /// The agent, if its card is known.
    pub(crate) fn connected(&self) -> Option<Arc<Connected>> {
        self.connected.load_full()
    }

    /// May a message go out? Takes a place among those that do, which is held until it is done.
    ///
    /// # Errors
    /// `Unavailable` if the agent has not been reached for a while, `ResourceExhausted` if there is no place; both
    /// say when to come back.
    pub(crate) async fn admit(&self, caller: &Caller) -> CallResult<Option<CallerPermit>> {
        self.may_pass()?;
        let Some(calls) = &self.calls else { return Ok(None) };
        match timeout(self.settings.timeout, calls.acquire(&caller.into())).await {
            Ok(permit) => Ok(Some(permit)),
            Err(_) => {
                let error = Error::new(ErrorKind::ResourceExhausted, "the agent has as much to do as it may");
                Err(error.with_retry_after(DEFAULT_RETRY_AFTER))
            }
        }
    }

    /// The same for a call of any operation: what is no message needs no place, least of all a cancel.
    ///
    /// # Errors
    /// As for a message.
    pub(crate) async fn admit_call(&self, caller: &Caller, op: Op) -> CallResult<Option<CallerPermit>> {
        match op {
            Op::SendMessage | Op::SendStreamingMessage => self.admit(caller).await,
            _ => self.may_pass().map(|()| None),
        }
    }

    /// Refuses what would reach nobody.
    fn may_pass(&self) -> CallResult<()> {
        let now = Instant::now();
        self.breaker()
            .check(now, TRIAL)
            .map_err(|until| self.out_of_reach().with_retry_after((until - now).max(Duration::from_secs(1))))
    }

    /// What callers are told as long as nobody answers there.
    pub(crate) fn out_of_reach(&self) -> Error {
        let health = self.probe.health();
        refusal::out_of_reach(health.condition.reason().unwrap_or("it has not been heard of yet"))
    }

    /// Records the health that the outcome of a call shows; no error is an answer.
    pub(crate) fn record_outcome(&self, error: Option<&Error>) {
        let condition = self.condition(error);
        self.calls_fail.store(condition != Condition::Up, Ordering::Relaxed);
        self.saw(condition);
    }

    /// The same of an outcome as it is.
    pub(crate) fn learn<T>(&self, outcome: &CallResult<T>) {
        self.record_outcome(outcome.as_ref().err());
    }

    /// Records the health that a request for its card shows: it says little about calls that are not answered.
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
                // It has answered, and what it says is about the call.
                _ => Condition::Up,
            },
        };
        self.breaker().succeeded();
        condition
    }

    /// Notes how the agent is, and says so where it has changed.
    pub(crate) fn saw(&self, condition: Condition) {
        if !self.probe.saw(condition.clone()) {
            return;
        }
        let (agent, url) = (&*self.name, &self.shown());
        match condition {
            Condition::Up => tracing::info!(agent, url, "the agent answers"),
            Condition::Degraded(reason) => {
                tracing::warn!(agent, url, reason, "the agent does not answer as it should")
            }
            Condition::Down(reason) => tracing::warn!(agent, url, reason, "the agent cannot be reached"),
            Condition::Unknown => {}
        }
    }

    /// Where the agent is, for the log: what comes after the path may be secret.
    fn shown(&self) -> String {
        let url = &self.settings.url;
        format!("{}{}", url.origin().ascii_serialization(), url.path())
    }

    /// The agent has answered that it does not stream, whatever its card says.
    pub(super) fn note_no_streams(&self) {
        if !self.refuses_streams.swap(true, Ordering::Relaxed) {
            let (agent, url) = (&*self.name, self.shown());
            tracing::warn!(agent, url, "the card says that the agent streams, and it does not");
        }
    }

    /// True if the agent is worth asking for a stream.
    pub(super) fn streams(&self, connected: &Connected) -> bool {
        connected.client.card().capabilities.streaming == Some(true)
            && !self.refuses_streams.load(Ordering::Relaxed)
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker<Instant>> {
        self.breaker.lock()
    }
}

/// The hosts at which an agent may be called: those that the operator has named, and no other that its card names.
fn hosts(settings: &Upstream) -> InterfaceHosts {
    let mut hosts = InterfaceHosts::default().allow_url(&settings.url);
    if let Some(CardSource::Url(card)) = &settings.card {
        hosts = hosts.allow_url(card);
    }
    settings.allow_hosts.iter().fold(hosts, InterfaceHosts::allow)
}

/// The addresses among the hosts that the operator has allowed.
fn allowed_addresses(settings: &Upstream) -> Vec<IpAddr> {
    let address = |host: &Host| match host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(IpAddr::V4(*address)),
        Host::Ipv6(address) => Some(IpAddr::V6(*address)),
    };
    settings.allow_hosts.iter().filter_map(address).collect()
}

/// The way out to an agent, with what is said about TLS.
pub(crate) fn egress(settings: &Upstream) -> Result<Egress> {
    let auth = &settings.auth;
    let mut builder = Egress::builder().refuse_link_local(allowed_addresses(settings));
    for file in &auth.authorities {
        builder = builder.root_certificates(&read("auth.ca", file)?).context("auth.ca")?;
    }
    if let Some(identity) = &auth.identity {
        let cert = read("auth.client_cert", &identity.cert)?;
        let key = read("auth.client_key", &identity.key)?;
        builder = builder.client_identity(&cert, &key).context("auth.client_cert")?;
    }
    Ok(builder.build()?)
}

/// What we show to an agent.
pub(crate) fn credentials(auth: &Auth) -> Result<Credentials> {
    let mut credentials = Credentials::none();
    match &auth.credential {
        None => {}
        Some(Credential::Bearer(token)) => credentials = credentials.bearer(token.reveal())?,
        Some(Credential::Basic { user, password }) => {
            credentials = credentials.basic(user, password.reveal())?
        }
        Some(Credential::OAuth2(oauth)) => {
            let secret = oauth.client_secret.reveal();
            let mut client = ClientCredentials::new(oauth.token_url.as_str(), &oauth.client_id, secret)?;
            if !oauth.scopes.is_empty() {
                client = client.scope(oauth.scopes.join(" "));
            }
            if let Some(audience) = &oauth.audience {
                client = client.audience(audience);
            }
            credentials = credentials.client_credentials(client);
        }
    }
    for (name, value) in &auth.headers {
        credentials = credentials.header(name.as_str(), value.reveal())?;
    }
    Ok(credentials)
}

/// Reads the file that a key of the settings names. An error says the key: what it names may be a secret that was
/// put in the wrong place.
fn read(key: &str, file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("{key}: the file cannot be read"))
}
