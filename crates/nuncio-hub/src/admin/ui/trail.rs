//! The audit trail: who was refused, and what was changed.

use askama::Template;

use super::{
    form::Form,
    shell::{Area, Shell, Theme},
    show,
    tasks::{Choice, agents},
    visit::{Answer, Visit, render},
};
use crate::{
    admin::{
        api::{ListTrail, Paging, TrailFilter, TrailRow, What},
        problem::AdminProblem,
        trail,
    },
    clock,
};

/// Number of rows on a page.
const PAGE_SIZE: usize = 100;

/// A row of the trail.
struct Row {
    at: String,
    what: String,
    count: u64,
    /// The principal, the key or the address.
    who: String,
    subject: String,
    detail: String,
}

impl From<TrailRow> for Row {
    fn from(row: TrailRow) -> Self {
        let peer = row.peer.map(|peer| peer.to_string());
        let who = [row.principal, row.key.map(|key| format!("key {key}")), peer];
        let who: Vec<_> = who.into_iter().flatten().collect();
        let subject: Vec<_> = [row.agent, row.operation].into_iter().flatten().collect();
        Self {
            at: row.at.to_string(),
            what: show::word(row.what).replace('-', " "),
            count: row.count,
            who: show::cell(&who.join(", ")),
            subject: show::cell(&subject.join(" ")),
            detail: show::cell(row.detail.as_deref().unwrap_or_default()),
        }
    }
}

#[derive(Template)]
#[template(path = "ui/trail.html")]
struct TrailPage<'a> {
    shell: Shell,
    query: &'a Form,
    agents: Vec<Choice>,
    rows: Vec<Row>,
    next: Option<String>,
    is_filtered: bool,
}

pub(super) async fn page(visit: Visit) -> Answer {
    let query = &visit.query;
    let filter = TrailFilter {
        what: query.get("what").map(what).transpose()?,
        principal: query.text("principal"),
        agent: query.text("agent"),
        since: query.past("since", clock::now())?,
        paging: Paging { limit: Some(PAGE_SIZE), after: query.text("after") },
    };
    let request = ListTrail { filter };
    let shell = visit.shell("Trail", Area::Trail).with_route(&request, Some("trail".to_owned()))?;
    let page = visit.call(trail::list, request).await?;
    render(&TrailPage {
        shell,
        agents: agents(visit.state(), query.get("agent")),
        rows: page.rows.into_iter().map(Row::from).collect(),
        next: page.next.map(|next| visit.with(&[("after", Some(&next))])),
        is_filtered: ["what", "principal", "agent", "since"].iter().any(|field| query.get(field).is_some()),
        query,
    })
}

fn what(word: &str) -> Result<What, AdminProblem> {
    let word = word.replace(' ', "-");
    serde_json::from_value(word.clone().into())
        .map_err(|_| AdminProblem::invalid(format!("what: {word} is not a kind of row, such as key-created")))
}
