//! A hub with mailboxes as a process, its operator, and its workers as programs that speak plain HTTP.

use std::fs;

use serde_json::{Value, json};

use crate::{
    data::Folder,
    eventually,
    hub::{Hub, cli_with_env},
    process::Output,
    raw::{Answer, Raw},
};

/// Headers of callers.
const CALLER: [(&str, &str); 2] = [("a2a-version", "1.0"), ("content-type", "application/json")];

/// A hub with mailboxes. It can be killed and comes again at its address.
#[derive(Debug)]
pub struct PostOffice {
    /// The process that runs now.
    pub hub: Hub,
    /// The folder of its configuration, its data and its token.
    pub folder: Folder,
    listen: String,
    data: String,
}

impl PostOffice {
    /// Starts it at this address with these tables of its configuration; `data` may name a file, which is in its
    /// folder.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn open(listen: &str, data: &str, tables: &str) -> Self {
        let folder = Folder::new();
        fs::write(folder.path().join("nuncio.toml"), tables).expect("the folder can be written to");
        let data = match data {
            "memory" => data.to_owned(),
            url if url.contains("://") => url.to_owned(),
            file => folder.path().join(file).display().to_string(),
        };
        let hub = start(listen, &data, &folder).await;
        let listen = hub.announced["listen"].as_str().expect("it says where it listens").to_owned();
        Self { hub, folder, listen, data }
    }

    /// The name of its data.
    #[must_use]
    pub fn data(&self) -> &str {
        &self.data
    }

    /// Kills the hub and starts it anew.
    ///
    /// # Panics
    /// When it does not start, or has panicked before.
    pub async fn kill(&mut self) {
        self.hub.process.signal("KILL").await;
        self.hub.process.end().await;
        let log = self.hub.process.stderr();
        assert!(!log.contains("panicked"), "{log}");
        self.hub = start(&self.listen, &self.data, &self.folder).await;
    }

    /// Runs a command of the operator.
    ///
    /// # Panics
    /// When the hub has no listener for operators.
    pub async fn operate(&self, args: &[&str]) -> Output {
        let token = self.folder.path().join("hub.token").display().to_string();
        let admin = format!("http://{}", self.hub.announced["admin"]["listen"].as_str().expect("a listener"));
        cli_with_env(args, &[("NUNCIO_ADMIN", &*admin), ("NUNCIO_ADMIN_TOKEN_FILE", &*token)]).await
    }

    /// A new key of a mailbox, which is made if there is none.
    ///
    /// # Panics
    /// When there is none to be had.
    pub async fn key(&self, mailbox: &str) -> String {
        let made = self.operate(&["mailbox", "create", mailbox]).await;
        assert_eq!(made.code, Some(0), "{made:?}");
        made.stdout.trim().to_owned()
    }

    /// A worker of this mailbox that shows this key.
    #[must_use]
    pub fn worker(&self, mailbox: &str, key: &str) -> PullWorker {
        PullWorker::at(&self.hub.base, mailbox, key)
    }

    /// A caller of this agent.
    #[must_use]
    pub fn caller(&self, agent: &str) -> Sender {
        Sender::to(&self.hub.base, agent)
    }
}

async fn start(listen: &str, data: &str, folder: &Folder) -> Hub {
    let (file, token) = (folder.path().join("nuncio.toml"), folder.path().join("hub.token"));
    let (file, token) = (file.display().to_string(), token.display().to_string());
    let own = ["--admin", "127.0.0.1:0", "--admin-token-file", &*token, "--config", &*file];
    Hub::of_agents(listen, &[&own[..], &["--data", data, "--log-level", "warn"]].concat()).await
}

/// A caller that speaks HTTP+JSON 1.0.
#[derive(Clone, Debug)]
pub struct Sender {
    raw: Raw,
}

impl Sender {
    /// A caller of an agent of the hub at this base.
    #[must_use]
    pub fn to(base: &str, agent: &str) -> Self {
        Self { raw: Raw::new(format!("{base}/agents/{agent}")) }
    }

    /// Sends a message without waiting; the answer.
    pub async fn try_send(&self, text: &str) -> Answer {
        let body = json!({
            "message": { "messageId": text, "role": "ROLE_USER", "parts": [{ "text": text }] },
            "configuration": { "returnImmediately": true },
        });
        let key = format!("send-{text}");
        let headers = [&CALLER[..], &[("idempotency-key", &*key)]].concat();
        self.raw.ask("POST", "/message:send", &headers, body.to_string()).await
    }

