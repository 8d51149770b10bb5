//! Routes of remote agents: the upstream card, and push notifications for the webhooks of callers.

use axum::{
    Json,
    body::Bytes,
    extract::FromRequest as _,
    response::{IntoResponse as _, Response},
};
use futures_util::{FutureExt as _, future::BoxFuture};
use http::{Method, StatusCode, header};

use super::{proxy::Opened, proxy_of};
use crate::{
    agents::{KindRoute, RouteCall},
    target::RouteAccess,
};

pub(super) fn routes() -> Vec<KindRoute> {
    vec![
        KindRoute {
            method: Method::GET,
            path: "upstream-card",
            access: RouteAccess::Caller,
            handler: upstream_card,
        },
        KindRoute {
            method: Method::POST,
            path: "push/{address}",
            access: RouteAccess::Capability,
            handler: notified,
        },
    ]
}

/// Returns the upstream card unchanged, so that its signature stays valid, if the operator shows it.
fn upstream_card(call: RouteCall) -> BoxFuture<'static, Option<Response>> {
    let card = call.agent.and_then(|agent| agent.upstream()?.card_for_callers());
    let answer = card.map(|card| ([(header::CACHE_CONTROL, "no-store")], Json(card)).into_response());
    std::future::ready(answer).boxed()
}

/// Forwards a notification of an agent in proxy mode to the webhook of a caller.
fn notified(call: RouteCall) -> BoxFuture<'static, Option<Response>> {
    hand_on(call).boxed()
}

async fn hand_on(call: RouteCall) -> Option<Response> {
    let RouteCall { store, name, agent, captures, request } = call;
    let headers = request.headers().clone();
    let body = match Bytes::from_request(request, &()).await {
        Ok(body) => body,
        Err(refused) => return Some(refused.into_response()),
    };
    // First, and for any name, so that the time does not reveal which agents exist.
    let address = captures.first().map(String::as_str).unwrap_or_default();
    let opened = match Opened::by(&*store, &name, address).await {
        Ok(opened) => opened,
        Err(error) => {
            tracing::warn!(%error, "a notification could not be forwarded");
            return Some(StatusCode::SERVICE_UNAVAILABLE.into_response());
        }
    };
    let proxy = agent.as_ref().and_then(|agent| proxy_of(agent));
    match proxy?.notified(opened?, &headers, body).await.status() {
        StatusCode::NOT_FOUND => None,
        status => Some(status.into_response()),
    }
}
