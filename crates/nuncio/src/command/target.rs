//! Connections to agents, by the options of the command line.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, header};
use nuncio_client::{
    Client, ClientCredentials, Credentials, Egress, EgressBuilder, Retry, RetryPolicy, agent_url,
    was_not_sent,
};
use nuncio_hub::config::{AgentName, did_you_mean};
use nuncio_protocol::{
    CallContext, Error, ErrorKind, Interceptor, Next,
    op::{Call, Reply},
};
use serde::Deserialize;
use url::Url;

use crate::{
    args::{Connection, Identity, Target},
    exit, output,
};

/// The variable with the bearer token. It has no option: others can see the command line.
pub(super) const KEY: &str = "NUNCIO_KEY";
/// The variable with the secret of the OAuth client, for the same reason.
const OAUTH_SECRET: &str = "NUNCIO_OAUTH_SECRET";

/// The time for the list of a hub's agents, which only improves a message.
const DIRECTORY_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of that list.
const MAX_DIRECTORY_BYTES: usize = 1 << 20;
/// Maximum number of agents that a message names.
const MAX_NAMES_SHOWN: usize = 10;

/// Retries of a watcher, which outlasts a hub that is away for some minutes.
const WATCH_RETRY: RetryPolicy =
    RetryPolicy { retries: 60, base: Duration::from_millis(250), cap: Duration::from_secs(5) };

impl Target {
    pub(super) async fn connect(&self) -> Result<Client> {
        self.connection.connect(&self.url).await
    }

    /// Connects to watch a task: a broken stream is resumed for minutes. The first connection is not retried.
    pub(super) async fn connect_to_watch(&self) -> Result<Client> {
        self.connection.connect_with(&self.url, WATCH_RETRY).await
    }
}

impl Connection {
    /// Connects to the agent at this URL.
    pub(super) async fn connect(&self, url: &str) -> Result<Client> {
        self.connect_with(url, RetryPolicy::default()).await
    }

