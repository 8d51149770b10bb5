//! Sealed calls pass the same guards as decoded ones.

use http::StatusCode;
use nuncio_protocol::{A2aService as _, Binding, CallContext, Message, Part, SendMessageRequest};
use nuncio_server::store::{RecordQuery, Records as _, SqliteOptions, SqliteStore};

use super::{
    raw::{Case, cases, grpc_answer},
    *,
};
use crate::{agents::remote::tests::trust, config::Follow};

/// An agent that answers this case.
pub(super) async fn upstream(case: &Case) -> Canned {
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
        let new = NewApiKey { operations: Some(vec!["GetTask".to_owned()]), ..NewApiKey::named("reader") };
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

/// Headers that are forwarded without being configured: those of the protocol and of HTTP.
const ALWAYS_FORWARDED: [&str; 16] = [
    "a2a-extensions",
    "a2a-version",
    "accept",
    "accept-encoding",
    "content-length",
    "content-type",
    "grpc-timeout",
    "host",
    "idempotency-key",
    "nuncio-hops",
    "te",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "user-agent",
    "x-a2a-extensions",
];

/// Headers that a caller may add.
const SENT: [&str; 8] = [
    "x-team",
    "x-other",
    "cookie",
    "x-forwarded-for",
    "forwarded",
    "user-agent",
    "referer",
    "proxy-authorization",
];

/// Calls the agent in this form, as somebody with a key and with headers, until it has been asked; what comes of it is
/// for other tests.
async fn call(hub: &Hub, upstream: &Canned, form: (Binding, Version)) {
    let mut cx = CallContext::default();
    for name in SENT {
        cx.headers.set(name, "of the caller");
    }
    let message = Message::user("m", [Part::text("hi")]);
    let say = SendMessageRequest { message, ..SendMessageRequest::default() };
    let service = hub.service("ann", form);
    let asked = async {
        while upstream.asked().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = service.send_message(&cx, say) => assert!(!upstream.asked().is_empty(), "{form:?}: {answer:?}"),
        () = asked => {}
    }
}

/// The paths of a call to an agent: sealed, decoded, and for a task of the hub.
const WAYS: [(Mode, bool); 3] = [(Mode::Proxy, true), (Mode::Proxy, false), (Mode::Durable, true)];

/// An agent that speaks as this caller does, or otherwise; and the hub's settings for it.
async fn behind(case: &Case, (mode, same): (Mode, bool)) -> (Canned, Upstream) {
    let other = cases().into_iter().find(|other| other.form != case.form).unwrap();
    let upstream = upstream(if same { case } else { &other }).await;
    let url = Url::parse(&upstream.base).unwrap();
    (upstream, Upstream { mode, follow: Follow::Block, ..Upstream::new(url) })
}

#[tokio::test]
async fn of_a_callers_headers_only_those_go_on_that_the_operator_has_named() {
    for way in WAYS {
        for case in cases() {
            let (upstream, mut settings) = behind(&case, way).await;
            settings.forward_headers = vec!["x-team".parse().unwrap(), "x-absent".parse().unwrap()];
            let hub =
                hub_of(settings, true, None, Arc::new(MemoryStore::default()), &Bounds::default()).await;
            call(&hub, &upstream, case.form).await;
            for Asked { headers, .. } in upstream.asked() {
                let about = format!("{way:?} {:?}: {headers:?}", case.form);
                let more: Vec<_> =
                    headers.keys().filter(|name| !ALWAYS_FORWARDED.contains(&name.as_str())).collect();
                assert_eq!(more, ["x-team"], "{about}");
                // A relayed call keeps its user agent: agents answer some SDKs in a form of their own.
                let expected: &[&str] =
                    if way == (Mode::Proxy, true) { &["user-agent", "x-team"] } else { &["x-team"] };
                let theirs = headers.iter().filter(|(_, value)| *value == "of the caller");
                let mut theirs: Vec<_> = theirs.map(|(name, _)| name.as_str()).collect();
                theirs.sort_unstable();
                assert_eq!(theirs, expected, "{about}");
            }
        }
    }
}

/// The hub's credentials for an agent go with the request for its card and with every call; the caller's credentials
/// for the hub never do.
#[tokio::test]
async fn the_agent_sees_the_credentials_of_the_hub_and_not_those_of_the_caller() {
    for (auth, expected) in trust::shown() {
        for way in WAYS {
            for case in cases() {
                let (upstream, settings) = behind(&case, way).await;
                let settings = Upstream { auth: auth.clone(), ..settings };
                let hub =
                    hub_of(settings, true, None, Arc::new(MemoryStore::default()), &Bounds::default()).await;
                call(&hub, &upstream, case.form).await;
                let about = format!("{way:?} {:?}", case.form);
                let looked = upstream.looked.lock().unwrap().clone();
                let called: Vec<_> = upstream.asked().into_iter().map(|asked| asked.headers).collect();
                assert!(!looked.is_empty() && !called.is_empty(), "{about}");
                for headers in looked.iter().chain(&called) {
                    assert_eq!(trust::seen(headers), expected, "{about}");
                }
            }
        }
    }
}

/// The trace goes on, in a span of the hub's own, whatever else stays behind; where there is none, one begins.
#[tokio::test]
async fn the_trace_of_a_call_goes_on_with_it() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-";
    for mut case in cases() {
        let upstream = upstream(&case).await;
        let hub = hub(&upstream.base, true).await;
        hub.ask("ann", case.asked.clone()).await;
        let headers = &mut case.asked.headers;
        headers.insert("traceparent", format!("{TRACE}00f067aa0ba902b7-01").parse().unwrap());
        headers.insert("tracestate", HeaderValue::from_static("rojo=1"));
        hub.ask("ann", case.asked).await;
        let asked = upstream.asked();
        let seen = |at: usize, name: &str| asked[at].headers[name].to_str().unwrap().to_owned();
        assert_eq!((seen(0, "traceparent").len(), seen(0, "traceparent").starts_with(TRACE)), (55, false));
        let parent = seen(1, "traceparent");
        assert!(parent.starts_with(TRACE) && parent.ends_with("-01"), "{:?}: {parent}", case.form);
        assert!(!parent.contains("00f067aa0ba902b7"), "{:?}: {parent}", case.form);
        assert!(seen(1, "tracestate").split(',').any(|member| member == "rojo=1"), "{:?}", case.form);
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
        let (_, key) = hub.keyring.create(NewApiKey::named(format!("caller-{number}"))).await.unwrap();
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
