//! The registration of workers: an invitation becomes a mailbox and its key, once.
//!
//! `POST /mailboxes:register` with the code as bearer token answers `{"mailbox": …, "key": …}`.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::Request,
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, post},
};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::Map;

use super::{
    Mailboxes,
    open::{OpenRefusal, Opening},
    problem::{Problem, Reason},
};
use crate::{
    fleet::Fleet,
    identity::{Authenticator, Invited, KeyringError, for_this_worker},
    registry::{ChangeRefusal, Registry},
    trail::{Row, What},
};

/// The path of the call.
const PATH: &str = "/mailboxes:register";

/// The parts that a registration works on.
pub(crate) struct RegisterApi {
    pub(crate) registry: Arc<Registry>,
    pub(crate) identity: Arc<Authenticator>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) mailboxes: Arc<Mailboxes>,
}

/// The answer.
#[derive(Serialize)]
struct Registered<'a> {
    mailbox: &'a str,
    /// It is not shown again.
    key: &'a str,
}

impl RegisterApi {
    /// The route of the call.
    pub(crate) fn route(self) -> (String, MethodRouter<(), Infallible>) {
        let api = Arc::new(self);
        let answer = move |request: Request| {
            let api = Arc::clone(&api);
            let invited = api.identity.admit_invited(&request);
            async move {
                let registered = match invited {
                    Ok(invited) => api.register(invited).await,
                    Err(refused) => Err(refused.into()),
                };
                let mut response = registered.unwrap_or_else(Problem::into_response);
                response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                for_this_worker(&mut response);
                response
            }
        };
        (PATH.to_owned(), post(answer))
    }

    async fn register(&self, Invited { mailbox, id }: Invited) -> Result<Response, Problem> {
        let invitations = self.identity.invitations();
        // First, so that of two that come with one code one gets the mailbox.
        invitations.spend(&id).await.map_err(|error| refused(&mailbox, OpenRefusal::Key(error)))?;
        let Self { registry, identity, fleet, mailboxes } = self;
        let opening = Opening { registry, identity, fleet, mailboxes };
        let key = match opening.open(&mailbox, Map::new()).await {
            Ok(key) => key,
            Err(refusal) => {
                if let Err(error) = invitations.give_back(&id).await {
                    tracing::warn!(mailbox, %error, "an invitation is spent, although its mailbox could not be created");
                }
                return Err(refused(&mailbox, refusal));
            }
        };
        if let Err(error) = invitations.delete(&id).await {
            tracing::warn!(mailbox, %error, "a spent invitation could not be deleted; it opens nothing");
        }
        tracing::info!(mailbox, "an invitation was redeemed");
        let row = Row { agent: Some(mailbox.clone()), key: Some(id), ..Row::of(What::InvitationRedeemed) };
        self.identity.trail().note(row);
        let body = Registered { mailbox: &mailbox, key: key.reveal() };
        // Texts are always valid JSON.
        let text = serde_json::to_string(&body).unwrap_or_default();
        Ok((StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], text).into_response())
    }
}

/// The refusal for the one who was invited. Reasons that concern the operator go to the log only.
fn refused(mailbox: &str, refusal: OpenRefusal) -> Problem {
    let taken = || {
        let why = format!("the hub has an agent {mailbox} already; ask for an invitation with another name");
        Problem::new(Reason::Taken, why)
    };
    match refusal {
        OpenRefusal::Agent(ChangeRefusal::Taken(_)) | OpenRefusal::Key(KeyringError::Taken) => taken(),
        OpenRefusal::Key(KeyringError::NotFound) => {
            Problem::new(Reason::Unauthorized, "this invitation was redeemed, has expired or was revoked")
        }
        OpenRefusal::Invalid(why) | OpenRefusal::Key(KeyringError::Invalid(why)) => Problem::invalid(why),
        OpenRefusal::Agent(refusal) => {
            tracing::warn!(mailbox, ?refusal, "the mailbox of an invitation could not be created");
            Problem::unavailable(
                "the mailbox could not be created; try again, or ask the operator of the hub",
            )
        }
        OpenRefusal::Key(KeyringError::Failed(error)) => {
            tracing::warn!(mailbox, error = %format!("{error:#}"), "the key of a mailbox could not be created");
            Problem::unavailable("the key could not be created; try again, or ask the operator of the hub")
        }
    }
}
