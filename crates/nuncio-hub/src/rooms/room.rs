//! One room: its record in the store, its two runtimes, and the way of an event from one seat to the other.
//!
//! | step | by | in one transaction |
//! |---|---|---|
//! | a seat speaks | [`Room::say`], in an execution of its runtime | its status, and the record with the pending entry |
//! | the other seat catches up | [`Room::catch_up`] | its status, and the record without the entry |
//! | cancel, reset | [`Room::change`] | the record with an entry for each seat |
//!
//! The record has a version, and every writer names the one that it has read. Therefore of several hubs one wins, and
//! an entry is mirrored once, whatever is killed between two steps.

use std::{collections::HashSet, sync::Arc, time::Duration};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use nuncio_protocol::{
    Caller, Error, ErrorKind, Event, Message, MessageId, Metadata, Result, Role, TaskId, TaskState,
    TaskStatus, TaskStatusUpdateEvent,
};
use nuncio_server::{
    Emitter, ExecContext, Runtime,
    store::{Expect, Projection, PutRecord, Scope, Store, Topic},
};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};
use uuid::Uuid;

use super::{
    ChangedRooms,
    artifact::whole,
    lease::{Authority, SeatLease},
    round::{EndReason, Entry, Ledger, Next, Opening, PerSide, ROOM_EXTENSION, Round, RuleBreak, Side},
    wire::WireLog,
};
use crate::{
    clock::now,
    config::{self, Absent, Party},
    telemetry::Metrics,
};

/// The kind of the records.
pub(super) const KIND: &str = "room";
/// The tenant of the tasks of all rooms, which no credential has.
const TENANT: &str = "rooms";
/// Rounds that may be open at the same time in a room with parallel rounds.
const MAX_OPEN_ROUNDS: usize = 64;
/// Attempts to write while other hubs write to the same room.
pub(super) const MAX_ATTEMPTS: usize = 16;
/// The longest time for which a repeat waits for the first message.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages at the end of a task among which a pending one is looked for first.
const RECENT_MESSAGES: usize = 16;

/// A room as it is served.
pub(crate) struct Room {
    name: Arc<str>,
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    settings: ArcSwap<config::Room>,
    seats: PerSide<Seat>,
    /// One writer at a time on this hub; hubs are told apart by the version of the record.
    pub(super) writing: AsyncMutex<()>,
    /// Messages that are on their way into the transcript, so that a repeat waits for the first.
    in_flight: Mutex<HashSet<(Side, MessageId)>>,
    arrived: Notify,
    /// The number of changes that this hub knows of, for those who follow the room.
    changes: watch::Sender<u64>,
    /// The rooms that this hub has changed, for the drivers of agents.
    changed: Arc<ChangedRooms>,
    wire: WireLog,
    /// Shown by the drivers of agents; of this process only.
    secret: String,
}

/// A seat: the runtime that serves it, once it is served.
struct Seat {
    scope: Arc<Scope>,
    runtime: ArcSwapOption<Runtime>,
}

/// A message on its way. When it is dropped, a repeat may look for it.
pub(super) struct InFlight {
    room: Arc<Room>,
    side: Side,
    /// `None` if the execution of the message lets the repeat look.
    id: Option<MessageId>,
}

impl InFlight {
    /// Leaves the arrival to the execution that the message has now.
    pub(super) fn admit(mut self) {
        self.id = None;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.room.arrives(self.side, id);
        }
    }
}

impl Room {
    pub(super) fn new(
        settings: Arc<config::Room>,
        store: &Arc<dyn Store>,
        metrics: &Arc<Metrics>,
        changed: &Arc<ChangedRooms>,
    ) -> Self {
        let seat = |side: Side| Seat {
            scope: Arc::new(Scope {
                agent: (&*settings.seat_name(side == Side::B)).into(),
                tenant: Some(TENANT.into()),
                owner: Some(principal(&settings.name, side).into()),
            }),
            runtime: ArcSwapOption::empty(),
        };
        Self {
            name: (&*settings.name).into(),
            store: Arc::clone(store),
            metrics: Arc::clone(metrics),
            seats: PerSide::new(Side::A, seat(Side::A), seat(Side::B)),
            settings: ArcSwap::new(settings),
            writing: AsyncMutex::default(),
            in_flight: Mutex::default(),
            arrived: Notify::new(),
            changes: watch::Sender::new(0),
            changed: Arc::clone(changed),
            wire: WireLog::new(),
            secret: Uuid::now_v7().simple().to_string(),
        }
    }

