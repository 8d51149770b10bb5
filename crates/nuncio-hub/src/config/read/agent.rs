//! The settings of an agent.

use std::{
    collections::BTreeMap,
    path::{MAIN_SEPARATOR, Path},
    time::Duration,
};

use nuncio_protocol::{Binding, FileBytes, Version};

use super::Reader;
use crate::config::{
    Agent, AgentKind, AgentLimits, AgentName, AgentOrigin, AgentPush, Auth, CardSource, ClientIdentity,
    Command, Credential, Demo, Follow, Format, Mode, OAuth2, Trust, Upstream, raw,
};

/// Keys that say something about agents that are called.
const OF_URL: &[&str] = &[
    "mode",
    "version",
    "binding",
    "card",
    "card_refresh_seconds",
    "allow_hosts",
    "trust",
    "auth",
    "forward_headers",
    "timeout_seconds",
    "send_timeout_seconds",
    "give_up_hours",
    "idempotent",
    "follow",
    "poll_seconds",
    "file_bytes",
    "extended_card",
];
/// Headers of a caller that are never passed on: what is between two neighbours (RFC 9110, 7.6.1), and what the hub
/// says itself. A length or an encoding of a body that is another's hides one call in another.
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
/// Keys that say something about programs.
const OF_COMMAND: &[&str] = &[
    "format",
    "directory",
    "env",
    "env_allow",
    "time_limit_seconds",
    "output_limit_bytes",
    "memory_limit_bytes",
];

