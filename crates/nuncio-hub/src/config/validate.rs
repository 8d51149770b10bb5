//! Settings that contradict each other.

use std::{collections::BTreeSet, fmt};

use url::{Host, Url};

use super::{
    Agent, AgentKind, Anonymous, Config, Data, Demo,
    file::{Findings, Node, Problem, Severity, did_you_mean},
    form::{BASE_URL, is_base},
    tools,
};

/// The message for a hub without agents.
pub(crate) const NO_AGENT: &str = "there is no agent to serve; use --agent NAME=URL, list agents in nuncio.toml (`nuncio init` writes one), use \
     --demo for the demo agents, or leave administration on and run `nuncio agent add NAME URL` later";

/// A mistake in a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// The key of `nuncio.toml` that is wrong; empty if something is missing.
    pub key: String,
    /// The mistake, and the remedy.
    pub text: String,
}

impl Invalid {
    pub(super) fn new(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { key: key.into(), text: text.into() }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => f.write_str(&self.text),
            key => write!(f, "{key}: {}", self.text),
        }
    }
}

impl Config {
    /// Lists the mistakes that can be found without files and network.
    #[must_use]
    pub fn validate(&self) -> Vec<Invalid> {
        [self.validate_hub(), self.validate_agents()].concat()
    }

    /// Compares the valid settings of a tree with each other: consequences of a mistake are not reported as
    /// further ones.
    pub(super) fn compare(&self, tree: &Node, findings: &mut Findings) {
        let is_error = |problem: &&Problem| problem.severity == Severity::Error;
        let is_of_agent = |problem: &Problem| problem.key.starts_with("agents.");
        if findings.problems.iter().filter(is_error).all(is_of_agent) {
            self.compare_store(tree, findings);
            self.compare_issuers(tree, findings);
            self.compare_peers(tree, findings);
            self.warn_of_silent_proxy(tree, findings);
            note(self.validate_hub(), tree, findings);
        }
        if !findings.problems.iter().any(|problem| is_error(&problem)) {
            note(self.validate_agents(), tree, findings);
        }
    }

    /// A setting without effect for the store is an error on the command line; in a file it may be for
    /// another store.
    fn compare_store(&self, tree: &Node, findings: &mut Findings) {
        let store = self.data.store();
        let (key, text) = match &store {
            Data::Memory { .. } => {
                ("durability", "has no effect in memory; add --data with a file or a database".to_owned())
            }
            Data::Sqlite { .. } | Data::Postgres { .. } => {
                ("keep_finished", format!("is for memory; tasks in {store} are kept by age, use --keep-days"))
            }
        };
        let path = ["data", key];
        if tree.find(&path).is_some_and(|node| node.spot.is_file()) {
            findings.warn_in(tree, &path, text);
        } else if tree.is_said(&path) {
            findings.refuse_in(tree, &path, text);
        }
    }

    /// Checks that each issuer is listed once. Agents it allows may be added later by the admin API: a
    /// warning.
    fn compare_issuers(&self, tree: &Node, findings: &mut Findings) {
        let known: Vec<&str> = tree.find(&["agents"]).into_iter().flat_map(Node::keys).collect();
        for (at, issuer) in self.identity.jwt.iter().enumerate() {
            let index = at.to_string();
            if self.identity.jwt[..at].iter().any(|other| other.issuer == issuer.issuer) {
                let text = "this issuer is listed twice; list all its audiences in one entry";
                findings.refuse_in(tree, &["identity", "jwt", &index, "issuer"], text);
            }
            for (at, name) in issuer.allow.iter().flatten().enumerate() {
                let is_demo = self.demo && Demo::has_name(name);
                if !known.contains(&&**name) && !is_demo {
                    let hint = did_you_mean(name, &known);
                    let path = ["identity", "jwt", &index, "allow", &at.to_string()];
                    findings.warn_in(tree, &path, format!("there is no agent of this name yet{hint}"));
                }
            }
        }
    }

