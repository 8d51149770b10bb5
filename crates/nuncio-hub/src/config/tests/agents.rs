//! Agents with everything that can be said about them.

use std::time::Duration;

use nuncio_protocol::{Binding, FileBytes, Version};
use serde_json::{Map, Value as Json, json};

use super::{load, must};
use crate::config::{
    Agent, AgentAccess, AgentKind, AgentLimits, AgentOrigin, AgentPush, Auth, Calls, CardSource, Cards,
    ClientIdentity, Command, Credential, Dialect, Extension, Follow, Format, Mode, Model, OAuth2, Provider,
    Rate, Reasoning, Secret, Skill, Trust, Upstream, WhenDown,
};

#[track_caller]
fn agent(text: &str) -> Agent {
    let mut agents = must(load(text)).config.agents;
    assert_eq!(agents.len(), 1);
    agents.remove(0)
}

fn header(name: &str, value: &str) -> (http::HeaderName, Secret) {
    (name.parse().unwrap(), Secret::new(value))
}

#[test]
fn an_upstream_agent_word_by_word() {
    let found = agent(
        r#"
        [agents.a]
        url = "https://billing.internal/x"
        title = "Billing"
        description = "Knows"
        tags = ["t"]
        visible = false
        cards = "public"
        versions = ["0.3", "1.0", "0.3"]
        mode = "proxy"
        version = "0.3"
        binding = "rest"
        card = "https://billing.internal/card"
        card_refresh_seconds = 1
        forward_headers = ["X-Request-Id"]
        timeout_seconds = 2
        send_timeout_seconds = 3
        give_up_hours = 4
        max_concurrent = 5
        idempotent = true
        follow = "poll"
        poll_seconds = 0.5
        file_bytes = "raw"
        extended_card = true
        wait_hours = 3
        show_upstream = true
        trust = { keys = ["/k.json"], require = true }
        limits = { body_bytes = 1, parts = 2, max_task_bytes = 7, rate = { per_second = 0.5 }, tasks = 3, streams = 4 }
        push = { chunks = true, dialect = "neuralpost", secrets = [] }
        [agents.a.auth]
        headers = { X-Key = "${NAME}" }
        client_cert = "/c.pem"
        client_key = "/k.pem"
        ca = ["/ca.pem"]
        [agents.a.auth.oauth2]
        token_url = "https://login/token"
        client_id = "me"
        client_secret = "s3cret"
        scopes = ["s"]
        audience = "aud"
        "#,
    );
    let upstream = Upstream {
        mode: Mode::Proxy,
        version: Some(Version::V0_3),
        binding: Some(Binding::HttpJson),
        card: Some(CardSource::Url("https://billing.internal/card".parse().unwrap())),
        card_refresh: Duration::from_secs(1),
        trust: Trust { keys: vec!["/k.json".into()], require: true },
        auth: Auth {
            credential: Some(Credential::OAuth2(OAuth2 {
                token_url: "https://login/token".parse().unwrap(),
                client_id: "me".to_owned(),
                client_secret: Secret::new("s3cret"),
                scopes: vec!["s".to_owned()],
                audience: Some("aud".to_owned()),
            })),
            headers: vec![header("x-key", "value")],
            identity: Some(ClientIdentity { cert: "/c.pem".into(), key: "/k.pem".into() }),
            authorities: vec!["/ca.pem".into()],
        },
        forward_headers: vec!["x-request-id".parse().unwrap()],
        timeout: Duration::from_secs(2),
        send_timeout: Duration::from_secs(3),
        give_up: Duration::from_secs(4 * 3600),
        max_concurrent: Some(5),
        idempotent: true,
        follow: Follow::Poll,
        poll_every: Duration::from_millis(500),
        file_bytes: FileBytes::Raw,
        extended_card: true,
        wait: Duration::from_secs(3 * 60 * 60),
        show_upstream: true,
        ..Upstream::new("https://billing.internal/x".parse().unwrap())
    };
    let expected = Agent {
        title: Some("Billing".to_owned()),
        description: Some("Knows".to_owned()),
        tags: vec!["t".to_owned()],
        visible: false,
        cards: Some(Cards::Public),
        limits: AgentLimits {
            body_bytes: Some(1),
            parts: Some(2),
            max_task_bytes: Some(7),
            rate: Some(Rate { per_second: 0.5, burst: None }),
            tasks: Some(3),
            streams: Some(4),
            tokens_per_day: None,
        },
        push: AgentPush {
            chunks: Some(true),
            dialect: Some(Dialect::NeuralPost),
            secrets: Some(Vec::new()),
            secret_files: None,
        },
        ..Agent::new("a".parse().unwrap(), AgentKind::Upstream(Box::new(upstream)), AgentOrigin::File)
    };
    assert_eq!(found, expected);
    assert!(!format!("{found:?}").contains("s3cret"), "{found:?}");
}

