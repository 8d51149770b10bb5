//! `nuncio card …`.

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    args::CardCommand,
    output::{self, Format},
};

pub(super) async fn run(command: CardCommand, format: Format) -> Result<ExitCode> {
    match command {
        CardCommand::Get { target } => {
            let client = target.connect().await?;
            match format {
                Format::Json => output::json(client.card_json())?,
                Format::Human => output::pretty(client.card_json())?,
            }
            Ok(ExitCode::SUCCESS)
        }
        CardCommand::Verify { .. } | CardCommand::Sign { .. } => anyhow::bail!("not yet"),
    }
}
