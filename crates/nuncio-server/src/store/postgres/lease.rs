//! Leasing due webhooks, and settling them.
//!
//! ```text
//! lease   free the webhooks of stopped owners; lease due ones; read their deliveries
//! settle  BEGIN, lock, outcomes, release, COMMIT    pipelined
//! ```
//! A lease never waits for a lock: locked rows are left for the next call. A settlement locks rows by uid, as
//! all writers do, to avoid deadlocks.

use std::{collections::BTreeMap, sync::Arc};

use nuncio_protocol::Timestamp;
use tokio_postgres::Row;

use super::{
    PostgresStore,
    columns::{Param, Step, pipeline, step},
    link::Params,
    names::{plain, text},
    owner::millis,
    read::{number, seq},
    webhooks::webhook,
};
use crate::store::{
    DeliveryOutcome, Lease, Leased, Leases, Owed, Scope, Settled, StoreError, Then, codec::moment,
    outbox::MAX_ATTEMPTS,
};

/// Frees the webhooks of stopped owners, with or without a row, and those that this owner does not know it
/// has leased.
const FREE: &str = "WITH RECURSIVE holders AS (
      (SELECT holder FROM webhooks WHERE holder IS NOT NULL ORDER BY holder LIMIT 1)
      UNION ALL
      SELECT n.holder FROM holders h CROSS JOIN LATERAL (
        SELECT w.holder FROM webhooks w WHERE w.holder IS NOT NULL AND w.holder > h.holder
        ORDER BY w.holder LIMIT 1) n),
    suspect AS (
      SELECT h.holder FROM holders h LEFT JOIN owners o ON o.epoch = h.holder
      WHERE h.holder = $1 OR o.epoch IS NULL OR o.beat < now() - $2::bigint * interval '1 millisecond'),
    free AS (
      SELECT w.uid FROM suspect s JOIN webhooks w ON w.holder = s.holder
      WHERE s.holder <> $1 OR w.uid NOT IN (SELECT unnest($3::text[])) FOR UPDATE OF w SKIP LOCKED)
  UPDATE webhooks w SET holder = NULL FROM free WHERE w.uid = free.uid";

/// Visits the targets in the order of their names, with one index lookup each, and leases those webhooks of
/// each that are due longest. If the limit is not reached, it also returns the next due time. The last column
/// turns off waiting for the disk in this transaction. If the database crashes, another owner may lease the
/// same webhooks; the receiver then gets a delivery twice with the same id, as after any crash.
const LEASE: &str = "WITH RECURSIVE later AS (
      (SELECT target, due_at FROM webhooks WHERE due_at IS NOT NULL AND holder IS NULL AND target > $3
       ORDER BY target, due_at LIMIT 1)
      UNION ALL
      SELECT n.target, n.due_at FROM later l CROSS JOIN LATERAL (
        SELECT w.target, w.due_at FROM webhooks w
        WHERE w.due_at IS NOT NULL AND w.holder IS NULL AND w.target > l.target
        ORDER BY w.target, w.due_at LIMIT 1) n),
    earlier AS (
      (SELECT target, due_at FROM webhooks WHERE due_at IS NOT NULL AND holder IS NULL AND target <= $3
       ORDER BY target, due_at LIMIT 1)
      UNION ALL
      SELECT n.target, n.due_at FROM earlier e CROSS JOIN LATERAL (
        SELECT w.target, w.due_at FROM webhooks w
        WHERE w.due_at IS NOT NULL AND w.holder IS NULL AND w.target > e.target AND w.target <= $3
        ORDER BY w.target, w.due_at LIMIT 1) n),
    ring AS (
      SELECT target, due_at FROM (SELECT * FROM later UNION ALL SELECT * FROM earlier) r
      WHERE target NOT IN (SELECT unnest($4::text[]))),
    picked AS (
      SELECT p.uid FROM ring r CROSS JOIN LATERAL (
        SELECT w.uid FROM webhooks w
        WHERE w.target = r.target AND w.due_at IS NOT NULL AND w.holder IS NULL AND w.due_at <= $2
          AND w.agent = ANY($1::text[])
        ORDER BY w.due_at, w.uid LIMIT $6 FOR UPDATE SKIP LOCKED) p
      WHERE r.due_at <= $2 LIMIT $5),
    taken AS (
      UPDATE webhooks w SET holder = $7 FROM picked p WHERE w.uid = p.uid
      RETURNING w.uid, w.target, w.due_at)
  SELECT ARRAY(SELECT uid FROM taken ORDER BY target <= $3, target, due_at, uid),
    CASE WHEN (SELECT count(*) FROM taken) < $5 THEN (
      SELECT min(n.due_at) FROM ring r CROSS JOIN LATERAL (
        SELECT w.due_at FROM webhooks w
        WHERE w.target = r.target AND w.due_at IS NOT NULL AND w.holder IS NULL
          AND w.agent = ANY($1::text[]) AND w.uid NOT IN (SELECT uid FROM taken)
        ORDER BY w.due_at, w.uid LIMIT 1) n) END,
    set_config('synchronous_commit', 'off', true)";

