//! The outbox part of a batch: webhooks that come with entries, and the deliveries of all entries.
//!
//! No delivery is lost between a put webhook and an entry of its task: both lock the task first, and the
//! deliveries are made by a later statement, which sees every webhook that was put before the lock.

use std::{borrow::Cow, collections::BTreeMap};

use nuncio_protocol::{Seq, Timestamp};

use super::{
    columns::{Param, Ready, Step, step},
    names::text,
    read::number,
};
use crate::store::Webhook;

/// The clause for a webhook that replaces another; `$1` is the current time.
macro_rules! replace {
    ($insert:literal) => {
        concat!(
            $insert,
            " ON CONFLICT (task, id) DO UPDATE SET target = excluded.target, body = excluded.body, stopped = false,
    first_seq = CASE WHEN webhooks.stopped THEN excluded.first_seq ELSE webhooks.first_seq END,
    due_at = CASE WHEN webhooks.due_at IS NOT NULL THEN $1::bigint END RETURNING uid"
        )
    };
}
pub(super) use replace;

/// Locks in the order of all writers; the puts are in another order.
const LOCK: &str = "SELECT FROM unnest($1::text[]) AS n(task) JOIN webhooks w ON w.task = n.task
  ORDER BY w.uid FOR UPDATE OF w";

const PUT: &str = replace!(
    "INSERT INTO webhooks (uid, task, id, scope, agent, target, body, first_seq)
  SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::text[],
    $9::bigint[])"
);

/// Creates deliveries. `owed` locks the webhooks before their `due_at` is read, because a concurrent
/// settlement may be about to clear it. Only `owed` sees the state after the lock; no other part of the
/// statement does.
const OWE: &str = "WITH owed AS (
      SELECT w.uid, w.due_at, n.seq, n.since
      FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS n(task, seq, since)
        JOIN webhooks w ON w.task = n.task
      WHERE NOT w.stopped AND n.seq >= w.first_seq ORDER BY w.uid FOR UPDATE OF w),
    put AS (INSERT INTO deliveries (webhook, seq, since) SELECT uid, seq, since FROM owed)
  UPDATE webhooks w SET due_at = o.since
  FROM (SELECT uid, min(since) AS since FROM owed WHERE due_at IS NULL GROUP BY uid) o WHERE w.uid = o.uid";

/// A webhook of the batch.
struct Put<'a> {
    of: &'a Ready,
    /// The uid of the first webhook, if the batch has several with this id.
    uid: &'a str,
    webhook: &'a Webhook,
}

/// The statements of a whole batch, to run after those of its tasks.
pub(super) fn steps<'a>(writes: &[&'a Ready]) -> Vec<Step<'a>> {
    let owed = || writes.iter().flat_map(|w| w.write.owed.iter().map(|owed| (w.id(), *owed)));
    let mut steps = Vec::new();
    let puts = puts(writes);
    if !puts.is_empty() {
        let mut tasks: Vec<Cow<'_, str>> =
            puts.iter().map(|put| put.of.id()).chain(owed().map(|(id, _)| id)).collect();
        tasks.sort_unstable();
        tasks.dedup();
        steps.push(step!(LOCK, tasks));
        steps.push(put(&puts));
    }
    if owed().next().is_some() {
        steps.push(step!(
            OWE,
            owed().map(|(id, _)| id).collect::<Vec<_>>(),
            owed().map(|(_, (seq, _))| number(seq)).collect::<Vec<_>>(),
            owed().map(|(_, (_, since))| since.as_millis()).collect::<Vec<_>>(),
        ));
    }
    steps
}

/// The webhooks to store: of several with one id the last, with the uid of the first.
fn puts<'a>(writes: &[&'a Ready]) -> Vec<Put<'a>> {
    let mut puts: BTreeMap<(&str, &str), Put<'a>> = BTreeMap::new();
    for of in writes {
        let Some(webhook) = &of.write.webhook else { continue };
        let put = puts.entry((of.write.id.as_str(), webhook.id.as_str()));
        put.and_modify(|put| put.webhook = webhook).or_insert(Put { of, uid: &webhook.uid, webhook });
    }
    puts.into_values().collect()
}

fn put<'a>(puts: &[Put<'a>]) -> Step<'a> {
    let each = || puts.iter();
    let first = |put: &Put<'_>| Seq::next(put.of.write.expected);
    let now = each().map(|put| put.of.write.at).max().unwrap_or(Timestamp::EPOCH);
    step!(
        PUT,
        now.as_millis(),
        each().map(|put| text(put.uid)).collect::<Vec<_>>(),
        each().map(|put| put.of.id()).collect::<Vec<_>>(),
        each().map(|put| text(put.webhook.id.as_str())).collect::<Vec<_>>(),
        each().map(|put| put.of.scope()).collect::<Vec<_>>(),
        each().map(|put| text(&put.of.write.scope.agent)).collect::<Vec<_>>(),
        each().map(|put| text(&put.webhook.target)).collect::<Vec<_>>(),
        each().map(|put| text(&put.webhook.body)).collect::<Vec<_>>(),
        each().map(|put| number(first(put))).collect::<Vec<_>>(),
    )
}