#[test]
fn an_upstream_agent_with_nothing_said_is_as_usual() {
    let defaults = Upstream::new("https://a/".parse().unwrap());
    let expected =
        Agent::new("a".parse().unwrap(), AgentKind::Upstream(Box::new(defaults)), AgentOrigin::File);
    assert_eq!(agent("[agents.a]\nurl = \"https://a\""), expected);
}

#[test]
fn the_versions_of_an_agent() {
    let (new, old) = (Version::V1_0, Version::V0_3);
    for (written, expected) in [
        ("", &[new, old][..]),
        ("versions = [\"1.0\"]", &[new]),
        ("versions = [\"0.3\"]", &[old]),
        ("versions = [\"0.3\", \"1.0\"]", &[new, old]),
    ] {
        assert_eq!(agent(&format!("[agents.a]\ndemo = \"echo\"\n{written}")).versions, expected, "{written}");
    }
    for (wrong, why) in [("[]", "at least"), ("[\"2.0\"]", "versions"), ("\"1.0\"", "versions")] {
        let problems = load(&format!("[agents.a]\ndemo = \"echo\"\nversions = {wrong}")).err().unwrap();
        assert!(problems.to_string().contains(why), "{wrong}: {problems}");
    }
}

/// The keys of a card are those of every kind.
#[test]
fn the_card_of_an_agent_word_by_word() {
    let card = r#"
        icon = "https://acme.example/i.png"
        documentation = "https://acme.example/docs"
        provider = { organization = "ACME", url = "https://acme.example" }
        [[agents.a.skills]]
        id = "invoices"
        name = "Find invoices"
        description = "Finds invoices."
        tags = ["t"]
        examples = ["open ones"]
        input_modes = ["application/json"]
        output_modes = ["text/plain"]
        [agents.a.skills.input_schema]
        type = "object"
        properties.customer = { type = "string", maxLength = 9, nullable = false }
        required = ["customer"]
        [[agents.a.skills]]
        id = "pay"
        name = "Pay"
        description = "Pays."
        [[agents.a.extensions]]
        uri = "urn:x"
        description = "x"
        required = true
        params = { a = [1, 2.5], b = { c = "d" } }
    "#;
    let skill = |id: &str, name: &str, description: &str| Skill {
        id: id.to_owned(),
        name: name.to_owned(),
        description: description.to_owned(),
        tags: Vec::new(),
        examples: Vec::new(),
        input_modes: Vec::new(),
        output_modes: Vec::new(),
        input_schema: Map::new(),
    };
    let owned = |text: &str| vec![text.to_owned()];
    let object = |json: Json| json.as_object().unwrap().clone();
    let schema = json!({
        "type": "object", "required": ["customer"],
        "properties": { "customer": { "type": "string", "maxLength": 9, "nullable": false } },
    });
    let invoices = Skill {
        tags: owned("t"),
        examples: owned("open ones"),
        input_modes: owned("application/json"),
        output_modes: owned("text/plain"),
        input_schema: object(schema),
        ..skill("invoices", "Find invoices", "Finds invoices.")
    };
    let extension = Extension {
        uri: "urn:x".to_owned(),
        description: "x".to_owned(),
        required: true,
        params: object(json!({ "a": [1, 2.5], "b": { "c": "d" } })),
    };
    for kind in ["demo = \"echo\"", "url = \"https://a\"", "command = \"cat\""] {
        let found = agent(&format!("[agents.a]\n{kind}\n{card}"));
        let provider =
            Provider { organization: "ACME".to_owned(), url: "https://acme.example".parse().unwrap() };
        assert_eq!(found.provider, Some(provider), "{kind}");
        assert_eq!(found.skills, [invoices.clone(), skill("pay", "Pay", "Pays.")], "{kind}");
        assert_eq!(found.extensions, std::slice::from_ref(&extension), "{kind}");
        let address = |url: &Option<url::Url>| url.as_ref().unwrap().to_string();
        assert_eq!(address(&found.icon), "https://acme.example/i.png");
        assert_eq!(address(&found.documentation), "https://acme.example/docs");
    }
}

