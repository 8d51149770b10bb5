//! Streams, event by event.

use std::time::Duration;

use nuncio_protocol::op::Op;
use tokio::sync::mpsc;

use super::{super::super::proxy_of, *};

pub(super) type Piece = Result<Bytes, std::io::Error>;
pub(super) type Pieces = mpsc::Sender<Piece>;

/// An agent whose streams are what a test feeds them.
pub(super) async fn fed(form: (Binding, Version)) -> (Canned, Arc<Mutex<Option<Pieces>>>) {
    let feed = Arc::new(Mutex::new(None));
    let fed = Arc::clone(&feed);
    let upstream = Canned::start(&[form], move |_| {
        let (sender, receiver) = mpsc::channel::<Piece>(4);
        let pieces = futures_util::stream::unfold(receiver, async |mut receiver| {
            Some((receiver.recv().await?, receiver))
        });
        *fed.lock().unwrap() = Some(sender);
        let media_type = if form.0 == Binding::Grpc { "application/grpc" } else { "text/event-stream" };
        typed(StatusCode::OK, media_type, Body::from_stream(pieces))
    })
    .await;
    (upstream, feed)
}

pub(super) fn event(form: (Binding, Version), text: &str) -> Bytes {
    let task = match form.1 {
        Version::V1_0 => format!(
            r#"{{"task":{{"id":"t","contextId":"c","status":{{"state":"TASK_STATE_WORKING"}},"unheard":"{text}"}}}}"#
        ),
        Version::V0_3 => format!(
            r#"{{"kind":"task","id":"t","contextId":"c","status":{{"state":"working"}},"unheard":"{text}"}}"#
        ),
    };
    match form.0 {
        Binding::JsonRpc => {
            format!(": note\nid: 7\nretry: 5\ndata: {{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{task}}}\n\n")
                .into()
        }
        Binding::HttpJson => format!("event: x\ndata: {task}\n\n").into(),
        Binding::Grpc => framed(&[0x0a, 0x06, 0x0a, 0x01, b't', 0x12, 0x01, b'c', 0xd2, 0x05, 0x01, b'x']),
    }
}

pub(super) fn stream_call(form: (Binding, Version)) -> Asked {
    let role = if form.1 == Version::V1_0 { "ROLE_USER" } else { "user" };
    let message = format!(r#"{{"message":{{"messageId":"m","role":"{role}","parts":[{{"text":"hi"}}]}}}}"#);
    let rpc = |method| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{message}}}"#);
    let json = "application/json";
    let pb = |field: u8| framed(&[field << 3 | 2, 0x03, 0x0a, 0x01, b'm']);
    match form {
        (Binding::JsonRpc, Version::V1_0) => {
            posted("/agents/up", json, form.1, rpc(Op::SendStreamingMessage.name()))
        }
        (Binding::JsonRpc, Version::V0_3) => posted("/agents/up", json, form.1, rpc("message/stream")),
        (Binding::HttpJson, Version::V1_0) => posted("/agents/up/message:stream", json, form.1, message),
        (Binding::HttpJson, Version::V0_3) => posted("/agents/up/v1/message:stream", json, form.1, message),
        (Binding::Grpc, Version::V1_0) => {
            posted("/lf.a2a.v1.A2AService/SendStreamingMessage", "application/grpc", form.1, pb(2))
        }
        (Binding::Grpc, Version::V0_3) => {
            posted("/a2a.v1.A2AService/SendStreamingMessage", "application/grpc", form.1, pb(1))
        }
    }
}

pub(super) async fn next(body: &mut hyper::body::Incoming) -> Bytes {
    body.frame().await.unwrap().unwrap().into_data().unwrap()
}

