//! Invitations: created, listed, revoked.

use std::{sync::Arc, time::Duration};

use nuncio_protocol::Timestamp;

use super::{
    AdminState,
    api::{
        CreateInvitation, Invitation, InvitationWithCode, Invitations, ListInvitations, NewInvitation,
        RevokeInvitation,
    },
    endpoint::Reply,
    keys,
    problem::AdminProblem,
};
use crate::{
    clock,
    config::AgentName,
    identity::{ApiKey, KeyringError, NewApiKey, invitation_prefix},
};

/// The time for which an invitation is good by default.
const DEFAULT_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest time for which an invitation is good.
const MAX_TIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);

pub(super) async fn list(
    state: Arc<AdminState>,
    _: ListInvitations,
) -> Result<Reply<Invitations>, AdminProblem> {
    let keys = state.identity.invitations().list();
    let invitations = keys.into_iter().map(|(key, _)| key).filter(is_open).map(shown).collect();
    Ok(Reply::new(Invitations { invitations }))
}

pub(super) async fn create(
    state: Arc<AdminState>,
    request: CreateInvitation,
) -> Result<Reply<InvitationWithCode>, AdminProblem> {
    let NewInvitation { mailbox, expires } = request.invitation;
    let _: AgentName =
        mailbox.parse().map_err(|why| AdminProblem::invalid(format!("mailbox: {mailbox} {why}")))?;
    let expires = expires.unwrap_or_else(|| clock::later(clock::now(), DEFAULT_TIME));
    if expires > clock::later(clock::now(), MAX_TIME) {
        return Err(AdminProblem::invalid("expires: an invitation is good for 30 days at most"));
    }
    if state.fleet.get(&mailbox).is_some() {
        let why = format!("the agent {mailbox} exists already; use another name, or nuncio mailbox rotate");
        return Err(AdminProblem::conflict(why));
    }
    let invitations = state.identity.invitations();
    let earlier = invitations.show(&mailbox).filter(|(key, _)| !is_open(key));
    if earlier.is_some() {
        // It opens nothing any more, and has the name.
        let deleted = invitations.delete(&mailbox).await;
        deleted.map_err(|error| problem(&mailbox, error))?;
    }
    let new = NewApiKey { expires: Some(expires), ..NewApiKey::named(&*mailbox) };
    let created = invitations.create(new).await;
    let (key, text) = created.map_err(|error| problem(&mailbox, error))?;
    let answer = InvitationWithCode {
        invitation: shown(key),
        code: text.reveal().to_owned(),
        volatile: state.is_volatile,
    };
    Ok(Reply::new(answer).subject(mailbox))
}

pub(super) async fn revoke(
    state: Arc<AdminState>,
    request: RevokeInvitation,
) -> Result<Reply<()>, AdminProblem> {
    let mailbox = request.mailbox;
    let deleted = state.identity.invitations().delete(&mailbox).await;
    deleted.map_err(|error| problem(&mailbox, error))?;
    Ok(Reply::new(()).subject(mailbox))
}

fn is_open(key: &ApiKey) -> bool {
    key.revoked.is_none() && key.expires.is_none_or(|expires| expires > clock::now())
}

fn shown(key: ApiKey) -> Invitation {
    Invitation {
        prefix: invitation_prefix(&key.id),
        mailbox: key.name,
        created: key.created,
        expires: key.expires.unwrap_or(Timestamp::MAX),
    }
}

fn problem(mailbox: &str, error: KeyringError) -> AdminProblem {
    match error {
        KeyringError::NotFound => AdminProblem::not_found(format!(
            "there is no invitation to {mailbox}; GET /api/v1/invitations lists them"
        )),
        KeyringError::Taken => AdminProblem::conflict(format!(
            "there is an invitation to {mailbox} already; revoke it first, or use another name"
        )),
        error @ (KeyringError::Invalid(_) | KeyringError::Failed(_)) => keys::problem(mailbox, error),
    }
}
