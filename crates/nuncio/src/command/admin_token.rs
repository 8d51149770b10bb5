//! `nuncio admin-token …`: tokens for the administration of a hub, besides the one in its file.

use std::process::ExitCode;

use anyhow::Result;
use nuncio_hub::admin::api::{CreateAdminToken, ListAdminTokens, NewAdminToken, RevokeAdminToken};
use serde_json::json;

use super::pages::{columns, word};
use crate::{
    args::AdminTokenCommand,
    output::{self, Format},
};

pub(super) async fn run(command: AdminTokenCommand, format: Format) -> Result<ExitCode> {
    match command {
        AdminTokenCommand::Create { hub, name, role } => {
            let token = NewAdminToken { name, role: role.into() };
            let made = hub.call(&CreateAdminToken { token }).await?;
            match format {
                Format::Json => output::json(&made)?,
                Format::Human => {
                    // Alone on stdout, so that it can be piped to where it belongs.
                    output::line(&made.text)?;
                    output::note(
                        "This token cannot be shown again. Its holder sets it as NUNCIO_ADMIN_TOKEN, or keeps it in \
                         a file for --admin-token-file.",
                    );
                    if made.volatile {
                        output::note("The hub keeps its data in memory: its next restart loses the token.");
                    }
                }
            }
        }
        AdminTokenCommand::List { hub } => {
            let list = hub.call(&ListAdminTokens {}).await?;
            match format {
                Format::Json => list.tokens.iter().try_for_each(output::json)?,
                Format::Human => {
                    let row = |token: &nuncio_hub::admin::api::AdminToken| {
                        vec![
                            token.name.clone(),
                            word(token.role),
                            token.id.clone(),
                            token.created.to_string(),
                        ]
                    };
                    columns(
                        &["NAME", "ROLE", "ID", "CREATED"],
                        &list.tokens.iter().map(row).collect::<Vec<_>>(),
                    )?;
                    output::note(&output::count(list.tokens.len() as u64, "token", "tokens"));
                }
            }
        }
        AdminTokenCommand::Revoke { hub, token } => {
            hub.call(&RevokeAdminToken { id: token.clone() }).await?;
            match format {
                Format::Json => output::json(&json!({ "revoked": token }))?,
                Format::Human => output::note(&format!("Admin token {token} is revoked.")),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
