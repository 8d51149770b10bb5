//! `nuncio serve`.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};
use nuncio_hub::{
    Hub, Profile,
    config::{Config, Data},
};

use crate::{
    args, exit,
    output::{self, Format},
};

/// More than the usual limit of open files allows: the system's limit then decides.
const CONNECTIONS: usize = 100_000;

pub(super) async fn run(serve: args::Serve, format: Format) -> Result<ExitCode> {
    let config = config(&serve)?;
    let signals = Signals::listen().context("cannot listen to signals")?;
    let hub = Hub::bind(config.clone()).await?;
    announce(&hub, &config, format)?;
    hub.run(shutdown(signals)).await?;
    output::note("stopped");
    Ok(ExitCode::SUCCESS)
}

fn config(serve: &args::Serve) -> Result<Config> {
    let data = match serve.data.as_deref() {
        None | Some("memory") => Data::Memory { keep_finished: serve.keep_finished },
        Some(other) => {
            return Err(exit::usage(format!(
                "--data {other}: expected memory; files and databases are not supported yet"
            )));
        }
    };
    let profile = serve.profile.map(|profile| match profile {
        args::Profile::Full => Profile::Full,
        args::Profile::Minimal => Profile::Minimal,
        args::Profile::Extension => Profile::Extension,
        args::Profile::V03 => Profile::V03,
    });
    let config = Config {
        listen: serve.listen,
        public_url: serve.public_url.clone(),
        data,
        demo: serve.demo,
        profile,
        default_agent: serve.default.clone(),
        drain_grace: Duration::from_secs(serve.drain_seconds),
        connections: CONNECTIONS,
    };
    config.validate(serve.allow_anonymous).map_err(|error| exit::usage(error.to_string()))?;
    Ok(config)
}

/// What is served, and a line to paste for each.
fn announce(hub: &Hub, config: &Config, format: Format) -> Result<()> {
    let served = hub.served();
    if format == Format::Json {
        let agents: Vec<_> = served
            .iter()
            .map(|agent| serde_json::json!({ "name": agent.name, "url": agent.url, "card": agent.card_url }))
            .collect();
        return output::json(&serde_json::json!({ "listen": hub.address().to_string(), "agents": agents }));
    }
    output::line(&format!("nuncio {} listens on http://{}", env!("CARGO_PKG_VERSION"), hub.address()))?;
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
    let Data::Memory { keep_finished } = config.data;
    output::note(&format!(
        "warning: tasks are kept in memory only and are gone when this ends; the last {keep_finished} finished ones are kept"
    ));
    output::note("Ctrl-C stops");
    Ok(())
}

fn stream_flag(name: &str) -> &'static str {
    if name == "echo" { "" } else { " --stream" }
}

/// As the user has called us, so that the line works when it is pasted.
fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "nuncio".to_owned())
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

/// The signals to stop. Listened to from the beginning and without a pause, so that none is lost.
#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(windows)]
struct Signals {
    interrupt: tokio::signal::windows::CtrlC,
}

#[cfg(windows)]
impl Signals {
    fn listen() -> Result<Self> {
        Ok(Self { interrupt: tokio::signal::windows::ctrl_c()? })
    }

    async fn next(&mut self) {
        self.interrupt.recv().await;
    }
}
