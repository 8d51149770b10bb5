//! The configuration is rewritten again and again under load: no call fails, and what is wrong changes nothing.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use nuncio_tests::{
    chance::Chance,
    data::Folder,
    eventually,
    hub::{Hub, cli_with_env, free_address},
    issuer::Issuer,
    raw::Raw,
    within,
};
use serde_json::{Value, json};

use crate::{
    behind::upstreams,
    ledger::Ledger,
    load::{Load, Reached},
    moody::{self, Callers, call},
    path, stop,
    verify::verify,
};

const CALLERS: u64 = 12;
const TIMES: usize = 30;

/// The log line for an invalid file.
const WRONG: &str = "the new configuration is invalid; the previous one stays in force: ";

/// The trigger of a reload.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Asks {
    /// Nobody: the hub sees it.
    Nobody,
    Signal,
    Command,
}

/// True if the file of this number has a guest and an issuer.
fn is_open(number: usize) -> bool {
    number.is_multiple_of(2)
}

/// The file as it is this time: agents that stay, change, come and go, and who may call how much.
fn text(number: usize, agents: &[(&'static str, String)], issuer: &Issuer) -> String {
    let anonymous = if is_open(number) { "always" } else { "loopback" };
    let mut text = format!("[identity]\nanonymous = \"{anonymous}\"\n");
    if is_open(number) {
        text += &issuer.setting();
    }
    write!(text, "[limits]\ntasks = {}\n", 1000 + number).unwrap();
    for (name, url) in agents {
        write!(text, "[agents.{name}]\nurl = \"{url}\"\n").unwrap();
        match *name {
            "echo" => writeln!(text, "title = \"echo {number}\"").unwrap(),
            "slow" => writeln!(text, "timeout_seconds = {}", 30 + number).unwrap(),
            _ => {}
        }
        if *name == "echo" {
            text += &moody::setting(number, url);
            if is_open(number) {
                write!(text, "[agents.guest]\nurl = \"{url}\"\n").unwrap();
            }
        }
    }
    text
}

/// The mistakes, each with its message.
const MISTAKES: [(&str, &str); 4] = [
    ("[agents", "nuncio.toml:1:8: invalid TOML"),
    ("lisen = 1\n", "nuncio.toml:1:1: lisen: there is no such key; did you mean listen?"),
    ("[agents.guess]\nurl = 7\n", "nuncio.toml:2:7: agents.guess.url: expected a text"),
    ("drain_seconds = \"many\"\n", "nuncio.toml:1:17: drain_seconds: expected a whole number"),
];

/// The same with a mistake, and what is said of that.
fn wrong(
    number: usize,
    agents: &[(&'static str, String)],
    issuer: &Issuer,
) -> (String, Option<&'static str>) {
    let (mistake, words) = MISTAKES[number % MISTAKES.len()];
    (format!("{mistake}{}", text(number, &agents[..1], issuer)), Some(words))
}

/// As an editor saves it: at once.
fn save(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

struct Reloaded {
    hub: Hub,
    admin: Vec<(&'static str, String)>,
    raw: Raw,
}

impl Reloaded {
    /// Asks for the file to be read; whoever asks by a command hears what is wrong with it, if anything is.
    async fn ask(&self, asks: Asks, wrong: Option<&str>) {
        match asks {
            Asks::Nobody => {}
            Asks::Signal => self.hub.process.signal("HUP").await,
            Asks::Command => {
                let variables: Vec<_> = self.admin.iter().map(|(name, value)| (*name, &**value)).collect();
                let output = cli_with_env(&["config", "reload"], &variables).await;
                assert_eq!(output.code == Some(0), wrong.is_none(), "{output:?}");
                assert!(output.stderr.contains(wrong.unwrap_or_default()), "{wrong:?}: {output:?}");
            }
        }
    }

    /// The configuration of this number is in force, all of it.
    async fn shows(&self, number: usize) {
        eventually("the new configuration", async || {
            let card = self.raw.get("/agents/echo/.well-known/agent-card.json", &[]).await;
            (card.json()["name"] == format!("echo {number}")).then_some(())
        })
        .await;
        let guest = self.raw.get("/agents/guest/.well-known/agent-card.json", &[]).await.status;
        assert_eq!(guest, if is_open(number) { 200 } else { 404 }, "{number}");
    }

    /// The log lines about invalid files.
    fn complaints(&self) -> Vec<String> {
        self.hub.process.stderr().split(WRONG).skip(1).map(str::to_owned).collect()
    }
}

/// A stream that somebody with a token has opened, of a task that goes on.
struct Held {
    task: String,
    /// Until it has ended.
    stream: Option<reqwest::Response>,
}

impl Held {
    async fn open(hub: &Hub, bearer: &str) -> Self {
        let message = json!({"messageId": "held", "role": "ROLE_USER", "parts": [{"text": "hold"}]});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}});
        let headers = [("a2a-version", "1.0"), ("authorization", bearer)];
        let request = Raw::new(hub.agent("echo")).posting(&headers, call.to_string());
        let mut stream = within("the stream", request.send()).await.unwrap();
        let mut seen = String::new();
        let task = loop {
            let piece = within("an event", stream.chunk()).await.unwrap().expect("it goes on");
            seen += &String::from_utf8_lossy(&piece);
            let whole = seen.split("\n\n").next().filter(|_| seen.contains("\n\n"));
            let data = whole.and_then(|event| event.lines().find_map(|line| line.strip_prefix("data:")));
            if let Some(event) = data.and_then(|data| serde_json::from_str::<Value>(data).ok()) {
                break event["result"]["task"]["id"].as_str().expect("the task comes first").to_owned();
            }
        };
        Self { task, stream: Some(stream) }
    }

    /// Its issuer is believed no more.
    async fn ends(&mut self) {
        let Some(mut stream) = self.stream.take() else { return };
        while within("the end of the stream", stream.chunk()).await.expect("in good order").is_some() {}
    }

    /// The task has not ended with the stream, and is there for whoever is believed again.
    async fn cancel(self, hub: &Hub, bearer: &str) {
        assert!(self.stream.is_none(), "it has ended");
        let canceled =
            call(&Raw::new(hub.agent("echo")), Some(bearer), "CancelTask", json!({"id": self.task})).await;
        assert_eq!(canceled.json()["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_fails_while_the_configuration_is_rewritten() {
    let seed = Chance::seed();
    eprintln!("NUNCIO_SEED={seed}");
    let far = Hub::start(&["--log-level", "warn"]).await;
    let agents = upstreams(&far);
    let folder = Folder::new();
    let (file, token) = (folder.path().join("nuncio.toml"), folder.path().join("hub.token"));
    let issuer = Issuer::start().await;
    let bearer = issuer.bearer("ann");
    save(&file, &text(0, &agents, &issuer));
    let listen = free_address();
    let args = ["--config", path(&file), "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let hub = Hub::of_agents(&listen.to_string(), &args).await;
    let admin = format!("http://{}", hub.announced["admin"]["listen"].as_str().unwrap());
    let admin = vec![("NUNCIO_ADMIN", admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token).to_owned())];
    let raw = Raw::new(&*hub.base);
    let reloaded = Reloaded { hub, admin, raw };
    let (reached, ledger): (_, Arc<Ledger>) = (Arc::new(Reached::new(listen)), Arc::default());
    let mut load = Load::start(CALLERS, &[Arc::clone(&reached)], &ledger, seed);
    let mut callers = Callers::start(&reloaded.hub.base, &bearer);
    let (mut in_force, mut held) = (0, None);
    for number in 1..=TIMES {
        let asks = [Asks::Nobody, Asks::Signal, Asks::Command][number % 3];
        let complaints = reloaded.complaints().len();
        let (new, mistake) = match number % 5 {
            4 => wrong(number, &agents, &issuer),
            _ => (text(number, &agents, &issuer), None),
        };
        save(&file, &new);
        reloaded.ask(asks, mistake).await;
        match mistake {
            None => in_force = number,
            Some(words) if asks != Asks::Command => {
                let is_told = || reloaded.complaints()[complaints..].iter().any(|said| said.contains(words));
                eventually(words, async || is_told().then_some(())).await;
            }
            Some(_) => {}
        }
        reloaded.shows(in_force).await;
        // Each configuration meets calls of the agent that changes.
        let answered = callers.check();
        eventually("an answer", async || (callers.check() > answered).then_some(())).await;
        load.check();
        match &held {
            None if is_open(in_force) => held = Some(Held::open(&reloaded.hub, &bearer).await),
            Some(_) | None => {}
        }
        if !is_open(in_force)
            && let Some(held) = &mut held
        {
            held.ends().await;
        }
    }
    callers.end().await;
    held.expect("there was an issuer").cancel(&reloaded.hub, &bearer).await;
    load.end().await;
    assert_eq!(ledger.repeats.load(Ordering::Relaxed), 0, "no call was to be made again");
    let ends = verify(&reached, &ledger).await;
    stop(reloaded.hub).await;
    stop(far).await;
    eprintln!("{} tasks told of; {ends:?}", ledger.len());
}