    /// Checks the agents that models may call. Others may be added later by the admin API: a warning.
    fn compare_peers(&self, tree: &Node, findings: &mut Findings) {
        let known: Vec<&str> = tree.find(&["agents"]).into_iter().flat_map(Node::keys).collect();
        for agent in &self.agents {
            let AgentKind::Model(model) = &agent.kind else { continue };
            // Seats of rooms are agents as well, and a template has agents of any name that begins with its own.
            let is_known = |name: &str| {
                let is_of = |other: &Agent| {
                    let rest = name.strip_prefix(&*other.name);
                    rest.is_some_and(|rest| {
                        rest.is_empty() || other.kind.is_template() && rest.starts_with('-')
                    })
                };
                known.contains(&name) || self.demo && Demo::has_name(name) || self.agents.iter().any(is_of)
            };
            for name in model.agents.iter().filter(|name| !is_known(name)) {
                let text =
                    format!("there is no agent {name} in this configuration{}", did_you_mean(name, &known));
                findings.warn_in(tree, &["agents", &*agent.name, "agents"], text);
            }
        }
    }

    /// Warns of a proxy that is not trusted: on loopback, a public URL of another machine implies a proxy. If
    /// it adds no forwarding headers, its callers look like programs on this machine.
    fn warn_of_silent_proxy(&self, tree: &Node, findings: &mut Findings) {
        let is_foreign = |host: &Host<&str>| match host {
            Host::Domain(name) => *name != "localhost",
            Host::Ipv4(address) => !address.is_loopback(),
            Host::Ipv6(address) => !address.is_loopback(),
        };
        let url = self.public_url.as_ref().and_then(Url::host);
        let is_open = self.identity.anonymous == Anonymous::Loopback && self.identity.jwt.is_empty();
        if self.listen.ip().is_loopback() && url.is_some_and(|host| is_foreign(&host)) && is_open {
            findings.warn_in(
                tree,
                &["public_url"],
                "callers of a proxy that adds no X-Forwarded-For need no credentials, as long as there is no key; set \
                 identity.anonymous = \"never\" (--no-anonymous), or use --allow-anonymous if that is intended",
            );
        }
    }

    fn validate_hub(&self) -> Vec<Invalid> {
        let mut found = Vec::new();
        self.validate_edge(&mut found);
        self.validate_connections(&mut found);
        found
    }

    fn validate_edge(&self, found: &mut Vec<Invalid>) {
        let has_credentials = self.identity.anonymous != Anonymous::Loopback || !self.identity.jwt.is_empty();
        if self.listen.ip().is_loopback() && !self.trusted_proxies.is_empty() && !has_credentials {
            found.push(Invalid::new(
                "trusted_proxies",
                "a trusted proxy would let anybody call the agents, because no credentials are configured and its \
                 calls come from this machine; set identity.anonymous = \"never\" (--no-anonymous) and make keys, or \
                 use --allow-anonymous if that is intended",
            ));
        }
        if !self.listen.ip().is_loopback() && !has_credentials {
            found.push(Invalid::new(
                "listen",
                "would let anybody call the agents, because no credentials are configured; listen on 127.0.0.1, \
                 set identity.anonymous = \"never\" (--no-anonymous) and make keys, or use --allow-anonymous if that is \
                 intended",
            ));
        }
        if self.listen.ip().is_unspecified() && self.public_url.is_none() {
            found.push(Invalid::new(
                "listen",
                format!(
                    "cards need an address that callers can use, and {} is none; add \
                     --public-url or public_url, such as {}://HOST:{}",
                    self.listen.ip(),
                    self.scheme(),
                    self.listen.port()
                ),
            ));
        }
        if self.admin.listen.is_some_and(|listen| !listen.ip().is_loopback()) {
            found.push(Invalid::new(
                "admin.listen",
                "administration is for this machine only; listen on 127.0.0.1, and from other machines use a \
                 tunnel, such as ssh -L 2603:127.0.0.1:2603",
            ));
        }
        if let Some(url) = &self.public_url
            && !is_base(url)
        {
            found.push(Invalid::new("public_url", BASE_URL));
        }
        if !self.card_keys.is_empty() && !self.trusted_proxies.is_empty() && self.public_url.is_none() {
            found.push(Invalid::new(
                "card_keys",
                "card keys (--card-key) with trusted proxies (--trust-proxy) would sign any address that a \
                 caller makes a proxy forward; add --public-url or public_url with the address that callers \
                 use, such as https://agents.example.com",
            ));
        }
    }

