//! The command line as it is typed.

mod admin;
mod data;
mod delivery;
mod hidden;
mod listen;
mod push;
mod webhooks;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};
use nuncio_hub::config::{Connections, Network};
use nuncio_protocol::{Binding, TaskState, Version};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};
use url::{Host, Url};

use self::webhooks::Webhooks;
pub(crate) use self::{
    admin::{Admin, AdminAt},
    data::{Durability, Place, StoreCommand, Which},
    delivery::{DeliveryCommand, Since},
    hidden::Hidden,
    listen::Listen,
    push::{PushCommand, Webhook},
};
use crate::{exit, output::Format};

/// The heading of the options that every command has.
const GLOBAL: &str = "Global options";
/// The heading of the options that say how to reach an agent.
const CONNECTION: &str = "Connection";
/// The heading of the options that say who we are.
const IDENTITY: &str = "Identity";
/// What has no option, because others can see the command line.
const KEY_HELP: &str = "A bearer token is taken from the environment variable NUNCIO_KEY.";

/// The durable hub of agents: every agent speaks A2A, in both versions, and loses nothing.
#[derive(Debug, Parser)]
#[command(version, after_help = exit::HELP, propagate_version = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// For people, or JSON for programs.
    #[arg(short, long, value_enum, default_value_t, global = true, help_heading = GLOBAL)]
    pub(crate) output: Format,

    /// What to log: a level, or a filter such as nuncio_server=debug.
    #[arg(long, global = true, default_value = "info", env = "NUNCIO_LOG", help_heading = GLOBAL)]
    #[arg(value_parser = log_filter)]
    pub(crate) log_level: String,

    /// How to log.
    #[arg(long, global = true, value_enum, default_value_t, help_heading = GLOBAL)]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve agents.
    Serve(Serve),
    /// Say something to an agent.
    Send(Send),
    /// Receive notifications of agents and show them, to try out webhooks.
    Listen(Listen),
    /// Look at tasks, cancel them, follow them.
    #[command(subcommand)]
    Task(TaskCommand),
    /// Have the updates of tasks posted to webhooks.
    #[command(subcommand)]
    Push(PushCommand),
    /// Look at what a hub owes to webhooks, and have it try again.
    #[command(subcommand)]
    Delivery(DeliveryCommand),
    /// Look at agent cards, verify and sign them.
    #[command(subcommand)]
    Card(CardCommand),
    /// Look after the place where tasks are kept: check, copy, bring up to date, make small.
    #[command(subcommand)]
    Store(StoreCommand),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Serve {
    /// Serve the demo agents: echo, slow and conformance.
    #[arg(long)]
    pub(crate) demo: bool,

    /// Where callers reach us; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:2602", env = "NUNCIO_LISTEN", value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// Where whoever runs this hub reaches it, on this machine only; port 0 takes a free one, off none.
    #[arg(long, value_name = "ADDRESS|off", default_value = "127.0.0.1:2603", env = "NUNCIO_ADMIN_LISTEN")]
    pub(crate) admin: AdminAt,

    /// Write the token for that to this file; where commands of this user look for it when absent
    /// ($XDG_STATE_HOME or ~/.local/state, nuncio/admin-PORT.token).
    #[arg(long, value_name = "FILE", env = "NUNCIO_ADMIN_TOKEN_FILE")]
    pub(crate) admin_token_file: Option<PathBuf>,

    /// How callers see us, if not at the address we listen on, such as https://agents.example.com.
    #[arg(long, env = "NUNCIO_PUBLIC_URL")]
    pub(crate) public_url: Option<Url>,

    /// On loopback, answer to this host name, too; may be repeated. Our own names and that of --public-url
    /// are answered to in any case, others are not: a web page could call us by them (DNS rebinding).
    #[arg(long = "allow-host", value_name = "NAME", value_parser = host)]
    pub(crate) allowed_hosts: Vec<Host>,

    /// Believe what proxies of this network say about how they were called (Forwarded, X-Forwarded-Host,
    /// -Proto, -Port, -Prefix), and show it on cards; may be repeated. Name only networks from which
    /// nobody but your proxies can connect. On loopback the names need --allow-host.
    #[arg(long = "trust-proxy", value_name = "CIDR")]
    pub(crate) trusted_proxies: Vec<Network>,

    /// Speak TLS: the certificate and those between it and its root, as PEM. The files may be replaced
    /// while we run; SIGHUP makes us look at once.
    #[arg(long, value_name = "FILE", requires = "tls_key", env = "NUNCIO_TLS_CERT")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The private key of the certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "NUNCIO_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Sign cards with this private key: a PKCS#8 PEM file for ES256, EdDSA or RS256. May be repeated:
    /// all keys sign, and the public ones are served at /.well-known/jwks.json. With --trust-proxy it needs
    /// --public-url.
    #[arg(long = "card-key", value_name = "FILE")]
    pub(crate) card_keys: Vec<PathBuf>,

    /// The name of a card key, by which verifiers find it; its thumbprint when absent. May be repeated:
    /// the first names the first key.
    #[arg(long = "card-kid", value_name = "ID", requires = "card_keys")]
    pub(crate) card_kids: Vec<String>,

    /// Do not serve cards at /.well-known/agent.json, where clients older than 0.3 look for them.
    #[arg(long)]
    pub(crate) no_legacy_card: bool,

    /// Where tasks are kept: memory, a file (FILE or sqlite:FILE), or postgres://USER@HOST/DATABASE. In
    /// memory when absent: gone with the process. Others can see the command line: an address with a
    /// password belongs into the variable.
    #[arg(long, value_name = "STORE", env = "NUNCIO_DATA", hide_env_values = true)]
    pub(crate) data: Option<Place>,

    /// What an answer promises: full when absent.
    #[arg(long, value_enum)]
    pub(crate) durability: Option<Durability>,

    /// For how many days finished tasks are kept; 0: for ever. 30 when absent, but in memory only their
    /// number counts.
    #[arg(long, value_name = "DAYS")]
    pub(crate) keep_days: Option<u32>,

    /// How many finished tasks are kept in memory; 100,000 when absent.
    #[arg(long, value_name = "N")]
    pub(crate) keep_finished: Option<usize>,

    /// This agent answers at the root, too.
    #[arg(long, value_name = "NAME")]
    pub(crate) default: Option<String>,

    /// How the conformance agent behaves for a run of an official test kit.
    #[arg(long, value_enum)]
    pub(crate) profile: Option<Profile>,

    /// Let anybody call, although we listen beyond this machine.
    #[arg(long)]
    pub(crate) allow_anonymous: bool,

    /// How many seconds running tasks may go on after the signal to stop.
    #[arg(long, default_value_t = 30)]
    pub(crate) drain_seconds: u64,

    /// How many connections may be open at a time.
    #[arg(long, value_name = "N", default_value_t = Connections::default().most)]
    pub(crate) max_connections: usize,

    /// How many requests and streams may be open at a time on one connection of HTTP/2.
    #[arg(long, value_name = "N", default_value_t = Connections::default().streams)]
    pub(crate) max_streams: u32,

    /// After how many seconds a connection is closed that has nothing to answer.
    #[arg(long, value_name = "SECONDS", default_value_t = Connections::default().idle_timeout.as_secs())]
    pub(crate) idle_seconds: u64,

    #[command(flatten)]
    pub(crate) webhooks: Webhooks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// Everything there is, in version 1.0.
    Full,
    /// No streams, no webhooks, no extended card, in version 1.0.
    Minimal,
    /// An extension that callers must declare.
    Extension,
    /// As the test kit of version 0.3 expects it.
    V03,
}

