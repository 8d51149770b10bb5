//! The table of endpoints, the dispatch of requests to them, and the row that a request leaves in the trail.

use std::sync::Arc;

use axum::{
    body::to_bytes,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::{HeaderValue, Method, header};
use serde_json::Value;

use super::{
    AdminState, access, admin_tokens, agents,
    api::{About, ShowAbout, ShowDocument},
    artifacts, audits,
    caller::AdminCaller,
    dashboard, deliveries, delivery_hosts, diagnostics,
    endpoint::{Done, Endpoint, Received, Reply, caller_endpoint, endpoint, stream_endpoint},
    events, health, hubs, invitations, keys, mailboxes, openapi, playground,
    problem::AdminProblem,
    reload, room_watch, rooms, seats, stats, tasks, trail,
};

/// Maximum size of a body; more than any document of this API needs.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Everything below `/api/v1`, in the order of the document.
fn endpoints() -> Vec<Endpoint> {
    vec![
        endpoint(about),
        endpoint(document),
        endpoint(health::show),
        endpoint(stats::show),
        endpoint(hubs::list),
        endpoint(diagnostics::show),
        stream_endpoint(events::follow),
        endpoint(agents::list),
        endpoint(agents::add),
        endpoint(agents::show),
        endpoint(agents::change),
        endpoint(agents::remove),
        endpoint(agents::refresh),
        endpoint(agents::health),
        endpoint(audits::audit),
        endpoint(audits::show),
        endpoint(keys::list),
        endpoint(keys::create),
        endpoint(keys::show),
        endpoint(keys::rotate),
        endpoint(keys::revoke),
        endpoint(keys::delete),
        endpoint(mailboxes::list),
        endpoint(mailboxes::create),
        endpoint(mailboxes::show),
        endpoint(mailboxes::rotate),
        endpoint(mailboxes::remove),
        endpoint(mailboxes::retry),
        endpoint(mailboxes::enable),
        endpoint(mailboxes::take_over),
        endpoint(invitations::list),
        endpoint(invitations::create),
        endpoint(invitations::revoke),
        endpoint(access::list),
        endpoint(access::accept),
        endpoint(access::decline),
        endpoint(access::block),
        endpoint(access::revoke),
        endpoint(tasks::list),
        endpoint(tasks::show),
        endpoint(artifacts::list),
        endpoint(artifacts::part),
        endpoint(tasks::cancel),
        endpoint(tasks::erase),
        endpoint(deliveries::list),
        endpoint(deliveries::show),
        endpoint(deliveries::replay),
        endpoint(deliveries::redrive),
        endpoint(delivery_hosts::list),
        endpoint(delivery_hosts::pause),
        endpoint(delivery_hosts::resume),
        endpoint(admin_tokens::list),
        endpoint(admin_tokens::create),
        endpoint(admin_tokens::revoke),
        endpoint(rooms::list),
        endpoint(rooms::add),
        endpoint(rooms::show),
        endpoint(rooms::remove),
        endpoint(rooms::reset),
        endpoint(rooms::record),
        stream_endpoint(room_watch::watch),
        endpoint(seats::show),
        endpoint(seats::join),
        endpoint(seats::take_over),
        endpoint(seats::leave),
        endpoint(seats::say),
        endpoint(playground::list),
        endpoint(playground::send),
        endpoint(playground::show),
        endpoint(playground::cancel),
        endpoint(reload::show),
        endpoint(reload::reload),
        endpoint(trail::list),
        caller_endpoint(dashboard::open),
    ]
}

async fn about(_: Arc<AdminState>, _: ShowAbout) -> Result<Reply<About>, AdminProblem> {
    Ok(Reply::new(About { version: env!("CARGO_PKG_VERSION").to_owned() }))
}

async fn document(_: Arc<AdminState>, _: ShowDocument) -> Result<Reply<Value>, AdminProblem> {
    Ok(Reply::new(openapi::document(&endpoints())))
}

/// The endpoints with their state.
pub(super) struct EndpointTable {
    endpoints: Vec<Endpoint>,
    state: Arc<AdminState>,
}

impl EndpointTable {
    pub(super) fn new(state: Arc<AdminState>) -> Self {
        Self { endpoints: endpoints(), state }
    }

    /// Serves a request whose path begins with `/v1`.
    pub(super) async fn run(&self, request: Request) -> Result<Response, AdminProblem> {
        let (head, body) = request.into_parts();
        let Some(path) = head.uri.path().strip_prefix("/v1") else { return Err(nothing(head.uri.path())) };
        let path = if path == "/" { "" } else { path };
        let method = if head.method == Method::HEAD { Method::GET } else { head.method };
        let found = self.endpoints.iter().find_map(|endpoint| {
            (endpoint.method == method).then_some(())?;
            Some((endpoint, endpoint.names(path)?))
        });
        let (endpoint, names) = found.ok_or_else(|| self.no_route(&method, path))?;
        // Set by the layer that has read the token.
        let caller = head.extensions.get::<AdminCaller>().cloned().ok_or_else(AdminProblem::internal)?;
        if !endpoint.admits(caller.role) {
            return Err(AdminProblem::viewer());
        }
        let name = caller.name.clone();
        let body = to_bytes(body, MAX_BODY_BYTES).await.map_err(|_| {
            AdminProblem::too_large(format!("the body has more than {MAX_BODY_BYTES} bytes, or was cut off"))
        })?;
        let query = head.uri.query().unwrap_or_default().to_owned();
        let received = Received { names, query, headers: head.headers, body, caller };
        let Done { response, subject, principal } = endpoint.run(Arc::clone(&self.state), received).await?;
        if let Some(what) = endpoint.trail {
            self.state.note(what, subject, principal, name.as_deref());
        }
        Ok(response)
    }

    fn no_route(&self, method: &Method, path: &str) -> AdminProblem {
        let near: Vec<String> = self
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.is_near(path))
            .map(ToString::to_string)
            .collect();
        match &near[..] {
            [] => nothing(&format!("/v1{path}")),
            near => AdminProblem::wrong_method(format!(
                "{method} /api/v1{path} is not supported; use one of: {}",
                near.join(", ")
            )),
        }
    }
}

