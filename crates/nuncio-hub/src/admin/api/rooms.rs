//! Rooms: two seats, one conversation. The words of the parties are returned only on request.

use nuncio_protocol::{TaskState, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    route::routes,
    schema::{TaskStateName, Time},
};

routes! {
    /// Lists the rooms of the hub.
    ListRooms: GET "/rooms", "rooms.list" {} -> Rooms;

    /// Adds a room. It is stored and served again after a restart.
    AddRoom: POST "/rooms", "rooms.add" { body room: NewRoom, } -> Room, status CREATED, trail RoomAdded;

    /// Removes a room that was added by this API. The tasks of its seats are kept.
    RemoveRoom: DELETE "/rooms/{name}", "rooms.remove" { path name, } -> (), status NO_CONTENT, trail RoomRemoved;

    /// Shows a room with its rounds: the open ones, and the last one.
    ShowRoom: GET "/rooms/{name}", "rooms.show" { path name, query options: RoomOptions, } -> RoomDetails;

    /// Cancels the open rounds of a room for both seats.
    ResetRoom: POST "/rooms/{name}:reset", "rooms.reset" { path name, body options: RoomResetOptions, } -> RoomReset,
        trail RoomReset;
}

/// All rooms.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Rooms {
    pub rooms: Vec<Room>,
}

/// A room to add.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRoom {
    pub name: String,
    /// The keys of a room as in the file, such as `strict_turns`.
    #[serde(default)]
    pub settings: Map<String, Value>,
}

/// A room.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Room {
    pub name: String,
    /// The agents of its seats, a and b.
    pub seats: Vec<String>,
    /// Number of open rounds.
    pub open_rounds: usize,
    /// The seat that speaks next in the last open round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
}

/// Parts of a room to show.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RoomOptions {
    /// Show the words of the parties, too.
    pub content: Option<bool>,
}

/// A room with its rounds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RoomDetails {
    #[serde(flatten)]
    pub room: Room,
    pub rounds: Vec<RoomRound>,
}

/// A round: one task per seat.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoomRound {
    pub number: u64,
    pub context_id: String,
    #[schemars(with = "Time")]
    pub opened: Timestamp,
    #[schemars(with = "Time")]
    pub changed: Timestamp,
    /// Number of messages.
    pub turns: u64,
    /// Number of entries that a seat has not got yet.
    pub pending: usize,
    pub seats: Vec<RoomSeat>,
}

/// The task of a seat.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoomSeat {
    /// `a` or `b`.
    pub seat: String,
    pub task_id: String,
    #[schemars(with = "TaskStateName")]
    pub state: TaskState,
    /// The transcript as this seat has it; only if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<RoomMessage>>,
}

/// A message of a transcript.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RoomMessage {
    pub id: String,
    /// The seat that has said it.
    pub from: String,
    /// The text of its parts.
    pub text: String,
}

/// The extent of a reset.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoomResetOptions {
    /// Begin the next round as well, in which seat a speaks first.
    pub hard: bool,
}

/// The outcome of a reset.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RoomReset {
    /// Number of rounds that were open, and are canceled now.
    pub canceled: usize,
}
