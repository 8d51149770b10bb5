//! Sealed calls count against the limits like decoded ones, and a refusal has the form of the binding.

use nuncio_protocol::Binding;
use serde_json::Value;

use super::{
    guarded::upstream,
    raw::cases,
    streams::{event, fed, next, stream_call},
    *,
};
use crate::config::{AgentLimits, Limits, Rate};

/// Of each caller, and of all together.
fn each(limits: Limits) -> [Bounds; 2] {
    let agent = AgentLimits {
        rate: limits.rate,
        tasks: limits.tasks,
        streams: limits.streams,
        ..AgentLimits::default()
    };
    [Bounds { caller: limits, ..Bounds::default() }, Bounds { agent, ..Bounds::default() }]
}

fn settings(upstream: &Canned) -> Upstream {
    Upstream { mode: Mode::Proxy, ..Upstream::new(Url::parse(&upstream.base).unwrap()) }
}

async fn limited(upstream: &Canned, bounds: &Bounds) -> Hub {
    let settings = settings(upstream);
    hub_of(settings, true, None, Arc::new(MemoryStore::default()), bounds).await
}

/// An answer as it came: the status, the headers and the body.
type Told = (StatusCode, HeaderMap, Bytes);

async fn whole(response: http::Response<hyper::body::Incoming>) -> Told {
    let (parts, body) = response.into_parts();
    (parts.status, parts.headers, body.collect().await.unwrap().to_bytes())
}

/// The same of a call that is not let in: else its stream has no end.
async fn refused(response: http::Response<hyper::body::Incoming>) -> Told {
    assert!(!is_stream(&response), "it was let in");
    whole(response).await
}

