//! Signals: hints between the servers that share a store.
//!
//! A signal says that something has changed; the store says what. So a signal may be lost, repeated or late:
//! subscribers also look at fixed intervals, and a lost signal costs only time.
//!
//! ```text
//! one server:  commit ─► send(topic, key)          another server:  subscribe(topic)
//!                            └──── NOTIFY, or any other transport ────► next() ─► read the store
//!                                                       fixed interval ────┘
//! ```
//! To join, choose a [`Topic`], call [`Signals::send`] after the write is stored, and read the store again
//! whenever [`Subscription::next`] returns. Signals of tasks are sent by the store itself.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// The interval at which a subscriber of a store with signals looks without one.
pub const NET_INTERVAL: Duration = Duration::from_secs(5);

/// The interval at which a subscriber of a store without signals looks.
pub const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The number of keys that wait for a subscriber; more are heard as [`Heard::Everything`].
const MAX_KEYS: usize = 1_024;

/// The subject of a signal.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Topic {
    /// Tasks of this agent: entries, turns and answers under idempotency keys. The key is the task's id.
    Tasks(Arc<str>),
    /// Turns that were handed in to tasks of this agent. The key is the task's id; the empty key is any task.
    Turns(Arc<str>),
    /// Tasks of this agent whose owner has stopped. Sent by the store to its own subscribers.
    Orphans(Arc<str>),
    /// Deliveries that may be due.
    Deliveries,
    /// Records of this kind. The key is the record's.
    Records(Arc<str>),
}

/// Sends hints to the other servers of a shared store, and receives theirs.
pub trait Signals: Send + Sync + 'static {
    /// Tells the other servers that `key` of this topic has changed. Call it after the change is stored. It
    /// never waits, and repeated signals are sent once. Subscribers in this process are not told.
    fn send(&self, topic: Topic, key: &str);

    /// Subscribes to the signals of other servers. Subscribe first, then read the store: a change after the
    /// read is then heard.
    fn subscribe(&self, topic: Topic) -> Subscription;
}

/// The signals that a subscriber has heard.
#[derive(PartialEq, Eq, Debug)]
pub enum Heard {
    /// These keys have changed.
    Keys(HashSet<String>),
    /// Anything may have changed: the interval is over, or signals were lost.
    Everything,
}

impl Heard {
    /// True if this key may have changed.
    #[must_use]
    pub fn concerns(&self, key: &str) -> bool {
        match self {
            Self::Keys(keys) => keys.contains(key),
            Self::Everything => true,
        }
    }
}

/// The signals of one topic.
#[derive(Debug)]
pub struct Subscription {
    inbox: Arc<Inbox>,
    /// The interval of looks without a signal, and the time of the next one; `None` if the sender looks by
    /// itself.
    net: Option<(Duration, Instant)>,
}

impl Subscription {
    /// A subscription that hears nothing and looks at this interval.
    fn polling(interval: Duration) -> Self {
        Self { inbox: Arc::default(), net: Some((interval, Instant::now() + interval)) }
    }

    /// Waits for signals. Looks by the interval come however many signals there are, so that a lost one is
    /// noticed among others.
    pub async fn next(&mut self) -> Heard {
        let heard = self.inbox.take();
        let Some((interval, at)) = &mut self.net else { return heard.await };
        match timeout_at(*at, heard).await {
            Ok(Heard::Keys(keys)) if Instant::now() < *at => Heard::Keys(keys),
            _ => {
                *at = Instant::now() + *interval;
                Heard::Everything
            }
        }
    }

    /// Waits until this key may have changed.
    pub async fn until(&mut self, key: &str) {
        while !self.next().await.concerns(key) {}
    }
}

/// The signals that wait for a subscriber.
#[derive(Default)]
struct Inbox {
    waiting: Mutex<Option<Heard>>,
    arrived: Notify,
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("waiting", &*self.lock()).finish_non_exhaustive()
    }
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Option<Heard>> {
        self.waiting.lock()
    }

    fn put(&self, key: Option<&str>) {
        {
            let mut waiting = self.lock();
            match (&mut *waiting, key) {
                (Some(Heard::Everything), _) => {}
                (Some(Heard::Keys(keys)), Some(key)) if keys.len() < MAX_KEYS => {
                    keys.insert(key.to_owned());
                }
                (None, Some(key)) => *waiting = Some(Heard::Keys(HashSet::from([key.to_owned()]))),
                (Some(Heard::Keys(_)) | None, _) => *waiting = Some(Heard::Everything),
            }
        }
        self.arrived.notify_waiters();
    }

    async fn take(&self) -> Heard {
        loop {
            let arrived = self.arrived.notified();
            if let Some(heard) = self.lock().take() {
                return heard;
            }
            arrived.await;
        }
    }
}

