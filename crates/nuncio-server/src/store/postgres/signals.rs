//! Signals by LISTEN and NOTIFY, on a connection of their own.
//!
//! A signal is sent after the commit that it reports, by a statement of its own: within the transaction it
//! would hold a lock of the whole database until the commit is on disk. Signals that come while one is being
//! sent are sent together. There are none while this is the only owner.
//!
//! The connection is checked by its own echo: PostgreSQL sends each signal to its sender too. A connection
//! without an echo is replaced.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use nuncio_protocol::retry::Backoff;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_postgres::{AsyncMessage, Client, Notification};
use tokio_util::task::AbortOnDropHandle;

use super::{address::Address, names::plain};
use crate::store::{
    StoreError,
    signals::{NET_INTERVAL, Signals, Subscription, Switchboard, Topic},
};

/// The settings of the session. A signal need not be on disk.
const SETUP: &str = "SET synchronous_commit = off; SET standard_conforming_strings = on; \
                     SET statement_timeout = 5000; LISTEN nuncio_signals";

/// The maximum size of the keys in one payload in bytes. PostgreSQL's limit is 8,000 for the whole payload,
/// and a key may grow when it is escaped.
const MAX_PAYLOAD: usize = 4_000;

/// The maximum length of a key that is sent; a longer one is sent as "anything".
const MAX_KEY: usize = 600;

/// The timeout of an answer, and the interval of the echo.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pauses between attempts to connect.
const CONNECT_BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(5));

/// A signal as it is sent. An empty list of topics only shows that its sender is there.
#[derive(Serialize, Deserialize)]
struct Payload {
    from: i64,
    /// Keys by topic.
    #[serde(default)]
    about: Vec<(Topic, Vec<String>)>,
    /// True if the receivers shall look at everything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    everything: bool,
}

/// The signals of this owner.
#[derive(Debug)]
pub(super) struct PgSignals {
    board: Switchboard,
    me: i64,
    queue: mpsc::UnboundedSender<(Topic, String)>,
    /// False if this is known to be the only owner.
    has_others: AtomicBool,
    /// False if signals are switched off: subscribers poll.
    is_on: bool,
}

impl PgSignals {
    /// Starts the connection. It ends when the returned handle is dropped.
    pub(super) fn start(address: &Arc<Address>, me: i64, is_on: bool) -> (Arc<Self>, Connection) {
        let (queue, queued) = mpsc::unbounded_channel();
        let has_others = AtomicBool::new(is_on);
        let signals = Arc::new(Self { board: Switchboard::default(), me, queue, has_others, is_on });
        let run = is_on.then(|| {
            let run = run(Arc::clone(&signals), Arc::clone(address), queued);
            AbortOnDropHandle::new(tokio::spawn(run))
        });
        (signals, Connection(run))
    }

    /// True if somebody may listen.
    pub(super) fn has_others(&self) -> bool {
        self.has_others.load(Ordering::Relaxed)
    }

    /// Sets whether there are other owners.
    pub(super) fn set_others(&self, others: bool) {
        self.has_others.store(others && self.is_on, Ordering::Relaxed);
    }

    /// Tells the subscribers of this process what the heartbeat has found at these agents.
    pub(super) fn tell_agents(&self, topic: fn(Arc<str>) -> Topic, agents: &[&str]) {
        agents.iter().for_each(|agent| self.board.tell(&topic(plain(agent).into()), ""));
    }

    fn heard(&self, payload: &Payload) {
        self.set_others(true);
        if payload.everything {
            self.board.tell_everything();
        }
        for (topic, keys) in &payload.about {
            keys.iter().for_each(|key| self.board.tell(topic, key));
        }
    }
}

/// Ends the connection when it is dropped.
#[derive(Debug)]
pub(super) struct Connection(
    #[expect(dead_code, reason = "held for its drop")] Option<AbortOnDropHandle<()>>,
);

impl Signals for PgSignals {
    fn send(&self, topic: Topic, key: &str) {
        if self.has_others() {
            // The receiver is gone only if the store is.
            let _ = self.queue.send((topic, key.to_owned()));
        }
    }

    fn subscribe(&self, topic: Topic) -> Subscription {
        let net = match topic {
            // The heartbeat looks for orphans and for turns, once for all agents.
            Topic::Orphans(_) | Topic::Turns(_) => None,
            Topic::Tasks(_) | Topic::Deliveries | Topic::Records(_) => {
                Some(if self.is_on { NET_INTERVAL } else { crate::store::POLL_INTERVAL })
            }
        };
        self.board.subscribe(topic, net)
    }
}

async fn run(
    signals: Arc<PgSignals>,
    address: Arc<Address>,
    mut queued: mpsc::UnboundedReceiver<(Topic, String)>,
) {
    let (mut pause, mut failing) = (CONNECT_BACKOFF.base, false);
    loop {
        match timeout(PATIENCE, Session::open(&address)).await {
            Ok(Ok(session)) => {
                // Signals may have been lost before.
                signals.board.tell_everything();
                let (echoed, error) = session.run(&signals, &mut queued).await;
                if echoed {
                    (pause, failing) = (CONNECT_BACKOFF.base, false);
                }
                report(&mut failing, &error);
            }
            Ok(Err(error)) => report(&mut failing, &error),
            Err(_) => report(&mut failing, &StoreError::down("PostgreSQL does not answer")),
        }
        sleep(pause).await;
        pause = CONNECT_BACKOFF.after(pause);
    }
}

