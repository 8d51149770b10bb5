//! Applies each step to a store and to the model, and compares.

use std::{cmp::Reverse, fmt::Debug, sync::Arc};

use nuncio_protocol::{Seq, TaskId, TaskState};

use super::{
    make::Run,
    model::FoundAnswer,
    step::{CALLERS, RandomEntry, RandomFilter, RandomStep, RandomTurn},
};
use crate::store::{
    AdminTaskQuery, ErasureTarget, HandIn, Keyset, Orphan, Outcome, Projection, Prune, Pruned, Scope, Store,
    StoreError, TaskQuery, TurnChange, WaitingQuery,
    conformance::{at, context},
};

/// The difference between store and model, as an error.
pub(super) type Agreed<T = ()> = Result<T, String>;

/// An owner: its number, and its handle.
pub(super) type StoreOwner = (usize, Arc<dyn Store>);

fn same<T: PartialEq + Debug>(what: impl Debug, found: &T, wanted: &T) -> Agreed {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what:?}\n  store: {found:?}\n  model: {wanted:?}"))
}

fn well<T>(result: Result<T, StoreError>) -> Agreed<T> {
    result.map_err(|error| error.to_string())
}

impl Run {
    /// Applies one step to the store and to the model.
    pub(super) async fn step(&mut self, owners: &[StoreOwner], step: &RandomStep) -> Agreed {
        self.done.push(step.clone());
        let owner = |handle: &usize| &owners[handle % owners.len()];
        match step {
            RandomStep::Commit { handle, entries } => self.commit(owner(handle), entries).await,
            RandomStep::Turn { handle, task, foreign, turn } => {
                let id = self.id(*task);
                // The contract does not define turns of an ended task.
                if self.model.any(&id).is_some_and(|known| known.state().is_terminal()) {
                    return Ok(());
                }
                let change = TurnChange::Queue(self.turn(turn));
                self.change(owner(handle), &id, *foreign, change).await
            }
            RandomStep::Begin { handle, task, foreign, turn, drop } => {
                let id: Arc<str> = format!("{turn:06}").into();
                let change = if *drop { TurnChange::Drop(id) } else { TurnChange::Begin(id) };
                self.change(owner(handle), &self.id(*task), *foreign, change).await
            }
            RandomStep::HandIn { handle, task, foreign, key } => {
                let turn = self.turn(&RandomTurn { again: None, begun: false });
                let handed = HandIn { turn, key: self.key(*key), at: at(1), max_waiting: 3 };
                self.hand_in(owner(handle), &self.id(*task), *foreign, handed).await
            }
            RandomStep::Reply { handle, caller, key, at: when } => {
                let (scope, key) = (self.scope(*caller), self.key(*key));
                let reply = Arc::new(self.message(None, &[]));
                let (store, when) = (&owner(handle).1, at(*when as i64));
                well(store.put_reply(&scope, key.clone(), Arc::clone(&reply), when).await)?;
                self.model.put_reply(&scope, &key, &reply, when);
                Ok(())
            }
            RandomStep::Adopt { handle, limit } => {
                let orphans = well(owner(handle).1.adopt(&self.agent, *limit).await)?;
                same("orphans of the living", &orphans.len(), &0)
            }
            RandomStep::Prune { handle, state, before, limit } => {
                let what = state.map_or(Pruned::Replies, Pruned::Tasks);
                self.prune(&*owner(handle).1, what, *before, *limit).await
            }
            RandomStep::Erase { handle, caller, limit } => {
                self.erase(&*owner(handle).1, &self.scope(*caller), *limit).await
            }
            RandomStep::Read { handle, task, foreign, after, limit } => {
                let id = self.id(*task);
                let scope = self.scope_of(&id, *task, *foreign);
                self.read(owner(handle), &scope, &id, *after, *limit).await
            }
            RandomStep::List { handle, caller, filter } => {
                self.list(&*owner(handle).1, &self.scope(*caller), filter).await
            }
            RandomStep::Answer { handle, caller, key } => {
                self.answer(&*owner(handle).1, &self.scope(*caller), *key).await
            }
        }
    }