fn nothing(path: &str) -> AdminProblem {
    AdminProblem::not_found(format!("there is nothing at /api{path}; /api/v1/openapi.json lists all routes"))
}

/// Serves everything below `/api`, to callers with the token.
pub(super) async fn serve(State(table): State<Arc<EndpointTable>>, request: Request) -> Response {
    let mut response = table.run(request).await.unwrap_or_else(AdminProblem::into_response);
    // Answers change from moment to moment, and some are confidential.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http::StatusCode;

    use super::*;

    /// One table makes both, so what can go wrong is two routes with one path, or one id.
    #[test]
    fn every_endpoint_is_in_the_document_and_the_other_way_round() {
        let endpoints = endpoints();
        let document = openapi::document(&endpoints);
        let listed: BTreeSet<(String, String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().iter().map(move |(method, operation)| {
                    (
                        path.clone(),
                        method.to_uppercase(),
                        operation["operationId"].as_str().unwrap().to_owned(),
                    )
                })
            })
            .collect();
        let served: BTreeSet<_> = endpoints
            .iter()
            .map(|endpoint| (endpoint.path.to_owned(), endpoint.method.to_string(), endpoint.id.to_owned()))
            .collect();
        assert_eq!(listed, served);
        assert_eq!(served.len(), endpoints.len());
        let ids: BTreeSet<_> = endpoints.iter().map(|endpoint| endpoint.id).collect();
        assert_eq!(ids.len(), endpoints.len(), "an id is that of one route");
    }

    #[test]
    fn what_changes_something_leaves_a_row_in_the_trail_and_nothing_else_does() {
        for endpoint in endpoints() {
            assert_eq!(endpoint.trail.is_some(), endpoint.method != Method::GET, "{endpoint}");
        }
    }

    #[test]
    fn the_status_says_whether_there_is_an_answer() {
        for endpoint in endpoints() {
            let is_empty = endpoint.status == StatusCode::NO_CONTENT;
            assert_eq!(is_empty, endpoint.schemas.answer.is_none(), "{endpoint}");
        }
    }

    #[test]
    fn every_reference_of_the_document_leads_somewhere() {
        fn check(value: &Value, document: &Value) {
            match value {
                Value::Object(members) => {
                    if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                        let pointer = reference.strip_prefix('#').unwrap();
                        assert!(document.pointer(pointer).is_some(), "{reference}");
                    }
                    members.values().for_each(|value| check(value, document));
                }
                Value::Array(values) => values.iter().for_each(|value| check(value, document)),
                _ => {}
            }
        }
        let document = openapi::document(&endpoints());
        check(&document, &document);
    }
}