    /// The calls of both sides.
    pub(crate) fn wire(&self) -> &WireLog {
        &self.wire
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(super) fn scope(&self, side: Side) -> &Arc<Scope> {
        &self.seats.of(side).scope
    }

    /// The changes of the room: the receiver is woken by each that this hub knows of.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Wakes those who follow the room.
    pub(super) fn wake(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Wakes those who follow the room, here and at other hubs.
    pub(super) fn announce(&self) {
        self.wake();
        self.changed.put(&self.name);
        self.store.signals().send(Topic::Records(KIND.into()), &self.name);
    }

    /// The name of the room.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> Arc<config::Room> {
        self.settings.load_full()
    }

    pub(super) fn configure(&self, settings: Arc<config::Room>) {
        self.settings.store(settings);
    }

    /// Serves a seat by this runtime from now on.
    pub(super) fn open_seat(&self, side: Side, runtime: &Runtime) {
        self.seats.of(side).runtime.store(Some(Arc::new(runtime.clone())));
    }

    /// True if both seats are served.
    pub(crate) fn is_open(&self) -> bool {
        Side::BOTH.iter().all(|side| self.seats.of(*side).runtime.load().is_some())
    }

    /// The caller as which all holders of a seat act.
    pub(crate) fn holder(&self, side: Side) -> Caller {
        Caller::authenticated(principal(&self.name, side)).of_tenant(TENANT)
    }

    /// Reads the record; the version is 0 if there is none yet.
    pub(super) async fn load(&self) -> Result<(Ledger, u64)> {
        let Some(record) = self.store.record(KIND, &self.name).await? else {
            return Ok((Ledger::new(Uuid::now_v7().simple().to_string()), 0));
        };
        let ledger = serde_json::from_slice(&record.value).map_err(Error::internal)?;
        Ok((ledger, record.version))
    }

    /// Sets the gauges of this room.
    pub(super) async fn measure(&self) {
        let Ok(rounds) = self.rounds().await else { return };
        for side in Side::BOTH {
            let waiting =
                rounds.iter().filter(|round| !round.has_ended() && round.turn() == Some(side)).count();
            self.metrics.room_waits(&self.name, side.name(), waiting);
        }
    }

    /// The rounds that are open or not mirrored yet, and the last one.
    pub(crate) async fn rounds(&self) -> Result<Vec<Round>> {
        self.load().await.map(|(ledger, _)| ledger.rounds)
    }

    /// The leases of the seats.
    pub(crate) async fn leases(&self) -> Result<PerSide<SeatLease>> {
        self.load().await.map(|(ledger, _)| ledger.leases)
    }

    /// The record in place of the one of this version.
    pub(super) fn put(&self, ledger: &Ledger, version: u64) -> Result<PutRecord> {
        let value = serde_json::to_vec(ledger).map_err(Error::internal)?;
        let expect = if version == 0 { Expect::Absent } else { Expect::Version(version) };
        Ok(PutRecord {
            kind: KIND.into(),
            key: Arc::clone(&self.name),
            value: Bytes::from(value),
            at: now(),
            expect,
        })
    }

    /// Waits until no message of this id is on its way, and lets this one go.
    pub(super) async fn depart(self: &Arc<Self>, side: Side, id: &MessageId) -> InFlight {
        let arrives = async {
            loop {
                let arrived = self.arrived.notified();
                if self.in_flight.lock().insert((side, id.clone())) {
                    return;
                }
                arrived.await;
            }
        };
        // A message whose turn was refused while it waited never arrives.
        let _ = tokio::time::timeout(ARRIVAL_TIMEOUT, arrives).await;
        InFlight { room: Arc::clone(self), side, id: Some(id.clone()) }
    }

    /// Waits until every message of this seat that is on its way has arrived, or was refused.
    pub(super) async fn until_arrived(&self, side: Side) {
        let arrives = async {
            loop {
                let arrived = self.arrived.notified();
                if !self.in_flight.lock().iter().any(|(from, _)| *from == side) {
                    return;
                }
                arrived.await;
            }
        };
        let _ = tokio::time::timeout(ARRIVAL_TIMEOUT, arrives).await;
    }

    /// Waits until no message is on its way.
    #[cfg(test)]
    pub(super) async fn until_quiet(&self) {
        loop {
            let arrived = self.arrived.notified();
            if self.in_flight.lock().is_empty() {
                return;
            }
            arrived.await;
        }
    }

    fn arrives(&self, side: Side, id: &MessageId) {
        self.in_flight.lock().remove(&(side, id.clone()));
        self.arrived.notify_waiters();
    }

    /// The task of this seat that has this message already.
    pub(super) async fn find_repeat(
        &self,
        side: Side,
        id: &MessageId,
        task: Option<&TaskId>,
    ) -> Result<Option<TaskId>> {
        let (ledger, _) = self.load().await?;
        let rounds =
            ledger.rounds.iter().filter(|round| task.is_none_or(|task| round.tasks.of(side) == task));
        for round in rounds {
            if round.said.of(side).as_ref() == Some(id)
                || self.find_message(side, round.tasks.of(side), id).await?.is_some()
            {
                return Ok(Some(round.tasks.of(side).clone()));
            }
        }
        Ok(None)
    }

    /// A message of this seat, from its task.
    async fn find_message(&self, side: Side, task: &TaskId, id: &MessageId) -> Result<Option<Arc<Message>>> {
        self.find_words(side, task, id, Role::User).await
    }

    /// A message of the seat itself, or of the other one, from the task of this seat.
    async fn find_words(
        &self,
        side: Side,
        task: &TaskId,
        id: &MessageId,
        role: Role,
    ) -> Result<Option<Arc<Message>>> {
        let scope = &self.seats.of(side).scope;
        for history in [Some(RECENT_MESSAGES), None] {
            let shown = Projection { artifacts: false, history };
            let Some(task) = self.store.shown(scope, task, shown).await? else { return Ok(None) };
            let is_it = |message: &&Arc<Message>| message.role == role && message.message_id == *id;
            let whole = history.is_none_or(|limit| task.history.len() < limit);
            if let Some(found) = task.status.message.iter().chain(task.history.iter().rev()).find(is_it) {
                return Ok(Some(Arc::clone(found)));
            }
            if whole {
                break;
            }
        }
        Ok(None)
    }

    /// Refuses a message that the rules do not admit, before anything of it is stored.
    pub(super) async fn check(&self, side: Side, by: &Authority, message: &Message) -> Result<()> {
        let (ledger, _) = self.load().await?;
        let settings = self.settings();
        ledger.check_authority(side, by, &settings, now())?;
        let Some(task) = &message.task_id else {
            let full = settings.has_parallel_rounds() && ledger.open().count() >= MAX_OPEN_ROUNDS;
            return if full { Err(too_many_rounds()) } else { Ok(()) };
        };
        // A task of no round is unknown, or has ended long ago: the runtime says so.
        let Some(round) = ledger.of_task(side, task) else { return Ok(()) };
        let next = Next::of(&message.metadata);
        round.check(side, next, settings.strict_turns).map_err(refusal)
    }

    /// Applies the message of an execution, and tells the other seat.
    pub(super) async fn say(&self, side: Side, cx: &ExecContext, out: Emitter) -> Result<()> {
        let applied = {
            let _alone = self.writing.lock().await;
            let applied = self.apply(side, cx, out).await;
            if applied.is_ok()
                && let Err(error) = self.mirror(Some((side, &cx.message))).await
            {
                // The entry is in the record: the sweeper goes on.
                tracing::warn!(room = &*self.name, %error, "the other seat of a room could not be told yet");
            }
            applied
        };
        self.arrives(side, &cx.message.message_id);
        self.announce();
        applied
    }

    async fn apply(&self, side: Side, cx: &ExecContext, mut out: Emitter) -> Result<()> {
        let mut attempts = 0;
        loop {
            let (mut ledger, version) = self.load().await?;
            let settings = self.settings();
            let (message, next) = (cx.message.message_id.clone(), Next::of(&cx.message.metadata));
            let now = now();
            if cx.resumed
                && let Some(round) = ledger.of_task(side, &cx.task_id)
                && self.is_applied(round, side, &message).await?
            {
                return out.park();
            }
            let is_new = ledger.of_task(side, &cx.task_id).is_none();
            let is_attended = ledger.leases.of(side.other()).holder(now).is_some();
            let round = match ledger.of_task_mut(side, &cx.task_id) {
                None => {
                    if settings.has_parallel_rounds() && ledger.open().count() >= MAX_OPEN_ROUNDS {
                        return out.refuse(too_many_rounds());
                    }
                    let opening = Opening {
                        side,
                        task: cx.task_id.clone(),
                        context_id: cx.context_id.clone(),
                        message,
                        next,
                        now,
                    };
                    ledger.begin(opening, settings.has_parallel_rounds())
                }
                // The hub was killed after the entry and before the end of the execution.
                Some(round) if round.said.of(side).as_ref() == Some(&message) => return out.park(),
                Some(round) => match round.say(side, message, next, false, now) {
                    Ok(()) => round,
                    // The other side has just ended the round: its entry comes, and ends the task.
                    Err(RuleBreak::Ended | RuleBreak::OutOfTurn) => return out.park(),
                },
            };
            if !cx.call.hops.is_empty() {
                round.hops.clone_from(&cx.call.hops);
            }
            let ended = bound(round, side, &settings, is_attended);
            let (state, number) = (*round.states.of(side), round.number);
            out.park()?;
            out.put_record(self.put(&ledger, version)?)?;
            let event = self.status(side, state, None, number, ended);
            let written = match out.emit(event).await {
                Ok(()) => out.flush().await,
                Err(error) => Err(error),
            };
            attempts += 1;
            match written {
                Err(error) if error.kind() == ErrorKind::Unavailable && attempts < MAX_ATTEMPTS => {
                    // Another hub wrote to the room first. What this execution has begun is gone with its attempt,
                    // unless the task was there before; so is the message, if it was refused along with it. Then its
                    // caller is told to try again.
                    if self.find_message(side, &cx.task_id, &cx.message.message_id).await?.is_none() {
                        return Err(error);
                    }
                    let Some(runtime) = self.runtime(side) else { return Err(error) };
                    out =
                        runtime.write_to(&self.seats.of(side).scope, &cx.task_id).await.map_err(|_| error)?;
                }
                Ok(()) => {
                    self.metrics.room_turn(&self.name, is_new);
                    return Ok(());
                }
                failed => return failed,
            }
        }
    }

    /// True if the other seat has this message of a turn that runs again, or is owed it.
    async fn is_applied(&self, round: &Round, side: Side, id: &MessageId) -> Result<bool> {
        let other = side.other();
        let is_owed = |entry: &Entry| entry.to == other && entry.message.as_ref() == Some(id);
        Ok(round.said.of(side).as_ref() == Some(id)
            || round.pending.iter().any(is_owed)
            || self.find_words(other, round.tasks.of(other), id, Role::Agent).await?.is_some())
    }

    pub(super) fn runtime(&self, side: Side) -> Option<Arc<Runtime>> {
        self.seats.of(side).runtime.load_full()
    }

    /// Brings both seats up to the record.
    ///
    /// # Errors
    /// The store is down, or another hub writes to a task; the sweeper tries again.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let _alone = self.writing.lock().await;
        self.mirror(None).await
    }

