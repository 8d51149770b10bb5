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
    raw::Raw,
};

use crate::{
    behind::upstreams,
    ledger::Ledger,
    load::{Load, Reached},
    path, stop,
    verify::verify,
};

const CALLERS: u64 = 12;
const TIMES: usize = 30;

/// What the hub says of a file that is wrong.
const WRONG: &str = "the new configuration is wrong; what was in force stays";

/// Who asks for the file to be read.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Asks {
    /// Nobody: the hub sees it.
    Nobody,
    Signal,
    Command,
}

/// The file as it is this time: agents that stay, change, come and go, and who may call how much.
fn text(number: usize, agents: &[(&'static str, String)]) -> String {
    let anonymous = if number.is_multiple_of(2) { "always" } else { "loopback" };
    let mut text = format!("[identity]\nanonymous = \"{anonymous}\"\n[limits]\ntasks = {}\n", 1000 + number);
    for (name, url) in agents {
        write!(text, "[agents.{name}]\nurl = \"{url}\"\n").unwrap();
        match *name {
            "echo" => writeln!(text, "title = \"echo {number}\"").unwrap(),
            "slow" => writeln!(text, "timeout_seconds = {}", 30 + number).unwrap(),
            _ => {}
        }
        if *name == "echo" && number.is_multiple_of(2) {
            write!(text, "[agents.guest]\nurl = \"{url}\"\n").unwrap();
        }
    }
    text
}

/// The same, and what is wrong with it.
fn wrong(number: usize, agents: &[(&'static str, String)]) -> String {
    let mistakes = ["[agents", "lisen = 1\n", "[agents.guess]\nurl = 7\n", "[limits]\nparts = \"many\"\n"];
    let other = text(number, &agents[..1]);
    format!("{}{other}", mistakes[number % mistakes.len()])
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
    async fn ask(&self, asks: Asks, is_wrong: bool) {
        match asks {
            Asks::Nobody => {}
            Asks::Signal => self.hub.process.signal("HUP").await,
            Asks::Command => {
                let variables: Vec<_> = self.admin.iter().map(|(name, value)| (*name, &**value)).collect();
                let output = cli_with_env(&["config", "reload"], &variables).await;
                assert_eq!(output.code == Some(0), !is_wrong, "{output:?}");
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
        assert_eq!(guest, if number.is_multiple_of(2) { 200 } else { 404 }, "{number}");
    }

    fn complaints(&self) -> usize {
        self.hub.process.stderr().matches(WRONG).count()
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
    save(&file, &text(0, &agents));
    let listen = free_address();
    let args = ["--config", path(&file), "--admin", "127.0.0.1:0", "--admin-token-file", path(&token)];
    let hub = Hub::of_agents(&listen.to_string(), &args).await;
    let admin = format!("http://{}", hub.announced["admin"]["listen"].as_str().unwrap());
    let admin = vec![("NUNCIO_ADMIN", admin), ("NUNCIO_ADMIN_TOKEN_FILE", path(&token).to_owned())];
    let raw = Raw::new(&*hub.base);
    let reloaded = Reloaded { hub, admin, raw };
    let (reached, ledger): (_, Arc<Ledger>) = (Arc::new(Reached::new(listen)), Arc::default());
    let mut load = Load::start(CALLERS, &[Arc::clone(&reached)], &ledger, seed);
    let mut in_force = 0;
    for number in 1..=TIMES {
        let asks = [Asks::Nobody, Asks::Signal, Asks::Command][number % 3];
        let (is_wrong, complaints) = (number % 5 == 4, reloaded.complaints());
        save(&file, &if is_wrong { wrong(number, &agents) } else { text(number, &agents) });
        reloaded.ask(asks, is_wrong).await;
        if !is_wrong {
            in_force = number;
        } else if asks != Asks::Command {
            eventually("a complaint", async || (reloaded.complaints() > complaints).then_some(())).await;
        }
        reloaded.shows(in_force).await;
        load.check();
    }
    load.end().await;
    assert_eq!(ledger.repeats.load(Ordering::Relaxed), 0, "no call was to be made again");
    let ends = verify(&reached, &ledger).await;
    stop(reloaded.hub).await;
    stop(far).await;
    eprintln!("{} tasks told of; {ends:?}", ledger.len());
}
