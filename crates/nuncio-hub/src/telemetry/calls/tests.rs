//! Metrics and spans of the calls to an agent.

use std::sync::Mutex;

use futures_util::{FutureExt as _, StreamExt as _};
use nuncio_protocol::{
    A2aService, Binding, CallHandler, CancelTaskRequest, Error, ErrorKind, Event, GetTaskRequest, StreamItem,
    SubscribeToTaskRequest, Task, TraceContext,
    op::{Call, Reply},
};
use opentelemetry::trace::SpanKind;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};

use super::*;
use crate::telemetry::{Metrics, outbound::Outbound};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// Answers by operation, and remembers the traces that it was given.
#[derive(Default)]
struct Agent(Mutex<Vec<Option<TraceContext>>>);

impl CallHandler for Agent {
    async fn handle(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        self.0.lock().unwrap().push(cx.trace.clone());
        let task = Task { id: "t-1".into(), context_id: "c-1".into(), ..Task::default() };
        match call {
            Call::GetTask(_) => Ok(Reply::Task(task)),
            Call::SubscribeToTask(_) => {
                let item = StreamItem::new(None, Arc::new(Event::Task(task)));
                let broken = Error::new(ErrorKind::Unavailable, "gone");
                Ok(Reply::Stream(Box::pin(futures_util::stream::iter([Ok(item), Err(broken)]))))
            }
            Call::CancelTask(_) => std::future::pending().await,
            _ => Err(Error::task_not_found(&"t-9".into())),
        }
    }
}

/// An agent whose calls are observed.
struct Watched {
    calls: Arc<CallTelemetry>,
    service: Arc<Agent>,
}

impl CallHandler for Watched {
    async fn handle(&self, cx: &CallContext, call: Call) -> Result<Reply> {
        let observed = self.calls.begin(cx, &call);
        let traced = observed.traced();
        observed.end(self.service.call(traced.as_ref().unwrap_or(cx), call).await)
    }
}