/// The subscribers of one server: the receiving end of any transport.
#[derive(Debug, Default)]
pub(crate) struct Switchboard {
    topics: Mutex<HashMap<Topic, Vec<Weak<Inbox>>>>,
}

impl Switchboard {
    fn lock(&self) -> MutexGuard<'_, HashMap<Topic, Vec<Weak<Inbox>>>> {
        self.topics.lock()
    }

    /// Adds a subscriber that also looks at this interval.
    pub(crate) fn subscribe(&self, topic: Topic, net: Option<Duration>) -> Subscription {
        let inbox: Arc<Inbox> = Arc::default();
        let mut topics = self.lock();
        let subscribers = topics.entry(topic).or_default();
        subscribers.retain(|known| known.strong_count() > 0);
        subscribers.push(Arc::downgrade(&inbox));
        Subscription { inbox, net: net.map(|net| (net, Instant::now() + net)) }
    }

    /// Tells the subscribers of a topic that this key has changed.
    pub(crate) fn tell(&self, topic: &Topic, key: &str) {
        if let Some(subscribers) = self.lock().get(topic) {
            subscribers.iter().filter_map(Weak::upgrade).for_each(|inbox| inbox.put(Some(key)));
        }
    }

    /// Tells all subscribers that signals may have been lost.
    pub(crate) fn tell_everything(&self) {
        let mut topics = self.lock();
        topics.retain(|_, subscribers| {
            subscribers.retain(|known| known.strong_count() > 0);
            subscribers.iter().filter_map(Weak::upgrade).for_each(|inbox| inbox.put(None));
            !subscribers.is_empty()
        });
    }
}

/// No signals: subscribers look at fixed intervals.
#[derive(Clone, Copy, Debug)]
pub struct Polling {
    interval: Duration,
}

impl Polling {
    /// Polls at this interval.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self { interval }
    }
}

impl Default for Polling {
    fn default() -> Self {
        Self::every(POLL_INTERVAL)
    }
}

impl Signals for Polling {
    fn send(&self, _: Topic, _: &str) {}

    fn subscribe(&self, _: Topic) -> Subscription {
        Subscription::polling(self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[&str]) -> Heard {
        Heard::Keys(keys.iter().map(|key| (*key).to_owned()).collect())
    }

    fn tasks(agent: &str) -> Topic {
        Topic::Tasks(agent.into())
    }

    #[tokio::test(start_paused = true)]
    async fn signals_of_a_topic_are_heard_once_and_together() {
        let board = Switchboard::default();
        let (mut echo, mut other) =
            (board.subscribe(tasks("echo"), None), board.subscribe(tasks("other"), Some(NET_INTERVAL)));
        for key in ["t-1", "t-2", "t-1"] {
            board.tell(&tasks("echo"), key);
        }
        assert_eq!(echo.next().await, keys(&["t-1", "t-2"]));
        board.tell(&tasks("echo"), "t-3");
        assert_eq!(echo.next().await, keys(&["t-3"]));
        assert_eq!(other.next().await, Heard::Everything, "it has heard nothing until its interval was over");
        board.tell_everything();
        assert_eq!((echo.next().await, other.next().await), (Heard::Everything, Heard::Everything));
    }

    /// A lost signal is noticed by the interval even if other signals never stop.
    #[tokio::test(start_paused = true)]
    async fn a_busy_topic_is_looked_at_by_the_interval_too() {
        let board = Switchboard::default();
        let mut heard = board.subscribe(Topic::Deliveries, Some(NET_INTERVAL));
        let begun = Instant::now();
        loop {
            board.tell(&Topic::Deliveries, "w-1");
            if heard.next().await == Heard::Everything {
                break;
            }
            tokio::time::advance(Duration::from_millis(700)).await;
        }
        assert!(begun.elapsed() < NET_INTERVAL * 2, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_keys_are_everything() {
        let board = Switchboard::default();
        let mut heard = board.subscribe(Topic::Deliveries, None);
        (0..=MAX_KEYS).for_each(|key| board.tell(&Topic::Deliveries, &key.to_string()));
        assert_eq!(heard.next().await, Heard::Everything);
    }
}
