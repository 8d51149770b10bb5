//! The rooms.

use askama::Template;

use super::{
    shell::{Area, Shell, Theme},
    show,
    visit::{Answer, Visit, render},
};
use crate::admin::{
    api::{ListRooms, Room},
    rooms,
};

/// The agent of a seat.
pub(super) struct Seat {
    pub(super) name: String,
    /// The name as a part of an address.
    pub(super) query: String,
}

/// A room as a row.
pub(super) struct RoomRow {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) seats: Vec<Seat>,
    pub(super) open: usize,
    pub(super) turn: Option<String>,
}

impl From<Room> for RoomRow {
    fn from(room: Room) -> Self {
        Self {
            path: format!("/ui/rooms/{}", show::segment(&room.name)),
            name: room.name,
            seats: room.seats.into_iter().map(|name| Seat { query: show::segment(&name), name }).collect(),
            open: room.open_rounds,
            turn: room.turn,
        }
    }
}

#[derive(Template)]
#[template(path = "ui/rooms.html")]
struct RoomsPage {
    shell: Shell,
    rows: Vec<RoomRow>,
}

pub(super) async fn page(visit: Visit) -> Answer {
    let shell = visit.shell("Rooms", Area::Rooms).with_route(&ListRooms {}, Some("room list".to_owned()))?;
    let list = visit.call(rooms::list, ListRooms {}).await?;
    render(&RoomsPage { shell, rows: list.rooms.into_iter().map(RoomRow::from).collect() })
}
