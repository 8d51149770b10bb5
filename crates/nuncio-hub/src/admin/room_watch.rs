//! A room as a stream: messages, artifacts and states of both sides, the leases of the seats, and the wire log.
//!
//! The stream looks at the room whenever it has changed, and tells what it has not told yet.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream, stream::BoxStream};
use nuncio_protocol::{Task, TaskState};
use tokio::sync::watch;

use super::{
    AdminState,
    api::{RoomEvent, SeatHolding, WatchRoom, WireCall},
    problem::AdminProblem,
    rooms, seats,
};
use crate::rooms::{Direction, Room, Round, Side, WireLine};

/// Interval at which a room is looked at without a change that this hub knows of.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// The minimum time between two looks by one reader.
const PACE: Duration = Duration::from_millis(50);

pub(super) async fn watch(
    state: Arc<AdminState>,
    request: WatchRoom,
) -> Result<BoxStream<'static, RoomEvent>, AdminProblem> {
    let options = request.options;
    let (room, side) = match options.seat.as_deref().filter(|seat| !seat.is_empty()) {
        Some(seat) => {
            let (room, side) = seats::find(&state, &request.name, seat)?;
            (room, Some(side))
        }
        None => (rooms::find(&state, &request.name)?, None),
    };
    let lease = options.lease.filter(|lease| !lease.is_empty());
    let lease = match (side, lease) {
        (Some(side), Some(lease)) => Some((side, lease)),
        (None, Some(_)) => return Err(AdminProblem::invalid("lease: name its seat, too")),
        (_, None) => None,
    };
    let mut watcher = Watcher {
        sides: side.map_or(Side::BOTH.to_vec(), |side| vec![side]),
        content: options.content == Some(true),
        wire: (options.wire == Some(true)).then(|| room.wire().last()),
        lease,
        known: HashMap::new(),
        first_round: 0,
        last: Position::default(),
        holders: HashMap::new(),
        changes: room.changes(),
        lines: room.wire().changes(),
        room,
    };
    match options.after.as_deref().filter(|after| !after.is_empty()) {
        Some(after) => {
            let position = Position::parse(after)
                .ok_or_else(|| AdminProblem::invalid("after: expected the cursor of an earlier event"))?;
            watcher.resume(position);
        }
        None if options.whole == Some(true) => watcher.begin_with_last_round().await?,
        None => {
            watcher.look().await?;
            // The holders are told to everybody.
            watcher.holders.clear();
        }
    }
    let events = stream::unfold((watcher, true), |(mut watcher, is_first)| async move {
        if !is_first {
            watcher.until_changed().await;
            tokio::time::sleep(PACE).await;
        }
        // A room that cannot be read ends the stream: the client comes back.
        let events = watcher.look().await.ok()?;
        Some((stream::iter(events), (watcher, false)))
    });
    Ok(events.flatten().boxed())
}

/// A position in the stream: the messages and artifacts that each seat had in the last round, and the last line.
#[derive(Clone, Copy, Default)]
struct Position {
    round: u64,
    counts: [(usize, usize); 2],
    line: u64,
}

impl Position {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        let round = next()?;
        let mut count = || Some((usize::try_from(next()?).ok()?, usize::try_from(next()?).ok()?));
        let counts = [count()?, count()?];
        Some(Self { round, counts, line: next()? })
    }

    fn written(&self) -> String {
        let [(a, b), (c, d)] = self.counts;
        format!("{}.{a}.{b}.{c}.{d}.{}", self.round, self.line)
    }
}

/// The part of a task that was told.
#[derive(Clone, Copy, Default)]
struct Told {
    messages: usize,
    artifacts: usize,
    state: Option<TaskState>,
}

struct Watcher {
    room: Arc<Room>,
    sides: Vec<Side>,
    content: bool,
    /// The last line that was told; `None` if lines are not wanted.
    wire: Option<u64>,
    lease: Option<(Side, String)>,
    known: HashMap<(u64, Side), Told>,
    /// The first round that is told.
    first_round: u64,
    last: Position,
    /// The generation of the holder that was told; `None`: the seat is free.
    holders: HashMap<Side, Option<u64>>,
    changes: watch::Receiver<u64>,
    lines: watch::Receiver<u64>,
}

