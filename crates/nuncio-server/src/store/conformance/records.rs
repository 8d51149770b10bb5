//! Checks of records: versions, order, age, and concurrent writers.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use nuncio_protocol::Seq;

use super::{Handles, Writer, at, commit, commit_one, creation, opening, scope, stored, works};
use crate::store::{Commit, Expect, PutRecord, Record, RecordChange, RecordQuery, Records, Refused, Store};

const RECORD_COUNT: usize = 24;

fn put(kind: &str, key: &str, value: &str, when: i64, expect: Expect) -> PutRecord {
    PutRecord {
        kind: kind.into(),
        key: key.into(),
        value: Bytes::from(value.to_owned()),
        at: at(when),
        expect,
    }
}

async fn put_one(store: &dyn Store, put: PutRecord) -> Result<u64, Refused> {
    let mut results = works(store.put_records(vec![put]).await);
    assert_eq!(results.len(), 1, "one result for each");
    results.remove(0)
}

fn other(version: u64) -> Refused {
    Refused::Version(Seq(version))
}

async fn keys(store: &dyn Store, kind: &str) -> Vec<String> {
    let query = RecordQuery { kind: kind.into(), limit: 1_000, ..RecordQuery::default() };
    works(store.records(&query).await).into_iter().map(|record| record.key).collect()
}

/// Records change with their entry or not at all, and an entry whose records are of other versions is refused.
pub async fn records_stand_or_fall_with_their_entry(store: Arc<dyn Store>) {
    let ann = scope("ann");
    let change = |key: &str, value: &str, expect| RecordChange::Put(put("k", key, value, 3, expect));
    let delete = |key: &str, version| RecordChange::Delete { kind: "k".into(), key: key.into(), version };
    let with = |entry: Commit, records: &[RecordChange]| entry.attach(|with| with.records = records.to_vec());
    let found = async |key: &str| {
        let record = works(store.record("k", key).await);
        record.map(|record| (String::from_utf8_lossy(&record.value).into_owned(), record.version))
    };
    let kept = |value: &str, version| Some((value.to_owned(), version));
    let first = [change("a", "1", Expect::Absent), change("b", "1", Expect::Anything)];
    assert_eq!(commit_one(&*store, with(opening(&ann, "t-1", None), &first)).await, Ok(()));
    assert_eq!((found("a").await, found("b").await), (kept("1", 1), kept("1", 1)), "with the creation");

    let refused = with(opening(&ann, "t-1", None), &[change("a", "2", Expect::Anything)]);
    assert_eq!(commit_one(&*store, refused).await, Err(Refused::Version(Seq(1))), "the task is there");
    let refused = with(opening(&ann, "t-2", None), &[change("a", "2", Expect::Absent)]);
    assert_eq!(commit_one(&*store, refused).await, Err(Refused::Record));
    assert_eq!(stored(&*store, &ann, &"t-2".into()).await, None, "no task comes of a refused entry");
    assert_eq!(found("a").await, kept("1", 1), "and no record");

    let mut writer = Writer::open(&store, &ann, creation("t-1", "c-1", 1), Seq(1));
    let cases: &[(&[RecordChange], Result<(), Refused>)] = &[
        (&[change("a", "2", Expect::Version(1)), change("c", "2", Expect::Version(1))], Err(Refused::Record)),
        (&[change("a", "2", Expect::Version(2))], Err(Refused::Record)),
        (&[delete("a", 2)], Err(Refused::Record)),
        (&[delete("c", 1)], Err(Refused::Record)),
        (&[change("a", "2", Expect::Anything), change("a", "2", Expect::Version(1))], Err(Refused::Record)),
        (&[change("a", "2", Expect::Version(1)), delete("b", 1)], Ok(())),
    ];
    for (records, wanted) in cases {
        let entry = writer.entry(writer.chunk_event("a", "x"));
        assert_eq!(writer.offer(with(entry, records)).await, *wanted, "{records:?}");
        let after = if wanted.is_ok() { (kept("2", 2), None) } else { (kept("1", 1), kept("1", 1)) };
        assert_eq!((found("a").await, found("b").await), after, "{records:?}");
    }

    // In a batch each entry is checked against the records that those before it have left.
    let mut batch = Vec::new();
    for records in [
        [change("a", "3", Expect::Version(2))],
        [change("a", "4", Expect::Version(3))],
        [delete("a", 4)],
        [change("a", "5", Expect::Absent)],
    ] {
        let event = writer.chunk_event("a", "x");
        batch.push(with(writer.entry(event.clone()), &records));
        writer.advance(&event);
    }
    batch.push(with(opening(&ann, "t-2", None), &[change("a", "6", Expect::Version(7))]));
    batch.push(with(opening(&ann, "t-3", None), &[change("a", "6", Expect::Version(1))]));
    let results = commit(&*store, batch).await;
    let wanted = [Ok(()), Ok(()), Ok(()), Ok(()), Err(Refused::Record), Ok(())];
    assert_eq!(results, wanted);
    assert_eq!(found("a").await, kept("6", 2));
    assert_eq!(put_one(&*store, put("k", "a", "7", 4, Expect::Version(2))).await, Ok(3), "a record as any");
}