#[test]
fn what_is_wrong_with_a_card_is_told() {
    let skill = "[[agents.a.skills]]\nid = \"s\"\nname = \"S\"\ndescription = \"d\"\n";
    let extension = "[[agents.a.extensions]]\nuri = \"urn:x\"\n";
    for (written, why) in [
        (format!("{skill}{skill}"), "agents.a.skills.1.id: there are two skills of this id"),
        (
            format!("{extension}{extension}"),
            "agents.a.extensions.1.uri: there are two extensions of this uri",
        ),
        ("[[agents.a.skills]]\nid = \"s\"\nname = \"S\"\n".to_owned(), "description is missing"),
        (skill.replace("\"s\"", "\"\""), "agents.a.skills.0.id: is empty"),
        (
            format!("{skill}tag = [\"t\"]\n"),
            "agents.a.skills.0.tag: there is no such key; did you mean tags?",
        ),
        (format!("{skill}input_schema = \"x\"\n"), "agents.a.skills.0.input_schema: expected a table"),
        ("icon = \"i.png\"".to_owned(), "agents.a.icon: expected an address"),
        ("provider = { organization = \"A\" }".to_owned(), "url is missing"),
    ] {
        let problems = load(&format!("[agents.a]\ndemo = \"echo\"\n{written}")).err().unwrap();
        assert!(problems.to_string().contains(why), "{written}: {problems}");
    }
}

#[test]
fn a_program_word_by_word() {
    let found = agent(
        r#"
        [agents.a]
        command = ["run", "a b"]
        format = "json"
        directory = "/work"
        env = { A = "s3cret" }
        env_allow = ["PATH"]
        time_limit_seconds = 0
        output_limit_bytes = 1
        memory_limit_bytes = 2
        max_concurrent = 3
        pace_ms = 20
        earlier_limit_turns = 0
        earlier_limit_bytes = 4
        description = "Runs"
        "#,
    );
    let mut command = Command::new(Format::Json, "run", ["a b".to_owned()]);
    command.directory = Some("/work".into());
    command.environment.0.insert("A".to_owned(), "s3cret".to_owned());
    command.inherit = vec!["PATH".to_owned()];
    command.time_limit = None;
    (command.output_limit, command.memory_limit, command.processes) = (1, Some(2), 3);
    (command.pace, command.earlier_turns, command.earlier_bytes) = (Duration::from_millis(20), 0, 4);
    assert_eq!(found.kind, AgentKind::Command(Box::new(command)));
    assert!(!format!("{found:?}").contains("s3cret"), "{found:?}");
    let plain = agent("[agents.a]\ncommand = \"run\"");
    assert_eq!(plain.kind, AgentKind::Command(Box::new(Command::new(Format::Text, "run", []))));
}

