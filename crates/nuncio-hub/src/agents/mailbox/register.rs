//! The registration of workers: an invitation becomes a mailbox and its key, once.
//!
//! `POST /mailboxes:register` with the code as bearer token answers `{"mailbox": …, "key": …}`. A body may name the
//! webhook of the agent, `{"webhook": URL}`: the hub posts the messages there, under the rules for addresses of callers.

use std::{convert::Infallible, sync::Arc};

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, post},
};
use http::{HeaderValue, StatusCode, header};
use nuncio_server::push::Push;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use url::Url;

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

/// Bytes of the body.
const MAX_BODY_BYTES: usize = 16 << 10;

/// The parts that a registration works on.
pub(crate) struct RegisterApi {
    pub(crate) registry: Arc<Registry>,
    pub(crate) identity: Arc<Authenticator>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) mailboxes: Arc<Mailboxes>,
    /// The engine that posts to webhooks; `None` if webhooks are off.
    pub(crate) push: Option<Push>,
}

/// The body of a registration.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wishes {
    /// The address to which messages are posted.
    webhook: Option<String>,
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
                    Ok(invited) => api.register(invited, request.into_body()).await,
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

    async fn register(&self, Invited { mailbox, id }: Invited, body: Body) -> Result<Response, Problem> {
        // All that can be wrong with it comes before the code is spent.
        let settings = self.settings(body).await?;
        let invitations = self.identity.invitations();
        // First, so that of two that come with one code one gets the mailbox.
        invitations.spend(&id).await.map_err(|error| refused(&mailbox, OpenRefusal::Key(error)))?;
        let Self { registry, identity, fleet, mailboxes, push: _ } = self;
        let opening = Opening { registry, identity, fleet, mailboxes };
        let key = match opening.open(&mailbox, settings).await {
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

impl RegisterApi {
    /// The settings of the mailbox that the body asks for.
    async fn settings(&self, body: Body) -> Result<Map<String, Value>, Problem> {
        let body = to_bytes(body, MAX_BODY_BYTES).await;
        let body = body.map_err(|_| {
            Problem::new(
                Reason::TooLarge,
                format!("the body has more than {MAX_BODY_BYTES} bytes, or was cut off"),
            )
        })?;
        let wishes: Wishes = match &body[..] {
            b"" => Wishes::default(),
            body => serde_json::from_slice(body).map_err(|_| {
                Problem::invalid("the body is wrong; expected {\"webhook\": URL}, or nothing")
            })?,
        };
        let Some(webhook) = wishes.webhook else { return Ok(Map::new()) };
        let wrong = |why: &str| Problem::invalid(format!("webhook: {why}"));
        let url = Url::parse(&webhook).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| wrong("expected an address such as https://agent.example/hook"))?;
        let push = self.push.as_ref().ok_or_else(|| wrong("this hub posts to no webhooks; leave it out"))?;
        push.check_receiver(&url).map_err(|why| wrong(&why))?;
        let settings = json!({ "deliver_to": url.as_str(), "guarded": true });
        Ok(Map::from_iter([("mailbox".to_owned(), settings)]))
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