/// Of many entries that expect the same version of a record, in tasks of their own, one is accepted.
pub async fn one_of_many_entries_has_a_record(store: Arc<dyn Store>) {
    let ann = scope("ann");
    for (round, expect) in [Expect::Absent, Expect::Version(1), Expect::Version(2)].into_iter().enumerate() {
        let offers = (0..8).map(|i| {
            let records = vec![RecordChange::Put(put("k", "a", "x", 3, expect))];
            let entry = opening(&ann, &format!("t-{round}-{i}"), None).attach(|with| with.records = records);
            let store = &store;
            async move { commit_one(&**store, entry).await }
        });
        let results = join_all(offers).await;
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        assert!(
            results
                .iter()
                .flat_map(|result| result.as_ref().err())
                .all(|refused| *refused == Refused::Record)
        );
    }
}

/// Versions begin at 1 and grow; a writer that expects another version changes nothing and gets the stored
/// one.
pub async fn a_record_is_written_only_where_it_is_as_expected(store: Arc<dyn Store>) {
    let steps = [
        (Expect::Version(1), Err(other(0))),
        (Expect::Version(0), Err(other(0))),
        (Expect::Absent, Ok(1)),
        (Expect::Absent, Err(other(1))),
        (Expect::Version(0), Err(other(1))),
        (Expect::Version(1), Ok(2)),
        (Expect::Version(1), Err(other(2))),
        (Expect::Version(u64::MAX), Err(other(2))),
        (Expect::Anything, Ok(3)),
        (Expect::Version(3), Ok(4)),
    ];
    let mut kept = None;
    assert_eq!(works(store.record("k", "a").await), None);
    for (i, (expect, wanted)) in steps.into_iter().enumerate() {
        let (when, value) = (i as i64, format!("value {i}"));
        assert_eq!(put_one(&*store, put("k", "a", &value, when, expect)).await, wanted, "{i}: {expect:?}");
        if let Ok(version) = wanted {
            kept = Some(Record { key: "a".to_owned(), value: value.into(), version, at: at(when) });
        }
        assert_eq!(works(store.record("k", "a").await), kept, "{i}");
    }
    assert_eq!(works(store.record("k", "b").await), None);
    assert_eq!(works(store.record("l", "a").await), None);
    assert!(works(store.put_records(Vec::new()).await).is_empty());
}

