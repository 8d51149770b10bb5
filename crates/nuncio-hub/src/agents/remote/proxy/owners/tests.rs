//! Owners of tasks: from the cache, from the store, and after they have expired.

use std::time::Duration;

use nuncio_server::{
    store::{MemoryStore, Settled, StoreOp, Watch, instrumented},
    testing::FailingStore,
};

use super::*;

fn subject(task: &str, context: &str) -> Subject {
    Subject { task: Some(task.into()), context: Some(context.into()) }
}

#[tokio::test]
async fn what_is_recorded_is_the_callers_and_nobody_elses() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let owners = Owners::new(Arc::clone(&store), "a");
    let (ann, bob) = (Caller::authenticated("ann"), Caller::authenticated("bob"));
    let elsewhere = Caller::authenticated("ann").of_tenant("x");
    owners.record(&ann, &subject("t", "c")).await.unwrap();
    // From memory, and by another hub from the store.
    for owners in [&owners, &Owners::new(Arc::clone(&store), "a")] {
        owners.require(&ann, "t").await.unwrap();
        for other in [&bob, &elsewhere, &Caller::anonymous()] {
            let foreign = owners.require(other, "t").await.unwrap_err();
            let unknown = owners.require(other, "u").await.unwrap_err();
            assert_eq!(foreign.kind(), ErrorKind::TaskNotFound);
            assert_eq!(foreign.to_string().replace("\"t\"", "\"u\""), unknown.to_string());
        }
    }
    assert!(Owners::new(store, "b").require(&ann, "t").await.is_err(), "another agent's t is another task");
    assert_eq!((owners.count(&ann).await.unwrap(), owners.count(&bob).await.unwrap()), (1, 0));
    // From memory, and by another hub from the store.
    for owners in [&owners, &Owners::new(Arc::clone(&owners.store), "a")] {
        let error = owners.record(&bob, &subject("t", "d")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
        assert_eq!(owners.count(&bob).await.unwrap(), 0);
        owners.record(&ann, &subject("t", "c")).await.unwrap();
        owners.require(&ann, "t").await.unwrap();
    }
    owners.admit(&ann, None, Some("d"), std::iter::empty()).await.expect("bob was not told of it");
}

#[derive(Default)]
struct Questions(Mutex<Vec<StoreOp>>);

impl Watch for Questions {
    fn answered(&self, asked: StoreOp, _: Duration, _: bool) {
        self.0.lock().push(asked);
    }

    fn settled(&self, _: &[Settled]) {}
}

/// The disk is waited for once, however much is new, and not at all for what is known.
#[tokio::test]
async fn an_answer_is_recorded_in_one_piece() {
    let questions = Arc::new(Questions::default());
    let store = Arc::new(FailingStore::waiting(MemoryStore::default()));
    let owners = Owners::new(instrumented(store, Arc::clone(&questions) as Arc<dyn Watch>), "a");
    for _ in 0..2 {
        owners.record(&Caller::authenticated("ann"), &subject("t", "c")).await.unwrap();
        assert_eq!(*questions.0.lock(), [StoreOp::Write]);
    }
    // Some agents have one context for all.
    let elsewhere = Owners::new(Arc::clone(&owners.store), "a");
    for _ in 0..2 {
        elsewhere.record(&Caller::authenticated("bob"), &subject("u", "c")).await.unwrap();
        assert_eq!(*questions.0.lock(), [StoreOp::Write, StoreOp::Write, StoreOp::Read]);
    }
}

#[tokio::test]
async fn a_message_touches_only_what_is_the_callers() {
    let owners = Owners::new(Arc::new(MemoryStore::default()), "a");
    let (ann, bob) = (Caller::authenticated("ann"), Caller::anonymous());
    owners.record(&ann, &subject("t", "c")).await.unwrap();
    let none = || std::iter::empty();
    owners.admit(&ann, Some("t"), Some("c"), ["t"].into_iter()).await.unwrap();
    owners.admit(&bob, None, Some("made up"), none()).await.unwrap();
    for (task, context, reference, kind) in [
        (Some("t"), None, None, ErrorKind::TaskNotFound),
        (None, None, Some("t"), ErrorKind::TaskNotFound),
        (None, Some("c"), None, ErrorKind::InvalidParams),
    ] {
        let error = owners.admit(&bob, task, context, reference.into_iter()).await.unwrap_err();
        assert_eq!(error.kind(), kind);
    }
    let error = owners.admit(&ann, None, Some("made up"), none()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams, "bob was the first to name it");
}

/// As if it had been written so many days ago.
async fn age(store: &Arc<dyn Store>, days: i64) {
    for kind in KINDS {
        let query = RecordQuery { kind: kind.into(), limit: PAGE, ..RecordQuery::default() };
        for record in store.records(&query).await.unwrap() {
            let (key, value, at) = (record.key.into(), record.value, expiry::days_ago(days));
            let put = PutRecord { kind: kind.into(), key, value, at, expect: Expect::Anything };
            store.put_records(vec![put]).await.unwrap()[0].as_ref().unwrap();
        }
    }
}

#[tokio::test]
async fn what_is_used_stays_and_what_is_not_goes() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let ann = Caller::authenticated("ann");
    let owners = || Owners::new(Arc::clone(&store), "a");
    owners().record(&ann, &subject("used", "c")).await.unwrap();
    owners().record(&ann, &subject("unused", "d")).await.unwrap();
    age(&store, 100).await;
    // Kept in memory, too, it is written again.
    let long_running = owners();
    long_running.require(&ann, "used").await.unwrap();
    long_running.admit(&ann, None, Some("c"), std::iter::empty()).await.unwrap();
    for (kind, gone) in [(OWNER, 2), (OWNED, 1)] {
        let before = expiry::days_ago(99);
        assert_eq!(store.prune_records(kind, before, PAGE).await.unwrap(), gone, "{kind}");
    }
    owners().require(&ann, "used").await.unwrap();
    owners().require(&ann, "unused").await.unwrap_err();
    assert_eq!(owners().count(&ann).await.unwrap(), 1);
    age(&store, 200).await;
    expiry::forget(&*store, crate::agents::remote::proxy::record_kinds()).await;
    assert_eq!(owners().count(&ann).await.unwrap(), 0);
    owners().require(&ann, "used").await.unwrap_err();
}