#[derive(Clone, Default, Debug)]
struct Exported(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Exported {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

impl Exported {
    fn take(&self) -> Vec<SpanData> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn get() -> Call {
    Call::GetTask(Box::new(GetTaskRequest { id: "t-1".into(), ..GetTaskRequest::default() }))
}

fn subscribe() -> Call {
    Call::SubscribeToTask(Box::new(SubscribeToTaskRequest {
        id: "t-1".into(),
        ..SubscribeToTaskRequest::default()
    }))
}

fn cancel() -> Call {
    Call::CancelTask(Box::new(CancelTaskRequest { id: "t-1".into(), ..CancelTaskRequest::default() }))
}

/// A call by JSON-RPC that is part of a trace.
fn context() -> CallContext {
    let trace = TraceContext { parent: format!("00-{TRACE}-{PARENT}-01"), state: Some("a=b".to_owned()) };
    CallContext { binding: Some(Binding::JsonRpc), trace: Some(trace), ..CallContext::default() }
}

fn watched(traces: Option<Traces>) -> (Arc<Metrics>, Arc<Agent>, Watched) {
    let (metrics, agent) = (Arc::new(Metrics::default()), Arc::new(Agent::default()));
    let calls = Arc::new(CallTelemetry { metrics: metrics.agent("echo"), traces });
    let watched = Watched { calls, service: Arc::clone(&agent) };
    (metrics, agent, watched)
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    span.attributes.iter().find(|pair| pair.key.as_str() == name).map(|pair| pair.value.to_string())
}

#[tokio::test]
async fn calls_are_counted_by_how_they_end() {
    let (metrics, _, watched) = watched(None);
    let cx = CallContext { version_inferred: true, ..context() };
    watched.handle(&cx, get()).await.unwrap();
    // A caller that leaves before the answer.
    assert!(watched.handle(&cx, cancel()).now_or_never().is_none());
    let other = Call::ListTasks(Box::default());
    watched.handle(&cx, other).await.err().unwrap();
    let Reply::Stream(mut events) = watched.handle(&cx, subscribe()).await.unwrap() else { panic!() };
    let text = metrics.text();
    let by = |operation: &str| {
        format!(r#"{{agent="echo",operation="{operation}",version="1.0",binding="JSONRPC""#)
    };
    for expected in [
        format!(r#"nuncio_requests_total{},outcome="ok"}} 1"#, by("GetTask")),
        format!(r#"nuncio_requests_total{},outcome="abandoned"}} 1"#, by("CancelTask")),
        format!(r#"nuncio_requests_total{},outcome="task_not_found"}} 1"#, by("ListTasks")),
        format!(r#"nuncio_requests_total{},outcome="ok"}} 1"#, by("SubscribeToTask")),
        format!(r#"nuncio_request_seconds_count{}}} 1"#, by("GetTask")),
        format!(r#"nuncio_first_event_seconds_count{}}} 0"#, by("SubscribeToTask")),
        r#"nuncio_open_streams{agent="echo"} 1"#.to_owned(),
        r#"nuncio_inferred_versions_total{agent="echo",binding="JSONRPC"} 4"#.to_owned(),
    ] {
        assert!(text.contains(&expected), "{expected}\n{text}");
    }
    assert!(events.next().await.unwrap().is_ok());
    let one = format!(r#"nuncio_first_event_seconds_count{}}} 1"#, by("SubscribeToTask"));
    assert!(metrics.text().contains(&one));
    drop(events);
    assert!(metrics.text().contains(r#"nuncio_open_streams{agent="echo"} 0"#));
}

#[tokio::test]
async fn without_a_collector_a_trace_passes_as_it_came() {
    let (_, agent, watched) = watched(None);
    watched.handle(&context(), get()).await.unwrap();
    assert_eq!(*agent.0.lock().unwrap(), [context().trace]);
}

#[tokio::test]
async fn a_span_goes_on_with_the_callers_trace_and_is_the_parent_of_what_follows() {
    let exported = Exported::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
    let (_, agent, watched) = watched(Some(Traces::of(provider)));
    watched.handle(&context(), get()).await.unwrap();
    let span = exported.take().pop().unwrap();
    assert_eq!((&*span.name, span.parent_span_id.to_string()), ("GetTask echo", PARENT.to_owned()));
    assert_eq!(span.span_context.trace_id().to_string(), TRACE);
    for (name, value) in [
        ("gen_ai.agent.name", "echo"),
        ("gen_ai.conversation.id", "c-1"),
        ("a2a.operation", "GetTask"),
        ("a2a.version", "1.0"),
        ("a2a.binding", "JSONRPC"),
        ("a2a.task.id", "t-1"),
    ] {
        assert_eq!(attribute(&span, name).as_deref(), Some(value), "{name}");
    }
    let handed_on = agent.0.lock().unwrap().pop().unwrap().unwrap();
    assert_eq!(handed_on.parent, format!("00-{TRACE}-{}-01", span.span_context.span_id()));
    assert_eq!(handed_on.state.as_deref(), Some("a=b"));

    // Without a trace one begins; of what is no trace nothing is believed.
    for parent in [None, Some("rubbish")] {
        let trace = parent.map(|parent| TraceContext { parent: parent.to_owned(), state: None });
        watched.handle(&CallContext { trace, ..context() }, get()).await.unwrap();
        let span = exported.take().pop().unwrap();
        assert_ne!(span.span_context.trace_id().to_string(), TRACE);
        assert!(agent.0.lock().unwrap().pop().unwrap().is_some());
    }
    // What the caller does not want traced is not.
    let unsampled = TraceContext { parent: format!("00-{TRACE}-{PARENT}-00"), state: None };
    watched.handle(&CallContext { trace: Some(unsampled), ..context() }, get()).await.unwrap();
    assert!(exported.take().is_empty());
    assert!(agent.0.lock().unwrap().pop().unwrap().unwrap().parent.ends_with("-00"));
}

#[tokio::test]
async fn the_span_of_a_stream_ends_with_it() {
    let exported = Exported::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
    let (_, _, watched) = watched(Some(Traces::of(provider)));
    let Reply::Stream(events) = watched.handle(&context(), subscribe()).await.unwrap() else { panic!() };
    assert!(exported.take().is_empty(), "it is open");
    assert_eq!(events.count().await, 2);
    let span = exported.take().pop().unwrap();
    assert_eq!(attribute(&span, "error.type").as_deref(), Some("UNAVAILABLE"));
    assert_eq!(attribute(&span, "a2a.task.id").as_deref(), Some("t-1"));
}

#[tokio::test]
async fn a_call_to_somebody_else_is_a_span_below_the_one_it_is_made_for() {
    let exported = Exported::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
    let agent = Arc::new(Agent::default());
    let outbound = Outbound {
        traces: Traces::of(provider),
        agent: "echo".into(),
        parent: context().trace,
        service: Arc::clone(&agent) as _,
    };
    // The hops are in the state of what goes out.
    let out =
        TraceContext { parent: format!("00-{TRACE}-{}-01", "c".repeat(16)), state: Some("n=1".to_owned()) };
    let cx = CallContext { trace: Some(out), ..context() };
    for (call, error) in [
        (get(), None),
        (subscribe(), Some("UNAVAILABLE")),
        (Call::ListTasks(Box::default()), Some("TASK_NOT_FOUND")),
    ] {
        if let Ok(Reply::Stream(events)) = outbound.handle(&cx, call).await {
            assert!(exported.0.lock().unwrap().is_empty(), "it is open");
            events.count().await;
        }
        let span = exported.take().pop().unwrap();
        assert_eq!(
            (span.span_kind.clone(), span.parent_span_id.to_string()),
            (SpanKind::Client, PARENT.to_owned())
        );
        assert_eq!(attribute(&span, "error.type").as_deref(), error);
        let handed_on = agent.0.lock().unwrap().pop().unwrap().unwrap();
        assert_eq!(handed_on.parent, format!("00-{TRACE}-{}-01", span.span_context.span_id()));
        assert_eq!(handed_on.state.as_deref(), Some("n=1"));
    }
}
