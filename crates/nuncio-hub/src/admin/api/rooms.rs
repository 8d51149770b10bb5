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
    ShowRoom: GET "/rooms/{name}", "rooms.show" { path name, query options: RoomOptions, } -> RoomDetails,
        redact hide_transcripts;

    /// Cancels the open rounds of a room for both seats.
    ResetRoom: POST "/rooms/{name}:reset", "rooms.reset" { path name, body options: RoomResetOptions, } -> RoomReset,
        trail RoomReset;

    /// Shows a seat: its party, its lease, and the last round as the seat has it. With the id of a lease, the lease is
    /// extended.
    ShowSeat: GET "/rooms/{name}/seats/{seat}", "rooms.seats.show" { path name, path seat, query options: SeatOptions, }
        -> SeatDetails, redact hide_words;

    /// Leases a seat to a person. Nobody else speaks there, until the person leaves, gives no sign for `leaseSeconds`,
    /// or the seat is taken over.
    JoinSeat: POST "/rooms/{name}/seats/{seat}:join", "rooms.seats.join" { path name, path seat, body join: SeatJoin, }
        -> SeatLease, status CREATED, trail RoomJoined;

    /// Leases a seat to a person, also one that somebody holds. The holder before can say nothing more.
    TakeOverSeat: POST "/rooms/{name}/seats/{seat}:take-over", "rooms.seats.takeOver" {
        path name, path seat, body join: SeatJoin,
    } -> SeatLease, status CREATED, trail RoomTakenOver;

    /// Ends a lease.
    LeaveSeat: POST "/rooms/{name}/seats/{seat}:leave", "rooms.seats.leave" {
        path name, path seat, body lease: SeatLeaving,
    } -> (), status NO_CONTENT, trail RoomLeft;

    /// Says something as the holder of a lease.
    SayAtSeat: POST "/rooms/{name}/seats/{seat}:say", "rooms.seats.say" { path name, path seat, body words: SeatWords, }
        -> SeatSaid, trail RoomSaid;

    /// Follows a room from both sides, as server-sent events: messages, artifacts, states, leases and calls. With the
    /// id of a lease, the lease is extended as long as the stream is read.
    WatchRoom: GET "/rooms/{name}/events", "rooms.watch" { path name, query options: WatchOptions, } -> RoomEvent,
        stream cursor, redact hide_event;

    /// Records the payloads of calls for a time, in the memory of this hub; 0 minutes end the recording.
    RecordRoom: POST "/rooms/{name}:record", "rooms.record" { path name, body recording: RecordingRequest, }
        -> Recording, trail RoomRecorded;
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
    /// The parties of seats a and b: `caller`, `person`, or the agent.
    #[serde(default)]
    pub parties: Vec<String>,
    /// The people who hold seats now.
    #[serde(default)]
    pub holders: Vec<SeatHolding>,
    /// The end of the recording of payloads at this hub, while it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub recorded_until: Option<Timestamp>,
}

/// A person in a seat.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SeatHolding {
    /// `a` or `b`.
    pub seat: String,
    /// The name under which the person has joined.
    pub holder: String,
    /// The number of holders that the seat has had.
    pub generation: u64,
    #[schemars(with = "Time")]
    pub until: Timestamp,
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
    /// The artifacts as this seat has them; only if the transcript was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Vec<RoomArtifact>>,
    /// The reason why the hub has ended the round: `absent`, `expired` or `max-turns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// An artifact of a round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RoomArtifact {
    pub id: String,
    /// The seat that has made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The text of its parts.
    pub text: String,
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

/// Parts of a seat to show, and the lease to extend.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SeatOptions {
    /// Show the words of the parties, too.
    pub content: Option<bool>,
    /// The id of the caller's lease.
    pub lease: Option<String>,
}

