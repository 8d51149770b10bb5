//! The owner behind a handle: its number, its heartbeat, and adoption of the tasks of stopped owners.
//!
//! An owner is alive if its last heartbeat is recent by the clock of the database; the clocks of the hubs do
//! not matter.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use nuncio_protocol::TaskId;
use tokio::time::{MissedTickBehavior, timeout};
use tokio_postgres::Row;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{
    PostgresOptions, PostgresStore,
    link::{Link, Params, PgSession},
    names::{plain, text},
    read,
    signals::PgSignals,
};
use crate::store::{Orphan, Scope, StoreError, StoredTurn, Topic};

/// Adds a new owner, alive. Owners that have tasks but no row are added as stopped: they wrote after their
/// row was removed, and then stopped.
const ENTER: &str = "WITH RECURSIVE left_by(owner) AS (
      SELECT min(owner) FROM tasks WHERE busy OR pending > 0
      UNION ALL
      SELECT (SELECT min(t.owner) FROM tasks t WHERE (t.busy OR t.pending > 0) AND t.owner > l.owner)
      FROM left_by l WHERE l.owner IS NOT NULL),
    unlisted AS (
      INSERT INTO owners SELECT owner, '-infinity' FROM left_by WHERE owner IS NOT NULL
      ON CONFLICT DO NOTHING)
  INSERT INTO owners VALUES (nextval('epochs'), now()) RETURNING epoch";

const BEAT: &str =
    "INSERT INTO owners VALUES ($1, now()) ON CONFLICT (epoch) DO UPDATE SET beat = excluded.beat";

const LEAVE: &str = "UPDATE owners SET beat = '-infinity' WHERE epoch = $1";

/// Owners that stopped long ago and have no tasks left.
const GONE: &str = "SELECT epoch FROM owners o WHERE o.beat < now() - $1::bigint * interval '10 milliseconds'
  AND NOT EXISTS (SELECT FROM tasks t WHERE t.owner = o.epoch AND (t.busy OR t.pending > 0))";

/// Whether there are other owners, the agents with tasks or reservations of stopped ones, and the agents of our
/// tasks at which a turn waits. An owner without a row stopped long ago.
const LOOK: &str = "SELECT EXISTS (
      SELECT FROM owners WHERE epoch <> $1 AND beat >= now() - $2::bigint * interval '1 millisecond'),
    ARRAY(SELECT DISTINCT s.agent FROM (
      SELECT t.scope FROM owners o JOIN tasks t ON t.owner = o.epoch AND (t.busy OR t.pending > 0)
      WHERE o.beat < now() - $2::bigint * interval '1 millisecond'
      UNION SELECT r.scope FROM reservations r WHERE NOT EXISTS (
        SELECT FROM owners o
        WHERE o.epoch = r.owner AND o.beat >= now() - $2::bigint * interval '1 millisecond')) left_behind
      JOIN scopes s ON s.id = left_behind.scope),
    ARRAY(SELECT DISTINCT s.agent FROM tasks t JOIN scopes s ON s.id = t.scope
      WHERE t.owner = $1 AND t.pending > 0 AND (t.busy OR t.pending > 0))";

/// Locks scopes before counters, in the order of `erase`, to avoid deadlocks.
const LOCK_COUNTED: &str = "SELECT FROM scopes WHERE id IN (
    SELECT scope FROM counters WHERE owner = ANY($1::bigint[])) ORDER BY id FOR KEY SHARE";

/// Removes those owners, unless they are alive again, and adds their counts to those of owner 0.
const CLEAN: &str = "WITH gone AS (
      DELETE FROM owners o WHERE o.epoch = ANY($2::bigint[])
        AND o.beat < now() - $1::bigint * interval '10 milliseconds'
        AND NOT EXISTS (SELECT FROM tasks t WHERE t.owner = o.epoch AND (t.busy OR t.pending > 0))
      RETURNING epoch),
    counted AS (
      DELETE FROM counters c WHERE c.owner IN (SELECT epoch FROM gone) RETURNING scope, state, n)
  INSERT INTO counters SELECT scope, state, 0, sum(n) FROM counted GROUP BY scope, state HAVING sum(n) <> 0
    ORDER BY scope, state
  ON CONFLICT (scope, state, owner) DO UPDATE SET n = counters.n + excluded.n";

