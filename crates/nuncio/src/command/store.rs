//! `nuncio store …`: offline maintenance of a task store.

use std::{path::Path, process::ExitCode};

use anyhow::Result;
use nuncio_hub::{config::Data, store_maintenance};
use serde_json::json;

use crate::{
    args::{Place, StoreCommand, Which},
    exit,
    output::{self, Format},
};

pub(super) async fn run(command: StoreCommand, format: Format) -> Result<ExitCode> {
    match command {
        StoreCommand::Check { which } => check(&which.store()?, format).await,
        StoreCommand::Backup { which, to } => backup(&which.store()?, &to, format).await,
        StoreCommand::Migrate { which } => migrate(&which.store()?, format).await,
        StoreCommand::Vacuum { which } => vacuum(&which.store()?, format).await,
    }
}

impl Which {
    /// The store, which must be a durable one.
    fn store(&self) -> Result<Data> {
        match Place::data(self.data.as_ref())? {
            None => Err(exit::usage(
                "no store is named; use --data FILE or --data postgres://…, or set NUNCIO_DATA",
            )),
            Some(Data::Memory { .. }) => Err(exit::usage(
                "--data memory: cannot be maintained: it ends with its hub; name a file or a database",
            )),
            Some(data) => Ok(data),
        }
    }
}

async fn check(store: &Data, format: Format) -> Result<ExitCode> {
    let problems = store_maintenance::check(store).await?;
    match format {
        Format::Json => output::json(&json!({ "store": store.to_string(), "problems": problems }))?,
        Format::Human if problems.is_empty() => output::line(&format!("{store}: no damage found"))?,
        Format::Human => {
            for problem in &problems {
                output::line(problem)?;
            }
            output::note(&format!(
                "{store}: {} found; nothing was changed; keep a copy of the store, and restore a backup",
                output::count(problems.len(), "problem", "problems")
            ));
        }
    }
    Ok(ExitCode::from(if problems.is_empty() { exit::OK } else { exit::DAMAGED }))
}

async fn backup(store: &Data, to: &Path, format: Format) -> Result<ExitCode> {
    let bytes = store_maintenance::backup(store, to).await?;
    match format {
        Format::Json => output::json(&json!({ "store": store.to_string(), "to": to, "bytes": bytes }))?,
        Format::Human => {
            output::line(&format!(
                "{store}: copied to {}, {}",
                to.display(),
                output::count(bytes, "byte", "bytes")
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn migrate(store: &Data, format: Format) -> Result<ExitCode> {
    let store_maintenance::Migrated { from, to } = store_maintenance::migrate(store).await?;
    match format {
        Format::Json => output::json(&json!({ "store": store.to_string(), "from": from, "to": to }))?,
        Format::Human if from == to => output::line(&format!("{store}: already at version {to}"))?,
        Format::Human => output::line(&format!("{store}: migrated from version {from} to {to}"))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn vacuum(store: &Data, format: Format) -> Result<ExitCode> {
    let store_maintenance::Vacuumed { before, after } = store_maintenance::vacuum(store).await?;
    match format {
        Format::Json => {
            output::json(&json!({ "store": store.to_string(), "before": before, "after": after }))?;
        }
        Format::Human => {
            output::line(&format!(
                "{store}: {} before, {after} after",
                output::count(before, "byte", "bytes")
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
