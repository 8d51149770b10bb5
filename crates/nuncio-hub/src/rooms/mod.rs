//! Rooms: two parties, one conversation, each on its own side (decision 0021).
//!
//! Each seat of a room is an agent of its own with ordinary tasks. An event of one seat is one transaction on its own
//! task and on the record of the room; the other seat catches up from the record.
//!
//! Reading order: `round` has the rules as values, `room` the way of an event, `seat` the calls of a party, `lease` the
//! people who hold a seat, `party` the parties within the hub, `artifact` their artifacts, `upkeep` what ends otherwise, `wire` the log of calls; this file has the rooms of the hub, and the sweeper.

mod artifact;
mod lease;
mod party;
mod room;
mod round;
mod seat;
#[cfg(test)]
mod tests;
mod upkeep;
mod wire;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use nuncio_server::{
    Runtime,
    store::{Store, Topic},
};
use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) use self::{
    lease::{GrantedSeat, JoinRefusal, SeatLease},
    party::{NEXT_WORDS, Words, unanswered},
    room::Room,
    round::{Delegated, Next, PerSide, ROOM_EXTENSION, Round, Side},
    seat::{SeatExecutor, SeatRules},
    wire::{Direction, MAX_RECORDING, WireLine},
};
use crate::{config, telemetry::Metrics};

/// Interval at which rooms are looked at whose other seat may be behind.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The rooms of the hub.
#[derive(Clone)]
pub(crate) struct Rooms {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    rooms: Arc<Mutex<BTreeMap<Arc<str>, Arc<Room>>>>,
    changed: Arc<ChangedRooms>,
}

/// The names of rooms that this hub has changed.
#[derive(Default)]
pub(crate) struct ChangedRooms {
    names: Mutex<BTreeSet<Arc<str>>>,
    woken: Notify,
}

impl ChangedRooms {
    fn put(&self, name: &Arc<str>) {
        self.names.lock().insert(Arc::clone(name));
        self.woken.notify_one();
    }

    /// Waits for changes. There is one reader.
    async fn take(&self) -> BTreeSet<Arc<str>> {
        loop {
            let names = std::mem::take(&mut *self.names.lock());
            if !names.is_empty() {
                return names;
            }
            self.woken.notified().await;
        }
    }
}

impl Rooms {
    pub(crate) fn new(store: &Arc<dyn Store>, metrics: &Arc<Metrics>) -> Self {
        let (rooms, changed) = Default::default();
        Self { store: Arc::clone(store), metrics: Arc::clone(metrics), rooms, changed }
    }

    /// The room of these settings, which both of its seats share.
    pub(crate) fn prepare(&self, settings: &Arc<config::Room>) -> Arc<Room> {
        let mut rooms = self.rooms.lock();
        let name: Arc<str> = (&*settings.name).into();
        let room = rooms.entry(name).or_insert_with(|| {
            Arc::new(Room::new(Arc::clone(settings), &self.store, &self.metrics, &self.changed))
        });
        Arc::clone(room)
    }

    /// Serves a seat by this runtime, under these settings.
    pub(crate) fn activate(&self, settings: &Arc<config::Room>, side: Side, runtime: &Runtime) {
        let room = self.prepare(settings);
        room.configure(Arc::clone(settings));
        room.open_seat(side, runtime);
        self.changed.put(room.name());
    }

    /// Waits for rooms that this hub has changed. There is one reader: the drivers of agents.
    pub(crate) async fn changed(&self) -> Vec<Arc<Room>> {
        let names = self.changed.take().await;
        let rooms = self.rooms.lock();
        names.iter().filter_map(|name| rooms.get(name).cloned()).collect()
    }

    /// Lets the drivers look at this room.
    pub(crate) fn look_at(&self, room: &Room) {
        self.changed.put(room.name());
    }

    /// All rooms, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<Room>> {
        self.rooms.lock().values().cloned().collect()
    }

    /// Brings seats up to the records of their rooms that were left behind by a crash or by another hub. Never
    /// returns.
    pub(crate) async fn sweep(&self) -> Infallible {
        let mut interval = tokio::time::interval(SWEEP_INTERVAL);
        let subscribe = || self.store.signals().subscribe(Topic::Records(room::KIND.into()));
        let mut signals = self.store.is_shared().then(subscribe);
        loop {
            let others = async {
                match &mut signals {
                    Some(signals) => signals.next().await,
                    None => std::future::pending().await,
                }
            };
            let heard = tokio::select! {
                _ = interval.tick() => None,
                heard = others => Some(heard),
            };
            for room in self.all().into_iter().filter(|room| room.is_open()) {
                match &heard {
                    Some(heard) if heard.concerns(room.name()) => self.follow(&room).await,
                    Some(_) => {}
                    None => self.repair(&room).await,
                }
            }
        }
    }

    /// Brings a room up to what another hub has written.
    async fn follow(&self, room: &Room) {
        if let Err(error) = room.catch_up().await {
            tracing::debug!(room = &**room.name(), %error, "a seat of a room is behind");
        }
        room.wake();
    }

    /// Brings a room up to its record, and ends what has ended otherwise.
    async fn repair(&self, room: &Room) {
        let mut repaired = room.catch_up().await;
        if repaired.is_ok() {
            repaired = room.end_with_tasks().await;
        }
        if repaired.is_ok() {
            repaired = room.expire().await;
        }
        if let Err(error) = repaired {
            tracing::warn!(room = &**room.name(), %error, "a seat of a room is behind");
        }
        room.measure().await;
    }
}
