//! The command line, as clap parses it.

mod access;
mod admin;
mod admin_token;
mod agent;
mod audit;
mod config;
mod connect;
mod data;
mod delivery;
mod erase;
mod hidden;
mod invite;
mod key;
mod listen;
mod mailbox;
mod options;
mod push;
mod room;
mod tools;
mod top;
mod trail;
mod ui;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{
    ArgMatches, Args as ClapArgs, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
    builder::NonEmptyStringValueParser,
};
use nuncio_protocol::{Binding, TaskState, Version};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};
use url::Url;

pub(crate) use self::{
    access::{AccessCaller, AccessCommand, OwnMailbox},
    admin::{Admin, DEFAULT_ADMIN},
    admin_token::AdminTokenCommand,
    agent::{AgentCommand, Change},
    audit::{Audit, AuditReports, FailOn},
    config::{Check, ConfigCommand, Init, Serve},
    connect::Connect,
    data::{Place, StoreCommand, Which},
    delivery::{DeliveryCommand, Since},
    erase::Erase,
    hidden::Hidden,
    invite::{InviteCommand, Register},
    key::KeyCommand,
    listen::Listen,
    mailbox::MailboxCommand,
    options::Options,
    push::{PushCommand, Webhook},
    room::{RoomCommand, RoomJoin},
    tools::{Completion, Healthcheck, Man},
    top::Top,
    trail::Trail,
    ui::Ui,
};
use crate::{exit, output::Format};

/// The heading of the options that every command has.
const GLOBAL: &str = "Global options";
/// The heading of the options for the connection to an agent.
const CONNECTION: &str = "Connection";
/// The heading of the options with credentials of the caller.
const IDENTITY: &str = "Identity";
/// The help on bearer tokens, which have no option because others can see the command line.
const KEY_HELP: &str = "The bearer token is read from the environment variable NUNCIO_KEY.";

/// Parses the command line.
///
/// # Errors
/// The mistake, or the help or version that was asked for.
pub(crate) fn parse() -> Result<Args, clap::Error> {
    let matches = Args::command().try_get_matches()?;
    Args::from_arg_matches(&matches).map_err(|error| error.format(&mut called(&matches)))
}

/// The command that was called, so that an error shows its usage.
fn called(matches: &ArgMatches) -> clap::Command {
    let mut command = Args::command();
    command.build();
    let mut matches = matches;
    while let Some((name, below)) = matches.subcommand() {
        let Some(subcommand) = command.find_subcommand(name).cloned() else { break };
        (command, matches) = (subcommand, below);
    }
    command
}

