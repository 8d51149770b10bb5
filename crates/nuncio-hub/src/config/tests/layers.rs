//! Flag over variable over file over default, and where each value comes from.

use std::time::Duration;

use super::{Folder, load, must, name};
use crate::config::{
    AgentKind, AgentOrigin, Anonymous, Config, Data, Given, Origin, Source, Told, agent_spec, show,
};

fn flag(key: &str, text: &str) -> Given {
    Given::new(key, Told::Text(text.to_owned()), Origin::Flag(format!("--{key}")))
}

#[test]
fn the_strongest_word_counts_and_its_origin_is_known() {
    let folder = Folder::new(&[(
        "nuncio.toml",
        "listen = \"127.0.0.1:1\"\npublic_url = \"https://file.example\"\ndrain_seconds = 3\ndemo = true\n",
    )]);
    let mut source = folder.source();
    source.given = vec![
        Given::new(
            "public_url",
            Told::Text("https://env.example".into()),
            Origin::Env("NUNCIO_PUBLIC_URL".into()),
        ),
        flag("listen", "127.0.0.1:9"),
        flag("connections.max", "5"),
    ];
    let loaded = must(source.load());
    assert_eq!(loaded.config.listen.port(), 9);
    assert_eq!(loaded.config.public_url.as_ref().unwrap().as_str(), "https://env.example/");
    assert_eq!((loaded.config.drain_grace, loaded.config.connections.max), (Duration::from_secs(3), 5));
    for (key, expected) in [
        ("listen", "flag --listen"),
        ("public_url", "env NUNCIO_PUBLIC_URL"),
        ("drain_seconds", "nuncio.toml:3"),
        ("connections.max", "flag --connections.max"),
        ("connections.max_streams", "default"),
        ("admin.listen", "default"),
    ] {
        assert_eq!(folder.short(&loaded.origins[key].to_string()), expected, "{key}");
    }
    let shown = folder.short(&show(&loaded, true));
    for line in [
        "listen = \"127.0.0.1:9\"  # flag --listen\n",
        "public_url = \"https://env.example\"  # env NUNCIO_PUBLIC_URL\n",
        "drain_seconds = 3  # nuncio.toml:3\n",
        "\n[connections]\nmax = 5  # flag --connections.max\n",
        "log_level = \"info\"  # default\n",
    ] {
        assert!(shown.contains(line), "expected {line:?} in\n{shown}");
    }
}

/// A hub without a file uses the defaults of the types of the file.
#[test]
fn the_defaults_are_those_of_a_hub_without_a_file() {
    let source = Source {
        given: vec![Given::new("demo", Told::Bool(true), Origin::Flag("--demo".into()))],
        ..Source::default()
    };
    let found = must(source.load()).config;
    assert_eq!(found, Config { demo: true, ..Config::default() });
    assert_eq!(found.listen, ([127, 0, 0, 1], 2602).into());
    assert_eq!(found.admin.listen, Some(([127, 0, 0, 1], 2603).into()));
    assert!(found.push.enabled);
}

#[test]
fn what_is_shown_can_be_read_again() {
    let text = "include = [\"more.toml\"]\ndemo = true\n[[card_keys]]\nfile = \"a.pem\"\n[limits]\nrate = { per_second = 2, burst = 3 }\n\
        [agents.a]\ncommand = [\"x\", \"a b\"]\nenv = { A = \"b\\\"c\" }\n[agents.b.auth.headers]\n\"x.y\" = \"s3cret\"\n\
        [agents.b]\nurl = \"https://b\"\n[push]\nsecrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]\n\
        [data]\nstore = \"postgres://me:s3cret@db.example/tasks\"\nkey_file = \"k\"";
    let folder = Folder::new(&[("nuncio.toml", text), ("more.toml", "[telemetry]\nservice_name = \"x\"")]);
    let loaded = must(folder.source().load());
    for origins in [false, true] {
        let shown = show(&loaded, origins);
        assert!(!shown.contains("s3cret") && !shown.contains("whsec_"), "{shown}");
        let table: toml::Table = toml::from_str(&shown).unwrap_or_else(|error| panic!("{error}\n{shown}"));
        assert_eq!(table["agents"]["b"]["auth"]["headers"]["x.y"].as_str(), Some("***"));
        assert_eq!(table["agents"]["a"]["env"]["A"].as_str(), Some("***"));
        assert_eq!(table["data"]["store"].as_str(), Some("postgres://db.example/tasks"));
        assert_eq!(table["telemetry"]["service_name"].as_str(), Some("x"));
        assert_eq!(table["card_keys"][0]["file"].as_str(), Some("a.pem"));
    }
    let json = loaded.shown(true);
    assert_eq!(json["config"]["agents"]["b"]["auth"]["headers"]["x.y"], "***");
    assert_eq!(folder.short(json["origins"]["agents.b.url"].as_str().unwrap()), "nuncio.toml:13");
}

