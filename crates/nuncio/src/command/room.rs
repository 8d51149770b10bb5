//! `nuncio room …`: the rooms of a hub.

mod events;
mod join;

use std::process::ExitCode;

use anyhow::Result;
use nuncio_hub::admin::api::{
    AddRoom, ListRooms, NewRoom, RecordRoom, RecordingRequest, RemoveRoom, ResetRoom, Room, RoomDetails,
    RoomOptions, RoomResetOptions, RoomSeat, ShowRoom, WatchOptions,
};
use serde_json::{Map, Value};

use self::events::RoomEvents;
use super::{pages::columns, signals::Signals};
use crate::{
    args::{Admin, RoomCommand},
    exit,
    output::{self, Format},
};

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
        RoomCommand::Create { hub, name, title, holders_a, holders_b, strict_turns, parallel, more } => {
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
            for setting in &more {
                let Some((key, value)) = setting.split_once('=') else {
                    return Err(exit::usage(format!(
                        "{setting}: expected KEY=VALUE, such as agent_b=seller"
                    )));
                };
                // Numbers and booleans as such, everything else as a text.
                set(key, serde_json::from_str(value).unwrap_or_else(|_| value.into()));
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
        RoomCommand::Watch { hub, name, whole, wire } => watch(&hub, name, whole, wire, format).await?,
        RoomCommand::Record { hub, name, minutes } => {
            let recording = RecordingRequest { minutes };
            let recording = hub.call(&RecordRoom { name: name.clone(), recording }).await?;
            match (format, recording.until) {
                (Format::Json, _) => output::json(&recording)?,
                (Format::Human, Some(until)) => {
                    output::note(&format!("{name}: payloads are recorded until {until}"))
                }
                (Format::Human, None) => output::note(&format!("{name}: nothing is recorded")),
            }
        }
        RoomCommand::Join { join, take_over } => return join::run(join, take_over, format).await,
        RoomCommand::TakeOver { join } => return join::run(join, true, format).await,
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
    for holding in &details.room.holders {
        output::row(&format!("seat {} is held by {} until {}", holding.seat, holding.holder, holding.until))?;
    }
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
        for artifact in round.seats.first().and_then(|seat| seat.artifacts.as_deref()).unwrap_or_default() {
            output::row(&format!("  {}", events::made(artifact)))?;
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

/// Prints what both sides have, until a signal.
async fn watch(hub: &Admin, name: String, whole: bool, wire: bool, format: Format) -> Result<()> {
    let options =
        WatchOptions { content: Some(true), whole: Some(whole), wire: Some(wire), ..WatchOptions::default() };
    let mut events = RoomEvents::open(hub, name, options).await?;
    let mut signals = Signals::listen()?;
    loop {
        tokio::select! {
            () = signals.next() => return Ok(()),
            event = events.next() => events::print(&event?, format)?,
        }
    }
}
