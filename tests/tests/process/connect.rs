//! `nuncio connect`: the connector as a process, between a hub with a mailbox and an agent on another one.

use std::path::PathBuf;

use nuncio_tests::{
    eventually,
    hub::{Hub, cli, cli_with_env, start},
    process::Process,
};

use crate::{administration::administered_with, directory, documents, json, path, text};

/// A hub with a mailbox `coder`, its key in a file, and a second hub whose demo agents are the agents of the laptop.
struct PostOffice {
    hub: Hub,
    admin: String,
    folder: PathBuf,
    laptop: Hub,
}

impl PostOffice {
    async fn open(name: &str) -> Self {
        let folder = directory(&format!("connect-{name}"));
        let data = folder.join("post.db");
        let (hub, admin) = administered_with(&folder, &["--data", path(&data)]).await;
        let laptop = Hub::start(&[]).await;
        let office = Self { hub, admin, folder, laptop };
        let made =
            office.administer(&["mailbox", "create", "coder", "--key-file", path(&office.key())]).await;
        assert_eq!((made.code, &*made.stdout), (Some(0), ""), "{made:?}");
        office
    }

    async fn administer(&self, args: &[&str]) -> nuncio_tests::process::Output {
        let token = self.folder.join("hub.token");
        let variables = [("NUNCIO_ADMIN", &*self.admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token))];
        cli_with_env(args, &variables).await
    }

    fn key(&self) -> PathBuf {
        self.folder.join("coder.key")
    }

    fn connect(&self, to: &str, more: &[&str]) -> Process {
        let key = self.key();
        let args = ["connect", "coder", "--hub", &self.hub.base, "--key-file", path(&key), "--to", to];
        start(&[&args, more].concat())
    }

    fn coder(&self) -> String {
        self.hub.agent("coder")
    }

    /// Sends without waiting; the id of the task.
    async fn send(&self, words: &str) -> String {
        let sent = cli(&["send", &self.coder(), words, "--no-wait"]).await;
        assert_eq!(sent.code, Some(0), "{sent:?}");
        sent.stdout.trim().to_owned()
    }

    async fn state(&self, task: &str) -> String {
        let got = json(&cli(&["task", "get", &self.coder(), task, "-o", "json"]).await);
        text(&got["status"]["state"]).trim_start_matches("TASK_STATE_").to_lowercase()
    }

    async fn until(&self, task: &str, state: &str) {
        eventually(state, async || (self.state(task).await == state).then_some(())).await;
    }
}

/// The connector is killed in mid-task: the next one goes on with the task of the agent, which is asked once.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_connector_is_followed_by_one_that_goes_on() {
    let office = PostOffice::open("killed").await;
    let slow = office.laptop.agent("slow");
    let connector = office.connect(&slow, &["--worker", "laptop"]);
    let task = office.send("6").await;
    connector.says("begins").await;
    office.until(&task, "working").await;
    drop(connector);
    let again = office.connect(&slow, &["--worker", "laptop", "--take-over"]);
    again.says("goes on").await;
    office.until(&task, "completed").await;
    let got = json(&cli(&["task", "get", &office.coder(), &task, "-o", "json"]).await);
    let pieces = got["artifacts"][0]["parts"].as_array().unwrap();
    let words: String = pieces.iter().map(|part| text(&part["text"])).collect();
    assert_eq!(words, "6 5 4 3 2 1 done", "{got}");
    let asked = cli(&["task", "list", &slow, "-o", "json"]).await;
    assert_eq!(documents(&asked).len(), 1, "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_waits_while_nobody_is_connected() {
    let office = PostOffice::open("waits").await;
    let task = office.send("hello").await;
    assert_eq!(office.state(&task).await, "submitted");
    let connector = office.connect(&office.laptop.agent("echo"), &[]);
    office.until(&task, "completed").await;
    connector.says("is completed").await;
    let card = json(&cli(&["card", "get", &office.coder(), "-o", "json"]).await);
    let served = card["supportedInterfaces"].to_string();
    assert!(served.contains(&office.hub.base) && !served.contains(&office.laptop.base), "{served}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_finishes_what_runs() {
    let office = PostOffice::open("interrupt").await;
    let mut connector = office.connect(&office.laptop.agent("slow"), &[]);
    let running = office.send("3").await;
    office.until(&running, "working").await;
    connector.signal("INT").await;
    connector.says("finishing 1 task").await;
    let waiting = office.send("1").await;
    assert_eq!(connector.end().await.code(), Some(0));
    assert_eq!(office.state(&running).await, "completed");
    assert_eq!(office.state(&waiting).await, "submitted", "it waits for the next connector");
}

/// Question and answer through a program that speaks JSON lines.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_and_its_answer_pass_through() {
    let office = PostOffice::open("question").await;
    let script = office.folder.join("ask.sh");
    let ask = "read -r line\ncase $line in\n*blue*) echo '{\"completed\":\"blue it is\"}';;\n*) echo '{\"inputRequired\":\"which colour?\"}';;\nesac\n";
    std::fs::write(&script, ask).unwrap();
    let _connector = office.connect(&format!("cmd+json:sh {}", path(&script)), &[]);
    let asked = cli(&["send", &office.coder(), "paint", "-o", "json"]).await;
    let task = json(&asked)["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked:?}");
    let answered = cli(&["send", &office.coder(), "blue", "--task", text(&task["id"])]).await;
    assert_eq!(answered.code, Some(0), "{answered:?}");
    assert!(answered.stdout.contains("blue it is") || answered.stderr.contains("blue it is"), "{answered:?}");
}