    async fn connect_with(&self, url: &str, retry: RetryPolicy) -> Result<Client> {
        let agent = agent_url(url).map_err(|error| exit::usage(error.to_string()))?;
        let mut builder =
            Client::builder().egress(self.egress()?).extensions(&self.extensions).retry(retry).on_retry(
                |Retry { error, number, max, pause, .. }| {
                    output::note(&announcement(error, number, max, pause));
                },
            );
        if let Some(version) = self.a2a_version {
            builder = builder.version(version);
        }
        if let Some(binding) = self.binding {
            builder = builder.binding(binding);
        }
        let mut hint = None;
        // Options take precedence over the environment.
        if let Some(client) = self.identity.client(setting(OAUTH_SECRET).as_deref())? {
            builder = builder.client_credentials(client);
        } else if let Some(key) = setting(KEY) {
            hint =
                Some(" (the credentials come from the environment variable NUNCIO_KEY: correct or unset it)");
            builder = builder.bearer(&key);
        } else if self.headers.is_empty() {
            hint = Some(" (set NUNCIO_KEY)");
        }
        if let Some(hint) = hint {
            builder = builder.interceptor(KeyHint(hint));
        }
        for header in &self.headers {
            let (name, value) = name_and_value(header)?;
            builder = builder.header(name, value);
        }
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout);
        }
        let connected = builder.connect(&agent).await;
        let error = match connected {
            Ok(client) => return Ok(client),
            Err(error) => match hint {
                Some(hint) => with_key_hint(error, hint),
                None => error,
            },
        };
        if was_not_sent(&error) && is_bare_name(url) {
            let hint =
                format!("give the URL of the agent, such as http://127.0.0.1:2602/agents/{}", url.trim());
            return Err(exit::hinted(error, hint));
        }
        let hint = match error.kind() {
            ErrorKind::InvalidAgentResponse => self.other_agents(&agent).await,
            _ => None,
        };
        Err(exit::no_agent(error, hint))
    }

    /// The agents that the hub of this URL lists instead, in words; `None` if they cannot be read.
    async fn other_agents(&self, url: &Url) -> Option<String> {
        let (base, name) = place_at_hub(url)?;
        let mut request = Request::get(format!("{base}/agents")).header(header::ACCEPT, "application/json");
        if let Some(key) = setting(KEY) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        for (name, value) in self.headers.iter().filter_map(|header| header.split_once(':')) {
            request = request.header(name.trim(), value.trim());
        }
        let egress = self.egress().ok()?.with_max_body(MAX_DIRECTORY_BYTES);
        let asked = egress.fetch(request.body(Bytes::new()).ok()?);
        let answer = tokio::time::timeout(DIRECTORY_TIMEOUT, asked).await.ok()?.ok()?;
        let listed: Directory = serde_json::from_slice(answer.body()).ok()?;
        let names: Vec<&str> = listed.agents.iter().map(|agent| &*agent.name).collect();
        Some(match did_you_mean(&name, &names).strip_prefix("; ") {
            Some(question) => question.to_owned(),
            None if names.is_empty() => format!("the hub at {base} lists no agent for you"),
            None => {
                let (shown, more) = names.split_at(names.len().min(MAX_NAMES_SHOWN));
                let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
                format!("the hub at {base} has {}{more}", shown.join(", "))
            }
        })
    }

    /// The credentials of the options and the environment.
    pub(super) fn credentials(&self) -> Result<Credentials> {
        let mut credentials = Credentials::none();
        if let Some(client) = self.identity.client(setting(OAUTH_SECRET).as_deref())? {
            credentials = credentials.client_credentials(client);
        } else if let Some(key) = setting(KEY) {
            credentials = credentials.bearer(&key)?;
        }
        for header in &self.headers {
            let (name, value) = name_and_value(header)?;
            credentials = credentials.header(name, value)?;
        }
        Ok(credentials)
    }

    /// The HTTP client, with the options of TLS.
    pub(super) fn egress(&self) -> Result<Egress> {
        let mut builder = trusting(Egress::builder(), &self.authorities)?;
        if let (Some(cert), Some(key)) = (&self.identity.client_cert, &self.identity.client_key) {
            let (cert_pem, key_pem) = (read("--client-cert", cert)?, read("--client-key", key)?);
            builder = builder.client_identity(&cert_pem, &key_pem).map_err(|error| {
                let (cert, key) = (cert.display(), key.display());
                exit::usage(format!("--client-cert {cert} --client-key {key}: {error}"))
            })?;
        }
        Ok(builder.build()?)
    }
}

/// The HTTP client that also trusts these authorities.
pub(super) fn egress(authorities: &[PathBuf]) -> Result<Egress> {
    Ok(trusting(Egress::builder(), authorities)?.build()?)
}

fn trusting(mut builder: EgressBuilder, authorities: &[PathBuf]) -> Result<EgressBuilder> {
    for path in authorities {
        let pem = read("--ca", path)?;
        let added = builder.root_certificates(&pem);
        builder = added.map_err(|error| exit::usage(format!("--ca {}: {error}", path.display())))?;
    }
    Ok(builder)
}

/// The list of agents of a hub.
#[derive(Deserialize)]
struct Directory {
    agents: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
}

/// The address of the hub in the URL of an agent, and the name of the agent.
fn place_at_hub(url: &Url) -> Option<(String, String)> {
    let (above, below) = url.path().split_once("/agents/")?;
    let name = below.split('/').next().filter(|name| !name.is_empty())?;
    Some((format!("{}{above}", url.origin().ascii_serialization()), name.to_owned()))
}

/// True for a word that looks like the name of an agent: it is a host name at best.
fn is_bare_name(url: &str) -> bool {
    let url = url.trim();
    url != "localhost" && url.parse::<AgentName>().is_ok()
}

