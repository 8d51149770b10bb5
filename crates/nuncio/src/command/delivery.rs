//! `nuncio delivery …`: the webhook deliveries of a hub.

use std::{
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use nuncio_hub::admin::api::{
    Attempt, Delivery, DeliveryFilter, DeliveryHost, DeliveryHosts, ListDeliveries, ListDeliveryHosts,
    PauseDeliveryHost, RedriveDeliveries, RedriveFilter, ReplayDelivery, ResumeDeliveryHost, ShowDelivery,
};
use nuncio_protocol::Timestamp;

use super::{
    hint::program,
    pages::{self, Table, columns, word},
};
use crate::{
    args::{DeliveryCommand, Since},
    output::{self, Format},
};

pub(super) async fn run(command: DeliveryCommand, format: Format) -> Result<ExitCode> {
    match command {
        DeliveryCommand::List { hub, agent, task, host, state, since, limit } => {
            let (state, since) = (state.map(Into::into), since.map(moment));
            let filter = DeliveryFilter { agent, task, host, state, since, ..DeliveryFilter::default() };
            let table = Table {
                header: &["DELIVERY", "STATE", "ATTEMPTS", "SINCE", "HOST", "AGENT", "TASK"],
                nouns: ("delivery", "deliveries"),
            };
            pages::show(&hub, ListDeliveries { filter }, limit, table, format, row).await?;
        }
        DeliveryCommand::Show { hub, id } => show(&hub.call(&ShowDelivery { id }).await?, format)?,
        DeliveryCommand::Replay { hub, id } => {
            let delivery = hub.call(&ReplayDelivery { id: id.clone() }).await?;
            match format {
                Format::Json => output::json(&delivery)?,
                Format::Human => output::note(&format!(
                    "{id} will be delivered again; see: {} delivery show {id}",
                    program()
                )),
            }
        }
        DeliveryCommand::Redrive { hub, since, agent } => {
            let since = moment(since);
            let filter = RedriveFilter { since, agent };
            let redriven = hub.call(&RedriveDeliveries { filter }).await?;
            match format {
                Format::Json => output::json(&redriven)?,
                Format::Human => output::note(&format!(
                    "{} dead deliveries since {since} will be retried",
                    redriven.redriven
                )),
            }
        }
        DeliveryCommand::Hosts { hub } => hosts(&hub.call(&ListDeliveryHosts {}).await?, format)?,
        DeliveryCommand::Pause { hub, host } => {
            let paused = hub.call(&PauseDeliveryHost { host }).await?;
            match (format, paused.changed) {
                (Format::Json, _) => output::json(&paused)?,
                (Format::Human, true) => output::note(&format!(
                    "{host} is paused; its deliveries wait until: {} delivery resume {host}",
                    program(),
                    host = paused.host
                )),
                (Format::Human, false) => output::note(&format!("{} is paused already", paused.host)),
            }
        }
        DeliveryCommand::Resume { hub, host } => {
            let resumed = hub.call(&ResumeDeliveryHost { host }).await?;
            match (format, resumed.changed) {
                (Format::Json, _) => output::json(&resumed)?,
                (Format::Human, true) => output::note(&format!("{} gets its deliveries again", resumed.host)),
                (Format::Human, false) => output::note(&format!("{} is not paused", resumed.host)),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn hosts(hosts: &DeliveryHosts, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(hosts);
    }
    let row = |host: &DeliveryHost| {
        let causes = host.causes.iter().map(|cause| format!("{} {}", cause.deliveries, word(cause.cause)));
        vec![
            host.host.clone(),
            format!("{} pending", host.pending),
            format!("{} dead", host.dead),
            host.paused.map_or_else(String::new, |since| format!("paused since {since}")),
            causes.collect::<Vec<_>>().join(", "),
        ]
    };
    let rows: Vec<_> = hosts.hosts.iter().map(row).collect();
    columns(&["HOST", "PENDING", "DEAD", "PAUSED", "CAUSES"], &rows)?;
    let more = if hosts.complete { "" } else { "; there are more deliveries than were counted" };
    output::note(&format!("{}{more}", output::count(hosts.hosts.len() as u64, "host", "hosts")));
    Ok(())
}

fn row(delivery: &Delivery) -> Vec<String> {
    vec![
        delivery.id.clone(),
        word(delivery.state),
        delivery.attempt_count.to_string(),
        delivery.since.to_string(),
        delivery.url.clone(),
        delivery.agent.clone(),
        delivery.task_id.clone(),
    ]
}

fn show(delivery: &Delivery, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(delivery);
    }
    for (name, value) in [
        ("delivery", Some(delivery.id.clone())),
        ("state", Some(word(delivery.state))),
        ("to", Some(delivery.url.clone())),
        ("webhook", Some(delivery.webhook.clone())),
        ("agent", Some(delivery.agent.clone())),
        ("tenant", delivery.tenant.clone()),
        ("task", Some(delivery.task_id.clone())),
        ("since", Some(delivery.since.to_string())),
        ("next", delivery.next_attempt.map(|next| next.to_string())),
        ("event", Some(delivery.event_id.to_string())),
    ] {
        if let Some(value) = value {
            output::row(&format!("{name:<9} {value}"))?;
        }
    }
    let earlier = delivery.attempt_count.saturating_sub(delivery.attempts.len() as u64);
    if earlier > 0 {
        output::row(&format!("{:<9} and {earlier} earlier ones", "attempts"))?;
    }
    for Attempt { time, duration_ms, code, error, cause: _ } in &delivery.attempts {
        let code = code.map_or_else(|| "no answer".to_owned(), |code| code.to_string());
        let error = error.as_deref().unwrap_or_default();
        output::row(&format!("{:<9} {time}  {code}  {duration_ms} ms  {error}", "attempt"))?;
    }
    Ok(())
}

/// The time since then, in its largest unit.
pub(super) fn ago(then: Timestamp) -> String {
    let seconds = now().as_millis().saturating_sub(then.as_millis()).max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// The time that an option means now.
pub(super) fn moment(since: Since) -> Timestamp {
    since.before(now())
}

pub(super) fn now() -> Timestamp {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    i64::try_from(millis).ok().and_then(Timestamp::from_millis).unwrap_or(Timestamp::MAX)
}