/// The durable hub of agents: makes every agent speak A2A 1.0 and 0.3, and loses no task.
#[derive(Debug, Parser)]
#[command(version, after_help = exit::HELP, propagate_version = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Output format.
    #[arg(short, long, value_enum, default_value_t, global = true, help_heading = GLOBAL)]
    pub(crate) output: Format,

    /// Log level (off, error, warn, info, debug, trace), or a filter such as nuncio_server=debug [default: info].
    #[arg(id = "log-level", long, global = true, env = "NUNCIO_LOG", help_heading = GLOBAL, value_parser = log_filter)]
    pub(crate) log_level: Option<String>,

    /// Log format [default: text].
    #[arg(id = "log-format", long, global = true, value_enum, help_heading = GLOBAL)]
    pub(crate) log_format: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the hub and serve agents.
    Serve(Serve),
    /// Write a first nuncio.toml, and its JSON Schema for editors.
    Init(Init),
    /// Check a nuncio.toml: syntax, references, and whether its agents can be reached.
    Check(Check),
    /// Show the configuration and its schema, and have a hub reload it.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Send a message to an agent.
    Send(Send),
    /// Audit an agent: its card, its behaviour and the specification, compared.
    Audit(Box<Audit>),
    /// Receive webhook notifications and print them, to try out webhooks.
    Listen(Listen),
    /// Invite workers to mailboxes: codes that are good once.
    #[command(subcommand)]
    Invite(InviteCommand),
    /// Redeem an invitation: get a mailbox of a hub, and its key.
    Register(Register),
    /// Connect an agent of this machine to a mailbox of a hub, by outbound connections only.
    Connect(Connect),
    /// Show, list, cancel and watch tasks.
    #[command(subcommand)]
    Task(TaskCommand),
    /// Manage the webhooks of a task.
    #[command(subcommand)]
    Push(PushCommand),
    /// List, add, change and remove the agents of a hub.
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Create, list, rotate and revoke the API keys of a hub.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Create, list, show and remove mailboxes: agents whose workers fetch their messages.
    #[command(subcommand)]
    Mailbox(MailboxCommand),
    /// List, accept, decline and block the callers of agents that ask for consent.
    #[command(subcommand)]
    Access(AccessCommand),
    /// Create, list and revoke tokens for the administration of a hub.
    #[command(subcommand)]
    AdminToken(AdminTokenCommand),
    /// Watch a hub: its agents, tasks, calls and deliveries, and its events as they happen.
    Top(Top),
    /// Create, list, show, watch, reset and remove the rooms of a hub.
    #[command(subcommand)]
    Room(RoomCommand),
    /// List the audit trail of a hub: refused calls and changes by administration.
    Trail(Trail),
    /// Erase all tasks and replies of a caller from a hub, irrevocably.
    Erase(Erase),
    /// List the webhook deliveries of a hub, retry them, and pause their hosts.
    #[command(subcommand)]
    Delivery(DeliveryCommand),
    /// Show, verify and sign agent cards.
    #[command(subcommand)]
    Card(CardCommand),
    /// Maintain the task store: check, back up, migrate, vacuum.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Open the dashboard of a hub in a browser.
    Ui(Ui),
    /// Check the health of a hub: exit code 0 if it is healthy, 1 if not.
    Healthcheck(Healthcheck),
    /// Show the version, the build and the protocol versions of this program.
    Version,
    /// Print a completion script for a shell.
    Completion(Completion),
    /// Print the manual page, or write the pages of all commands to a directory.
    Man(Man),
}

/// The agent to call, and how.
#[derive(Debug, ClapArgs)]
pub(crate) struct Target {
    /// The URL of the agent, or of its card.
    pub(crate) url: String,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Options of a connection to an agent.
#[derive(Debug, ClapArgs)]
pub(crate) struct Connection {
    /// Use this protocol version only.
    #[arg(long, value_parser = version, value_name = "1.0|0.3", help_heading = CONNECTION)]
    pub(crate) a2a_version: Option<Version>,

    /// Use this binding only.
    #[arg(long, value_parser = binding, value_name = "jsonrpc|rest|grpc", help_heading = CONNECTION)]
    pub(crate) binding: Option<Binding>,

    /// An HTTP header to send with every call, as 'Name: value'; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "HEADER", help_heading = CONNECTION)]
    pub(crate) headers: Vec<String>,

    /// Declare this extension on every call; may be repeated.
    #[arg(long = "extension", value_name = "URI", help_heading = CONNECTION)]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) extensions: Vec<String>,

    /// Seconds to wait for an answer, or for a stream to begin.
    #[arg(long, value_parser = seconds, value_name = "SECONDS", help_heading = CONNECTION)]
    pub(crate) timeout: Option<Duration>,

    /// Also trust the certificate authorities in this PEM file; may be repeated.
    #[arg(long = "ca", value_name = "FILE", help_heading = CONNECTION)]
    pub(crate) authorities: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) identity: Identity,
}

/// Credentials of the caller. A bearer token comes from the environment.
#[derive(Debug, ClapArgs)]
pub(crate) struct Identity {
    /// Client certificate for servers that ask for one: a PEM file.
    #[arg(long, value_name = "FILE", requires = "client_key", help_heading = IDENTITY)]
    pub(crate) client_cert: Option<PathBuf>,