impl Reader<'_> {
    pub(super) fn agents(&mut self, written: &BTreeMap<String, raw::Agent>) -> Vec<Agent> {
        let mut agents = Vec::new();
        for (name, agent) in written {
            let path = ["agents", name];
            let Some(name) = self.parse::<AgentName>(&path, name) else { continue };
            let Some(kind) = self.kind(&path, agent) else { continue };
            let origin = if self.is_in_file(&path) { AgentOrigin::File } else { AgentOrigin::Flag };
            agents.push(Agent {
                title: agent.title.clone(),
                description: agent.description.clone(),
                tags: agent.tags.clone().unwrap_or_default(),
                visible: agent.visible.unwrap_or(true),
                cards: agent.cards.map(Into::into),
                versions: self.versions(&path, agent.versions.as_deref()),
                limits: self.agent_limits(&path, agent.limits.as_ref()),
                push: self.agent_push(&path, agent.push.as_ref()),
                ..Agent::new(name, kind, origin)
            });
        }
        agents
    }

    /// The versions in which callers reach it, the newest first.
    fn versions(&mut self, path: &[&str], written: Option<&[raw::Version]>) -> Vec<Version> {
        let Some(written) = written else { return Version::ALL.to_vec() };
        if written.is_empty() {
            self.wrong(&[path, &["versions"]].concat(), "expected at least one of \"1.0\" and \"0.3\"");
        }
        let is_written = |version: &Version| written.iter().any(|said| Version::from(*said) == *version);
        Version::ALL.iter().copied().filter(is_written).collect()
    }

    /// What it is: exactly one thing, and nothing is said that belongs to another.
    fn kind(&mut self, path: &[&str], agent: &raw::Agent) -> Option<AgentKind> {
        let (kind, strange): (_, &[&[&str]]) = match (&agent.url, &agent.command, agent.demo) {
            (Some(url), None, None) => {
                (self.upstream(path, url, agent).map(|it| AgentKind::Upstream(Box::new(it))), &[OF_COMMAND])
            }
            (None, Some(line), None) => {
                (self.command(path, line, agent).map(|it| AgentKind::Command(Box::new(it))), &[OF_URL])
            }
            (None, None, Some(demo)) => {
                let demo = match demo {
                    raw::Demo::Echo => Demo::Echo,
                    raw::Demo::Slow => Demo::Slow,
                    raw::Demo::Conformance => Demo::Conformance,
                };
                (Some(AgentKind::Demo(demo)), &[OF_URL, OF_COMMAND, &["max_concurrent"]])
            }
            (None, None, None) => {
                self.wrong(path, "what is it? say one of url, command and demo");
                return None;
            }
            _ => {
                self.wrong(path, "expected only one of url, command and demo");
                return None;
            }
        };
        for key in strange.iter().copied().flatten() {
            let path = [path, &[*key]].concat();
            if self.is_said(&path) {
                let with = if OF_URL.contains(key) { "url" } else { "command" };
                self.wrong(&path, format!("is for agents that have {with}"));
            }
        }
        kind
    }

    fn upstream(&mut self, path: &[&str], url: &str, agent: &raw::Agent) -> Option<Upstream> {
        let within = |key| [path, &[key]].concat();
        let mut upstream = Upstream::new(self.url(&within("url"), url)?);
        upstream.mode = match agent.mode {
            None | Some(raw::Mode::Durable) => Mode::Durable,
            Some(raw::Mode::Proxy) => Mode::Proxy,
        };
        upstream.version = agent.version.map(Into::into);
        upstream.binding = agent.binding.map(|binding| match binding {
            raw::Binding::Jsonrpc => Binding::JsonRpc,
            raw::Binding::Rest => Binding::HttpJson,
            raw::Binding::Grpc => Binding::Grpc,
        });
        upstream.follow = match agent.follow {
            None | Some(raw::Follow::Auto) => Follow::Auto,
            Some(raw::Follow::Stream) => Follow::Stream,
            Some(raw::Follow::Poll) => Follow::Poll,
            Some(raw::Follow::Block) => Follow::Block,
        };
        upstream.file_bytes = match agent.file_bytes {
            None | Some(raw::FileBytes::Detect) => FileBytes::Detect,
            Some(raw::FileBytes::Base64) => FileBytes::Base64,
            Some(raw::FileBytes::Raw) => FileBytes::Raw,
        };
        upstream.card = agent.card.as_ref().and_then(|card| self.card(&within("card"), card));
        let allowed = agent.allow_hosts.as_deref().unwrap_or_default();
        upstream.allow_hosts = self.hosts(&within("allow_hosts"), allowed);
        upstream.trust = self.trust(&within("trust"), agent.trust.as_ref());
        upstream.auth = self.auth(&within("auth"), agent.auth.as_ref());
        for (at, name) in agent.forward_headers.iter().flatten().enumerate() {
            let at = at.to_string();
            let place = [&within("forward_headers")[..], &[&at]].concat();
            match self.header_name(&place, name) {
                Some(header) if NOT_FORWARDED.contains(&header.as_str()) => {
                    self.wrong(&place, "is for the next connection, or said by the hub itself; leave it out");
                }
                header => upstream.forward_headers.extend(header),
            }
        }
        let seconds = |seconds: Option<u64>, usual| seconds.map_or(usual, Duration::from_secs);
        upstream.card_refresh = seconds(agent.card_refresh_seconds, upstream.card_refresh);
        upstream.timeout = seconds(agent.timeout_seconds, upstream.timeout);
        upstream.send_timeout = seconds(agent.send_timeout_seconds, upstream.send_timeout);
        upstream.give_up =
            seconds(agent.give_up_hours.map(|hours| u64::from(hours) * 3600), upstream.give_up);
        if let Some(seconds) = agent.poll_seconds {
            match Duration::try_from_secs_f64(seconds) {
                Ok(every) if !every.is_zero() => upstream.poll_every = every,
                _ => self.wrong(&within("poll_seconds"), "expected more than 0"),
            }
        }
        upstream.max_concurrent = agent.max_concurrent.map(|most| most as usize);
        upstream.idempotent = agent.idempotent.unwrap_or_default();
        upstream.extended_card = agent.extended_card.unwrap_or_default();
        Some(upstream)
    }

    /// An address if it looks like one, else a file.
    fn card(&mut self, path: &[&str], text: &str) -> Option<CardSource> {
        if text.contains("://") {
            return self.url(path, text).map(CardSource::Url);
        }
        Some(CardSource::File(self.path(path, text)))
    }

    fn trust(&mut self, path: &[&str], written: Option<&raw::Trust>) -> Trust {
        let Some(written) = written else { return Trust::default() };
        if written.require && written.keys.is_empty() {
            self.wrong(&[path, &["require"]].concat(), "needs keys that count; add keys = [\"FILE\"]");
        }
        Trust { keys: self.paths(&[path, &["keys"]].concat(), &written.keys), require: written.require }
    }

    fn auth(&mut self, path: &[&str], written: Option<&raw::Auth>) -> Auth {
        let Some(written) = written else { return Auth::default() };
        let within = |key| [path, &[key]].concat();
        let bearer = self.secret(path, "bearer", written.bearer.as_ref(), written.bearer_file.as_ref());
        let password =
            self.secret(path, "password", written.password.as_ref(), written.password_file.as_ref());
        let basic = match (&written.user, password) {
            (Some(user), Some(password)) => Some(Credential::Basic { user: user.clone(), password }),
            (Some(_), None) if self.is_said(&within("password_file")) => None,
            (Some(_), None) => {
                self.wrong(&within("user"), "needs password or password_file");
                None
            }
            (None, Some(_)) => {
                self.wrong(path, "a password needs a user");
                None
            }
            (None, None) => None,
        };
        let oauth2 = written.oauth2.as_ref().and_then(|it| self.oauth2(&within("oauth2"), it));
        let mut credentials: Vec<_> = [bearer.map(Credential::Bearer), basic, oauth2.map(Credential::OAuth2)]
            .into_iter()
            .flatten()
            .collect();
        if credentials.len() > 1 {
            self.wrong(path, "expected only one of bearer, user and oauth2");
        }
        let identity = match (&written.client_cert, &written.client_key) {
            (Some(cert), Some(key)) => Some(ClientIdentity {
                cert: self.path(&within("client_cert"), cert),
                key: self.path(&within("client_key"), key),
            }),
            (None, None) => None,
            (Some(_), None) => {
                self.wrong(&within("client_cert"), "needs client_key");
                None
            }
            (None, Some(_)) => {
                self.wrong(&within("client_key"), "needs client_cert");
                None
            }
        };
        Auth {
            credential: credentials.pop(),
            headers: self.headers(&within("headers"), &written.headers),
            identity,
            authorities: self.paths(&within("ca"), &written.ca),
        }
    }

    fn oauth2(&mut self, path: &[&str], written: &raw::OAuth2) -> Option<OAuth2> {
        let token_url = self.url(&[path, &["token_url"]].concat(), &written.token_url);
        let (here, file) = (written.client_secret.as_ref(), written.client_secret_file.as_ref());
        let client_secret = self.secret(path, "client_secret", here, file);
        if here.is_none() && file.is_none() {
            self.wrong(path, "client_secret or client_secret_file is missing");
        }
        Some(OAuth2 {
            token_url: token_url?,
            client_id: written.client_id.clone(),
            client_secret: client_secret?,
            scopes: written.scopes.clone(),
            audience: written.audience.clone(),
        })
    }

    fn command(&mut self, path: &[&str], line: &raw::CommandLine, agent: &raw::Agent) -> Option<Command> {
        let within = |key| [path, &[key]].concat();
        let format = match agent.format {
            None | Some(raw::Format::Text) => Format::Text,
            Some(raw::Format::Json) => Format::Json,
        };
        let mut command = match line {
            raw::CommandLine::Line(line) => match Command::parse(format, line) {
                Ok(command) => command,
                Err(wrong) => {
                    self.wrong(&within("command"), wrong);
                    return None;
                }
            },
            raw::CommandLine::Words(words) => {
                let (program, arguments) =
                    words.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
                Command::new(format, program, arguments.iter().cloned())
            }
        };
        // A bare name is looked for in PATH.
        if command.program.contains(['/', MAIN_SEPARATOR]) && !Path::new(&command.program).is_absolute() {
            let program = self.path(&within("command"), &command.program);
            command.program = program.to_string_lossy().into_owned();
        }
        command.directory = agent.directory.as_ref().map(|folder| self.path(&within("directory"), folder));
        for (name, text) in agent.env.iter().flatten() {
            let secret = self.secret_text(&[&within("env")[..], &[name.as_str()]].concat(), text);
            command.environment.0.extend(secret.map(|secret| (name.clone(), secret.reveal().to_owned())));
        }
        if let Some(names) = &agent.env_allow {
            command.inherit.clone_from(names);
        }
        if let Some(seconds) = agent.time_limit_seconds {
            command.time_limit = (seconds > 0).then(|| Duration::from_secs(seconds));
        }
        command.output_limit = agent.output_limit_bytes.unwrap_or(command.output_limit);
        command.memory_limit = agent.memory_limit_bytes;
        command.processes = agent.max_concurrent.map_or(command.processes, |most| most as usize);
        command.description.clone_from(&agent.description);
        command.tags = agent.tags.clone().unwrap_or_default();
        Some(command)
    }

    fn agent_limits(&mut self, path: &[&str], written: Option<&raw::AgentLimits>) -> AgentLimits {
        let Some(written) = written else { return AgentLimits::default() };
        let rate_path = [path, &["limits", "rate"]].concat();
        AgentLimits {
            body_bytes: written.body_bytes,
            parts: written.parts,
            max_task_bytes: written.max_task_bytes,
            rate: written.rate.as_ref().and_then(|rate| self.rate(&rate_path, rate)),
            tasks: written.tasks,
            streams: written.streams,
        }
    }

    fn agent_push(&mut self, path: &[&str], written: Option<&raw::AgentPush>) -> AgentPush {
        let Some(written) = written else { return AgentPush::default() };
        let (here, files) = (written.secrets.as_deref(), written.secret_files.as_deref());
        let is_said = here.is_some() || files.is_some();
        let table = [path, &["push"]].concat();
        let secrets = self.webhook_secrets(&table, here.unwrap_or_default(), files.unwrap_or_default());
        AgentPush {
            chunks: written.chunks,
            dialect: written.dialect.map(Into::into),
            secrets: is_said.then_some(secrets),
        }
    }
}
