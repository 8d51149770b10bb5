//! Checks the files and the URL that a configuration names for a remote agent, without serving it.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context as _, Result};
use nuncio_client::discover;
use nuncio_protocol::AgentCard;
use nuncio_server::CallerShare;

use super::link::{Link, egress};
use crate::{
    agents::{kind::TargetProblem, upstream_auth::credentials},
    config::{CardSource, Upstream},
};

/// Checks the files that the settings name.
pub(super) fn check_files(settings: &Upstream) -> Vec<TargetProblem> {
    let mut problems = Vec::new();
    let mut note =
        |key, result: Result<()>| problems.extend(result.err().map(|error| TargetProblem { key, error }));
    if let Some(CardSource::File(file)) = &settings.card {
        note("card", card(file));
    }
    for file in &settings.trust.keys {
        note("trust.keys", readable(file));
    }
    note("auth", egress(settings).map(drop));
    note("auth", credentials(&settings.auth).map(drop));
    problems
}

fn readable(file: &Path) -> Result<()> {
    fs::read(file).map(drop).context("the file cannot be read")
}

fn card(file: &Path) -> Result<()> {
    let bytes = fs::read(file).context("the file cannot be read")?;
    serde_json::from_slice::<AgentCard>(&bytes).map(drop).context("the file holds no agent card")
}

/// Fetches the card of the agent and checks that it can be used. A card in a file is checked by
/// [`check_files`].
pub(super) async fn check_reachable(name: &str, settings: &Upstream) -> Result<()> {
    let at = match &settings.card {
        Some(CardSource::File(_)) => return Ok(()),
        Some(CardSource::Url(url)) => url,
        None => &settings.url,
    };
    // Errors of the settings themselves were reported by `check_files`.
    let Ok(link) = Link::open(name, settings.clone(), Arc::default(), CallerShare::default()) else {
        return Ok(());
    };
    // Without the sources: the message is complete, and they repeat it.
    let told = |error: nuncio_protocol::Error| anyhow::anyhow!("{error}");
    let card = discover(&link.egress, at, &link.credentials).await.map_err(told)?;
    link.connect(card).map(drop).map_err(told)
}