    async fn commit(&mut self, owner: &StoreOwner, entries: &[RandomEntry]) -> Agreed {
        let (mut batch, mut wanted) = (Vec::new(), Vec::new());
        for entry in entries {
            let Some(commit) = self.entry(owner.0, entry) else { continue };
            wanted.push(self.model.commit(owner.0, &commit));
            batch.push(commit);
        }
        let found = well(owner.1.commit(batch.clone()).await)?;
        same("results", &found, &wanted)?;
        for commit in batch {
            self.read(owner, &commit.scope, &commit.task_id, commit.expected.0, 9).await?;
        }
        Ok(())
    }

    async fn change(&mut self, owner: &StoreOwner, id: &TaskId, foreign: bool, change: TurnChange) -> Agreed {
        let scope = self.scope_of(id, 0, foreign);
        let wanted = self.model.turn(owner.0, &scope, id, &change);
        same(&change, &well(owner.1.update_turn(&scope, id, change.clone()).await)?, &wanted)?;
        self.read(owner, &scope, id, 0, 1).await
    }

    async fn hand_in(&mut self, owner: &StoreOwner, id: &TaskId, foreign: bool, handed: HandIn) -> Agreed {
        let scope = self.scope_of(id, 0, foreign);
        let wanted = self.model.hand_in(owner.0, &scope, id, &handed);
        same(&handed, &well(owner.1.hand_in(&scope, id, handed.clone()).await)?, &wanted)?;
        self.waiting(owner).await
    }

    /// Compares the turns that wait at tasks of this owner.
    async fn waiting(&self, (me, store): &StoreOwner) -> Agreed {
        let (agent, limit) = (Arc::from(&*self.agent), 1_000);
        let query = WaitingQuery { agent, tasks: None, except: Vec::new(), limit };
        let found = well(store.waiting_turns(&query).await)?;
        let found: Vec<_> = found.into_iter().map(|found| (found.scope, found.task_id, found.turn)).collect();
        same("waiting turns", &found, &self.model.waiting(*me))
    }

    async fn prune(&mut self, store: &dyn Store, what: Pruned, before: usize, limit: usize) -> Agreed {
        let prune = Prune { agent: self.agent.as_str().into(), what, before: at(before as i64) };
        let (limit, wanted) = self.model.prune(&prune, limit);
        same(&prune, &well(store.prune(&prune, limit).await)?, &wanted)?;
        self.renew();
        Ok(())
    }

    async fn erase(&mut self, store: &dyn Store, scope: &Scope, limit: usize) -> Agreed {
        let whose = ErasureTarget {
            agent: Some(Arc::clone(&scope.agent)),
            tenant: scope.tenant.clone(),
            owner: scope.owner.clone(),
        };
        let wanted = self.model.erase(&whose);
        let mut erased = 0;
        loop {
            let gone = well(store.erase(&whose, limit).await)?;
            erased += gone;
            if gone == 0 {
                break;
            }
            same("at most so many", &gone.max(limit), &limit)?;
        }
        self.renew();
        same(&whose, &erased, &wanted)
    }

    async fn read(&self, owner: &StoreOwner, scope: &Scope, id: &TaskId, after: u64, limit: usize) -> Agreed {
        let (me, store) = owner;
        let known = self.model.find(scope, id);
        let wanted = known.map(|known| (&known.task, known.seq(), known.is_held(*me), &known.memo));
        let found = well(store.task(scope, id).await)?;
        let found = found.as_ref().map(|stored| (&stored.task, stored.seq, stored.held, &stored.memo));
        same(("task", id), &found, &wanted)?;
        for shown in [(true, Some(0)), (true, Some(1)), (false, Some(2))] {
            let shown = Projection { artifacts: shown.0, history: shown.1 };
            let wanted = known.map(|known| {
                let mut task = known.task.clone();
                shown.apply(&mut task);
                task
            });
            same(("shown", id, shown), &well(store.shown(scope, id, shown).await)?, &wanted)?;
        }
        let log = known.map(|known| known.log.as_slice()).unwrap_or_default();
        let wanted = log.iter().skip(after as usize).take(limit).cloned().collect();
        same(
            ("events", id, after, limit),
            &well(store.events(scope, id, Seq(after), limit).await)?,
            &wanted,
        )?;
        same(("links", id), &well(store.links(scope, id).await)?, &self.model.links(scope, id))
    }

