//! Rooms of the API: two desired agents with one document, under the key that no agent has.

use nuncio_server::store::Expect;
use serde_json::{Map, Value};

use super::{ChangeRefusal, Registry};
use crate::config::{self, AgentName, AgentOrigin};

/// The only key of the document of a seat: the settings of its room.
const ROOM: &str = "room";

/// Reads the settings of a seat; `None` if they are those of another agent.
pub(super) fn read(name: &AgentName, given: &Map<String, Value>) -> Option<Result<config::Agent, String>> {
    let Value::Object(room) = given.get(ROOM)? else { return None };
    let seat = || {
        let room_name = name.room_of_second_seat().unwrap_or(name).parse()?;
        let [a, b] = config::room_from_api(&room_name, room)?;
        Ok(if name.room_of_second_seat().is_some() { b } else { a })
    };
    Some(seat())
}

/// Reads the name of an agent, or of the second seat of a room.
pub(super) fn parse_name(key: &str) -> Result<AgentName, String> {
    if let Ok(name) = key.parse() {
        return Ok(name);
    }
    let second = key.strip_suffix("/b").unwrap_or(key).parse::<AgentName>()?.second_seat();
    if &*second == key { Ok(second) } else { Err("is not the name of a seat".to_owned()) }
}

/// Refuses the document of a seat where that of another agent is meant.
pub(super) fn check_is_agent(given: &Map<String, Value>) -> Result<(), ChangeRefusal> {
    if given.contains_key(ROOM) {
        let why = "this is a seat of a room; add and remove rooms at /api/v1/rooms";
        return Err(ChangeRefusal::Invalid(why.to_owned()));
    }
    Ok(())
}

impl Registry {
    /// Adds a room: the agents of both seats.
    pub(crate) async fn add_room(
        &self,
        name: &AgentName,
        given: Map<String, Value>,
    ) -> Result<(), ChangeRefusal> {
        let seats = config::room_from_api(name, &given).map_err(ChangeRefusal::Invalid)?;
        let document = Map::from_iter([(ROOM.to_owned(), Value::Object(given))]);
        let mut state = self.state.lock().await;
        for seat in &seats {
            // A second seat alone is left of an addition that a crash has interrupted.
            let is_left = |origin| origin == AgentOrigin::Api && seat.name.room_of_second_seat().is_some();
            if let Some(taken) = state.desired(&seat.name).filter(|taken| !is_left(taken.agent.origin)) {
                return Err(ChangeRefusal::Taken(taken.agent.origin));
            }
        }
        if self.fleet.get(name).is_some() {
            return Err(ChangeRefusal::Taken(AgentOrigin::Flag));
        }
        // The second seat first: a room without it would take messages that reach nobody.
        for seat in seats.into_iter().rev() {
            self.keep(&mut state, seat, document.clone(), Expect::Anything).await?;
        }
        Ok(())
    }

    /// Removes a room. The tasks of its seats stay in the store.
    pub(crate) async fn remove_room(&self, name: &str) -> Result<(), ChangeRefusal> {
        let mut state = self.state.lock().await;
        let desired = state.desired(name).ok_or(ChangeRefusal::Missing)?;
        match &desired.given {
            Some((given, _)) if given.contains_key(ROOM) => {}
            Some(_) => return Err(ChangeRefusal::Missing),
            None => return Err(ChangeRefusal::Elsewhere(desired.agent.origin)),
        }
        let first = desired.agent.name;
        for name in [first.second_seat(), first].into_iter().rev() {
            let (_, version) = match self.ours(&state, &name) {
                Err(ChangeRefusal::Missing) => continue,
                ours => ours?,
            };
            self.records.drop(&name, version).await?;
            state.added.remove(&name);
        }
        super::drain(self.activate(&mut state, Vec::new())).await;
        Ok(())
    }
}
