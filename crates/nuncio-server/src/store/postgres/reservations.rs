//! Reservations. Concurrent ones become one statement, as entries do.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use nuncio_protocol::TaskId;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::{Row, error::SqlState};
use uuid::Uuid;

use super::{
    PostgresStore,
    columns::{Param, Ready, Step, step},
    link::{ATTEMPTS, Link, again, code, were_others},
    names::{plain, scope_id, text},
    owner::millis,
};
use crate::store::{
    IdempotencyKey, Refused, Reservation, Scope, StoreError,
    codec::{damaged, moment},
    judge,
};

/// Returns the ids that are reserved by this owner now, including those of an earlier attempt.
const RESERVE: &str = "WITH n AS (
      SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bytea[], $5::bigint[], $6::bytea[])
        AS n(id, scope, key, digest, at, body)),
    named AS (
      INSERT INTO scopes (id, agent, tenant, owner)
      SELECT * FROM unnest($8::uuid[], $9::text[], $10::text[], $11::text[]) ON CONFLICT DO NOTHING),
    keyed AS (
      INSERT INTO answers (scope, key, digest, at, reserved)
      SELECT scope, key, digest, at, id FROM n WHERE key IS NOT NULL ORDER BY scope, key
      ON CONFLICT DO NOTHING RETURNING reserved),
    put AS (
      INSERT INTO reservations (id, scope, key, owner, at, body)
      SELECT id, scope, key, $7::bigint, at, body FROM n WHERE key IS NULL OR id IN (SELECT reserved FROM keyed)
      ON CONFLICT DO NOTHING RETURNING id)
  SELECT id FROM put UNION SELECT r.id FROM n JOIN reservations r ON r.id = n.id AND r.owner = $7";

const RELEASE: &str = "WITH gone AS (
      DELETE FROM reservations WHERE id = $1 AND scope = $2 AND owner = $3 RETURNING scope, key)
  DELETE FROM answers a USING gone WHERE a.scope = gone.scope AND a.key = gone.key";

/// Fails with a division by zero unless every reservation exists, and is this owner's or taken.
const END: &str = "WITH ended AS (
      DELETE FROM reservations r USING unnest($1::text[], $2::uuid[], $3::boolean[]) AS n(id, scope, take)
      WHERE r.id = n.id AND r.scope = n.scope AND (r.owner = $4 OR n.take) RETURNING r.id, r.scope, r.key),
    answered AS (
      UPDATE answers a SET task = ended.id, reserved = NULL FROM ended
      WHERE a.scope = ended.scope AND a.key = ended.key)
  SELECT 1 / (count(*) = $5::bigint)::int FROM ended";

/// An owner without a row stopped long ago.
const ABANDONED: &str = "SELECT r.id, r.key, a.digest, r.at, r.body, s.tenant, s.owner
  FROM reservations r JOIN scopes s ON s.id = r.scope LEFT JOIN answers a ON a.scope = r.scope AND a.key = r.key
  WHERE s.agent = $1 AND NOT EXISTS (
    SELECT FROM owners o WHERE o.epoch = r.owner AND o.beat >= now() - $2::bigint * interval '1 millisecond')
  ORDER BY r.at, r.id LIMIT $3";

/// The maximum number of reservations in one statement, and their maximum size in bytes.
const MAX_RESERVATIONS: usize = 1_024;
const MAX_BYTES: usize = 32 << 20;

type ReserveResult = Result<Result<(), Refused>, StoreError>;

/// A reservation to make, and the channel for the result.
pub(super) struct ReservationJob {
    reservation: Reservation,
    done: oneshot::Sender<ReserveResult>,
}

pub(super) async fn reserve(store: &PostgresStore, reservation: Reservation) -> ReserveResult {
    let (done, answer) = oneshot::channel();
    let stopped = || StoreError::down("the writer has stopped");
    store.reservations.send(ReservationJob { reservation, done }).await.map_err(|_| stopped())?;
    answer.await.map_err(|_| stopped())?
}

/// Makes the queued reservations, until all senders are dropped.
pub(super) async fn run(link: Link, me: i64, mut queue: mpsc::Receiver<ReservationJob>) {
    while let Some(first) = queue.recv().await {
        let mut bytes = first.reservation.body.len();
        let mut jobs = vec![first];
        while jobs.len() < MAX_RESERVATIONS
            && bytes < MAX_BYTES
            && let Ok(job) = queue.try_recv()
        {
            bytes += job.reservation.body.len();
            jobs.push(job);
        }
        let made = reserve_all(&link, me, jobs.iter().map(|job| &job.reservation)).await;
        for ReservationJob { reservation, done } in jobs {
            let answer = match &made {
                Ok(made) => Ok(judge::key(!made.contains(&reservation.task_id))),
                Err(error) => Err(again(error)),
            };
            // The caller may be gone.
            let _ = done.send(answer);
        }
    }
}

