//! Connecting to the agent that the command line names.

use anyhow::Result;
use nuncio_client::Client;

use crate::{args::Target, exit};

/// Where a bearer token is taken from: never from the command line, which others can see.
const KEY: &str = "NUNCIO_KEY";

impl Target {
    pub(super) async fn connect(&self) -> Result<Client> {
        let mut builder = Client::builder();
        if let Some(version) = self.a2a_version {
            builder = builder.version(version);
        }
        if let Some(binding) = self.binding {
            builder = builder.binding(binding);
        }
        // A variable that is set to nothing is how some shells and containers unset one.
        if let Some(key) = std::env::var(KEY).ok().filter(|key| !key.is_empty()) {
            builder = builder.bearer(&key);
        }
        for header in &self.headers {
            let (name, value) = name_and_value(header)?;
            builder = builder.header(name, value);
        }
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout);
        }
        Ok(builder.connect(&self.url).await?)
    }
}

fn name_and_value(header: &str) -> Result<(&str, &str)> {
    let Some((name, value)) = header.split_once(':') else {
        // Not echoed: it may be a secret.
        return Err(exit::usage("--header: expected 'Name: value'"));
    };
    Ok((name.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_never_echoed() {
        assert_eq!(name_and_value("X-Team: a:b ").unwrap(), ("X-Team", "a:b"));
        for header in ["secret", "Authorization=secret", "Bearer secret", "c2VjcmV0secret=="] {
            let error = name_and_value(header).unwrap_err();
            assert_eq!(error.to_string(), "--header: expected 'Name: value'", "{header}");
        }
    }
}
