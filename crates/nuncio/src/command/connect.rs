//! `nuncio connect`: an agent of this machine works for a mailbox of a hub.

use std::{path::Path, process::ExitCode};

use anyhow::{Context as _, Result};
use nuncio_client::worker::{Worker, WorkerError};
use nuncio_hub::{
    ConnectOptions, Connector, LeaseEnd, Report,
    config::{self, Given, Origin, Source, Told, Variables, agent_spec},
    host_name,
};
use serde_json::{Value, json};

use super::{
    hint::program,
    signals::Signals,
    target::{KEY, egress, read, setting},
};
use crate::{
    args::Connect,
    exit,
    output::{self, Format},
};

/// The variable with the bearer token of the agent on this machine.
const AGENT_BEARER: &str = "NUNCIO_AGENT_BEARER";

/// The maximum length of the name of a worker.
const MAX_WORKER_CHARS: usize = 64;

pub(super) async fn run(connect: Connect, format: Format) -> Result<ExitCode> {
    let agent = agent(&connect)?;
    let worker_name = connect.worker.clone().unwrap_or_else(|| worker_name(&host_name().unwrap_or_default()));
    let mut builder = Worker::builder(connect.hub.as_str(), &*connect.name)
        .name(&worker_name)
        .take_over(connect.take_over)
        .egress(egress(&connect.authorities)?);
    if let Some(key) = key(connect.key_file.as_deref())? {
        builder = builder.key(key);
    }
    let worker = builder.build().map_err(|error| exit::usage(format!("--hub {error}")))?;
    let mut signals = Signals::listen()?;
    let options = ConnectOptions {
        worker,
        hub: connect.hub.clone(),
        agent,
        concurrency: usize::from(connect.concurrency),
    };
    let connector = Connector::open(options).await?;
    let agent = connector.agent();
    let (name, has_key) = (connect.name.to_string(), setting(KEY).is_some() || connect.key_file.is_some());
    let shutdown = async move {
        signals.next().await;
        tokio::spawn(async move {
            signals.next().await;
            std::process::exit(130);
        });
    };
    let report = move |report: Report| match report {
        // A closed stdout is no reason to give up tasks.
        Report::Connected => drop(announce(&connect, &agent, &worker_name, format)),
        report => show(&report, format),
    };
    let ended = connector.run(shutdown, report).await;
    ended.map_err(|error| match error.downcast::<WorkerError>() {
        Ok(WorkerError::Unauthorized(why)) if has_key => {
            let hint =
                format!("check the name, or make a new key with `{} mailbox rotate {name}`", program());
            let refused = format!("the hub refuses this key for the mailbox {name}: {why}");
            exit::hinted(
                nuncio_protocol::Error::new(nuncio_protocol::ErrorKind::Unauthenticated, refused),
                hint,
            )
        }
        // The exit code follows from its kind.
        Ok(refusal) => nuncio_protocol::Error::from(refusal).into(),
        Err(other) => other,
    })?;
    output::note("stopped");
    Ok(ExitCode::SUCCESS)
}

