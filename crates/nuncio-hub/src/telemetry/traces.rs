//! Spans of calls, exported to a collector by OTLP over HTTP.
//!
//! Off unless an endpoint is configured. A span is the parent of everything that its call causes: its context
//! is passed on in [`CallContext::trace`] to executions, calls to other agents and webhooks. Spans wait in a
//! bounded queue and are sent by a thread of their own, so that no call waits for the collector or fails with
//! it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use nuncio_client::Egress;
use nuncio_protocol::{CallContext, Error, Fault, TraceContext, op::Op};
use opentelemetry::{
    Context, KeyValue,
    propagation::TextMapPropagator as _,
    trace::{SpanBuilder, SpanKind, Status, TraceContextExt as _, TracerProvider as _},
};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{Sampler, SdkTracer, SdkTracerProvider},
};
use tokio::runtime::Handle;
use url::Url;

use crate::config::Telemetry;

/// Timeout of a request to the collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// The path for traces below the collector's address.
const PATH: &str = "v1/traces";
/// The standard environment variables for the endpoint.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// Makes spans and exports them.
#[derive(Clone)]
pub(super) struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Traces {
    /// Starts the export, if the configuration or the standard environment variables have an endpoint.
    pub(super) fn start(config: &Telemetry) -> Result<Option<Self>> {
        let said = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = match &config.otlp_endpoint {
            Some(base) => below(base),
            None => match (said(TRACES_ENDPOINT), said(ENDPOINT)) {
                (Some(whole), _) => address(TRACES_ENDPOINT, &whole)?,
                (None, Some(base)) => below(&address(ENDPOINT, &base)?),
                (None, None) => return Ok(None),
            },
        };
        let headers =
            config.otlp_headers.iter().map(|(name, value)| (name.to_string(), value.reveal().to_owned()));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint.as_str())
            .with_timeout(EXPORT_TIMEOUT)
            .with_headers(headers.collect())
            .with_http_client(Courier {
                egress: Egress::operator()?,
                runtime: Handle::current(),
                failing: AtomicBool::new(false),
            })
            .build()
            .with_context(|| format!("traces cannot be sent to {endpoint}"))?;
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource(config));
        Ok(Some(Self::of(provider.with_sampler(sampler(config.sample_ratio)).build())))
    }

    pub(super) fn of(provider: SdkTracerProvider) -> Self {
        Self { tracer: provider.tracer("nuncio"), provider }
    }

    /// Begins the span of a call that an agent makes to another service, below `parent`.
    pub(super) fn begin_outbound(&self, agent: &Arc<str>, op: Op, parent: Option<&TraceContext>) -> CallSpan {
        let attributes = [
            KeyValue::new("gen_ai.agent.name", Arc::clone(agent)),
            KeyValue::new("a2a.operation", op.name()),
        ];
        let span = SpanBuilder::from_name(format!("{} {agent}", op.name()))
            .with_kind(SpanKind::Client)
            .with_attributes(attributes)
            .start_with_context(&self.tracer, &parent.map_or_else(Context::new, self::parent));
        CallSpan { context: Context::new().with_span(span) }
    }

    /// Begins this span below `parent`.
    pub(super) fn start_below(&self, span: SpanBuilder, parent: Option<&TraceContext>) -> CallSpan {
        let parent = parent.map_or_else(Context::new, self::parent);
        CallSpan { context: Context::new().with_span(span.start_with_context(&self.tracer, &parent)) }
    }

    /// Begins the span of a call to an agent.
    pub(super) fn begin(&self, agent: &Arc<str>, op: Op, cx: &CallContext) -> CallSpan {
        let mut attributes = vec![
            KeyValue::new("gen_ai.agent.name", Arc::clone(agent)),
            KeyValue::new("a2a.operation", op.name()),
            KeyValue::new("a2a.version", cx.version.as_str()),
        ];
        attributes.extend(cx.binding.map(|binding| KeyValue::new("a2a.binding", binding.as_str())));
        if matches!(op, Op::SendMessage | Op::SendStreamingMessage) {
            attributes.push(KeyValue::new("gen_ai.operation.name", "invoke_agent"));
        }
        let parent = cx.trace.as_ref().map_or_else(Context::new, parent);
        let span = SpanBuilder::from_name(format!("{} {agent}", op.name()))
            .with_kind(SpanKind::Server)
            .with_attributes(attributes)
            .start_with_context(&self.tracer, &parent);
        CallSpan { context: Context::new().with_span(span) }
    }

    /// Exports the remaining spans, within this time.
    pub(super) async fn close(self, patience: Duration) {
        let closing = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(patience));
        match tokio::time::timeout(patience, closing).await {
            Ok(Ok(Ok(()))) => {}
            _ => tracing::warn!("some traces were not sent to the collector before shutdown"),
        }
    }
}

