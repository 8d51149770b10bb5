//! Rooms: two seats, one conversation.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Agent, AgentKind, AgentName, AgentOrigin,
    file::{Findings, Node},
};

/// A room: two parties talk to each other, each as with an agent of its own.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Room {
    /// Name by which its first seat is addressed; the second is at NAME/b.
    #[serde(skip)]
    pub name: AgentName,
    /// Name on the cards of its seats.
    #[schemars(example = &"Procurement")]
    pub title: Option<String>,
    /// The directory lists its seats.
    #[schemars(example = true)]
    pub visible: bool,
    /// Principals that hold the first seat; default: every caller that may call the agent NAME.
    #[schemars(example = ["acme"])]
    pub holders_a: Option<Vec<String>>,
    /// Principals that hold the second seat; default: every caller that may call the agent NAME/b.
    #[schemars(example = ["globex"])]
    pub holders_b: Option<Vec<String>>,
    /// Refuse messages of the seat whose turn it is not. Otherwise they are added to the transcript, and change nothing.
    pub strict_turns: bool,
    /// A message without a task while a round is open begins a further one: one ends the open round first, parallel keeps
    /// it.
    pub rounds: Rounds,
}

/// The number of rounds that are open at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rounds {
    /// One.
    #[default]
    One,
    /// Several.
    Parallel,
}

/// A seat of a room, which is served as an agent.
#[derive(Clone, PartialEq, Debug)]
pub struct Seat {
    /// Its room.
    pub room: Arc<Room>,
    /// It is seat b.
    pub is_second: bool,
}

impl Room {
    /// True if several rounds may be open.
    #[must_use]
    pub fn has_parallel_rounds(&self) -> bool {
        self.rounds == Rounds::Parallel
    }

    /// True if this principal holds the seat, once it may call its agent.
    #[must_use]
    pub fn holds(&self, second: bool, principal: Option<&str>) -> bool {
        let holders = if second { &self.holders_b } else { &self.holders_a };
        let is_named = |holders: &Vec<String>| holders.iter().any(|holder| Some(&**holder) == principal);
        holders.as_ref().is_none_or(is_named)
    }

    /// The name of the agent of a seat.
    pub(crate) fn seat_name(&self, second: bool) -> AgentName {
        if second { self.name.second_seat() } else { self.name.clone() }
    }

    /// The agents of its seats.
    pub(crate) fn agents(self, origin: AgentOrigin) -> [Agent; 2] {
        let room = Arc::new(self);
        [false, true].map(|is_second| {
            let seat = Seat { room: Arc::clone(&room), is_second };
            let mut agent = Agent::new(room.seat_name(is_second), AgentKind::Seat(seat), origin);
            (agent.title, agent.visible) = (room.title.clone(), room.visible);
            agent
        })
    }
}

/// The agents of all rooms.
pub(super) fn seats(rooms: BTreeMap<String, Room>, tree: &Node, findings: &mut Findings) -> Vec<Agent> {
    let mut agents = Vec::new();
    for (name, room) in rooms {
        let path = ["rooms", &name];
        let spot = tree.spot_of(&path);
        match name.parse::<AgentName>() {
            Ok(parsed) => {
                let origin = if spot.is_file() { AgentOrigin::File } else { AgentOrigin::Flag };
                agents.extend(Room { name: parsed, ..room }.agents(origin));
            }
            Err(wrong) => findings.refuse(&path, spot, wrong),
        }
    }
    agents
}
