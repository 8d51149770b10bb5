//! Rooms: listed, added, shown, reset, removed.

use std::{sync::Arc, time::Duration};

use nuncio_protocol::{Artifact, Error, Metadata, Part, Role, Task};
use serde::Deserialize;

use super::{
    AdminState, agents,
    api::{
        self, AddRoom, ListRooms, NewRoom, RecordRoom, Recording, RemoveRoom, ResetRoom, RoomArtifact,
        RoomDetails, RoomMessage, RoomReset, RoomRound, RoomSeat, Rooms, SeatHolding, ShowRoom,
    },
    endpoint::Reply,
    problem::AdminProblem,
};
use crate::{
    clock,
    config::Party,
    rooms::{MAX_RECORDING, PerSide, ROOM_EXTENSION, Room, Round, SeatLease, Side},
};

pub(super) async fn list(state: Arc<AdminState>, _: ListRooms) -> Result<Reply<Rooms>, AdminProblem> {
    let mut rooms = Vec::new();
    for room in served(&state) {
        rooms.push(summary(&room).await?);
    }
    Ok(Reply::new(Rooms { rooms }))
}

pub(super) async fn add(state: Arc<AdminState>, request: AddRoom) -> Result<Reply<api::Room>, AdminProblem> {
    let NewRoom { name, settings } = request.room;
    let parsed = name.parse().map_err(|why| AdminProblem::invalid(format!("name: {name} {why}")))?;
    let added = state.registry.add_room(&parsed, settings).await;
    added.map_err(|refused| agents::problem(&name, refused))?;
    let room = find(&state, &name)?;
    Ok(Reply::new(summary(&room).await?).subject(name))
}

pub(super) async fn remove(state: Arc<AdminState>, request: RemoveRoom) -> Result<Reply<()>, AdminProblem> {
    find(&state, &request.name)?;
    let removed = state.registry.remove_room(&request.name).await;
    removed.map_err(|refused| agents::problem(&request.name, refused))?;
    Ok(Reply::new(()).subject(request.name))
}

pub(super) async fn show(
    state: Arc<AdminState>,
    request: ShowRoom,
) -> Result<Reply<RoomDetails>, AdminProblem> {
    let room = find(&state, &request.name)?;
    let content = request.options.content == Some(true);
    // A seat that is behind is shown as it is.
    let _ = room.catch_up().await;
    let known = room.rounds().await.map_err(|error| unavailable(&error))?;
    let mut rounds = Vec::new();
    for round in &known {
        rounds.push(shown_round(&room, round, &Side::BOTH, content).await?);
    }
    Ok(Reply::new(RoomDetails { room: summary(&room).await?, rounds }))
}

/// A round as these seats have it.
pub(super) async fn shown_round(
    room: &Room,
    round: &Round,
    sides: &[Side],
    content: bool,
) -> Result<RoomRound, AdminProblem> {
    let mut seats = Vec::new();
    for side in sides.iter().copied() {
        let task = room.task(side, round).await.map_err(|error| unavailable(&error))?;
        let with_content = task.as_ref().filter(|_| content);
        seats.push(RoomSeat {
            seat: side.name().to_owned(),
            task_id: round.tasks.of(side).to_string(),
            messages: with_content.map(|task| transcript(side, task)),
            artifacts: with_content.map(artifacts),
            ended: task.as_ref().and_then(ended),
            state: task.map_or(*round.states.of(side), |task| task.status.state),
        });
    }
    Ok(RoomRound {
        number: round.number,
        context_id: round.context_id.to_string(),
        opened: round.opened,
        changed: round.changed,
        turns: round.turns,
        pending: round.pending.len(),
        seats,
    })
}

pub(super) async fn record(
    state: Arc<AdminState>,
    request: RecordRoom,
) -> Result<Reply<Recording>, AdminProblem> {
    let room = find(&state, &request.name)?;
    let time = Duration::from_secs(60 * u64::from(request.recording.minutes));
    if time > MAX_RECORDING {
        return Err(AdminProblem::invalid("minutes: expected at most 60"));
    }
    Ok(Reply::new(Recording { until: room.wire().record(time) }))
}