    /// Writes every pending entry to its seat. `known` is the message of a seat that is at hand.
    pub(super) async fn mirror(&self, known: Option<(Side, &Arc<Message>)>) -> Result<()> {
        let (mut conflicts, mut seen) = (0, 0);
        loop {
            let (mut ledger, version) = self.load().await?;
            let Some(round) = ledger.rounds.iter_mut().find(|round| !round.pending.is_empty()) else {
                return Ok(());
            };
            let Some(entry) = round.pending.pop_front() else { return Ok(()) };
            let round = round.clone();
            ledger.tidy();
            match self.write(&round, &entry, &ledger, version, known).await {
                Ok(()) => {}
                Err(error) => match error.kind() {
                    // The task is gone, or has ended already: there is nothing to tell.
                    ErrorKind::TaskNotFound | ErrorKind::UnsupportedOperation => {
                        self.store.put_records(vec![self.put(&ledger, version)?]).await?;
                    }
                    ErrorKind::Unavailable if version != seen && conflicts < MAX_ATTEMPTS => {
                        (conflicts, seen) = (conflicts + 1, version);
                    }
                    _ => return Err(error),
                },
            }
        }
    }

    /// Writes one entry to its seat, in one transaction with the record that no longer owes it.
    async fn write(
        &self,
        round: &Round,
        entry: &Entry,
        ledger: &Ledger,
        version: u64,
        known: Option<(Side, &Arc<Message>)>,
    ) -> Result<()> {
        let (side, task) = (entry.to, round.tasks.of(entry.to));
        let Some(runtime) = self.runtime(side) else { return Err(not_served()) };
        let message = match &entry.message {
            None => None,
            Some(id) => {
                let known = known.filter(|(from, known)| *from != side && known.message_id == *id);
                match known {
                    Some((_, message)) => Some(Arc::clone(message)),
                    None => self.find_message(side.other(), round.tasks.of(side.other()), id).await?,
                }
            }
        };
        let scope = &self.seats.of(side).scope;
        let out = if entry.begins {
            runtime.begin_task(scope, task.clone(), round.context_id.clone(), None)?
        } else {
            runtime.write_to(scope, task).await?
        };
        let event = match &entry.artifact {
            Some(id) => match self.find_artifact(side.other(), round, id).await? {
                Some(artifact) => whole(artifact),
                None => return Err(ErrorKind::TaskNotFound.into()),
            },
            None => {
                let message = message.map(|message| as_seen(&message, round, side));
                self.status(side, entry.state, message, round.number, entry.ended)
            }
        };
        out.put_record(self.put(ledger, version)?)?;
        out.emit(event).await?;
        out.flush().await
    }

