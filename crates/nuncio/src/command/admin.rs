//! The client of the admin API: calls any route by its type.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use nuncio_client::{Egress, EventAnswer};
use nuncio_hub::admin::api::{ErrorBody, ErrorDetail, Route};
use nuncio_protocol::{Error, ErrorKind};
use url::{Host, Url};

use super::{hint::program, target::setting};
use crate::{args::Admin, exit};

/// The variable with the token, which takes precedence over files.
const TOKEN: &str = "NUNCIO_ADMIN_TOKEN";
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of bytes of a refusal that are read.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// The lists that messages of the API name, and the commands that show them.
const LISTS: [(&str, &str); 6] = [
    ("GET /api/v1/agents lists", "agent list"),
    ("GET /api/v1/keys lists", "key list"),
    ("GET /api/v1/mailboxes lists", "mailbox list"),
    ("GET /api/v1/invitations lists", "invite list"),
    ("GET /api/v1/rooms lists", "room list"),
    ("GET /api/v1/admin-tokens lists", "admin-token list"),
];

/// A message of the API, with the command in place of the route.
fn in_commands(message: &str) -> String {
    let known = LISTS.iter().find(|(route, _)| message.contains(route));
    known.map_or_else(
        || message.to_owned(),
        |(route, command)| message.replace(route, &format!("`{} {command}` lists", program())),
    )
}

/// A token and its origin.
struct Token {
    text: String,
    from: String,
}

impl Admin {
    /// Calls a route of the admin API.
    pub(super) async fn call<R: Route>(&self, request: &R) -> Result<R::Answer> {
        self.call_within(request, TIMEOUT).await
    }

    /// Like [`Self::call`], with another time for the answer.
    pub(super) async fn call_within<R: Route>(&self, request: &R, timeout: Duration) -> Result<R::Answer> {
        let token = self.token_or_absent().await?;
        let response = self.fetch(self.request(request, &token)?, timeout).await?;
        if response.status().is_success() {
            self.answer::<R>(&response)
        } else {
            Err(self.refusal(response.status(), response.body(), &token))
        }
    }

    /// Opens a route that answers a stream; the data of each of its events is an answer of the route.
    pub(super) async fn follow<R: Route>(&self, request: &R) -> Result<EventAnswer> {
        let token = self.token_or_absent().await?;
        let opening = Egress::operator()?;
        let opening = opening.events(self.request(request, &token)?);
        let answer = tokio::time::timeout(TIMEOUT, opening).await.unwrap_or_else(|_| Err(self.late(TIMEOUT)));
        let answer = answer.map_err(|error| self.unreachable(error))?;
        if answer.status().is_success() && answer.is_event_stream() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = answer.bytes(MAX_REFUSAL_BYTES).await.unwrap_or_default();
        Err(self.refusal(status, &body, &token))
    }

    /// Makes the HTTP request of a route.
    fn request<R: Route>(&self, request: &R, token: &Token) -> Result<Request<Bytes>> {
        let mut url = self.at(&format!("api/v1{}", request.path()));
        let query = request.query_string()?;
        url.set_query(Some(query.as_str()).filter(|query| !query.is_empty()));
        // `null` is the body of a route that has none.
        let body = serde_json::to_vec(request.body())?;
        let body = if body == b"null" { Bytes::new() } else { body.into() };
        let mut head = Request::builder()
            .method(R::METHOD)
            .uri(url.as_str())
            .header(header::AUTHORIZATION, format!("Bearer {}", token.text))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(version) = request.if_match() {
            head = head.header(header::IF_MATCH, format!("\"{version}\""));
        }
        // The message must not show the token.
        head.body(body).map_err(|_| {
            exit::usage(format!(
                "{}: not a token: it contains characters that a header cannot hold",
                token.from
            ))
        })
    }

    fn at(&self, path: &str) -> Url {
        let mut url = self.admin.clone();
        url.set_path(&format!("{}/{path}", self.admin.path().trim_end_matches('/')));
        url
    }

    /// The token; without one the error tells first whether there is a hub.
    async fn token_or_absent(&self) -> Result<Token> {
        match self.token() {
            Err(error) if !error.is::<exit::Usage>() => {
                // A hub that has stopped has deleted its token: then the user must hear that it does not run.
                self.fetch(Request::get(self.at("healthz").as_str()).body(Bytes::new())?, TIMEOUT).await?;
                Err(error)
            }
            token => token,
        }
    }

