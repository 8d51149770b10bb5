//! Secrets stay where they are, whatever is wrong with their file.

use super::{Folder, load, must};
use crate::{config::show, preflight::preflight};

/// Files with a secret in them that cannot be read.
const WRONG: &[&str] = &[
    // No TOML.
    "[agents.a.auth]\nbearer = s3cret",
    "[agents.a.auth]\nbearer = \"s3cret",
    "[agents.a.auth]\nbearer = \"s3cret\" x",
    "[agents.a.auth]\nbearer \"s3cret\"",
    "[agents.a.auth]\npassword: \"s3cret=s3cret\"",
    "[agents.a.auth.headers]\nx-key = s3cret",
    "[agents.a.env]\nKEY = s3cret",
    "[push]\nsecrets = [\n  s3cret,\n]",
    "[telemetry.otlp_headers]\nx = 1\ny = \"s3cret",
    "[agents.a.auth]\npassword = \"\"\"\nfirst\ns3cret=\n",
    "[data]\nstore = \"postgres://me:s3cret@db.example/x\" x",
    // Under a mistyped key.
    "[agents.a.auth]\npasswrod = \"s3cret\"",
    "[agents.a.auth]\nbaerer = \"s3cret\" # s3cret",
    "[agents.a]\nauth = { user = \"me\", passwd = \"s3cret\" }",
    "[agents.a.oauth2]\nclient_secret = \"s3cret\"",
    "[telemetry]\notlp_header = { authorization = \"s3cret\" }",
    "[push]\nsecret = [\"s3cret\"]",
    "[data]\nstor = \"postgres://me:s3cret@db.example/x\"",
    // Of the wrong type.
    "[agents.a.auth]\nbearer = [\"s3cret\"]",
    "[agents.a.auth]\nbearer = { s = \"s3cret\" }",
    "[agents.a.auth]\nuser = 1\nheaders = { x = \"s3cret\", y = 1 }",
    "[agents.a.auth]\nheaders = \"s3cret\"",
    "[agents.a]\nauth = \"s3cret\"",
    "drain_seconds = \"s3cret\"",
    "[data]\ndurability = \"s3cret\"",
    "[push]\nsecrets = [\n  \"s3cret\",\n]\ndemo = true",
    // In the wrong place.
    "bearer = \"s3cret\"",
    "listen = \"s3cret\"",
    "store = \"postgres://me:s3cret@db.example/x\"",
    "allow_hosts = [\"s3cret x\"]",
    "trusted_proxies = [\"s3cret\"]",
    "[data]\nstore = \"s3cret:x\"",
    "[data]\nstore = \"s3cret/\"",
    "[agents.a]\nurl = \"s3cret\"",
    "[agents.a]\ncommand = \"KEY=s3cret ./agent\"",
    "[agents.a]\ncommand = \"x\"\nenv_allow = [\"KEY=s3cret\"]",
    "[agents.a]\nurl = \"https://a\"\nauth.bearer_file = \"s3cret\"",
    "[agents.a]\nurl = \"https://a\"\nforward_headers = [\"s3cret: x\"]",
    "[cors]\norigins = [\"s3cret\"]",
    "[identity]\nanonymous = \"s3cret\"",
    "[[identity.jwt]]\nissuer = \"s3cret\"\naudience = [\"a\"]\noperations = [\"s3cret\"]",
    // In an address.
    "[data]\nstore = \"postgres://me:1/s3cret@db.example/x\"",
    "public_url = \"https://me:s3cret@x.example\"",
    "public_url = \"https://x.example?key=s3cret\"",
    "[agents.a]\nurl = \"https://me:s3cret@a\"",
    "[agents.a]\nurl = \"ftp://a?key=s3cret\"",
];

#[test]
fn what_is_told_holds_no_secret() {
    for text in WRONG {
        let problems = load(text).map(drop).unwrap_err();
        for told in [problems.to_string(), format!("{problems:?}")] {
            assert!(!told.contains("s3cret"), "{text}\n--\n{told}");
        }
    }
}

/// Files that can be read, and refer to what is not there.
#[tokio::test]
async fn what_is_shown_and_checked_holds_no_secret() {
    for text in [
        // Port 1 of loopback: nothing listens there.
        "[agents.a]\nurl = \"http://127.0.0.1:1/x?key=s3cret&v=1#s3cret\"",
        "[agents.a]\nurl = \"http://127.0.0.1:1\"\ncard = \"http://127.0.0.1:1/card?key=s3cret\"",
        "[agents.a]\nurl = \"http://127.0.0.1:1\"\nauth.bearer = \"s3cret\"",
        "[agents.a]\ncommand = \"no-such-program --url http://a?key=s3cret\"",
        "demo = true\n[[identity.jwt]]\nissuer = \"http://127.0.0.1:1\"\naudience = [\"a\"]\n\
         jwks_url = \"http://127.0.0.1:1/keys?key=s3cret\"",
        "demo = true\n[telemetry]\notlp_endpoint = \"http://127.0.0.1:1/?key=s3cret\"\n\
         otlp_headers = { authorization = \"s3cret\" }",
        "[agents.a]\nurl = \"http://127.0.0.1:1\"\n[agents.a.auth.oauth2]\nclient_id = \"x\"\n\
         token_url = \"http://127.0.0.1:1/token?key=s3cret\"\nclient_secret = \"s3cret\"",
    ] {
        let folder = Folder::new(&[("nuncio.toml", text)]);
        let loaded = must(folder.source().load());
        let found = preflight(&loaded, false).await;
        let shown = [
            show(&loaded, true),
            loaded.shown(true).to_string(),
            found.iter().map(ToString::to_string).collect(),
            format!("{found:?}"),
        ];
        for shown in shown {
            assert!(!shown.contains("s3cret"), "{text}\n--\n{shown}");
        }
    }
}

/// The error for a secret in place of a file name shows the key only.
#[tokio::test]
async fn what_is_no_file_is_not_quoted() {
    for (key, line) in [
        ("agents.a.card", "card = \"s3cret\""),
        ("agents.a.trust.keys", "trust.keys = [\"s3cret\"]"),
        ("agents.a.auth", "auth.ca = [\"s3cret\"]"),
        ("agents.a.auth", "auth = { client_cert = \"s3cret\", client_key = \"s3cret\" }"),
        ("tls", "[tls]\ncert = \"x\\ns3cret\"\nkey = \"x\\ns3cret\""),
        ("card_keys", "[[card_keys]]\nfile = \"x\\ns3cret\""),
    ] {
        let folder = Folder::new(&[("nuncio.toml", &format!("[agents.a]\nurl = \"https://a\"\n{line}"))]);
        let found = preflight(&must(folder.source().load()), true).await;
        let told: String = found.iter().map(ToString::to_string).collect();
        assert!(told.contains(&format!(" {key}: ")) && !told.contains("s3cret"), "{line}: {told}");
    }
}