fn address(name: &str, text: &str) -> Result<Url> {
    Url::parse(text).with_context(|| format!("{name}: expected an address such as http://127.0.0.1:4318"))
}

/// The URL for traces of a collector at this address.
fn below(base: &Url) -> Url {
    let mut url = base.clone();
    let path = base.path().trim_end_matches('/');
    if !path.ends_with(PATH) {
        url.set_path(&format!("{path}/{PATH}"));
    }
    url
}

fn resource(config: &Telemetry) -> Resource {
    Resource::builder()
        .with_service_name(config.service_name.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Follows the caller's sampling decision; without one, samples this share of traces.
fn sampler(ratio: f64) -> Sampler {
    let root = if ratio >= 1.0 { Sampler::AlwaysOn } else { Sampler::TraceIdRatioBased(ratio) };
    Sampler::ParentBased(Box::new(root))
}

fn parent(trace: &TraceContext) -> Context {
    let mut carrier = HashMap::from([("traceparent".to_owned(), trace.parent.clone())]);
    carrier.extend(trace.state.clone().map(|state| ("tracestate".to_owned(), state)));
    TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier)
}

/// The span of a call. It ends when it is dropped.
pub(super) struct CallSpan {
    context: Context,
}

impl CallSpan {
    /// The trace context for everything that the call causes.
    pub(super) fn trace(&self) -> Option<TraceContext> {
        let mut carrier = HashMap::new();
        TraceContextPropagator::new().inject_context(&self.context, &mut carrier);
        let state = carrier.remove("tracestate").filter(|state| !state.is_empty());
        Some(TraceContext { parent: carrier.remove("traceparent")?, state })
    }

    /// The span, for further attributes.
    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Adds the task and the context of the call.
    pub(super) fn about(&self, task: Option<&str>, context: Option<&str>) {
        let span = self.context.span();
        if let Some(task) = task {
            span.set_attribute(KeyValue::new("a2a.task.id", task.to_owned()));
        }
        if let Some(context) = context {
            span.set_attribute(KeyValue::new("gen_ai.conversation.id", context.to_owned()));
        }
    }

    /// Notes the error of the call or its stream. A caller's mistake is not marked as an error of the span.
    pub(super) fn failed(&self, error: &Error) {
        let span = self.context.span();
        span.set_attribute(KeyValue::new("error.type", error.kind().row().reason));
        if error.fault() != Fault::Caller {
            span.set_status(Status::error(error.kind().row().message));
        }
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        self.context.span().end();
    }
}

/// Sends spans through the hub's own egress. The exporting thread does not belong to the runtime, so the
/// request is spawned there.
#[derive(Debug)]
struct Courier {
    egress: Egress,
    runtime: Handle,
    /// The last request failed. Kept so that an outage of the collector is one line in the log.
    failing: AtomicBool,
}

#[async_trait]
impl HttpClient for Courier {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let egress = self.egress.clone();
        let sending = async move { tokio::time::timeout(EXPORT_TIMEOUT, egress.fetch(request)).await };
        let answer: Result<_, HttpError> = match self.runtime.spawn(sending).await {
            Ok(Ok(answer)) => answer.map_err(Into::into),
            Ok(Err(late)) => Err(late.into()),
            Err(gone) => Err(gone.into()),
        };
        let trouble = match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answered {}", answer.status())),
            Err(error) => Some(error.to_string()),
        };
        self.tell(trouble);
        answer
    }
}

impl Courier {
    fn tell(&self, trouble: Option<String>) {
        let was_failing = self.failing.swap(trouble.is_some(), Ordering::Relaxed);
        match trouble {
            Some(error) if !was_failing => tracing::warn!(%error, "traces cannot be sent to the collector"),
            None if was_failing => tracing::info!("traces are sent to the collector again"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_takes_traces_below_its_address() {
        for (base, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("https://otlp.example/in", "https://otlp.example/in/v1/traces"),
            ("https://otlp.example/v1/traces", "https://otlp.example/v1/traces"),
        ] {
            assert_eq!(below(&Url::parse(base).unwrap()).as_str(), expected);
        }
    }
}
