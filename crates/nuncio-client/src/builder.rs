//! The builder of a [`Client`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nuncio_protocol::{AgentCard, Binding, Error, FileBytes, Interceptor, Interceptors, Result, Version};

use crate::{
    CardCache, Client, ClientCredentials, Credentials, Egress, FetchedCard, InterfaceHosts, Preferences,
    RESUME_EXTENSION, Retry, RetryPolicy, Trust,
    card::discover::{agent_url, discover},
    choose::{Candidate, choose},
    client::Shared,
    failure::Failure,
    retry::OnRetry,
    transport::{Transport, route::Route, wire, within},
};

/// Timeout of calls that are answered at once, and of fetching the card.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of sends, which wait for the agent's work: longer than the ten minutes after which a Nuncio
/// server answers with the task in progress.
const DEFAULT_SEND_TIMEOUT: Duration = Duration::from_secs(11 * 60);

/// Options of a [`Client`].
///
/// ```no_run
/// use nuncio_client::{Client, protocol::Version};
///
/// # async fn run() -> nuncio_client::protocol::Result<()> {
/// let client = Client::builder().version(Version::V1_0).bearer("token").connect("agent.example").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    preferences: Preferences,
    /// `None` allows any host.
    hosts: Option<InterfaceHosts>,
    credentials: Credentials,
    /// The first wrong setting. It is reported by `connect`, so that setters need no result.
    mistake: Option<Error>,
    egress: Option<Egress>,
    cache: Option<Arc<CardCache>>,
    trust: Trust,
    files: FileBytes,
    retry: RetryPolicy,
    on_retry: OnRetry,
    extensions: Vec<String>,
    interceptors: Interceptors,
    timeout: Duration,
    send_timeout: Duration,
}

/// Connecting: with the defaults, or with options.
impl Client {
    /// Fetches the card of the agent at this URL and selects the first supported interface. The URL is the
    /// agent's or its card's.
    ///
    /// # Errors
    /// There is no card, or it has no supported interface.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// A builder for options such as credentials or a pinned version.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl ClientBuilder {
    /// A builder without credentials, for any version, with default timeouts.
    pub fn new() -> Self {
        Self {
            preferences: Preferences::default(),
            hosts: None,
            credentials: Credentials::none(),
            mistake: None,
            egress: None,
            cache: None,
            trust: Trust::Ignore,
            files: FileBytes::default(),
            retry: RetryPolicy::default(),
            on_retry: OnRetry::default(),
            extensions: Vec::new(),
            interceptors: Interceptors::default(),
            timeout: DEFAULT_TIMEOUT,
            send_timeout: DEFAULT_SEND_TIMEOUT,
        }
    }

    /// Uses only this version; it is an error if the agent does not support it.
    pub fn version(mut self, version: Version) -> Self {
        self.preferences.versions = vec![version];
        self
    }

    /// Uses only this binding.
    pub fn binding(mut self, binding: Binding) -> Self {
        self.preferences.bindings = vec![binding];
        self
    }

    /// Uses one of these bindings. Their order has no meaning: among the supported interfaces, the order of
    /// the card decides. To require one binding, see [`Self::binding`].
    pub fn bindings(mut self, bindings: impl IntoIterator<Item = Binding>) -> Self {
        self.preferences.bindings = bindings.into_iter().collect();
        self
    }

    /// Uses only interfaces on these hosts (default: any host of the card). It is an error if no interface
    /// is left.
    pub fn interface_hosts(mut self, hosts: InterfaceHosts) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// Sets all credentials, with their allowed origins.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// Sends `Authorization: Bearer …`.
    pub fn bearer(self, token: &str) -> Self {
        self.with(|credentials| credentials.bearer(token))
    }

    /// Sends `Authorization: Basic …`.
    pub fn basic(self, user: &str, password: &str) -> Self {
        self.with(|credentials| credentials.basic(user, password))
    }

    /// Sends an API key in a header of this name.
    pub fn api_key(self, header: &str, key: &str) -> Self {
        self.with(|credentials| credentials.api_key(header, key))
    }

    /// Sends an API key in a cookie of this name.
    pub fn api_key_cookie(self, name: &str, key: &str) -> Self {
        self.with(|credentials| credentials.api_key_cookie(name, key))
    }

    /// Sends `Authorization: Bearer …` with access tokens by OAuth 2.0 client credentials.
    pub fn client_credentials(self, client: ClientCredentials) -> Self {
        self.with(|credentials| Ok(credentials.client_credentials(client)))
    }

    /// Sends a header with every request, to the same origins as credentials.
    pub fn header(self, name: &str, value: &str) -> Self {
        self.with(|credentials| credentials.header(name, value))
    }

    /// Also sends credentials and headers to the origin of this URL, if the card has interfaces there.
    pub fn allow_origin(self, url: &str) -> Self {
        self.with(|credentials| Ok(credentials.allow_origin(&agent_url(url)?)))
    }

    /// Declares these extensions on every call.
    pub fn extensions(mut self, uris: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.extensions.extend(uris.into_iter().map(Into::into));
        self
    }