#[test]
fn paths_are_seen_from_the_file_that_names_them() {
    let folder = Folder::new(&[
        (
            "nuncio.toml",
            "include = [\"conf.d/*.toml\"]\n[tls]\ncert = \"c.pem\"\nkey = \"/k.pem\"\n[data]\nstore = \"n.db\"",
        ),
        (
            "conf.d/a.toml",
            "[agents.a]\nurl = \"https://a\"\ncard = \"card.json\"\nauth.bearer_file = \"../token\"",
        ),
        (
            "conf.d/b.toml",
            "[agents.b]\ncommand = \"./run x\"\ndirectory = \"work\"\n[agents.c]\ncommand = \"run x\"",
        ),
        ("token", "abc\r\n"),
    ]);
    let loaded = must(folder.source().load());
    let config = &loaded.config;
    let tls = config.tls.as_ref().unwrap();
    assert_eq!((&tls.cert, tls.key.to_str()), (&folder.path("c.pem"), Some("/k.pem")));
    assert!(matches!(&config.data.store(), Data::Sqlite { path, .. } if *path == folder.path("n.db")));
    let AgentKind::Upstream(upstream) = &config.agents[0].kind else { panic!() };
    assert!(format!("{:?}", upstream.card).contains("conf.d/card.json"), "{upstream:?}");
    let expected = crate::config::Credential::Bearer(crate::config::Secret::new("abc"));
    assert_eq!(upstream.auth.credential, Some(expected), "the end of the line is no part of it");
    let AgentKind::Command(command) = &config.agents[1].kind else { panic!() };
    assert_eq!(command.line.program, folder.path("conf.d/./run").to_str().unwrap());
    assert_eq!(command.directory, Some(folder.path("conf.d/work")));
    let AgentKind::Command(command) = &config.agents[2].kind else { panic!() };
    assert_eq!(command.line.program, "run");
    let read: Vec<_> = loaded.files.iter().map(|(path, _)| name(path)).collect();
    assert_eq!(read, ["nuncio.toml", "a.toml", "b.toml", "token"], "so that a change is seen");
    assert!(loaded.folders.contains(&folder.path("conf.d")), "{:?}", loaded.folders);
}

#[test]
fn issuers_come_together_from_all_files() {
    let issuer = |name: &str| format!("[[identity.jwt]]\nissuer = \"https://{name}\"\naudience = [\"a\"]\n");
    let folder = Folder::new(&[
        ("nuncio.toml", &format!("include = [\"more.toml\"]\ndemo = true\n{}", issuer("one"))),
        ("more.toml", &format!("{}allow = [\"echo\"]\noperations = [\"GetTask\"]\n", issuer("two"))),
    ]);
    let identity = must(folder.source().load()).config.identity;
    let issuers: Vec<_> = identity.jwt.iter().map(|issuer| issuer.issuer.as_str()).collect();
    assert_eq!(issuers, ["https://one", "https://two"]);
    assert_eq!(identity.jwt[1].operations.as_deref(), Some(&[nuncio_protocol::op::Op::GetTask][..]));
    assert_eq!((identity.anonymous, identity.jwt[0].algorithms.len()), (Anonymous::Loopback, 3));
}

/// Nothing of the file's agent is left: its credentials are not for another address.
#[test]
fn an_agent_of_a_flag_takes_the_place_of_the_files() {
    let text = "[agents.a]\nurl = \"https://file\"\nauth.bearer = \"s3cret\"\n";
    let folder = Folder::new(&[("nuncio.toml", text)]);
    let mut source = folder.source();
    let given = |spec: &str| Given {
        path: vec!["agents".to_owned(), "a".to_owned()],
        told: agent_spec(spec).unwrap(),
        origin: Origin::Flag("--agent".to_owned()),
    };
    source.given = vec![given("https://flag")];
    let agent = &must(source.load()).config.agents[0];
    let AgentKind::Upstream(upstream) = &agent.kind else { panic!("{agent:?}") };
    assert_eq!((upstream.url.as_str(), &upstream.auth), ("https://flag/", &Default::default()));
    assert_eq!(agent.origin, AgentOrigin::Flag);
    source.given = vec![given("cmd+json:./x --y 'a b'")];
    let agent = &must(source.load()).config.agents[0];
    let AgentKind::Command(command) = &agent.kind else { panic!("{agent:?}") };
    assert_eq!((command.line.program.as_str(), command.line.arguments.len()), ("./x", 2));
}

#[test]
fn kinds_of_agents_on_the_command_line() {
    for (spec, expected) in [
        ("https://billing.internal", Ok(())),
        ("http://127.0.0.1:9999/x", Ok(())),
        ("cmd:./my-agent", Ok(())),
        ("cmd+json:python3 agent.py", Ok(())),
        ("openai:http://localhost:11434/v1#llama3", Ok(())),
        ("anthropic:#claude-x", Ok(())),
        ("mistral:#x", Err("unknown kind of agent")),
        ("https:billing", Err("unknown kind of agent")),
        ("billing.internal", Err("expected http://")),
        ("./my-agent", Err("expected http://")),
        ("", Err("expected http://")),
    ] {
        match (agent_spec(spec).map(drop), expected) {
            (Ok(()), Ok(())) => {}
            (Err(told), Err(words)) => {
                assert!(told.contains(words) && told.contains("cmd:"), "{spec}: {told}")
            }
            (found, _) => panic!("{spec}: {found:?}"),
        }
    }
}

#[test]
fn what_does_nothing_is_a_mistake_on_the_command_line_only() {
    let warnings = must(load("demo = true\n[data]\ndurability = \"full\"")).warnings;
    assert!(warnings.to_string().contains("has no effect in memory"), "{warnings}");
    let warnings = must(load("demo = true\n[data]\nstore = \"x.db\"\nkeep_finished = 5")).warnings;
    assert!(warnings.to_string().contains("is for memory"), "{warnings}");
    let folder = Folder::new(&[("nuncio.toml", "demo = true")]);
    let mut source = folder.source();
    source.given = vec![flag("data.durability", "full")];
    let told = source.load().map(drop).unwrap_err();
    assert_eq!(
        told.to_string(),
        "--data.durability: has no effect in memory; add --data with a file or a database"
    );
    assert!(!told.in_files());
}
