//! The command line as it is typed.

mod admin;
mod agent;
mod config;
mod data;
mod delivery;
mod erase;
mod hidden;
mod key;
mod listen;
mod options;
mod push;
mod tools;
mod trail;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};
use nuncio_protocol::{Binding, TaskState, Version};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};
use url::Url;

pub(crate) use self::{
    admin::Admin,
    agent::{AgentCommand, Change},
    config::{Check, ConfigCommand, Init, Serve},
    data::{Place, StoreCommand, Which},
    delivery::{DeliveryCommand, Since},
    erase::Erase,
    hidden::Hidden,
    key::KeyCommand,
    listen::Listen,
    options::Options,
    push::{PushCommand, Webhook},
    tools::{Completion, Healthcheck, Man},
    trail::Trail,
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

    /// What to log: a level, or a filter such as nuncio_server=debug; info when absent.
    #[arg(id = "log-level", long, global = true, env = "NUNCIO_LOG", help_heading = GLOBAL, value_parser = log_filter)]
    pub(crate) log_level: Option<String>,

    /// How to log; text when absent.
    #[arg(id = "log-format", long, global = true, value_enum, help_heading = GLOBAL)]
    pub(crate) log_format: Option<LogFormat>,
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
    /// Write a nuncio.toml to begin with, and its JSON Schema for editors.
    Init(Init),
    /// Look for mistakes in a nuncio.toml: syntax, references, and whether agents can be reached.
    Check(Check),
    /// Look at the configuration: what is in force, and what can be written.
    #[command(subcommand)]
    Config(ConfigCommand),
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
    /// Look at the agents of a hub, add some, take them away.
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Make API keys for the callers of a hub, look after them, take them back.
    #[command(subcommand)]
    Key(KeyCommand),
    /// See who was refused at a hub, and what was changed there.
    Trail(Trail),
    /// Have a hub forget all tasks and replies of a caller, for good.
    Erase(Erase),
    /// Look at what a hub owes to webhooks, and have it try again.
    #[command(subcommand)]
    Delivery(DeliveryCommand),
    /// Look at agent cards, verify and sign them.
    #[command(subcommand)]
    Card(CardCommand),
    /// Look after the place where tasks are kept: check, copy, bring up to date, make small.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Ask a hub whether it is well: exit code 0 if it is, 1 if not.
    Healthcheck(Healthcheck),
    /// Print a script that completes commands in a shell.
    Completion(Completion),
    /// Print the manual page, or write the pages of all commands to a folder.
    Man(Man),
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
    /// List tasks, newest status first: ours at an agent, or those of all callers of a hub.
    #[command(after_help = KEY_HELP)]
    List {
        /// The agent's address, or that of its card. Without it the hub is asked, as whoever runs it.
        url: Option<String>,
        #[command(flatten)]
        connection: Box<Connection>,
        #[command(flatten)]
        hub: Admin,
        /// Of a hub: only of this agent.
        #[arg(long, value_name = "NAME", conflicts_with = "url")]
        agent: Option<String>,
        /// Of a hub: only of this principal.
        #[arg(long, value_name = "NAME", conflicts_with = "url")]
        principal: Option<String>,
        /// Of a hub: only with a status since then: so long ago (90s, 30m, 2h, 7d), or a time
        /// (2026-11-15T12:00:00Z).
        #[arg(long, value_name = "WHEN", conflicts_with = "url")]
        since: Option<Since>,
        /// Only of this conversation.
        #[arg(long, value_name = "ID", requires = "url")]
        context: Option<String>,
        /// Only in this state.
        #[arg(long, value_parser = state)]
        state: Option<TaskState>,
        /// At most so many; all pages are read.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show what happened to a task of a hub, whoever owns it.
    Show {
        #[command(flatten)]
        hub: Admin,
        /// The task.
        id: String,
        /// With what was said and made. It is the callers': think before you look.
        #[arg(long)]
        content: bool,
    },
    /// Cancel a task: ours at an agent, or any caller's of a hub.
    #[command(after_help = KEY_HELP, allow_missing_positional = true)]
    Cancel {
        /// The agent's address, or that of its card. Without it the hub is asked, as whoever runs it.
        url: Option<String>,
        /// The task.
        #[arg(required = true)]
        id: String,
        #[command(flatten)]
        connection: Box<Connection>,
        #[command(flatten)]
        hub: Admin,
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
pub(crate) fn log_filter(text: &str) -> Result<String, String> {
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