    fn validate_connections(&self, found: &mut Vec<Invalid>) {
        let connections = &self.connections;
        for (key, is_zero, why) in [
            ("connections.max", connections.max == 0, "nobody could connect"),
            ("connections.max_streams", connections.max_streams == 0, "no request could be made over HTTP/2"),
            (
                "connections.head_seconds",
                connections.head_timeout.is_zero(),
                "no request could be read in time",
            ),
            (
                "connections.idle_seconds",
                connections.idle_timeout.is_zero(),
                "every connection would be closed at once",
            ),
        ] {
            if is_zero {
                found.push(Invalid::new(key, format!("{why}; expected 1 or more")));
            }
        }
    }

    fn validate_agents(&self) -> Vec<Invalid> {
        let mut found = Vec::new();
        let demo = Demo::ALL.into_iter().filter(|_| self.demo);
        let mut names: Vec<&str> = demo.map(Demo::name).collect();
        let mut seen: BTreeSet<&str> = names.iter().copied().collect();
        for agent in &self.agents {
            if !seen.insert(&agent.name) {
                let text = if self.demo && Demo::has_name(&agent.name) {
                    "the demo has an agent of this name; choose another one, or leave out the demo"
                } else {
                    "there are two agents of this name"
                };
                found.push(Invalid::new(format!("agents.{}", agent.name), text));
            }
            names.push(&agent.name);
            validate_card(agent, &mut found);
            if let AgentKind::Command(command) = &agent.kind
                && let Err(wrong) = command.validate()
            {
                found.push(Invalid::new(format!("agents.{}.command", agent.name), wrong));
            }
        }
        tools::validate(self, &mut found);
        // With the admin API one may be added later; a durable store may have one that was added before.
        if names.is_empty() && self.admin.listen.is_none() && !self.data.is_durable() {
            found.push(Invalid::new("", NO_AGENT));
        }
        let templates: Vec<&Agent> = self.agents.iter().filter(|agent| agent.kind.is_template()).collect();
        let is_of = |name: &str, template: &&Agent| {
            name.strip_prefix(&*template.name).is_some_and(|rest| rest.starts_with('-'))
        };
        let known =
            |name: &str| names.contains(&name) || templates.iter().any(|template| is_of(name, template));
        let names_of = || if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        if let Some(name) = self.default_agent.as_deref().filter(|name| !known(name)) {
            let hint = did_you_mean(name, &names);
            let text = format!("there is no agent of this name; there are {}{hint}", names_of());
            found.push(Invalid::new("default_agent", text));
        }
        found
    }
}

/// Finds skills and extensions that cannot be told apart.
fn validate_card(agent: &Agent, found: &mut Vec<Invalid>) {
    let mut check = |list: &str, key: &str, values: Vec<&str>| {
        for (at, value) in values.iter().enumerate() {
            let text = if value.is_empty() {
                format!("is empty; expected a text that names one of the {list}")
            } else if values[..at].contains(value) {
                format!("there are two {list} of this {key}")
            } else {
                continue;
            };
            found.push(Invalid::new(format!("agents.{}.{list}.{at}.{key}", agent.name), text));
        }
    };
    check("skills", "id", agent.skills.iter().map(|skill| &*skill.id).collect());
    check("extensions", "uri", agent.extensions.iter().map(|extension| &*extension.uri).collect());
}