/// Where, and as whom.
#[derive(Debug, ClapArgs)]
pub(crate) struct Target {
    /// The agent's address, or that of its card.
    pub(crate) url: String,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// How, and as whom.
#[derive(Debug, ClapArgs)]
pub(crate) struct Connection {
    /// Speak this version only.
    #[arg(long, value_parser = version, value_name = "1.0|0.3", help_heading = CONNECTION)]
    pub(crate) a2a_version: Option<Version>,

    /// Use this binding only.
    #[arg(long, value_parser = binding, value_name = "jsonrpc|rest|grpc", help_heading = CONNECTION)]
    pub(crate) binding: Option<Binding>,

    /// A header to send along, as 'Name: value'; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "HEADER", help_heading = CONNECTION)]
    pub(crate) headers: Vec<String>,

    /// Declare this extension on every call; may be repeated.
    #[arg(long = "extension", value_name = "URI", help_heading = CONNECTION)]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) extensions: Vec<String>,

    /// How many seconds to wait for an answer, or for a stream to begin.
    #[arg(long, value_parser = seconds, value_name = "SECONDS", help_heading = CONNECTION)]
    pub(crate) timeout: Option<Duration>,

    /// Trust the certificate authorities in this PEM file, too; may be repeated.
    #[arg(long = "ca", value_name = "FILE", help_heading = CONNECTION)]
    pub(crate) authorities: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) identity: Identity,
}

