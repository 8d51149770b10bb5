//! The options of `serve`: each says what a key of `nuncio.toml` could say, and is stronger than the file.
//!
//! What their values must look like stands in the schema of the file, once; here is only how they are typed.

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

/// The file that is used if it is there and nothing else is said.
const USUAL: &str = "nuncio.toml";
const WEBHOOKS: &str = "Webhooks";

/// What the command line and its variables say.
#[derive(Debug)]
pub(crate) struct Options {
    config: Option<PathBuf>,
    given: Vec<Given>,
    profile: Option<Profile>,
}

/// An option.
struct Row {
    /// Without its dashes.
    flag: &'static str,
    /// The key that it stands for.
    key: &'static str,
    shape: Shape,
    env: Option<&'static str>,
    help: &'static str,
}

/// How an option is typed.
enum Shape {
    /// With a value of this name.
    Text(&'static str),
    /// With a value of this name, again and again.
    List(&'static str),
    /// With one of these.
    Word(&'static [(&'static str, &'static str)]),
    /// Alone, for what it stands for.
    Switch(Means),
}

/// What an option that stands alone says.
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
        "Where callers reach us; port 0 takes a free one; 127.0.0.1:2602 when absent",
    ),
    row(
        "admin",
        "admin.listen",
        Text("ADDRESS|off"),
        Some("NUNCIO_ADMIN_LISTEN"),
        "Where whoever runs this hub reaches it, on this machine only; port 0 takes a free one, off none; \
         127.0.0.1:2603 when absent",
    ),
    row(
        "admin-token-file",
        "admin.token_file",
        Text("FILE"),
        Some("NUNCIO_ADMIN_TOKEN_FILE"),
        "Write the token for that to this file; where commands of this user look for it when absent \
         ($XDG_STATE_HOME or ~/.local/state, nuncio/admin-PORT.token)",
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
        "How callers see us, if not at the address we listen on, such as https://agents.example.com",
    ),
    row(
        "allow-host",
        "allow_hosts",
        List("NAME"),
        None,
        "On loopback, answer to this host name, too; may be repeated. Our own names and that of --public-url are \
         answered to in any case, others are not: a web page could call us by them (DNS rebinding)",
    ),
    row(
        "trust-proxy",
        "trusted_proxies",
        List("CIDR"),
        None,
        "Believe what proxies of this network say about how they were called (Forwarded, X-Forwarded-Host, -Proto, \
         -Port, -Prefix), and show it on cards; may be repeated. Name only networks from which nobody but your \
         proxies can connect. On loopback the names need --allow-host. Say who may call: --no-anonymous with keys or \
         tokens, or --allow-anonymous",
    ),
    row(
        "tls-cert",
        "tls.cert",
        Text("FILE"),
        Some("NUNCIO_TLS_CERT"),
        "Speak TLS: the certificate and those between it and its root, as PEM. The files may be replaced while we \
         run; SIGHUP makes us look at once",
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
        "Where tasks are kept: memory, a file (FILE or sqlite:FILE), or postgres://USER@HOST/DATABASE. In memory \
         when absent: gone with the process. Others can see the command line: an address with a password belongs \
         into the variable",
    ),
    row(
        "durability",
        "data.durability",
        Word(&[
            ("full", "What is answered is on disk"),
            ("relaxed", "What is answered may be lost with the machine, not with the hub"),
        ]),
        None,
        "What an answer promises: full when absent",
    ),
    row(
        "keep-days",
        "data.keep_days",
        Text("DAYS"),
        None,
        "For how many days finished tasks are kept; 0: for ever. 30 when absent, but in memory only their number \
         counts",
    ),
    row(
        "keep-finished",
        "data.keep_finished",
        Text("N"),
        None,
        "How many finished tasks are kept in memory; 100,000 when absent",
    ),
    row("default", "default_agent", Text("NAME"), None, "This agent answers at the root, too"),
    row(
        "allow-anonymous",
        "identity.anonymous",
        Switch(Says("always")),
        None,
        "Let anybody call without credentials, from wherever they reach us",
    ),
    row(
        "no-anonymous",
        "identity.anonymous",
        Switch(Says("never")),
        None,
        "Let nobody call without credentials, callers on this machine neither: what a hub behind a proxy wants",
    ),
    row(
        "drain-seconds",
        "drain_seconds",
        Text("SECONDS"),
        None,
        "How many seconds running tasks may go on after the signal to stop; 30 when absent",
    ),
    row(
        "max-connections",
        "connections.max",
        Text("N"),
        None,
        "How many connections may be open at a time; 100,000 when absent",
    ),
    row(
        "max-streams",
        "connections.max_streams",
        Text("N"),
        None,
        "How many requests and streams may be open at a time on one connection of HTTP/2; 250 when absent",
    ),
    row(
        "idle-seconds",
        "connections.idle_seconds",
        Text("SECONDS"),
        None,
        "After how many seconds a connection is closed that has nothing to answer; 120 when absent",
    ),
];

const PUSH: &[Row] = &[
    row("no-push", "push.enabled", Switch(Bool(false)), None, "No agent tells webhooks"),
    row(
        "allow-private-push",
        "push.allow_private",
        Switch(Bool(true)),
        Some("NUNCIO_ALLOW_PRIVATE_PUSH"),
        "Callers may name webhooks on this machine and in private networks. Without this they are refused: a caller \
         could reach through us what it cannot reach itself",
    ),
    row(
        "allow-push",
        "push.allow",
        List("CIDR"),
        None,
        "Callers may name webhooks in this network, whatever it is; may be repeated",
    ),
    row(
        "deny-push",
        "push.deny",
        List("CIDR"),
        None,
        "Callers may name no webhook in this network, whatever else is said; may be repeated. For public addresses \
         that are inside of the house",
    ),
    row("push-https-only", "push.https_only", Switch(Bool(true)), None, "Webhooks are told by https only"),
    row(
        "push-give-up-hours",
        "push.give_up_hours",
        Text("HOURS"),
        None,
        "After so many hours a delivery that still fails is given up; 24 when absent",
    ),
    row(
        "push-chunks",
        "push.chunks",
        Switch(Bool(true)),
        None,
        "Tell webhooks of artifacts piece by piece, as they are made; else once, when they are complete",
    ),
    row(
        "push-dialect",
        "push.dialect",
        Word(&[("standard", "The bare task"), ("neuralpost", "A JSON-RPC response around the event")]),
        None,
        "What webhooks get that were registered in version 0.3; standard when absent",
    ),
    row(
        "push-secret-file",
        "push.secret_files",
        List("FILE"),
        None,
        "Sign notifications with the secret in this file, too (Standard Webhooks: whsec_ and base64); may be \
         repeated: all sign, so that one can be replaced",
    ),
    row(
        "key-file",
        "data.key_file",
        Text("FILE"),
        Some("NUNCIO_KEY_FILE"),
        "The key that seals what callers confide, and signs notifications; made when it is not there. Beside the \
         data when absent; with a database it must be said, and be the same at every hub",
    ),
];

/// Options of all commands that say something about the hub, too.
const GLOBAL: &[Row] = &[
    row("log-level", "telemetry.log_level", Text("LEVEL"), Some("NUNCIO_LOG"), ""),
    row("log-format", "telemetry.log_format", Text("FORMAT"), None, ""),
];

const PROFILES: &[(&str, &str, Profile)] = &[
    ("full", "Everything there is, in version 1.0", Profile::Full),
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
            // The address of a database may hold a password.
            Some(env) => arg.env(env).hide_env_values(self.key == "data.store"),
            None => arg,
        }
    }

    /// What was said, if anything was.
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
        // A variable that is set to nothing is how some containers unset one.
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
            "Read this file; ./nuncio.toml when absent, if there is one. `nuncio init` writes one to begin with",
        );
        let agent = Arg::new("agent").long("agent").value_name("NAME=SPEC").action(ArgAction::Append).help(
            "Serve an agent under this name: https://… for one that speaks A2A already, in any version; cmd:PROGRAM or \
             cmd+json:PROGRAM for a program; may be repeated. In place of the file's agent of that name",
        );
        let allow_host = Arg::new("agent-allow-host")
            .long("agent-allow-host")
            .value_name("NAME=HOST")
            .action(ArgAction::Append)
            .help(
                "The agent of this name may have interfaces at this host, too; may be repeated. Without this its card \
                 may name interfaces at its own host only: what callers say would go wherever the card says",
            );
        let card_key = Arg::new("card-key").long("card-key").value_name("FILE").action(ArgAction::Append).help(
            "Sign cards with this private key: a PKCS#8 PEM file for ES256, EdDSA or RS256. May be repeated: all keys \
             sign, and the public ones are served at /.well-known/jwks.json. With --trust-proxy it needs --public-url",
        );
        let card_kid = Arg::new("card-kid").long("card-kid").value_name("ID").action(ArgAction::Append).help(
            "The name of a card key, by which verifiers find it; its thumbprint when absent. May be repeated: the first \
             names the first key",
        );
        let profile = Arg::new("profile")
            .long("profile")
            .value_name("PROFILE")
            .help("How the conformance agent behaves for a run of an official test kit");
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
        // Those of all commands are not here if only a part of the command line is read.
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

