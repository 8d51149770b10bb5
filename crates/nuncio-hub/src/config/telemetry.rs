//! Metrics, logs and traces.

use std::{collections::BTreeMap, net::SocketAddr};

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{
    Secret,
    form::{Address, Form, Headers, HttpUrl, Opt},
};

/// Metrics, logs and traces of the hub.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// Serve metrics and health, and nothing else, at this address, too; without a token. Port 0 takes a free one.
    #[serde(with = "Opt::<Address>")]
    #[schemars(example = "0.0.0.0:2605")]
    pub metrics_listen: Option<SocketAddr>,
    /// Address of the OTLP collector for traces, over HTTP; default: no traces.
    #[serde(with = "Opt::<HttpUrl>")]
    #[schemars(example = "http://127.0.0.1:4318")]
    pub otlp_endpoint: Option<Url>,
    /// Headers for the collector: a text, or { file = "…" }.
    #[serde(with = "Headers")]
    #[schemars(example = BTreeMap::from([("Authorization", "Bearer ${OTLP_TOKEN}")]))]
    pub otlp_headers: Vec<(HeaderName, Secret)>,
    /// Share of traces to record where the caller has not decided: from 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub sample_ratio: f64,
    /// Name of this hub in traces.
    pub service_name: String,
    /// Log level: off, error, warn, info, debug, trace, or a filter such as nuncio_server=debug.
    pub log_level: String,
    /// Format of the log.
    pub log_format: LogFormat,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            metrics_listen: None,
            otlp_endpoint: None,
            otlp_headers: Vec::new(),
            sample_ratio: 1.0,
            service_name: "nuncio".to_owned(),
            log_level: "info".to_owned(),
            log_format: LogFormat::Text,
        }
    }
}

/// Format of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}