    async fn list(&self, store: &dyn Store, scope: &Scope, filter: &RandomFilter) -> Agreed {
        let query = TaskQuery {
            context_id: filter.context.map(|number| context(&format!("c-{number}"))),
            state: filter.state,
            since: filter.since.map(|when| at(when as i64)),
            after: filter.after.map(|(when, slot)| Keyset { timestamp: at(when as i64), id: self.id(slot) }),
            limit: filter.limit,
            without_artifacts: filter.without_artifacts,
            history: filter.history,
            except: filter.except.map(|slot| self.id(slot)),
            max_bytes: None,
            strict_bytes: false,
            count: true,
            max_counted: None,
        };
        let (tasks, more, total) = self.model.list(scope, &query);
        let page = well(store.tasks(scope, &query).await)?;
        same(&query, &(page.tasks, page.more, page.total), &(tasks, more, Some(total)))
    }

    async fn answer(&self, store: &dyn Store, scope: &Scope, number: usize) -> Agreed {
        let name = self.key(number).key;
        let found: FoundAnswer =
            well(store.idempotent_outcome(scope, &name).await)?.map(|answer| match answer.outcome {
                Outcome::Task(id) => (answer.digest, id.to_string()),
                Outcome::Reply(reply) => (answer.digest, reply.message_id.to_string()),
                Outcome::Reserved { reservation, .. } => (answer.digest, reservation.task_id.to_string()),
            });
        same(("answer", number), &found, &self.model.answer(scope, &name))
    }

    /// Compares everything that can be read.
    pub(super) async fn whole(&self, owners: &[StoreOwner]) -> Agreed {
        for owner in owners {
            self.survey(&*owner.1).await?;
            self.waiting(owner).await?;
            for known in &self.model.tasks {
                self.read(owner, &known.scope, &known.task.id, 0, 1_000).await?;
            }
            for caller in 0..CALLERS {
                let scope = self.scope(caller);
                for state in std::iter::once(None).chain(TaskState::ALL.iter().map(Some)) {
                    let state = state.copied();
                    let (context, since, after, except) = (None, None, None, None);
                    let (limit, without_artifacts, history) = (100, false, None);
                    let filter = RandomFilter {
                        context,
                        state,
                        since,
                        after,
                        except,
                        limit,
                        without_artifacts,
                        history,
                    };
                    self.list(&*owner.1, &scope, &filter).await?;
                }
                for number in 0..4 {
                    self.answer(&*owner.1, &scope, number).await?;
                }
            }
        }
        Ok(())
    }

    /// Compares the operators' queries.
    async fn survey(&self, store: &dyn Store) -> Agreed {
        let (agent, limit) = (Arc::from(&*self.agent), 1_000);
        let query = AdminTaskQuery { agent: Some(agent), limit, ..AdminTaskQuery::default() };
        let page = well(store.all_tasks(&query).await)?;
        let mut wanted: Vec<_> = self.model.tasks.iter().collect();
        wanted.sort_by_key(|known| Reverse((known.task.status.timestamp, &known.task.id)));
        let wanted: Vec<_> =
            wanted.iter().map(|known| (&known.task.id, known.state(), known.seq())).collect();
        let found: Vec<_> = page.tasks.iter().map(|row| (&row.id, row.state, row.seq)).collect();
        same("all tasks", &found, &wanted)?;
        for count in well(store.count_tasks().await)?.iter().filter(|count| *count.agent == *self.agent) {
            let wanted = self.model.tasks.iter().filter(|known| known.state() == count.state).count();
            same(count, &count.tasks, &(wanted as u64))?;
        }
        Ok(())
    }

    /// Applies an adoption to the model, and compares the orphans.
    pub(super) fn adopted(&mut self, heir: usize, gone: usize, orphans: &[Orphan]) -> Agreed {
        let told = |orphan: &Orphan| {
            let Orphan { scope, stored, busy, turns } = orphan;
            (Arc::clone(scope), stored.task.clone(), stored.seq, *busy, turns.clone(), stored.memo.clone())
        };
        let mut found: Vec<_> = orphans.iter().map(told).collect();
        found.sort_by(|a, b| a.1.id.cmp(&b.1.id));
        let left = self.model.tasks.iter_mut().filter(|known| known.owner == gone && known.is_left());
        let mut wanted: Vec<_> = left
            .map(|known| {
                known.owner = heir;
                let (scope, turns) = (Arc::clone(&known.scope), known.turns.clone());
                (scope, known.task.clone(), known.seq(), known.busy, turns, known.memo.clone())
            })
            .collect();
        wanted.sort_by(|a, b| a.1.id.cmp(&b.1.id));
        same("orphans", &found, &wanted)
    }
}
