//! Wrong files: every mistake is told with its place and with what to do.

use super::{Folder, load, must};
use crate::config::Severity;

/// A file, and what is told about it, line by line; each expected line is a part of one that is told.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let folder = Folder::new(&[("nuncio.toml", text)]);
    let problems = folder.source().load().map(drop).unwrap_err();
    let told = folder.short(&problems.to_string());
    assert_eq!(problems.errors().count(), expected.len(), "{text}\n--\n{told}");
    for words in expected {
        assert!(told.contains(words), "{text}\n-- expected {words:?} in\n{told}");
    }
}

#[test]
fn a_mistake_is_shown_where_it_is() {
    let folder = Folder::new(&[("nuncio.toml", "demo = true\n\n  lisen = \"127.0.0.1:1\" # here\n")]);
    let problems = folder.source().load().map(drop).unwrap_err();
    let expected = "nuncio.toml:3:3: lisen: there is no such key; did you mean listen?";
    assert_eq!(folder.short(&problems.to_string()), expected, "by its key and its place, without its value");
}

#[test]
fn keys_that_there_are_not() {
    check(
        "demo = true\nnothing_like_it = 1",
        &["nuncio.toml:2:1: nothing_like_it: there is no such key; the nearest keys are "],
    );
    for (text, words) in [
        ("[agents.a]\nulr = \"https://a\"", "agents.a.ulr: there is no such key; did you mean url?"),
        ("[agents.a]\ndemo = \"echo\"\nqqq = 1", "; `nuncio config schema` lists all"),
        ("demo = true\n[tls]\nqqq = 1", "tls.qqq: there is no such key; known keys here are cert"),
    ] {
        let told = load(text).map(drop).unwrap_err().to_string();
        assert!(told.contains(words), "{text}: expected {words:?} in\n{told}");
    }
    check(
        "demo = true\n[data]\nstor = 1",
        &["nuncio.toml:3:1: data.stor: there is no such key; did you mean store?"],
    );
    check("demo = true\n[data]\npublic_url = \"x\"", &["before the first [table]"]);
    check("[agents.a]\nurl = \"https://a\"\nmdoe = \"proxy\"", &["did you mean mode?"]);
    check("[agents.a.auth]\nbaerer = \"x\"", &["did you mean bearer?"]);
    check(
        "[[identity.jwt]]\nissuer = \"https://x\"\naudiance = [\"a\"]",
        &[
            "identity.jwt.0.audiance: there is no such key; did you mean audience?",
            "1:1: identity.jwt.0: audience is missing",
        ],
    );
}

#[test]
fn one_issuer_cannot_be_taken_for_another() {
    check(
        "demo = true\n[[identity.jwt]]\nissuer = \"https://x#y\"\naudience = [\"a\"]",
        &["3:10: identity.jwt.0.issuer: expected the address of an issuer, without #"],
    );
}

#[test]
fn all_mistakes_are_told_at_once() {
    check(
        "listen = 1\ndemo = \"yes\"\ndrain_seconds = -1\n[data]\ndurability = \"ful\"\n[push]\ngive_up_hours = 0\n",
        &[
            "1:10: listen: expected a text, found a whole number",
            "2:8: demo: expected true or false, found a text",
            "3:17: drain_seconds: expected 0 or more",
            "5:14: data.durability: expected one of full, relaxed; did you mean full?",
            "7:17: push.give_up_hours: expected 1 or more",
        ],
    );
    check(
        "listen = \"here\"\npublic_url = \"ftp://x\"\ntrusted_proxies = [\"10.0.0.0/8\", \"lan\"]\nallow_hosts = [\"a b\"]",
        &[
            "1:10: listen: expected an IP address and a port",
            "2:14: public_url: expected an address such as",
            "3:34: trusted_proxies.1: expected a network",
            "4:16: allow_hosts.0: expected a name such as",
        ],
    );
}