impl Watcher {
    async fn until_changed(&mut self) {
        let pause =
            self.lease.as_ref().map_or(LOOK_INTERVAL, |_| (self.room.lease_time() / 3).min(LOOK_INTERVAL));
        let lines = async {
            match self.wire {
                Some(_) => drop(self.lines.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.changes.changed() => {}
            () = lines => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    /// Goes on after an event that was told before.
    fn resume(&mut self, position: Position) {
        self.first_round = position.round;
        self.last = position;
        self.wire = self.wire.map(|_| position.line);
        for (side, (messages, artifacts)) in Side::BOTH.into_iter().zip(position.counts) {
            self.known.insert((position.round, side), Told { messages, artifacts, state: None });
        }
    }

    async fn begin_with_last_round(&mut self) -> Result<(), AdminProblem> {
        let rounds = self.room.rounds().await.map_err(|error| rooms::unavailable(&error))?;
        let open = rounds.iter().find(|round| !round.has_ended()).or_else(|| rounds.last());
        self.first_round = open.map_or(0, |round| round.number);
        Ok(())
    }

    /// The events since the last look.
    async fn look(&mut self) -> Result<Vec<RoomEvent>, AdminProblem> {
        if let Some((side, lease)) = &self.lease {
            // A lease that is over shows as one of another generation.
            let _ = self.room.renew(*side, lease).await;
        }
        let mut events = Vec::new();
        self.look_at_leases(&mut events).await?;
        let rounds = self.room.rounds().await.map_err(|error| rooms::unavailable(&error))?;
        let first = self.first_round;
        for round in rounds.iter().filter(|round| round.number >= first) {
            for side in self.sides.clone() {
                let task = self.room.task(side, round).await.map_err(|error| rooms::unavailable(&error))?;
                if let Some(task) = task {
                    self.tell(round, side, &task, &mut events);
                }
            }
        }
        self.known.retain(|(number, _), _| rounds.iter().any(|round| round.number == *number));
        if let Some(after) = self.wire {
            for line in self.room.wire().after(after) {
                self.wire = Some(line.number);
                self.last.line = line.number;
                if self.sides.contains(&line.side) {
                    let seat = line.side.name().to_owned();
                    let wire = Some(shown_line(line, self.content));
                    events.push(RoomEvent {
                        cursor: self.last.written(),
                        seat,
                        wire,
                        ..RoomEvent::default()
                    });
                }
            }
        }
        Ok(events)
    }

    async fn look_at_leases(&mut self, events: &mut Vec<RoomEvent>) -> Result<(), AdminProblem> {
        let leases = self.room.leases().await.map_err(|error| rooms::unavailable(&error))?;
        for side in self.sides.clone() {
            let holding: Option<SeatHolding> = rooms::holding(&leases, side);
            let generation = holding.as_ref().map(|holding| holding.generation);
            if self.holders.insert(side, generation) == Some(generation) {
                continue;
            }
            let (seat, cursor) = (side.name().to_owned(), self.last.written());
            let is_free = holding.is_none().then_some(true);
            events.push(RoomEvent { cursor, seat, holding, is_free, ..RoomEvent::default() });
        }
        Ok(())
    }

    /// Tells what is new in a task.
    fn tell(&mut self, round: &Round, side: Side, task: &Task, events: &mut Vec<RoomEvent>) {
        let mut told = self.known.get(&(round.number, side)).copied().unwrap_or_default();
        if round.number > self.last.round {
            self.last = Position { round: round.number, line: self.last.line, ..Position::default() };
        }
        let is_last = round.number == self.last.round;
        let index = usize::from(side == Side::B);
        let event = |cursor: &Position| RoomEvent {
            cursor: cursor.written(),
            seat: side.name().to_owned(),
            round: Some(round.number),
            ..RoomEvent::default()
        };
        for mut message in rooms::transcript(side, task).into_iter().skip(told.messages) {
            told.messages += 1;
            if is_last {
                self.last.counts[index].0 = told.messages;
            }
            if !self.content {
                message.text.clear();
            }
            events.push(RoomEvent { message: Some(message), ..event(&self.last) });
        }
        for mut artifact in rooms::artifacts(task).into_iter().skip(told.artifacts) {
            told.artifacts += 1;
            if is_last {
                self.last.counts[index].1 = told.artifacts;
            }
            if !self.content {
                artifact.text.clear();
            }
            events.push(RoomEvent { artifact: Some(artifact), ..event(&self.last) });
        }
        let state = task.status.state;
        if told.state.replace(state) != Some(state) {
            events.push(RoomEvent { state: Some(state), ..event(&self.last) });
        }
        self.known.insert((round.number, side), told);
    }
}

fn shown_line(line: WireLine, content: bool) -> WireCall {
    WireCall {
        at: line.at,
        direction: match line.direction {
            Direction::In => "in".to_owned(),
            Direction::Out => "out".to_owned(),
        },
        operation: line.operation.to_owned(),
        version: line.version.to_string(),
        binding: line.binding.map(|binding| binding.as_str().to_owned()),
        bytes: line.bytes,
        faults: line.faults.into_iter().map(str::to_owned).collect(),
        payload: line.payload.filter(|_| content).map(|payload| payload.to_string()),
    }
}