const ADOPT: &str = "WITH found AS (
      SELECT t.id FROM tasks t JOIN scopes s ON s.id = t.scope
      WHERE t.owner IN (SELECT epoch FROM owners WHERE beat < now() - $1::bigint * interval '1 millisecond')
        AND (t.busy OR t.pending > 0) AND s.agent = $2
      LIMIT $3 FOR UPDATE OF t SKIP LOCKED)
  UPDATE tasks t SET owner = $4 FROM found WHERE t.id = found.id RETURNING t.id";

/// Those of the adopted tasks that still belong to this owner.
const MINE: &str =
    "SELECT t.id, s.agent, s.tenant, s.owner, t.busy FROM tasks t JOIN scopes s ON s.id = t.scope
  WHERE t.id = ANY($1::text[]) AND t.owner = $2";

const TURNS: &str = "SELECT id, begun, body FROM turns WHERE task = $1 ORDER BY id";

/// The number of heartbeats between two looks for other owners and their tasks. Together with the time after
/// which an owner counts as stopped this is under ten seconds.
const HEARTBEATS_PER_LOOK: u32 = 2;

/// The number of heartbeats between two removals of stopped owners.
const HEARTBEATS_PER_CLEANUP: u32 = 10;

/// Registers a new owner; returns its number.
pub(super) async fn enter(session: &PgSession) -> Result<i64, StoreError> {
    let row = session.query_opt(ENTER, &[]).await?;
    row.map(|row| row.get(0)).ok_or_else(|| StoreError::broken("no number assigned to this owner"))
}

/// The heartbeat of an owner. When dropped, it tries to mark the owner as stopped.
#[derive(Debug)]
pub(super) struct Heart {
    task: TaskTracker,
    #[cfg(any(test, feature = "test-util"))]
    beating: tokio::task::AbortHandle,
    over: DropGuard,
}

impl Heart {
    pub(super) fn start(link: Link, epoch: i64, options: &PostgresOptions, signals: &Arc<PgSignals>) -> Self {
        let (task, over) = (TaskTracker::new(), CancellationToken::new());
        let beating = task.spawn(heartbeat(link, epoch, options.clone(), Arc::clone(signals), over.clone()));
        task.close();
        #[cfg(not(any(test, feature = "test-util")))]
        drop(beating);
        Self {
            task,
            #[cfg(any(test, feature = "test-util"))]
            beating: beating.abort_handle(),
            over: over.drop_guard(),
        }
    }

    /// Marks the owner as stopped, so that others need not wait for its heartbeat to lapse.
    pub(super) async fn rest(&self) {
        self.over.token().cancel();
        self.task.wait().await;
    }

    /// Ends the heartbeat as the end of the process would.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn stop(&self) {
        self.beating.abort();
    }
}

async fn heartbeat(
    link: Link,
    epoch: i64,
    options: PostgresOptions,
    signals: Arc<PgSignals>,
    over: CancellationToken,
) {
    let PostgresOptions { beat, lapse, .. } = options;
    let mut ticks = tokio::time::interval(beat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut beats, mut missed) = (0_u32, false);
    while over.run_until_cancelled(ticks.tick()).await.is_some() {
        beats = beats.wrapping_add(1);
        let mut done = link.query(BEAT, &[&epoch]).await.map(drop);
        if done.is_ok() && beats.is_multiple_of(HEARTBEATS_PER_LOOK) {
            done = timeout(beat.max(lapse / 4), look(&link, epoch, lapse, &signals)).await.unwrap_or(Ok(()));
        }
        if done.is_ok() && beats.is_multiple_of(HEARTBEATS_PER_CLEANUP) {
            // Bounded, so that the next heartbeat is not late; the removal is repeated anyway.
            done = timeout(beat.max(lapse / 4), clean(&link, lapse)).await.unwrap_or(Ok(()));
        }
        match &done {
            // Logged once: an outage may be long.
            Err(error) if !missed => tracing::warn!(%error, "cannot send the heartbeat; trying again"),
            Ok(()) if missed => tracing::info!("the heartbeat reaches the database again"),
            Err(_) | Ok(()) => {}
        }
        missed = done.is_err();
    }
    let _ = link.query(LEAVE, &[&epoch]).await;
}

