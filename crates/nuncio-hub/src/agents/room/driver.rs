//! The driver of agents in seats: finds the rounds in which an agent speaks next, and runs its turns.
//!
//! The hub that has changed a room runs the turn that follows. Another hub takes a turn up when nothing has happened for
//! the time of a lease, and every hub when it starts: the turn of a hub that was killed. Two hubs that run the same turn
//! say the same message, which is there once.

use std::{collections::HashSet, convert::Infallible, sync::Arc, time::Duration};

use nuncio_protocol::{CancelTaskRequest, ErrorKind};
use tokio::task::JoinSet;

use super::turn::SeatTurn;
use crate::{
    agents::AgentFactory,
    clock::now,
    config::Party,
    rooms::{Room, Round, Side},
};

/// Interval at which all rooms are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// A turn that runs: a room, a round and a seat.
type TurnKey = (Arc<str>, u64, Side);

/// Drives the agents in the seats of all rooms.
pub(crate) struct RoomDriver {
    factory: Arc<AgentFactory>,
}

/// The occasion for which a room is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occasion {
    /// The hub has started.
    Start,
    /// This hub has changed the room.
    Change,
    /// The interval is over.
    Interval,
}

impl RoomDriver {
    pub(crate) fn new(factory: &Arc<AgentFactory>) -> Self {
        Self { factory: Arc::clone(factory) }
    }

    /// Runs turns. Never returns; turns that run end with this future.
    pub(crate) async fn run(&self) -> Infallible {
        let mut interval = tokio::time::interval(LOOK_INTERVAL);
        let mut turns: JoinSet<TurnKey> = JoinSet::new();
        let mut running: HashSet<TurnKey> = HashSet::new();
        let mut started: HashSet<Arc<str>> = HashSet::new();
        loop {
            let rooms = tokio::select! {
                _ = interval.tick() => {
                    self.factory.rooms.all().into_iter().map(|room| (room, Occasion::Interval)).collect()
                }
                changed = self.factory.rooms.changed() => {
                    changed.into_iter().map(|room| (room, Occasion::Change)).collect::<Vec<_>>()
                }
                Some(ended) = turns.join_next() => {
                    if let Ok(key) = ended {
                        // It may have changed while the turn ran.
                        let room = self.factory.rooms.all().into_iter().find(|room| *room.name() == key.0);
                        room.into_iter().for_each(|room| self.factory.rooms.look_at(&room));
                        running.remove(&key);
                    }
                    continue;
                }
            };
            for (room, occasion) in rooms {
                if !room.is_open() || !has_agent(&room) {
                    continue;
                }
                let occasion =
                    if started.insert(Arc::clone(room.name())) { Occasion::Start } else { occasion };
                if let Err(error) = self.look(&room, occasion, &mut turns, &mut running).await {
                    started.remove(room.name());
                    tracing::debug!(room = &**room.name(), %error, "a room could not be looked at");
                }
            }
        }
    }

    async fn look(
        &self,
        room: &Arc<Room>,
        occasion: Occasion,
        turns: &mut JoinSet<TurnKey>,
        running: &mut HashSet<TurnKey>,
    ) -> nuncio_protocol::Result<()> {
        let mut rounds = room.rounds().await?;
        if rounds.is_empty() && room.settings().is_between_agents() {
            room.begin_first().await?;
        }
        if rounds.iter().any(|round| !round.pending.is_empty()) {
            room.catch_up().await?;
        }
        rounds = room.rounds().await?;
        for round in &rounds {
            for side in Side::BOTH {
                let key = (Arc::clone(room.name()), round.number, side);
                if round.has_ended() {
                    // A turn that runs notices it, and cancels its task itself.
                    if !running.contains(&key) && round.delegated.of(side).is_some() {
                        self.cancel(room, round, side).await?;
                    }
                } else if is_due(room, round, side, occasion)
                    && !running.contains(&key)
                    && !room.is_leased(side).await?
                {
                    running.insert(key.clone());
                    let turn = SeatTurn::new(&self.factory, room, round, side);
                    turns.spawn(async move {
                        turn.run().await;
                        key
                    });
                }
            }
        }
        Ok(())
    }

    /// Cancels the open task of an agent whose round has ended.
    async fn cancel(&self, room: &Arc<Room>, round: &Round, side: Side) -> nuncio_protocol::Result<()> {
        let Some(delegated) = round.delegated.of(side) else { return Ok(()) };
        let (settings, second) = (room.settings(), side == Side::B);
        if let Some(service) = self.factory.seated.find(&settings, second, &self.factory) {
            let turn = SeatTurn::new(&self.factory, room, round, side);
            let id = delegated.task.clone();
            let request = CancelTaskRequest { id, ..CancelTaskRequest::default() };
            match service.cancel_task(&turn.context()?, request).await {
                // The agent is away: later.
                Err(error) if error.kind() == ErrorKind::Unavailable => return Ok(()),
                _ => {}
            }
        }
        room.delegate(side, round.number, None).await
    }
}

fn has_agent(room: &Room) -> bool {
    let settings = room.settings();
    [false, true].iter().any(|second| matches!(settings.party(*second), Party::Agent(_) | Party::Remote(_)))
}

/// True if the agent of this seat speaks now, and this hub is to run its turn.
fn is_due(room: &Room, round: &Round, side: Side, occasion: Occasion) -> bool {
    let settings = room.settings();
    let is_agent = matches!(settings.party(side == Side::B), Party::Agent(_) | Party::Remote(_));
    let is_ours = match occasion {
        Occasion::Start | Occasion::Change => true,
        Occasion::Interval => round.waits_for(side) || round.changed + settings.lease <= now(),
    };
    is_agent && round.turn() == Some(side) && is_ours
}
