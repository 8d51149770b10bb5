//! The operators' side of the hub, on a listener of its own: health for all, an API for whoever has the token.
//!
//! Reading order: this file binds and mounts, `token` makes the token and keeps its file, `answer` has the
//! errors; then a file per kind of thing that the API is about.

mod answer;
mod deliveries;
mod token;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use axum::{
    Json, Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{HeaderMap, HeaderValue, header};
use serde_json::json;
use tokio::net::TcpListener;

pub(crate) use self::deliveries::Outbox;
pub use self::token::admin_token_file;
use self::{
    answer::Problem,
    token::{Token, TokenFile},
};
use crate::{
    config::Config,
    listen::{Listener, Names, Open},
    router::{self, Routes},
};

/// Bound, and ready to serve.
pub(crate) struct Admin {
    listener: Listener,
    address: SocketAddr,
    file: TokenFile,
    router: Router,
}

/// The connections that are still open when no more are taken.
pub(crate) struct Closing {
    open: Open,
    file: TokenFile,
}

impl Closing {
    /// Tells them to close, and waits until they have; false if some did not in time. The token's file goes.
    pub(crate) async fn close(self, grace: Duration) -> bool {
        let Self { open, file } = self;
        let ended = open.close(grace).await;
        drop(file);
        ended
    }
}

impl Admin {
    /// Binds the address, and only then writes the token: the file of a port belongs to whoever has the port.
    pub(crate) async fn bind(
        config: &Config,
        names: impl FnOnce(SocketAddr) -> Names,
        routes: &Arc<Routes>,
        outbox: Outbox,
    ) -> Result<Option<Self>> {
        let Some(admin) = &config.admin else { return Ok(None) };
        let socket = TcpListener::bind(admin.listen).await.with_context(|| {
            format!(
                "cannot listen on {} for administration; is another hub running? say --admin with another \
                 port, such as --admin 127.0.0.1:0 for a free one, or --admin off",
                admin.listen
            )
        })?;
        let address = socket.local_addr()?;
        let file = TokenFile::write(admin.token_file.as_deref(), address.port())?;
        let listener = Listener {
            socket,
            // On loopback nobody listens in, and the commands need no certificate to be given.
            certificates: None,
            names: names(address),
            connections: config.connections,
        };
        let router = router(routes, outbox, file.token());
        Ok(Some(Self { listener, address, file, router }))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn token_file(&self) -> &Path {
        self.file.path()
    }

    /// Serves until `shutdown` is done. Connections then stay open, and no more are taken.
    pub(crate) async fn serve(self, shutdown: impl Future<Output = ()>) -> Closing {
        Closing { open: self.listener.serve(self.router, shutdown).await, file: self.file }
    }
}

fn router(routes: &Arc<Routes>, outbox: Outbox, token: &Token) -> Router {
    let v1 = Router::new().route("/", get(about)).merge(deliveries::router(outbox));
    let api = Router::new()
        .nest("/v1", v1)
        .fallback(nothing)
        .method_not_allowed_fallback(wrong_method)
        // Around the fallbacks, too: without the token one does not even learn what there is.
        .layer(middleware::from_fn_with_state(token.clone(), with_token));
    router::health(routes).nest("/api", api).fallback(nothing)
}

/// Lets in whoever has the token. No other site's page can: it would have to know it, and is answered nothing
/// that its browser lets it read.
async fn with_token(State(token): State<Token>, request: Request, next: Next) -> Response {
    let mut response = match bearer(request.headers()) {
        Some(given) if token.is(given) => next.run(request).await,
        given => Problem::no_token(given.is_some()).into_response(),
    };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

async fn about() -> Response {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") })).into_response()
}

async fn nothing(request: Request) -> Problem {
    let path = request.uri().path();
    Problem::not_found(format!("there is nothing at {path}; administration is at /api/v1, health at /readyz"))
}

async fn wrong_method(request: Request) -> Problem {
    Problem::wrong_method(format!("{} is no method of {}", request.method(), request.uri().path()))
}