    /// A status of a seat's task. Its metadata tell the room and the round.
    fn status(
        &self,
        side: Side,
        state: TaskState,
        message: Option<Arc<Message>>,
        round: u64,
        ended: Option<EndReason>,
    ) -> Event {
        let mut metadata = Metadata::new();
        let mut about = serde_json::json!({ "room": &*self.name, "seat": side.name(), "round": round });
        if let (Some(reason), Some(about)) = (ended, about.as_object_mut()) {
            about.insert("ended".to_owned(), serde_json::json!(reason));
        }
        metadata.insert(ROOM_EXTENSION, about);
        Event::StatusUpdate(TaskStatusUpdateEvent {
            status: TaskStatus { state, message, timestamp: None },
            metadata,
            ..TaskStatusUpdateEvent::default()
        })
    }

    /// Changes the record by itself, and brings both seats up to it. Returns what `change` has returned; `None` of it
    /// writes nothing.
    pub(crate) async fn change<T>(
        &self,
        mut change: impl FnMut(&mut Ledger) -> Option<T> + Send,
    ) -> Result<Option<T>> {
        let _alone = self.writing.lock().await;
        for _ in 0..MAX_ATTEMPTS {
            let (mut ledger, version) = self.load().await?;
            let Some(changed) = change(&mut ledger) else { return Ok(None) };
            let written = self.store.put_records(vec![self.put(&ledger, version)?]).await?;
            if written.iter().all(std::result::Result::is_ok) {
                let mirrored = self.mirror(None).await;
                self.announce();
                return mirrored.map(|()| Some(changed));
            }
        }
        Err(contended())
    }

