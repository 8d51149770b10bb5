//! API keys: created, rotated, revoked; a secret is shown on one page, once. Callers that ask for consent, and refused
//! ones.

use std::cmp::Reverse;

use askama::Template;
use axum::extract::Path;
use nuncio_protocol::Timestamp;

use super::{
    form::Form,
    session::Notice,
    shell::{Area, Shell, Theme},
    show,
    visit::{Answer, Visit, render},
};
use crate::{
    admin::{
        access,
        api::{
            AcceptAccess, AccessCaller, AccessFilter, AccessState, BlockAccess, CallerAccess, CreateKey,
            DeclineAccess, DeleteKey, Key, KeyRotation, KeyWithSecret, ListAccess, ListKeys, ListTrail,
            NewKey, Paging, RevokeAccess, RevokeKey, RotateKey, TrailFilter, What,
        },
        keys,
        problem::AdminProblem,
        trail,
    },
    clock,
};

const PAGE: &str = "/ui/access";

/// A key as a row.
struct KeyRow {
    id: String,
    path: String,
    name: String,
    prefix: String,
    principal: String,
    /// `valid`, `expired` or `revoked`.
    state: &'static str,
    agents: String,
    operations: String,
    last_used: Option<String>,
    expires: Option<String>,
    created: String,
}

impl KeyRow {
    fn new(key: Key, now: Timestamp) -> Self {
        let state = if key.revoked.is_some() {
            "revoked"
        } else if key.expires.is_some_and(|expires| expires <= now) {
            "expired"
        } else {
            "valid"
        };
        let list =
            |names: Option<Vec<String>>| names.map_or_else(|| "all".to_owned(), |names| names.join(", "));
        Self {
            path: format!("{PAGE}/{}", show::segment(&key.id)),
            id: key.id,
            name: show::cell(&key.name),
            prefix: key.prefix,
            principal: show::cell(&key.principal),
            state,
            agents: show::cell(&list(key.agents)),
            operations: show::cell(&list(key.operations)),
            last_used: key.last_used.map(|used| used.to_string()),
            expires: key.expires.map(|expires| expires.to_string()),
            created: key.created.to_string(),
        }
    }
}

/// A caller of an agent that asks for consent.
struct CallerRow {
    agent: String,
    agent_path: String,
    principal: String,
    /// The principal as it is sent back.
    given: String,
    tenant: Option<String>,
    /// `waiting`, `accepted`, `declined` or `blocked`.
    state: String,
    since: String,
    expires: Option<String>,
    messages: usize,
    task_path: Option<String>,
}

impl From<CallerAccess> for CallerRow {
    fn from(access: CallerAccess) -> Self {
        Self {
            agent_path: format!("/ui/agents/{}", show::segment(&access.agent)),
            agent: access.agent,
            principal: show::cell(&access.principal),
            given: access.principal,
            tenant: access.tenant,
            state: show::word(access.state),
            since: access.since.to_string(),
            expires: access.expires.map(|expires| expires.to_string()),
            messages: access.messages,
            task_path: access.tasks.first().map(|task| format!("/ui/tasks/{}", show::segment(task))),
        }
    }
}

/// A row of the trail about a caller that was refused.
struct DenialRow {
    at: String,
    what: String,
    count: u64,
    who: String,
    agent: String,
}

/// Number of callers and of denials on the page.
const MAX_CALLERS: usize = 100;
const MAX_DENIALS: usize = 5;

#[derive(Template)]
#[template(path = "ui/access.html")]
struct AccessPage {
    shell: Shell,
    keys: Vec<KeyRow>,
    waiting: Vec<CallerRow>,
    decided: Vec<CallerRow>,
    denials: Vec<DenialRow>,
    asks: bool,
    is_volatile: bool,
}

pub(super) async fn page(visit: Visit) -> Answer {
    let shell = visit.shell("Access", Area::Access).with_route(&ListKeys {}, Some("key list".to_owned()))?;
    let keys = visit.call(keys::list, ListKeys {}).await?;
    let now = clock::now();
    // Those that wait first, however many are decided.
    let waiting = callers(&visit, Some(AccessState::Waiting)).await?;
    let mut decided = callers(&visit, None).await?;
    decided.retain(|caller| caller.state != "waiting");
    render(&AccessPage {
        asks: visit.state().fleet.all().iter().any(|agent| agent.asks()),
        waiting,
        decided,
        denials: denials(&visit).await?,
        shell,
        is_volatile: keys.volatile,
        keys: keys.keys.into_iter().map(|key| KeyRow::new(key, now)).collect(),
    })
}