    /// Private key of the client certificate: a PEM file.
    #[arg(long, value_name = "FILE", requires = "client_cert", help_heading = IDENTITY)]
    pub(crate) client_key: Option<PathBuf>,

    /// Token endpoint of OAuth 2.0 client credentials.
    #[arg(long, value_name = "URL", requires = "oauth_client_id", help_heading = IDENTITY)]
    pub(crate) oauth_token_url: Option<String>,

    /// OAuth client id; its secret is read from the environment variable NUNCIO_OAUTH_SECRET.
    #[arg(long, value_name = "ID", requires = "oauth_token_url", help_heading = IDENTITY)]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) oauth_client_id: Option<String>,

    /// OAuth scope to request; may be repeated.
    #[arg(long, value_name = "SCOPE", requires = "oauth_token_url", help_heading = IDENTITY)]
    pub(crate) oauth_scope: Vec<String>,

    /// OAuth audience to request.
    #[arg(long, value_name = "AUDIENCE", requires = "oauth_token_url", help_heading = IDENTITY)]
    pub(crate) oauth_audience: Option<String>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = KEY_HELP)]
pub(crate) struct Send {
    #[command(flatten)]
    pub(crate) target: Target,

    /// The text of the message; read from stdin if absent or -.
    pub(crate) text: Option<String>,

    /// Print events as they arrive.
    #[arg(long, conflicts_with = "no_wait")]
    pub(crate) stream: bool,

    /// Return at once, without waiting for the task to finish.
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// A file to send with the message; may be repeated.
    #[arg(long = "file", value_name = "PATH")]
    pub(crate) files: Vec<PathBuf>,

    /// JSON data to send with the message; may be repeated.
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

    /// The id of the message; generated by default.
    #[arg(long, value_name = "ID")]
    pub(crate) message_id: Option<String>,

    /// Maximum number of messages of history to include, with -o json.
    #[arg(long, value_name = "N")]
    pub(crate) history: Option<i32>,

    /// A webhook that receives the updates of the task.
    #[arg(long, value_name = "URL")]
    pub(crate) push: Option<Hidden>,

