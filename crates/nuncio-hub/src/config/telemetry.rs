//! Logs and traces, as the operator wants them.

use http::HeaderName;
use url::Url;

use super::Secret;

/// What the hub tells about itself, and to whom.
#[derive(Clone, PartialEq, Debug)]
pub struct Telemetry {
    /// Where traces go; `None`: nowhere.
    pub otlp_endpoint: Option<Url>,
    /// Headers for that.
    pub otlp_headers: Vec<(HeaderName, Secret)>,
    /// How much is traced of what nobody upstream has decided about: from 0 to 1.
    pub sample_ratio: f64,
    /// How traces call this hub.
    pub service_name: String,
    /// A level, or a filter.
    pub log_level: String,
    /// How to log.
    pub log_format: LogFormat,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            otlp_headers: Vec::new(),
            sample_ratio: 1.0,
            service_name: "nuncio".to_owned(),
            log_level: "info".to_owned(),
            log_format: LogFormat::Text,
        }
    }
}

/// How to log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
