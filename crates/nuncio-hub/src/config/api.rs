//! An agent from the admin API: a document with the keys of an agent's table in the file, read the same way.
//!
//! Keys that name files or programs of the hub's machine are refused: they can be set on the machine only.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::{
    Agent, AgentKind, AgentName, AgentOrigin, CardSource, Problem, Severity, ToolServer,
    file::{Files, Findings, Node, Spot},
    source::{finish, finish_with},
};

/// The refusal of kinds that only the file and the command line may have.
const EXPECTED: &str = "expected an agent with a url, a model or a mailbox";

/// Reads an agent. A model may have the servers of tools of the hub's own file, which are `tools`.
///
/// # Errors
/// Lists all problems of the document.
pub(crate) fn agent_from_api(
    name: &AgentName,
    given: &Map<String, Json>,
    tools: &BTreeMap<String, ToolServer>,
) -> Result<Agent, String> {
    let mut tree = Node::table(Spot::Default);
    let path = ["agents".to_owned(), name.to_string()];
    // Read as if it came from the command line.
    let said = Spot::Flag("the API".to_owned());
    if let Some(node) = Node::of(&Json::Object(given.clone()), &said) {
        tree.put(&path, node);
    }
    let loaded = finish_with(tools, tree, None, Files::sealed(), Findings::default());
    let loaded = loaded.map_err(|problems| told(&path.join("."), &problems.0))?;
    let agent =
        loaded.config.agents.into_iter().next().ok_or("missing agent type; set its url, mailbox or model")?;
    let (named, auth) = match &agent.kind {
        AgentKind::Upstream(upstream) => {
            let card = ("card", matches!(upstream.card, Some(CardSource::File(_))));
            ([card, ("trust.keys", !upstream.trust.keys.is_empty())].to_vec(), &upstream.auth)
        }
        AgentKind::Model(model) => {
            ([("instructions_file", model.instructions_file.is_some())].to_vec(), &model.auth)
        }
        // It names nothing outside of the hub.
        AgentKind::Mailbox(_) => return Ok(Agent { origin: AgentOrigin::Api, ..agent }),
        AgentKind::Demo(_) | AgentKind::Command(_) | AgentKind::Seat(_) => {
            return Err(EXPECTED.to_owned());
        }
        #[cfg(test)]
        AgentKind::Toy(_) => return Err(EXPECTED.to_owned()),
    };
    let of_auth = [("auth.client_cert", auth.identity.is_some()), ("auth.ca", !auth.authorities.is_empty())];
    if let Some((key, _)) = named.iter().chain(&of_auth).find(|(_, is_said)| *is_said) {
        return Err(format!("{key}: names a file of the hub's machine; set it in the hub's own file"));
    }
    Ok(Agent { origin: AgentOrigin::Api, ..agent })
}

/// Reads a room: the agents of its seats, a and b.
///
/// # Errors
/// Lists all problems of the document.
pub(crate) fn room_from_api(name: &AgentName, given: &Map<String, Json>) -> Result<[Agent; 2], String> {
    let mut tree = Node::table(Spot::Default);
    let path = ["rooms".to_owned(), name.to_string()];
    let said = Spot::Flag("the API".to_owned());
    if let Some(node) = Node::of(&Json::Object(given.clone()), &said) {
        tree.put(&path, node);
    }
    let loaded = finish(tree, None, Files::sealed(), Findings::default());
    let loaded = loaded.map_err(|problems| told(&path.join("."), &problems.0))?;
    let seats = loaded.config.agents.into_iter().map(|agent| Agent { origin: AgentOrigin::Api, ..agent });
    seats.collect::<Vec<_>>().try_into().map_err(|_| "expected the settings of a room".to_owned())
}

