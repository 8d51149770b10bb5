//! Telemetry of the hub: metrics, traces, and the fields that relate lines of the log.
//!
//! Reading order: `metrics` has the table of all metrics, `calls` counts and traces the calls of each agent,
//! `outbound` traces calls to other services, `traces` exports spans, `request` gives each request its id and
//! its log line.

mod calls;
mod metrics;
mod models;
mod outbound;
mod request;
mod traces;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use nuncio_protocol::{A2aService, TraceContext};
use nuncio_server::store::Store;

pub(crate) use self::models::{ModelRequest, ModelSpan};
pub(crate) use self::{
    calls::CallTelemetry,
    metrics::{Metrics, Translations},
    request::Requests,
};
use self::{outbound::Outbound, traces::Traces};
use crate::config;

/// The metrics and the traces of a hub.
#[derive(Clone)]
pub(crate) struct HubTelemetry {
    pub(crate) metrics: Arc<Metrics>,
    traces: Option<Traces>,
}

impl HubTelemetry {
    /// Starts metrics, and the export of traces if an endpoint is configured.
    pub(crate) fn start(config: &config::Telemetry) -> Result<Self> {
        Ok(Self { metrics: Arc::default(), traces: Traces::start(config)? })
    }

    /// The telemetry of the calls of this agent.
    pub(crate) fn calls(&self, agent: &str) -> Arc<CallTelemetry> {
        Arc::new(CallTelemetry { metrics: self.metrics.agent(agent), traces: self.traces.clone() })
    }

    /// Wraps a remote service that this agent calls, so that each call is a span below `parent`.
    pub(crate) fn outbound(
        &self,
        agent: &Arc<str>,
        parent: Option<&TraceContext>,
        service: Arc<dyn A2aService>,
    ) -> Arc<dyn A2aService> {
        let Some(traces) = self.traces.clone() else { return service };
        Arc::new(Outbound { traces, agent: Arc::clone(agent), parent: parent.cloned(), service })
    }

    /// Wraps the store so that its operations are measured.
    pub(crate) fn instrumented(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        nuncio_server::store::instrumented(store, Arc::clone(&self.metrics) as _)
    }

    /// Exports the remaining spans, within this time.
    pub(crate) async fn close(self, patience: Duration) {
        if let Some(traces) = self.traces {
            traces.close(patience).await;
        }
    }
}
