//! The differences between two configurations, and whether they can be applied while the hub runs.

use super::{Agent, Config};

/// The differences between two configurations.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Changes {
    /// Agents that were added, changed or removed.
    pub agents: AgentChanges,
    /// The default agent is another one, or none.
    pub default_agent: bool,
    /// The identity settings differ.
    pub identity: bool,
    /// Calls are taken otherwise.
    pub calls: bool,
    /// The limits differ.
    pub limits: bool,
    /// The web origins differ.
    pub cors: bool,
    /// Keys that take effect after a restart.
    pub needs_restart: Vec<&'static str>,
    /// The agent that answered at the root until then, if none does any more. Known when the change is in force.
    pub root_lost: Option<String>,
}

/// Agents that were added, changed or removed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AgentChanges {
    /// New ones.
    pub added: Vec<Agent>,
    /// Changed agents, as they are now.
    pub changed: Vec<Agent>,
    /// Removed agents, as they were.
    pub removed: Vec<Agent>,
}

impl Changes {
    /// True if nothing has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Compares two configurations.
#[must_use]
pub fn changes(old: &Config, new: &Config) -> Changes {
    Changes {
        agents: agents(old, new),
        default_agent: old.default_agent != new.default_agent,
        identity: old.identity != new.identity,
        calls: old.calls != new.calls,
        limits: old.limits != new.limits,
        cors: old.cors != new.cors,
        needs_restart: needs_restart(old, new),
        root_lost: None,
    }
}

fn agents(old: &Config, new: &Config) -> AgentChanges {
    let find = |config: &'_ Config, agent: &Agent| {
        config.agents.iter().find(|known| known.name == agent.name).cloned()
    };
    let mut changes = AgentChanges::default();
    for agent in &new.agents {
        match find(old, agent) {
            None => changes.added.push(agent.clone()),
            Some(before) if before != *agent => changes.changed.push(agent.clone()),
            Some(_) => {}
        }
    }
    changes.removed = old.agents.iter().filter(|agent| find(new, agent).is_none()).cloned().collect();
    changes
}

/// Every field is listed here or in [`Changes`]: a new one does not compile until it is decided.
fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let Config {
        include: _,
        listen,
        admin,
        tls,
        public_url,
        allowed_hosts,
        trusted_proxies,
        card_keys,
        legacy_card,
        data,
        push,
        demo,
        profile: _,
        // A change is one of the agents that have these tools.
        tools: _,
        agents: _,
        // Their seats are agents.
        rooms: _,
        default_agent: _,
        identity: _,
        calls: _,
        limits,
        cors: _,
        telemetry,
        drain_grace,
        connections,
    } = old;
    let differs = [
        ("listen", *listen != new.listen),
        ("public_url", *public_url != new.public_url),
        ("demo", *demo != new.demo),
        ("allow_hosts", *allowed_hosts != new.allowed_hosts),
        ("trusted_proxies", *trusted_proxies != new.trusted_proxies),
        ("drain_seconds", *drain_grace != new.drain_grace),
        ("legacy_card", *legacy_card != new.legacy_card),
        ("admin", *admin != new.admin),
        ("tls", *tls != new.tls),
        ("card_keys", *card_keys != new.card_keys),
        ("data", *data != new.data),
        ("limits.memory_limit_bytes", limits.memory_limit_bytes != new.limits.memory_limit_bytes),
        ("connections", *connections != new.connections),
        ("push", *push != new.push),
        ("telemetry", *telemetry != new.telemetry),
    ];
    differs.into_iter().filter_map(|(key, differs)| differs.then_some(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AgentKind, AgentOrigin, Anonymous, Demo, Limits, Secret, Upstream, WebOrigin};

    fn agent(name: &str) -> Agent {
        Agent::new(name.parse().unwrap(), AgentKind::Demo(Demo::Echo), AgentOrigin::File)
    }

    fn upstream(name: &str, token: &str) -> Agent {
        let mut upstream = Upstream::new("https://billing.internal".parse().unwrap());
        upstream.auth.credential = Some(super::super::Credential::Bearer(Secret::new(token)));
        Agent { kind: AgentKind::Upstream(Box::new(upstream)), ..agent(name) }
    }

    fn check(change: impl FnOnce(&mut Config), expected: &[&str]) {
        let mut old = Config::new(([127, 0, 0, 1], 2602).into());
        old.agents = vec![agent("a"), upstream("b", "one")];
        let mut new = old.clone();
        change(&mut new);
        let changes = changes(&old, &new);
        let mut found = Vec::new();
        for (what, agents) in [
            ("added", &changes.agents.added),
            ("changed", &changes.agents.changed),
            ("removed", &changes.agents.removed),
        ] {
            found.extend(agents.iter().map(|agent| format!("{what} {}", agent.name)));
        }
        for (what, yes) in [
            ("default", changes.default_agent),
            ("identity", changes.identity),
            ("calls", changes.calls),
            ("limits", changes.limits),
            ("cors", changes.cors),
        ] {
            found.extend(yes.then(|| what.to_owned()));
        }
        found.extend(changes.needs_restart.iter().map(|key| format!("restart {key}")));
        assert_eq!(found, expected);
        assert_eq!(changes.is_empty(), expected.is_empty());
    }

    #[test]
    fn what_changes_and_what_needs_a_restart() {
        check(|_| {}, &[]);
        check(|new| new.agents.push(agent("c")), &["added c"]);
        check(|new| drop(new.agents.remove(0)), &["removed a"]);
        check(|new| new.agents.reverse(), &[]);
        check(|new| new.agents[0].tags = vec!["x".to_owned()], &["changed a"]);
        check(|new| new.agents[1] = upstream("b", "two"), &["changed b"]);
        check(|new| new.agents[1] = upstream("c", "one"), &["added c", "removed b"]);
        check(|new| new.default_agent = Some("a".to_owned()), &["default"]);
        check(|new| new.identity.anonymous = Anonymous::Never, &["identity"]);
        check(|new| new.calls.batch = 7, &["calls"]);
        check(|new| new.limits = Limits { tasks: Some(1), ..Limits::default() }, &["limits"]);
        check(|new| new.cors.origins = vec![WebOrigin::Any], &["cors"]);
        check(|new| new.listen.set_port(1), &["restart listen"]);
        check(|new| new.data.keep_days = Some(1), &["restart data"]);
        check(|new| (new.demo, new.push.enabled) = (true, true), &["restart demo", "restart push"]);
    }
}