/// Returns the ids that are reserved by this owner.
async fn reserve_all<'a>(
    link: &Link,
    me: i64,
    wanted: impl Iterator<Item = &'a Reservation> + Clone,
) -> Result<HashSet<TaskId>, StoreError> {
    let key = |kept: &'a Reservation| kept.idempotency.as_ref();
    let ids: Vec<Cow<'_, str>> = wanted.clone().map(|kept| text(kept.task_id.as_str())).collect();
    let scopes: Vec<Uuid> = wanted.clone().map(|kept| scope_id(&kept.scope)).collect();
    let keys: Vec<Option<Cow<'_, str>>> =
        wanted.clone().map(|kept| key(kept).map(|key| text(&key.key))).collect();
    let digests: Vec<Option<&[u8]>> =
        wanted.clone().map(|kept| key(kept).map(|key| &key.digest[..])).collect();
    let moments: Vec<i64> = wanted.clone().map(|kept| kept.at.as_millis()).collect();
    let bodies: Vec<&[u8]> = wanted.clone().map(|kept| &kept.body[..]).collect();
    let names: BTreeMap<Uuid, &Scope> = wanted.map(|kept| (scope_id(&kept.scope), &*kept.scope)).collect();
    let named: Vec<Uuid> = names.keys().copied().collect();
    let agents: Vec<Cow<'_, str>> = names.values().map(|scope| text(&scope.agent)).collect();
    let tenants: Vec<Option<Cow<'_, str>>> =
        names.values().map(|scope| scope.tenant.as_deref().map(text)).collect();
    let owners: Vec<Option<Cow<'_, str>>> =
        names.values().map(|scope| scope.owner.as_deref().map(text)).collect();
    for _ in 0..ATTEMPTS {
        let rows = link
            .query(
                RESERVE,
                &[&ids, &scopes, &keys, &digests, &moments, &bodies, &me, &named, &agents, &tenants, &owners],
            )
            .await;
        match rows {
            Ok(rows) => return Ok(rows.iter().map(|row| plain(row.get(0)).into_owned().into()).collect()),
            Err(error) if were_others(&error) || is_erased(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::down("too many conflicts with concurrent transactions"))
}

/// True if a scope was erased concurrently; the next attempt inserts it again.
fn is_erased(error: &StoreError) -> bool {
    code(error).is_some_and(|code| *code == SqlState::FOREIGN_KEY_VIOLATION)
}

pub(super) async fn release(store: &PostgresStore, scope: &Scope, id: &TaskId) -> Result<(), StoreError> {
    store.reads().query(RELEASE, &[&text(id.as_str()), &scope_id(scope), &store.epoch]).await.map(drop)
}

pub(super) async fn abandoned(
    store: &PostgresStore,
    agent: &str,
    limit: usize,
) -> Result<Vec<Reservation>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = store.reads().query(ABANDONED, &[&text(agent), &millis(store.lapse), &limit]).await?;
    let name =
        |row: &Row, column: usize| row.get::<_, Option<&str>>(column).map(|name| Arc::from(plain(name)));
    let one = |row: &Row| {
        read(row, 0, Arc::new(Scope { agent: agent.into(), tenant: name(row, 5), owner: name(row, 6) }))
    };
    rows.iter().map(one).collect()
}

/// Decodes a reservation from five columns, from `first` on: id, key, digest, time, body.
pub(super) fn read(row: &Row, first: usize, scope: Arc<Scope>) -> Result<Reservation, StoreError> {
    let key = row.get::<_, Option<&str>>(first + 1).map(|key| Arc::from(plain(key)));
    let digest =
        row.get::<_, Option<&[u8]>>(first + 2).map(<[u8; 32]>::try_from).transpose().map_err(damaged)?;
    Ok(Reservation {
        scope,
        task_id: plain(row.get(first)).into_owned().into(),
        idempotency: key.zip(digest).map(|(key, digest)| IdempotencyKey { key, digest }),
        at: moment(row.get(first + 3))?,
        body: Bytes::from(row.get::<_, Vec<u8>>(first + 4)),
    })
}

/// Ends the reservations of tasks that are created, and assigns their keys to the tasks.
pub(super) fn end<'a>(writes: &[&'a Ready], me: i64) -> Option<Step<'a>> {
    let mut reserved: Vec<_> = writes.iter().copied().filter(|w| w.write.reserved).collect();
    reserved.sort_by(|a, b| a.write.id.cmp(&b.write.id));
    let each = || reserved.iter();
    (!reserved.is_empty()).then(|| {
        step!(
            END,
            each().map(|w| w.id()).collect::<Vec<_>>(),
            each().map(|w| w.scope()).collect::<Vec<_>>(),
            each().map(|w| w.write.take).collect::<Vec<_>>(),
            me,
            reserved.len() as i64,
        )
    })
}
