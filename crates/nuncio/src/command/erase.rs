//! `nuncio erase`: erases the data of a caller.

use std::process::ExitCode;

use anyhow::Result;
use nuncio_hub::admin::api::{EraseTasks, ErasureTarget};

use crate::{
    args::Erase,
    exit,
    output::{self, Format},
};

pub(super) async fn run(erase: Erase, format: Format) -> Result<ExitCode> {
    let Erase { hub, principal, anonymous: _, tenant, agent, yes } = erase;
    let whose = principal.clone().unwrap_or_else(|| "callers without credentials".to_owned());
    if !yes {
        return Err(exit::usage(format!(
            "this erases all tasks and replies of {whose}, and stops running ones; add --yes to confirm"
        )));
    }
    let target = ErasureTarget { principal, tenant, agent };
    let erased = hub.call(&EraseTasks { target }).await?;
    match format {
        Format::Json => output::json(&erased)?,
        Format::Human => {
            let erased = output::count(erased.erased, "task or reply", "tasks and replies");
            output::note(&format!("erased {erased} of {whose}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
