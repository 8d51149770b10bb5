//! The configuration: shown and reloaded.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::{
    AdminState,
    api::{ConfigInForce, ReloadConfig, Reloaded, ShowConfig},
    endpoint::Reply,
    problem::AdminProblem,
};
use crate::config::{self, AgentChanges, Changes, Problems};

/// Shows and reloads the configuration; implemented by the code that has read it.
#[async_trait]
pub trait Reloader: Send + Sync {
    /// The configuration in force, without secrets: `config`, and `origins` by key; `lastReload` with its time and the
    /// changed keys, and `refused` with the problems of a reload that was refused since.
    fn shown(&self) -> Value;

    /// The files of the configuration in force; none if the hub was started without one.
    fn files(&self) -> Vec<String>;

    /// Reads the configuration again and applies it. With `force` even if it is empty, or has lost its identity or
    /// all agents.
    ///
    /// # Errors
    /// All mistakes in it. The configuration in force stays.
    async fn reload(&self, force: bool) -> Result<Changes, Problems>;
}

pub(super) async fn show(
    state: Arc<AdminState>,
    _: ShowConfig,
) -> Result<Reply<ConfigInForce>, AdminProblem> {
    Ok(Reply::new(ConfigInForce(reloader(&state)?.shown())))
}

pub(super) async fn reload(
    state: Arc<AdminState>,
    request: ReloadConfig,
) -> Result<Reply<Reloaded>, AdminProblem> {
    let reloader = reloader(&state)?;
    let changes = reloader.reload(request.options.force).await.map_err(|problems| {
        AdminProblem::conflict(format!(
            "the new configuration is invalid; the previous configuration stays in force: {problems}"
        ))
    })?;
    let names = |agents: &[config::Agent]| agents.iter().map(|agent| agent.name.to_string()).collect();
    let words = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
    let Changes { agents: AgentChanges { added, changed, removed }, .. } = &changes;
    let parts = [
        ("default_agent", changes.default_agent),
        ("identity", changes.identity),
        ("calls", changes.calls),
        ("limits", changes.limits),
        ("cors", changes.cors),
    ];
    Ok(Reply::new(Reloaded {
        files: reloader.files(),
        added: names(added),
        changed: names(changed),
        removed: names(removed),
        parts: words(parts.into_iter().filter(|(_, is_changed)| *is_changed).map(|(part, _)| part).collect()),
        needs_restart: words(changes.needs_restart),
        root_lost: changes.root_lost,
    }))
}

fn reloader(state: &AdminState) -> Result<&Arc<dyn Reloader>, AdminProblem> {
    state.reloader.get().ok_or_else(|| {
        AdminProblem::conflict(
            "this hub has no configuration source, so its configuration cannot be shown or reloaded",
        )
    })
}
