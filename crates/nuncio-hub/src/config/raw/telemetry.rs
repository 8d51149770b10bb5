//! Logs and traces.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretText;
use crate::config;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Telemetry {
    /// Where traces go, by OTLP over HTTP; nowhere when absent.
    #[schemars(example = "http://127.0.0.1:4318")]
    pub(crate) otlp_endpoint: Option<String>,
    /// Headers for that: a text, or { file = "…" }.
    #[schemars(example = BTreeMap::from([("Authorization", "Bearer ${OTLP_TOKEN:-none}")]))]
    pub(crate) otlp_headers: BTreeMap<String, SecretText>,
    /// How much is traced of what nobody upstream has decided about: from 0 to 1.
    pub(crate) sample_ratio: f64,
    /// How traces call this hub.
    pub(crate) service_name: String,
    /// What to log: off, error, warn, info, debug, trace, or a filter such as nuncio_server=debug.
    pub(crate) log_level: String,
    /// How to log.
    pub(crate) log_format: LogFormat,
}

impl Default for Telemetry {
    fn default() -> Self {
        let usual = config::Telemetry::default();
        Self {
            otlp_endpoint: None,
            otlp_headers: BTreeMap::new(),
            sample_ratio: usual.sample_ratio,
            service_name: usual.service_name,
            log_level: usual.log_level,
            log_format: LogFormat::Text,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl From<LogFormat> for config::LogFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}