    /// Refuses a call by somebody who may not speak at this seat now.
    pub(super) async fn check_authority(&self, side: Side, by: &Authority) -> Result<()> {
        let (ledger, _) = self.load().await?;
        ledger.check_authority(side, by, &self.settings(), now())
    }

    /// Cancels the round of this task; false if there is none that is open.
    pub(super) async fn cancel(&self, side: Side, task: &TaskId) -> Result<bool> {
        let canceled = self
            .change(|ledger| {
                let round = ledger.of_task_mut(side, task).filter(|round| !round.has_ended())?;
                round.cancel(now());
                Some(())
            })
            .await?;
        Ok(canceled.is_some())
    }

    /// Cancels all open rounds; with `begin` the next one begins, in which seat a has the floor. Returns the number of
    /// canceled rounds.
    pub(crate) async fn reset(&self, begin: bool) -> Result<usize> {
        let reset = self
            .change(|ledger| {
                let open = ledger.open().count();
                if begin {
                    ledger.begin_again(Uuid::now_v7().to_string().into(), now());
                } else {
                    ledger.rounds.iter_mut().for_each(|round| round.cancel(now()));
                }
                Some(open)
            })
            .await?;
        Ok(reset.unwrap_or_default())
    }
}

/// Ends the round, or lets it wait, after a message of this seat: it was the last one, or nobody is there to answer.
fn bound(round: &mut Round, side: Side, settings: &config::Room, is_attended: bool) -> Option<EndReason> {
    if round.has_ended() {
        return None;
    }
    let is_missed = settings.party(side.other() == Side::B) == Party::Person
        && !is_attended
        && round.turn() == Some(side.other());
    let reason = if settings.is_between_agents() && round.turns >= u64::from(settings.max_turns) {
        EndReason::MaxTurns
    } else if is_missed && settings.absent == Absent::Fail {
        EndReason::Absent
    } else {
        if is_missed {
            round.wait(side);
        }
        return None;
    };
    round.cut(reason);
    Some(reason)
}

