//! Asking a running hub, as whoever administers it.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use nuncio_client::Egress;
use nuncio_protocol::{Error, ErrorKind};
use serde_json::Value;
use url::{Host, Url};

use super::{hint::program, target::setting};
use crate::{args::Admin, exit};

/// Where the token is taken from, before any file.
const TOKEN: &str = "NUNCIO_ADMIN_TOKEN";
/// How long a hub may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A token, and where it comes from.
struct Token {
    text: String,
    from: String,
}

impl Admin {
    /// Reads something of the API, such as `deliveries`.
    pub(super) async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value> {
        self.call(Method::GET, &self.asked(path, query), Bytes::new()).await
    }

    /// Has the hub do something.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.post_with(path, &[], body).await
    }

    /// Has the hub do something in a certain way.
    pub(super) async fn post_with(
        &self,
        path: &str,
        query: &[(&str, String)],
        body: &Value,
    ) -> Result<Value> {
        self.call(Method::POST, &self.asked(path, query), body.to_string().into()).await
    }

    /// Has the hub change something.
    pub(super) async fn patch(&self, path: &str, body: &Value) -> Result<Value> {
        self.call(Method::PATCH, &self.api(path), body.to_string().into()).await
    }

    /// Has the hub do without something.
    pub(super) async fn delete(&self, path: &str) -> Result<Value> {
        self.call(Method::DELETE, &self.api(path), Bytes::new()).await
    }

    fn asked(&self, path: &str, query: &[(&str, String)]) -> Url {
        let mut url = self.api(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    fn api(&self, path: &str) -> Url {
        self.at(&format!("api/v1/{path}"))
    }

    fn at(&self, path: &str) -> Url {
        let mut url = self.admin.clone();
        url.set_path(&format!("{}/{path}", self.admin.path().trim_end_matches('/')));
        url
    }

    async fn call(&self, method: Method, url: &Url, body: Bytes) -> Result<Value> {
        let token = match self.token() {
            Ok(token) => token,
            Err(error) if error.is::<exit::Usage>() => return Err(error),
            // A hub that has stopped has taken its file away: that is then the news.
            Err(error) => {
                self.fetch(Request::get(self.at("healthz").as_str()).body(Bytes::new())?).await?;
                return Err(error);
            }
        };
        let request = Request::builder()
            .method(method)
            .uri(url.as_str())
            .header(header::AUTHORIZATION, format!("Bearer {}", token.text))
            .header(header::CONTENT_TYPE, "application/json")
            .body(body);
        // What is wrong is told without the token.
        let request = request.map_err(|_| {
            exit::usage(format!("{}: holds what cannot stand in a header; expected a token", token.from))
        })?;
        let response = self.fetch(request).await?;
        self.read(&response, &token)
    }

    async fn fetch(&self, request: Request<Bytes>) -> Result<Response<Bytes>> {
        let egress = Egress::operator()?;
        let late = || Error::new(ErrorKind::DeadlineExceeded, format!("{} does not answer", self.admin));
        let answer =
            tokio::time::timeout(TIMEOUT, egress.fetch(request)).await.unwrap_or_else(|_| Err(late()));
        answer.map_err(|error| {
            let hint = format!(
                "is the hub running? this command asks a running one: `{} serve` starts it, without agents at first if \
                 need be, and says where it is administered; name another place by --admin URL or NUNCIO_ADMIN",
                program()
            );
            exit::hinted(error, hint)
        })
    }

    /// The document that was answered.
    fn read(&self, response: &Response<Bytes>, token: &Token) -> Result<Value> {
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        let document: Option<Value> = serde_json::from_slice(response.body()).ok();
        if let (true, Some(document)) = (response.status().is_success(), &document) {
            return Ok(document.clone());
        }
        let told = document.as_ref().and_then(|document| document["error"]["message"].as_str());
        let told = told.map(str::to_owned);
        Err(match response.status() {
            StatusCode::UNAUTHORIZED => exit::hinted(
                Error::new(
                    ErrorKind::Unauthenticated,
                    format!("the hub at {} does not take the token from {}", self.admin, token.from),
                ),
                "each hub makes a new token when it starts: unset NUNCIO_ADMIN_TOKEN if it is an old one, or name \
                 the file that the hub has told by --admin-token-file",
            ),
            StatusCode::NOT_FOUND if told.is_some() => exit::not_found(told.unwrap_or_default()),
            StatusCode::SERVICE_UNAVAILABLE if told.is_some() => {
                Error::new(ErrorKind::Unavailable, told.unwrap_or_default()).into()
            }
            status if status.is_client_error() && told.is_some() => {
                Error::new(ErrorKind::InvalidRequest, told.unwrap_or_default()).into()
            }
            status => exit::no_agent(Error::new(
                ErrorKind::InvalidAgentResponse,
                told.unwrap_or_else(|| {
                    format!("what answers at {} is no hub's administration (HTTP {status})", self.admin)
                }),
            )),
        })
    }

    /// From the environment, from the file that was named, or from where the hub on this machine has it.
    fn token(&self) -> Result<Token> {
        if let Some(text) = setting(TOKEN) {
            return Ok(Token { text, from: TOKEN.to_owned() });
        }
        let file = match &self.admin_token_file {
            Some(file) => file.clone(),
            None => self.usual_file()?,
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
                    "run this as the user who runs the hub, name the file that the hub has told by \
                     --admin-token-file, or set {TOKEN}"
                ),
            )),
        }
    }

    /// Only for a hub on this machine: nobody else is sent what is in our files unasked.
    fn usual_file(&self) -> Result<PathBuf> {
        let is_local = match self.admin.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        let port = self.admin.port_or_known_default().filter(|_| is_local);
        port.and_then(nuncio_hub::admin_token_file).ok_or_else(|| {
            exit::usage(format!(
                "--admin {}: which token? name its file by --admin-token-file, or set {TOKEN}",
                self.admin
            ))
        })
    }
}
