//! Rooms: two parties, one conversation, each on its own side (decision 0021).
//!
//! Each seat of a room is an agent of its own with ordinary tasks. An event of one seat is one transaction on its own
//! task and on the record of the room; the other seat catches up from the record.
//!
//! Reading order: `round` has the rules as values, `room` the way of an event, `seat` the calls of a party; this file
//! has the rooms of the hub, and the sweeper.

mod room;
mod round;
mod seat;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use nuncio_server::{Runtime, store::Store};
use parking_lot::Mutex;

pub(crate) use self::{
    room::Room,
    round::{ROOM_EXTENSION, Round, Side},
    seat::{SeatExecutor, SeatRules},
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
}

impl Rooms {
    pub(crate) fn new(store: &Arc<dyn Store>, metrics: &Arc<Metrics>) -> Self {
        Self { store: Arc::clone(store), metrics: Arc::clone(metrics), rooms: Arc::default() }
    }

    /// The room of these settings, which both of its seats share.
    pub(crate) fn prepare(&self, settings: &Arc<config::Room>) -> Arc<Room> {
        let mut rooms = self.rooms.lock();
        let name: Arc<str> = (&*settings.name).into();
        let room = rooms
            .entry(name)
            .or_insert_with(|| Arc::new(Room::new(Arc::clone(settings), &self.store, &self.metrics)));
        Arc::clone(room)
    }

    /// Serves a seat by this runtime, under these settings.
    pub(crate) fn activate(&self, settings: &Arc<config::Room>, side: Side, runtime: &Runtime) {
        let room = self.prepare(settings);
        room.configure(Arc::clone(settings));
        room.open_seat(side, runtime);
    }

    /// All rooms, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<Room>> {
        self.rooms.lock().values().cloned().collect()
    }

    /// Brings seats up to the records of their rooms that were left behind by a crash or by another hub. Never
    /// returns.
    pub(crate) async fn sweep(&self) -> Infallible {
        let mut interval = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            interval.tick().await;
            for room in self.all().into_iter().filter(|room| room.is_open()) {
                let caught_up = match room.catch_up().await {
                    Ok(()) => room.end_with_tasks().await,
                    behind => behind,
                };
                if let Err(error) = caught_up {
                    tracing::warn!(room = &**room.name(), %error, "a seat of a room is behind");
                }
                room.measure().await;
            }
        }
    }
}
