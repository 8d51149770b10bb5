//! Telemetry of the hub: metrics, traces, and the fields that relate lines of the log.
//!
//! Reading order: `metrics` has the table of all metrics, `totals` reads them back, `calls` counts and traces the calls of each
//! agent, `outbound` traces calls to other services and `observed` counts their answers, `models` those of models,
//! `traces` exports spans, `request` gives each request its id and its log line.

mod calls;
mod metrics;
mod models;
mod observed;
mod outbound;
mod request;
mod totals;
mod traces;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use nuncio_protocol::{A2aService, TraceContext};
use nuncio_server::store::{Settled, Store, StoreOp, Watch};

pub(crate) use self::models::{ModelRequest, ModelSpan};
pub(crate) use self::{
    calls::CallTelemetry,
    metrics::{LeaseEnd, Metrics, Translations},
    observed::OpTotals,
    request::Requests,
    totals::{AgentTotals, CallTotals},
};
use self::{observed::ObservedService, outbound::Outbound, traces::Traces};
use crate::{config, events::EventLog};

/// The metrics, the events and the traces of a hub.
#[derive(Clone)]
pub(crate) struct HubTelemetry {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Arc<EventLog>,
    traces: Option<Traces>,
}

impl HubTelemetry {
    /// Starts metrics, and the export of traces if an endpoint is configured.
    pub(crate) fn start(config: &config::Telemetry) -> Result<Self> {
        Ok(Self { metrics: Arc::default(), events: Arc::default(), traces: Traces::start(config)? })
    }

    /// The telemetry of the calls of this agent.
    pub(crate) fn calls(&self, agent: &str) -> Arc<CallTelemetry> {
        Arc::new(CallTelemetry { metrics: self.metrics.agent(agent), traces: self.traces.clone() })
    }

    /// Wraps a remote service that this agent calls, so that each answer is counted and each call is a span below
    /// `parent`.
    pub(crate) fn outbound(
        &self,
        agent: &Arc<str>,
        parent: Option<&TraceContext>,
        service: Arc<dyn A2aService>,
    ) -> Arc<dyn A2aService> {
        let service = Arc::new(ObservedService { cells: self.metrics.upstream(agent), service });
        let Some(traces) = self.traces.clone() else { return service };
        Arc::new(Outbound { traces, agent: Arc::clone(agent), parent: parent.cloned(), service })
    }

    /// Wraps the store so that its operations are measured.
    pub(crate) fn instrumented(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let watch = StoreWatch { metrics: Arc::clone(&self.metrics), events: Arc::clone(&self.events) };
        nuncio_server::store::instrumented(store, Arc::new(watch))
    }

    /// Exports the remaining spans, within this time.
    pub(crate) async fn close(self, patience: Duration) {
        if let Some(traces) = self.traces {
            traces.close(patience).await;
        }
    }
}

/// Measures the store, and tells of the outcomes of deliveries.
struct StoreWatch {
    metrics: Arc<Metrics>,
    events: Arc<EventLog>,
}

impl Watch for StoreWatch {
    fn answered(&self, asked: StoreOp, took: Duration, is_ok: bool) {
        self.metrics.answered(asked, took, is_ok);
    }

    fn settled(&self, settled: &[Settled]) {
        self.metrics.settled(settled);
        self.events.settled(settled);
    }
}