/// One reading finds what the schema refuses, what has the wrong format and what does not go together; what follows
/// from a mistake is not another one.
#[test]
fn mistakes_of_every_kind_are_told_at_once() {
    check(
        "trusted_proxies = [\"lan\", \"10.0.0.0/8\", \"x\"]\ndrain_seconds = -1\ndefault_agent = \"b\"\n\
         [agents.a]\nurl = \"ftp://a\"\npoll_seconds = 0\nforward_headers = [\"host\"]\nmdoe = 1\n\
         [agents.b]\nurl = \"https://b\"\n[agents.b.auth]\nuser = \"me\"\nclient_key = \"k\"\nbearer_file = \"none\"\n\
         [agents.c]\nurl = 1\n[[identity.jwt]]\nissuer = \"x\"\n",
        &[
            "1:20: trusted_proxies.0: expected a network",
            "1:41: trusted_proxies.2: expected a network",
            "2:17: drain_seconds: expected 0 or more",
            "agents.a.url: expected an address",
            "agents.a.poll_seconds: expected more than 0",
            "agents.a.forward_headers.0: is a hop-by-hop header",
            "agents.a.mdoe: there is no such key",
            "agents.b.auth.user: needs password or password_file",
            "agents.b.auth.client_key: needs client_cert",
            "agents.b.auth: expected only one of bearer, user and oauth2",
            "agents.b.auth.bearer_file: cannot be read",
            "agents.c.url: expected a text",
            "identity.jwt.0: audience is missing",
            "identity.jwt.0.issuer: expected an address",
        ],
    );
    check(
        "listen = \"0.0.0.0:1\"\n[agents.a]\nurl = \"ftp://a\"\n",
        &["agents.a.url: ", "listen: would let anybody call", "listen: cards need an address"],
    );
}

#[test]
fn what_is_no_toml() {
    check("listen = 127.0.0.1:2602\n", &["nuncio.toml:1:"]);
    check("demo = true\ndemo = false\n", &["nuncio.toml:2:1: invalid TOML: duplicate key"]);
    check("[data\nstore = \"x\"\n[push\n", &["nuncio.toml:1:6", "nuncio.toml:3:6"]);
    check("drain_seconds = 99999999999999999999", &["1:17: this number is too large"]);
    check("drain_seconds = 1979-05-27", &["expected a whole number, found a date"]);
    check("[connections]\nmax_streams = 4294967296", &["expected 4294967295 or less"]);
    check("[telemetry]\nsample_ratio = nan", &["expected a finite number"]);
}

#[test]
fn agents_that_cannot_be() {
    check(
        "[agents.a]",
        &["1:1: agents.a: missing agent type; set one of url, command, model, mailbox and demo"],
    );
    check(
        "[agents.a]\nurl = \"https://a\"\ncommand = \"b\"",
        &["expected only one of url, command, model, mailbox and demo"],
    );
    check(
        "[agents.a]\ncommand = \"b\"\nmode = \"proxy\"",
        &["3:8: agents.a.mode: is only for agents with url"],
    );
    check("[agents.a]\nurl = \"https://a\"\nenv = {}", &["agents.a.env: is only for agents with command"]);
    check("[agents.Billing]\ndemo = \"echo\"", &["agents.Billing: is not a valid name of an agent"]);
    check("[agents.tasks]\ndemo = \"echo\"", &["agents.tasks: is reserved"]);
    check(
        "demo = true\n[agents.echo]\ndemo = \"echo\"",
        &["2:1: agents.echo: the demo has an agent of this name"],
    );
    check("[agents.a]\nurl = \"https://me:s3cret@a\"", &["agents.a.url: expected an address"]);
    check("[agents.a]\nurl = \"ftp://a\"", &["agents.a.url: expected an address"]);
    for name in ["Transfer-Encoding", "host", "connection", "Nuncio-Hops"] {
        let text = format!("[agents.a]\nurl = \"https://a\"\nforward_headers = [\"x\", \"{name}\"]");
        check(&text, &["agents.a.forward_headers.1: is a hop-by-hop header"]);
    }
    check("[agents.a]\ncommand = 1", &["agents.a.command: expected a text or a list, found a whole number"]);
    check("[agents.a]\ncommand = \"\"", &["agents.a.command: expected a program"]);
    check("[agents.a]\ncommand = \"x 'y\"", &["agents.a.command: "]);
    check("[agents.a]\ndemo = \"ecko\"", &["expected one of echo, slow, conformance; did you mean echo?"]);
    check("default_agent = \"bill\"\n[agents.billing]\ndemo = \"echo\"", &["did you mean billing?"]);
    check("admin.listen = \"off\"", &["there is no agent to serve"]);
}