pub(super) async fn reset(
    state: Arc<AdminState>,
    request: ResetRoom,
) -> Result<Reply<RoomReset>, AdminProblem> {
    let room = find(&state, &request.name)?;
    let canceled = room.reset(request.options.hard).await.map_err(|error| unavailable(&error))?;
    Ok(Reply::new(RoomReset { canceled }).subject(request.name))
}

/// The rooms whose seats are agents of the hub. A room stays known after its seats are removed.
fn served(state: &AdminState) -> Vec<Arc<Room>> {
    let is_served =
        |room: &Arc<Room>| state.fleet.get(room.name()).is_some_and(|agent| agent.kind() == "room");
    state.rooms.all().into_iter().filter(is_served).collect()
}

pub(super) fn find(state: &AdminState, name: &str) -> Result<Arc<Room>, AdminProblem> {
    served(state).into_iter().find(|room| &**room.name() == name).ok_or_else(|| {
        AdminProblem::not_found(format!("there is no room {name}; GET /api/v1/rooms lists them"))
    })
}

async fn summary(room: &Room) -> Result<api::Room, AdminProblem> {
    let rounds = room.rounds().await.map_err(|error| unavailable(&error))?;
    let leases = room.leases().await.map_err(|error| unavailable(&error))?;
    let open = || rounds.iter().filter(|round| !round.has_ended());
    let holders = Side::BOTH.iter().filter_map(|side| holding(&leases, *side));
    Ok(api::Room {
        name: room.name().to_string(),
        seats: Side::BOTH.map(|side| room.settings().seat_name(side == Side::B).to_string()).to_vec(),
        open_rounds: open().count(),
        turn: open().next_back().and_then(Round::turn).map(|side| side.name().to_owned()),
        parties: Side::BOTH.map(|side| party(room, side)).to_vec(),
        holders: holders.collect(),
        recorded_until: room.wire().recorded_until(),
    })
}

/// The party that a seat is for.
pub(super) fn party(room: &Room, side: Side) -> String {
    match room.settings().party(side == Side::B) {
        Party::Caller => "caller".to_owned(),
        Party::Person => "person".to_owned(),
        Party::Agent(name) => name.to_string(),
        Party::Remote(url) => url.to_string(),
    }
}

/// The person who holds a seat now.
pub(super) fn holding(leases: &PerSide<SeatLease>, side: Side) -> Option<SeatHolding> {
    let lease = leases.of(side);
    lease.holder(clock::now()).map(|holder| SeatHolding {
        seat: side.name().to_owned(),
        holder: holder.name.clone(),
        generation: lease.generation,
        until: holder.until,
    })
}

/// The messages of a task, with the seat that has said each.
pub(super) fn transcript(side: Side, task: &Task) -> Vec<RoomMessage> {
    let messages = task.history.iter().chain(&task.status.message);
    let shown = |message: &Arc<nuncio_protocol::Message>| {
        let from = if message.role == Role::User { side } else { side.other() };
        RoomMessage {
            id: message.message_id.to_string(),
            from: from.name().to_owned(),
            text: message.text().into_owned(),
        }
    };
    messages.map(shown).collect()
}

/// The artifacts of a task, with the seat that has made each.
pub(super) fn artifacts(task: &Task) -> Vec<RoomArtifact> {
    let shown = |artifact: &Arc<Artifact>| {
        let maker = about(&artifact.metadata).and_then(|about| about.maker);
        let texts = artifact.parts.iter().filter_map(Part::as_text);
        RoomArtifact {
            id: artifact.artifact_id.to_string(),
            maker,
            name: Some(artifact.name.clone()).filter(|name| !name.is_empty()),
            text: texts.collect::<Vec<_>>().join("\n"),
        }
    };
    task.artifacts.iter().map(shown).collect()
}

/// The content of the metadata of a room.
#[derive(Default, Deserialize)]
#[serde(default)]
struct About {
    maker: Option<String>,
    ended: Option<String>,
}

fn about(metadata: &Metadata) -> Option<About> {
    metadata.get(ROOM_EXTENSION)?.get().ok()
}

/// The reason why the hub has ended a round.
fn ended(task: &Task) -> Option<String> {
    about(&task.metadata)?.ended
}

pub(super) fn unavailable(error: &Error) -> AdminProblem {
    tracing::error!(%error, "a room could not be read or changed");
    AdminProblem::unavailable("the room cannot be read or changed now; see the hub's log")
}
