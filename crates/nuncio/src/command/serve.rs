//! `nuncio serve`: starts the hub.

use std::{convert::Infallible, path::Path, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use nuncio_hub::{
    Certificates, Hub, Reload, Reloading,
    config::{Config, Data, Durability, LogFormat},
};

use serde_json::{Value, json};

use super::{
    hint::{admin_option, program},
    signals::Signals,
};
use crate::{
    args, log,
    output::{self, Format},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) async fn run(serve: args::Serve, format: Format) -> Result<ExitCode> {
    let source = serve.options.source(None);
    let loaded = super::config::load(&source)?;
    let config = loaded.config.clone();
    log::start(&config.telemetry.log_level, log_format(config.telemetry.log_format))?;
    let signals = Signals::listen()?;
    let hub = Hub::bind(config.clone()).await?;
    announce(&hub, &config, source.file.as_deref(), format)?;
    let followed = source.file.is_some();
    let reloading = hub.follow(source, loaded);
    let hangups = reload_at_hangup(hub.certificates(), followed.then(|| Arc::clone(&reloading)))
        .context("cannot listen to signals")?;
    let watching = async {
        match followed {
            true => reloading.watch().await,
            false => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = hub.run(shutdown(signals)) => ended?,
        never = watching => match never {},
        never = hangups => match never {},
    }
    output::note("stopped");
    Ok(ExitCode::SUCCESS)
}

fn log_format(format: LogFormat) -> args::LogFormat {
    match format {
        LogFormat::Text => args::LogFormat::Text,
        LogFormat::Json => args::LogFormat::Json,
    }
}

/// Prints the agents, and a command to try each.
fn announce(hub: &Hub, config: &Config, file: Option<&Path>, format: Format) -> Result<()> {
    let served = hub.served();
    if format == Format::Json {
        let agents: Vec<_> = served
            .iter()
            .map(|agent| json!({ "name": agent.name, "url": agent.url, "card": agent.card_url }))
            .collect();
        let default = served.iter().find(|agent| agent.is_default).map(|agent| &agent.name);
        return output::json(&json!({
            "listen": hub.address().to_string(),
            "agents": agents,
            "defaultAgent": default,
            "admin": hub.administered().map(|admin| json!({
                "listen": admin.address.to_string(), "tokenFile": admin.token_file,
            })),
            "metrics": hub.metrics_address().map(|address| address.to_string()),
            "publicCards": hub.public_cards(),
            "config": file,
            "data": data_json(config),
        }));
    }
    output::line(&format!("nuncio {} listens on {}", env!("CARGO_PKG_VERSION"), hub.local_url()))?;
    for agent in &served {
        output::line("")?;
        output::line(&agent.name)?;
        output::line(&format!("  card  {}", agent.card_url))?;
        let stream = if agent.streams { " --stream" } else { "" };
        output::line(&format!("  try   {} send {} \"{}\"{stream}", program(), agent.url, agent.example))?;
    }
    output::line("")?;
    if let Some(default) = served.iter().find(|agent| agent.is_default) {
        output::note(&format!("{} also answers at {}", default.name, hub.local_url()));
    }
    if served.is_empty() {
        let admin = hub.administered().map(|admin| admin_option(admin.address)).unwrap_or_default();
        let add = format!("{} agent add NAME URL{admin}", program());
        output::note(&format!("there are no agents yet; add one with `{add}`"));
    }
    if let Some(file) = file {
        output::note(&format!("configured by {}", file.display()));
    }
    if let Some(names) = hub.public_cards() {
        output::note(&public_cards(&names));
    }
    output::note(&kept(config));
    if let Some(admin) = hub.administered() {
        let file = admin.token_file.display();
        let option = admin_option(admin.address);
        output::note(&format!(
            "the dashboard is at http://{}/ui; sign in with `{} ui{option}`",
            admin.address,
            program()
        ));
        output::note(&format!("administration is at http://{}; its token is in {file}", admin.address));
    }
    if let Some(address) = hub.metrics_address() {
        output::note(&format!("metrics are at http://{address}/metrics"));
    }
    output::note("Ctrl-C stops");
    Ok(())
}

/// A note on cards that are public although calls need credentials.
fn public_cards(names: &[String]) -> String {
    if names.is_empty() {
        return "calls need credentials, and so do all cards".to_owned();
    }
    format!(
        "calls need credentials; anybody can read the cards of {}: cards = \"protected\" in [identity] or \
         [agents.NAME] hides them",
        names.join(", ")
    )
}

/// A note on the store: its location, its guarantee, and the retention of tasks.
fn kept(config: &Config) -> String {
    let age = config
        .data
        .keep()
        .map(days)
        .map(|days| format!("finished tasks are deleted after {}", output::count(days, "day", "days")));
    match &config.data.store() {
        // The loss of a key, which may open the hub again, is told when one is made.
        Data::Memory { .. } => {
            "warning: tasks and API keys are in memory only, and lost when the hub stops; add --data \
                                nuncio.db to keep them"
                .to_owned()
        }
        data @ (Data::Sqlite { durability, .. } | Data::Postgres { durability, .. }) => {
            let server =
                if matches!(data, Data::Postgres { .. }) { "the database server" } else { "the machine" };
            let promise = match durability {
                Durability::Full => "every answer is on disk before it is sent (durability full)".to_owned(),
                Durability::Relaxed => format!(
                    "answers survive a crash of the hub; the last ones may be lost in a crash of {server} (durability relaxed)"
                ),
            };
            let age = age.unwrap_or_else(|| "finished tasks are kept for ever".to_owned());
            format!("tasks are kept in {data}; {promise}; {age}")
        }
    }
}

/// The store, for programs.
fn data_json(config: &Config) -> Value {
    let store = config.data.store();
    let (kind, durability) = match &store {
        Data::Memory { keep_finished } => {
            return json!({
                "kind": "memory", "keepFinished": keep_finished, "keepDays": config.data.keep().map(days),
            });
        }
        Data::Sqlite { durability, .. } => ("sqlite", durability),
        Data::Postgres { durability, .. } => ("postgres", durability),
    };
    let durability = match durability {
        Durability::Full => "full",
        Durability::Relaxed => "relaxed",
    };
    json!({
        "kind": kind, "place": store.to_string(), "durability": durability,
        "keepDays": config.data.keep().map(days),
    })
}

fn days(keep: Duration) -> u64 {
    keep.as_secs() / DAY.as_secs()
}

/// Returns at the first Ctrl-C or SIGTERM; the second ends the process at once.
async fn shutdown(mut signals: Signals) {
    signals.next().await;
    output::note("stopping; press Ctrl-C again to stop at once");
    tokio::spawn(async move {
        signals.next().await;
        std::process::exit(130);
    });
}

/// Reloads the certificate and the configuration at SIGHUP. Without either the signal keeps its default: it ends the
/// process.
#[cfg(unix)]
fn reload_at_hangup(
    certificates: Option<Certificates>,
    reloading: Option<Arc<Reloading>>,
) -> Result<impl Future<Output = Infallible>> {
    use tokio::signal::unix::{SignalKind, signal};
    let listens = certificates.is_some() || reloading.is_some();
    let hangups = listens.then(|| signal(SignalKind::hangup())).transpose()?;
    Ok(async move {
        let Some(mut hangups) = hangups else { return std::future::pending().await };
        loop {
            hangups.recv().await;
            certificates.iter().for_each(reload_certificates);
            reloading.iter().for_each(|reloading| reloading.ask());
        }
    })
}

#[cfg(unix)]
fn reload_certificates(certificates: &Certificates) {
    match certificates.reload() {
        Ok(Reload::Changed) => tracing::info!("certificate reloaded; new connections use it"),
        Ok(Reload::Same) => tracing::info!("certificate unchanged"),
        Err(error) => {
            let error = format!("{error:#}");
            tracing::error!(%error, "cannot reload the certificate; the current one stays in use");
        }
    }
}

#[cfg(windows)]
fn reload_at_hangup(
    _certificates: Option<Certificates>,
    _reloading: Option<Arc<Reloading>>,
) -> Result<impl Future<Output = Infallible>> {
    Ok(std::future::pending())
}
