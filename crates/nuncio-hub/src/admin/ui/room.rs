//! A room: its rounds, and the transcript of each as both sides have it.

use askama::Template;
use axum::{
    extract::Path,
    response::{IntoResponse as _, Redirect},
};

use super::{
    form::Form,
    rooms::{RoomRow, Seat},
    shell::{Area, Shell, Theme, quoted},
    show,
    timeline::MAX_PAGE_CHARS,
    visit::{Answer, Visit, render},
};
use crate::{
    admin::{
        api::{ResetRoom, RoomOptions, RoomResetOptions, RoomRound, RoomSeat, ShowRoom},
        problem::AdminProblem,
        rooms,
    },
    trail::What,
};

/// Maximum length of one message.
const MAX_MESSAGE_CHARS: usize = 8 * 1024;

/// A round with the sides of its seats.
struct RoundRow {
    number: u64,
    opened: String,
    changed: String,
    turns: u64,
    pending: usize,
    seats: Vec<SeatSide>,
}

/// A side of a round.
struct SeatSide {
    seat: String,
    agent: String,
    task: String,
    task_path: String,
    state: String,
    messages: Vec<Spoken>,
}

/// A message on one side.
struct Spoken {
    from: String,
    is_own: bool,
    text: String,
}

#[derive(Template)]
#[template(path = "ui/room.html")]
struct RoomPage {
    shell: Shell,
    row: RoomRow,
    rounds: Vec<RoundRow>,
    shows_content: bool,
}

fn path(name: &str) -> String {
    format!("/ui/rooms/{}", show::segment(name))
}

/// The name by which the session remembers that the words of a room are shown. No id of a task has a space.
fn opened(name: &str) -> String {
    format!("room {name}")
}

pub(super) async fn page(visit: Visit, Path(name): Path<String>) -> Answer {
    let shows_content = visit.session().is_some_and(|session| session.has_opened(&opened(&name)));
    let request = ShowRoom { name: name.clone(), options: RoomOptions::default() };
    let command = format!("room show {}", quoted(&name));
    let title = format!("Room {}", show::cell(&name));
    let shell = visit.shell(title, Area::Rooms).with_route(&request, Some(command))?;
    let options = RoomOptions { content: Some(shows_content) };
    let details = visit.call(rooms::show, ShowRoom { name, options }).await?;
    let row = RoomRow::from(details.room);
    let mut budget = MAX_PAGE_CHARS;
    let rounds = details.rounds.into_iter().rev().map(|one| round(one, &row.seats, &mut budget)).collect();
    render(&RoomPage { shell, row, rounds, shows_content })
}

fn round(round: RoomRound, agents: &[Seat], budget: &mut usize) -> RoundRow {
    let RoomRound { number, opened, changed, turns, pending, seats, .. } = round;
    let seats = seats.into_iter().zip(agents).map(|(seat, agent)| side(seat, &agent.name, budget));
    RoundRow {
        number,
        opened: opened.to_string(),
        changed: changed.to_string(),
        turns,
        pending,
        seats: seats.collect(),
    }
}

fn side(seat: RoomSeat, agent: &str, budget: &mut usize) -> SeatSide {
    let messages = seat.messages.unwrap_or_default().into_iter().map(|message| {
        let text = show::text(&message.text, MAX_MESSAGE_CHARS.min(*budget));
        *budget = budget.saturating_sub(text.chars().count());
        Spoken { is_own: message.from == seat.seat, from: show::cell(&message.from), text }
    });
    SeatSide {
        messages: messages.collect(),
        task_path: format!("/ui/tasks/{}", show::segment(&seat.task_id)),
        task: show::cell(&seat.task_id),
        state: show::state(seat.state),
        agent: agent.to_owned(),
        seat: seat.seat,
    }
}

/// Shows the words of the parties from now on, or hides them again.
pub(super) async fn show_content(visit: Visit, Path(name): Path<String>, form: Form) -> Answer {
    let Some(session) = visit.session() else { return Err(AdminProblem::signed_out().into()) };
    if form.get("show") == Some("no") {
        session.close(&opened(&name));
    } else {
        visit.call(rooms::show, ShowRoom { name: name.clone(), options: RoomOptions::default() }).await?;
        visit.note(What::ContentShown, &opened(&name))?;
        session.open(&opened(&name));
    }
    Ok(Redirect::to(&path(&name)).into_response())
}

pub(super) async fn reset(visit: Visit, Path(name): Path<String>, form: Form) -> Answer {
    let options = RoomResetOptions { hard: form.get("hard").is_some() };
    let reset = visit.call(rooms::reset, ResetRoom { name: name.clone(), options }).await?;
    visit.done(&path(&name), format!("Rounds that were canceled for both seats: {}.", reset.canceled))
}
