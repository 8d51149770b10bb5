//! Mailboxes: created, listed, shown, rotated, removed; leases and poison tasks.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use nuncio_protocol::{ErrorKind, TaskId, Timestamp};

use super::{
    AdminState, agents,
    api::{
        CreateMailbox, EnableMailbox, ListMailboxes, Mailbox, MailboxDetails, MailboxLease, MailboxList,
        MailboxTurn, MailboxWithSecret, MailboxWorker, NewMailbox, PoisonTask, RemoveMailbox, Retried,
        RetryMailbox, RotateMailbox, ShowMailbox, TakeOverLeases, TakenOver,
    },
    endpoint::Reply,
    keys,
    problem::AdminProblem,
};
use crate::{
    agents::{LeaseView, MailboxOverview, OpenRefusal, Opening, PoisonView, TurnView},
    clock,
    identity::{KeyText, KeyringError, NewApiKey, key_prefix},
    registry::ChangeRefusal,
};

/// Default time for which the previous key stays valid after a rotation.
const DEFAULT_OVERLAP: Duration = Duration::from_secs(24 * 60 * 60);

/// Time for which a worker counts as present after its last call. A claim waits for a minute at most.
const PRESENCE_MILLIS: i64 = 2 * 60 * 1000;

pub(super) async fn list(
    state: Arc<AdminState>,
    _: ListMailboxes,
) -> Result<Reply<MailboxList>, AdminProblem> {
    let mut mailboxes = Vec::new();
    for name in state.mailboxes.names() {
        // It may be removed meanwhile.
        if let Some(overview) = state.mailboxes.overview(&name).await? {
            mailboxes.push(shown(&state, &name, &overview));
        }
    }
    Ok(Reply::new(MailboxList { mailboxes }))
}

pub(super) async fn show(
    state: Arc<AdminState>,
    request: ShowMailbox,
) -> Result<Reply<MailboxDetails>, AdminProblem> {
    let name = &request.name;
    let overview = find(&state, name).await?;
    let mailbox = shown(&state, name, &overview);
    let workers = overview.workers.into_iter().map(|(name, seen)| MailboxWorker { name, seen });
    let details = MailboxDetails {
        mailbox,
        turns: overview.turns.into_iter().map(turn).collect(),
        poison_tasks: overview.poison.into_iter().map(poison).collect(),
        workers: workers.collect(),
    };
    Ok(Reply::new(details))
}

pub(super) async fn create(
    state: Arc<AdminState>,
    request: CreateMailbox,
) -> Result<Reply<MailboxWithSecret>, AdminProblem> {
    let NewMailbox { name, settings } = request.mailbox;
    let (registry, identity, fleet) = (&*state.registry, &*state.identity, &*state.fleet);
    let opening = Opening { registry, identity, fleet, mailboxes: &state.mailboxes };
    let opened = opening.open(&name, settings.0).await;
    let text = opened.map_err(|refusal| match refusal {
        OpenRefusal::Invalid(why) => AdminProblem::invalid(why),
        OpenRefusal::Agent(refused) => agents::problem(&name, refused),
        OpenRefusal::Key(error) => keys::problem(&name, error),
    })?;
    with_secret(&state, &name, &text).await
}

pub(super) async fn rotate(
    state: Arc<AdminState>,
    request: RotateMailbox,
) -> Result<Reply<MailboxWithSecret>, AdminProblem> {
    let RotateMailbox { name, rotation } = request;
    find(&state, &name).await?;
    let overlap = rotation.overlap_seconds.map_or(DEFAULT_OVERLAP, Duration::from_secs);
    let keys = state.identity.mailbox_keys();
    let rotated = match keys.rotate(&name, overlap).await {
        Err(KeyringError::NotFound) => keys.create(NewApiKey::named(&*name)).await,
        rotated => rotated,
    };
    let (_, text) = rotated.map_err(|error| keys::problem(&name, error))?;
    with_secret(&state, &name, &text).await
}

/// The key goes first: without its mailbox it would be a key of the next one of that name.
pub(super) async fn remove(
    state: Arc<AdminState>,
    request: RemoveMailbox,
) -> Result<Reply<()>, AdminProblem> {
    let name = request.name;
    find(&state, &name).await?;
    let had_key = match state.identity.mailbox_keys().delete(&name).await {
        Ok(_) => true,
        Err(KeyringError::NotFound) => false,
        Err(error) => return Err(keys::problem(&name, error)),
    };
    match state.registry.remove(&name, nuncio_server::store::Expect::Anything).await {
        Ok(()) => {}
        // A mailbox of the configuration stays, without its key.
        Err(ChangeRefusal::Elsewhere(_)) if had_key => {}
        Err(refused) => return Err(agents::problem(&name, refused)),
    }
    state.mailboxes.forget_switch(&name).await?;
    Ok(Reply::new(()).subject(name))
}