    /// Sends a message without waiting; the id of its task.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn send(&self, text: &str) -> String {
        let answer = self.try_send(text).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["task"]["id"].as_str().expect("a task").to_owned()
    }

    /// Cancels a task.
    pub async fn cancel(&self, task: &str) -> Answer {
        self.raw.ask("POST", &format!("/tasks/{task}:cancel"), &CALLER, "{}").await
    }

    /// The task.
    ///
    /// # Panics
    /// When there is none.
    pub async fn get(&self, task: &str) -> Value {
        let answer = self.raw.get(&format!("/tasks/{task}"), &CALLER).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// The task, once it is in this state.
    pub async fn until(&self, task: &str, state: &str) -> Value {
        eventually(state, async || Some(self.get(task).await).filter(|task| state_of(task) == state)).await
    }
}

/// The state of a task in lower case, such as `completed`.
#[must_use]
pub fn state_of(task: &Value) -> String {
    let state = task["status"]["state"].as_str().unwrap_or_default();
    state.trim_start_matches("TASK_STATE_").to_lowercase()
}

/// The text of all artifacts of a task.
#[must_use]
pub fn text_of(task: &Value) -> String {
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    let parts = artifacts.flat_map(|artifact| artifact["parts"].as_array().into_iter().flatten());
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// A worker that speaks plain HTTP.
#[derive(Clone, Debug)]
pub struct PullWorker {
    raw: Raw,
    authorization: Option<String>,
    mailbox: String,
}

impl PullWorker {
    /// A worker of a mailbox of the hub at this base. Without a key it shows none.
    #[must_use]
    pub fn at(base: &str, mailbox: &str, key: &str) -> Self {
        let authorization = (!key.is_empty()).then(|| format!("Bearer {key}"));
        Self { raw: Raw::new(base), authorization, mailbox: mailbox.to_owned() }
    }

    /// Calls anything below the mailbox with further headers.
    pub async fn call(
        &self,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Answer {
        let mut all = headers.to_vec();
        if let Some(authorization) = &self.authorization {
            all.push(("authorization", authorization.as_str()));
        }
        self.raw.ask(verb, &format!("/mailboxes/{}{path}", self.mailbox), &all, body.into()).await
    }

    /// The same over a line that may be cut, again and again until there is a whole answer.
    pub async fn insist(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Answer {
        let mut all = headers.to_vec();
        if let Some(authorization) = &self.authorization {
            all.push(("authorization", authorization.as_str()));
        }
        let (path, body) = (format!("/mailboxes/{}{path}", self.mailbox), body.into());
        loop {
            if let Some(answer) = self.raw.try_ask("POST", &path, &all, body.clone()).await
                && answer.status < 500
            {
                return answer;
            }
        }
    }

    /// Claims under this key; without waiting.
    pub async fn try_claim(&self, worker: &str, key: &str) -> Answer {
        self.call("POST", ":claim", &[("nuncio-worker", worker), ("idempotency-key", key)], "").await
    }

    /// Claims under this key, and waits for a turn.
    ///
    /// # Panics
    /// When there is none.
    pub async fn claim(&self, worker: &str, key: &str) -> Value {
        let headers = [("nuncio-worker", worker), ("idempotency-key", key), ("prefer", "wait=50")];
        let answer = self.call("POST", ":claim", &headers, "").await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// Sends lines of which the first has this number.
    pub async fn update(&self, lease: &str, first: &str, body: impl Into<Vec<u8>>) -> Answer {
        self.call("POST", &format!("/leases/{lease}:update"), &[("nuncio-first", first)], body).await
    }

    /// Sends a line that must be taken.
    ///
    /// # Panics
    /// When it is not.
    pub async fn write(&self, lease: &Value, first: u64, line: &Value) -> Value {
        let answer = self.update(name_of(lease), &first.to_string(), line.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// Gives a sign of life.
    pub async fn heartbeat(&self, lease: &str) -> Answer {
        self.call("POST", &format!("/leases/{lease}:heartbeat"), &[], "").await
    }

    /// Hands the turn back.
    pub async fn release(&self, lease: &str) -> Answer {
        self.call("POST", &format!("/leases/{lease}:release"), &[], "").await
    }
}

/// The name of a lease, as the claim has told it.
///
/// # Panics
/// When it has none.
#[must_use]
pub fn name_of(lease: &Value) -> &str {
    lease["lease"].as_str().expect("a claim has a lease")
}
