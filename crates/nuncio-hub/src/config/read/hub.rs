//! The settings of the hub itself.

use std::{net::SocketAddr, time::Duration};

use nuncio_protocol::op::Op;
use url::{Host, Url};

use super::Reader;
use crate::config::{
    Admin, AgentName, Anonymous, CardKey, Config, Connections, Data, Identity, Issuer, Limits, Push, Rate,
    Telemetry, TlsFiles, file::did_you_mean, raw, validate::is_base,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const HOUR: Duration = Duration::from_secs(60 * 60);
/// How long a durable store keeps finished tasks.
const KEEP_DAYS: u32 = 30;

impl Reader<'_> {
    /// What the hub is to do.
    pub(crate) fn config(&mut self, written: &raw::File) -> Config {
        let listen = self.address(&["listen"], &written.listen, "127.0.0.1:2602");
        let data = self.data(&written.data);
        let days = written.data.keep_days.unwrap_or(if data.is_durable() { KEEP_DAYS } else { 0 });
        let config = Config {
            listen,
            admin: self.admin(&written.admin),
            tls: written.tls.as_ref().map(|tls| TlsFiles {
                cert: self.path(&["tls", "cert"], &tls.cert),
                key: self.path(&["tls", "key"], &tls.key),
            }),
            public_url: written.public_url.as_ref().and_then(|url| self.public_url(url)),
            allowed_hosts: self.hosts(&["allow_hosts"], &written.allow_hosts),
            trusted_proxies: self.parse_all(&["trusted_proxies"], &written.trusted_proxies),
            card_keys: self.card_keys(&written.card_keys),
            legacy_card: written.legacy_card,
            keep: (days > 0).then(|| DAY * days),
            data,
            key_file: written.data.key_file.as_ref().map(|file| self.path(&["data", "key_file"], file)),
            push: self.push(&written.push),
            demo: written.demo,
            profile: None,
            agents: self.agents(&written.agents),
            default_agent: written.default_agent.clone(),
            identity: self.identity(&written.identity, written),
            limits: self.limits(&written.limits),
            cors: self.parse_all(&["cors", "origins"], &written.cors.origins),
            telemetry: self.telemetry(&written.telemetry),
            drain_grace: Duration::from_secs(written.drain_seconds),
            connections: connections(&written.connections),
        };
        self.warn_of_silent_proxy(&config);
        config
    }

    /// An address of another machine on loopback means a proxy. One that is not trusted is not known to the hub, and
    /// one that tells nothing of its callers makes them look like programs of this machine.
    fn warn_of_silent_proxy(&mut self, config: &Config) {
        let is_foreign = |host: &Host<&str>| match host {
            Host::Domain(name) => *name != "localhost",
            Host::Ipv4(address) => !address.is_loopback(),
            Host::Ipv6(address) => !address.is_loopback(),
        };
        let url = config.public_url.as_ref().and_then(Url::host);
        let is_open = config.identity.anonymous == Anonymous::Loopback && config.identity.jwt.is_empty();
        if config.listen.ip().is_loopback() && url.is_some_and(|host| is_foreign(&host)) && is_open {
            self.warn(
                &["public_url"],
                "callers of a proxy that adds no X-Forwarded-For need no credentials, as long as there is no key; set \
                 identity.anonymous = \"never\" (--no-anonymous), or say --allow-anonymous if that is what you want",
            );
        }
    }

    fn address(&mut self, path: &[&str], text: &str, example: &str) -> SocketAddr {
        text.parse().unwrap_or_else(|_| {
            self.wrong(path, format!("expected an IP address and a port, such as {example}"));
            SocketAddr::from(([127, 0, 0, 1], 0))
        })
    }

    fn admin(&mut self, written: &raw::Admin) -> Option<Admin> {
        if written.listen == "off" {
            return None;
        }
        let listen = self.address(&["admin", "listen"], &written.listen, "127.0.0.1:2603, or off");
        let token_file = written.token_file.as_ref().map(|file| self.path(&["admin", "token_file"], file));
        Some(Admin { listen, token_file })
    }

    fn public_url(&mut self, text: &str) -> Option<Url> {
        let url = Url::parse(text).ok().filter(is_base);
        if url.is_none() {
            self.wrong(
                &["public_url"],
                "expected an address such as https://agents.example.com, without credentials and without a query",
            );
        }
        url
    }

    pub(super) fn hosts(&mut self, path: &[&str], texts: &[String]) -> Vec<Host> {
        let mut hosts = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            // Addresses of the new family have brackets in URLs only.
            let host = text.parse().map(Host::Ipv6).or_else(|_| Host::parse(text));
            match host {
                Ok(host) => hosts.push(host),
                Err(_) => self.wrong(
                    &[path, &[&at.to_string()]].concat(),
                    "expected a name such as agents.example.com, without a port",
                ),
            }
        }
        hosts
    }

    fn card_keys(&mut self, written: &[raw::CardKey]) -> Vec<CardKey> {
        let key = |(at, key): (usize, &raw::CardKey)| CardKey {
            file: self.path(&["card_keys", &at.to_string(), "file"], &key.file),
            kid: key.kid.clone(),
        };
        written.iter().enumerate().map(key).collect()
    }

    /// Where tasks are kept. What would do nothing there is a mistake on the command line; in a file it may wait
    /// for another store.
    fn data(&mut self, written: &raw::Data) -> Data {
        let memory = Data::Memory { keep_finished: written.keep_finished };
        let data = match written.store.parse() {
            Ok(data) => data,
            Err(wrong) => {
                self.wrong(&["data", "store"], wrong);
                return memory;
            }
        };
        match data {
            Data::Memory { .. } => {
                self.idle(
                    "durability",
                    "memory promises nothing; add --data with a file or a database".to_owned(),
                );
                memory
            }
            Data::Sqlite { path, .. } => {
                let path = self.path(&["data", "store"], &path.to_string_lossy());
                let data = Data::Sqlite { path, durability: written.durability.into() };
                self.idle("keep_finished", for_memory(&data));
                data
            }
            Data::Postgres { url, .. } => {
                let data = Data::Postgres { url, durability: written.durability.into() };
                self.idle("keep_finished", for_memory(&data));
                data
            }
        }
    }

    /// A key that does nothing here.
    fn idle(&mut self, key: &str, text: String) {
        let path = ["data", key];
        if self.is_in_file(&path) {
            self.warn(&path, text);
        } else if self.is_said(&path) {
            self.wrong(&path, text);
        }
    }

    fn push(&mut self, written: &raw::Push) -> Option<Push> {
        let push = Push {
            allow_private: written.allow_private,
            allow: self.parse_all(&["push", "allow"], &written.allow),
            deny: self.parse_all(&["push", "deny"], &written.deny),
            https_only: written.https_only,
            give_up: HOUR * written.give_up_hours,
            chunks: written.chunks,
            dialect: written.dialect.into(),
            secrets: self.webhook_secrets(&["push"], &written.secrets, &written.secret_files),
        };
        written.enabled.then_some(push)
    }

    fn identity(&mut self, written: &raw::Identity, file: &raw::File) -> Identity {
        let mut jwt = Vec::new();
        for (at, issuer) in written.jwt.iter().enumerate() {
            let at = at.to_string();
            let path = ["identity", "jwt", &at];
            let within = |key| [path[0], path[1], path[2], key];
            self.url(&within("issuer"), &issuer.issuer);
            if issuer.issuer.contains('#') {
                // A principal is ISSUER#NAME: one issuer could make names of another's.
                self.wrong(&within("issuer"), "the name of an issuer has no # in it");
            }
            if written.jwt[..jwt.len()].iter().any(|known| known.issuer == issuer.issuer) {
                self.wrong(
                    &within("issuer"),
                    "there are two of this issuer; say its audiences in one of them",
                );
            }
            let jwks_url = issuer.jwks_url.as_ref().and_then(|url| self.url(&within("jwks_url"), url));
            let allow = issuer.allow.as_ref().map(|names| self.names(&within("allow"), names, file));
            let operations =
                issuer.operations.as_ref().map(|names| self.operations(&within("operations"), names));
            jwt.push(Issuer {
                issuer: issuer.issuer.clone(),
                audience: issuer.audience.clone(),
                jwks_url,
                algorithms: issuer.algorithms.clone(),
                principal_claim: issuer.principal_claim.clone(),
                tenant_claim: issuer.tenant_claim.clone(),
                allow,
                operations,
                agents_claim: issuer.agents_claim.clone(),
                operations_claim: issuer.operations_claim.clone(),
            });
        }
        Identity { anonymous: written.anonymous.into(), cards: written.cards.into(), jwt }
    }

    /// Names of agents. One that is not in the file may come by the admin API.
    fn names(&mut self, path: &[&str], texts: &[String], file: &raw::File) -> Vec<AgentName> {
        let mut names = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            let at = at.to_string();
            let path = [path, &[&at]].concat();
            let Some(name) = self.parse::<AgentName>(&path, text) else { continue };
            let is_demo = file.demo && crate::agents::demo_names().contains(&text.as_str());
            if !file.agents.contains_key(text) && !is_demo {
                let known: Vec<_> = file.agents.keys().map(String::as_str).collect();
                let hint = did_you_mean(text, &known);
                self.warn(&path, format!("there is no agent of this name yet{hint}"));
            }
            names.push(name);
        }
        names
    }

    fn operations(&mut self, path: &[&str], texts: &[String]) -> Vec<Op> {
        let mut operations = Vec::new();
        let known: Vec<_> = Op::TABLE.iter().map(|row| row.name).collect();
        for (at, text) in texts.iter().enumerate() {
            match Op::from_name(text) {
                Some(op) => operations.push(op),
                None => {
                    let hint = did_you_mean(text, &known);
                    let text = format!("is no operation; there are {}{hint}", known.join(", "));
                    self.wrong(&[path, &[&at.to_string()]].concat(), text);
                }
            }
        }
        operations
    }

    fn limits(&mut self, written: &raw::Limits) -> Limits {
        Limits {
            body_bytes: written.body_bytes,
            parts: written.parts,
            max_task_bytes: written.max_task_bytes,
            rate: written.rate.as_ref().and_then(|rate| self.rate(&["limits", "rate"], rate)),
            tasks: written.tasks,
            streams: written.streams,
            unfinished_tasks: written.unfinished_tasks,
            caller_share_percent: written.caller_share_percent,
        }
    }

    pub(super) fn rate(&mut self, path: &[&str], written: &raw::Rate) -> Option<Rate> {
        // Slower than one in a day is a way to say never, and faster than this is a way to say always.
        if !(1.0 / 86_400.0..=1_000_000.0).contains(&written.per_second) {
            self.wrong(&[path, &["per_second"]].concat(), "expected more than 0, and at most 1000000");
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to a million")]
        let second = written.per_second.ceil() as u32;
        Some(Rate { per_second: written.per_second, burst: written.burst.unwrap_or(second) })
    }

    fn telemetry(&mut self, written: &raw::Telemetry) -> Telemetry {
        if !(0.0..=1.0).contains(&written.sample_ratio) {
            self.wrong(&["telemetry", "sample_ratio"], "expected a number from 0 to 1");
        }
        let endpoint = written.otlp_endpoint.as_ref();
        Telemetry {
            otlp_endpoint: endpoint.and_then(|url| self.url(&["telemetry", "otlp_endpoint"], url)),
            otlp_headers: self.headers(&["telemetry", "otlp_headers"], &written.otlp_headers),
            sample_ratio: written.sample_ratio,
            service_name: written.service_name.clone(),
            log_level: written.log_level.clone(),
            log_format: written.log_format.into(),
        }
    }
}

fn for_memory(data: &Data) -> String {
    format!("is for memory; tasks in {data} are kept by their age, say --keep-days")
}

fn connections(written: &raw::Connections) -> Connections {
    Connections {
        most: written.max,
        most_per_address: Some(written.max_per_address).filter(|most| *most > 0),
        streams: written.max_streams,
        head_timeout: Duration::from_secs(written.head_seconds),
        idle_timeout: Duration::from_secs(written.idle_seconds),
        write_timeout: Duration::from_secs(written.write_seconds),
    }
}