/// Each write is checked against the result of those before it; a refused one does not affect the others.
pub async fn records_of_a_call_are_taken_in_order(store: Arc<dyn Store>) {
    let puts = [
        ("a", Expect::Absent, Ok(1)),
        ("b", Expect::Anything, Ok(1)),
        ("a", Expect::Absent, Err(other(1))),
        ("a", Expect::Version(1), Ok(2)),
        ("c", Expect::Version(7), Err(other(0))),
        ("a", Expect::Version(1), Err(other(2))),
        ("c", Expect::Absent, Ok(1)),
        ("a", Expect::Anything, Ok(3)),
    ];
    let batch = puts.iter().enumerate();
    let batch = batch.map(|(i, (key, expect, _))| put("k", key, &format!("{i}"), 1, *expect)).collect();
    let wanted: Vec<_> = puts.iter().map(|(.., wanted)| wanted.clone()).collect();
    assert_eq!(works(store.put_records(batch).await), wanted);
    for (key, value) in [("a", "7"), ("b", "1"), ("c", "6")] {
        let record = works(store.record("k", key).await);
        assert_eq!(record.map(|record| record.value), Some(Bytes::from_static(value.as_bytes())), "{key}");
    }
}

/// Kinds and keys may be any text; keys with a prefix are listed from either end, page by page.
pub async fn records_are_listed_by_prefix_in_the_order_of_their_bytes(store: Arc<dyn Store>) {
    let mut names = vec![
        "",
        "\0",
        "\0\0",
        "\u{1}",
        "\u{1}\u{1}",
        "\u{2}",
        "A",
        "a",
        "a\0",
        "a\0b",
        "a/",
        "a/1",
        "a/10",
        "a/2",
        "a%",
        "a_",
        "aé",
        "b",
        "it's",
        "é",
        "\u{d7ff}",
        "\u{e000}",
        "\u{10ffff}",
        "\u{10ffff}x",
    ];
    let kinds = ["", "k", "k\0", "ka", "\u{10ffff}"];
    let each = || kinds.iter().flat_map(|kind| names.iter().map(move |key| (*kind, *key)));
    let batch = each().map(|(kind, key)| put(kind, key, &format!("{kind} {key}"), 1, Expect::Absent));
    assert!(works(store.put_records(batch.collect()).await).iter().all(|result| *result == Ok(1)));
    for (kind, key) in each() {
        let record = works(store.record(kind, key).await).map(|record| (record.key, record.value));
        assert_eq!(record, Some((key.to_owned(), Bytes::from(format!("{kind} {key}")))));
    }
    names.sort_unstable();
    for kind in kinds {
        assert_eq!(keys(&*store, kind).await, names, "{kind:?}");
    }
    for prefix in ["", "a", "a/", "a\0", "\0", "\u{1}", "\u{d7ff}", "\u{10ffff}", "é", "none"] {
        for after in [None, Some(""), Some("a"), Some("a/1"), Some("a/x"), Some("\u{1}"), Some("\u{10ffff}")]
        {
            for (descending, limit) in [(false, 3), (true, 3), (false, 99), (true, 99), (false, 0)] {
                let query = RecordQuery {
                    kind: "k".into(),
                    prefix: prefix.to_owned(),
                    after: after.map(str::to_owned),
                    descending,
                    limit,
                };
                let mut wanted: Vec<&str> =
                    names.iter().copied().filter(|name| name.starts_with(prefix)).collect();
                if descending {
                    wanted.reverse();
                }
                wanted.retain(|name| {
                    after.is_none_or(|after| if descending { *name < after } else { *name > after })
                });
                wanted.truncate(limit);
                let found: Vec<String> =
                    works(store.records(&query).await).into_iter().map(|record| record.key).collect();
                assert_eq!(found, wanted, "{query:?}");
                assert_eq!(works(store.count_records(&query).await), wanted.len(), "{query:?}");
            }
        }
    }
}

/// Empty values, all byte values, and a few MiB.
pub async fn values_of_every_size_come_back_equal(store: Arc<dyn Store>) {
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    for (key, value) in [("none", Vec::new()), ("bytes", bytes.clone()), ("large", bytes.repeat(16 << 10))] {
        let record = PutRecord { value: value.clone().into(), ..put("k", key, "", 1, Expect::Absent) };
        assert_eq!(put_one(&*store, record).await, Ok(1));
        let found = works(store.record("k", key).await).map(|record| record.value);
        assert!(found.is_some_and(|found| found == value), "{key}");
    }
}

