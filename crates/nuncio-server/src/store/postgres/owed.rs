//! What a batch puts into the outbox: the webhooks of its entries, and what all webhooks are owed.
//!
//! Nothing is lost between a webhook that is put and an entry of its task: both lock the task first, and what
//! is owed is found by a later statement, which sees every webhook that was put before the lock.

use std::{borrow::Cow, collections::BTreeMap};

use nuncio_protocol::{Seq, Timestamp};

use super::{
    columns::{Param, Ready, Step, step},
    names::text,
    read::number,
};
use crate::store::Webhook;

/// What becomes of a webhook that another takes the place of; `$1` is the present moment.
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

/// In the order in which all lock: what is put is not in this order.
const LOCK: &str = "SELECT FROM unnest($1::text[]) AS n(task) JOIN webhooks w ON w.task = n.task
  ORDER BY w.uid FOR UPDATE OF w";

const PUT: &str = replace!(
    "INSERT INTO webhooks (uid, task, id, scope, agent, target, body, first_seq)
  SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::text[],
    $9::bigint[])"
);

/// Whoever settles a webhook may be about to say that nothing is pending: it is locked before anybody looks
/// whether it is due. What the lock has waited for is told by `owed`, and by nothing else here.
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
    /// Its uid is that of the first, if the batch has several of its id.
    uid: &'a str,
    webhook: &'a Webhook,
}

/// The statements of a whole batch, after those of its tasks.
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

/// The webhooks to keep: of several of one id the last, in the place of the first.
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