/// Runs after the webhooks are leased, so that deliveries that another owner has just settled are not
/// included.
const OWED: &str = "SELECT w.uid, w.id, w.target, w.body, w.task, s.agent, s.tenant, s.owner,
    d.seqs, d.sinces, d.attempts
  FROM unnest($1::text[]) WITH ORDINALITY AS n(uid, place)
    JOIN webhooks w ON w.uid = n.uid AND w.holder = $2 JOIN scopes s ON s.id = w.scope
    CROSS JOIN LATERAL (
      SELECT array_agg(o.seq) AS seqs, array_agg(o.since) AS sinces, array_agg(o.attempts) AS attempts FROM (
        SELECT seq, since, attempts FROM deliveries WHERE webhook = w.uid AND state = 0
        ORDER BY seq LIMIT $3) o) d
  ORDER BY n.place";

/// New deliveries for these webhooks wait for the end of the transaction; the next statements see all earlier
/// ones.
const LOCK: &str = "SELECT FROM unnest($1::text[]) AS n(uid) JOIN webhooks w ON w.uid = n.uid
  WHERE w.holder = $2 ORDER BY w.uid FOR UPDATE OF w";

const OUTCOMES: &str = "UPDATE deliveries d SET state = o.state, attempts = d.attempts + o.n,
    recent = (d.recent || o.attempts)[greatest(cardinality(d.recent) + o.n - $6::integer + 1, 1):]
  FROM (
      SELECT uid, seq, (array_agg(state ORDER BY place DESC))[1] AS state, count(*)::integer AS n,
        array_agg(attempt ORDER BY place) AS attempts
      FROM unnest($1::text[], $2::bigint[], $3::smallint[], $4::text[]) WITH ORDINALITY
        AS n(uid, seq, state, attempt, place) GROUP BY uid, seq) o
    JOIN webhooks w ON w.uid = o.uid AND w.holder = $5
  WHERE d.webhook = o.uid AND d.seq = o.seq AND d.state = 0";

const BURY: &str = "UPDATE deliveries d SET state = 2
  FROM unnest($1::text[]) AS n(uid) JOIN webhooks w ON w.uid = n.uid AND w.holder = $2
  WHERE d.webhook = n.uid AND d.state = 0";

const RELEASE: &str = "UPDATE webhooks w SET holder = NULL, stopped = w.stopped OR n.stops,
    due_at = CASE WHEN EXISTS (SELECT FROM deliveries d WHERE d.webhook = w.uid AND d.state = 0)
      THEN n.due_at END
  FROM unnest($1::text[], $2::bigint[], $3::boolean[]) AS n(uid, due_at, stops)
  WHERE w.uid = n.uid AND w.holder = $4";

/// Leases due webhooks. If the connection is lost meanwhile, the next call frees them again.
pub(super) async fn lease(store: &PostgresStore, lease: &Lease) -> Result<Leases, StoreError> {
    let texts = |names: &[Arc<str>]| names.iter().map(|name| text(name).into_owned()).collect::<Vec<_>>();
    let (agents, except, in_hand) = (texts(&lease.agents), texts(&lease.except), texts(&lease.in_hand));
    let count = |most: usize| i64::try_from(most).unwrap_or(i64::MAX);
    let (limit, each, owed) = (count(lease.limit), count(lease.each), count(lease.owed));
    let _turn = store.outbox.turn().await;
    let link = &store.outbox;
    link.query(FREE, &[&store.epoch, &millis(store.lapse), &in_hand]).await?;
    let (now, after) = (lease.now.as_millis(), text(&lease.after));
    let params: Params<'_> = &[&agents, &now, &after, &except, &limit, &each, &store.epoch];
    let Some(row) = link.query_opt(LEASE, params).await? else { return Ok(Leases::default()) };
    let next = row.get::<_, Option<i64>>(1).map(moment).transpose()?;
    let uids: Vec<&str> = row.get(0);
    let rows =
        if uids.is_empty() { Vec::new() } else { link.query(OWED, &[&uids, &store.epoch, &owed]).await? };
    Ok(Leases { leased: rows.iter().map(leased).collect::<Result<_, _>>()?, next })
}