/// As whom. A bearer token comes from the environment.
#[derive(Debug, ClapArgs)]
pub(crate) struct Identity {
    /// A certificate to show to servers that ask for one: a PEM file.
    #[arg(long, value_name = "FILE", requires = "client_key", help_heading = IDENTITY)]
    pub(crate) client_cert: Option<PathBuf>,

    /// The private key of the certificate: a PEM file.
    #[arg(long, value_name = "FILE", requires = "client_cert", help_heading = IDENTITY)]
    pub(crate) client_key: Option<PathBuf>,

    /// Get access tokens here, by OAuth 2.0 client credentials.
    #[arg(long, value_name = "URL", requires = "oauth_client_id", help_heading = IDENTITY)]
    pub(crate) oauth_token_url: Option<String>,

    /// Get them as this client; its secret is taken from the environment variable NUNCIO_OAUTH_SECRET.
    #[arg(long, value_name = "ID", requires = "oauth_token_url", help_heading = IDENTITY)]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) oauth_client_id: Option<String>,

    /// Ask for this scope; may be repeated.
    #[arg(long, value_name = "SCOPE", requires = "oauth_token_url", help_heading = IDENTITY)]
    pub(crate) oauth_scope: Vec<String>,

    /// Ask for tokens for this audience.
    #[arg(long, value_name = "AUDIENCE", requires = "oauth_token_url", help_heading = IDENTITY)]
    pub(crate) oauth_audience: Option<String>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = KEY_HELP)]
pub(crate) struct Send {
    #[command(flatten)]
    pub(crate) target: Target,

    /// What to say; from stdin when absent or -.
    pub(crate) text: Option<String>,

    /// Show events as they come.
    #[arg(long, conflicts_with = "no_wait")]
    pub(crate) stream: bool,

    /// Do not wait until the task is done.
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// Send a file along; may be repeated.
    #[arg(long = "file", value_name = "PATH")]
    pub(crate) files: Vec<PathBuf>,

    /// Send JSON along; may be repeated.
    #[arg(long = "data", value_name = "JSON")]
    pub(crate) data: Vec<String>,

    /// Continue this task.
    #[arg(long, value_name = "ID")]
    pub(crate) task: Option<String>,

    /// Continue this conversation.
    #[arg(long, value_name = "ID")]
    pub(crate) context: Option<String>,

    /// Metadata of the message, as KEY=VALUE where the value may be JSON; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) metadata: Vec<String>,

    /// The id of the message; made when absent.
    #[arg(long, value_name = "ID")]
    pub(crate) message_id: Option<String>,

    /// Show so many messages of history with -o json.
    #[arg(long, value_name = "N")]
    pub(crate) history: Option<i32>,

    /// Have the updates of the task posted to this webhook.
    #[arg(long, value_name = "URL")]
    pub(crate) push: Option<Hidden>,

