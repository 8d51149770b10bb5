//! A context as a conversation: the earlier tasks that an executor may read.

use std::{fmt, sync::Arc};

use nuncio_protocol::{ContextId, Result, Role, Task, TaskId};

use crate::store::{Projection, Scope, Store, TaskPage, TaskQuery};

/// The limits of a conversation that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EarlierLimit {
    /// The maximum number of turns: messages of the caller, with their results.
    pub turns: usize,
    /// The approximate maximum number of bytes.
    pub bytes: usize,
}

impl Default for EarlierLimit {
    fn default() -> Self {
        Self { turns: 20, bytes: 200_000 }
    }
}

/// A conversation up to a task.
#[derive(Clone, Debug, Default)]
pub struct Earlier {
    /// The newest tasks up to the limit, oldest first.
    pub tasks: Vec<Task>,
    /// The number of older tasks, which the limit leaves out.
    pub left_out: usize,
}

/// The tasks of one agent and one caller.
#[derive(Clone)]
pub(super) struct Conversation {
    store: Arc<dyn Store>,
    scope: Arc<Scope>,
}

impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Conversation").field(&self.scope).finish()
    }
}

impl Conversation {
    pub(super) fn new(store: &Arc<dyn Store>, scope: &Arc<Scope>) -> Self {
        Self { store: Arc::clone(store), scope: Arc::clone(scope) }
    }

    /// The newest tasks of this context but for this one, oldest first.
    pub(super) async fn earlier(
        &self,
        context_id: &ContextId,
        except: &TaskId,
        limit: EarlierLimit,
    ) -> Result<Earlier> {
        let query = TaskQuery {
            context_id: Some(context_id.clone()),
            except: Some(except.clone()),
            // Each task has a turn.
            limit: limit.turns,
            max_bytes: Some(limit.bytes),
            strict_bytes: true,
            ..TaskQuery::default()
        };
        let page = match limit.turns {
            0 => TaskPage { more: true, ..TaskPage::default() },
            _ => self.store.tasks(&self.scope, &query).await?,
        };
        let mut tasks = page.tasks;
        // Counted only for conversations beyond the limit.
        let all = if page.more { self.count(query, except).await? } else { tasks.len() };
        keep_turns(&mut tasks, limit.turns);
        tasks.reverse();
        let left_out = all.saturating_sub(tasks.len());
        Ok(Earlier { tasks, left_out })
    }

    /// The number of tasks of a context but for this one, which may not be stored yet.
    async fn count(&self, query: TaskQuery, except: &TaskId) -> Result<usize> {
        let nothing = Projection { artifacts: false, history: Some(0) };
        let query = TaskQuery { count: true, limit: 1, without_artifacts: true, history: Some(0), ..query };
        let total = self.store.tasks(&self.scope, &query).await?.total.unwrap_or_default();
        let own = self.store.shown(&self.scope, except, nothing).await?;
        Ok(total.saturating_sub(usize::from(own.is_some())))
    }
}

/// Keeps the last turns of tasks, which come newest first.
fn keep_turns(tasks: &mut Vec<Task>, mut left: usize) {
    tasks.retain_mut(|task| {
        if left == 0 {
            return false;
        }
        let said = task.history.iter().enumerate().filter(|(_, message)| message.role == Role::User);
        let turns: Vec<usize> = said.map(|(place, _)| place).collect();
        if let Some(surplus) = turns.len().checked_sub(left + 1) {
            task.history.drain(..turns[surplus + 1]);
        }
        left = left.saturating_sub(turns.len().max(1));
        true
    });
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::{Message, Part};

    use super::*;

    /// A task by the first letters of those who spoke: `uaua`.
    fn task(said: &str) -> Task {
        let message = |(number, who): (usize, char)| {
            let (id, part) = (number.to_string(), Part::text("x"));
            Arc::new(if who == 'u' { Message::user(id, part) } else { Message::agent(id, part) })
        };
        Task { history: said.chars().enumerate().map(message).collect(), ..Task::default() }
    }

    #[test]
    fn turns_are_counted_from_the_newest() {
        for (tasks, turns, expected) in [
            (&["u", "u", "u"][..], 5, &["u", "u", "u"][..]),
            (&["u", "u", "u"], 2, &["u", "u"]),
            (&["uaua", "u"], 3, &["uaua", "u"]),
            (&["uaua", "u"], 2, &["uaua"]),
            (&["uaua", "u"], 1, &["ua"]),
            (&["u", "auauu"], 3, &["u", "uu"]),
            // A task in which nobody has spoken takes a place, too.
            (&["", "a", "u"], 2, &["", "a"]),
        ] {
            let mut kept: Vec<Task> = tasks.iter().map(|said| task(said)).collect();
            keep_turns(&mut kept, turns);
            let letter = |message: &Arc<Message>| if message.role == Role::User { 'u' } else { 'a' };
            let said: Vec<String> =
                kept.iter().map(|task| task.history.iter().map(letter).collect()).collect();
            assert_eq!(said, expected, "{tasks:?} {turns}");
        }
    }
}