/// Keys that an agent does not set have the values of the hub.
#[test]
fn how_calls_are_taken_by_all_and_by_one() {
    let taken = |all: &str, own: &str| {
        let text = format!("[calls]\n{all}\n[agents.a]\ndemo = \"echo\"\n[agents.a.calls]\n{own}");
        let config = must(load(&text)).config;
        config.agents[0].calls.over(&config.calls)
    };
    assert_eq!(taken("", ""), Calls::default());
    let all = "lenient_version = true\nbatch = 7\nblocking_ceiling_seconds = 5\nwatchdog_seconds = 6\n\
               cancel_on_disconnect = true\ndedupe_message_id = true";
    let said = Calls {
        lenient_version: true,
        batch: 7,
        blocking_ceiling: Duration::from_secs(5),
        watchdog: Some(Duration::from_secs(6)),
        cancel_on_disconnect: true,
        dedupe_message_id: true,
    };
    assert_eq!((taken(all, ""), taken("", all)), (said.clone(), said.clone()));
    assert_eq!(taken(all, "watchdog_seconds = 0"), Calls { watchdog: None, ..said });
    for (key, value) in [
        ("blocking_ceiling_seconds", "1"),
        ("watchdog_seconds", "1"),
        ("cancel_on_disconnect", "true"),
        ("dedupe_message_id", "true"),
    ] {
        let remote = |mode: &str| {
            load(&format!(
                "[agents.a]\nurl = \"https://a\"\nmode = \"{mode}\"\n[agents.a.calls]\n{key} = {value}"
            ))
        };
        must(remote("durable"));
        let problems = remote("proxy").err().unwrap().to_string();
        assert!(problems.contains(&format!("agents.a.calls.{key}: has no effect")), "{problems}");
    }
    for wrong in ["batch = 1001", "blocking_ceiling_seconds = 0", "batch = -1"] {
        let problems = load(&format!("demo = true\n[calls]\n{wrong}")).err().unwrap().to_string();
        assert!(problems.contains("calls."), "{wrong}: {problems}");
    }
}

#[test]
fn a_model_with_all_of_its_keys() {
    let found = agent(
        r#"
        [agents.a]
        model = "openai:http://localhost:11434/v1#llama3"
        instructions_file = "/writer.md"
        parameters = { temperature = 0.2, stop = ["x"] }
        max_tokens = 2000
        history_turns = 5
        history_bytes = 1000
        reasoning = "artifact"
        fallback = ["anthropic:#claude-x"]
        rerun = false
        check_seconds = 7
        pace_ms = 50
        max_concurrent = 4
        auth = { bearer = "s3cret" }
        limits = { tokens_per_day = 9 }
        "#,
    );
    let parameters = json!({ "temperature": 0.2, "stop": ["x"] });
    let model = Model {
        instructions_file: Some("/writer.md".into()),
        parameters: parameters.as_object().unwrap().clone(),
        max_tokens: Some(2000),
        history_turns: 5,
        history_bytes: 1000,
        reasoning: Reasoning::Artifact,
        fallback: vec!["anthropic:#claude-x".parse().unwrap()],
        rerun: false,
        check_every: Duration::from_secs(7),
        pace: Duration::from_millis(50),
        max_concurrent: Some(4),
        auth: Auth { credential: Some(Credential::Bearer(Secret::new("s3cret"))), ..Auth::default() },
        ..Model::new("openai:http://localhost:11434/v1#llama3".parse().unwrap())
    };
    let mut expected = Agent::new("a".parse().unwrap(), AgentKind::Model(Box::new(model)), AgentOrigin::File);
    expected.limits.tokens_per_day = Some(9);
    assert_eq!(found, expected);
    assert!(!format!("{found:?}").contains("s3cret"), "{found:?}");
}

#[test]
fn only_a_hub_that_keeps_the_tasks_can_let_messages_wait() {
    let found = agent("[agents.a]\nurl = \"http://a.example\"\nwhen_down = \"wait\"\n");
    let AgentKind::Upstream(upstream) = found.kind else { panic!("{found:?}") };
    assert_eq!((upstream.when_down, upstream.wait), (WhenDown::Wait, Duration::from_secs(24 * 60 * 60)));
    let refused = load("[agents.a]\nurl = \"http://a.example\"\nmode = \"proxy\"\nwhen_down = \"wait\"\n");
    let text = format!("{refused:?}");
    assert!(text.contains("needs mode = "), "{text}");
}

#[test]
fn only_a_hub_that_keeps_the_tasks_can_ask_for_consent() {
    assert_eq!(agent("[agents.a]\ndemo = \"echo\"\n").access, AgentAccess::Open);
    let asks = agent("[agents.a]\nurl = \"http://a.example\"\naccess = \"ask\"\n");
    assert_eq!(asks.access, AgentAccess::Ask);
    let refused = load("[agents.a]\nurl = \"http://a.example\"\nmode = \"proxy\"\naccess = \"ask\"\n");
    let text = format!("{refused:?}");
    assert!(text.contains("access") && text.contains("needs mode = "), "{text}");
}
