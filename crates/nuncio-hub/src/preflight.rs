//! Checks of a configuration's references: that files exist and have the expected content, and that remote
//! agents and issuers can be reached.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use nuncio_client::Egress;
use url::Url;

use crate::{
    agents,
    config::{Config, Data, Issuer, Loaded, Problem, file::masked},
    listen::Certificates,
    signing::CardKeys,
};

/// Timeout of a check over the network.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Lists all problems of a configuration's references. With `offline`, checks files only.
pub async fn preflight(loaded: &Loaded, offline: bool) -> Vec<Problem> {
    let config = &loaded.config;
    let mut found = files(config);
    if !offline {
        found.extend(reach(config).await);
    }
    found.into_iter().map(|(key, error)| loaded.problem(&key, format!("{error:#}"))).collect()
}

/// A configuration key, and the problem with its value.
type Finding = (String, anyhow::Error);

fn files(config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut note = |key: &str, result: Result<()>| {
        found.extend(result.err().map(|error| (key.to_owned(), error)));
    };
    if let Some(tls) = &config.tls {
        note("tls", Certificates::load(tls.clone()).map(drop));
    }
    note("card_keys", CardKeys::load(&config.card_keys).map(drop));
    if let Data::Sqlite { path, .. } = &config.data.store() {
        note("data.store", folder_of(path));
    }
    for agent in &config.agents {
        for problem in agents::kind_of(&agent.kind).check_files() {
            found.push((format!("agents.{}.{}", agent.name, problem.key), problem.error));
        }
    }
    found
}

fn is_folder(folder: &Path) -> Result<()> {
    anyhow::ensure!(folder.is_dir(), "there is no such folder");
    Ok(())
}

/// Checks that the folder exists in which the file would be created.
fn folder_of(file: &Path) -> Result<()> {
    match file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => is_folder(folder).context("cannot create the file"),
        None => Ok(()),
    }
}

/// Checks all at once: the slowest determines the duration.
async fn reach(config: &Config) -> Vec<Finding> {
    let mut calls: Vec<std::pin::Pin<Box<dyn Future<Output = Option<Finding>> + Send + '_>>> = Vec::new();
    for agent in &config.agents {
        let key = format!("agents.{}.{}", agent.name, agent.kind.target_key());
        calls.push(Box::pin(async move {
            let kind = agents::kind_of(&agent.kind);
            let limit = ANSWER_TIMEOUT + kind.start_time();
            in_time(kind.check_reachable(&agent.name), limit).await.err().map(|error| (key, error))
        }));
    }
    for (at, issuer) in config.identity.jwt.iter().enumerate() {
        let key = format!("identity.jwt.{at}.issuer");
        calls.push(Box::pin(async move {
            in_time(keys_of(issuer), ANSWER_TIMEOUT).await.err().map(|error| (key, error))
        }));
    }
    join_all(calls).await.into_iter().flatten().collect()
}

async fn in_time(call: impl Future<Output = Result<()>>, limit: Duration) -> Result<()> {
    let late = || anyhow::anyhow!("no answer within {} seconds", limit.as_secs());
    let called = tokio::time::timeout(limit, call).await.unwrap_or_else(|_| Err(late()));
    called.context("cannot be reached (--offline skips this check)")
}

/// The error's message alone: its causes repeat it in other words.
#[expect(clippy::needless_pass_by_value, reason = "handed on by map_err")]
fn told(error: nuncio_protocol::Error) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}

/// Fetches the keys of an issuer.
async fn keys_of(issuer: &Issuer) -> Result<()> {
    let egress = Egress::operator()?;
    let url = match &issuer.jwks_url {
        Some(url) => url.clone(),
        None => {
            let url = format!("{}/.well-known/openid-configuration", issuer.issuer.trim_end_matches('/'));
            let document = json(&egress, &Url::parse(&url)?).await?;
            let url = document["jwks_uri"].as_str().context("its configuration names no jwks_uri")?;
            Url::parse(url).context("its configuration names no address as jwks_uri")?
        }
    };
    let document = json(&egress, &url).await?;
    anyhow::ensure!(document["keys"].is_array(), "{} holds no keys (JWKS)", masked(url.as_str()));
    Ok(())
}

async fn json(egress: &Egress, url: &Url) -> Result<serde_json::Value> {
    let response = egress.fetch(Request::get(url.as_str()).body(Bytes::new())?).await.map_err(told)?;
    let shown = || masked(url.as_str());
    anyhow::ensure!(response.status().is_success(), "{} answers {}", shown(), response.status());
    serde_json::from_slice(response.body()).with_context(|| format!("{} does not answer with JSON", shown()))
}