    /// Adds an interceptor around every call, inside of the interceptors added before. It runs once per
    /// call, however often the call is retried, and once per stream, however often it resumes. Headers that
    /// it adds to the context go to the same origins as credentials.
    ///
    /// ```
    /// use nuncio_client::{Client, protocol::{CallContext, Interceptor, Next, Result}};
    /// use nuncio_client::protocol::op::{Call, Reply};
    ///
    /// /// Adds the cost centre of the caller to each call.
    /// struct Billing(&'static str);
    ///
    /// #[async_trait::async_trait]
    /// impl Interceptor for Billing {
    ///     async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply> {
    ///         cx.headers.set("x-cost-centre", self.0);
    ///         next.run(cx, call).await
    ///     }
    /// }
    ///
    /// let builder = Client::builder().interceptor(Billing("research"));
    /// ```
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptors.push(interceptor);
        self
    }

    /// Sets the timeout of an answer, of the beginning of a stream, and of the card. Default: 30 seconds,
    /// and 11 minutes for sends, which wait for the agent's work.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self.send_timeout = timeout;
        self
    }

    /// Sets the retry policy.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Calls the observer before the pause of each retry, of calls and of broken streams.
    pub fn on_retry(mut self, observer: impl Fn(Retry<'_>) + Send + Sync + 'static) -> Self {
        self.on_retry = OnRetry::new(observer);
        self
    }

    /// Uses this egress, with its connections and limits.
    pub fn egress(mut self, egress: Egress) -> Self {
        self.egress = Some(egress);
        self
    }

    /// Caches cards here. Share a cache only between clients with the same credentials.
    pub fn card_cache(mut self, cache: Arc<CardCache>) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Verifies the signatures of the card. By default they are ignored, because they prove nothing without
    /// keys that the caller trusts.
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Sets the form of file content that the agent uses in version 0.3 over HTTP+JSON and gRPC, where SDKs
    /// differ. By default base64 text is sent, and received content is decoded if it looks like base64.
    /// Agents built with the JavaScript SDK need [`FileBytes::Raw`].
    pub fn file_bytes(mut self, files: FileBytes) -> Self {
        self.files = files;
        self
    }

    fn with(mut self, change: impl FnOnce(Credentials) -> Result<Credentials>) -> Self {
        match change(self.credentials.clone()) {
            Ok(credentials) => self.credentials = credentials,
            Err(error) => self.mistake = self.mistake.or(Some(error)),
        }
        self
    }

    /// Fetches the card of the agent at this URL, which is the agent's or its card's, and selects the first
    /// supported interface.
    ///
    /// # Errors
    /// A setting is wrong, there is no card, or it has no supported interface.
    pub async fn connect(mut self, url: impl AsRef<str>) -> Result<Client> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        let agent = agent_url(url.as_ref())?;
        let egress = self.take_egress()?;
        let card = within(Some(Instant::now() + self.timeout), async {
            let card = match &self.cache {
                Some(cache) => cache.discover(&egress, &agent, &self.credentials).await,
                None => discover(&egress, &agent, &self.credentials).await,
            };
            card.map_err(Failure::answered)
        });
        let card = card.await?;
        self.build(&egress, card)
    }

    /// Uses an existing card. Credentials are bound to the origin of `card.url`.
    ///
    /// # Errors
    /// A setting is wrong, or the card has no supported interface.
    pub fn with_card(mut self, card: Arc<FetchedCard>) -> Result<Client> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        let egress = self.take_egress()?;
        self.build(&egress, card)
    }

    fn take_egress(&mut self) -> Result<Egress> {
        self.egress.take().map_or_else(Egress::operator, Ok)
    }

    fn build(self, egress: &Egress, card: Arc<FetchedCard>) -> Result<Client> {
        let (card, verified) = self.trust.apply(card)?;
        let mut candidates = choose(&card.card.supported_interfaces, &self.preferences)?;
        let wires = self.wires(egress, &card, &mut candidates)?;
        let resumes = declares(&card.card, RESUME_EXTENSION);
        let mut extensions = self.extensions;
        if resumes && !extensions.iter().any(|uri| uri == RESUME_EXTENSION) {
            extensions.push(RESUME_EXTENSION.to_owned());
        }
        let route = Route::new(wires, self.retry, resumes, extensions, self.on_retry);
        let service = self.interceptors.around(route);
        let (timeout, send_timeout) = (self.timeout, self.send_timeout);
        Ok(Client::from_shared(Shared { card, verified, candidates, service, timeout, send_timeout }))
    }

    /// Makes a transport for each candidate with a valid URL on an allowed host. The other candidates are
    /// removed; it is an error if none is left.
    fn wires(
        &self,
        egress: &Egress,
        card: &FetchedCard,
        candidates: &mut Vec<Candidate>,
    ) -> Result<Vec<Arc<dyn Transport>>> {
        let (mut wires, mut unusable) = (Vec::new(), None);
        let usable = |candidate: &Candidate| {
            let hosts = self.hosts.as_ref();
            hosts.map_or(Ok(()), |hosts| hosts.judge(&candidate.interface, candidate.binding, &card.url))?;
            wire(egress, candidate, &self.credentials, &card.url, self.files)
        };
        candidates.retain(|candidate| match usable(candidate) {
            Ok(wire) => {
                wires.push(wire);
                true
            }
            Err(error) => {
                unusable.get_or_insert(error);
                false
            }
        });
        match unusable {
            Some(error) if wires.is_empty() => Err(error),
            _ => Ok(wires),
        }
    }
}

fn declares(card: &AgentCard, uri: &str) -> bool {
    card.capabilities.extensions.iter().any(|extension| extension.uri == uri)
}
