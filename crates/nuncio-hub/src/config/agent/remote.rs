//! Remote agents: `url`.

use std::{path::PathBuf, time::Duration};

use http::HeaderName;
use nuncio_protocol::{Binding, FileBytes, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use url::{Host, Url};

use super::{
    Agent, AgentKind, NO_TASK_TO_HOLD, VersionWord,
    auth::{self, Auth},
    kinds::{Example, KindKeys, TableKeys},
};
use crate::config::{
    AgentCalls,
    form::{
        FilePath, Form, Fraction, HostText, Hours, HttpUrl, Opt, Seconds, ValueList, form, header, http_url,
        placed, word,
    },
};

/// A remote agent: its address, its protocol, and its timeouts.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(default = "Upstream::anywhere", deny_unknown_fields)]
pub struct Upstream {
    /// A remote agent that speaks A2A in any version: its address, or that of its card.
    #[serde(with = "HttpUrl")]
    #[schemars(example = "https://billing.internal")]
    pub url: Url,
    /// durable: the hub owns tasks, their logs and webhooks. proxy: calls are forwarded, and the hub stores
    /// only the owners of tasks.
    pub mode: Mode,
    /// Version to speak: "1.0" or "0.3"; default: the best one of its card.
    #[serde(with = "Opt::<VersionWord>")]
    #[schemars(example = "1.0")]
    pub version: Option<Version>,
    /// Binding to speak; default: the best one of its card.
    #[serde(with = "Opt::<BindingWord>")]
    #[schemars(example = &"jsonrpc")]
    pub binding: Option<Binding>,
    /// Address or file of its card; default: the well-known path.
    #[schemars(with = "String", example = "https://billing.internal/cards/agent.json")]
    pub card: Option<CardSource>,
    /// Seconds between two fetches of its card.
    #[serde(rename = "card_refresh_seconds", with = "Seconds")]
    #[schemars(range(min = 1))]
    pub card_refresh: Duration,
    /// Hosts that its interfaces may have besides that of its card: names or addresses without a port.
    #[serde(with = "ValueList::<HostText>")]
    #[schemars(example = ["calls.billing.internal"])]
    pub allow_hosts: Vec<Host>,
    /// Headers of the caller that are forwarded.
    #[serde(with = "ValueList::<ForwardedHeader>")]
    #[schemars(example = ["x-request-id"])]
    pub forward_headers: Vec<HeaderName>,
    /// Timeout of calls in seconds, except for messages.
    #[serde(rename = "timeout_seconds", with = "Seconds")]
    #[schemars(range(min = 1))]
    pub timeout: Duration,
    /// Timeout of messages in seconds.
    #[serde(rename = "send_timeout_seconds", with = "Seconds")]
    #[schemars(range(min = 1))]
    pub send_timeout: Duration,
    /// Hours after which a task is given up if its agent cannot be reached.
    #[serde(rename = "give_up_hours", with = "Hours")]
    #[schemars(range(min = 1))]
    pub give_up: Duration,
    /// A message that the agent cannot be sent because it is down. fail: is refused, with the reason. wait:
    /// waits until the agent is back, in durable mode.
    pub when_down: WhenDown,
    /// Hours for which a message waits for the agent.
    #[serde(rename = "wait_hours", with = "Hours")]
    #[schemars(range(min = 1))]
    pub wait: Duration,
    /// A message may be sent to it twice if it is unknown whether it arrived.
    pub idempotent: bool,
    /// Method of following its tasks; auto: the best one that it supports.
    pub follow: Follow,
    /// Seconds between two polls of a task in progress. The first polls come sooner, after 1, 2, 4, 8 … ms,
    /// and later ones are less frequent.
    #[serde(rename = "poll_seconds", with = "Fraction")]
    pub poll_every: Duration,
    /// Form of file content in version 0.3 over HTTP+JSON and gRPC. detect: writes base64 text, and decodes
    /// content that looks like base64. base64: base64 text (SDKs for Python, Go, Java). raw: the content
    /// itself (SDK for JavaScript).
    #[serde(with = "FileBytesWord")]
    pub file_bytes: FileBytes,
    /// Callers with credentials may read its extended card.
    pub extended_card: bool,
    /// Callers may read its own card at /agents/NAME/upstream-card, which shows its address.
    pub show_upstream: bool,
    /// Maximum number at a time: calls of a remote agent, or runs of a program.
    #[schemars(with = "Option<u32>", example = 64, range(min = 1))]
    pub max_concurrent: Option<usize>,
    /// Signatures of its card.
    pub trust: Trust,
    /// The hub's credentials for it.
    pub auth: Auth,
}

impl Upstream {
    /// Defaults of every key for the schema and for serde. The address itself is always set: it determines
    /// the kind.
    fn anywhere() -> Self {
        Self::new(Url::parse("http://localhost").unwrap_or_else(|_| unreachable!("a constant")))
    }

    /// The agent at this address, with the defaults of every other key.
    #[must_use]
    pub fn new(url: Url) -> Self {
        Self {
            url,
            mode: Mode::default(),
            version: None,
            binding: None,
            card: None,
            card_refresh: Duration::from_secs(300),
            allow_hosts: Vec::new(),
            trust: Trust::default(),
            auth: Auth::default(),
            forward_headers: Vec::new(),
            timeout: Duration::from_secs(30),
            // As long as a caller of the hub would wait.
            send_timeout: Duration::from_secs(600),
            give_up: Duration::from_secs(24 * 60 * 60),
            when_down: WhenDown::default(),
            wait: Duration::from_secs(24 * 60 * 60),
            max_concurrent: None,
            idempotent: false,
            follow: Follow::default(),
            poll_every: Duration::from_secs(1),
            file_bytes: FileBytes::default(),
            extended_card: false,
            show_upstream: false,
        }
    }
}

impl KindKeys for Upstream {
    const KEY: &'static str = "url";
    const EXAMPLE: &'static str = "billing";
    const ALTERNATIVES: &'static [Example] = &[
        ("search", &["url", "auth.bearer"]),
        ("orders", &["url", "auth.user", "auth.password"]),
        ("stock", &["url", "auth.user", "auth.password_file"]),
        (
            "partner",
            &[
                "url",
                "auth.oauth2.token_url",
                "auth.oauth2.client_id",
                "auth.oauth2.client_secret",
                "auth.oauth2.scopes",
                "auth.oauth2.audience",
            ],
        ),
        (
            "desk",
            &["url", "auth.oauth2.token_url", "auth.oauth2.client_id", "auth.oauth2.client_secret_file"],
        ),
    ];

    fn check(table: &mut TableKeys<'_>) {
        if table.is_true(&["trust", "require"]) && table.is_empty(&["trust", "keys"]) {
            table.wrong(&["trust", "require"], "needs trusted keys; add keys = [\"FILE\"]");
        }
        if table.is_text(&["mode"], "proxy") {
            if table.is_text(&["when_down"], "wait") {
                let why = "needs mode = \"durable\": in proxy mode the agent keeps its tasks, so the hub has none that waits";
                table.wrong(&["when_down"], why);
            }
            if table.is_text(&["access"], "ask") {
                table.wrong(&["access"], NO_TASK_TO_HOLD);
            }
            for key in AgentCalls::OF_TASKS {
                if !table.has(&["calls", key]) {
                    continue;
                }
                table.wrong(
                    &["calls", key],
                    "has no effect with mode = \"proxy\": the agent keeps its tasks itself",
                );
            }
        }
        auth::check(table);
    }

    fn into_kind(self, _: &Agent) -> Result<AgentKind, String> {
        Ok(AgentKind::Upstream(Box::new(self)))
    }
}