/// A record is deleted if its version is as expected; one that is created again begins with version 1.
pub async fn a_record_is_dropped_only_where_it_is_as_expected(store: Arc<dyn Store>) {
    for expect in [Expect::Anything, Expect::Absent] {
        assert_eq!(works(store.delete_record("k", "a", expect).await), Ok(false), "there is none");
    }
    assert_eq!(works(store.delete_record("k", "a", Expect::Version(1)).await), Err(other(0)));
    for (kind, version) in [("k", 1), ("k", 2), ("l", 1)] {
        assert_eq!(put_one(&*store, put(kind, "a", "x", 1, Expect::Anything)).await, Ok(version));
    }
    for (expect, result) in
        [(Expect::Absent, Err(other(2))), (Expect::Version(1), Err(other(2))), (Expect::Version(2), Ok(true))]
    {
        assert!(works(store.record("k", "a").await).is_some(), "before {expect:?}");
        assert_eq!(works(store.delete_record("k", "a", expect).await), result, "{expect:?}");
    }
    assert_eq!(works(store.record("k", "a").await), None);
    assert_eq!(keys(&*store, "l").await, ["a"], "that of another kind stays");
    assert_eq!(put_one(&*store, put("k", "a", "x", 1, Expect::Absent)).await, Ok(1));
    assert_eq!(works(store.delete_record("k", "a", Expect::Anything).await), Ok(true));
}

/// Records of one kind, by the time of their last write.
pub async fn the_oldest_records_are_pruned_first(store: Arc<dyn Store>) {
    let ages = [("e", 50), ("a", 10), ("c", 30), ("b", 20), ("d", 40)];
    for (key, when) in ages {
        for kind in ["k", "l"] {
            assert_eq!(put_one(&*store, put(kind, key, "x", when, Expect::Absent)).await, Ok(1));
        }
    }
    // A later write makes it young again.
    assert_eq!(put_one(&*store, put("k", "a", "y", 60, Expect::Version(1))).await, Ok(2));
    for (before, limit, gone, left) in [
        (20, 9, 0, &["a", "b", "c", "d", "e"][..]),
        (21, 9, 1, &["a", "c", "d", "e"]),
        (99, 0, 0, &["a", "c", "d", "e"]),
        (99, 2, 2, &["a", "e"]),
        (60, 9, 1, &["a"]),
        (61, 9, 1, &[]),
    ] {
        assert_eq!(works(store.prune_records("k", at(before), limit).await), gone, "{before} {limit}");
        assert_eq!(keys(&*store, "k").await, left, "{before} {limit}");
    }
    assert_eq!(keys(&*store, "l").await.len(), ages.len());
    assert_eq!(works(store.prune_records("none", at(99), 9).await), 0);
}

/// All update one record concurrently, each with the version that it has read, until each has succeeded.
async fn count_together(stores: &[Arc<dyn Store>], kind: &str) {
    let once = |store: Arc<dyn Store>, name: usize| async move {
        loop {
            let found = works(store.record(kind, "n").await);
            let expect = found.as_ref().map_or(Expect::Absent, |record| Expect::Version(record.version));
            let mut said = found.map(|record| record.value.to_vec()).unwrap_or_default();
            said.push(name as u8);
            let record = PutRecord { value: said.into(), ..put(kind, "n", "", 1, expect) };
            if put_one(&*store, record).await.is_ok() {
                return;
            }
        }
    };
    join_all((0..RECORD_COUNT).map(|i| once(Arc::clone(&stores[i % stores.len()]), i))).await;
    let record = works(stores[0].record(kind, "n").await);
    let (version, mut said) =
        record.map(|record| (record.version, record.value.to_vec())).unwrap_or_default();
    said.sort_unstable();
    assert_eq!(version, RECORD_COUNT as u64);
    assert_eq!(said, (0..RECORD_COUNT as u8).collect::<Vec<_>>(), "nobody overwrote what another had said");
}

