//! Every row of the table of behaviour in `docs/mailboxes.md`, over every store, and lines of hostile workers.

mod ends;
mod hostile;
mod hubs;
mod lines;
mod order;
mod webhook;

use std::{path::PathBuf, sync::Arc, sync::atomic::Ordering, time::Duration};

use nuncio_protocol::{CallContext, Caller, Message, Part, SendMessageRequest, Task, TaskState};
use nuncio_server::{
    store::{MemoryStore, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store},
    testing::{Harness, Say, postgres, summary},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{
    claim::Claim,
    problem::{Problem, Reason},
    registry::{Mailbox, Mailboxes},
};
use crate::{
    agents::{AgentFactory, hex::random_hex},
    config::{self, AgentKind, AgentOrigin, Mailbox as Settings},
    fleet::ServedAgent,
    registry::PrepareAgent as _,
};

/// The name of the mailbox.
const NAME: &str = "coder";

/// Data that several hubs can open.
enum Data {
    Memory(MemoryStore),
    Folder(PathBuf),
    /// The URL of a database, which is made when it is opened first.
    Database(OnceCell<String>),
}

impl Data {
    /// Empty data of each kind.
    fn all() -> [Self; 3] {
        let folder = std::env::temp_dir().join(format!("nuncio-mailbox-{}", random_hex::<8>()));
        std::fs::create_dir_all(&folder).unwrap();
        [Self::Memory(MemoryStore::default()), Self::Folder(folder), Self::Database(OnceCell::new())]
    }

    /// Empty data of each kind that several hubs share.
    fn shared() -> [Self; 2] {
        let [memory, _, database] = Self::all();
        [memory, database]
    }

    /// Empty data of one kind.
    fn nth(kind: usize) -> Self {
        Self::all().into_iter().nth(kind).unwrap()
    }

    async fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(data) => Arc::new(data.another()),
            Self::Folder(folder) => {
                Arc::new(SqliteStore::open(&folder.join("hub.db"), SqliteOptions::default()).await.unwrap())
            }
            Self::Database(url) => {
                let url = url.get_or_init(postgres::database).await;
                Arc::new(PostgresStore::connect(url, PostgresOptions::default()).await.unwrap())
            }
        }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if let Self::Folder(folder) = self {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// A hub with one mailbox.
struct Hub {
    factory: Arc<AgentFactory>,
    _agent: Arc<ServedAgent>,
    mailboxes: Arc<Mailboxes>,
    mailbox: Arc<Mailbox>,
    harness: Harness,
}

impl Hub {
    async fn new(data: &Data, settings: Settings) -> Self {
        Self::over(data.open().await, settings, |_| {}).await
    }

    /// A hub over this store, with changes to how it makes agents.
    async fn over(store: Arc<dyn Store>, settings: Settings, change: impl FnOnce(&mut AgentFactory)) -> Self {
        let mut factory = crate::registry::tests::factory(&store).await;
        change(&mut factory);
        let factory = Arc::new(factory);
        let kind = AgentKind::Mailbox(Box::new(settings));
        let wanted = config::Agent::new(NAME.parse().unwrap(), kind, AgentOrigin::Flag);
        let agent = Arc::clone(&factory).prepare(wanted, None).await.unwrap()().unwrap();
        let mailboxes = Arc::clone(&factory.mailboxes);
        let mailbox = mailboxes.find(NAME).unwrap();
        let (runtime, store) = (agent.runtime().unwrap().clone(), Arc::new(MemoryStore::default().into()));
        let harness = Harness { runtime, store, cx: CallContext::default() };
        Self { factory, _agent: agent, mailboxes, mailbox, harness }
    }

    /// Puts the clock of the hub forward.
    fn later(&self, time: Duration) {
        let millis = i64::try_from(time.as_millis()).unwrap();
        self.mailboxes.skew.fetch_add(millis, Ordering::Relaxed);
    }

    async fn sweep(&self) {
        self.mailboxes.sweep(&self.mailbox).await.unwrap();
    }

    /// The answer to a claim under this key; `None` if there is no turn.
    async fn claim_as(&self, worker: &str, key: Option<&str>) -> Option<Value> {
        let claim = Claim {
            worker: worker.to_owned(),
            key: key.map(str::to_owned),
            take_over: false,
            wait: Duration::ZERO,
        };
        let handed = self.mailboxes.claim(&self.mailbox, &claim).await.unwrap()?;
        Some(serde_json::from_slice(&handed.json).unwrap())
    }

    async fn claim(&self) -> Option<Value> {
        self.claim_as("w1", None).await
    }

    /// Sends lines of which the first has this number.
    async fn update(&self, lease: &Value, first: u64, lines: &[Value]) -> Result<Value, Problem> {
        let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let progress = self.mailboxes.update(&self.mailbox, &id(lease), first, body.as_bytes()).await?;
        Ok(serde_json::to_value(progress).unwrap())
    }

    async fn heartbeat(&self, lease: &Value) -> Result<Value, Problem> {
        let progress = self.mailboxes.heartbeat(&self.mailbox, &id(lease), Duration::ZERO).await?;
        Ok(serde_json::to_value(progress).unwrap())
    }

    /// The task of a message that waits in the mailbox.
    async fn begin(&self, said: impl Into<Say>) -> Task {
        let task = self.harness.begin(said).await.unwrap();
        self.parked().await;
        self.get(&task).await
    }

    /// Waits until every message is a row: on a busy machine the task may be told before.
    async fn parked(&self) {
        while self.harness.runtime.running() > 0 {
            tokio::task::yield_now().await;
        }
    }

    async fn get(&self, task: &Task) -> Task {
        self.harness.get(&task.id).await.unwrap()
    }

    /// The task in one line, without the times in it.
    async fn told(&self, task: &Task) -> String {
        summary(&self.get(task).await)
    }

    async fn turns(&self) -> usize {
        self.mailboxes.count(&self.mailbox).await.unwrap()
    }
}

fn id(lease: &Value) -> crate::agents::lease::LeaseId {
    lease["lease"].as_str().unwrap().parse().unwrap()
}

fn reason<T: std::fmt::Debug>(answer: Result<T, Problem>) -> Reason {
    answer.unwrap_err().reason
}

/// A message in this conversation.
fn in_context(context: &str, text: &str) -> Say {
    let message =
        Message { context_id: Some(context.into()), ..Message::user(random_hex::<8>(), Part::text(text)) };
    Say::from(SendMessageRequest { message, ..SendMessageRequest::default() })
}

/// The member of a task's metadata.
fn metadata(task: &Task, name: &str) -> Value {
    task.metadata.get(name).map_or(Value::Null, |value| serde_json::from_str(value.as_str()).unwrap())
}
