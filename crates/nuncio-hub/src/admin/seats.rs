//! Seats of rooms for people: joined, taken over, spoken at, left.

use std::sync::Arc;

use nuncio_protocol::{Error, ErrorKind, Part, TaskId};
use uuid::Uuid;

use super::{
    AdminState,
    api::{JoinSeat, LeaveSeat, SayAtSeat, SeatDetails, SeatLease, SeatSaid, ShowSeat, TakeOverSeat},
    endpoint::Reply,
    problem::AdminProblem,
    rooms,
};
use crate::rooms::{GrantedSeat, JoinRefusal, NEXT_WORDS, Room, Round, Side, Words};

pub(super) async fn show(
    state: Arc<AdminState>,
    request: ShowSeat,
) -> Result<Reply<SeatDetails>, AdminProblem> {
    let (room, side) = find(&state, &request.name, &request.seat)?;
    let is_yours = match request.options.lease.as_deref().filter(|lease| !lease.is_empty()) {
        Some(lease) => match room.renew(side, lease).await {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => false,
            Err(error) => return Err(rooms::unavailable(&error)),
        },
        None => false,
    };
    // A seat that is behind is shown as it is.
    let _ = room.catch_up().await;
    let known = room.rounds().await.map_err(|error| rooms::unavailable(&error))?;
    let leases = room.leases().await.map_err(|error| rooms::unavailable(&error))?;
    let content = request.options.content == Some(true);
    let round = match current(&known) {
        Some(round) => Some(rooms::shown_round(&room, round, &[side], content).await?),
        None => None,
    };
    Ok(Reply::new(SeatDetails {
        seat: side.name().to_owned(),
        party: rooms::party(&room, side),
        holding: rooms::holding(&leases, side),
        is_yours,
        lease_seconds: room.lease_time().as_secs(),
        round,
    }))
}

pub(super) async fn join(
    state: Arc<AdminState>,
    request: JoinSeat,
) -> Result<Reply<SeatLease>, AdminProblem> {
    lease(&state, &request.name, &request.seat, &request.join.holder, false).await
}

pub(super) async fn take_over(
    state: Arc<AdminState>,
    request: TakeOverSeat,
) -> Result<Reply<SeatLease>, AdminProblem> {
    lease(&state, &request.name, &request.seat, &request.join.holder, true).await
}

async fn lease(
    state: &AdminState,
    name: &str,
    seat: &str,
    holder: &str,
    takes_over: bool,
) -> Result<Reply<SeatLease>, AdminProblem> {
    let (room, side) = find(state, name, seat)?;
    let granted = room.join(side, holder, takes_over).await.map_err(|refusal| match refusal {
        JoinRefusal::Name => AdminProblem::invalid("holder: expected a name of 1 to 100 bytes"),
        JoinRefusal::Failed(error) => rooms::unavailable(&error),
        JoinRefusal::Held(holder, until) => {
            let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
            AdminProblem::conflict(format!(
                "seat {seat} is held by {holder}{until}; take it over with POST …/seats/{seat}:take-over"
            ))
        }
    })?;
    let GrantedSeat { id, generation, until } = granted;
    let lease_seconds = room.lease_time().as_secs();
    let subject = format!("{name} seat {seat} by {holder}");
    Ok(Reply::new(SeatLease { lease: id, generation, until, lease_seconds }).subject(subject))
}

pub(super) async fn leave(state: Arc<AdminState>, request: LeaveSeat) -> Result<Reply<()>, AdminProblem> {
    let (room, side) = find(&state, &request.name, &request.seat)?;
    room.leave(side, &request.lease.lease).await.map_err(|error| refused(&error))?;
    Ok(Reply::new(()))
}

pub(super) async fn say(state: Arc<AdminState>, request: SayAtSeat) -> Result<Reply<SeatSaid>, AdminProblem> {
    let (room, side) = find(&state, &request.name, &request.seat)?;
    let words = request.words;
    let next = match words.next.as_deref() {
        None | Some("") => None,
        Some(next) => Some(NEXT_WORDS.into_iter().find(|known| *known == next).ok_or_else(|| {
            AdminProblem::invalid(format!("next: expected one of {}", NEXT_WORDS.join(", ")))
        })?),
    };
    let text = match (words.text.is_empty(), next) {
        (false, _) => words.text,
        // The end says itself.
        (true, Some(end @ ("complete" | "fail" | "reject"))) => end.to_owned(),
        (true, _) => return Err(AdminProblem::invalid("text: is empty; only an end needs no words")),
    };
    let task = match words.task_id.filter(|task| !task.is_empty()) {
        Some(task) => Some(TaskId::from(task)),
        None => {
            let known = room.rounds().await.map_err(|error| rooms::unavailable(&error))?;
            let open = known.iter().rfind(|round| !round.has_ended());
            open.map(|round| round.tasks.of(side).clone())
        }
    };
    let id = words.message_id.filter(|id| !id.is_empty());
    let id = id.unwrap_or_else(|| Uuid::now_v7().to_string());
    let said = Words { id: id.as_str().into(), parts: vec![Part::text(text)], next, task, hops: Vec::new() };
    let task = room.say_as_holder(side, &words.lease, said).await.map_err(|error| refused(&error))?;
    Ok(Reply::new(SeatSaid { task_id: task.id.to_string(), message_id: id }))
}

/// The last open round, or the last one.
fn current(rounds: &[Round]) -> Option<&Round> {
    rounds.iter().rfind(|round| !round.has_ended()).or_else(|| rounds.last())
}

pub(super) fn find(state: &AdminState, name: &str, seat: &str) -> Result<(Arc<Room>, Side), AdminProblem> {
    let room = rooms::find(state, name)?;
    let side = Side::BOTH.into_iter().find(|side| side.name() == seat);
    let side =
        side.ok_or_else(|| AdminProblem::not_found(format!("there is no seat {seat}; seats are a and b")))?;
    Ok((room, side))
}

/// A refusal by the room, whose words are for parties.
fn refused(error: &Error) -> AdminProblem {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Internal => rooms::unavailable(error),
        ErrorKind::TaskNotFound => AdminProblem::not_found("the seat has no such task"),
        ErrorKind::InvalidParams => AdminProblem::invalid(error.message().to_owned()),
        _ => AdminProblem::conflict(error.message().to_owned()),
    }
}
