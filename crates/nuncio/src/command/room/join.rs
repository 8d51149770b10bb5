//! `nuncio room join`: a person in a seat. What the seat has is printed, and each line that is typed is said.

use std::process::ExitCode;

use anyhow::Result;
use nuncio_hub::admin::api::{
    JoinSeat, LeaveSeat, RoomEvent, SayAtSeat, SeatJoin, SeatLease, SeatLeaving, SeatWords, TakeOverSeat,
    WatchOptions,
};
use nuncio_protocol::TaskState;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, stdin},
    time::{Duration, timeout},
};

use super::events::{self, RoomEvents};
use crate::{
    args::{Admin, RoomJoin},
    command::signals::Signals,
    output::{self, Format},
};

/// Time for which the last events are printed after the input has ended.
const LAST_EVENTS: Duration = Duration::from_millis(300);

/// The lines that are no messages.
const HELP: &str = "a line says it and hands over; /hold TEXT keeps talking, /authorize TEXT asks for an authorisation, \
                    /complete, /fail and /reject [TEXT] end the round, /leave leaves; //TEXT says a text that begins with /";

/// A line of the composer.
#[derive(PartialEq, Eq, Debug)]
enum Line {
    Say(Option<&'static str>, String),
    Leave,
    Help,
    Nothing,
}

/// Reads a line of the composer.
fn read(line: &str) -> Line {
    let line = line.trim();
    if line.is_empty() {
        return Line::Nothing;
    }
    let Some(command) = line.strip_prefix('/') else { return Line::Say(None, line.to_owned()) };
    if command.starts_with('/') {
        return Line::Say(None, command.to_owned());
    }
    let (word, text) = command.split_once(' ').unwrap_or((command, ""));
    let text = text.trim().to_owned();
    let next = ["hold", "authorize", "complete", "fail", "reject"].into_iter().find(|known| *known == word);
    match (next, word) {
        (Some("hold" | "authorize"), _) if text.is_empty() => Line::Help,
        (Some(next), _) => Line::Say(Some(next), text),
        (None, "leave") => Line::Leave,
        (None, _) => Line::Help,
    }
}

pub(super) async fn run(join: RoomJoin, takes_over: bool, format: Format) -> Result<ExitCode> {
    let RoomJoin { hub, name, seat, holder } = join;
    let seat = seat.as_str().to_owned();
    let holder = holder.or_else(|| std::env::var("USER").ok().filter(|user| !user.is_empty()));
    let join = SeatJoin { holder: holder.unwrap_or_else(|| "operator".to_owned()) };
    let lease = match takes_over {
        true => hub.call(&TakeOverSeat { name: name.clone(), seat: seat.clone(), join }).await?,
        false => hub.call(&JoinSeat { name: name.clone(), seat: seat.clone(), join }).await?,
    };
    output::note(&format!(
        "you hold seat {seat} of {name}, as holder {}; it is free {} seconds after you are gone",
        lease.generation, lease.lease_seconds
    ));
    output::note(HELP);
    let person = Person { hub: &hub, name, seat, lease };
    let stays = person.talk(format).await;
    let leaving = SeatLeaving { lease: person.lease.lease.clone() };
    let left = hub.call(&LeaveSeat { name: person.name, seat: person.seat, lease: leaving }).await;
    match stays? {
        Stay::Left => left.map(|()| ExitCode::SUCCESS),
        Stay::Lost(holder) => {
            output::note(&format!("the seat was taken over by {holder}"));
            Ok(ExitCode::FAILURE)
        }
        Stay::Expired => {
            output::note("the lease is over: nothing was heard in time");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The end of a stay.
enum Stay {
    Left,
    Lost(String),
    Expired,
}

struct Person<'a> {
    hub: &'a Admin,
    name: String,
    seat: String,
    lease: SeatLease,
}

impl Person<'_> {
    /// Prints events and says lines, until the input ends or the seat is lost.
    async fn talk(&self, format: Format) -> Result<Stay> {
        let options = WatchOptions {
            content: Some(true),
            whole: Some(true),
            seat: Some(self.seat.clone()),
            lease: Some(self.lease.lease.clone()),
            ..WatchOptions::default()
        };
        let mut events = RoomEvents::open(self.hub, self.name.clone(), options).await?;
        let mut lines = BufReader::new(stdin()).lines();
        let mut signals = Signals::listen()?;
        loop {
            tokio::select! {
                () = signals.next() => return Ok(Stay::Left),
                event = events.next() => {
                    let event = event?;
                    if let Some(end) = self.lost(&event) {
                        return Ok(end);
                    }
                    show(&event, format)?;
                }
                line = lines.next_line() => {
                    let Some(line) = line? else { break };
                    match read(&line) {
                        Line::Nothing => {}
                        Line::Help => output::note(HELP),
                        Line::Leave => break,
                        Line::Say(next, text) => self.say(next, text).await?,
                    }
                }
            }
        }
        // What was said last is shown, too.
        while let Ok(event) = timeout(LAST_EVENTS, events.next()).await {
            let event = event?;
            if let Some(end) = self.lost(&event) {
                return Ok(end);
            }
            show(&event, format)?;
        }
        Ok(Stay::Left)
    }

    async fn say(&self, next: Option<&str>, text: String) -> Result<()> {
        let next = next.map(str::to_owned);
        let words = SeatWords { lease: self.lease.lease.clone(), text, next, ..SeatWords::default() };
        let request = SayAtSeat { name: self.name.clone(), seat: self.seat.clone(), words };
        self.hub.call(&request).await.map(drop)
    }

    /// The end of the stay, if this event tells of it.
    fn lost(&self, event: &RoomEvent) -> Option<Stay> {
        match (&event.holding, event.is_free) {
            (Some(holding), _) if holding.generation != self.lease.generation => {
                Some(Stay::Lost(holding.holder.clone()))
            }
            (None, Some(true)) => Some(Stay::Expired),
            _ => None,
        }
    }
}

/// Prints an event as the person in the seat reads it.
fn show(event: &RoomEvent, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(event);
    }
    if let Some(message) = &event.message {
        output::row(&format!("{}: {}", message.from, message.text))?;
    }
    if let Some(artifact) = &event.artifact {
        output::row(&events::made(artifact))?;
    }
    if let Some(state) = event.state {
        let turn = match state {
            TaskState::InputRequired => "; your turn",
            TaskState::AuthRequired => "; an authorisation is asked for",
            _ => "",
        };
        output::row(&format!("[{}{turn}]", output::state(state)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_said_and_a_slash_is_a_word_about_the_conversation() {
        let say = |next: Option<&'static str>, text: &str| Line::Say(next, text.to_owned());
        for (line, expected) in [
            ("hello", say(None, "hello")),
            ("  hello there \r", say(None, "hello there")),
            ("//etc/passwd", say(None, "/etc/passwd")),
            ("/hold one moment", say(Some("hold"), "one moment")),
            ("/hold", Line::Help),
            ("/complete", say(Some("complete"), "")),
            ("/complete done", say(Some("complete"), "done")),
            ("/fail too late", say(Some("fail"), "too late")),
            ("/reject", say(Some("reject"), "")),
            ("/authorize sign here", say(Some("authorize"), "sign here")),
            ("/leave", Line::Leave),
            ("/wave", Line::Help),
            ("", Line::Nothing),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
    }
}
