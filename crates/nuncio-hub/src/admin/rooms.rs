//! Rooms: listed, added, shown, reset, removed.

use std::sync::Arc;

use nuncio_protocol::{Error, Role, Task};

use super::{
    AdminState, agents,
    api::{
        self, AddRoom, ListRooms, NewRoom, RemoveRoom, ResetRoom, RoomDetails, RoomMessage, RoomReset,
        RoomRound, RoomSeat, Rooms, ShowRoom,
    },
    endpoint::Reply,
    problem::AdminProblem,
};
use crate::rooms::{Room, Round, Side};

pub(super) async fn list(state: Arc<AdminState>, _: ListRooms) -> Result<Reply<Rooms>, AdminProblem> {
    let mut rooms = Vec::new();
    for room in served(&state) {
        let rounds = room.rounds().await.map_err(|error| unavailable(&error))?;
        rooms.push(shown(&room, &rounds));
    }
    Ok(Reply::new(Rooms { rooms }))
}

pub(super) async fn add(state: Arc<AdminState>, request: AddRoom) -> Result<Reply<api::Room>, AdminProblem> {
    let NewRoom { name, settings } = request.room;
    let parsed = name.parse().map_err(|why| AdminProblem::invalid(format!("name: {name} {why}")))?;
    let added = state.registry.add_room(&parsed, settings).await;
    added.map_err(|refused| agents::problem(&name, refused))?;
    let room = find(&state, &name)?;
    let rounds = room.rounds().await.map_err(|error| unavailable(&error))?;
    Ok(Reply::new(shown(&room, &rounds)).subject(name))
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
        let mut seats = Vec::new();
        for (side, task) in room.tasks(round).await.map_err(|error| unavailable(&error))? {
            let messages = task.as_ref().filter(|_| content).map(|task| transcript(side, task));
            seats.push(RoomSeat {
                seat: side.name().to_owned(),
                task_id: round.tasks.of(side).to_string(),
                state: task.map_or(*round.states.of(side), |task| task.status.state),
                messages,
            });
        }
        rounds.push(RoomRound {
            number: round.number,
            context_id: round.context_id.to_string(),
            opened: round.opened,
            changed: round.changed,
            turns: round.turns,
            pending: round.pending.len(),
            seats,
        });
    }
    Ok(Reply::new(RoomDetails { room: shown(&room, &known), rounds }))
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

fn find(state: &AdminState, name: &str) -> Result<Arc<Room>, AdminProblem> {
    served(state).into_iter().find(|room| &**room.name() == name).ok_or_else(|| {
        AdminProblem::not_found(format!("there is no room {name}; GET /api/v1/rooms lists them"))
    })
}

fn shown(room: &Room, rounds: &[Round]) -> api::Room {
    let open = || rounds.iter().filter(|round| !round.has_ended());
    api::Room {
        name: room.name().to_string(),
        seats: Side::BOTH.map(|side| room.settings().seat_name(side == Side::B).to_string()).to_vec(),
        open_rounds: open().count(),
        turn: open().next_back().and_then(Round::turn).map(|side| side.name().to_owned()),
    }
}

/// The messages of a task, with the seat that has said each.
fn transcript(side: Side, task: &Task) -> Vec<RoomMessage> {
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

fn unavailable(error: &Error) -> AdminProblem {
    tracing::error!(%error, "a room could not be read or changed");
    AdminProblem::unavailable("the room cannot be read or changed now; see the hub's log")
}