    /// A token that the webhook receives with each update; better set as the environment variable NUNCIO_PUSH_TOKEN.
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
        /// The id of the task.
        id: String,
        /// Maximum number of messages of history to include.
        #[arg(long, value_name = "N")]
        history: Option<i32>,
    },
    /// List tasks, the latest status first: your own at an agent, or those of all callers of a hub.
    #[command(after_help = KEY_HELP)]
    List {
        /// The URL of the agent, or of its card. Without it, the hub's admin API is used.
        url: Option<String>,
        #[command(flatten)]
        connection: Box<Connection>,
        #[command(flatten)]
        hub: Admin,
        /// Only tasks of this agent (administration).
        #[arg(long, value_name = "NAME", conflicts_with = "url")]
        agent: Option<String>,
        /// Only tasks of this principal (administration).
        #[arg(long, value_name = "NAME", conflicts_with = "url")]
        principal: Option<String>,
        /// Only tasks with a status change since this time: an age (90s, 30m, 2h, 7d) or a timestamp
        /// (2026-11-15T12:00:00Z) (administration).
        #[arg(long, value_name = "WHEN", conflicts_with = "url")]
        since: Option<Since>,
        /// Only tasks with a status change before this time, as with --since (administration).
        #[arg(long, value_name = "WHEN", conflicts_with = "url")]
        before: Option<Since>,
        /// Only tasks with an id that begins with this (administration).
        #[arg(long, value_name = "PREFIX", conflicts_with = "url")]
        id: Option<String>,
        /// Only tasks of this conversation.
        #[arg(long, value_name = "ID")]
        context: Option<String>,
        /// Only tasks in this state, such as working or input-required.
        #[arg(long, value_parser = state)]
        state: Option<TaskState>,
        /// Maximum number of tasks to list.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show the timeline of a task of any caller of a hub.
    Show {
        #[command(flatten)]
        hub: Admin,
        /// The id of the task.
        id: String,
        /// Second argument of a command that is meant for an agent (`task get URL ID`), for a helpful error.
        #[arg(hide = true)]
        extra: Option<String>,
        /// Include the content of messages and artifacts. It belongs to the callers: read it only if
        /// necessary.
        #[arg(long)]
        content: bool,
    },
    /// Cancel a task: your own at an agent, or any caller's of a hub.
    #[command(after_help = KEY_HELP, allow_missing_positional = true)]
    Cancel {
        /// The URL of the agent, or of its card. Without it, the hub's admin API is used.
        url: Option<String>,
        /// The id of the task.
        #[arg(required = true)]
        id: String,
        #[command(flatten)]
        connection: Box<Connection>,
        #[command(flatten)]
        hub: Admin,
    },
    /// Watch the events of a task until it ends.
    #[command(after_help = KEY_HELP)]
    Watch {
        #[command(flatten)]
        target: Target,
        /// The id of the task.
        id: String,
        /// Start after the event with this id.
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
    /// Verify the signatures of a card; offline, except to fetch the card from a URL.
    #[command(after_help = KEY_HELP)]
    Verify {
        /// The card: a file, or the URL of the agent.
        card: String,
        /// Trusted keys: a JWKS, JWK or PEM file; may be repeated.
        #[arg(long = "key", value_name = "FILE", required = true)]
        keys: Vec<PathBuf>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Sign a card and print it.
    Sign {
        /// The file of the card.
        card: PathBuf,
        /// The private key: a PKCS#8 PEM file for ES256, EdDSA or RS256.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// The id of the key, by which verifiers find it.
        #[arg(long, value_name = "ID")]
        kid: String,
        /// The URL of the JWKS with the public key.
        #[arg(long, value_name = "URL")]
        jku: Option<Url>,
    },
}

/// The output format that a command line asks for, where the rest of it cannot be read.
pub(crate) fn format_of(args: impl Iterator<Item = String>) -> Format {
    let mut args = args.take_while(|arg| arg != "--");
    let mut format = Format::default();
    while let Some(arg) = args.next() {
        let value = match arg.as_str() {
            "-o" | "--output" => args.next().unwrap_or_default(),
            _ => match arg.strip_prefix("--output=").or_else(|| arg.strip_prefix("-o")) {
                Some(value) => value.trim_start_matches('=').to_owned(),
                None => continue,
            },
        };
        format = Format::from_str(&value, false).unwrap_or(format);
    }
    format
}

/// Reads a log filter. A bare word must be a level: as the name of a module it would silently disable all other logs.
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

/// Reads `rest`, or the name of a binding on cards.
fn binding(text: &str) -> Result<Binding, String> {
    let name = if text.eq_ignore_ascii_case("rest") { Binding::HttpJson.as_str() } else { text };
    Binding::from_name(name).ok_or_else(|| "expected jsonrpc, rest or grpc".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let seconds = seconds.filter(|seconds| !seconds.is_zero());
    seconds.ok_or_else(|| "expected a number of seconds, more than 0".to_owned())
}

/// Reads `completed`, `input-required` or the name on the wire.
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
    fn the_format_is_found_on_a_wrong_command_line() {
        for (line, expected) in [
            ("nuncio send", Format::Human),
            ("nuncio send -o json", Format::Json),
            ("nuncio -ojson send", Format::Json),
            ("nuncio send -o=json --nope", Format::Json),
            ("nuncio send --output=json", Format::Json),
            ("nuncio send --output json -o human", Format::Human),
            ("nuncio send -o yaml", Format::Human),
            ("nuncio send -- -o json", Format::Human),
        ] {
            assert_eq!(format_of(line.split(' ').map(str::to_owned)), expected, "{line}");
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
