//! Rows that are folded, kept and lost.

use nuncio_server::store::MemoryStore;

use super::*;

fn trail() -> (Trail, TrailWriter) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(10));
    Trail::new(&store)
}

fn denied(principal: &str, agent: &str) -> Row {
    Row {
        principal: Some(principal.to_owned()),
        agent: Some(agent.to_owned()),
        peer: Some([192, 0, 2, 1].into()),
        ..Row::of(What::AgentDenied)
    }
}

async fn write(writer: &mut TrailWriter, rows: Vec<Row>) {
    let mut rows = rows;
    writer.write(&mut rows).await;
}

/// A row: kind, principal, count, first and last time.
async fn rows(trail: &Trail) -> Vec<(What, String, u64)> {
    let mut rows: Vec<_> = trail.page(None, 100).await.unwrap();
    rows.reverse();
    rows.into_iter()
        .map(|(_, row)| {
            (row.what, row.principal.or(row.peer.map(|peer| peer.to_string())).unwrap_or_default(), row.count)
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn denials_of_a_minute_are_one_row_with_a_count() {
    let (trail, mut writer) = trail();
    write(&mut writer, vec![denied("a", "x")]).await;
    assert_eq!(rows(&trail).await, [(What::AgentDenied, "a".to_owned(), 1)], "the first is there at once");
    write(&mut writer, vec![denied("a", "x"), denied("b", "x"), denied("a", "y"), denied("a", "x")]).await;
    tokio::time::advance(FOLD).await;
    writer.settle(Instant::now()).await;
    let after_a_minute = [("a", 3), ("b", 1), ("a", 1)];
    let expected = |counts: &[(&str, u64)]| {
        counts.iter().map(|(who, count)| (What::AgentDenied, (*who).to_owned(), *count)).collect::<Vec<_>>()
    };
    assert_eq!(rows(&trail).await, expected(&after_a_minute));
    write(&mut writer, vec![denied("a", "x")]).await;
    assert_eq!(
        rows(&trail).await,
        expected(&[("a", 3), ("b", 1), ("a", 1), ("a", 1)]),
        "another minute, another row"
    );
}

#[tokio::test(start_paused = true)]
async fn a_minute_that_nobody_looked_at_is_written_by_the_next() {
    let (trail, mut writer) = trail();
    write(&mut writer, vec![denied("a", "x"), denied("a", "x")]).await;
    tokio::time::advance(FOLD).await;
    write(&mut writer, vec![denied("a", "x")]).await;
    let counts: Vec<_> = rows(&trail).await.into_iter().map(|(_, _, count)| count).collect();
    assert_eq!(counts, [2, 1]);
}

#[tokio::test(start_paused = true)]
async fn strangers_are_told_apart_by_where_they_come_from() {
    let (trail, mut writer) = trail();
    let from =
        |address: &str| Row { peer: Some(address.parse().unwrap()), ..Row::of(What::CredentialsRefused) };
    write(
        &mut writer,
        ["192.0.2.1", "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"].map(from).into(),
    )
    .await;
    writer.close().await;
    let counts: Vec<_> = rows(&trail).await.into_iter().map(|(_, who, count)| (who, count)).collect();
    let expected = [("192.0.2.1", 2), ("192.0.2.2", 1), ("2001:db8::1", 2)];
    assert_eq!(counts, expected.map(|(who, count)| (who.to_owned(), count)));
}

#[tokio::test(start_paused = true)]
async fn what_operators_do_is_a_row_each() {
    let (trail, mut writer) = trail();
    let made = || Row { key: Some("k".to_owned()), ..Row::of(What::KeyCreated) };
    write(&mut writer, vec![made(), made()]).await;
    assert_eq!(rows(&trail).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_causes_a_row_waits_for_nothing() {
    let (trail, mut writer) = trail();
    for _ in 0..QUEUE_CAPACITY + 3 {
        trail.note(Row::of(What::KeyCreated));
    }
    assert_eq!(writer.lost.load(Ordering::Relaxed), 3);
    writer.settle(Instant::now()).await;
    assert_eq!(writer.lost.load(Ordering::Relaxed), 0, "and it was said");
    writer.close().await;
    assert_eq!(trail.page(None, 2 * QUEUE_CAPACITY).await.unwrap().len(), QUEUE_CAPACITY);
}

#[tokio::test(start_paused = true)]
async fn whoever_is_refused_cannot_have_it_forgotten_what_operators_did() {
    let (trail, writer) = trail();
    for _ in 0..2 * QUEUE_CAPACITY {
        trail.note(denied("a", "x"));
    }
    trail.note(Row::of(What::KeyCreated));
    writer.close().await;
    let kinds: Vec<_> = rows(&trail).await.into_iter().map(|(what, ..)| what).collect();
    assert_eq!(kinds, [What::AgentDenied, What::KeyCreated]);
}

#[tokio::test(start_paused = true)]
async fn who_has_many_addresses_writes_no_more_rows() {
    let (trail, mut writer) = trail();
    write(&mut writer, vec![Row::of(What::KeyCreated)]).await;
    let from = |n: u32| Row {
        peer: Some(std::net::Ipv4Addr::from_bits(n).into()),
        ..Row::of(What::CredentialsRefused)
    };
    let many = 5 * u32::try_from(OPEN).unwrap();
    for first in (0..many).step_by(100) {
        write(&mut writer, (first..first + 100).map(from).collect()).await;
        assert!(writer.open.len() <= OPEN + 1);
    }
    writer.close().await;
    let rows = trail.page(None, usize::from(u16::MAX)).await.unwrap();
    assert_eq!(rows.len(), 1 + OPEN + 1);
    let denied = rows.iter().filter(|(_, row)| row.what == What::CredentialsRefused);
    assert_eq!(denied.map(|(_, row)| row.count).sum::<u64>(), u64::from(many), "all are counted");
}

#[tokio::test(start_paused = true)]
async fn rows_stay_for_a_while() {
    let (trail, mut writer) = trail();
    let at = |days: u32| Row {
        at: clock::earlier(clock::now(), Duration::from_secs(60 * 60 * 24) * days),
        ..Row::of(What::KeyCreated)
    };
    let denied = |days| Row { at: at(days).at, ..denied("a", "x") };
    write(&mut writer, vec![at(91), at(89), at(0), denied(91)]).await;
    writer.forget().await.unwrap();
    assert_eq!(rows(&trail).await.len(), 2);
}

#[test]
fn a_row_is_small_json() {
    let at = Timestamp::parse("2026-11-16T12:00:00Z").unwrap();
    let json = serde_json::to_string(&Row { at, ..denied("a", "x") }).unwrap();
    assert_eq!(
        json,
        r#"{"at":"2026-11-16T12:00:00.000Z","what":"agent-denied","count":1,"principal":"a","peer":"192.0.2.1","agent":"x"}"#
    );
}
