//! Records. Concurrent writes become one statement, as entries do.

use std::{borrow::Cow, collections::HashMap};

use async_trait::async_trait;
use nuncio_protocol::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Row;

use super::{
    PostgresStore,
    link::{Link, PgSession, again, code},
    names::{plain, text},
};
use crate::store::{
    Expect, PutRecord, Record, RecordQuery, Records, Refused, StoreError,
    codec::{millis_from, moment},
};

const ONE: &str = "SELECT key, version, at, value FROM records WHERE kind = $1 AND key = $2";

const LIST: &str = "SELECT key, version, at, value FROM records
  WHERE (kind, key) >= ($1, $2) AND (kind, key) < ($3, $4) ORDER BY kind, key LIMIT $5";

const LIST_BACKWARDS: &str = "SELECT key, version, at, value FROM records
  WHERE (kind, key) >= ($1, $2) AND (kind, key) < ($3, $4) ORDER BY kind DESC, key DESC LIMIT $5";

const COUNT: &str = "SELECT count(*) FROM (SELECT FROM records
  WHERE (kind, key) >= ($1, $2) AND (kind, key) < ($3, $4) LIMIT $5) AS found";

/// Writes distinct records, in the locking order of all writers. Returns the versions found and the versions
/// written. A record that another transaction has just created or deleted is missing in both: the next
/// statement sees it.
const PUT: &str = "WITH n AS (
      SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[])
        WITH ORDINALITY AS n(kind, key, value, at, expect, place)),
    found AS (
      SELECT n.*, r.version FROM n JOIN records r ON r.kind = n.kind AND r.key = n.key
      ORDER BY r.kind, r.key FOR UPDATE OF r),
    changed AS (
      UPDATE records r SET version = r.version + 1, at = f.at, value = f.value FROM found f
      WHERE r.kind = f.kind AND r.key = f.key AND f.expect IN (-1, f.version) RETURNING f.place, r.version),
    made AS (
      INSERT INTO records (kind, key, version, at, value)
      SELECT kind, key, 1, at, value FROM n WHERE expect <= 0
        AND NOT EXISTS (SELECT FROM records r WHERE r.kind = n.kind AND r.key = n.key) ORDER BY kind, key
      ON CONFLICT DO NOTHING RETURNING kind, key)
  SELECT place, version, NULL::bigint, NULL::text, NULL::text FROM found
  UNION ALL SELECT place, NULL, version, NULL, NULL FROM changed
  UNION ALL SELECT NULL, NULL, 1, kind, key FROM made";

const DROP: &str = "WITH found AS (SELECT version FROM records WHERE kind = $1 AND key = $2 FOR UPDATE),
    gone AS (
      DELETE FROM records r USING found WHERE r.kind = $1 AND r.key = $2 AND $3::bigint IN (-1, found.version)
      RETURNING 1)
  SELECT (SELECT version FROM found), (SELECT count(*) FROM gone)";

const PRUNE: &str = "WITH old AS (
      SELECT kind, key FROM records WHERE kind = $1 AND at < $2 ORDER BY at, key LIMIT $3
      FOR UPDATE SKIP LOCKED)
  DELETE FROM records r USING old WHERE r.kind = old.kind AND r.key = old.key AND r.at < $2 RETURNING 1";

/// The maximum number of records in one statement of joined batches, and their maximum size in bytes.
const MAX_RECORDS: usize = 1_024;
const MAX_BYTES: usize = 32 << 20;

/// The number of attempts of a statement that conflicts with others.
const ATTEMPTS: usize = 10;

/// One result per record.
type RecordResults = Result<Vec<Result<u64, Refused>>, StoreError>;

/// Records to write, and the channel for the results.
pub(super) struct RecordsJob {
    puts: Vec<PutRecord>,
    done: oneshot::Sender<RecordResults>,
}

impl RecordsJob {
    fn bytes(&self) -> usize {
        self.puts.iter().map(|put| put.key.len() + put.value.len()).sum()
    }
}

