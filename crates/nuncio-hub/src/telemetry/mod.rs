//! What the hub tells about itself: numbers, traces, and the names by which the lines of its log belong together.
//!
//! Reading order: `metrics` has every number and what it means, `calls` counts and traces the calls of
//! each agent, `outbound` traces calls to others, `traces` sends spans to a collector, `request` gives each request its
//! id and its line in the log.

mod calls;
mod metrics;
mod outbound;
mod request;
mod traces;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use nuncio_protocol::{A2aService, TraceContext};
use nuncio_server::store::Store;

pub(crate) use self::{
    calls::Calls,
    metrics::{Metrics, Translations},
    request::Requests,
};
use self::{outbound::Outbound, traces::Traces};
use crate::config;

/// The numbers and the traces of a hub.
#[derive(Clone)]
pub(crate) struct Telemetry {
    pub(crate) metrics: Arc<Metrics>,
    traces: Option<Traces>,
}

impl Telemetry {
    /// Begins to count, and to export if there is somebody to export to.
    pub(crate) fn start(config: &config::Telemetry) -> Result<Self> {
        Ok(Self { metrics: Arc::default(), traces: Traces::start(config)? })
    }

    /// The telemetry of the calls of this agent.
    pub(crate) fn calls(&self, agent: &Arc<str>) -> Arc<Calls> {
        Arc::new(Calls { metrics: self.metrics.agent(agent), traces: self.traces.clone() })
    }

    /// A service somewhere else, as this agent calls it for somebody whose trace this is: traced.
    pub(crate) fn outbound(
        &self,
        agent: &Arc<str>,
        parent: Option<&TraceContext>,
        service: Arc<dyn A2aService>,
    ) -> Arc<dyn A2aService> {
        let Some(traces) = self.traces.clone() else { return service };
        Arc::new(Outbound { traces, agent: Arc::clone(agent), parent: parent.cloned(), service })
    }

    /// The store, measured.
    pub(crate) fn instrumented(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        nuncio_server::store::instrumented(store, Arc::clone(&self.metrics) as _)
    }

    /// Sends what is left, if that takes no longer than this.
    pub(crate) async fn close(self, patience: Duration) {
        if let Some(traces) = self.traces {
            traces.close(patience).await;
        }
    }
}
