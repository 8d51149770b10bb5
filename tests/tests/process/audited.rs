//! `nuncio audit` on Nuncio: the report in `docs/`, which is made here.

use std::fs;

use nuncio_tests::{
    hub::{Hub, cli_with_env, root},
    process::Output,
};

use crate::{directory, path, text};

/// The report, relative to the root of the repository.
const REPORT: &str = "docs/audit-nuncio.md";
/// The address in the report, whatever the hub has here.
const ADDRESS: &str = "127.0.0.1:2602";

/// A hub as in production: TLS, signed cards, and callers with keys.
struct Audited {
    hub: Hub,
    /// The address of its administration.
    admin: String,
    folder: std::path::PathBuf,
    keys: [String; 2],
}

impl Audited {
    async fn start(test: &str) -> Self {
        let folder = directory(test);
        let [cert, tls_key, card_key, token] =
            ["cert.pem", "key.pem", "card.pem", "hub.token"].map(|name| folder.join(name));
        let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        fs::write(&cert, pair.cert.pem()).unwrap();
        fs::write(&tls_key, pair.signing_key.serialize_pem()).unwrap();
        fs::write(&card_key, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        let hub = Hub::start(&[
            "--no-anonymous",
            // The receiver of the audit is on this machine; other private addresses stay refused.
            "--allow-push",
            "127.0.0.1/32",
            "--tls-cert",
            path(&cert),
            "--tls-key",
            path(&tls_key),
            "--card-key",
            path(&card_key),
            "--admin",
            "127.0.0.1:0",
            "--admin-token-file",
            path(&token),
        ])
        .await;
        let admin = format!("http://{}", text(&hub.announced["admin"]["listen"]));
        let create = async |name: &str| {
            let env = [("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))];
            let made = cli_with_env(&["key", "create", name, "--yes"], &env).await;
            assert_eq!(made.code, Some(0), "{made:?}");
            made.stdout.trim_end().to_owned()
        };
        let keys = [create("one").await, create("two").await];
        Self { hub, admin, folder, keys }
    }

    /// Runs a command of its operator, with the first key at hand.
    async fn operate(&self, args: &[&str]) -> Output {
        let token = self.folder.join("hub.token");
        let env = [
            ("NUNCIO_ADMIN", self.admin.as_str()),
            ("NUNCIO_ADMIN_TOKEN_FILE", path(&token)),
            ("CALLER_KEY", self.keys[0].as_str()),
        ];
        cli_with_env(args, &env).await
    }

    /// Audits an agent with every depth, and returns the report in Markdown, too.
    async fn audit(&self, agent: &str, message: &str) -> (Output, String) {
        let (url, file, cert) =
            (self.hub.agent(agent), self.folder.join("report.md"), self.folder.join("cert.pem"));
        let depth = ["--send", message, "--push", "--as", "SECOND_KEY"];
        let options = ["--ca", path(&cert), "--report", path(&file)];
        let [one, two] = &self.keys;
        let env = [("NUNCIO_KEY", one.as_str()), ("SECOND_KEY", two.as_str())];
        let output = cli_with_env(&[&["audit", &url], &depth[..], &options[..]].concat(), &env).await;
        let report = fs::read_to_string(&file).unwrap_or_default();
        (output, report)
    }

    /// The report with a fixed address, and without numbers that depend on time.
    fn settled(&self, report: &str) -> String {
        let (_, address) = self.hub.base.split_once("://").unwrap();
        let report = report.replace(address, ADDRESS);
        let is_count = |line: &&str| !line.contains(" requests, ");
        report.lines().filter(is_count).flat_map(|line| [line, "\n"]).collect()
    }
}

/// The date of a report.
fn date(report: &str) -> &str {
    let row = report.lines().find_map(|line| line.strip_prefix("| date | ")?.strip_suffix(" |"));
    row.unwrap_or("no date")
}

/// The report of Nuncio is fresh but for its date, and has no failure. `UPDATE_DOCS=1` writes it.
#[tokio::test(flavor = "multi_thread")]
async fn the_report_of_nuncio_is_fresh() {
    let audited = Audited::start("audited").await;
    let (output, report) = audited.audit("conformance", "sleep 1").await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let report = audited.settled(&report);
    let file = root().join(REPORT);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &report).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let expected = report.replace(date(&report), date(&written));
    for (number, (old, new)) in (1..).zip(written.lines().zip(expected.lines())) {
        assert_eq!(old, new, "{REPORT}:{number} is not fresh; UPDATE_DOCS=1 cargo test writes it");
    }
    assert_eq!(written, expected, "{REPORT} is not fresh; UPDATE_DOCS=1 cargo test writes it");
}

/// The hub audits its own agents over TLS with its own certificate, as a caller with a key.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_audits_an_agent_by_name() {
    let audited = Audited::start("audited-by-name").await;
    let closed = audited.operate(&["agent", "audit", "echo"]).await;
    assert_eq!(closed.code, Some(0), "{closed:?}");
    assert!(closed.stdout.contains("needs credentials"), "unseen without a key: {}", closed.stdout);
    let report = audited.folder.join("echo.html");
    let args =
        ["agent", "audit", "echo", "--key", "CALLER_KEY", "--send", "hello", "--report", path(&report)];
    let output = audited.operate(&args).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("Grade A"), "{}", output.stdout);
    let html = fs::read_to_string(&report).unwrap();
    let shown = audited.operate(&["agent", "show", "echo"]).await;
    assert!(shown.stdout.contains("grade A, score 100 %"), "{}", shown.stdout);
    let latest = audited.operate(&["agent", "audit", "echo", "--latest"]).await;
    assert_eq!((latest.code, latest.stdout), (Some(0), output.stdout));
    let trail = audited.operate(&["trail", "--what", "agent-audited", "--agent", "echo"]).await;
    assert_eq!(trail.stdout.lines().count(), 2, "{}", trail.stdout);
    assert!(!html.contains(&audited.keys[0]), "a report has no credentials");
    let unknown = audited.operate(&["agent", "audit", "nobody"]).await;
    assert_eq!(unknown.code, Some(5), "{unknown:?}");
}
