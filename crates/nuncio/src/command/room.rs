//! `nuncio room …`: the rooms of a hub.

use std::{collections::HashSet, process::ExitCode, time::Duration};

use anyhow::Result;
use nuncio_hub::admin::api::{
    AddRoom, ListRooms, NewRoom, RemoveRoom, ResetRoom, Room, RoomDetails, RoomOptions, RoomResetOptions,
    RoomSeat, ShowRoom,
};
use serde_json::{Map, Value};

use super::pages::columns;
use crate::{
    args::{Admin, RoomCommand},
    output::{self, Format},
};

/// Interval at which a watched room is read.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn run(command: RoomCommand, format: Format) -> Result<ExitCode> {
    match command {
        RoomCommand::List { hub } => {
            let rooms = hub.call(&ListRooms {}).await?.rooms;
            if rooms.is_empty() && format == Format::Human {
                output::note("no rooms; a table [rooms.NAME] in nuncio.toml makes one");
            }
            match format {
                Format::Json => rooms.iter().try_for_each(output::json)?,
                Format::Human => {
                    columns(&["NAME", "ROUNDS", "TURN"], &rooms.iter().map(row).collect::<Vec<_>>())?
                }
            }
        }
        RoomCommand::Create { hub, name, title, holders_a, holders_b, strict_turns, parallel } => {
            let mut settings = Map::new();
            let mut set = |key: &str, value: Value| drop(settings.insert(key.to_owned(), value));
            title.into_iter().for_each(|title| set("title", title.into()));
            for (key, holders) in [("holders_a", holders_a), ("holders_b", holders_b)] {
                if !holders.is_empty() {
                    set(key, holders.into());
                }
            }
            if strict_turns {
                set("strict_turns", true.into());
            }
            if parallel {
                set("rounds", "parallel".into());
            }
            let room = hub.call(&AddRoom { room: NewRoom { name, settings } }).await?;
            match format {
                Format::Json => output::json(&room)?,
                Format::Human => {
                    output::note(&format!("added {}; its seats: {}", room.name, room.seats.join(", ")))
                }
            }
        }
        RoomCommand::Remove { hub, name } => {
            hub.call(&RemoveRoom { name: name.clone() }).await?;
            output::note(&format!("removed {name}"));
        }
        RoomCommand::Show { hub, name, content } => {
            let options = RoomOptions { content: Some(content) };
            show(&hub.call(&ShowRoom { name, options }).await?, format)?;
        }
        RoomCommand::Watch { hub, name } => watch(&hub, &name, format).await?,
        RoomCommand::Reset { hub, name, hard } => {
            let options = RoomResetOptions { hard };
            let reset = hub.call(&ResetRoom { name: name.clone(), options }).await?;
            match format {
                Format::Json => output::json(&reset)?,
                Format::Human => {
                    let rounds = output::count(reset.canceled, "round", "rounds");
                    output::note(&format!("{name}: canceled {rounds}"));
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(room: &Room) -> Vec<String> {
    let turn = room.turn.as_ref().map(|seat| format!("seat {seat} speaks next")).unwrap_or_default();
    let rounds = output::count(room.open_rounds, "open round", "open rounds");
    vec![room.name.clone(), rounds, turn]
}

fn show(details: &RoomDetails, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(details);
    }
    columns(&[], &[row(&details.room)])?;
    for round in &details.rounds {
        let messages = output::count(round.turns, "message", "messages");
        output::row(&format!("round {}  {}  {messages}", round.number, round.changed))?;
        for seat in &round.seats {
            output::row(&format!(
                "  seat {}  {:<14}  {}",
                seat.seat,
                output::state(seat.state),
                seat.task_id
            ))?;
        }
        for (from, text) in said(&round.seats) {
            output::row(&format!("  {from}: {text}"))?;
        }
    }
    Ok(())
}

/// The transcript as the first seat has it.
fn said(seats: &[RoomSeat]) -> Vec<(&str, &str)> {
    let messages = seats.first().and_then(|seat| seat.messages.as_deref()).unwrap_or_default();
    messages.iter().map(|message| (&*message.from, &*message.text)).collect()
}

/// Prints each message once, of whichever seat.
async fn watch(hub: &Admin, name: &str, format: Format) -> Result<()> {
    let mut seen = HashSet::new();
    let mut is_first = true;
    loop {
        let options = RoomOptions { content: Some(true) };
        let details = hub.call(&ShowRoom { name: name.to_owned(), options }).await?;
        for round in &details.rounds {
            let messages = round.seats.iter().filter_map(|seat| seat.messages.as_ref()).flatten();
            for message in messages {
                if !seen.insert((round.number, message.from.clone(), message.id.clone())) || is_first {
                    continue;
                }
                match format {
                    Format::Json => output::json(message)?,
                    Format::Human => {
                        output::row(&format!("round {}  {}: {}", round.number, message.from, message.text))?;
                    }
                }
            }
        }
        is_first = false;
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}