fn told(path: &str, problems: &[Problem]) -> String {
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
    let one = |problem: &Problem| {
        let key = problem.key.strip_prefix(path).unwrap_or(&problem.key).trim_start_matches('.');
        if key.is_empty() { problem.text.clone() } else { format!("{key}: {}", problem.text) }
    };
    errors.map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{Credential, Mode};

    fn read(given: Json) -> Result<Agent, String> {
        let Json::Object(given) = given else { panic!("expected an object, got {given}") };
        let files = ToolServer { url: "https://files.internal/mcp".parse().ok(), ..ToolServer::default() };
        agent_from_api(&"billing".parse().unwrap(), &given, &BTreeMap::from([("files".to_owned(), files)]))
    }

    #[test]
    fn it_is_read_as_the_file_is() {
        let agent = read(json!({
            "url": "https://billing.internal", "mode": "proxy", "title": "Billing", "timeout_seconds": 7,
            "auth": { "bearer": "s3cret" }, "tags": ["finance"],
        }))
        .unwrap();
        assert_eq!((agent.title.as_deref(), agent.origin), (Some("Billing"), AgentOrigin::Api));
        let AgentKind::Upstream(upstream) = agent.kind else { panic!("{agent:?}") };
        assert_eq!((upstream.mode, upstream.timeout.as_secs()), (Mode::Proxy, 7));
        let Some(Credential::Bearer(secret)) = upstream.auth.credential else { panic!("{upstream:?}") };
        assert_eq!(secret.reveal(), "s3cret");
    }

    #[test]
    fn a_model_is_an_agent_too() {
        let agent =
            read(json!({ "model": "openai:http://localhost:11434/v1#llama3", "agents": ["billing-2"] }));
        let agent = agent.unwrap();
        let AgentKind::Model(model) = agent.kind else { panic!("{agent:?}") };
        assert_eq!((model.target.name.as_str(), agent.origin), ("llama3", AgentOrigin::Api));
    }

    #[test]
    fn a_model_has_the_tools_of_the_file_by_their_name() {
        let agent =
            read(json!({ "model": "openai:#x", "tools": ["files"], "approve": ["files.*"] })).unwrap();
        let AgentKind::Model(model) = agent.kind else { panic!("{agent:?}") };
        let [files] = &model.tool_servers[..] else { panic!("{model:?}") };
        assert_eq!(files.name, "files");
    }

    #[test]
    fn a_mailbox_has_the_keys_of_the_file() {
        let agent = read(json!({ "mailbox": { "wait_hours": 48, "serial": "none" } })).unwrap();
        let AgentKind::Mailbox(mailbox) = agent.kind else { panic!("{agent:?}") };
        assert_eq!((mailbox.wait.as_secs(), mailbox.serial), (48 * 3600, crate::config::Serial::None));
        assert_eq!(agent.origin, AgentOrigin::Api);
    }

    #[test]
    fn variables_are_not_looked_up() {
        let agent = read(json!({ "url": "https://a.example", "title": "${HOME}" })).unwrap();
        assert_eq!(agent.title.as_deref(), Some("${HOME}"));
    }

    #[test]
    fn what_is_wrong_is_told_by_its_key_and_without_secrets() {
        for (given, expected) in [
            (json!({}), "url"),
            (json!({ "url": "ftp://a.example" }), "url: "),
            (json!({ "url": "https://a.example", "tmieout_seconds": 1 }), "timeout_seconds"),
            (json!({ "url": "https://a.example", "mode": "proxi" }), "mode: "),
            (json!({ "url": "https://a.example", "timeout_seconds": "1" }), "timeout_seconds: "),
            (
                json!({ "url": "https://a.example", "auth": { "bearer_file": "/etc/passwd" } }),
                "auth.bearer_file: ",
            ),
            (json!({ "url": "https://a.example", "card": "/etc/passwd" }), "card: names a file"),
            (
                json!({ "url": "https://a.example", "auth": { "ca": ["/etc/passwd"] } }),
                "auth.ca: names a file",
            ),
            (json!({ "url": "https://a.example", "trust": { "keys": ["k"] } }), "trust.keys: names a file"),
            (json!({ "demo": "echo" }), "expected an agent with a url, a model or a mailbox"),
            (json!({ "model": "openai:" }), "model: "),
            (
                json!({ "model": "openai:#x", "instructions_file": "/etc/passwd" }),
                "instructions_file: names a file",
            ),
            (json!({ "model": "openai:#x", "auth": { "ca": ["/etc/passwd"] } }), "auth.ca: names a file"),
            (
                json!({ "model": "openai:#x", "tools": ["other"] }),
                "tools: there are no tools of the name other",
            ),
            (json!({ "model": "openai:#x", "tools": [{ "command": "rm" }] }), "tools"),
            (json!({ "mailbox": { "wait_hour": 1 } }), "wait_hour"),
            (json!({ "mailbox": {}, "url": "https://a.example" }), "expected only one of"),
            (json!({ "url": "https://a.example", "auth": { "bearer": ["s3cret"] } }), "auth.bearer: "),
        ] {
            let error = read(given.clone()).unwrap_err();
            assert!(error.contains(expected) && !error.contains("s3cret"), "{given}: {error}");
        }
    }
}
