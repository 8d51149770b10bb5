//! The configuration: what is in force, and reading it again.

use std::sync::Arc;

use async_trait::async_trait;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Desk,
    answer::Problem,
    route::{Call, Reply, Route, route},
};
use crate::{
    config::{Agent, AgentChanges, Changes, Problems},
    trail::What,
};

/// Whoever read the configuration, and can do it again.
#[async_trait]
pub trait Reloader: Send + Sync {
    /// What is in force, without secrets: `config`, and `origins` by key.
    fn shown(&self) -> Value;

    /// Reads it again, and makes it so. With `force` also if it was emptied, or has lost its identity or all agents.
    ///
    /// # Errors
    /// All that is wrong with it. What was in force stays.
    async fn reload(&self, force: bool) -> Result<Changes, Problems>;
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(
            Method::GET,
            "/config",
            "config.show",
            "What is in force, and where each value comes from.",
            show,
        ),
        route(Method::POST, "/config:reload", "config.reload", "Reads the configuration again.", reload)
            .noted(What::ConfigReloaded),
    ]
}

/// How it is read.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct How {
    /// Take it also if it was emptied, or has lost its identity or all agents.
    force: bool,
}

/// What is in force.
#[derive(Serialize, JsonSchema)]
struct InForce(Value);

/// What was changed.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Reloaded {
    /// Names of agents that came.
    added: Vec<String>,
    /// Names of agents that are different.
    changed: Vec<String>,
    /// Names of agents that went.
    removed: Vec<String>,
    /// Other parts that are different now, by their keys.
    parts: Vec<&'static str>,
    /// Keys whose change shows when the hub is started again.
    needs_restart: Vec<&'static str>,
}

async fn show(desk: Arc<Desk>, _: Call) -> Result<Reply<InForce>, Problem> {
    Ok(Reply::new(InForce(reloader(&desk)?.shown())))
}

async fn reload(desk: Arc<Desk>, call: Call<How>) -> Result<Reply<Reloaded>, Problem> {
    let changes = reloader(&desk)?.reload(call.query.force).await.map_err(|problems| {
        Problem::conflict(format!(
            "what was in force stays, because the new configuration is wrong: {problems}"
        ))
    })?;
    let names = |agents: &[Agent]| agents.iter().map(|agent| agent.name.to_string()).collect();
    let Changes { agents: AgentChanges { added, changed, removed }, .. } = &changes;
    let parts = [
        ("default_agent", changes.default_agent),
        ("identity", changes.identity),
        ("limits", changes.limits),
        ("cors", changes.cors),
    ];
    Ok(Reply::new(Reloaded {
        added: names(added),
        changed: names(changed),
        removed: names(removed),
        parts: parts.into_iter().filter(|(_, is_different)| *is_different).map(|(part, _)| part).collect(),
        needs_restart: changes.needs_restart,
    }))
}

fn reloader(desk: &Desk) -> Result<&Arc<dyn Reloader>, Problem> {
    desk.reloader.get().ok_or_else(|| {
        Problem::conflict("this hub was not started from a configuration that can be read again")
    })
}