/// The code is good once and for one mailbox; the key is shown to the one who redeems it.
#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_becomes_a_mailbox_once() {
    let office = PostOffice::open("invited").await;
    let made = office.administer(&["invite", "create", "--mailbox", "guest", "--expires", "2h"]).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    let code = made.stdout.trim();
    assert!(code.starts_with("nuncio_invite_"), "no key: {made:?}");
    let again = office.administer(&["invite", "create", "--mailbox", "guest"]).await;
    assert!(again.stderr.contains("there is an invitation to guest already"), "{again:?}");
    let taken = office.administer(&["invite", "create", "--mailbox", "coder"]).await;
    assert!(taken.stderr.contains("exists already"), "{taken:?}");
    let listed = office.administer(&["invite", "list"]).await;
    assert!(listed.stdout.contains("guest") && !listed.stdout.contains(code), "{listed:?}");

    let key = office.folder.join("guest.key");
    let register = ["register", &office.hub.base, "--key-file", path(&key)];
    let wrong = cli(&[&register[..], &["--invite", "wrong"]].concat()).await;
    assert_eq!((wrong.code, key.exists()), (Some(4), false), "{wrong:?}");
    let card = office.folder.join("guest.json");
    let shown = r#"{"name":"Guest","description":"Is here for a while.","version":"1","capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[]}"#;
    std::fs::write(&card, shown).unwrap();
    let registered = cli(&[&register[..], &["--invite", code, "--card", path(&card)]].concat()).await;
    assert_eq!(registered.code, Some(0), "{registered:?}");
    let advice = format!(" connect guest --key-file {} --hub {} --to AGENT`", path(&key), office.hub.base);
    assert!(registered.stderr.contains(&advice), "{registered:?}");
    let twice = cli(&["register", &office.hub.base, "--invite", code]).await;
    assert_eq!((twice.code, &*twice.stdout), (Some(4), ""), "{twice:?}");

    let published = cli(&["card", "get", &office.hub.agent("guest")]).await;
    assert!(published.stdout.contains("Is here for a while."), "{published:?}");
    let connect =
        ["connect", "guest", "--hub", &office.hub.base, "--key-file", path(&key), "--to", "cmd:cat"];
    let _connector = start(&connect);
    let sent = cli(&["send", &office.hub.agent("guest"), "hello"]).await;
    assert_eq!((sent.code, sent.stdout.contains("hello")), (Some(0), true), "{sent:?}");
    let trail = office.administer(&["trail"]).await;
    for row in ["invitation-created", "invitation-redeemed"] {
        assert!(trail.stdout.contains(row), "{row}: {trail:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_invitation_opens_nothing() {
    let office = PostOffice::open("revoked").await;
    let made = office.administer(&["invite", "create", "--mailbox", "guest"]).await;
    let revoked = office.administer(&["invite", "revoke", "guest"]).await;
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    let refused = cli(&["register", &office.hub.base, "--invite", made.stdout.trim()]).await;
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stderr.contains("was redeemed, has expired or was revoked"), "{refused:?}");
    assert_eq!(office.administer(&["invite", "list"]).await.stdout, "");
}

/// Without its program an agent takes no work from others.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_claims_nothing() {
    let office = PostOffice::open("missing-program").await;
    let connector = office.connect("cmd:/nonexistent/agent", &[]);
    connector.says("the agent is away: command: there is no program at this path that can be run").await;
    let task = office.send("hello").await;
    for list in ["mailbox", "agent"] {
        let listed = office.administer(&[list, "list"]).await;
        assert!(listed.stdout.contains("no worker") && !listed.stdout.contains("NAME"), "{listed:?}");
    }
    let _other = office.connect("cmd:cat", &["--worker", "other"]);
    office.until(&task, "completed").await;
    for list in ["mailbox", "agent"] {
        let listed = office.administer(&[list, "list"]).await;
        assert!(listed.stdout.contains("1 worker"), "{listed:?}");
    }
    let shown = office.administer(&["mailbox", "show", "coder"]).await;
    assert!(shown.stdout.contains("last seen ") && shown.stdout.contains(" s ago"), "{shown:?}");
    let key = std::fs::read_to_string(office.key()).unwrap();
    let refused = cli_with_env(&["send", &office.coder(), "hello"], &[("NUNCIO_KEY", key.trim())]).await;
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stderr.contains("this key opens the mailbox coder and calls no agent"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_connected_says_why() {
    let office = PostOffice::open("refused").await;
    std::fs::write(office.key(), "nuncio_wrong").unwrap();
    let mut wrong = office.connect("cmd:cat", &[]);
    assert_eq!(wrong.end().await.code(), Some(4), "{}", wrong.stderr());
    let stderr = wrong.stderr();
    assert!(stderr.contains("the hub refuses this key for the mailbox coder: "), "{stderr}");
    assert!(stderr.contains(" mailbox rotate coder`") && !stderr.contains("is served by"), "{stderr}");
    for (args, code, says) in [
        (&["connect", "coder"][..], 2, "give --to AGENT, such as --to http://127.0.0.1:8000"),
        (&["connect", "coder", "--to", "ftp://x"], 2, "--to"),
        (&["connect", "coder", "--to", "mailbox:"], 2, "--to"),
        (&["connect", "Coder", "--to", "cmd:cat"], 2, "Coder"),
        (&["connect", "coder", "--to", "cmd:cat", "--key-file", "/nonexistent"], 2, "--key-file"),
    ] {
        let output = cli(args).await;
        assert_eq!(output.code, Some(code), "{args:?}: {output:?}");
        assert!(output.stderr.contains(says), "{args:?}: {output:?}");
    }
}
