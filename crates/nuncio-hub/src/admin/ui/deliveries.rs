//! Deliveries to webhooks, with their filter in the address.

use askama::Template;

use super::{
    form::Form,
    shell::{Area, Shell, Theme, quoted},
    show,
    tasks::{Choice, agents},
    visit::{Answer, Visit, render},
};
use crate::{
    admin::{
        api::{
            CauseCount, Delivery, DeliveryFilter, DeliveryHost, DeliveryState, ListDeliveries,
            ListDeliveryHosts, Paging, PauseDeliveryHost, RedriveDeliveries, RedriveFilter,
            ResumeDeliveryHost,
        },
        deliveries, delivery_hosts,
        problem::AdminProblem,
    },
    clock,
};

/// Number of deliveries on a page.
const PAGE_SIZE: usize = 100;

/// A row of the list.
pub(super) struct DeliveryRow {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) state: String,
    pub(super) url: String,
    pub(super) agent: String,
    pub(super) task: String,
    pub(super) task_path: String,
    pub(super) event: u64,
    pub(super) since: String,
    pub(super) attempts: u64,
    pub(super) next: Option<String>,
    /// The outcome of the last attempt.
    pub(super) last: String,
}

impl From<&Delivery> for DeliveryRow {
    fn from(delivery: &Delivery) -> Self {
        let last = delivery.attempts.iter().max_by_key(|attempt| attempt.time);
        let last = last.map(|last| {
            let code = last.code.map(|code| format!("HTTP {code} "));
            code.unwrap_or_default() + last.error.as_deref().unwrap_or_default()
        });
        Self {
            path: format!("/ui/deliveries/{}", show::segment(&delivery.id)),
            id: delivery.id.clone(),
            state: show::word(delivery.state),
            url: show::cell(&delivery.url),
            agent: delivery.agent.clone(),
            task_path: format!("/ui/tasks/{}", show::segment(&delivery.task_id)),
            task: show::cell(&delivery.task_id),
            event: delivery.event_id,
            since: delivery.since.to_string(),
            attempts: delivery.attempt_count,
            next: delivery.next_attempt.map(|next| next.to_string()),
            last: show::cell(&last.unwrap_or_default()),
        }
    }
}

#[derive(Template)]
#[template(path = "ui/deliveries.html")]
struct DeliveriesPage<'a> {
    shell: Shell,
    query: &'a Form,
    agents: Vec<Choice>,
    states: Vec<Choice>,
    rows: Vec<DeliveryRow>,
    next: Option<String>,
    is_filtered: bool,
    hosts: Vec<HostRow>,
    complete: bool,
}

/// A host of webhooks.
struct HostRow {
    host: String,
    /// The host as a value in an address.
    query: String,
    paused: Option<String>,
    pending: u64,
    oldest: Option<String>,
    dead: u64,
    causes: Vec<Cause>,
}

/// A cause of failures, with the id of the newest delivery that has it.
struct Cause {
    name: String,
    count: u64,
    newest: String,
}

impl From<DeliveryHost> for HostRow {
    fn from(host: DeliveryHost) -> Self {
        let cause = |count: CauseCount| Cause {
            name: show::word(count.cause).replace('-', " "),
            count: count.deliveries,
            newest: show::segment(&count.newest),
        };
        Self {
            query: show::segment(&host.host),
            host: host.host,
            paused: host.paused.map(|paused| paused.to_string()),
            pending: host.pending,
            oldest: host.oldest_pending.map(|oldest| oldest.to_string()),
            dead: host.dead,
            causes: host.causes.into_iter().map(cause).collect(),
        }
    }
}

pub(super) async fn page(visit: Visit) -> Answer {
    let query = &visit.query;
    let filter = DeliveryFilter {
        agent: query.text("agent"),
        task: query.text("task"),
        host: query.text("host"),
        state: query.get("state").map(state).transpose()?,
        since: query.past("since", clock::now())?,
        paging: Paging { limit: Some(PAGE_SIZE), after: query.text("after") },
    };
    let request = ListDeliveries { filter };
    let fields = ["agent", "host", "task", "state", "since"];
    let mut command = "delivery list".to_owned();
    for field in fields {
        if let Some(value) = query.get(field) {
            command.push_str(&format!(" --{field} {}", quoted(value)));
        }
    }
    let shell = visit.shell("Deliveries", Area::Deliveries).with_route(&request, Some(command))?;
    let page = visit.call(deliveries::list, request).await?;
    let hosts = visit.call(delivery_hosts::list, ListDeliveryHosts {}).await?;
    render(&DeliveriesPage {
        shell,
        agents: agents(visit.state(), query.get("agent")),
        states: states(query.get("state")),
        rows: page.deliveries.iter().map(DeliveryRow::from).collect(),
        next: page.next.map(|next| visit.with(&[("after", Some(&next))])),
        is_filtered: fields.iter().any(|field| query.get(field).is_some()),
        complete: hosts.complete,
        hosts: hosts.hosts.into_iter().map(HostRow::from).collect(),
        query,
    })
}

const STATES: [DeliveryState; 3] = [DeliveryState::Pending, DeliveryState::Delivered, DeliveryState::Dead];

fn state(word: &str) -> Result<DeliveryState, AdminProblem> {
    let found = STATES.into_iter().find(|state| show::word(state) == word);
    found
        .ok_or_else(|| AdminProblem::invalid(format!("state: {word} is not one of pending, delivered, dead")))
}

fn states(chosen: Option<&str>) -> Vec<Choice> {
    let words = STATES.into_iter().map(show::word);
    words.map(|word| Choice { is_chosen: chosen == Some(&*word), label: word.clone(), value: word }).collect()
}

pub(super) async fn pause(visit: Visit, form: Form) -> Answer {
    let host = form.required("host")?.to_owned();
    let paused = visit.call(delivery_hosts::pause, PauseDeliveryHost { host }).await?;
    visit.done("/ui/deliveries", format!("Nothing is delivered to {} until it is resumed.", paused.host))
}

pub(super) async fn resume(visit: Visit, form: Form) -> Answer {
    let host = form.required("host")?.to_owned();
    let resumed = visit.call(delivery_hosts::resume, ResumeDeliveryHost { host }).await?;
    visit.done("/ui/deliveries", format!("Deliveries to {} go on.", resumed.host))
}

pub(super) async fn redrive(visit: Visit, form: Form) -> Answer {
    let since = form.past("since", clock::now())?;
    let since = since.ok_or_else(|| AdminProblem::invalid("since: enter a time such as 1h or 7d"))?;
    let filter = RedriveFilter { since, agent: form.text("agent") };
    let redriven = visit.call(deliveries::redrive, RedriveDeliveries { filter }).await?.redriven;
    let deliveries =
        if redriven == 1 { "1 dead delivery is" } else { &format!("{redriven} dead deliveries are") };
    visit.done("/ui/deliveries", format!("{deliveries} retried."))
}
