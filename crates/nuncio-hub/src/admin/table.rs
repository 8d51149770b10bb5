//! The table of routes, and what becomes of a request: it finds its route, and what it changes is written down.

use std::sync::Arc;

use axum::{
    body::to_bytes,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::{HeaderValue, Method, header};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{
    Desk, agents,
    answer::Problem,
    deliveries, health, keys, openapi, reload,
    route::{Call, Done, Given, Reply, Route, route},
    tasks, trail,
};

/// More than any document that is meant.
const LARGEST_BODY: usize = 1 << 20;

/// Everything that there is below `/api/v1`, in the order of the document.
fn routes() -> Vec<Route> {
    let mut routes = vec![
        route(Method::GET, "", "about", "Says what answers here.", about),
        route(Method::GET, "/openapi.json", "openapi", "This document.", document),
    ];
    routes.extend(health::routes());
    routes.extend(agents::routes());
    routes.extend(keys::routes());
    routes.extend(tasks::routes());
    routes.extend(deliveries::routes());
    routes.extend(reload::routes());
    routes.extend(trail::routes());
    routes
}

#[derive(Serialize, JsonSchema)]
struct About {
    /// The version of the hub.
    version: &'static str,
}

async fn about(_: Arc<Desk>, _: Call) -> Result<Reply<About>, Problem> {
    Ok(Reply::new(About { version: env!("CARGO_PKG_VERSION") }))
}

async fn document(_: Arc<Desk>, _: Call) -> Result<Reply<Value>, Problem> {
    Ok(Reply::new(openapi::document(&routes())))
}

/// The routes, and what they work on.
pub(super) struct Table {
    routes: Vec<Route>,
    desk: Arc<Desk>,
}

impl Table {
    pub(super) fn new(desk: Arc<Desk>) -> Self {
        Self { routes: routes(), desk }
    }

    async fn run(&self, request: Request) -> Result<Response, Problem> {
        let (head, body) = request.into_parts();
        let Some(path) = head.uri.path().strip_prefix("/v1") else { return Err(nothing(head.uri.path())) };
        let path = if path == "/" { "" } else { path };
        let method = if head.method == Method::HEAD { Method::GET } else { head.method };
        let found = self.routes.iter().find_map(|route| {
            (route.method == method).then_some(())?;
            Some((route, route.matches(path)?))
        });
        let (route, named) = found.ok_or_else(|| self.no_route(&method, path))?;
        let body = to_bytes(body, LARGEST_BODY).await.map_err(|_| {
            Problem::too_large(format!("the body has more than {LARGEST_BODY} bytes, or was cut off"))
        })?;
        let query = head.uri.query().unwrap_or_default().to_owned();
        let given = Given { path: named, query, headers: head.headers, body };
        let Done { response, about } = route.run(Arc::clone(&self.desk), given).await?;
        if let Some(what) = route.what {
            self.desk.note(what, about);
        }
        Ok(response)
    }

    fn no_route(&self, method: &Method, path: &str) -> Problem {
        let near: Vec<String> =
            self.routes.iter().filter(|route| route.is_near(path)).map(ToString::to_string).collect();
        match &near[..] {
            [] => nothing(&format!("/v1{path}")),
            near => Problem::wrong_method(format!(
                "{method} /api/v1{path} is nothing that can be done; there are: {}",
                near.join(", ")
            )),
        }
    }
}

fn nothing(path: &str) -> Problem {
    Problem::not_found(format!("there is nothing at /api{path}; /api/v1/openapi.json says what there is"))
}

/// Answers whatever is below `/api`, which the caller has the token for.
pub(super) async fn serve(State(table): State<Arc<Table>>, request: Request) -> Response {
    let mut response = table.run(request).await.unwrap_or_else(Problem::into_response);
    // What is answered is of this moment, and some of it is nobody else's matter.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// One table makes both, so what can go wrong is two lines that are one path, or a name that is there twice.
    #[test]
    fn every_route_is_in_the_document_and_the_other_way_round() {
        let routes = routes();
        let document = openapi::document(&routes);
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
        let served: BTreeSet<_> = routes
            .iter()
            .map(|route| (route.path.to_owned(), route.method.to_string(), route.id.to_owned()))
            .collect();
        assert_eq!(listed, served);
        assert_eq!(served.len(), routes.len());
        let ids: BTreeSet<_> = routes.iter().map(|route| route.id).collect();
        assert_eq!(ids.len(), routes.len(), "names are those of one route each");
    }

    #[test]
    fn what_changes_something_leaves_a_row_in_the_trail_and_nothing_else_does() {
        for route in routes() {
            assert_eq!(route.what.is_some(), route.method != Method::GET, "{route}");
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
        let document = openapi::document(&routes());
        check(&document, &document);
    }
}
