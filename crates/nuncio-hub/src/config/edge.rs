//! The network edge: administration, TLS, the keys of cards, connections.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::form::{AddressOrOff, FilePath, Form, NumberOrNone, Opt, Seconds};

/// Administration of the hub.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Where whoever runs this hub reaches it, on this machine only; port 0 takes a free one, "off" none.
    #[serde(with = "AddressOrOff")]
    pub listen: Option<SocketAddr>,
    /// Write the token to this file, and not where the commands of this user look for it.
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
    /// The certificate and those between it and its root, as PEM.
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
    /// The name by which verifiers find the key; its thumbprint when absent.
    #[schemars(example = "2026")]
    pub kid: Option<String>,
}

/// What connections may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Connections {
    /// How many may be open at a time.
    #[serde(rename = "max")]
    #[schemars(range(min = 1))]
    pub most: usize,
    /// How many one address may have open at a time, of IPv6 one /64; 0 for no limit. Connections of this machine
    /// and of trusted proxies are not counted.
    #[serde(rename = "max_per_address", with = "NumberOrNone")]
    pub most_per_address: Option<usize>,
    /// How many requests and streams may be open at a time on one connection of HTTP/2.
    #[serde(rename = "max_streams")]
    #[schemars(range(min = 1))]
    pub streams: u32,
    /// How many seconds the head of a request and a handshake of TLS may take.
    #[serde(rename = "head_seconds", with = "Seconds")]
    #[schemars(range(min = 1))]
    pub head_timeout: Duration,
    /// After how many seconds one is closed that has nothing to answer.
    #[serde(rename = "idle_seconds", with = "Seconds")]
    #[schemars(range(min = 1))]
    pub idle_timeout: Duration,
    /// After how many seconds one is closed whose caller takes nothing of what we have for it.
    #[serde(rename = "write_seconds", with = "Seconds")]
    #[schemars(range(min = 1))]
    pub write_timeout: Duration,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            // More than the usual limit of open files allows: the system's limit then decides.
            most: 100_000,
            // Enough for an office behind one address, and for a client that opens one for each of many calls.
            most_per_address: Some(1000),
            // A proxy puts the streams of many callers on one connection. Each may hold a whole body while it
            // comes in: the window that they share is given back as bodies are read, and bounds no memory.
            streams: 250,
            head_timeout: Duration::from_secs(30),
            // Longer than proxies and clients usually keep one (60 and 90 seconds): whoever may send next
            // should be the one to close, or requests meet a connection that has just gone.
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(60),
        }
    }
}