/// Encodes the condition: -1 for any version, 0 for none.
fn expected(expect: Expect) -> i64 {
    match expect {
        Expect::Anything => -1,
        Expect::Absent => 0,
        // Version 0 and versions that do not fit match no record.
        Expect::Version(version) => {
            i64::try_from(version).ok().filter(|version| *version > 0).unwrap_or(i64::MAX)
        }
    }
}

#[async_trait]
impl Records for PostgresStore {
    async fn record(&self, kind: &str, key: &str) -> Result<Option<Record>, StoreError> {
        let row = self.reads().query_opt(ONE, &[&text(kind), &text(key)]).await?;
        row.as_ref().map(read).transpose()
    }

    async fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
        let [from, to] = query.span();
        let list = if query.descending { LIST_BACKWARDS } else { LIST };
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
        let (first, last) = ((text(&from.0), text(&from.1)), (text(&to.0), text(&to.1)));
        let rows = self.reads().query(list, &[&first.0, &first.1, &last.0, &last.1, &limit]).await?;
        rows.iter().map(read).collect()
    }

    async fn count_records(&self, query: &RecordQuery) -> Result<usize, StoreError> {
        let [from, to] = query.span();
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
        let (first, last) = ((text(&from.0), text(&from.1)), (text(&to.0), text(&to.1)));
        let row = self.reads().query_opt(COUNT, &[&first.0, &first.1, &last.0, &last.1, &limit]).await?;
        Ok(row.map_or(0, |row| usize::try_from(row.get::<_, i64>(0)).unwrap_or_default()))
    }

    async fn put_records(&self, puts: Vec<PutRecord>) -> RecordResults {
        if puts.is_empty() {
            return Ok(Vec::new());
        }
        let (done, results) = oneshot::channel();
        let stopped = || StoreError::down("the writer has stopped");
        self.records.send(RecordsJob { puts, done }).await.map_err(|_| stopped())?;
        results.await.map_err(|_| stopped())?
    }

    /// Not repeated after an error: the second result would differ from the first.
    async fn delete_record(
        &self,
        kind: &str,
        key: &str,
        expect: Expect,
    ) -> Result<Result<bool, Refused>, StoreError> {
        let session = self.reads().session().await?;
        let row = session.query_opt(DROP, &[&text(kind), &text(key), &expected(expect)]).await?;
        let (found, gone): (Option<i64>, i64) = row.map_or((None, 0), |row| (row.get(0), row.get(1)));
        Ok(expect.check(found.unwrap_or(0) as u64).map(|()| gone > 0))
    }

    async fn prune_records(&self, kind: &str, before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let _turn = self.side.turn().await;
        let session = self.side.session().await?;
        Ok(session.query(PRUNE, &[&text(kind), &millis_from(before), &limit]).await?.len())
    }
}

fn read(row: &Row) -> Result<Record, StoreError> {
    let (key, version, value): (&str, i64, Vec<u8>) = (row.get(0), row.get(1), row.get(3));
    let at = moment(row.get(2))?;
    Ok(Record { key: plain(key).into_owned(), value: value.into(), version: version as u64, at })
}

/// Writes queued records until all senders are dropped.
pub(super) async fn keep(link: Link, mut queue: mpsc::Receiver<RecordsJob>) {
    while let Some(first) = queue.recv().await {
        let (mut records, mut bytes) = (first.puts.len(), first.bytes());
        let mut jobs = vec![first];
        while records < MAX_RECORDS
            && bytes < MAX_BYTES
            && let Ok(job) = queue.try_recv()
        {
            records += job.puts.len();
            bytes += job.bytes();
            jobs.push(job);
        }
        let all: Vec<&PutRecord> = jobs.iter().flat_map(|job| &job.puts).collect();
        let results = put_all(&link, &all).await;
        let mut rest = results.as_ref().map(|results| results.iter().cloned());
        for RecordsJob { puts, done } in jobs {
            let own = match &mut rest {
                Ok(rest) => Ok(rest.by_ref().take(puts.len()).collect()),
                Err(error) => Err(again(error)),
            };
            // The caller may be gone.
            let _ = done.send(own);
        }
    }
}