/// The line about a retry.
fn announcement(error: &Error, number: u32, max: u32, pause: Duration) -> String {
    // An error of the hub, whose agent is away. Without a connection the message names the address.
    let is_agent_away = error.is_undelivered() && !was_not_sent(error);
    let why = if is_agent_away { "the agent cannot be reached" } else { error.message() };
    let pause = match pause.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{seconds:.1}"),
        seconds => format!("{seconds:.0}"),
    };
    format!("{why}; trying again in {pause} s ({number} of {max})")
}

/// Tells a caller that is refused where its credentials come from, or how to give some.
struct KeyHint(&'static str);

#[async_trait]
impl Interceptor for KeyHint {
    async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> Result<Reply, Error> {
        next.run(cx, call).await.map_err(|error| with_key_hint(error, self.0))
    }
}

fn with_key_hint(error: Error, hint: &str) -> Error {
    // With a source it is an error of TLS: the agent requires a client certificate.
    if error.kind() != ErrorKind::Unauthenticated || std::error::Error::source(&error).is_some() {
        return error;
    }
    let message = format!("{}{hint}", error.message());
    Error::from_details(error.kind(), message, error.details())
}

impl Identity {
    /// The OAuth client, if its options are given.
    fn client(&self, secret: Option<&str>) -> Result<Option<ClientCredentials>> {
        let (Some(url), Some(id)) = (&self.oauth_token_url, &self.oauth_client_id) else { return Ok(None) };
        let secret = secret.ok_or_else(|| {
            exit::usage(format!(
                "--oauth-client-id {id}: set the environment variable {OAUTH_SECRET} to the client's secret"
            ))
        })?;
        // The message does not show the URL: it may hold a password.
        let mut client = ClientCredentials::new(url, id, secret).map_err(|error| {
            let why: Vec<_> = error.violations().iter().map(|wrong| &*wrong.description).collect();
            exit::usage(format!("--oauth-token-url: {}", why.join("; ")))
        })?;
        for scope in &self.oauth_scope {
            client = client.scope(scope);
        }
        if let Some(audience) = &self.oauth_audience {
            client = client.audience(audience);
        }
        Ok(Some(client))
    }
}

/// An environment variable; an empty one counts as unset, since some containers cannot unset one.
pub(super) fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(super) fn read(option: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| exit::usage(format!("{option} {}: cannot be read: {error}", path.display())))
}

