//! `nuncio serve`.

use std::{convert::Infallible, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};
use nuncio_hub::{
    Certificates, Hub, Profile, Reload,
    config::{Admin, CardKey, Config, Connections, Data, Durability, KEEP_FINISHED, TlsFiles},
};

use serde_json::{Value, json};

use super::{hint::program, signals::Signals};
use crate::{
    args::{self, AdminAt},
    exit,
    output::{self, Format},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a durable store keeps finished tasks.
const KEEP_DAYS: u32 = 30;

pub(super) async fn run(serve: args::Serve, format: Format) -> Result<ExitCode> {
    let config = config(&serve)?;
    let signals = Signals::listen()?;
    let hub = Hub::bind(config.clone()).await?;
    let reloading = reload_at_hangup(hub.certificates()).context("cannot listen to signals")?;
    announce(&hub, &config, format)?;
    tokio::select! {
        ended = hub.run(shutdown(signals)) => ended?,
        never = reloading => match never {},
    }
    output::note("stopped");
    Ok(ExitCode::SUCCESS)
}

fn config(serve: &args::Serve) -> Result<Config> {
    let data = data(serve)?;
    let profile = serve.profile.map(|profile| match profile {
        args::Profile::Full => Profile::Full,
        args::Profile::Minimal => Profile::Minimal,
        args::Profile::Extension => Profile::Extension,
        args::Profile::V03 => Profile::V03,
    });
    let tls = serve.tls_cert.clone().zip(serve.tls_key.clone());
    let config = Config {
        listen: serve.listen,
        admin: admin(serve),
        tls: tls.map(|(cert, key)| TlsFiles { cert, key }),
        public_url: serve.public_url.clone(),
        allowed_hosts: serve.allowed_hosts.clone(),
        trusted_proxies: serve.trusted_proxies.clone(),
        card_keys: card_keys(serve)?,
        legacy_card: !serve.no_legacy_card,
        keep: keep(serve, &data),
        data,
        key_file: serve.webhooks.key_file.clone(),
        push: serve.webhooks.config()?,
        demo: serve.demo,
        profile,
        default_agent: serve.default.clone(),
        drain_grace: Duration::from_secs(serve.drain_seconds),
        connections: Connections {
            most: serve.max_connections,
            streams: serve.max_streams,
            idle_timeout: Duration::from_secs(serve.idle_seconds),
            ..Connections::default()
        },
    };
    config.validate(serve.allow_anonymous).map_err(|error| exit::usage(error.to_string()))?;
    Ok(config)
}

/// Where the hub is administered, if it is.
fn admin(serve: &args::Serve) -> Option<Admin> {
    match serve.admin {
        AdminAt::Off => None,
        AdminAt::Address(listen) => Some(Admin { listen, token_file: serve.admin_token_file.clone() }),
    }
}

/// Where tasks are kept. An option that would do nothing there is a mistake.
fn data(serve: &args::Serve) -> Result<Data> {
    let data = args::Place::data(serve.data.as_ref())?;
    match data.unwrap_or(Data::Memory { keep_finished: KEEP_FINISHED }) {
        Data::Memory { keep_finished } => {
            if serve.durability.is_some() {
                return Err(exit::usage(
                    "--durability: memory promises nothing; add --data with a file or a database",
                ));
            }
            Ok(Data::Memory { keep_finished: serve.keep_finished.unwrap_or(keep_finished) })
        }
        durable => {
            if serve.keep_finished.is_some() {
                return Err(exit::usage(format!(
                    "--keep-finished: is for memory; tasks in {durable} are kept by their age, say --keep-days"
                )));
            }
            Ok(durable.with_durability(serve.durability.map(Into::into).unwrap_or_default()))
        }
    }
}

/// How long finished tasks are kept.
fn keep(serve: &args::Serve, data: &Data) -> Option<Duration> {
    let days = serve.keep_days.unwrap_or(if data.is_durable() { KEEP_DAYS } else { 0 });
    (days > 0).then(|| DAY * days)
}

fn card_keys(serve: &args::Serve) -> Result<Vec<CardKey>> {
    if serve.card_kids.len() > serve.card_keys.len() {
        return Err(exit::usage(format!(
            "--card-kid {}: expected at most one for each --card-key",
            serve.card_kids.join(" --card-kid ")
        )));
    }
    let kids = serve.card_kids.iter().cloned().map(Some).chain(std::iter::repeat(None));
    let keys = serve.card_keys.iter().cloned().zip(kids);
    Ok(keys.map(|(file, kid)| CardKey { file, kid }).collect())
}

/// What is served, and a line to paste for each.
fn announce(hub: &Hub, config: &Config, format: Format) -> Result<()> {
    let served = hub.served();
    if format == Format::Json {
        let agents: Vec<_> = served
            .iter()
            .map(|agent| json!({ "name": agent.name, "url": agent.url, "card": agent.card_url }))
            .collect();
        return output::json(&json!({
            "listen": hub.address().to_string(),
            "agents": agents,
            "admin": hub.administered().map(|admin| json!({
                "listen": admin.address.to_string(), "tokenFile": admin.token_file,
            })),
            "data": data_json(config),
        }));
    }
    output::line(&format!("nuncio {} listens on {}", env!("CARGO_PKG_VERSION"), hub.local_url()))?;
    for agent in &served {
        output::line("")?;
        output::line(agent.name)?;
        output::line(&format!("  card  {}", agent.card_url))?;
        output::line(&format!(
            "  try   {} send {} \"{}\"{}",
            program(),
            agent.url,
            agent.example,
            stream_flag(agent.name)
        ))?;
    }
    output::line("")?;
    output::note(&kept(config));
    if let Some(admin) = hub.administered() {
        let file = admin.token_file.display();
        output::note(&format!("administration is at http://{}, the token for it in {file}", admin.address));
    }
    output::note("Ctrl-C stops");
    Ok(())
}

/// Where tasks are kept, how safely, and for how long.
fn kept(config: &Config) -> String {
    let age = config.keep.map(days).map(|days| format!("finished ones are forgotten after {days} days"));
    match &config.data {
        Data::Memory { keep_finished } => {
            let age = age.map(|age| format!("; {age}")).unwrap_or_default();
            format!(
                "warning: tasks are kept in memory only and are gone when this ends; the last {keep_finished} \
                 finished ones are kept{age}; add --data nuncio.db to keep them in a file"
            )
        }
        data @ (Data::Sqlite { durability, .. } | Data::Postgres { durability, .. }) => {
            let server =
                if matches!(data, Data::Postgres { .. }) { "the database server" } else { "the machine" };
            let promise = match durability {
                Durability::Full => "what is answered is on disk (durability full)".to_owned(),
                Durability::Relaxed => format!(
                    "what is answered outlives this process, but the last moments may be lost with {server} \
                     (durability relaxed)"
                ),
            };
            let age = age.unwrap_or_else(|| "finished ones are kept for ever".to_owned());
            format!("tasks are kept in {data}; {promise}; {age}")
        }
    }
}

/// The same for programs.
fn data_json(config: &Config) -> Value {
    let (kind, durability) = match &config.data {
        Data::Memory { keep_finished } => {
            return json!({
                "kind": "memory", "keepFinished": keep_finished, "keepDays": config.keep.map(days),
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
        "kind": kind, "place": config.data.to_string(), "durability": durability,
        "keepDays": config.keep.map(days),
    })
}

fn days(keep: Duration) -> u64 {
    keep.as_secs() / DAY.as_secs()
}

fn stream_flag(name: &str) -> &'static str {
    if name == "echo" { "" } else { " --stream" }
}

/// Done at the first Ctrl-C or SIGTERM; the second ends the process at once.
async fn shutdown(mut signals: Signals) {
    signals.next().await;
    output::note("stopping; a second Ctrl-C ends at once");
    tokio::spawn(async move {
        signals.next().await;
        std::process::exit(130);
    });
}

/// Looks at the certificate at each SIGHUP. Without one the signal keeps its meaning: the terminal has
/// gone, and so do we.
#[cfg(unix)]
fn reload_at_hangup(certificates: Option<Certificates>) -> Result<impl Future<Output = Infallible>> {
    use tokio::signal::unix::{SignalKind, signal};
    let hangups = certificates.is_some().then(|| signal(SignalKind::hangup())).transpose()?;
    Ok(async move {
        let (Some(certificates), Some(mut hangups)) = (certificates, hangups) else {
            return std::future::pending().await;
        };
        loop {
            hangups.recv().await;
            match certificates.reload() {
                Ok(Reload::Changed) => tracing::info!("new connections get the new certificate"),
                Ok(Reload::Same) => tracing::info!("the certificate has not changed"),
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(%error, "the certificate is not replaced; the one in use stays");
                }
            }
        }
    })
}

#[cfg(windows)]
fn reload_at_hangup(_certificates: Option<Certificates>) -> Result<impl Future<Output = Infallible>> {
    Ok(std::future::pending())
}
