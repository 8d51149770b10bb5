//! Random steps as data: printed when they fail, and removed one by one to find those that matter.

use nuncio_protocol::TaskState;
use rand::{RngExt as _, rngs::StdRng};

/// Tasks, callers and keys are few, so that steps collide.
pub(super) const TASKS: usize = 6;
pub(super) const CALLERS: usize = 3;
const KEYS: usize = 4;
const MOMENTS: usize = 8;

/// One step; a `handle` is taken modulo the number of handles.
#[derive(Clone, Debug)]
pub(super) enum RandomStep {
    Commit { handle: usize, entries: Vec<RandomEntry> },
    Turn { handle: usize, task: usize, foreign: bool, turn: RandomTurn },
    Begin { handle: usize, task: usize, foreign: bool, turn: usize, drop: bool },
    HandIn { handle: usize, task: usize, foreign: bool, key: usize },
    Reply { handle: usize, caller: usize, key: usize, at: usize },
    Adopt { handle: usize, limit: usize },
    Prune { handle: usize, state: Option<TaskState>, before: usize, limit: usize },
    Erase { handle: usize, caller: usize, limit: usize },
    Read { handle: usize, task: usize, foreign: bool, after: u64, limit: usize },
    List { handle: usize, caller: usize, filter: RandomFilter },
    Answer { handle: usize, caller: usize, key: usize },
}

/// An entry of a batch. `caller` is the scope of a task that does not exist.
#[derive(Clone, Debug)]
pub(super) struct RandomEntry {
    pub(super) task: usize,
    pub(super) caller: usize,
    pub(super) foreign: bool,
    /// The difference between the expected version and the actual one.
    pub(super) off: i64,
    pub(super) event: RandomEvent,
    pub(super) at: usize,
    pub(super) key: Option<usize>,
    pub(super) turn: Option<RandomTurn>,
    pub(super) take: bool,
}

/// The event of an entry.
#[derive(Clone, Debug)]
pub(super) enum RandomEvent {
    Create { context: usize, refers: Vec<usize>, state: TaskState },
    Status { state: TaskState, at: usize, says: bool },
    Chunk { artifact: usize, append: bool, joins: bool },
    Say { refers: Vec<usize> },
}

/// A turn: a new one, or an earlier one again.
#[derive(Clone, Debug)]
pub(super) struct RandomTurn {
    pub(super) again: Option<usize>,
    pub(super) begun: bool,
}

/// The query of a list.
#[derive(Clone, Debug)]
pub(super) struct RandomFilter {
    pub(super) context: Option<usize>,
    pub(super) state: Option<TaskState>,
    pub(super) since: Option<usize>,
    pub(super) after: Option<(usize, usize)>,
    pub(super) except: Option<usize>,
    pub(super) limit: usize,
    pub(super) without_artifacts: bool,
    pub(super) history: Option<usize>,
}

/// The source of randomness.
pub(super) struct Dice<'a>(pub(super) &'a mut StdRng);

impl Dice<'_> {
    fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    fn maybe<T>(&mut self, chance: usize, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.percent(chance).then(|| make(self))
    }

    fn state(&mut self) -> TaskState {
        // Tasks are in this state for most of their time.
        if self.percent(30) { TaskState::Working } else { TaskState::ALL[1 + self.below(8)] }
    }

    fn refers(&mut self) -> Vec<usize> {
        if self.percent(60) {
            Vec::new()
        } else {
            (0..1 + self.below(3)).map(|_| self.below(TASKS)).collect()
        }
    }

    fn turn(&mut self) -> RandomTurn {
        RandomTurn { again: self.maybe(20, |dice| dice.below(20)), begun: self.percent(40) }
    }

    fn entry(&mut self) -> RandomEntry {
        let event = match self.below(10) {
            0..3 => RandomEvent::Create {
                context: self.below(2),
                refers: self.refers(),
                state: if self.percent(90) { TaskState::Submitted } else { self.state() },
            },
            3..7 => {
                RandomEvent::Status { state: self.state(), at: self.below(MOMENTS), says: self.percent(40) }
            }
            7..9 => RandomEvent::Chunk {
                artifact: self.below(2),
                append: self.percent(70),
                joins: self.percent(50),
            },
            _ => RandomEvent::Say { refers: self.refers() },
        };
        RandomEntry {
            task: self.below(TASKS),
            caller: self.below(CALLERS),
            foreign: self.percent(8),
            off: if self.percent(90) { 0 } else { self.below(3) as i64 - 1 },
            event,
            at: self.below(MOMENTS),
            key: self.maybe(20, |dice| dice.below(KEYS)),
            turn: self.maybe(20, Self::turn),
            take: self.percent(10),
        }
    }

    fn filter(&mut self) -> RandomFilter {
        RandomFilter {
            context: self.maybe(40, |dice| dice.below(3)),
            state: self.maybe(40, Self::state),
            since: self.maybe(40, |dice| dice.below(MOMENTS)),
            after: self.maybe(40, |dice| (dice.below(MOMENTS), dice.below(TASKS))),
            except: self.maybe(20, |dice| dice.below(TASKS)),
            limit: 1 + self.below(4),
            without_artifacts: self.percent(30),
            history: self.maybe(30, |dice| dice.below(3)),
        }
    }

    pub(super) fn step(&mut self) -> RandomStep {
        let (handle, task, caller, foreign) =
            (self.below(6), self.below(TASKS), self.below(CALLERS), self.percent(15));
        let (key, limit) = (self.below(KEYS), self.below(6));
        match self.below(100) {
            0..50 => {
                let several = if self.percent(60) { 1 } else { 2 + self.below(8) };
                RandomStep::Commit { handle, entries: (0..several).map(|_| self.entry()).collect() }
            }
            50..58 => RandomStep::Turn { handle, task, foreign, turn: self.turn() },
            58..64 => {
                RandomStep::Begin { handle, task, foreign, turn: self.below(20), drop: self.percent(30) }
            }
            96..98 => RandomStep::HandIn { handle, task, foreign, key },
            64..69 => RandomStep::Reply { handle, caller, key, at: self.below(MOMENTS) },
            69..71 => RandomStep::Adopt { handle, limit },
            71..76 => RandomStep::Prune {
                handle,
                state: self.maybe(80, Self::state),
                before: self.below(MOMENTS + 1),
                limit,
            },
            76..78 => RandomStep::Erase { handle, caller, limit: 1 + limit },
            78..85 => RandomStep::Read { handle, task, foreign, after: self.below(6) as u64, limit },
            85..96 => RandomStep::List { handle, caller, filter: self.filter() },
            _ => RandomStep::Answer { handle, caller, key },
        }
    }
}