pub(super) async fn retry(
    state: Arc<AdminState>,
    request: RetryMailbox,
) -> Result<Reply<Retried>, AdminProblem> {
    let RetryMailbox { name, retry } = request;
    let retried = state.mailboxes.retry_poison(&name, retry.task.as_deref()).await;
    let tasks = retried.map_err(|error| match error.kind() {
        ErrorKind::Unavailable | ErrorKind::ResourceExhausted => AdminProblem::unavailable(error.message()),
        _ => {
            tracing::error!(%error, "a poison task could not be offered anew");
            AdminProblem::conflict(error.message())
        }
    })?;
    let tasks = tasks.ok_or_else(|| missing(&name))?;
    if let (Some(task), []) = (&retry.task, &tasks[..]) {
        return Err(AdminProblem::not_found(format!("{task} is no poison task of {name}")));
    }
    let tasks = tasks.into_iter().map(|task| task.as_str().to_owned()).collect();
    Ok(Reply::new(Retried { tasks }).subject(name))
}

pub(super) async fn enable(
    state: Arc<AdminState>,
    request: EnableMailbox,
) -> Result<Reply<Mailbox>, AdminProblem> {
    let name = request.name;
    find(&state, &name).await?;
    match state.mailboxes.enable(&name).await? {
        Some(true) => {}
        Some(false) => return Err(AdminProblem::conflict(format!("the webhook of {name} is not disabled"))),
        None => {
            let why = format!("{name} has no webhook; set deliver_to, or fetch its messages");
            return Err(AdminProblem::conflict(why));
        }
    }
    let overview = find(&state, &name).await?;
    Ok(Reply::new(shown(&state, &name, &overview)).subject(name))
}

pub(super) async fn take_over(
    state: Arc<AdminState>,
    request: TakeOverLeases,
) -> Result<Reply<TakenOver>, AdminProblem> {
    let TakeOverLeases { name, take_over } = request;
    let (worker, task) = (take_over.worker.as_deref(), take_over.task.as_deref());
    let leases = state.mailboxes.take_over_leases(&name, worker, task).await?;
    let leases = leases.ok_or_else(|| missing(&name))?;
    Ok(Reply::new(TakenOver { leases }).subject(name))
}

/// The message of a task that waits in a mailbox or is leased, if it is among those that an overview lists.
pub(super) async fn turn_of(
    state: &AdminState,
    name: &str,
    task: &TaskId,
) -> Result<Option<MailboxTurn>, AdminProblem> {
    let is_mailbox = state.mailboxes.names().iter().any(|known| **known == *name);
    if !is_mailbox {
        return Ok(None);
    }
    let overview = state.mailboxes.overview(name).await?;
    let turns = overview.map(|overview| overview.turns).unwrap_or_default();
    Ok(turns.into_iter().find(|turn| turn.task == *task).map(turn))
}

async fn with_secret(
    state: &AdminState,
    name: &str,
    text: &KeyText,
) -> Result<Reply<MailboxWithSecret>, AdminProblem> {
    let overview = find(state, name).await?;
    let (mailbox, secret) = (shown(state, name, &overview), text.reveal().to_owned());
    let answer = MailboxWithSecret { mailbox, secret, volatile: state.is_volatile };
    Ok(Reply::new(answer).subject(name.to_owned()))
}

async fn find(state: &AdminState, name: &str) -> Result<MailboxOverview, AdminProblem> {
    state.mailboxes.overview(name).await?.ok_or_else(|| missing(name))
}

fn missing(name: &str) -> AdminProblem {
    AdminProblem::not_found(format!("there is no mailbox {name}; GET /api/v1/mailboxes lists them"))
}

fn shown(state: &AdminState, name: &str, overview: &MailboxOverview) -> Mailbox {
    let key = state.identity.mailbox_keys().show(name);
    let now = clock::now().as_millis();
    let is_there = |seen: Timestamp| now.saturating_sub(seen.as_millis()) <= PRESENCE_MILLIS;
    let seen = overview.workers.iter().filter(|(_, seen)| is_there(*seen)).map(|(name, _)| name);
    let leases = overview.turns.iter().filter_map(|turn| turn.lease.as_ref().map(|lease| &lease.worker));
    Mailbox {
        workers_present: seen.chain(leases).collect::<BTreeSet<_>>().len(),
        name: name.to_owned(),
        key_prefix: key.as_ref().map(|(key, _)| key_prefix(&key.id)),
        last_used: key.and_then(|(_, used)| used),
        waiting: overview.waiting,
        leased: overview.leased,
        oldest: overview.turns.first().map(|turn| turn.arrived),
        poison: overview.poison.len(),
        deliver_to: overview.webhook.clone(),
        disabled: overview.disabled,
    }
}

fn turn(turn: TurnView) -> MailboxTurn {
    let lease =
        |LeaseView { id, worker, expires, has_begun }| MailboxLease { id, worker, expires, begun: has_begun };
    MailboxTurn {
        task: turn.task.as_str().to_owned(),
        principal: turn.principal.map(|principal| principal.to_string()),
        arrived: turn.arrived,
        deadline: turn.deadline,
        attempt: turn.attempt,
        lease: turn.lease.map(lease),
    }
}

fn poison(poison: PoisonView) -> PoisonTask {
    let PoisonView { task, at, attempts, worker } = poison;
    PoisonTask { task: task.as_str().to_owned(), at, attempts, worker }
}