/// The owner of the tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    // The hub: own id, own log, own webhooks.
    #[default]
    Durable,
    // The agent: calls are forwarded.
    Proxy,
}

/// The fate of a message to an agent that is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenDown {
    // It is refused at once.
    #[default]
    Fail,
    // It waits.
    Wait,
}

/// The source of a card that is not at the well-known path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CardSource {
    /// At an address.
    Url(Url),
    /// In a file.
    File(PathBuf),
}

impl<'de> Deserialize<'de> for CardSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (folder, text): (PathBuf, String) = placed(deserializer)?;
        if text.contains("://") {
            return http_url(&text).map(Self::Url).map_err(D::Error::custom);
        }
        Ok(Self::File(folder.join(text)))
    }
}

/// Signatures of a card.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trust {
    /// Trusted keys: JWKS, JWK or PEM files. A signature by another key is refused.
    #[serde(with = "ValueList::<FilePath>")]
    #[schemars(example = ["billing.jwks.json"])]
    pub keys: Vec<PathBuf>,
    /// Also refuse a card without a signature.
    pub require: bool,
}

/// The method of following tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Follow {
    // The best one that the agent supports.
    #[default]
    Auto,
    // By streams.
    Stream,
    // By polls.
    Poll,
    // By a call that answers when the task is done.
    Block,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Binding", rename_all = "lowercase")]
#[schemars(rename = "Binding")]
pub(super) enum BindingWord {
    JsonRpc,
    #[serde(rename = "rest")]
    HttpJson,
    Grpc,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "FileBytes", rename_all = "lowercase")]
#[schemars(rename = "FileBytes")]
pub(super) enum FileBytesWord {
    Detect,
    Base64,
    Raw,
}

word!(BindingWord => Binding);

/// Headers of a caller that are never forwarded: hop-by-hop headers (RFC 9110, section 7.6.1), and headers
/// that the hub sets itself. The length or encoding of another body would allow request smuggling.
const NOT_FORWARDED: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "nuncio-hops",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

form! {
    /// A header of the caller that may be forwarded.
    ForwardedHeader: String => HeaderName,
    |text| {
        let name = header(&text)?;
        if NOT_FORWARDED.contains(&name.as_str()) {
            return Err("is a hop-by-hop header, or set by the hub itself; leave it out".to_owned());
        }
        Ok(name)
    },
    ToString::to_string
}
