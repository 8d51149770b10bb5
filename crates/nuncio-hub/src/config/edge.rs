//! The network edge: admin API, TLS, the keys of cards, connections.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::form::{AddressOrOff, FilePath, Form, NumberOrNone, Opt, Seconds};

/// Administration of the hub.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Address of the admin API, on this machine only; port 0 takes a free one, "off" none.
    #[serde(with = "AddressOrOff")]
    pub listen: Option<SocketAddr>,
    /// File for the admin token; default: the one where this user's commands look for it.
    #[serde(with = "Opt::<FilePath>")]
    #[schemars(example = "/run/nuncio/admin.token")]
    pub token_file: Option<PathBuf>,
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: Some(([127, 0, 0, 1], 2603).into()), token_file: None }
    }
}

/// A certificate and its key. The files may be replaced while the hub runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Tls")]
pub struct TlsFiles {
    /// The certificate with its intermediate certificates, as PEM.
    #[serde(with = "FilePath")]
    #[schemars(example = "cert.pem")]
    pub cert: PathBuf,
    /// Its private key, as PEM.
    #[serde(with = "FilePath")]
    #[schemars(example = "key.pem")]
    pub key: PathBuf,
}

/// A private key that signs cards.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CardKey {
    /// A PKCS#8 PEM file for ES256, EdDSA or RS256.
    #[serde(with = "FilePath")]
    #[schemars(example = "card.pem")]
    pub file: PathBuf,
    /// The key id by which verifiers find the key; default: its thumbprint.
    #[schemars(example = "2026")]
    pub kid: Option<String>,
}

/// Limits of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Connections {
    /// Maximum number of open connections.
    #[schemars(range(min = 1))]
    pub max: usize,
    /// Maximum number of open connections of one address, for IPv6 of one /64; 0: no limit. Connections from
    /// this machine and from trusted proxies are not counted.
    #[serde(with = "NumberOrNone")]
    pub max_per_address: Option<usize>,
    /// Maximum number of open requests and streams on one HTTP/2 connection.
    #[schemars(range(min = 1))]
    pub max_streams: u32,
    /// Timeout in seconds for the head of a request and for the TLS handshake.
    #[serde(rename = "head_seconds", with = "Seconds")]
    #[schemars(range(min = 1))]
    pub head_timeout: Duration,
    /// Seconds after which a connection without a request in progress is closed.
    #[serde(rename = "idle_seconds", with = "Seconds")]
    #[schemars(range(min = 1))]
    pub idle_timeout: Duration,
    /// Seconds after which a connection is closed if the caller does not read its response.
    #[serde(rename = "write_seconds", with = "Seconds")]
    #[schemars(range(min = 1))]
    pub write_timeout: Duration,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            // More than the usual limit of open files allows: the system's limit then decides.
            max: 100_000,
            // Enough for an office behind one address, and for a client that opens one for each of many calls.
            max_per_address: Some(1000),
            // A proxy puts the streams of many callers on one connection. Each may hold a whole body while it
            // is received: the shared flow-control window is released as bodies are read, and does not bound
            // memory.
            max_streams: 250,
            head_timeout: Duration::from_secs(30),
            // Longer than proxies and clients usually keep a connection (60 and 90 seconds): the side that
            // sends the next request should be the one to close, or requests meet a connection that has just
            // been closed.
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(60),
        }
    }
}
