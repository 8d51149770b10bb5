//! The network edge: administration, TLS, the keys of cards, connections, web pages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Admin {
    /// Where whoever runs this hub reaches it, on this machine only; port 0 takes a free one, "off" none.
    pub(crate) listen: String,
    /// Write the token to this file, and not where the commands of this user look for it.
    #[schemars(example = "/run/nuncio/admin.token")]
    pub(crate) token_file: Option<String>,
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: "127.0.0.1:2603".to_owned(), token_file: None }
    }
}

/// A certificate and its key. The files may be replaced while the hub runs.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    /// The certificate and those between it and its root, as PEM.
    #[schemars(example = "cert.pem")]
    pub(crate) cert: String,
    /// Its private key, as PEM.
    #[schemars(example = "key.pem")]
    pub(crate) key: String,
}

/// A private key that signs cards.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CardKey {
    /// A PKCS#8 PEM file for ES256, EdDSA or RS256.
    #[schemars(example = "card.pem")]
    pub(crate) file: String,
    /// The name by which verifiers find the key; its thumbprint when absent.
    #[schemars(example = "2026")]
    pub(crate) kid: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Connections {
    /// How many may be open at a time.
    #[schemars(range(min = 1))]
    pub(crate) max: usize,
    /// How many one address may have open at a time, of IPv6 one /64; 0 for no limit. Connections of this machine
    /// and of trusted proxies are not counted.
    pub(crate) max_per_address: usize,
    /// How many requests and streams may be open at a time on one connection of HTTP/2.
    #[schemars(range(min = 1))]
    pub(crate) max_streams: u32,
    /// How many seconds the head of a request and a handshake of TLS may take.
    #[schemars(range(min = 1))]
    pub(crate) head_seconds: u64,
    /// After how many seconds one is closed that has nothing to answer.
    #[schemars(range(min = 1))]
    pub(crate) idle_seconds: u64,
    /// After how many seconds one is closed whose caller takes nothing of what we have for it.
    #[schemars(range(min = 1))]
    pub(crate) write_seconds: u64,
}

impl Default for Connections {
    fn default() -> Self {
        let usual = config::Connections::default();
        Self {
            max: usual.most,
            max_per_address: usual.most_per_address.unwrap_or_default(),
            max_streams: usual.streams,
            head_seconds: usual.head_timeout.as_secs(),
            idle_seconds: usual.idle_timeout.as_secs(),
            write_seconds: usual.write_timeout.as_secs(),
        }
    }
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Cors {
    /// Origins whose pages may call agents, such as https://app.example.com; "*" for all. Cards are open to every
    /// page.
    #[schemars(example = ["https://app.example.com"])]
    pub(crate) origins: Vec<String>,
}