pub(super) fn not_served() -> Error {
    Error::new(ErrorKind::Unavailable, "a seat of the room is not served; try again")
}

pub(super) fn contended() -> Error {
    Error::new(ErrorKind::Unavailable, "other hubs write to this room; try again")
}

/// The principal of a seat: whoever may call the agent of a seat holds it.
fn principal(room: &str, side: Side) -> String {
    format!("room:{room}/{}", side.name())
}

/// A message of one seat as the other sees it: the words of an agent, in its own task.
fn as_seen(message: &Message, round: &Round, viewer: Side) -> Arc<Message> {
    Arc::new(Message {
        role: Role::Agent,
        task_id: Some(round.tasks.of(viewer).clone()),
        context_id: Some(round.context_id.clone()),
        // Tasks of one seat are unknown to the other.
        reference_task_ids: Vec::new(),
        ..message.clone()
    })
}

pub(super) fn refusal(broken: RuleBreak) -> Error {
    let why = match broken {
        RuleBreak::Ended => "the round has ended; send a message without a task to begin the next one",
        RuleBreak::OutOfTurn => {
            "the other side speaks now, and this room keeps turns; wait for input-required"
        }
    };
    Error::new(ErrorKind::UnsupportedOperation, why)
}

fn too_many_rounds() -> Error {
    let why = format!("the room has {MAX_OPEN_ROUNDS} open rounds; end some of them first");
    Error::new(ErrorKind::ResourceExhausted, why)
}