async fn put_all(link: &Link, puts: &[&PutRecord]) -> RecordResults {
    let waves = waves(puts);
    for _ in 0..ATTEMPTS {
        match put_waves(link, puts, &waves).await {
            // A deadlock or serialization failure.
            Err(error) if code(&error).is_some_and(|code| code.code().starts_with("40")) => {}
            Err(error) => return Err(error),
            Ok(results) => return Ok(results),
        }
    }
    Err(in_the_way())
}

fn in_the_way() -> StoreError {
    StoreError::down("too many conflicts with concurrent transactions")
}

/// One transaction, usually of one statement.
async fn put_waves(link: &Link, puts: &[&PutRecord], waves: &[Vec<usize>]) -> RecordResults {
    let mut results = vec![Ok(0); puts.len()];
    if let [wave] = waves {
        put_wave(&*link.session().await?, puts, wave, &mut results).await?;
        return Ok(results);
    }
    let transaction = link.begin().await?;
    for wave in waves {
        put_wave(&transaction.session, puts, wave, &mut results).await?;
    }
    transaction.commit().await?;
    Ok(results)
}

async fn put_wave(
    session: &PgSession,
    puts: &[&PutRecord],
    wave: &[usize],
    results: &mut [Result<u64, Refused>],
) -> Result<(), StoreError> {
    let mut left = wave.to_vec();
    for _ in 0..ATTEMPTS {
        let told = put_once(session, left.iter().map(|place| puts[*place])).await?;
        let mut open = Vec::new();
        for (place, (before, after)) in left.into_iter().zip(told) {
            let expect = puts[place].expect;
            match (after, expect.check(before.unwrap_or(0))) {
                (Some(version), _) => results[place] = Ok(version),
                (None, Err(refused)) => results[place] = Err(refused),
                // Another transaction has just created or deleted it.
                (None, Ok(())) => open.push(place),
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        left = open;
    }
    Err(in_the_way())
}

/// The version found, and the version written.
type Versions = (Option<u64>, Option<u64>);

/// Writes records that are sorted by kind and key.
async fn put_once<'a>(
    session: &PgSession,
    puts: impl Iterator<Item = &'a PutRecord> + Clone,
) -> Result<Vec<Versions>, StoreError> {
    let kinds: Vec<Cow<'_, str>> = puts.clone().map(|put| text(&put.kind)).collect();
    let keys: Vec<Cow<'_, str>> = puts.clone().map(|put| text(&put.key)).collect();
    let values: Vec<&[u8]> = puts.clone().map(|put| &put.value[..]).collect();
    let moments: Vec<i64> = puts.clone().map(|put| put.at.as_millis()).collect();
    let expects: Vec<i64> = puts.map(|put| expected(put.expect)).collect();
    let rows = session.query(PUT, &[&kinds, &keys, &values, &moments, &expects]).await?;
    let names: Vec<(&str, &str)> =
        kinds.iter().map(|kind| &**kind).zip(keys.iter().map(|key| &**key)).collect();
    let mut told = vec![(None, None); names.len()];
    for row in &rows {
        let place = match row.get::<_, Option<i64>>(0) {
            Some(place) => usize::try_from(place - 1).ok(),
            None => names.binary_search(&(row.get(3), row.get(4))).ok(),
        };
        if let Some(versions) = place.and_then(|place| told.get_mut(place)) {
            let version = |column| row.get::<_, Option<i64>>(column).map(|version| version as u64);
            *versions = (versions.0.or(version(1)), versions.1.or(version(2)));
        }
    }
    Ok(told)
}

/// Groups the indexes of records so that a group has each record once, sorted; later writes of a record are
/// in later groups.
fn waves(puts: &[&PutRecord]) -> Vec<Vec<usize>> {
    let mut waves: Vec<Vec<usize>> = Vec::new();
    let mut seen: HashMap<(&str, &str), usize> = HashMap::new();
    for (place, put) in puts.iter().enumerate() {
        let wave = seen.entry((&put.kind, &put.key)).or_default();
        if *wave == waves.len() {
            waves.push(Vec::new());
        }
        waves[*wave].push(place);
        *wave += 1;
    }
    for wave in &mut waves {
        wave.sort_by_key(|place| (&puts[*place].kind, &puts[*place].key));
    }
    waves
}
