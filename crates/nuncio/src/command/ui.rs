//! `nuncio ui`: opens the dashboard of a hub in a browser, signed in by a one-time code.

use std::{
    io::IsTerminal as _,
    process::{Command, ExitCode, Stdio},
};

use anyhow::Result;
use nuncio_hub::admin::api::OpenDashboard;
use serde_json::json;

use crate::{
    args::Ui,
    output::{self, Format},
};

/// The programs that open an address in the user's browser, the first that exists.
#[cfg(target_os = "macos")]
const OPENERS: [&str; 1] = ["open"];
#[cfg(windows)]
const OPENERS: [&str; 1] = ["explorer"];
#[cfg(not(any(target_os = "macos", windows)))]
const OPENERS: [&str; 2] = ["xdg-open", "wslview"];

pub(super) async fn run(ui: Ui, format: Format) -> Result<ExitCode> {
    let code = ui.hub.call(&OpenDashboard {}).await?;
    let url = format!("{}{}", ui.hub.admin.as_str().trim_end_matches('/'), code.path);
    match format {
        Format::Json => {
            output::json(&json!({ "url": url, "expiresInSeconds": code.expires_in_seconds }))?;
        }
        Format::Human => {
            output::line(&url)?;
            let once = format!("it signs in one browser, within {} seconds", code.expires_in_seconds);
            let is_open = !ui.print && std::io::stdout().is_terminal() && open(&url);
            output::note(&if is_open { format!("opened in the browser; {once}") } else { once });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens an address in the user's browser; false if no program does that here.
fn open(url: &str) -> bool {
    OPENERS.into_iter().any(|program| {
        let mut command = Command::new(program);
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().is_ok()
    })
}
