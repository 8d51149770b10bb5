//! Checks of what a configuration refers to: that files are there and hold what they should, and that agents and
//! issuers can be reached.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use nuncio_client::{Egress, discover};
use nuncio_protocol::AgentCard;
use nuncio_server::CallerShare;
use url::Url;

use crate::{
    agents::upstream::link::{Link, credentials, egress},
    config::{AgentKind, CardSource, Command, Config, Data, Issuer, Loaded, Problem, Upstream, file::masked},
    listen::Certificates,
    signing::CardKeys,
};

/// How long somebody may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Everything that is wrong with what a configuration refers to. Nobody is called if `offline`.
pub async fn preflight(loaded: &Loaded, offline: bool) -> Vec<Problem> {
    let config = &loaded.config;
    let mut found = files(config);
    if !offline {
        found.extend(reach(config).await);
    }
    found.into_iter().map(|(key, error)| loaded.problem(&key, format!("{error:#}"))).collect()
}

/// A key, and what is wrong with what it says.
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
        let key = |part: &str| format!("agents.{}.{part}", agent.name);
        match &agent.kind {
            AgentKind::Demo(_) => {}
            AgentKind::Command(command) => {
                note(&key("command"), program(command));
                if let Some(folder) = &command.directory {
                    note(&key("directory"), is_folder(folder));
                }
            }
            AgentKind::Upstream(upstream) => {
                if let Some(CardSource::File(file)) = &upstream.card {
                    note(&key("card"), card(file));
                }
                for file in &upstream.trust.keys {
                    note(&key("trust.keys"), readable(file));
                }
                note(&key("auth"), egress(upstream).map(drop));
                note(&key("auth"), credentials(&upstream.auth).map(drop));
            }
        }
    }
    found
}

fn readable(file: &Path) -> Result<()> {
    fs::read(file).map(drop).context("the file cannot be read")
}

fn is_folder(folder: &Path) -> Result<()> {
    anyhow::ensure!(folder.is_dir(), "there is no such folder");
    Ok(())
}

/// The folder in which a file would be made.
fn folder_of(file: &Path) -> Result<()> {
    match file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => is_folder(folder).context("there is no place for it"),
        None => Ok(()),
    }
}

fn card(file: &Path) -> Result<()> {
    let bytes = fs::read(file).context("the file cannot be read")?;
    serde_json::from_slice::<AgentCard>(&bytes).map(drop).context("the file holds no agent card")
}

/// A program that there is, and that may be run.
fn program(command: &Command) -> Result<()> {
    let name = &command.line.program;
    let runs = |path: &Path| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        anyhow::ensure!(runs(Path::new(name)), "there is no program at this path that can be run");
        return Ok(());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|folder| runs(&folder.join(name)));
    anyhow::ensure!(found, "there is no such program in PATH; write its whole path");
    Ok(())
}

/// Everybody at once: the slowest decides how long it takes.
async fn reach(config: &Config) -> Vec<Finding> {
    let mut calls: Vec<std::pin::Pin<Box<dyn Future<Output = Option<Finding>> + Send + '_>>> = Vec::new();
    for agent in &config.agents {
        let AgentKind::Upstream(upstream) = &agent.kind else { continue };
        let key = format!("agents.{}.url", agent.name);
        calls.push(Box::pin(async move {
            in_time(call(&agent.name, upstream)).await.err().map(|error| (key, error))
        }));
    }
    for (at, issuer) in config.identity.jwt.iter().enumerate() {
        let key = format!("identity.jwt.{at}.issuer");
        calls.push(Box::pin(async move { in_time(keys_of(issuer)).await.err().map(|error| (key, error)) }));
    }
    join_all(calls).await.into_iter().flatten().collect()
}

async fn in_time(call: impl Future<Output = Result<()>>) -> Result<()> {
    let late = || anyhow::anyhow!("no answer within {} seconds", ANSWER_TIMEOUT.as_secs());
    let called = tokio::time::timeout(ANSWER_TIMEOUT, call).await.unwrap_or_else(|_| Err(late()));
    called.context("cannot be reached (--offline does not look)")
}

/// Looks for the card of an agent, and whether it can be used. One that is in a file is looked at elsewhere.
async fn call(name: &str, upstream: &Upstream) -> Result<()> {
    let at = match &upstream.card {
        Some(CardSource::File(_)) => return Ok(()),
        Some(CardSource::Url(url)) => url,
        None => &upstream.url,
    };
    // What is wrong with these has been told.
    let Ok(link) = Link::open(name, upstream.clone(), Arc::default(), CallerShare::default()) else {
        return Ok(());
    };
    let card = discover(&link.egress, at, &link.credentials).await.map_err(told)?;
    link.connect(card).map(drop).map_err(told)
}

/// Its message says all that people need; what is beneath it repeats that in other words.
#[expect(clippy::needless_pass_by_value, reason = "handed on by map_err")]
fn told(error: nuncio_protocol::Error) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}

/// Looks for the keys of an issuer.
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
    serde_json::from_slice(response.body()).with_context(|| format!("{} answers no JSON", shown()))
}