/// A seat of a room.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeatDetails {
    /// `a` or `b`.
    pub seat: String,
    /// `caller`, `person`, or the agent.
    pub party: String,
    /// The person who holds the seat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holding: Option<SeatHolding>,
    /// The given lease is in force.
    pub is_yours: bool,
    /// Seconds after which a holder who gave no sign loses the seat.
    pub lease_seconds: u64,
    /// The last round, with the task of this seat alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<RoomRound>,
}

/// The person who joins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeatJoin {
    /// A name for the other operators, at most 100 bytes.
    pub holder: String,
}

/// A lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeatLease {
    /// Confidential: who has it speaks at the seat.
    pub lease: String,
    pub generation: u64,
    #[schemars(with = "Time")]
    pub until: Timestamp,
    /// Seconds after which a holder who gave no sign loses the seat.
    pub lease_seconds: u64,
}

/// The lease to end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeatLeaving {
    pub lease: String,
}

/// A message by the holder of a lease.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct SeatWords {
    pub lease: String,
    /// May be empty only if the message ends the round.
    pub text: String,
    /// `yield` hands over (default), `hold` keeps talking; `authorize`, `complete`, `fail`, `reject`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The id of the message: a repeat has the same one. By default a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The task of the seat. By default the last open round; without one, a round begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
}

/// A message that was said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeatSaid {
    pub task_id: String,
    pub message_id: String,
}

/// The extent of what is followed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WatchOptions {
    /// Tell the words of the parties, too.
    pub content: Option<bool>,
    /// Begin with what the last round has already. Otherwise only what is new follows.
    pub whole: Option<bool>,
    /// Tell the calls of the parties, too.
    pub wire: Option<bool>,
    /// Only what this seat has.
    pub seat: Option<String>,
    /// The id of the caller's lease of that seat.
    pub lease: Option<String>,
    /// The `cursor` of the last event that was seen. The header `Last-Event-ID` takes precedence.
    pub after: Option<String>,
}

/// An event of a room, with one member besides round and seat.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RoomEvent {
    /// The position after this event. It is opaque.
    pub cursor: String,
    /// The seat that has it.
    pub seat: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<RoomMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<RoomArtifact>,
    /// The state of the seat's task from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TaskStateName>")]
    pub state: Option<TaskState>,
    /// The seat is held by this person from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holding: Option<SeatHolding>,
    /// True if nobody holds the seat from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_free: Option<bool>,
    /// A call of the party in the seat, or the answer to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireCall>,
}

/// A line of the wire log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WireCall {
    #[schemars(with = "Time")]
    pub at: Timestamp,
    /// `in` to the hub, or `out`.
    pub direction: String,
    /// The operation of the protocol.
    pub operation: String,
    /// The version of the party.
    pub version: String,
    /// `JSONRPC`, `HTTP+JSON` or `GRPC`; absent for a party within the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
    /// Size as JSON of version 1.0, in bytes.
    pub bytes: usize,
    /// Deviations from the protocol, and the reason of a refusal; empty if it is valid.
    pub faults: Vec<String>,
    /// The content, at most 16 KiB; only if it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
}

/// The time of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordingRequest {
    /// At most 60.
    pub minutes: u32,
}

/// A recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Recording {
    /// Its end; absent if nothing is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub until: Option<Timestamp>,
}

fn hide_seat(seat: &mut RoomSeat) {
    (seat.messages, seat.artifacts) = (None, None);
}

fn hide_transcripts(details: &mut RoomDetails) {
    details.rounds.iter_mut().flat_map(|round| &mut round.seats).for_each(hide_seat);
}

fn hide_words(details: &mut SeatDetails) {
    details.round.iter_mut().flat_map(|round| &mut round.seats).for_each(hide_seat);
}

fn hide_event(event: &mut RoomEvent) {
    event.message.iter_mut().for_each(|message| message.text.clear());
    event.artifact.iter_mut().for_each(|artifact| artifact.text.clear());
    event.wire.iter_mut().for_each(|wire| wire.payload = None);
}