async fn callers(visit: &Visit, state: Option<AccessState>) -> Result<Vec<CallerRow>, AdminProblem> {
    let paging = Paging { limit: Some(MAX_CALLERS), after: None };
    let filter = AccessFilter { agent: None, state, paging };
    let page = visit.call(access::list, ListAccess { filter }).await?;
    Ok(page.callers.into_iter().map(CallerRow::from).collect())
}

/// The latest refusals of each kind, newest first.
async fn denials(visit: &Visit) -> Result<Vec<DenialRow>, AdminProblem> {
    let mut rows = Vec::new();
    for what in [What::CredentialsRefused, What::AttemptsLimited, What::AgentDenied, What::OperationDenied] {
        let paging = Paging { limit: Some(MAX_DENIALS), after: None };
        let filter = TrailFilter { what: Some(what), paging, ..TrailFilter::default() };
        rows.extend(visit.call(trail::list, ListTrail { filter }).await?.rows);
    }
    rows.sort_by_key(|row| Reverse(row.at));
    let row = |row: crate::admin::api::TrailRow| DenialRow {
        at: row.at.to_string(),
        what: show::word(row.what),
        count: row.count,
        who: show::cell(&row.principal.or(row.peer.map(|peer| peer.to_string())).unwrap_or_default()),
        agent: show::cell(&row.agent.unwrap_or_default()),
    };
    Ok(rows.into_iter().take(MAX_DENIALS).map(row).collect())
}

/// Decides about a caller of an agent that asks.
pub(super) async fn decide(visit: Visit, Path(decision): Path<String>, form: Form) -> Answer {
    let principal = form.required("principal")?.to_owned();
    let caller =
        AccessCaller { agent: form.required("agent")?.to_owned(), principal, tenant: form.text("tenant") };
    let (done, decided) = match &*decision {
        "accept" => ("accepted", visit.call(access::accept, AcceptAccess { caller }).await?),
        "decline" => ("declined", visit.call(access::decline, DeclineAccess { caller }).await?),
        "block" => ("blocked", visit.call(access::block, BlockAccess { caller }).await?),
        "revoke" => {
            ("asked anew at the next message", visit.call(access::revoke, RevokeAccess { caller }).await?)
        }
        _ => {
            return Err(AdminProblem::not_found(
                "there is no such decision: accept, decline, block or revoke",
            )
            .into());
        }
    };
    visit.done(PAGE, format!("{} at {} is {done}.", show::cell(&decided.principal), decided.agent))
}

pub(super) async fn create(visit: Visit, form: Form) -> Answer {
    let key = NewKey {
        name: form.required("name")?.to_owned(),
        principal: form.text("principal"),
        agents: form.list("agents"),
        operations: form.list("operations"),
        expires: form.future("expires", clock::now())?,
        ..NewKey::default()
    };
    let created = visit.call(keys::create, CreateKey { key }).await?;
    with_secret(&visit, "created", created)
}

pub(super) async fn rotate(visit: Visit, Path(id): Path<String>) -> Answer {
    let rotated = visit.call(keys::rotate, RotateKey { id, rotation: KeyRotation::default() }).await?;
    with_secret(&visit, "rotated: its previous secret is valid for one more day", rotated)
}

fn with_secret(visit: &Visit, what: &str, key: KeyWithSecret) -> Answer {
    let text = format!("The key {} was {what}. Copy its secret now: it is not shown again.", key.key.name);
    visit.done_with(PAGE, Notice { text, secret: Some(key.secret) })
}

pub(super) async fn revoke(visit: Visit, Path(id): Path<String>) -> Answer {
    let key = visit.call(keys::revoke, RevokeKey { id }).await?;
    visit.done(PAGE, format!("The key {} is revoked.", key.name))
}

pub(super) async fn delete(visit: Visit, Path(id): Path<String>) -> Answer {
    visit.call(keys::delete, DeleteKey { id: id.clone() }).await?;
    visit.done(PAGE, format!("The record of the key {id} was deleted."))
}