/// Looks for other owners, and for tasks of stopped ones, once for all agents.
async fn look(link: &Link, epoch: i64, lapse: Duration, signals: &PgSignals) -> Result<(), StoreError> {
    let Some(row) = link.query_opt(LOOK, &[&epoch, &millis(lapse)]).await? else { return Ok(()) };
    signals.set_others(row.get(0));
    let agents: Vec<&str> = row.get(1);
    signals.tell_agents(Topic::Orphans, &agents);
    let agents: Vec<&str> = row.get(2);
    signals.tell_agents(Topic::Turns, &agents);
    Ok(())
}

async fn clean(link: &Link, lapse: Duration) -> Result<(), StoreError> {
    let lapse = millis(lapse);
    let gone: Vec<i64> = link.query(GONE, &[&lapse]).await?.iter().map(|row| row.get(0)).collect();
    if gone.is_empty() {
        return Ok(());
    }
    let transaction = link.begin().await?;
    transaction.session.query(LOCK_COUNTED, &[&gone]).await?;
    transaction.session.execute(CLEAN, &[&lapse, &gone]).await?;
    transaction.commit().await
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Tasks that were adopted but not yet returned to the caller, by agent: if the connection is lost in
/// between, the next call returns them. Locked during a whole adoption, so that no task is returned twice.
pub(super) type Doubt = tokio::sync::Mutex<HashMap<String, BTreeSet<String>>>;

/// Takes over the tasks of stopped owners. Their ids are noted before the commit.
pub(super) async fn adopt(
    store: &PostgresStore,
    agent: &str,
    limit: usize,
) -> Result<Vec<Orphan>, StoreError> {
    let mut doubt = store.doubt.lock().await;
    let transaction = store.side.begin().await?;
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let params: Params<'_> = &[&millis(store.lapse), &text(agent), &most, &store.epoch];
    let adopted = transaction.session.query(ADOPT, params).await?;
    if !adopted.is_empty() {
        doubt.entry(agent.to_owned()).or_default().extend(adopted.iter().map(|row| row.get(0)));
    }
    transaction.commit().await?;
    let Some(waiting) = doubt.get_mut(agent) else { return Ok(Vec::new()) };
    let ids: Vec<String> = waiting.iter().take(limit).cloned().collect();
    let mut orphans = Vec::with_capacity(ids.len());
    for row in store.reads().query(MINE, &[&ids, &store.epoch]).await? {
        orphans.extend(orphan(store, &row).await?);
    }
    waiting.retain(|id| ids.binary_search(id).is_err());
    if waiting.is_empty() {
        doubt.remove(agent);
    }
    Ok(orphans)
}

/// The adopted task, unless it was deleted meanwhile.
async fn orphan(store: &PostgresStore, row: &Row) -> Result<Option<Orphan>, StoreError> {
    let name = |column: usize| row.get::<_, Option<&str>>(column).map(|name| Arc::from(plain(name)));
    let scope = Scope { agent: plain(row.get(1)).into(), tenant: name(2), owner: name(3) };
    let id: TaskId = plain(row.get(0)).into_owned().into();
    let Some(stored) = read::task(store, &scope, &id).await? else { return Ok(None) };
    let turns = store.reads().query(TURNS, &[&text(id.as_str())]).await?;
    let turn = |row: &Row| StoredTurn {
        id: plain(row.get(0)).into(),
        begun: row.get(1),
        body: row.get::<_, Vec<u8>>(2).into(),
    };
    Ok(Some(Orphan {
        scope: Arc::new(scope),
        stored,
        busy: row.get(4),
        turns: turns.iter().map(turn).collect(),
    }))
}

/// Checks readiness by a small write: the heartbeat.
pub(super) async fn beat(store: &PostgresStore) -> Result<(), StoreError> {
    store.readiness.query(BEAT, &[&store.epoch]).await.map(drop)
}
