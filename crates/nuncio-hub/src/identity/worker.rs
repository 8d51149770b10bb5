//! The authentication of workers: a key of a mailbox opens that mailbox and nothing else.

use axum::{extract::Request, response::Response};
use http::HeaderValue;
use nuncio_protocol::{Error, ErrorKind};

use super::{AuthRefusal, Authenticator, PresentedCredential, layer, shown, text};
use crate::{clock, listen::Peer};

/// The reason for refusing a worker, the same for every cause that a worker must not tell apart.
const WRONG: &str = "this key opens no such mailbox";

/// A refusal of a worker: the error, and the challenge that goes with it.
pub(crate) struct WorkerRefusal {
    pub(crate) error: Error,
    pub(crate) challenge: Option<HeaderValue>,
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
        let (error, challenge) = layer::told(&refused);
        let error = match refused {
            AuthRefusal::Missing => Error::new(
                ErrorKind::Unauthenticated,
                "authentication required; send the mailbox's key as Authorization: Bearer",
            ),
            _ => error,
        };
        Err(WorkerRefusal {
            error,
            challenge: challenge.and_then(|challenge| HeaderValue::from_str(&challenge).ok()),
        })
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