fn leased(row: &Row) -> Result<Leased, StoreError> {
    let seqs: Vec<i64> = row.get::<_, Option<_>>(8).unwrap_or_default();
    let sinces: Vec<i64> = row.get::<_, Option<_>>(9).unwrap_or_default();
    let attempts: Vec<i32> = row.get::<_, Option<_>>(10).unwrap_or_default();
    let owed = seqs.into_iter().zip(sinces).zip(attempts).map(|((entry, since), attempts)| {
        Ok(Owed { seq: seq(entry), since: moment(since)?, attempts: u32::try_from(attempts).unwrap_or(0) })
    });
    Ok(Leased {
        scope: scope(row, 5),
        task_id: plain(row.get(4)).into_owned().into(),
        webhook: webhook(row, 0),
        owed: owed.collect::<Result<_, StoreError>>()?,
    })
}

/// Decodes a scope from three columns, from `first` on.
pub(super) fn scope(row: &Row, first: usize) -> Arc<Scope> {
    let name = |column: usize| row.get::<_, Option<&str>>(first + column).map(|name| Arc::from(plain(name)));
    Arc::new(Scope { agent: plain(row.get(first)).into(), tenant: name(1), owner: name(2) })
}

/// The merged outcomes of one webhook.
#[derive(Default)]
struct Fate<'a> {
    outcomes: Vec<&'a DeliveryOutcome>,
    then: Option<Then>,
}

/// Merges outcomes by uid. Outcomes after a release are ignored: the webhook was not leased any more.
fn fates(settled: &[Settled]) -> BTreeMap<&str, Fate<'_>> {
    let mut fates: BTreeMap<&str, Fate<'_>> = BTreeMap::new();
    for Settled { webhook, outcomes, then } in settled {
        let fate = fates.entry(webhook).or_default();
        if matches!(fate.then, None | Some(Then::Keep)) {
            fate.outcomes.extend(outcomes);
            fate.then = Some(*then);
        }
    }
    fates
}

/// Stores outcomes. Not repeated after an error, because attempts would be counted twice; the deliveries are
/// then sent again.
pub(super) async fn settle(store: &PostgresStore, settled: &[Settled]) -> Result<(), StoreError> {
    if settled.is_empty() {
        return Ok(());
    }
    let fates = fates(settled);
    let mut steps: Vec<Step<'_>> =
        vec![step!(LOCK, fates.keys().map(|uid| text(uid)).collect::<Vec<_>>(), store.epoch)];
    outcomes(&fates, store.epoch, &mut steps)?;
    releases(&fates, store.epoch, &mut steps);
    let _turn = store.outbox.turn().await;
    let session = store.outbox.session().await?;
    pipeline(&session, Some("BEGIN"), &steps, Some("COMMIT")).await
}

fn outcomes<'a>(
    fates: &BTreeMap<&'a str, Fate<'a>>,
    me: i64,
    steps: &mut Vec<Step<'a>>,
) -> Result<(), StoreError> {
    let each = || fates.iter().flat_map(|(uid, fate)| fate.outcomes.iter().map(|outcome| (*uid, *outcome)));
    if each().next().is_some() {
        let attempts = each().map(|(_, outcome)| serde_json::to_string(&outcome.attempt));
        steps.push(step!(
            OUTCOMES,
            each().map(|(uid, _)| text(uid)).collect::<Vec<_>>(),
            each().map(|(_, outcome)| number(outcome.seq)).collect::<Vec<_>>(),
            each().map(|(_, outcome)| outcome.state.code()).collect::<Vec<_>>(),
            attempts.collect::<Result<Vec<_>, _>>().map_err(StoreError::broken)?,
            me,
            MAX_ATTEMPTS as i32,
        ));
    }
    Ok(())
}

fn releases<'a>(fates: &BTreeMap<&'a str, Fate<'a>>, me: i64, steps: &mut Vec<Step<'a>>) {
    let mut ends: Vec<(&str, Timestamp, bool)> = Vec::new();
    for (uid, fate) in fates {
        match fate.then {
            Some(Then::Release(at)) => ends.push((uid, at, false)),
            Some(Then::Stop) => ends.push((uid, Timestamp::EPOCH, true)),
            Some(Then::Keep) | None => {}
        }
    }
    let stopped: Vec<_> = ends.iter().filter(|(.., stops)| *stops).map(|(uid, ..)| text(uid)).collect();
    if !stopped.is_empty() {
        steps.push(step!(BURY, stopped, me));
    }
    if !ends.is_empty() {
        steps.push(step!(
            RELEASE,
            ends.iter().map(|(uid, ..)| text(uid)).collect::<Vec<_>>(),
            ends.iter().map(|(_, at, _)| at.as_millis()).collect::<Vec<_>>(),
            ends.iter().map(|(.., stops)| *stops).collect::<Vec<_>>(),
            me,
        ));
    }
}