/// Keys and their names, side by side.
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

/// `NAME=SPEC`. The whole is not echoed: an address may hold a password.
fn agent(text: &str) -> Result<Given, Error> {
    let Some((name, spec)) = text.split_once('=') else {
        return Err(wrong(
            "--agent: expected NAME=SPEC, such as billing=https://billing.internal".to_owned(),
        ));
    };
    // Where the name was forgotten, what is before the = is the beginning of an address.
    let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let shown = if is_word { format!("--agent {name}") } else { "--agent".to_owned() };
    name.parse::<AgentName>().map_err(|error| wrong(format!("{shown}: {error}")))?;
    let told = agent_spec(spec).map_err(|error| wrong(format!("--agent {name}: {error}")))?;
    let origin = Origin::Flag(format!("--agent {name}"));
    Ok(Given { path: vec!["agents".to_owned(), name.to_owned()], told, origin })
}

/// `NAME=HOST`, again and again: all hosts of an agent are one list.
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
    /// Where the configuration comes from, with this file if one is named.
    pub(crate) fn source(self, file: Option<PathBuf>) -> Source {
        let usual = || Some(PathBuf::from(USUAL)).filter(|file: &PathBuf| Path::exists(file));
        Source {
            file: file.or(self.config).or_else(usual),
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
        for (text, words) in [("x.example", "expected NAME=HOST"), ("B=x.example", "is no name of an agent")]
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
            ("Billing=https://x", "--agent Billing: is no name of an agent"),
            ("tasks=https://x", "--agent tasks: is a part of other addresses"),
            ("https://me:s3cret@b.internal?x=y", "--agent: is no name of an agent"),
            ("a=openai:http://x#y", "--agent a: this version knows no such kind of agent"),
            ("a=s3cret:http://x#y", "--agent a: this version knows no such kind of agent"),
        ] {
            let error = options(&["--agent", text]).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("s3cret"), "{text}: {error}");
        }
    }
}
