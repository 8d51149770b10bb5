//! The wire log of a room: the calls of both sides, with version, binding, size and validity.
//!
//! The log is a ring in the memory of each hub. **Invariant:** payloads are kept only while recording is on, and the
//! recording ends by itself.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use nuncio_protocol::{
    Binding, CallContext, Error, Timestamp, Version,
    op::{Call, Op, Reply},
};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use super::Side;
use crate::clock::now;

/// Number of lines that are kept.
const MAX_LINES: usize = 1_000;
/// Maximum size of a recorded payload in bytes; a larger one is cut.
const MAX_PAYLOAD_BYTES: usize = 16 * 1024;
/// The longest recording.
pub(crate) const MAX_RECORDING: Duration = Duration::from_secs(60 * 60);

/// The direction of a line, as the hub sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    In,
    Out,
}

/// A call of a party, or the answer to it.
#[derive(Clone, Debug)]
pub(crate) struct WireLine {
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
    pub(crate) side: Side,
    pub(crate) direction: Direction,
    pub(crate) operation: &'static str,
    pub(crate) version: Version,
    /// `None` for a party within the hub.
    pub(crate) binding: Option<Binding>,
    /// Size as JSON of version 1.0.
    pub(crate) bytes: usize,
    /// The deviations and the refusal; empty if it is valid.
    pub(crate) faults: Vec<&'static str>,
    pub(crate) payload: Option<Arc<str>>,
}

/// The call that lines are about.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireCall {
    side: Side,
    operation: &'static str,
    version: Version,
    binding: Option<Binding>,
}

impl WireCall {
    pub(super) fn new(side: Side, cx: &CallContext, call: &Call) -> Self {
        Self { side, operation: call.op().name(), version: cx.version, binding: cx.binding }
    }
}

/// The last lines of a room.
pub(crate) struct WireLog {
    lines: Mutex<Lines>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Lines {
    ring: VecDeque<WireLine>,
    last: u64,
    /// The end of the recording.
    recorded_until: Option<Timestamp>,
}

impl WireLog {
    pub(super) fn new() -> Self {
        Self { lines: Mutex::default(), changes: watch::Sender::new(0) }
    }

    /// Keeps payloads for this time; zero ends the recording. Returns its end.
    pub(crate) fn record(&self, time: Duration) -> Option<Timestamp> {
        let until = (!time.is_zero()).then(|| now() + time.min(MAX_RECORDING));
        self.lines.lock().recorded_until = until;
        until
    }

    /// The end of the recording that is on.
    pub(crate) fn recorded_until(&self) -> Option<Timestamp> {
        self.lines.lock().recorded_until.filter(|until| now() < *until)
    }

    /// The lines after this number, the first one first.
    pub(crate) fn after(&self, number: u64) -> Vec<WireLine> {
        let lines = self.lines.lock();
        let skipped = lines.ring.iter().take_while(|line| line.number <= number).count();
        lines.ring.iter().skip(skipped).cloned().collect()
    }

    /// The number of the last line.
    pub(crate) fn last(&self) -> u64 {
        self.lines.lock().last
    }

    /// Woken by every line.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Notes a call of a party.
    pub(super) fn note_call(&self, wire: WireCall, cx: &CallContext, call: &Call) {
        let mut faults = Vec::new();
        if cx.version_inferred {
            faults.push("version not stated");
        }
        if cx.has_unknown_fields {
            faults.push("unknown members");
        }
        match call {
            Call::SendMessage(request) | Call::SendStreamingMessage(request) => {
                self.note(wire, Direction::In, Some(&**request), faults);
            }
            Call::GetTask(request) => self.note(wire, Direction::In, Some(&**request), faults),
            Call::ListTasks(request) => self.note(wire, Direction::In, Some(&**request), faults),
            Call::CancelTask(request) => self.note(wire, Direction::In, Some(&**request), faults),
            Call::SubscribeToTask(request) => self.note(wire, Direction::In, Some(&**request), faults),
            // Webhooks have secrets in them.
            _ => self.note(wire, Direction::In, None::<&()>, faults),
        }
    }

    /// Notes the answer to a call. The events of a stream are noted one by one.
    pub(super) fn note_answer(&self, wire: WireCall, answer: &Result<Reply, Error>) {
        match answer {
            Ok(Reply::Stream(_)) => {}
            Ok(Reply::Sent(sent)) => self.note_out(wire, sent),
            Ok(Reply::Task(task)) => self.note_out(wire, task),
            Ok(Reply::Tasks(page)) => self.note_out(wire, page),
            Ok(_) => self.note(wire, Direction::Out, None::<&()>, Vec::new()),
            Err(error) => {
                self.note(wire, Direction::Out, Some(error.message()), vec![error.kind().row().reason]);
            }
        }
    }

    /// Notes something that a party gets.
    pub(super) fn note_out(&self, wire: WireCall, content: &impl Serialize) {
        self.note(wire, Direction::Out, Some(content), Vec::new());
    }

    /// Notes a message to the agent in a seat, or its answer.
    pub(crate) fn note_agent(&self, side: Side, direction: Direction, content: &impl Serialize) {
        let operation = Op::SendStreamingMessage.name();
        let wire = WireCall { side, operation, version: Version::V1_0, binding: None };
        self.note(wire, direction, Some(content), Vec::new());
    }

    fn note<T: Serialize + ?Sized>(
        &self,
        wire: WireCall,
        direction: Direction,
        content: Option<&T>,
        faults: Vec<&'static str>,
    ) {
        let at = now();
        let is_recorded = self.recorded_until().is_some();
        let mut sink = Sink { bytes: 0, kept: Vec::new(), keeps: is_recorded };
        // The sink takes everything, and what cannot be written has no size.
        let _ = content.map(|content| serde_json::to_writer(&mut sink, content));
        let payload = is_recorded.then(|| String::from_utf8_lossy(&sink.kept).as_ref().into());
        let mut lines = self.lines.lock();
        lines.last += 1;
        let WireCall { side, operation, version, binding } = wire;
        let (number, bytes) = (lines.last, sink.bytes);
        let line =
            WireLine { number, at, side, direction, operation, version, binding, bytes, faults, payload };
        if lines.ring.len() == MAX_LINES {
            lines.ring.pop_front();
        }
        lines.ring.push_back(line);
        drop(lines);
        self.changes.send_modify(|changes| *changes += 1);
    }
}

/// Counts bytes, and keeps the first ones.
struct Sink {
    bytes: usize,
    kept: Vec<u8>,
    keeps: bool,
}

impl io::Write for Sink {
    fn write(&mut self, written: &[u8]) -> io::Result<usize> {
        self.bytes += written.len();
        if self.keeps {
            let left = MAX_PAYLOAD_BYTES - self.kept.len();
            self.kept.extend_from_slice(&written[..written.len().min(left)]);
        }
        Ok(written.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
