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
            Delivery, DeliveryFilter, DeliveryState, ListDeliveries, Paging, RedriveDeliveries, RedriveFilter,
        },
        deliveries,
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
}

pub(super) async fn page(visit: Visit) -> Answer {
    let query = &visit.query;
    let filter = DeliveryFilter {
        agent: query.text("agent"),
        task: query.text("task"),
        state: query.get("state").map(state).transpose()?,
        since: query.past("since", clock::now())?,
        paging: Paging { limit: Some(PAGE_SIZE), after: query.text("after") },
    };
    let request = ListDeliveries { filter };
    let fields = ["agent", "task", "state", "since"];
    let mut command = "delivery list".to_owned();
    for field in fields {
        if let Some(value) = query.get(field) {
            command.push_str(&format!(" --{field} {}", quoted(value)));
        }
    }
    let shell = visit.shell("Deliveries", Area::Deliveries).from_route(&request, Some(command))?;
    let page = visit.call(deliveries::list, request).await?;
    render(&DeliveriesPage {
        shell,
        agents: agents(visit.state(), query.get("agent")),
        states: states(query.get("state")),
        rows: page.deliveries.iter().map(DeliveryRow::from).collect(),
        next: page.next.map(|next| visit.with(&[("after", Some(&next))])),
        is_filtered: fields.iter().any(|field| query.get(field).is_some()),
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

pub(super) async fn redrive(visit: Visit, form: Form) -> Answer {
    let since = form.past("since", clock::now())?;
    let since = since.ok_or_else(|| AdminProblem::invalid("since: enter a time such as 1h or 7d"))?;
    let filter = RedriveFilter { since, agent: form.text("agent") };
    let redriven = visit.call(deliveries::redrive, RedriveDeliveries { filter }).await?.redriven;
    let deliveries =
        if redriven == 1 { "1 dead delivery is" } else { &format!("{redriven} dead deliveries are") };
    visit.done("/ui/deliveries", format!("{deliveries} retried."))
}
