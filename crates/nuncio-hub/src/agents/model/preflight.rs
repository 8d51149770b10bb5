//! Checks the files and the provider that a configuration names for a model, without serving it.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};

use super::{
    provider::Fault,
    providers, status,
    tools::{self, Toolbox},
};
use crate::{agents::kind::TargetProblem, config::Model};

/// Checks the files that the settings name, and that the credentials can be used.
pub(super) fn check_files(settings: &Model) -> Vec<TargetProblem> {
    let mut problems = Vec::new();
    let mut note =
        |key, result: Result<()>| problems.extend(result.err().map(|error| TargetProblem { key, error }));
    note("instructions_file", super::instructions(settings).map(drop));
    note("auth", providers(settings).map(drop));
    for server in &settings.tool_servers {
        note("tools", tools::check_program(&server.target).with_context(|| server.name.clone()));
    }
    note("tools", Toolbox::open(&Arc::from(""), settings, None).map(drop));
    problems
}

/// Asks the provider for its models, and the servers of tools for their tools.
///
/// # Errors
/// The provider does not answer, refuses the credentials, or does not list the model; a server of tools cannot be reached, or a
/// pattern of calls to allow matches none of its tools.
pub(super) async fn check_reachable(name: &str, settings: &Model) -> Result<()> {
    // Errors of the settings themselves were reported by `check_files`.
    let Ok(providers) = providers(settings) else { return Ok(()) };
    for provider in &providers {
        let name = &provider.target.name;
        match provider.models().await {
            // A provider of many: its list is there.
            Ok(_) if name.is_empty() => {}
            Ok(models) if status::has(&models, name) => {}
            Ok(_) => {
                bail!("the provider lists no model {name}; choose one of its list, or fetch the model there")
            }
            // A server without a list.
            Err(Fault::Refused(_)) => {}
            // The reader is the operator: the cause alone says it.
            Err(Fault::Unreachable(cause)) => bail!("{cause}"),
            Err(fault) => bail!("{}: {}", fault.told(), fault.cause()),
        }
    }
    check_tools(name, settings).await
}

async fn check_tools(name: &str, settings: &Model) -> Result<()> {
    let Ok(Some(toolbox)) = Toolbox::open(&Arc::from(name), settings, None) else { return Ok(()) };
    let tools = match toolbox.list().await {
        Ok(tools) => tools,
        Err((server, cause)) => bail!("the tools {server} cannot be reached: {cause}"),
    };
    if let Some(pattern) = toolbox.idle_patterns(&tools).first() {
        bail!(
            "approve: {pattern} matches no tool, so that nothing is asked; there are {}",
            tools.names().join(", ")
        );
    }
    Ok(())
}