/// Notes mistakes with their positions.
fn note(found: Vec<Invalid>, tree: &Node, findings: &mut Findings) {
    for Invalid { key, text } in found {
        if key.is_empty() {
            findings.problems.push(Problem::general(Severity::Error, text));
        } else {
            findings.refuse_in(tree, &key.split('.').collect::<Vec<_>>(), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Admin, CardKey, Durability, Storage};

    fn config() -> Config {
        Config { demo: true, ..Config::new(([127, 0, 0, 1], 2602).into()) }
    }

    /// Checks that a changed configuration is refused with these words, or accepted if there are none.
    fn check(change: impl FnOnce(&mut Config), words: &[&str]) {
        let mut config = config();
        change(&mut config);
        let found: Vec<_> = config.validate().iter().map(ToString::to_string).collect();
        assert_eq!(found.is_empty(), words.is_empty(), "{words:?}: {found:?}");
        for word in words {
            assert!(found.iter().any(|text| text.contains(word)), "expected {word:?} in {found:?}");
        }
    }

    #[test]
    fn as_usual() {
        check(|_| {}, &[]);
    }

    #[test]
    fn administration_is_for_this_machine() {
        let at = |ip: [u8; 4]| Admin { listen: Some((ip, 2603).into()), token_file: None };
        check(|config| config.admin = at([127, 0, 0, 1]), &[]);
        check(|config| config.admin = at([0, 0, 0, 0]), &["admin.listen: ", "127.0.0.1", "ssh -L"]);
        check(|config| config.admin = at([192, 0, 2, 1]), &["admin.listen: "]);
    }

    /// A caller that makes a proxy forward a host name would get a card signed for it.
    #[test]
    fn what_is_signed_is_not_for_proxies_to_say() {
        let signs = |config: &mut Config| {
            config.card_keys = vec![CardKey { file: "card.pem".into(), kid: None }];
        };
        let trusts = |config: &mut Config| {
            config.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
            config.identity.anonymous = Anonymous::Never;
        };
        check(signs, &[]);
        check(trusts, &[]);
        let both = |config: &mut Config| {
            signs(config);
            trusts(config);
        };
        check(both, &["--card-key", "--trust-proxy", "add --public-url"]);
        let fixed = |config: &mut Config| {
            both(config);
            config.public_url = Some("https://agents.example.com".parse().unwrap());
        };
        check(fixed, &[]);
    }

    /// To a hub on loopback the callers of a proxy look like programs of this machine.
    #[test]
    fn behind_a_proxy_it_is_said_who_may_call() {
        let words = &["trusted_proxies: ", "no credentials are configured", "\"never\"", "--allow-anonymous"];
        for (anonymous, words) in
            [(Anonymous::Loopback, &words[..]), (Anonymous::Never, &[]), (Anonymous::Always, &[])]
        {
            let trusts = |config: &mut Config| {
                config.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
                config.identity.anonymous = anonymous;
            };
            check(trusts, words);
        }
    }

    #[test]
    fn without_agents_there_must_be_a_way_to_get_some() {
        let administered = Admin::default();
        let kept = Storage::of(Data::Sqlite { path: "a.db".into(), durability: Durability::Full });
        check(|config| config.demo = false, &["no agent to serve", "nuncio agent add"]);
        check(|config| (config.demo, config.admin) = (false, administered), &[]);
        check(|config| (config.demo, config.data) = (false, kept), &[]);
    }

    #[test]
    fn bounds_that_would_let_nobody_in() {
        check(|config| config.connections.max = 0, &["connections.max: ", "1 or more"]);
        check(|config| config.connections.max_streams = 0, &["connections.max_streams: ", "1 or more"]);
        check(
            |config| config.connections.idle_timeout = Duration::ZERO,
            &["connections.idle_seconds: ", "1 or more"],
        );
        check(|config| (config.connections.max, config.connections.max_streams) = (1, 1), &[]);
    }
}
