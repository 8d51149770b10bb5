//! An agent.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentLimits, Cards, SecretText, push::Dialect};
use crate::config::Secret;

/// An agent: exactly one of url, command and demo says what it is.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Agent {
    /// An agent that speaks A2A already, in any version: its address, or that of its card.
    #[schemars(example = "https://billing.internal")]
    pub(crate) url: Option<String>,
    /// A program: a line, split at spaces as a shell would (none is started), or a list of words. It runs once for
    /// each message.
    #[schemars(example = "./my-agent --fast")]
    pub(crate) command: Option<CommandLine>,
    /// One of the demo agents.
    #[schemars(example = &"echo")]
    pub(crate) demo: Option<Demo>,

    /// What the agent is called on its card, instead of its own words.
    #[schemars(example = &"Billing")]
    pub(crate) title: Option<String>,
    /// What it does, on its card, instead of its own words.
    #[schemars(example = "Knows every invoice")]
    pub(crate) description: Option<String>,
    /// Words by which it is found in the directory.
    #[schemars(example = ["finance"])]
    pub(crate) tags: Option<Vec<String>>,
    /// Whether the directory lists it; true when absent. Who knows its name can call it in any case.
    #[schemars(example = true)]
    pub(crate) visible: Option<bool>,
    /// public: anybody may read its card, without credentials. protected: only who may call it, and for others there
    /// is no such agent. When absent: as identity.cards says if it is visible, else protected.
    #[schemars(example = Cards::Public)]
    pub(crate) cards: Option<Cards>,
    /// The versions in which callers reach it: its card shows these, and others are refused. Both when absent.
    #[schemars(example = ["1.0"], length(min = 1))]
    pub(crate) versions: Option<Vec<Version>>,

    /// durable: tasks, their logs and webhooks are the hub's. proxy: calls are passed on, and nothing is kept but
    /// who owns which task. durable when absent. With url.
    #[schemars(example = Mode::Durable)]
    pub(crate) mode: Option<Mode>,
    /// Speak this version to it: "1.0" or "0.3"; the best one of its card when absent. With url.
    #[schemars(example = "1.0")]
    pub(crate) version: Option<Version>,
    /// Speak this binding to it; the best one of its card when absent. With url.
    #[schemars(example = Binding::Jsonrpc)]
    pub(crate) binding: Option<Binding>,
    /// Its card, if not where cards are: an address or a file. With url.
    #[schemars(example = "https://billing.internal/cards/agent.json")]
    pub(crate) card: Option<String>,
    /// After how many seconds to look for a new card; 300 when absent. With url.
    #[schemars(example = 300, range(min = 1))]
    pub(crate) card_refresh_seconds: Option<u64>,
    /// Hosts at which its interfaces may be, besides that of its card: names or addresses without a port; none when
    /// absent. With url.
    #[schemars(example = ["calls.billing.internal"])]
    pub(crate) allow_hosts: Option<Vec<String>>,
    /// Signatures of its card. With url.
    pub(crate) trust: Option<Trust>,
    /// How the hub proves to it who it is. With url.
    pub(crate) auth: Option<Auth>,
    /// Headers of the caller that are passed on; none when absent. With url.
    #[schemars(example = ["x-request-id"])]
    pub(crate) forward_headers: Option<Vec<String>>,
    /// How many seconds it may take to answer, except for a message; 30 when absent. With url.
    #[schemars(example = 30, range(min = 1))]
    pub(crate) timeout_seconds: Option<u64>,
    /// How many seconds it may take to answer a message; 600 when absent. With url.
    #[schemars(example = 600, range(min = 1))]
    pub(crate) send_timeout_seconds: Option<u64>,
    /// After how many hours a task is given up whose agent cannot be reached; 24 when absent. With url.
    #[schemars(example = 24, range(min = 1))]
    pub(crate) give_up_hours: Option<u32>,
    /// A message may be sent to it twice, if nobody knows whether it arrived; false when absent. With url.
    #[schemars(example = false)]
    pub(crate) idempotent: Option<bool>,
    /// How the hub follows its tasks; auto when absent: as well as it can. With url.
    #[schemars(example = Follow::Auto)]
    pub(crate) follow: Option<Follow>,
    /// How many seconds lie between two polls of a task that goes on; 1 when absent. The first polls come sooner, after
    /// 1, 2, 4, 8 … ms, and later ones more seldom. With url.
    #[schemars(example = 1)]
    pub(crate) poll_seconds: Option<f64>,
    /// Form of file content in version 0.3 over HTTP+JSON and gRPC. detect: base64 text is written, and decoded
    /// where it looks like that. base64: base64 text (SDKs for Python, Go, Java). raw: the content itself (SDK for
    /// JavaScript). Default: detect. With url.
    #[schemars(example = FileBytes::Detect)]
    pub(crate) file_bytes: Option<FileBytes>,
    /// Callers with credentials may read its extended card; false when absent. With url.
    #[schemars(example = false)]
    pub(crate) extended_card: Option<bool>,

    /// text: the text of a message goes in, text comes out. json: JSON lines both ways. text when absent. With
    /// command.
    #[schemars(example = Format::Text)]
    pub(crate) format: Option<Format>,
    /// Where it runs; where the hub does when absent. With command.
    #[schemars(example = &"work")]
    pub(crate) directory: Option<String>,
    /// Variables of its environment: a text, or { file = "…" }. With command.
    #[schemars(example = BTreeMap::from([("MODE", "fast")]))]
    pub(crate) env: Option<BTreeMap<String, SecretText>>,
    /// Variables of our environment that it gets, too; PATH, HOME, LANG and TZ when absent. With command.
    #[schemars(example = ["PATH", "HOME", "LANG", "TZ"])]
    pub(crate) env_allow: Option<Vec<String>>,
    /// How many seconds it may run; 0: as long as it likes. 3600 when absent. With command.
    #[schemars(example = 3600)]
    pub(crate) time_limit_seconds: Option<u64>,
    /// How many bytes it may say; 16 MiB when absent. With command.
    #[schemars(example = 16777216, range(min = 1))]
    pub(crate) output_limit_bytes: Option<u64>,
    /// How many bytes of memory it may take, as far as the system can see to it. With command.
    #[schemars(example = 1073741824, range(min = 1))]
    pub(crate) memory_limit_bytes: Option<u64>,
    /// How many may be at work at a time: calls of an agent, or runs of a program. With url or command.
    #[schemars(example = 64, range(min = 1))]
    pub(crate) max_concurrent: Option<u32>,

    /// What all callers together may ask of it.
    pub(crate) limits: Option<AgentLimits>,
    /// What its notifications look like, if not as those of all agents.
    pub(crate) push: Option<AgentPush>,
}

