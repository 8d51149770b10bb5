//! The authentication of workers: a key of a mailbox opens that mailbox and nothing else.

use axum::{extract::Request, response::Response};
use http::HeaderValue;
use nuncio_protocol::{Error, ErrorKind};

use super::{AuthRefusal, Authenticator, PresentedCredential, layer, shown, text};
use crate::{clock, listen::Peer};

/// The reason for refusing a worker, the same for every cause that a worker must not tell apart.
const WRONG: &str = "this key opens no such mailbox";

/// The reason for refusing one who was not invited.
const NO_INVITATION: &str = "this invitation was redeemed, has expired or was revoked";

/// An invitation that a request has shown.
pub(crate) struct Invited {
    /// The mailbox that it becomes.
    pub(crate) mailbox: String,
    pub(crate) id: String,
}

/// A refusal of a worker: the error, and the challenge that goes with it.
pub(crate) struct WorkerRefusal {
    pub(crate) error: Error,
    pub(crate) challenge: Option<HeaderValue>,
}

impl WorkerRefusal {
    /// The refusal of one who should have sent `credential`.
    fn new(refused: &AuthRefusal, credential: &str) -> Self {
        let (error, challenge) = layer::told(refused);
        let error = match refused {
            AuthRefusal::Missing => Error::new(
                ErrorKind::Unauthenticated,
                format!("authentication required; send {credential} as Authorization: Bearer"),
            ),
            _ => error,
        };
        Self { error, challenge: challenge.and_then(|challenge| HeaderValue::from_str(&challenge).ok()) }
    }
}

impl Authenticator {
    /// Admits a worker to a mailbox: with its key; or without one where the mailbox has none, and the hub lets in
    /// callers of its machine without a credential.
    ///
    /// # Errors
    /// The credential is missing or wrong. A mailbox that does not exist is refused like one of others.
    pub(crate) fn admit_worker(&self, mailbox: &str, request: &Request) -> Result<(), WorkerRefusal> {
        let (uri, headers) = (request.uri(), request.headers());
        let peer = request.extensions().get::<Peer>();
        let refused = match shown(headers) {
            PresentedCredential::Nothing => {
                let is_local = peer.is_some_and(|peer| peer.is_local(uri, headers));
                if is_local && !self.is_closed() && self.mailbox_keys.show(mailbox).is_none() {
                    return Ok(());
                }
                AuthRefusal::Missing
            }
            PresentedCredential::Text(given) => match self.judge_worker(mailbox, given) {
                Ok(()) => return Ok(()),
                Err(why) => match peer {
                    Some(peer) => self.refuse(why, peer.address),
                    None => AuthRefusal::Invalid(why),
                },
            },
            PresentedCredential::Wrong => AuthRefusal::Invalid("expected the key of the mailbox"),
        };
        Err(WorkerRefusal::new(&refused, "the mailbox's key"))
    }

    /// Admits one who was invited, with the code of the invitation.
    ///
    /// # Errors
    /// The code is missing, wrong or spent, or the invitation has expired.
    pub(crate) fn admit_invited(&self, request: &Request) -> Result<Invited, WorkerRefusal> {
        let peer = request.extensions().get::<Peer>();
        let refused = match shown(request.headers()) {
            PresentedCredential::Nothing => AuthRefusal::Missing,
            PresentedCredential::Text(given) => match self.judge_invited(given) {
                Ok(invited) => return Ok(invited),
                Err(why) => match peer {
                    Some(peer) => self.refuse(why, peer.address),
                    None => AuthRefusal::Invalid(why),
                },
            },
            PresentedCredential::Wrong => AuthRefusal::Invalid(NO_INVITATION),
        };
        Err(WorkerRefusal::new(&refused, "the code of the invitation"))
    }

    fn judge_invited(&self, given: &str) -> Result<Invited, &'static str> {
        let given = text::read(given).ok_or("the code is mistyped or cut off")?;
        // One reason for all causes: a spent code tells nothing about its mailbox.
        let entry = self.invitations.find(&given, clock::now()).map_err(|_| NO_INVITATION)?;
        Ok(Invited { mailbox: entry.name().to_owned(), id: entry.id().to_owned() })
    }

    fn judge_worker(&self, mailbox: &str, given: &str) -> Result<(), &'static str> {
        if !text::is_key(given) {
            return Err(WRONG);
        }
        let given = text::read(given).ok_or("the key is mistyped or cut off")?;
        let entry = self.mailbox_keys.find(&given, clock::now())?;
        if entry.name() == mailbox { Ok(()) } else { Err(WRONG) }
    }
}

/// Marks an answer to a worker as one for nobody else.
pub(crate) fn for_this_worker(response: &mut Response) {
    layer::for_this_caller(response.headers_mut());
}