#[test]
fn credentials_that_cannot_be() {
    let auth = |text: &str| format!("[agents.a]\nurl = \"https://a\"\n[agents.a.auth]\n{text}");
    for (text, words) in [
        ("bearer = \"x\"\nbearer_file = \"y\"", "agents.a.auth.bearer_file: bearer is set as well"),
        ("bearer_file = \"none\"", "agents.a.auth.bearer_file: cannot be read"),
        ("user = \"me\"", "agents.a.auth.user: needs password or password_file"),
        ("password = \"s3cret\"", "a password needs a user"),
        ("bearer = \"x\"\nuser = \"me\"\npassword = \"y\"", "expected only one of bearer, user and oauth2"),
        ("client_cert = \"x\"", "agents.a.auth.client_cert: needs client_key"),
        ("headers = { \"b ad\" = \"s3cret\" }", "agents.a.auth.headers.b ad: is not a header name"),
        ("headers = { a = \"s3cret\\nx\" }", "agents.a.auth.headers.a: not a valid header value"),
        ("headers = { a = 1 }", "expected a text or a table"),
        ("headers = { a = { fil = \"x\" } }", "did you mean file?"),
        (
            "oauth2 = { token_url = \"https://x\", client_id = \"me\" }",
            "client_secret or client_secret_file is missing",
        ),
    ] {
        let problems = load(&auth(text)).map(drop).unwrap_err().to_string();
        assert!(problems.contains(words), "{text}: expected {words:?} in\n{problems}");
        assert!(!problems.contains("s3cret"), "{problems}");
    }
}

#[test]
fn variables_that_are_not_set() {
    check(
        "demo = true\npublic_url = \"https://${HOST}\"",
        &["2:14: public_url: the environment variable HOST is not set"],
    );
    check(
        "demo = true\ndrain_seconds = \"${NAME}\"",
        &["drain_seconds: expected a whole number, found a text"],
    );
    check("demo = true\ndrain_seconds = \"7\"", &["drain_seconds: expected a whole number, found a text"]);
    let config =
        must(load("demo = \"${YES}\"\ndrain_seconds = \"${SECONDS}\"\ndefault_agent = \"${X:-echo}\""))
            .config;
    assert_eq!(
        (config.demo, config.drain_grace.as_secs(), config.default_agent.as_deref()),
        (true, 7, Some("echo"))
    );
}

#[test]
fn files_that_do_not_go_together() {
    let folder = Folder::new(&[
        (
            "nuncio.toml",
            "include = [\"conf.d/*.toml\", \"none.toml\"]\ndemo = true\n[agents.a]\ndemo = \"echo\"\n",
        ),
        ("conf.d/1.toml", "demo = false\n[agents.a]\ndemo = \"slow\"\n"),
        ("conf.d/2.toml", "include = []\n[agents.b]\nurl = 1\n"),
    ]);
    let problems = folder.source().load().map(drop).unwrap_err();
    let told = folder.short(&problems.to_string());
    for words in [
        "conf.d/1.toml:1:1: demo: is set in two files; also in nuncio.toml:2",
        "conf.d/1.toml:2:9: agents.a: is set in two files; also in nuncio.toml:3",
        "conf.d/2.toml:1:1: include: an included file cannot include others",
        "none.toml: cannot be read",
        "conf.d/2.toml:3:7: agents.b.url: expected a text",
    ] {
        assert!(told.contains(words), "expected {words:?} in\n{told}");
    }
    assert_eq!(problems.errors().count(), 5, "{told}");
}

#[test]
fn a_secret_that_others_can_read_is_a_warning() {
    use std::{fs, os::unix::fs::PermissionsExt as _};
    let text = "[agents.a]\nurl = \"https://a\"\n[agents.a.auth]\nbearer_file = \"token\"\n";
    let folder = Folder::new(&[("nuncio.toml", text), ("token", "s3cret\n")]);
    assert_eq!(must(folder.source().load()).warnings.0, []);
    fs::set_permissions(folder.path("token"), fs::Permissions::from_mode(0o644)).unwrap();
    let warnings = must(folder.source().load()).warnings;
    let [warning] = &warnings.0[..] else { panic!("{warnings}") };
    assert_eq!(warning.severity, Severity::Warning);
    assert!(warning.to_string().contains("4:15: agents.a.auth.bearer_file: others can read"), "{warning}");
}

#[test]
fn a_file_that_is_not_there() {
    let folder = Folder::new(&[]);
    let told = folder.source().load().map(drop).unwrap_err().to_string();
    assert!(folder.short(&told).starts_with("nuncio.toml: cannot be read"), "{told}");
}
