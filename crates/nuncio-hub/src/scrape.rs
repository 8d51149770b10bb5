//! The listener for metrics and health, for scrapers and probes that are on other machines. It has no token and may be
//! at any address: it shows nothing that callers or agents have said, and changes nothing.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    extract::State,
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::header;
use tokio::net::TcpListener;

use crate::{
    config::Config,
    fleet::Fleet,
    gauges::Gauges,
    health,
    listen::{DrainingListener, HostNames, Listener},
};

/// The media type of OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The listener for metrics and health, bound and ready to serve.
pub(crate) struct Scrape {
    listener: Listener,
    address: SocketAddr,
    router: Router,
}

impl Scrape {
    /// Binds the address, if one is configured.
    pub(crate) async fn bind(
        config: &Config,
        names: impl FnOnce(SocketAddr) -> HostNames,
        fleet: &Arc<Fleet>,
        gauges: Arc<Gauges>,
    ) -> Result<Option<Self>> {
        let Some(listen) = config.telemetry.metrics_listen else { return Ok(None) };
        let socket = TcpListener::bind(listen).await.with_context(|| {
            format!(
                "cannot listen on {listen} for metrics; use --metrics with another port, such as {}:0",
                listen.ip()
            )
        })?;
        let address = socket.local_addr()?;
        let connections = config.connections;
        let listener = Listener { socket, certificates: None, names: names(address), connections };
        let routes = health::public_routes(fleet).into_iter();
        let health = routes.fold(Router::new(), |router, (path, handler)| router.route(path, handler));
        Ok(Some(Self { listener, address, router: health.merge(router(gauges)) }))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` is done. Connections stay open until [`DrainingListener::close`].
    pub(crate) async fn serve(self, shutdown: impl Future<Output = ()>) -> DrainingListener {
        self.listener.serve(self.router, shutdown).await
    }
}

/// The route of the metrics. They name agents, and neither callers nor tasks.
pub(crate) fn router(gauges: Arc<Gauges>) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(gauges)
}

async fn metrics(State(gauges): State<Arc<Gauges>>) -> Response {
    ([(header::CONTENT_TYPE, OPENMETRICS)], gauges.text().await).into_response()
}
