//! Rooms: two seats, one conversation.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{
    Agent, AgentKind, AgentName, AgentOrigin, Upstream,
    file::{Findings, Node},
    form::{Form, Hours, Seconds, http_url},
};

/// A room: two parties talk to each other, each as with an agent of its own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
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
    /// Agent in the first seat: the name of an agent of this hub, or the address of one elsewhere. A mailbox seats its
    /// workers.
    #[schemars(example = &"buyer")]
    pub agent_a: Option<String>,
    /// Agent in the second seat.
    #[schemars(example = &"https://seller.example.com")]
    pub agent_b: Option<String>,
    /// The first seat is for a person: nobody speaks there who has not joined it (`nuncio room join`).
    pub person_a: bool,
    /// The second seat is for a person.
    pub person_b: bool,
    /// First message of a round between two agents, said by seat a.
    #[schemars(example = &"Agree on a price for 40 tons.")]
    pub opening: Option<String>,
    /// Number of messages after which a round between two agents fails.
    #[schemars(range(min = 2, max = 100000))]
    pub max_turns: u32,
    /// A message to a seat at which nobody is: wait lets it wait, fail ends the round at once.
    pub absent: Absent,
    /// Hours for which a message waits for a party; then its round fails.
    #[serde(rename = "absent_hours", with = "Hours")]
    #[schemars(range(min = 1, max = 8760))]
    pub absent_timeout: Duration,
    /// Seconds after which a person who gave no sign loses the seat.
    #[serde(rename = "lease_seconds", with = "Seconds")]
    #[schemars(range(min = 2, max = 3600))]
    pub lease: Duration,
    /// The meaning of a completed task of an agent in a seat: round ends the round, turn hands over. Default: turn
    /// between two agents, otherwise round.
    #[schemars(example = &"turn")]
    pub completed: Option<Completed>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            name: AgentName::default(),
            title: None,
            visible: false,
            holders_a: None,
            holders_b: None,
            strict_turns: false,
            rounds: Rounds::default(),
            agent_a: None,
            agent_b: None,
            person_a: false,
            person_b: false,
            opening: None,
            max_turns: 50,
            absent: Absent::default(),
            absent_timeout: Duration::from_secs(24 * 60 * 60),
            lease: Duration::from_secs(45),
            completed: None,
        }
    }
}

/// The fate of a message to a seat at which nobody is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Absent {
    // It waits.
    #[default]
    Wait,
    // Its round fails.
    Fail,
}

/// The meaning of a completed task of an agent in a seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Completed {
    // The round has ended.
    Round,
    // The agent has said its turn.
    Turn,
}

/// The party that a seat is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Party {
    /// Callers of its address.
    Caller,
    /// A person who joins.
    Person,
    /// An agent of this hub.
    Agent(AgentName),
    /// An agent elsewhere.
    Remote(Url),
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

    /// The party that a seat is for.
    #[must_use]
    pub fn party(&self, second: bool) -> Party {
        let (agent, person) =
            if second { (&self.agent_b, self.person_b) } else { (&self.agent_a, self.person_a) };
        match agent.as_deref().map(read_agent) {
            Some(Ok(party)) => party,
            _ if person => Party::Person,
            _ => Party::Caller,
        }
    }

    /// True if agents hold both seats.
    #[must_use]
    pub fn is_between_agents(&self) -> bool {
        [false, true].iter().all(|second| matches!(self.party(*second), Party::Agent(_) | Party::Remote(_)))
    }

    /// True if the round ends with a completed task of an agent in a seat.
    #[must_use]
    pub fn ends_with_task(&self) -> bool {
        match self.completed {
            Some(completed) => completed == Completed::Round,
            None => !self.is_between_agents(),
        }
    }

    /// The mistakes of its settings, by key.
    fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        for (key, agent, person) in
            [("agent_a", &self.agent_a, self.person_a), ("agent_b", &self.agent_b, self.person_b)]
        {
            let Some(agent) = agent else { continue };
            match read_agent(agent) {
                Err(wrong) => found.push((key, wrong)),
                Ok(Party::Agent(name)) if name == self.name => {
                    found.push((key, "is this room itself; name another agent".to_owned()));
                }
                Ok(_) if person => {
                    found.push((key, "the seat is for a person already; set one of the two".to_owned()));
                }
                Ok(_) => {}
            }
        }
        if self.is_between_agents() && self.opening.as_deref().is_none_or(str::is_empty) {
            found.push(("opening", "is missing; two agents need a first message".to_owned()));
        }
        found
    }

    /// True if this principal holds the seat, once it may call its agent.
    #[must_use]
    pub fn holds(&self, second: bool, principal: Option<&str>) -> bool {
        if self.party(second) != Party::Caller {
            return false;
        }
        let holders = if second { &self.holders_b } else { &self.holders_a };
        let is_named = |holders: &Vec<String>| holders.iter().any(|holder| Some(&**holder) == principal);
        holders.as_ref().is_none_or(is_named)
    }

    /// The name of the agent of a seat.
    pub(crate) fn seat_name(&self, second: bool) -> AgentName {
        if second { self.name.second_seat() } else { self.name.clone() }
    }

    /// The agent in a seat that has only an address.
    pub(crate) fn seated_agent(&self, second: bool) -> Option<Agent> {
        let Party::Remote(url) = self.party(second) else { return None };
        let kind = AgentKind::Upstream(Box::new(Upstream::new(url)));
        Some(Agent::new(self.name.seated_agent(second), kind, AgentOrigin::File))
    }

    /// The agents of its seats.
    #[must_use]
    pub fn agents(self, origin: AgentOrigin) -> [Agent; 2] {
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
                let room = Room { name: parsed, ..room };
                for (key, wrong) in room.mistakes() {
                    let path = ["rooms", &name, key];
                    findings.refuse(&path, tree.spot_of(&path), wrong);
                }
                let origin = if spot.is_file() { AgentOrigin::File } else { AgentOrigin::Flag };
                agents.extend(room.agents(origin));
            }
            Err(wrong) => findings.refuse(&path, spot, wrong),
        }
    }
    agents
}

/// Reads the agent of a seat: a name, or an address.
fn read_agent(text: &str) -> Result<Party, String> {
    if text.contains("://") { http_url(text).map(Party::Remote) } else { text.parse().map(Party::Agent) }
}
