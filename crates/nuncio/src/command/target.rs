//! Connecting to the agent that the command line names.

use anyhow::{Context as _, Result, bail};
use nuncio_client::Client;

use crate::args::Target;

/// Where a bearer token is taken from: never from the command line, which others can see.
const KEY: &str = "NUNCIO_KEY";

impl Target {
    pub(super) async fn connect(&self) -> Result<Client> {
        let mut builder = Client::builder();
        if let Some(version) = self.a2a_version {
            builder = builder.version(version);
        }
        if let Ok(key) = std::env::var(KEY) {
            builder = builder.bearer(&key);
        }
        for header in &self.headers {
            let Some((name, value)) = header.split_once(':') else {
                bail!("--header {header}: expected 'Name: value'");
            };
            builder = builder.header(name.trim(), value.trim());
        }
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout);
        }
        builder.connect(&self.url).await.with_context(|| format!("cannot connect to {}", self.url))
    }
}