/// A program and its arguments.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum CommandLine {
    /// As one would type it.
    Line(String),
    /// Word by word.
    Words(Vec<String>),
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Demo {
    /// Answers with what it is told.
    Echo,
    /// Counts, a step a second.
    Slow,
    /// Shows every state, for test kits.
    Conformance,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Durable,
    Proxy,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Version {
    #[serde(rename = "1.0")]
    New,
    #[serde(rename = "0.3")]
    Old,
}

impl From<Version> for nuncio_protocol::Version {
    fn from(version: Version) -> Self {
        match version {
            Version::New => Self::V1_0,
            Version::Old => Self::V0_3,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Binding {
    Jsonrpc,
    Rest,
    Grpc,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Follow {
    Auto,
    Stream,
    Poll,
    Block,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileBytes {
    Detect,
    Base64,
    Raw,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    Text,
    Json,
}

/// Signatures of a card.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub(crate) struct Trust {
    /// Keys that count: JWKS, JWK or PEM files. A signature by another key is refused.
    #[schemars(example = ["billing.jwks.json"])]
    pub(crate) keys: Vec<String>,
    /// A card without a signature is refused, too.
    pub(crate) require: bool,
}

/// How the hub proves to an agent who it is: at most one of bearer, user and oauth2, and whatever else is needed.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Auth {
    /// A bearer token.
    #[schemars(example = "${BILLING_TOKEN:-none}")]
    pub(crate) bearer: Option<Secret>,
    /// The same in a file.
    #[schemars(example = "billing.token")]
    pub(crate) bearer_file: Option<String>,
    /// The user of HTTP Basic.
    #[schemars(example = &"hub")]
    pub(crate) user: Option<String>,
    /// The user's password.
    #[schemars(example = "${BILLING_PASSWORD:-none}")]
    pub(crate) password: Option<Secret>,
    /// The same in a file.
    #[schemars(example = "billing.password")]
    pub(crate) password_file: Option<String>,
    /// Access tokens by OAuth 2.0 client credentials.
    pub(crate) oauth2: Option<OAuth2>,
    /// Headers to send: a text, or { file = "…" }.
    #[schemars(example = BTreeMap::from([("X-Api-Key", "${BILLING_KEY:-none}")]))]
    pub(crate) headers: BTreeMap<String, SecretText>,
    /// A certificate to show, as PEM.
    #[schemars(example = "client.pem")]
    pub(crate) client_cert: Option<String>,
    /// Its private key, as PEM.
    #[schemars(example = "client.key")]
    pub(crate) client_key: Option<String>,
    /// Certificate authorities to trust besides the usual ones: PEM files.
    #[schemars(example = ["internal-ca.pem"])]
    pub(crate) ca: Vec<String>,
}

/// Access tokens by OAuth 2.0 client credentials.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OAuth2 {
    /// Where tokens are made.
    #[schemars(example = "https://login.example.com/token")]
    pub(crate) token_url: String,
    /// Who we are there.
    #[schemars(example = &"nuncio")]
    pub(crate) client_id: String,
    /// Our secret there.
    #[schemars(example = "${BILLING_SECRET:-none}")]
    pub(crate) client_secret: Option<Secret>,
    /// The same in a file.
    #[schemars(example = "billing.secret")]
    pub(crate) client_secret_file: Option<String>,
    /// Scopes to ask for.
    #[serde(default)]
    #[schemars(example = ["invoices"])]
    pub(crate) scopes: Vec<String>,
    /// The audience to ask for.
    #[schemars(example = &"billing")]
    pub(crate) audience: Option<String>,
}

/// What the notifications of one agent look like.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentPush {
    /// Tell of artifacts piece by piece.
    #[schemars(example = true)]
    pub(crate) chunks: Option<bool>,
    /// What webhooks get that were registered in version 0.3.
    #[schemars(example = Dialect::Standard)]
    pub(crate) dialect: Option<Dialect>,
    /// Sign with these secrets and not with those of all agents.
    #[schemars(example = ["${BILLING_WEBHOOK_SECRET:-whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}"])]
    pub(crate) secrets: Option<Vec<Secret>>,
    /// The same, each in a file.
    #[schemars(example = ["webhook.secret"])]
    pub(crate) secret_files: Option<Vec<String>>,
}
