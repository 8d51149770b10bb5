//! Tasks that nobody works on at the moment: parked ones, tasks that the server begins by itself, and messages that
//! are held back.
//!
//! An executor parks its task ([`Emitter::park`]) when the work goes on elsewhere and later, such as at a worker that
//! has not come yet. Whoever brings news of it writes by [`Runtime::write_to`], at any server that shares the store.
//! Several writers are told apart by a record that each entry changes along with it ([`Emitter::put_record`]).
//!
//! **Invariant:** every entry that is written from here parks the task again, unless it settles it or begins the
//! execution of a held message. Therefore no server holds a parked task, and none has to take it up after a crash.

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{ContextId, Error, ErrorKind, Message, Result, TaskId};

use super::{
    Core, Runtime, emitter::Emitter, executor::Execution, live::LiveTaskRef, record::Recorder,
    stored_turn::TurnBody,
};
use crate::{
    id::new_id,
    store::{RecordChange, Scope, StoredTurn},
};

/// A message that is held back, and the changes of records that are made when it is executed.
#[derive(Clone, Debug)]
pub struct HeldMessage {
    /// The result of [`Execution::hold`].
    pub held: Bytes,
    /// Changes in one transaction with the message.
    pub records: Vec<RecordChange>,
}

impl Runtime {
    /// Opens a task to write to it outside of an execution. The task is parked, or interrupted; every entry parks it
    /// again, unless it settles the task.
    ///
    /// An emit returns when its event has its place in the log; [`Emitter::flush`] waits until it is stored, and fails
    /// if it was refused because another writer came first. Then nothing of it was written: open the task again.
    ///
    /// # Errors
    /// The task does not exist in this scope; another server works on it, or the store is down (try again).
    pub async fn write_to(&self, scope: &Arc<Scope>, id: &TaskId) -> Result<Emitter> {
        self.core.lifecycle.check_open()?;
        let live = self.core.live(scope, id).await?;
        self.core.refresh_memo(&live).await;
        if live.lock().owned_elsewhere {
            return Err(super::unavailable());
        }
        Ok(Emitter::new(Recorder::parking(&self.core, &live)))
    }

    /// Begins a task for the principal of this scope, without a call. The first event makes it, with this message as
    /// its history if there is one. Every entry parks the task, unless it settles it.
    ///
    /// The id of the task decides a race: of several servers that begin a task of the same id one succeeds, and
    /// [`Emitter::flush`] fails at the others.
    ///
    /// # Errors
    /// The task exists already, or the server is shutting down.
    pub fn begin_task(
        &self,
        scope: &Arc<Scope>,
        id: TaskId,
        context_id: ContextId,
        message: Option<Arc<Message>>,
    ) -> Result<Emitter> {
        self.core.lifecycle.check_open()?;
        if self.core.registry.get(scope, &id).is_some() {
            return Err(super::unavailable());
        }
        let live = self.core.registry.begin(id, context_id, Arc::clone(scope), message, None);
        Ok(Emitter::new(Recorder::parking(&self.core, &live)))
    }

    /// Executes messages that executions have [held back](Execution::hold), in this order. Their task must still be
    /// interrupted; otherwise nothing happens, and the result is false. Each message, the changes of records that come
    /// with it, and a status that interrupts the task no more are one transaction, so a repeat executes nothing twice.
    /// The messages survive a crash from then on.
    ///
    /// # Errors
    /// The task does not exist in this scope; a record has another version, another server works on the task, or the
    /// store is down (look at the records, and try again).
    pub async fn run_held(
        &self,
        scope: &Arc<Scope>,
        id: &TaskId,
        messages: Vec<HeldMessage>,
    ) -> Result<bool> {
        self.core.lifecycle.check_open()?;
        let live = self.core.live(scope, id).await?;
        self.core.refresh_memo(&live).await;
        {
            let state = live.lock();
            state.check_kept()?;
            if state.owned_elsewhere {
                return Err(super::unavailable());
            }
            if !state.state().is_interrupted() {
                return Ok(false);
            }
        }
        // Spawned, because the caller may leave: a stored turn must also run.
        let core = Arc::clone(&self.core);
        tokio::spawn(async move { core.run_stored(&live, messages).await })
            .await
            .map_err(Error::internal)??;
        Ok(true)
    }
}

impl Core {
    /// Stores turns whose messages are in the log, and runs them.
    async fn run_stored(self: &Arc<Self>, live: &LiveTaskRef, messages: Vec<HeldMessage>) -> Result<()> {
        let recorder = Recorder::new(self, live);
        let mut turns = Vec::with_capacity(messages.len());
        for HeldMessage { held, records } in messages {
            let turn = StoredTurn { id: new_id(), begun: false, body: held };
            let in_hand = self.turns.note(&turn.id);
            recorder.queue_held(turn.clone(), records).await?;
            turns.push((turn, in_hand));
        }
        live.until_committed().await;
        live.lock().check_kept()?;
        let task = live.lock().task().cloned().ok_or(ErrorKind::Internal)?;
        for (turn, in_hand) in turns {
            let turn = self.restore(live, &task, turn, in_hand).await?;
            live.lock().queue.push_back(turn);
        }
        self.run_queue(live);
        Ok(())
    }
}

impl Execution {
    /// This message as bytes, for an executor that interrupts the task and has the message executed later, by
    /// [`Runtime::run_held`]. It holds no content of the message, which is in the log.
    ///
    /// # Errors
    /// The metadata cannot be encoded.
    pub fn hold(&self) -> Result<Bytes> {
        TurnBody::held(self).encode(false).map(|turn| turn.body)
    }
}