/// Of concurrent creations one wins; no concurrent update is lost.
pub async fn one_of_many_writers_of_a_record_wins(store: Arc<dyn Store>) {
    let make = |i: usize| put_one(&*store, put("k", "a", &i.to_string(), 1, Expect::Absent));
    let results = join_all((0..RECORD_COUNT).map(make)).await;
    assert_eq!(results.iter().filter(|result| **result == Ok(1)).count(), 1, "{results:?}");
    assert_eq!(
        results.iter().filter(|result| **result == Err(other(1))).count(),
        RECORD_COUNT - 1,
        "{results:?}"
    );
    count_together(&[store], "k").await;
}

/// Overlapping batches from many callers: each gets the results of its own.
pub async fn many_callers_put_records_at_once(store: Arc<dyn Store>) {
    let batch = |i: usize| {
        let own = put("k", &format!("own-{i:03}"), "x", 1, Expect::Absent);
        let shared = |key: &str| put("k", key, &i.to_string(), 1, Expect::Anything);
        let refused = put("k", &format!("own-{i:03}"), "y", 1, Expect::Version(9));
        // In different orders, to provoke deadlocks.
        let [a, b] = if i.is_multiple_of(2) { ["a", "b"] } else { ["b", "a"] };
        vec![shared(a), own, shared(b), refused]
    };
    let results = join_all((0..4 * RECORD_COUNT).map(|i| store.put_records(batch(i)))).await;
    let mut versions = [Vec::new(), Vec::new()];
    for (i, results) in results.into_iter().enumerate() {
        let results = works(results);
        assert_eq!((&results[1], &results[3]), (&Ok(1), &Err(other(1))), "{i}");
        for (place, result) in [(0, &results[0]), (1, &results[2])] {
            versions[(place + i) % 2].extend(result.clone());
        }
    }
    for mut versions in versions {
        versions.sort_unstable();
        assert_eq!(
            versions,
            (1..=4 * RECORD_COUNT as u64).collect::<Vec<_>>(),
            "each version was given once"
        );
    }
    assert_eq!(keys(&*store, "k").await.len(), 4 * RECORD_COUNT + 2);
}

/// Records outlive the owner that wrote them.
pub async fn records_outlive_their_owner<H: Handles>(handles: &H) {
    let gone = handles.open().await;
    assert_eq!(put_one(&*gone, put("k", "a", "x", 7, Expect::Absent)).await, Ok(1));
    assert_eq!(put_one(&*gone, put("k", "b", "x", 7, Expect::Absent)).await, Ok(1));
    assert_eq!(works(gone.delete_record("k", "b", Expect::Anything).await), Ok(true));
    handles.die(gone).await;
    let store = handles.open().await;
    let record = Record { key: "a".to_owned(), value: Bytes::from_static(b"x"), version: 1, at: at(7) };
    assert_eq!(works(store.record("k", "a").await), Some(record));
    assert_eq!(put_one(&*store, put("k", "a", "y", 8, Expect::Version(1))).await, Ok(2));
    assert_eq!(keys(&*store, "k").await, ["a"]);
}

/// Concurrent owners are writers like any others.
pub async fn owners_share_their_records<H: Handles>(handles: &H) {
    let stores: [Arc<dyn Store>; 2] = [handles.open().await, handles.open().await];
    let make = |i: usize| {
        let puts = ["a", "b", "c"].map(|key| put("k", key, &i.to_string(), 1, Expect::Absent));
        stores[i % 2].put_records(if i.is_multiple_of(3) {
            puts.into()
        } else {
            puts.into_iter().rev().collect()
        })
    };
    let results = join_all((0..RECORD_COUNT).map(make)).await;
    let won: usize = results.into_iter().map(|result| works(result).iter().flatten().count()).sum();
    assert_eq!(won, 3, "each is made once");
    count_together(&stores, "n").await;
}