fn name_and_value(header: &str) -> Result<(&str, &str)> {
    let Some((name, value)) = header.split_once(':') else {
        // The message does not show it: it may be a secret.
        return Err(exit::usage("--header: expected 'Name: value'"));
    };
    let (name, value) = (name.trim(), value.trim());
    if name.eq_ignore_ascii_case("a2a-version") {
        return Err(exit::usage(format!("--header {name}: the version is chosen with --a2a-version")));
    }
    // The message of an invalid header does not show its value.
    Credentials::none().header(name, value).map_err(|error| exit::usage(format!("--header: {error}")))?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    use crate::args::{Args, Command};

    /// Pauses are at least half as long as planned.
    #[test]
    fn a_watcher_outlasts_a_hub_that_is_away_for_two_minutes() {
        let RetryPolicy { retries, base, cap } = WATCH_RETRY;
        let pause = |retry: u32| base.saturating_mul(1 << retry.min(16)).min(cap) / 2;
        assert!((0..retries).map(pause).sum::<Duration>() >= Duration::from_secs(120));
    }

    #[test]
    fn an_agent_at_a_hub() {
        for (url, expected) in [
            ("http://127.0.0.1:2602/agents/biling", Some(("http://127.0.0.1:2602", "biling"))),
            ("https://a.example/hub/agents/b/?x=s3cret", Some(("https://a.example/hub", "b"))),
            ("https://a.example/agents/b/.well-known/agent-card.json", Some(("https://a.example", "b"))),
            ("https://a.example/agents/", None),
            ("https://a.example/b", None),
        ] {
            let expected = expected.map(|(base, name)| (base.to_owned(), name.to_owned()));
            assert_eq!(place_at_hub(&Url::parse(url).unwrap()), expected, "{url}");
        }
        for (url, expected) in [
            ("billing", true),
            ("localhost", false),
            ("a.example", false),
            ("http://billing", false),
            ("b:1", false),
        ] {
            assert_eq!(is_bare_name(url), expected, "{url}");
        }
    }

    #[test]
    fn a_retry_is_announced_with_its_reason() {
        let error = |message: &str| Error::new(ErrorKind::Unavailable, message);
        for (error, millis, expected) in [
            (error("x").undelivered(), 5_000, "the agent cannot be reached; trying again in 5 s (1 of 4)"),
            (
                error("cannot connect to http://127.0.0.1:2602/agents/a: connection refused"),
                5_000,
                "cannot connect to http://127.0.0.1:2602/agents/a: connection refused; trying again in 5 s (1 of 4)",
            ),
            (error("the connection broke"), 190, "the connection broke; trying again in 0.2 s (1 of 4)"),
        ] {
            assert_eq!(announcement(&error, 1, 4, Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn headers_are_read_and_never_echoed() {
        assert_eq!(name_and_value("X-Team: a:b ").unwrap(), ("X-Team", "a:b"));
        for header in ["secret", "Authorization=secret", "Bearer secret", "c2VjcmV0secret=="] {
            let error = name_and_value(header).unwrap_err();
            assert_eq!(error.to_string(), "--header: expected 'Name: value'", "{header}");
        }
        for (header, expected) in [
            ("A2A-Version: 0.3", "--a2a-version"),
            ("b ad: secret", "\"b ad\" is not a valid header name"),
            ("Name: secret\nb", "Name: has characters that are not allowed in a header"),
        ] {
            let error = name_and_value(header).unwrap_err();
            assert!(error.is::<exit::Usage>(), "{header:?}");
            assert!(error.to_string().contains(expected) && !error.to_string().contains("secret"), "{error}");
        }
    }

    fn target(options: &[&str]) -> Target {
        let args = ["nuncio", "send", "http://localhost:1", "hello"].iter().chain(options);
        match Args::parse_from(args).command {
            Command::Send(send) => send.target,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_client_needs_a_secret_and_a_safe_address() {
        let client = |url: &str, secret| {
            target(&["--oauth-token-url", url, "--oauth-client-id", "me", "--oauth-scope", "a"])
                .connection
                .identity
                .client(secret)
                .map(|client| client.is_some())
                .map_err(|error| error.to_string())
        };
        assert_eq!(client("https://login.example/t", Some("s3cret")), Ok(true));
        assert_eq!(target(&[]).connection.identity.client(Some("s3cret")).unwrap().map(|_| ()), None);
        for (url, secret, expected) in [
            ("https://login.example/t", None, "set the environment variable NUNCIO_OAUTH_SECRET"),
            ("http://login.example/t", Some("s3cret"), "--oauth-token-url: expected https"),
            ("https://u:s3cret@login.example/t", Some("x"), "--oauth-token-url: holds a user or a password"),
        ] {
            let error = client(url, secret).unwrap_err();
            assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn options_that_belong_together() {
        Args::command().debug_assert();
        for options in [
            &["--client-cert", "c"][..],
            &["--client-key", "k"],
            &["--oauth-token-url", "https://login.example/t"],
            &["--oauth-client-id", "me"],
            &["--oauth-scope", "a"],
            &["--oauth-audience", "a"],
            &["--oauth-token-url", "https://login.example/t", "--oauth-client-id", ""],
        ] {
            let args = ["nuncio", "send", "http://localhost:1", "hello"].iter().chain(options);
            assert_eq!(
                Args::try_parse_from(args).unwrap_err().exit_code(),
                i32::from(exit::USAGE),
                "{options:?}"
            );
        }
    }
}