/// Holds a refusal to what its form says; after how many seconds to come again.
fn exhausted(form: (Binding, Version), id: impl Into<Value>, (status, headers, body): &Told) -> u64 {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &json["error"];
    let case = format!("{form:?}: {status} {headers:?} {body:?}");
    match form {
        (Binding::JsonRpc, _) => {
            let said = (status.as_u16(), &json["jsonrpc"], &json["id"], &error["code"]);
            assert_eq!(said, (429, &"2.0".into(), &id.into(), &(-32052).into()), "{case}");
        }
        (Binding::HttpJson, Version::V1_0) => {
            let said = (status.as_u16(), &error["code"], &error["status"]);
            assert_eq!(said, (429, &429.into(), &"RESOURCE_EXHAUSTED".into()), "{case}");
        }
        (Binding::HttpJson, Version::V0_3) => {
            assert_eq!((status.as_u16(), &json["code"]), (429, &(-32052).into()), "{case}");
        }
        (Binding::Grpc, _) => {
            assert_eq!((status.as_u16(), &headers["grpc-status"]), (200, &"8".parse().unwrap()))
        }
    }
    headers.get("retry-after").unwrap_or_else(|| panic!("{case}")).to_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn requests_beyond_the_rate_do_not_reach_the_agent() {
    let rate = Some(Rate { per_second: 0.001, burst: Some(1) });
    for bounds in each(Limits { rate, ..Limits::default() }) {
        for case in cases() {
            let upstream = upstream(&case).await;
            let hub = limited(&upstream, &bounds).await;
            let (first, ..) = whole(hub.open("ann", case.asked.clone()).await).await;
            assert_eq!((first, upstream.asked().len()), (StatusCode::OK, 1), "{:?}", case.form);
            let told = refused(hub.open("ann", case.asked.clone()).await).await;
            let wait = exhausted(case.form, "a-1", &told);
            assert!((900..=1000).contains(&wait), "{:?}: {wait}", case.form);
            assert_eq!(upstream.asked().len(), 1, "{:?}", case.form);
            // Another caller has a rate of its own, and the same agent.
            let other = whole(hub.open("bob", case.asked.clone()).await).await;
            match bounds.caller.rate {
                Some(_) => assert_eq!(upstream.asked().len(), 2, "{:?}", case.form),
                None => drop(exhausted(case.form, "a-1", &other)),
            }
        }
    }
}

/// A stream counts, as a stream and as a send, until it ends or its caller leaves.
#[tokio::test]
async fn streams_beyond_the_limit_do_not_reach_the_agent() {
    let [streams, tasks] =
        [Limits { streams: Some(1), ..Limits::default() }, Limits { tasks: Some(1), ..Limits::default() }]
            .map(each);
    for (number, bounds) in [streams, tasks].as_flattened().iter().enumerate() {
        for form in FORMS {
            let case = format!("{form:?} {bounds:?}");
            let (upstream, feed) = fed(form).await;
            let hub = limited(&upstream, bounds).await;
            let mut open = hub.open("ann", stream_call(form)).await.into_body();
            let pieces = feed.lock().unwrap().take().unwrap();
            pieces.send(Ok(event(form, "one"))).await.unwrap();
            next(&mut open).await;
            let told = refused(hub.open("ann", stream_call(form)).await).await;
            assert_eq!((exhausted(form, 1, &told), upstream.asked().len()), (1, 1), "{case}");
            if number % 2 == 0 {
                drop((open, pieces));
            } else {
                drop(pieces);
                drop(open.collect().await);
            }
            free_again(&hub, form, &case).await;
        }
    }
}

/// A place is free when the hub has seen the end of a stream: soon.
async fn free_again(hub: &Hub, form: (Binding, Version), case: &str) {
    let again = async {
        while !is_stream(&hub.open("ann", stream_call(form)).await) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, again).await.unwrap_or_else(|_| panic!("{case}: it still counts"));
}

/// The timeout for operations that are immediate; only a failing test waits this long.
const TEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

fn is_stream<T>(response: &http::Response<T>) -> bool {
    let media_type = &response.headers()["content-type"];
    media_type == "text/event-stream"
        || (media_type == "application/grpc" && !response.headers().contains_key("grpc-status"))
}

/// The bindings of callers and agent, for sealed and for decoded calls.
fn interfaces() -> Vec<((Binding, Version), (Binding, Version))> {
    let [rpc, _, rest, _, grpc, _] = FORMS;
    let mut interfaces: Vec<_> = FORMS.into_iter().map(|form| (form, form)).collect();
    interfaces.extend([(rpc, rest), (rest, rpc), (rpc, grpc)]);
    interfaces
}

/// A JSON-RPC request that reads a task.
fn look() -> Asked {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t"}}"#;
    posted("/agents/up", "application/json", Version::V1_0, body)
}

/// A message is under way until the stream ends that answers it, and what is no message goes on meanwhile.
#[tokio::test]
async fn an_agent_has_so_many_messages_at_a_time() {
    for (number, (ours, theirs)) in interfaces().into_iter().enumerate() {
        let case = format!("{ours:?} to {theirs:?}");
        let (upstream, feed) = fed(theirs).await;
        let timeout = std::time::Duration::from_millis(200);
        let settings = Upstream { max_concurrent: Some(1), timeout, ..settings(&upstream) };
        let hub = hub_of(settings, false, None, Arc::new(MemoryStore::default()), &Bounds::default()).await;
        let mut open = hub.open("ann", stream_call(ours)).await.into_body();
        let pieces = feed.lock().unwrap().take().unwrap();
        pieces.send(Ok(event(theirs, "one"))).await.unwrap();
        next(&mut open).await;
        let told = refused(hub.open("ann", stream_call(ours)).await).await;
        assert_eq!((exhausted(ours, 1, &told), upstream.asked().len()), (5, 1), "{case}");
        let reached = async {
            while upstream.asked().len() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            answer = hub.ask("ann", look()) => assert_eq!(upstream.asked().len(), 2, "{case}: {answer:?}"),
            () = reached => {}
        }
        if number % 2 == 0 {
            drop((open, pieces));
        } else {
            drop(pieces);
            drop(open.collect().await);
        }
        free_again(&hub, ours, &case).await;
    }
}

/// Five in a row have reached nobody: the next is told so at once, although somebody is there again.
#[tokio::test]
async fn an_agent_that_is_not_reached_again_and_again_is_left_alone_for_a_while() {
    for (ours, theirs) in interfaces() {
        let case = format!("{ours:?} to {theirs:?}");
        let (hub, address, base) = left_alone(theirs).await;
        for _ in 0..5 {
            let (status, headers, body) = refused(hub.open("ann", stream_call(ours)).await).await;
            let told = format!("{headers:?} {}", String::from_utf8_lossy(&body)).replace("%20", " ");
            assert!(told.contains("cannot be reached"), "{case}: {status} {told}");
        }
        let back = Canned::on((TcpListener::bind(address).await.unwrap(), base), &[theirs], |_| {
            typed(StatusCode::OK, "application/json", "{}")
        });
        // Neither a message nor a look at a task.
        for (form, asked) in [(ours, stream_call(ours)), (FORMS[0], look())] {
            let (status, headers, body) = refused(hub.open("ann", asked).await).await;
            let case = format!("{case}: {headers:?} {body:?}");
            let wait = headers.get("retry-after").map(|wait| wait.to_str().unwrap().to_owned());
            assert!(wait.is_some_and(|wait| ["1", "2"].contains(&&*wait)), "{case}");
            let code = headers.get("grpc-status").map_or(status.as_str(), |code| code.to_str().unwrap());
            assert_eq!(code, if form.0 == Binding::Grpc { "14" } else { "503" }, "{case}");
        }
        assert!(back.asked().is_empty(), "{case}: nobody has tried");
    }
}
