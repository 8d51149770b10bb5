//! Rounds that end without a word of a party: with a task that was ended otherwise, or because nobody came.

use nuncio_protocol::{Result, TaskState};
use nuncio_server::store::Projection;

use super::{
    Room,
    round::{EndReason, Ledger, Round, Side},
};
use crate::clock::now;

impl Room {
    /// Ends rounds of which one task has ended outside of the conversation, such as by a limit of bytes, or was erased.
    pub(super) async fn end_with_tasks(&self) -> Result<()> {
        for round in
            self.rounds().await?.iter().filter(|round| !round.has_ended() && round.pending.is_empty())
        {
            for side in Side::BOTH {
                let (scope, task) = (self.scope(side), round.tasks.of(side));
                let shown = Projection { artifacts: false, history: Some(0) };
                let found = self.store().shown(scope, task, shown).await?;
                let state = found.map_or(TaskState::Canceled, |task| task.status.state);
                if !state.is_terminal() {
                    continue;
                }
                let end = |ledger: &mut Ledger| {
                    let open = |round: &&mut Round| !round.has_ended() && round.pending.is_empty();
                    ledger.of_task_mut(side, task).filter(open)?.end_after(side, state, now());
                    Some(())
                };
                self.change(end).await?;
            }
        }
        Ok(())
    }

    /// Ends rounds whose last message has waited for a party for too long.
    pub(super) async fn expire(&self) -> Result<()> {
        let timeout = self.settings().absent_timeout;
        let is_over = |round: &Round| {
            Side::BOTH.iter().any(|side| round.waits_for(*side)) && round.changed + timeout <= now()
        };
        if self.rounds().await?.iter().any(is_over) {
            let expire = |ledger: &mut Ledger| {
                let rounds = ledger.rounds.iter_mut().filter(|round| is_over(round));
                rounds.for_each(|round| round.fail(EndReason::Expired, now()));
                Some(())
            };
            self.change(expire).await?;
        }
        Ok(())
    }
}
