//! Spans of the requests to models and of the calls of their tools, with the attributes that OpenTelemetry has for
//! generative AI. Nothing that anybody has said is in them: no prompt, no answer, no argument.

use std::sync::Arc;

use nuncio_protocol::TraceContext;
use opentelemetry::{
    Array, Context, KeyValue, StringValue, Value,
    trace::{SpanBuilder, SpanKind, Status, TraceContextExt as _},
};

use super::{HubTelemetry, traces::CallSpan};

/// A request to a model, for its span.
pub(crate) struct ModelRequest<'a> {
    pub(crate) agent: &'a Arc<str>,
    /// The dialect, which is the name of its provider.
    pub(crate) provider: &'static str,
    pub(crate) model: &'a str,
    /// The host and the port of the provider.
    pub(crate) server: (String, u16),
    pub(crate) max_tokens: Option<u64>,
}

/// The span of a request to a model, or of a call of a tool. It ends when it is dropped; without traces it does nothing.
pub(crate) struct ModelSpan(Option<CallSpan>);

impl HubTelemetry {
    /// Begins the span of a request to a model, below `parent`.
    pub(crate) fn model_span(&self, request: &ModelRequest<'_>, parent: Option<&TraceContext>) -> ModelSpan {
        let ModelRequest { agent, provider, model, server: (host, port), max_tokens } = request;
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", "chat"),
            KeyValue::new("gen_ai.provider.name", *provider),
            KeyValue::new("gen_ai.request.model", (*model).to_owned()),
            KeyValue::new("gen_ai.agent.name", Arc::clone(agent)),
            KeyValue::new("server.address", host.clone()),
            KeyValue::new("server.port", i64::from(*port)),
        ];
        attributes.extend(max_tokens.map(|limit| KeyValue::new("gen_ai.request.max_tokens", number(limit))));
        self.begin(format!("chat {model}"), SpanKind::Client, attributes, parent)
    }

    /// Begins the span of a call of a tool, below `parent`.
    pub(crate) fn tool_span(&self, agent: &Arc<str>, tool: &str, parent: Option<&TraceContext>) -> ModelSpan {
        let attributes = vec![
            KeyValue::new("gen_ai.operation.name", "execute_tool"),
            KeyValue::new("gen_ai.tool.name", tool.to_owned()),
            KeyValue::new("gen_ai.tool.type", "function"),
            KeyValue::new("gen_ai.agent.name", Arc::clone(agent)),
        ];
        self.begin(format!("execute_tool {tool}"), SpanKind::Internal, attributes, parent)
    }

    fn begin(
        &self,
        name: String,
        kind: SpanKind,
        attributes: Vec<KeyValue>,
        parent: Option<&TraceContext>,
    ) -> ModelSpan {
        let span = |traces: &super::traces::Traces| {
            let builder = SpanBuilder::from_name(name).with_kind(kind).with_attributes(attributes);
            traces.start_below(builder, parent)
        };
        ModelSpan(self.traces.as_ref().map(span))
    }
}

impl ModelSpan {
    /// The trace context for the provider.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.0.as_ref().and_then(CallSpan::trace)
    }

    /// Notes the tokens of the answer and the reason for its end.
    pub(crate) fn answered(&self, input: Option<u64>, output: Option<u64>, finish: Option<&'static str>) {
        let attributes = [
            input.map(|tokens| KeyValue::new("gen_ai.usage.input_tokens", number(tokens))),
            output.map(|tokens| KeyValue::new("gen_ai.usage.output_tokens", number(tokens))),
            finish.map(|word| {
                let words = Array::String(vec![StringValue::from(word)]);
                KeyValue::new("gen_ai.response.finish_reasons", Value::Array(words))
            }),
        ];
        self.note(|context| context.span().set_attributes(attributes.into_iter().flatten()));
    }

    /// Notes the kind of a failure.
    pub(crate) fn failed(&self, word: &'static str) {
        self.note(|context| {
            context.span().set_attribute(KeyValue::new("error.type", word));
            context.span().set_status(Status::error(word));
        });
    }

    fn note(&self, note: impl FnOnce(&Context)) {
        if let Some(span) = &self.0 {
            note(span.context());
        }
    }
}

fn number(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::{
        error::OTelSdkResult,
        trace::{SdkTracerProvider, SpanData, SpanExporter},
    };
    use parking_lot::Mutex;

    use super::*;
    use crate::telemetry::traces::Traces;

    #[derive(Clone, Default, Debug)]
    struct Exported(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Exported {
        async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().extend(spans);
            Ok(())
        }
    }

    #[test]
    fn a_request_and_a_call_of_a_tool_have_the_attributes_of_the_conventions() {
        let exported = Exported::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
        let telemetry = HubTelemetry {
            metrics: Arc::default(),
            events: Arc::default(),
            traces: Some(Traces::of(provider)),
        };
        let agent: Arc<str> = "writer".into();
        let parent = TraceContext {
            parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
            state: None,
        };
        let request = ModelRequest {
            agent: &agent,
            provider: "openai",
            model: "llama3",
            server: ("localhost".to_owned(), 11434),
            max_tokens: Some(50),
        };
        let span = telemetry.model_span(&request, Some(&parent));
        assert!(span.trace().unwrap().parent.contains("4bf92f3577b34da6a3ce929d0e0e4736"));
        span.answered(Some(7), Some(2), Some("stop"));
        drop(span);
        telemetry.tool_span(&agent, "files.read", Some(&parent)).failed("tool_error");
        let spans = exported.0.lock().clone();
        let shown: Vec<Vec<String>> = spans
            .iter()
            .map(|span| {
                assert_eq!(span.span_context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
                let attributes = span.attributes.iter().map(|it| format!("{}={}", it.key, it.value));
                std::iter::once(span.name.to_string()).chain(attributes).collect()
            })
            .collect();
        assert_eq!(
            shown,
            [
                vec![
                    "chat llama3",
                    "gen_ai.operation.name=chat",
                    "gen_ai.provider.name=openai",
                    "gen_ai.request.model=llama3",
                    "gen_ai.agent.name=writer",
                    "server.address=localhost",
                    "server.port=11434",
                    "gen_ai.request.max_tokens=50",
                    "gen_ai.usage.input_tokens=7",
                    "gen_ai.usage.output_tokens=2",
                    "gen_ai.response.finish_reasons=[\"stop\"]",
                ],
                vec![
                    "execute_tool files.read",
                    "gen_ai.operation.name=execute_tool",
                    "gen_ai.tool.name=files.read",
                    "gen_ai.tool.type=function",
                    "gen_ai.agent.name=writer",
                    "error.type=tool_error",
                ],
            ]
        );
    }
}
