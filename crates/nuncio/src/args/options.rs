//! The options of `serve`: each stands for a key of `nuncio.toml`, and takes precedence over the file.
//!
//! The format of their values is defined by the schema of the file; this file defines only the options themselves.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::{
    Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches,
    builder::{PossibleValue, PossibleValuesParser},
    error::ErrorKind,
    parser::ValueSource,
};
use nuncio_hub::config::{AgentName, Given, Origin, Profile, Source, Told, Variables, agent_spec};

/// The default file, if it exists.
const DEFAULT_FILE: &str = "nuncio.toml";
const WEBHOOKS: &str = "Webhooks";

/// The values from the command line and its variables.
#[derive(Debug)]
pub(crate) struct Options {
    config: Option<PathBuf>,
    given: Vec<Given>,
    profile: Option<Profile>,
}

/// An option.
struct Row {
    /// The name, without its dashes.
    flag: &'static str,
    /// The key that it stands for.
    key: &'static str,
    shape: Shape,
    env: Option<&'static str>,
    help: &'static str,
}

/// The form of an option.
enum Shape {
    /// With a value of this name.
    Text(&'static str),
    /// With a value of this name; may be repeated.
    List(&'static str),
    /// With one of these words.
    Word(&'static [(&'static str, &'static str)]),
    /// Without a value.
    Switch(Means),
}

/// The value that an option without a value stands for.
enum Means {
    Bool(bool),
    Word(&'static str),
}

use Means::{Bool, Word as Says};
use Shape::{List, Switch, Text, Word};

const fn row(
    flag: &'static str,
    key: &'static str,
    shape: Shape,
    env: Option<&'static str>,
    help: &'static str,
) -> Row {
    Row { flag, key, shape, env, help }
}

const HUB: &[Row] = &[
    row("demo", "demo", Switch(Bool(true)), None, "Serve the demo agents: echo, slow and conformance"),
    row(
        "listen",
        "listen",
        Text("ADDRESS"),
        Some("NUNCIO_LISTEN"),
        "Address for callers; port 0 takes a free one [default: 127.0.0.1:2602]",
    ),
    row(
        "admin",
        "admin.listen",
        Text("ADDRESS|off"),
        Some("NUNCIO_ADMIN_LISTEN"),
        "Address of the admin API, on this machine only; port 0 takes a free one, off none \
         [default: 127.0.0.1:2603]",
    ),
    row(
        "admin-token-file",
        "admin.token_file",
        Text("FILE"),
        Some("NUNCIO_ADMIN_TOKEN_FILE"),
        "File for the admin token [default: nuncio/admin-PORT.token in $XDG_STATE_HOME or ~/.local/state, where commands \
         of this user look for it]",
    ),
    row(
        "metrics",
        "telemetry.metrics_listen",
        Text("ADDRESS"),
        Some("NUNCIO_METRICS"),
        "Serve metrics and health, and nothing else, at this address, too, for scrapers on other machines; port 0 takes \
         a free one",
    ),
    row(
        "public-url",
        "public_url",
        Text("URL"),
        Some("NUNCIO_PUBLIC_URL"),
        "Address of the hub as callers see it, if it is not the listening address, such as https://agents.example.com",
    ),
    row(
        "allow-host",
        "allow_hosts",
        List("NAME"),
        None,
        "On loopback, also answer to this host name; may be repeated. The hub's own names and that of --public-url are \
         always accepted, others are refused: a web page could use them to call the hub (DNS rebinding)",
    ),
    row(
        "trust-proxy",
        "trusted_proxies",
        List("CIDR"),
        None,
        "Trust the headers of proxies in this network (Forwarded, X-Forwarded-Host, -Proto, -Port, -Prefix), and show \
         their address on cards; may be repeated. Name only networks from which nobody but your proxies can connect. \
         On loopback the host names need --allow-host. Needs --no-anonymous with keys or tokens, or --allow-anonymous",
    ),
    row(
        "tls-cert",
        "tls.cert",
        Text("FILE"),
        Some("NUNCIO_TLS_CERT"),
        "Use TLS: the certificate with its intermediate certificates, as PEM. The files may be replaced while the hub \
         runs; SIGHUP makes it reload them at once",
    ),
    row(
        "tls-key",
        "tls.key",
        Text("FILE"),
        Some("NUNCIO_TLS_KEY"),
        "The private key of the certificate, as PEM",
    ),
    row(
        "no-legacy-card",
        "legacy_card",
        Switch(Bool(false)),
        None,
        "Do not serve cards at /.well-known/agent.json, where clients older than 0.3 look for them",
    ),
    row(
        "data",
        "data.store",
        Text("STORE"),
        Some("NUNCIO_DATA"),
        "Store of tasks: memory, a file (FILE or sqlite:FILE), or postgres://USER@HOST/DATABASE [default: memory, lost \
         with the process]. Others can see the command line: put an address with a password into the environment \
         variable",
    ),
    row(
        "durability",
        "data.durability",
        Word(&[
            ("full", "Acknowledged writes are on disk"),
            ("relaxed", "Acknowledged writes survive a crash of the hub, but may be lost with the machine"),
        ]),
        None,
        "Guarantee for acknowledged writes [default: full]",
    ),
    row(
        "keep-days",
        "data.keep_days",
        Text("DAYS"),
        None,
        "Days for which finished tasks are kept; 0: for ever [default: 30; in memory only --keep-finished applies]",
    ),
    row(
        "keep-finished",
        "data.keep_finished",
        Text("N"),
        None,
        "Maximum number of finished tasks in memory [default: 100,000]",
    ),
    row(
        "default",
        "default_agent",
        Text("NAME"),
        None,
        "The agent that also answers at the root [default: the only one]",
    ),
    row(
        "allow-anonymous",
        "identity.anonymous",
        Switch(Says("always")),
        None,
        "Let anybody call without credentials, from any machine",
    ),
    row(
        "no-anonymous",
        "identity.anonymous",
        Switch(Says("never")),
        None,
        "Require credentials of every caller, also on this machine: recommended behind a proxy",
    ),
    row(
        "drain-seconds",
        "drain_seconds",
        Text("SECONDS"),
        None,
        "Seconds for which running tasks may continue after the signal to stop [default: 30]",
    ),
    row(
        "max-connections",
        "connections.max",
        Text("N"),
        None,
        "Maximum number of open connections [default: 100,000]",
    ),
    row(
        "max-streams",
        "connections.max_streams",
        Text("N"),
        None,
        "Maximum number of open requests and streams on one HTTP/2 connection [default: 250]",
    ),
    row(
        "idle-seconds",
        "connections.idle_seconds",
        Text("SECONDS"),
        None,
        "Seconds after which a connection without a request in progress is closed [default: 120]",
    ),
];

const PUSH: &[Row] = &[
    row("no-push", "push.enabled", Switch(Bool(false)), None, "Send no notifications to webhooks"),
    row(
        "allow-private-push",
        "push.allow_private",
        Switch(Bool(true)),
        Some("NUNCIO_ALLOW_PRIVATE_PUSH"),
        "Callers may register webhooks on this machine and in private networks. By default these are refused: a caller \
         could use the hub to reach hosts that it cannot reach itself",
    ),
    row(
        "allow-push",
        "push.allow",
        List("CIDR"),
        None,
        "Callers may register webhooks in this network, also if it is private; may be repeated",
    ),
    row(
        "deny-push",
        "push.deny",
        List("CIDR"),
        None,
        "Refuse webhooks in this network, whatever else is allowed; may be repeated. For public addresses that are \
         internal",
    ),
    row("push-https-only", "push.https_only", Switch(Bool(true)), None, "Webhooks must use https"),
    row(
        "push-give-up-hours",
        "push.give_up_hours",
        Text("HOURS"),
        None,
        "Hours after which a failing delivery is given up [default: 24]",
    ),
    row(
        "push-chunks",
        "push.chunks",
        Switch(Bool(true)),
        None,
        "Notify webhooks of artifacts piece by piece, as they are produced, instead of once when they are complete",
    ),
    row(
        "push-dialect",
        "push.dialect",
        Word(&[("standard", "The task alone"), ("neuralpost", "A JSON-RPC response around the event")]),
        None,
        "Payload for webhooks that were registered in version 0.3 [default: standard]",
    ),
    row(
        "push-secret-file",
        "push.secret_files",
        List("FILE"),
        None,
        "Also sign notifications with the secret in this file (Standard Webhooks: whsec_ and base64); may be \
         repeated: all of them sign, so that one can be replaced",
    ),
    row(
        "key-file",
        "data.key_file",
        Text("FILE"),
        Some("NUNCIO_KEY_FILE"),
        "The key that seals callers' secrets and signs notifications; created if absent [default: beside the data]. With \
         a database it must be given, and be the same for every hub",
    ),
];

/// Options of all commands that are also settings of the hub.
const GLOBAL: &[Row] = &[
    row("log-level", "telemetry.log_level", Text("LEVEL"), Some("NUNCIO_LOG"), ""),
    row("log-format", "telemetry.log_format", Text("FORMAT"), None, ""),
];

const PROFILES: &[(&str, &str, Profile)] = &[
    ("full", "All capabilities, in version 1.0", Profile::Full),
    ("minimal", "No streams, no webhooks, no extended card, in version 1.0", Profile::Minimal),
    ("extension", "An extension that callers must declare", Profile::Extension),
    ("v03", "As the test kit of version 0.3 expects it", Profile::V03),
];

impl Row {
    fn arg(&self) -> Arg {
        let arg = Arg::new(self.flag).long(self.flag).help(self.help);
        let arg = match &self.shape {
            Text(name) => arg.value_name(*name).action(ArgAction::Set),
            List(name) => arg.value_name(*name).action(ArgAction::Append),
            Word(words) => {
                arg.value_name("WORD").value_parser(possible(words.iter().map(|(word, help)| (*word, *help))))
            }
            Switch(_) => arg.action(ArgAction::SetTrue),
        };
        match self.env {
            // The address of a database may contain a password.
            Some(env) => arg.env(env).hide_env_values(self.key == "data.store"),
            None => arg,
        }
    }

    /// The value, if the option was given.
    fn given(&self, matches: &ArgMatches) -> Option<Given> {
        let origin = match matches.value_source(self.flag)? {
            ValueSource::CommandLine => Origin::Flag(format!("--{}", self.flag)),
            ValueSource::EnvVariable => Origin::Env(self.env?.to_owned()),
            _ => return None,
        };
        let texts: Vec<String> = matches
            .get_raw(self.flag)
            .map(|raw| raw.map(|text| text.to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        // An empty variable counts as unset: some containers cannot unset one.
        if matches!(origin, Origin::Env(_)) && texts.iter().all(String::is_empty) {
            return None;
        }
        let told = match &self.shape {
            Text(_) | Word(_) => Told::Text(texts.into_iter().next()?),
            List(_) => Told::texts(texts),
            Switch(means) => match (matches.get_flag(self.flag), means) {
                (false, _) => return None,
                (true, Bool(yes)) => Told::Bool(*yes),
                (true, Says(word)) => Told::Text((*word).to_owned()),
            },
        };
        Some(Given::new(self.key, told, origin))
    }
}

fn possible(words: impl Iterator<Item = (&'static str, &'static str)>) -> PossibleValuesParser {
    let value = |(word, help)| PossibleValue::new(word).help(help);
    PossibleValuesParser::new(words.map(value).collect::<Vec<_>>())
}

impl clap::Args for Options {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config").long("config").value_name("FILE").env("NUNCIO_CONFIG").help(
            "The configuration file [default: ./nuncio.toml, if it exists]. `nuncio init` writes one to start with",
        );
        let agent = Arg::new("agent").long("agent").value_name("NAME=SPEC").action(ArgAction::Append).help(
            "Serve an agent under this name: https://… for a remote agent that speaks A2A in any version; cmd:PROGRAM or \
             cmd+json:PROGRAM for a program; openai:URL#MODEL or anthropic:URL#MODEL for a model; mailbox: for an agent \
             whose workers fetch their messages; may be repeated. Replaces an agent of that name in the file",
        );
        let allow_host = Arg::new("agent-allow-host")
            .long("agent-allow-host")
            .value_name("NAME=HOST")
            .action(ArgAction::Append)
            .help(
                "The agent of this name may also have interfaces at this host; may be repeated. By default its card may \
                 name only its own host: otherwise a card could send callers' messages to any host",
            );
        let card_key = Arg::new("card-key").long("card-key").value_name("FILE").action(ArgAction::Append).help(
            "Sign cards with this private key: a PKCS#8 PEM file for ES256, EdDSA or RS256. May be repeated: all keys \
             sign, and the public ones are served at /.well-known/jwks.json. With --trust-proxy it needs --public-url",
        );
        let card_kid = Arg::new("card-kid").long("card-kid").value_name("ID").action(ArgAction::Append).help(
            "The id of a card key, by which verifiers find it [default: its thumbprint]. May be repeated: the first is \
             for the first key",
        );
        let profile = Arg::new("profile")
            .long("profile")
            .value_name("PROFILE")
            .help("Behaviour of the conformance agent for an official test kit");
        let profile = profile.value_parser(possible(PROFILES.iter().map(|(word, help, _)| (*word, *help))));
        let hub = HUB.iter().map(|row| match row.flag {
            "tls-cert" => row.arg().requires("tls-key"),
            "tls-key" => row.arg().requires("tls-cert"),
            "no-anonymous" => row.arg().conflicts_with("allow-anonymous"),
            _ => row.arg(),
        });
        command
            .args([config, agent, allow_host])
            .args(hub)
            .args([card_key, card_kid.requires("card-key"), profile])
            .args(PUSH.iter().map(|row| row.arg().help_heading(WEBHOOKS)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Options {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let rows = HUB.iter().chain(PUSH);
        // Global options are absent if only a part of the command line is parsed.
        let global = GLOBAL.iter().filter(|row| matches.try_contains_id(row.flag).is_ok());
        let mut given: Vec<Given> = rows.chain(global).filter_map(|row| row.given(matches)).collect();
        given.extend(card_keys(matches)?);
        for text in matches.get_many::<String>("agent").into_iter().flatten() {
            given.push(agent(text)?);
        }
        given.extend(allowed_hosts(matches)?);
        let config = matches.get_one::<String>("config").filter(|file| !file.is_empty()).map(PathBuf::from);
        let profile = matches.get_one::<String>("profile");
        let profile = PROFILES.iter().find(|(word, ..)| profile.is_some_and(|profile| profile == word));
        Ok(Self { config, given, profile: profile.map(|(.., profile)| *profile) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn wrong(text: String) -> Error {
    Error::raw(ErrorKind::ValueValidation, text)
}

/// Pairs keys with their ids.
fn card_keys(matches: &ArgMatches) -> Result<Option<Given>, Error> {
    let texts = |id: &str| -> Vec<String> { matches.get_many(id).into_iter().flatten().cloned().collect() };
    let (keys, kids) = (texts("card-key"), texts("card-kid"));
    if kids.len() > keys.len() {
        return Err(wrong(format!(
            "--card-kid {}: expected at most one for each --card-key",
            kids.join(" --card-kid ")
        )));
    }
    let mut kids = kids.into_iter();
    let table = |file: String| {
        let kid = kids.next().map(|kid| ("kid", Told::Text(kid)));
        Told::Table(std::iter::once(("file", Told::Text(file))).chain(kid).collect())
    };
    let keys: Vec<Told> = keys.into_iter().map(table).collect();
    let origin = Origin::Flag("--card-key".to_owned());
    Ok((!keys.is_empty()).then(|| Given::new("card_keys", Told::List(keys), origin)))
}

/// Parses `NAME=SPEC`. Errors do not repeat the text: an address may contain a password.
fn agent(text: &str) -> Result<Given, Error> {
    let Some((name, spec)) = text.split_once('=') else {
        return Err(wrong(
            "--agent: expected NAME=SPEC, such as billing=https://billing.internal".to_owned(),
        ));
    };
    // If the name was forgotten, the text before the = is a part of an address, which may hold a password.
    let is_address = name.contains(['/', '@', ':']);
    let shown = if is_address { "the text before =".to_owned() } else { format!("{name:?}") };
    name.parse::<AgentName>().map_err(|error| wrong(format!("--agent: {shown} {error}")))?;
    let told = agent_spec(spec).map_err(|error| wrong(format!("--agent {name}: {error}")))?;
    let origin = Origin::Flag(format!("--agent {name}"));
    Ok(Given { path: vec!["agents".to_owned(), name.to_owned()], told, origin })
}

/// Parses each `NAME=HOST`; all hosts of an agent become one list.
fn allowed_hosts(matches: &ArgMatches) -> Result<Vec<Given>, Error> {
    const FLAG: &str = "--agent-allow-host";
    let mut hosts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for text in matches.get_many::<String>("agent-allow-host").into_iter().flatten() {
        let Some((name, host)) = text.split_once('=') else {
            return Err(wrong(format!(
                "{FLAG} {text}: expected NAME=HOST, such as billing=calls.billing.internal"
            )));
        };
        name.parse::<AgentName>().map_err(|error| wrong(format!("{FLAG} {name}: {error}")))?;
        hosts.entry(name).or_default().push(host);
    }
    let given = |(name, hosts): (&str, Vec<&str>)| Given {
        path: vec!["agents".to_owned(), name.to_owned(), "allow_hosts".to_owned()],
        told: Told::texts(hosts),
        origin: Origin::Flag(format!("{FLAG} {name}")),
    };
    Ok(hosts.into_iter().map(given).collect())
}

impl Options {
    /// The source of the configuration, with this file if one is given.
    pub(crate) fn source(self, file: Option<PathBuf>) -> Source {
        let default_file = || Some(PathBuf::from(DEFAULT_FILE)).filter(|file: &PathBuf| Path::exists(file));
        Source {
            file: file.or(self.config).or_else(default_file),
            given: self.given,
            variables: Variables::process(),
            profile: self.profile,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, CommandFactory as _};

    use super::*;

    fn options(words: &[&str]) -> Result<Options, Error> {
        let command = Options::augment_args(Command::new("serve").no_binary_name(true));
        Options::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    /// A flag that names no key would be a flag that does nothing.
    #[test]
    fn every_option_stands_for_a_key() {
        crate::args::Args::command().debug_assert();
        let schema = nuncio_hub::config::schema();
        for row in HUB.iter().chain(PUSH).chain(GLOBAL) {
            let mut table = schema;
            for key in row.key.split('.') {
                let within = table["$ref"].as_str().and_then(|name| name.rsplit('/').next());
                table = within.map_or(table, |name| &schema["$defs"][name]);
                table = &table["properties"][key];
            }
            assert!(table.is_object(), "--{}: there is no key {}", row.flag, row.key);
        }
    }

    #[test]
    fn hosts_of_agents_on_the_command_line() {
        let words = [
            "--agent-allow-host",
            "b=x.example",
            "--agent-allow-host",
            "a=::1",
            "--agent-allow-host",
            "b=10.0.0.1",
        ];
        let found = options(&words).unwrap();
        let paths: Vec<_> = found.given.iter().map(|given| given.path.join(".")).collect();
        assert_eq!(paths, ["agents.a.allow_hosts", "agents.b.allow_hosts"]);
        let Told::List(hosts) = &found.given[1].told else { panic!("a list") };
        assert_eq!(hosts.len(), 2);
        for (text, words) in
            [("x.example", "expected NAME=HOST"), ("B=x.example", "is not a valid name of an agent")]
        {
            let error = options(&["--agent-allow-host", text]).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn agents_on_the_command_line() {
        let found =
            options(&["--agent", "billing=https://b.internal?a=b", "--agent", "coder=cmd:./x -y"]).unwrap();
        let names: Vec<_> = found.given.iter().map(|given| given.path[1].as_str()).collect();
        assert_eq!(names, ["billing", "coder"]);
        for (text, words) in [
            ("https://me:s3cret@b.internal", "expected NAME=SPEC"),
            ("Billing=https://x", "--agent: \"Billing\" is not a valid name of an agent; expected a to z"),
            ("Foo bar=cmd:ls", "--agent: \"Foo bar\" is not a valid name of an agent"),
            ("tasks=https://x", "--agent: \"tasks\" is reserved"),
            (
                "https://me:s3cret@b.internal?x=y",
                "--agent: the text before = is not a valid name of an agent",
            ),
            ("a=mistral:http://x#y", "--agent a: unknown kind of agent"),
            ("a=s3cret:http://x#y", "--agent a: unknown kind of agent"),
        ] {
            let error = options(&["--agent", text]).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("s3cret"), "{text}: {error}");
        }
    }
}
