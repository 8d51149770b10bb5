//! Checks the files and the provider that a configuration names for a model, without serving it.

use anyhow::{Result, bail};

use super::{provider::Fault, providers, status};
use crate::{agents::kind::TargetProblem, config::Model};

/// Checks the files that the settings name, and that the credentials can be used.
pub(super) fn check_files(settings: &Model) -> Vec<TargetProblem> {
    let mut problems = Vec::new();
    let mut note =
        |key, result: Result<()>| problems.extend(result.err().map(|error| TargetProblem { key, error }));
    note("instructions_file", super::instructions(settings).map(drop));
    note("auth", providers(settings).map(drop));
    problems
}

/// Asks the provider for its models.
///
/// # Errors
/// The provider does not answer, refuses the credentials, or does not list the model.
pub(super) async fn check_reachable(settings: &Model) -> Result<()> {
    // Errors of the settings themselves were reported by `check_files`.
    let Ok(providers) = providers(settings) else { return Ok(()) };
    for provider in &providers {
        let name = &provider.target.name;
        match provider.models().await {
            Ok(models) if status::has(&models, name) => {}
            Ok(_) => {
                bail!("the provider lists no model {name}; choose one of its list, or fetch the model there")
            }
            // A server without a list.
            Err(Fault::Refused(_)) => {}
            Err(fault) => bail!("{}: {}", fault.told(), fault.cause()),
        }
    }
    Ok(())
}
