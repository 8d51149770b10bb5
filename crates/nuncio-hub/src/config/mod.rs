//! What the hub is to do, validated. Whoever reads flags or files makes this.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, bail};
use url::Url;

use crate::agents::{self, Profile};

/// A validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where callers reach us; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How callers see us, if not at the address we listen on.
    pub public_url: Option<Url>,
    /// Where tasks are kept.
    pub data: Data,
    /// Serves the demo agents.
    pub demo: bool,
    /// How the demo's conformance agent behaves for a test kit; `None`: for people.
    pub profile: Option<Profile>,
    /// This agent answers at the root, too.
    pub default_agent: Option<String>,
    /// How long running tasks may go on after the signal to stop.
    pub drain_grace: Duration,
    /// The most connections at a time.
    pub connections: usize,
}

/// Where tasks are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data {
    /// Nowhere: they are gone with the process. So many finished ones are kept meanwhile.
    Memory { keep_finished: usize },
}

impl Config {
    /// Checks what can be checked without touching the world.
    ///
    /// # Errors
    /// Says what is wrong and what to do.
    pub fn validate(&self, allow_anonymous: bool) -> Result<()> {
        if !self.listen.ip().is_loopback() && !allow_anonymous {
            bail!(
                "listening on {} would let anybody call the agents, because no credentials are configured; \
                 listen on 127.0.0.1, or say --allow-anonymous if that is what you want",
                self.listen
            );
        }
        if self.listen.ip().is_unspecified() && self.public_url.is_none() {
            bail!(
                "cards must say where callers reach the agents, and {} is no address to call; \
                 add --public-url, such as http://HOST:{}",
                self.listen.ip(),
                self.listen.port()
            );
        }
        if !self.demo {
            bail!("there is no agent to serve; say --demo for the demo agents");
        }
        if let Some(name) = &self.default_agent
            && !agents::demo_names().contains(&name.as_str())
        {
            bail!(
                "--default {name}: there is no agent of this name; there are {}",
                agents::demo_names().join(", ")
            );
        }
        if let Some(url) = &self.public_url
            && (!matches!(url.scheme(), "http" | "https")
                || url.query().is_some()
                || url.fragment().is_some())
        {
            bail!(
                "--public-url {url}: expected an address such as https://agents.example.com, without a query"
            );
        }
        Ok(())
    }
}
