//! What is handed on as it came passes the same guards as what is decoded.

use http::StatusCode;
use nuncio_protocol::Binding;
use nuncio_server::store::{RecordQuery, SqliteOptions, SqliteStore};

use super::{
    raw::{Case, cases, grpc_answer},
    *,
};

/// An agent that answers this case.
async fn upstream(case: &Case) -> Canned {
    let (form, said) = (case.form, case.answer.clone());
    Canned::start(&[form], move |_| match form.0 {
        Binding::Grpc => grpc_answer(said.clone()),
        _ => typed(StatusCode::OK, "application/json", said.clone()),
    })
    .await
}

#[tokio::test]
async fn an_operation_that_a_key_is_not_for_does_not_reach_the_agent() {
    for case in cases() {
        let upstream = upstream(&case).await;
        let mut hub = hub(&upstream.base, true).await;
        let new = NewKey { operations: Some(vec!["GetTask".to_owned()]), ..NewKey::named("reader") };
        let (_, key) = hub.keyring.create(new).await.unwrap();
        hub.keys.insert("reader", key.reveal().to_owned());
        let (status, headers, body, trailers) = hub.ask("reader", case.asked.clone()).await;
        let grpc = trailers.unwrap_or(headers).get("grpc-status").cloned();
        match case.form.0 {
            Binding::Grpc => assert_eq!(grpc.unwrap(), "7"),
            _ => assert!(
                status == StatusCode::FORBIDDEN || String::from_utf8_lossy(&body).contains("\"error\""),
                "{status} {body:?}"
            ),
        }
        assert!(upstream.asked().is_empty(), "{:?}", case.form);
        // The same call of somebody who may.
        hub.ask("ann", case.asked).await;
        assert_eq!(upstream.asked().len(), 1, "{:?}", case.form);
    }
}

#[tokio::test]
async fn of_a_callers_headers_only_those_go_on_that_the_operator_has_named() {
    for mut case in cases() {
        let upstream = upstream(&case).await;
        let mut settings = Upstream::new(Url::parse(&upstream.base).unwrap());
        settings.forward_headers = vec![http::HeaderName::from_static("x-team")];
        let hub = hub_with(settings, true, None, Arc::new(MemoryStore::default())).await;
        for name in ["x-team", "x-other", "cookie"] {
            case.asked.headers.insert(name, HeaderValue::from_static("v"));
        }
        hub.ask("ann", case.asked).await;
        let seen = upstream.asked().pop().unwrap().headers;
        let named = ["x-team", "x-other", "cookie", "authorization"];
        let went: Vec<_> = named.into_iter().filter(|name| seen.contains_key(*name)).collect();
        assert_eq!(went, ["x-team"], "{:?}", case.form);
    }
}

#[tokio::test]
async fn nothing_of_what_is_said_is_stored_but_whose_task_it_is() {
    let folder = std::env::temp_dir().join(format!("nuncio-proxied-{}", uuid::Uuid::now_v7()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("hub.db");
    let store = Arc::new(SqliteStore::open(&file, SqliteOptions::default()).await.unwrap());
    for (number, case) in cases().into_iter().enumerate() {
        let upstream = upstream(&case).await;
        let settings = Upstream::new(Url::parse(&upstream.base).unwrap());
        let hub = hub_with(settings, false, None, Arc::clone(&store) as Arc<dyn Store>).await;
        let (_, key) = hub.keyring.create(NewKey::named(format!("caller-{number}"))).await.unwrap();
        let mut asked = case.asked;
        asked.headers.insert("authorization", format!("Bearer {}", key.reveal()).parse().unwrap());
        hub.ask("nobody", asked).await;
        assert_eq!(upstream.asked().len(), 1, "{:?}", case.form);
    }
    let query = RecordQuery { kind: "owner".into(), limit: 9, ..RecordQuery::default() };
    let owners = store.records(&query).await.unwrap();
    assert!(!owners.is_empty(), "whose it is");
    store.close().await;
    let mut kept = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        kept.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    for word in ["\"hi\"", "novel", "unheard", "TASK_STATE_COMPLETED"] {
        assert!(!kept.windows(word.len()).any(|some| some == word.as_bytes()), "{word}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