    /// A secret that comes back with each update; better in the environment variable NUNCIO_PUSH_TOKEN.
    #[arg(long, value_name = "TOKEN", requires = "push")]
    pub(crate) push_token: Option<Hidden>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Show a task.
    #[command(after_help = KEY_HELP)]
    Get {
        #[command(flatten)]
        target: Target,
        /// The task.
        id: String,
        /// Show so many messages of history.
        #[arg(long, value_name = "N")]
        history: Option<i32>,
    },
    /// List tasks, newest status first.
    #[command(after_help = KEY_HELP)]
    List {
        #[command(flatten)]
        target: Target,
        /// Only of this conversation.
        #[arg(long, value_name = "ID")]
        context: Option<String>,
        /// Only in this state.
        #[arg(long, value_parser = state)]
        state: Option<TaskState>,
        /// At most so many; all pages are read.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Cancel a task.
    #[command(after_help = KEY_HELP)]
    Cancel {
        #[command(flatten)]
        target: Target,
        /// The task.
        id: String,
    },
    /// Follow a task until it ends.
    #[command(after_help = KEY_HELP)]
    Watch {
        #[command(flatten)]
        target: Target,
        /// The task.
        id: String,
        /// Begin after the event of this id.
        #[arg(long, value_name = "EVENT")]
        after: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum CardCommand {
    /// Show the card of an agent.
    #[command(after_help = KEY_HELP)]
    Get {
        #[command(flatten)]
        target: Target,
    },
    /// Verify the signatures of a card; offline, except to fetch the card from an address.
    #[command(after_help = KEY_HELP)]
    Verify {
        /// A file, or the agent's address.
        card: String,
        /// Keys to trust: a JWKS, a JWK or a PEM file; may be repeated.
        #[arg(long = "key", value_name = "FILE", required = true)]
        keys: Vec<PathBuf>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Sign a card; the signed card goes to stdout.
    Sign {
        /// The card.
        card: PathBuf,
        /// The private key: a PKCS#8 PEM file for ES256, EdDSA or RS256.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// The name of the key, by which verifiers find it.
        #[arg(long, value_name = "ID")]
        kid: String,
        /// Where verifiers find the public key.
        #[arg(long, value_name = "URL")]
        jku: Option<Url>,
    },
}

/// A bare word is a level: as the name of a module it would silence everything else without a word.
fn log_filter(text: &str) -> Result<String, String> {
    let is_level = |word: &str| word.trim().parse::<LevelFilter>().is_ok();
    let is_known = text.split(',').all(|word| word.contains(['=', '[', '}', ']']) || is_level(word));
    if is_known && EnvFilter::try_new(text).is_ok() {
        return Ok(text.to_owned());
    }
    Err("expected off, error, warn, info, debug, trace, or a filter such as nuncio_server=debug".to_owned())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 127.0.0.1:2602".to_owned())
}

fn host(text: &str) -> Result<Host, String> {
    Host::parse(text).map_err(|_| "expected a name such as agents.example.com, without a port".to_owned())
}

fn version(text: &str) -> Result<Version, String> {
    Version::parse(text).ok_or_else(|| "expected 1.0 or 0.3".to_owned())
}

/// `rest`, or the name that a card has for it.
fn binding(text: &str) -> Result<Binding, String> {
    let name = if text.eq_ignore_ascii_case("rest") { Binding::HttpJson.as_str() } else { text };
    Binding::from_name(name).ok_or_else(|| "expected jsonrpc, rest or grpc".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let seconds = seconds.filter(|seconds| !seconds.is_zero());
    seconds.ok_or_else(|| "expected a number of seconds, more than 0".to_owned())
}

/// `completed`, `input-required` or the name on the wire.
fn state(text: &str) -> Result<TaskState, String> {
    let name = format!("TASK_STATE_{}", text.to_ascii_uppercase().replace('-', "_"));
    TaskState::from_name(&name).or_else(|| TaskState::from_name(text)).ok_or_else(|| {
        "expected submitted, working, completed, failed, canceled, rejected, input-required or auth-required".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_alone() {
        for (text, expected) in [
            ("Agents.Example.com", Some("agents.example.com")),
            ("192.0.2.1", Some("192.0.2.1")),
            ("[2001:DB8::1]", Some("[2001:db8::1]")),
            ("agents.example.com:443", None),
            ("https://agents.example.com", None),
            ("", None),
        ] {
            assert_eq!(host(text).ok().map(|host| host.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn logs_are_filtered_by_what_means_something() {
        for (text, ok) in [
            ("info", true),
            ("WARN", true),
            ("off", true),
            ("warn,nuncio_server=debug", true),
            ("nuncio_hub[span{a=1}]=trace", true),
            ("blah", false),
            ("nuncio_server=loud", false),
            ("info,blah", false),
            // How some containers unset a variable.
            ("", true),
        ] {
            assert_eq!(log_filter(text).is_ok(), ok, "{text}");
        }
    }

    #[test]
    fn bindings_by_any_of_their_names() {
        for (text, expected) in [
            ("jsonrpc", Some(Binding::JsonRpc)),
            ("rest", Some(Binding::HttpJson)),
            ("HTTP+JSON", Some(Binding::HttpJson)),
            ("grpc", Some(Binding::Grpc)),
            ("gRPC", Some(Binding::Grpc)),
            ("soap", None),
        ] {
            assert_eq!(binding(text).ok(), expected, "{text}");
        }
    }
}