    async fn fetch(&self, request: Request<Bytes>, timeout: Duration) -> Result<Response<Bytes>> {
        let egress = Egress::operator()?;
        let answer = tokio::time::timeout(timeout, egress.fetch(request)).await;
        answer.unwrap_or_else(|_| Err(self.late(timeout))).map_err(|error| self.unreachable(error))
    }

    fn late(&self, timeout: Duration) -> Error {
        let why = format!("{} did not answer within {} seconds", self.admin, timeout.as_secs());
        Error::new(ErrorKind::DeadlineExceeded, why)
    }

    fn unreachable(&self, error: Error) -> anyhow::Error {
        let hint = format!(
            "is the hub running? start it with `{} serve`, which prints the URL of its administration; for another URL \
             use --admin URL or NUNCIO_ADMIN",
            program()
        );
        exit::hinted(error, hint)
    }

    fn answer<R: Route>(&self, response: &Response<Bytes>) -> Result<R::Answer> {
        let body: &[u8] = if R::STATUS == StatusCode::NO_CONTENT { b"null" } else { response.body() };
        serde_json::from_slice(body).map_err(|error| match error.is_data() {
            true => exit::hinted(
                Error::new(
                    ErrorKind::InvalidAgentResponse,
                    format!("cannot read the answer of the hub at {}: {error}", self.admin),
                ),
                "the hub may be of another version: use the nuncio of that version",
            ),
            false => self.no_hub(response.status()),
        })
    }

    fn refusal(&self, status: StatusCode, body: &[u8], token: &Token) -> anyhow::Error {
        if status == StatusCode::UNAUTHORIZED {
            return exit::hinted(
                Error::new(
                    ErrorKind::Unauthenticated,
                    format!("the hub at {} does not accept the token from {}", self.admin, token.from),
                ),
                "a hub makes a new token each time it starts: unset NUNCIO_ADMIN_TOKEN if it holds an old one, or name \
                 the file that the hub printed by --admin-token-file",
            );
        }
        let Ok(ErrorBody { error: ErrorDetail { message, .. } }) = serde_json::from_slice(body) else {
            return self.no_hub(status);
        };
        let message = in_commands(&message);
        match status {
            StatusCode::NOT_FOUND => exit::not_found(message),
            StatusCode::SERVICE_UNAVAILABLE => Error::new(ErrorKind::Unavailable, message).into(),
            status if status.is_client_error() => Error::new(ErrorKind::InvalidRequest, message).into(),
            _ => exit::no_agent(Error::new(ErrorKind::InvalidAgentResponse, message), None),
        }
    }

    fn no_hub(&self, status: StatusCode) -> anyhow::Error {
        let why = format!(
            "{} is not the administration of a hub: it answered HTTP {status} in another form",
            self.admin
        );
        exit::no_agent(Error::new(ErrorKind::InvalidAgentResponse, why), None)
    }

    /// Reads the token from the environment, the named file, or the default file of a hub on this machine.
    fn token(&self) -> Result<Token> {
        if let Some(text) = setting(TOKEN) {
            return Ok(Token { text, from: TOKEN.to_owned() });
        }
        let file = match &self.admin_token_file {
            Some(file) => file.clone(),
            None => self.default_file()?,
        };
        let from = file.display().to_string();
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok(Token { text: text.trim_end().to_owned(), from }),
            Err(error) => Err(exit::hinted(
                Error::new(
                    ErrorKind::Unauthenticated,
                    format!("cannot read the hub's token from {from}: {error}"),
                ),
                format!(
                    "run this command as the user that runs the hub, name the file that the hub printed by \
                     --admin-token-file, or set {TOKEN}"
                ),
            )),
        }
    }

    /// The default file, for a hub on this machine only: other hosts must not receive its token.
    fn default_file(&self) -> Result<PathBuf> {
        let is_local = match self.admin.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        let port = self.admin.port_or_known_default().filter(|_| is_local);
        port.and_then(nuncio_hub::admin_token_file).ok_or_else(|| {
            exit::usage(format!(
                "--admin {}: no token for a hub on another machine; name its file by --admin-token-file, or set {TOKEN}",
                self.admin
            ))
        })
    }
}

#[cfg(test)]
mod tests;