/// The settings of the agent on this machine.
fn agent(connect: &Connect) -> Result<config::Agent> {
    let name = &*connect.name;
    if connect.to.is_none() && connect.config.is_none() {
        return Err(exit::usage(format!(
            "the agent on this machine is missing; give --to AGENT, such as --to http://127.0.0.1:8000 or --to cmd:PROGRAM, or \
             --config FILE with a table [agents.{name}]"
        )));
    }
    let path = |keys: &[&str]| ["agents", name].iter().chain(keys).map(|&key| key.to_owned()).collect();
    let mut given = Vec::new();
    if let Some(spec) = &connect.to {
        if spec.starts_with("mailbox:") {
            return Err(exit::usage(
                "--to: a mailbox has no agent of its own; expected an agent on this machine",
            ));
        }
        let flag = || Origin::Flag("--to".to_owned());
        let told = agent_spec(spec).map_err(|error| exit::usage(format!("--to: {error}")))?;
        given.push(Given { path: path(&[]), told, origin: flag() });
        if spec.starts_with("http") {
            // A message that was claimed waits while the agent is restarted.
            let told = Told::Text("wait".to_owned());
            given.push(Given { path: path(&["when_down"]), told, origin: flag() });
            if let Some(bearer) = setting(AGENT_BEARER) {
                let origin = Origin::Env(AGENT_BEARER.to_owned());
                given.push(Given { path: path(&["auth", "bearer"]), told: Told::Text(bearer), origin });
            }
        }
    }
    let source =
        Source { file: connect.config.clone(), given, variables: Variables::process(), profile: None };
    let loaded = super::config::load(&source)?;
    let found = loaded.config.agents.into_iter().find(|agent| &*agent.name == name);
    found.ok_or_else(|| {
        let file = connect.config.as_deref().unwrap_or(Path::new("nuncio.toml"));
        exit::usage(format!("{} has no [agents.{name}]; add it, or use --to", file.display()))
    })
}

/// The key of the mailbox: from the file, or from the environment.
pub(super) fn key(file: Option<&Path>) -> Result<Option<String>> {
    let Some(file) = file else { return Ok(setting(KEY)) };
    let text = String::from_utf8(read("--key-file", file)?).context("--key-file: expected text")?;
    Ok(Some(text.trim().to_owned()))
}

/// The name of a machine as that of a worker.
fn worker_name(host: &str) -> String {
    let known = |c: char| if c.is_ascii_alphanumeric() || "._@:-".contains(c) { c } else { '-' };
    let name: String = host.chars().take(MAX_WORKER_CHARS).map(known).collect();
    if name.is_empty() { "worker".to_owned() } else { name }
}

fn announce(connect: &Connect, agent: &str, worker: &str, format: Format) -> Result<()> {
    let Connect { name, hub, concurrency, .. } = connect;
    if format == Format::Json {
        return output::json(&json!({
            "mailbox": &**name, "hub": hub.as_str(), "agent": agent, "worker": worker, "concurrency": concurrency,
        }));
    }
    let tasks = output::count(*concurrency, "task", "tasks");
    let hub = hub.as_str().trim_end_matches('/');
    output::line(&format!("{} at {hub} is served by {agent}: {tasks} at a time, as worker {worker}", &**name))
}

/// Prints a report. A closed stdout is no reason to give up tasks.
fn show(report: &Report, format: Format) {
    match format {
        Format::Human => output::note(&report.to_string()),
        Format::Json => drop(output::json(&document(report))),
    }
}

fn document(report: &Report) -> Value {
    match report {
        Report::Connected => json!({ "event": "connected" }),
        Report::HubIsAway(why) => json!({ "event": "hub-away", "reason": why }),
        Report::HubIsBack => json!({ "event": "hub-back" }),
        Report::AgentIsAway(why) => json!({ "event": "agent-away", "reason": why }),
        Report::AgentIsBack => json!({ "event": "agent-back" }),
        Report::CardRefused(why) => json!({ "event": "card-refused", "reason": why }),
        Report::Begins(task, resumed) => json!({ "event": "begin", "task": task, "resumed": resumed }),
        Report::Ends(task, LeaseEnd::State(state)) => json!({ "event": "end", "task": task, "state": state }),
        Report::Ends(task, LeaseEnd::Lost(why)) => json!({ "event": "lost", "task": task, "reason": why }),
        Report::Finishing(tasks) => json!({ "event": "finish", "tasks": tasks }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_named_after_its_machine() {
        for (host, expected) in [
            ("laptop", "laptop"),
            ("ann's laptop.local", "ann-s-laptop.local"),
            ("", "worker"),
            (&*"x".repeat(100), &*"x".repeat(64)),
        ] {
            assert_eq!(worker_name(host), expected, "{host}");
        }
    }
}
