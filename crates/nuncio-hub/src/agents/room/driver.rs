//! The driver of agents in seats: finds the rounds in which an agent speaks next, and runs its turns.
//!
//! The hub that has changed a room runs the turn that follows. Another hub takes a turn up when nothing has happened for
//! the time of a lease, and every hub when it starts: the turn of a hub that was killed. Two hubs that run the same turn
//! say the same message, which is there once.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use nuncio_protocol::Result;
use tokio::task::{self, JoinSet};

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
        let mut turns = Turns::default();
        let mut started: HashSet<Arc<str>> = HashSet::new();
        loop {
            let rooms = tokio::select! {
                _ = interval.tick() => {
                    self.factory.rooms.all().into_iter().map(|room| (room, Occasion::Interval)).collect()
                }
                changed = self.factory.rooms.changed() => {
                    changed.into_iter().map(|room| (room, Occasion::Change)).collect::<Vec<_>>()
                }
                Some(name) = turns.next() => {
                    // It may have changed while the turn ran.
                    self.factory.rooms.all().iter().filter(|room| **room.name() == *name).for_each(|room| {
                        self.factory.rooms.look_at(room);
                    });
                    continue;
                }
            };
            for (room, occasion) in rooms {
                if !room.is_open() || !has_agent(&room) {
                    continue;
                }
                let occasion =
                    if started.insert(Arc::clone(room.name())) { Occasion::Start } else { occasion };
                if let Err(error) = self.look(&room, occasion, &mut turns).await {
                    started.remove(room.name());
                    tracing::debug!(room = &**room.name(), %error, "a room could not be looked at");
                }
            }
        }
    }

    /// Runs the turns of a room that are due, and cancels what its ended rounds have left.
    async fn look(&self, room: &Arc<Room>, occasion: Occasion, turns: &mut Turns) -> Result<()> {
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
                if turns.is_running(&key) {
                    continue;
                }
                let turn = SeatTurn::new(&self.factory, room, round, side);
                if round.has_ended() {
                    if round.delegated.of(side).is_some() {
                        turns.spawn(key, async move { turn.withdraw().await });
                    }
                } else if is_due(room, round, side, occasion) && !room.is_leased(side).await? {
                    turns.spawn(key, async move { turn.run().await });
                }
            }
        }
        Ok(())
    }
}

/// The turns that run, one per round and seat.
#[derive(Default)]
struct Turns {
    tasks: JoinSet<bool>,
    keys: HashMap<task::Id, TurnKey>,
}

impl Turns {
    fn is_running(&self, key: &TurnKey) -> bool {
        self.keys.values().any(|running| running == key)
    }

    fn spawn(&mut self, key: TurnKey, turn: impl Future<Output = bool> + Send + 'static) {
        let id = self.tasks.spawn(turn).id();
        self.keys.insert(id, key);
    }

    /// Waits for the next end of a turn that has changed its room: the name of the room. `None` if no turn runs.
    async fn next(&mut self) -> Option<Arc<str>> {
        loop {
            let (id, has_spoken) = match self.tasks.join_next_with_id().await? {
                Ok((id, has_spoken)) => (id, has_spoken),
                Err(error) => (error.id(), false),
            };
            // What has changed nothing is run again with the interval.
            if let Some((name, _, _)) = self.keys.remove(&id)
                && has_spoken
            {
                return Some(name);
            }
        }
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