#[tokio::test]
async fn each_event_is_there_before_the_next_one_is_made() {
    for form in FORMS {
        for apart in [false, true] {
            let (upstream, feed) = fed(form).await;
            let hub = hub(&upstream.base, apart).await;
            let mut body = hub.open("ann", stream_call(form)).await.into_body();
            let feed = feed.lock().unwrap().take().unwrap();
            for text in ["one", "two"] {
                let sent = event(form, text);
                // An event may come in pieces.
                let (first, second) = sent.split_at(sent.len() / 2);
                feed.send(Ok(Bytes::copy_from_slice(first))).await.unwrap();
                feed.send(Ok(Bytes::copy_from_slice(second))).await.unwrap();
                let mut got = Vec::new();
                while got.len() < sent.len() {
                    got.extend_from_slice(&next(&mut body).await);
                }
                assert_eq!(got, sent, "{form:?}");
            }
            drop(feed);
            // Nothing of ours stands at the end; of gRPC, the end is not one of success.
            let rest = body.collect().await.unwrap();
            let status = rest.trailers().and_then(|trailers| trailers.get("grpc-status").cloned());
            assert_eq!((rest.to_bytes().len(), status.is_some()), (0, form.0 == Binding::Grpc), "{form:?}");
        }
    }
}

#[tokio::test]
async fn the_task_is_the_callers_before_its_first_event_is_seen() {
    for form in FORMS {
        let (upstream, feed) = fed(form).await;
        let hub = hub(&upstream.base, true).await;
        let mut body = hub.open("ann", stream_call(form)).await.into_body();
        let feed = feed.lock().unwrap().take().unwrap();
        feed.send(Ok(event(form, "one"))).await.unwrap();
        next(&mut body).await;
        let owners = &proxy_of(&hub.agent).unwrap().owners;
        owners.require(&Caller::authenticated("ann"), "t").await.unwrap();
        owners.require(&Caller::authenticated("bob"), "t").await.unwrap_err();
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_ends_with_an_error_of_the_protocol() {
    for form in FORMS {
        let (upstream, feed) = fed(form).await;
        let hub = hub(&upstream.base, false).await;
        let mut body = hub.open("ann", stream_call(form)).await.into_body();
        let feed = feed.lock().unwrap().take().unwrap();
        feed.send(Ok(event(form, "one"))).await.unwrap();
        next(&mut body).await;
        feed.send(Err(std::io::Error::other("cut"))).await.unwrap();
        let rest = body.collect().await.unwrap();
        let trailers = rest.trailers().map(|trailers| format!("{trailers:?}")).unwrap_or_default();
        let told = format!("{}{trailers}", String::from_utf8_lossy(&rest.to_bytes())).replace("%20", " ");
        assert!(told.contains("not available"), "{form:?} {told:?}");
        if form.0 == Binding::JsonRpc {
            assert!(told.starts_with("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":"), "{told}");
        }
    }
}

#[tokio::test]
async fn nothing_is_said_in_the_middle_of_an_event() {
    let form = FORMS[0];
    let (upstream, feed) = fed(form).await;
    let hub = hub(&upstream.base, false).await;
    let mut body = hub.open("ann", stream_call(form)).await.into_body();
    let feed = feed.lock().unwrap().take().unwrap();
    feed.send(Ok(Bytes::from_static(b"data: {\"jsonrpc\":"))).await.unwrap();
    next(&mut body).await;
    feed.send(Err(std::io::Error::other("cut"))).await.unwrap();
    assert!(body.collect().await.is_err(), "the connection ends");
}

#[tokio::test]
async fn a_caller_that_leaves_takes_its_connection_along() {
    let form = FORMS[0];
    let (upstream, feed) = fed(form).await;
    let hub = hub(&upstream.base, false).await;
    let mut body = hub.open("ann", stream_call(form)).await.into_body();
    let feed = feed.lock().unwrap().take().unwrap();
    feed.send(Ok(event(form, "one"))).await.unwrap();
    next(&mut body).await;
    drop(body);
    // The agent finds out when there is nobody to write to.
    while feed.send(Ok(event(form, "more"))).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

/// The beginning of an event, and of what it goes on with for ever.
fn drip(form: (Binding, Version)) -> (Bytes, Bytes) {
    match form.0 {
        Binding::JsonRpc | Binding::HttpJson => (Bytes::from_static(b"data: {"), Bytes::from_static(b" ")),
        Binding::Grpc => (Bytes::from_static(&[0, 0, 1, 0, 0]), Bytes::from_static(b"x")),
    }
}

/// Begins with these pieces, then drips.
fn feed_drops(feed: Pieces, first: Vec<Bytes>, drop: Bytes) {
    tokio::spawn(async move {
        for piece in first {
            let _ = feed.send(Ok(piece)).await;
        }
        let mut every = tokio::time::interval(Duration::from_millis(5));
        while feed.send(Ok(drop.clone())).await.is_ok() {
            every.tick().await;
        }
    });
}

async fn hub_in_a_hurry(upstream: &Canned, apart: bool) -> Hub {
    let send_timeout = Duration::from_millis(100);
    let settings = Upstream { send_timeout, ..Upstream::new(Url::parse(&upstream.base).unwrap()) };
    hub_with(settings, apart, None, Arc::new(MemoryStore::default())).await
}

/// Only a test that fails waits this long.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_answer_that_never_begins_to_make_sense_is_late() {
    // By bytes, and by types.
    for (form, caller) in
        FORMS.into_iter().map(|form| (form, form)).chain([(FORMS[0], FORMS[2]), (FORMS[4], FORMS[0])])
    {
        for apart in [false, true] {
            let (upstream, feed) = fed(form).await;
            let hub = hub_in_a_hurry(&upstream, apart).await;
            let case = format!("{form:?} {caller:?} {apart}");
            let (first, drop) = drip(form);
            let feeding = async {
                let feed = loop {
                    if let Some(feed) = feed.lock().unwrap().take() {
                        break feed;
                    }
                    tokio::task::yield_now().await;
                };
                feed_drops(feed, vec![first], drop);
            };
            let both = futures_util::future::join(told_until_the_end(&hub, caller), feeding);
            let ended = tokio::time::timeout(TEST_TIMEOUT, both).await;
            let ((told, is_cut), ()) = ended.unwrap_or_else(|_| panic!("{case}: no end"));
            // What was handed on in pieces of an event can only be cut.
            let has_begun = !apart && form == caller && form.0 != Binding::Grpc;
            assert_eq!(is_cut, has_begun, "{case}: {told}");
            assert!(is_cut || told.contains("took too long"), "{case}: {told}");
        }
    }
}

/// All that the caller of a stream is told, and whether that was cut.
async fn told_until_the_end(hub: &Hub, form: (Binding, Version)) -> (String, bool) {
    let (head, mut body) = hub.open("ann", stream_call(form)).await.into_parts();
    let mut told = format!("{:?}", head.headers);
    while let Some(frame) = body.frame().await {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(data)) => told.push_str(&String::from_utf8_lossy(&data)),
            Ok(Err(frame)) => told.push_str(&format!("{:?}", frame.into_trailers())),
            Err(_) => return (told, true),
        }
    }
    (told.replace("%20", " "), false)
}

#[tokio::test]
async fn an_event_that_has_begun_has_to_end() {
    for form in FORMS {
        for apart in [false, true] {
            let (upstream, feed) = fed(form).await;
            let hub = hub_in_a_hurry(&upstream, apart).await;
            let mut body = hub.open("ann", stream_call(form)).await.into_body();
            let feed = feed.lock().unwrap().take().unwrap();
            feed.send(Ok(event(form, "one"))).await.unwrap();
            next(&mut body).await;
            let (first, drop) = drip(form);
            feed_drops(feed, vec![first], drop);
            let end = async { while let Some(Ok(_)) = body.frame().await {} };
            tokio::time::timeout(TEST_TIMEOUT, end)
                .await
                .unwrap_or_else(|_| panic!("{form:?} {apart}: no end"));
        }
    }
}