/// Logs the first failure of several.
fn report(failing: &mut bool, error: &StoreError) {
    if !std::mem::replace(failing, true) {
        tracing::warn!(%error, "the connection for signals was lost; other hubs are followed every 5 seconds until it is back");
    }
}

/// A connection that listens and notifies.
struct Session {
    client: Client,
    heard: mpsc::UnboundedReceiver<Notification>,
    _connection: AbortOnDropHandle<()>,
}

impl Session {
    async fn open(address: &Address) -> Result<Self, StoreError> {
        let opened = address.config.connect(address.tls.clone()).await;
        let (client, mut connection) = opened.map_err(super::link::failed)?;
        let (told, heard) = mpsc::unbounded_channel();
        let connection = tokio::spawn(async move {
            let mut messages = futures_util::stream::poll_fn(|cx| connection.poll_message(cx));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(notification) = message
                    && told.send(notification).is_err()
                {
                    return;
                }
            }
        });
        let session = Self { client, heard, _connection: AbortOnDropHandle::new(connection) };
        session.client.batch_execute(SETUP).await.map_err(super::link::failed)?;
        Ok(session)
    }

    /// Sends and receives until the connection fails. Returns true if it has worked before.
    async fn run(
        mut self,
        signals: &PgSignals,
        queued: &mut mpsc::UnboundedReceiver<(Topic, String)>,
    ) -> (bool, StoreError) {
        let mut echo = interval(PATIENCE);
        echo.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut echoed, mut awaited) = (false, false);
        loop {
            let payloads = tokio::select! {
                heard = self.heard.recv() => {
                    let Some(heard) = heard else {
                        return (echoed, StoreError::down("the connection was closed"));
                    };
                    if let Ok(payload) = serde_json::from_str::<Payload>(heard.payload()) {
                        if payload.from == signals.me {
                            (echoed, awaited) = (true, false);
                        } else {
                            signals.heard(&payload);
                        }
                    }
                    continue;
                }
                _ = echo.tick() => {
                    if awaited {
                        let why = "its own signals do not come back; if a proxy drops notifications, add ?signals=off to the address of the database";
                        return (echoed, StoreError::down(why));
                    }
                    awaited = true;
                    vec![Payload { from: signals.me, about: Vec::new(), everything: false }]
                }
                Some(first) = queued.recv() => {
                    let mut all = HashMap::<Topic, HashSet<String>>::new();
                    let mut next = Some(first);
                    while let Some((topic, key)) = next {
                        all.entry(topic).or_default().insert(key);
                        next = queued.try_recv().ok();
                    }
                    payloads(signals.me, all)
                }
            };
            for payload in payloads {
                let sent = self.notify(&payload);
                match timeout(PATIENCE, sent).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return (echoed, error),
                    Err(_) => return (echoed, StoreError::down("PostgreSQL does not answer")),
                }
            }
        }
    }

    /// Sends by the simple protocol, which needs no prepared statement.
    async fn notify(&self, payload: &Payload) -> Result<(), StoreError> {
        let json = serde_json::to_string(payload).map_err(StoreError::broken)?;
        let sql = format!("SELECT pg_notify('nuncio_signals', '{}')", json.replace('\'', "''"));
        self.client.batch_execute(&sql).await.map_err(super::link::failed)
    }
}

/// The payloads of these signals, each within the limit of PostgreSQL.
fn payloads(from: i64, all: HashMap<Topic, HashSet<String>>) -> Vec<Payload> {
    let mut payloads = Vec::new();
    let mut last = Payload { from, about: Vec::new(), everything: false };
    let mut bytes = 0;
    for (topic, keys) in all {
        let name = match &topic {
            Topic::Tasks(name) | Topic::Turns(name) | Topic::Orphans(name) | Topic::Records(name) => {
                name.len()
            }
            Topic::Deliveries => 0,
        };
        if name > MAX_KEY || keys.iter().any(|key| key.len() > MAX_KEY) {
            last.everything = true;
            continue;
        }
        let mut some = Vec::new();
        for key in keys {
            let more = key.len() + if some.is_empty() { name + 32 } else { 3 };
            if bytes + more > MAX_PAYLOAD {
                if !some.is_empty() {
                    last.about.push((topic.clone(), std::mem::take(&mut some)));
                }
                payloads.push(std::mem::replace(
                    &mut last,
                    Payload { from, about: Vec::new(), everything: false },
                ));
                bytes = 0;
            }
            bytes += more;
            some.push(key);
        }
        if !some.is_empty() {
            last.about.push((topic, some));
        }
    }
    payloads.push(last);
    payloads
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key arrives, however many there are, and no payload is refused by PostgreSQL.
    #[test]
    fn signals_fit_into_payloads() {
        for (keys, length) in [(0, 36), (1, 36), (500, 36), (40, MAX_KEY), (1, MAX_KEY + 1)] {
            let topic = Topic::Tasks("a\"b".into());
            let wanted: HashSet<String> = (0..keys).map(|i| format!("{i:0length$}")).collect();
            let made = payloads(
                7,
                HashMap::from([
                    (topic.clone(), wanted.clone()),
                    (Topic::Deliveries, HashSet::from([String::new()])),
                ]),
            );
            let mut found = HashSet::new();
            for payload in &made {
                assert!(serde_json::to_string(payload).unwrap().len() < 7_900);
                for (about, keys) in &payload.about {
                    found.extend(keys.iter().filter(|_| *about == topic).cloned());
                }
            }
            let everything = made.iter().any(|payload| payload.everything);
            assert!(everything || found == wanted, "{keys} keys of {length}");
        }
    }
}
