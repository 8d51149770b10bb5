//! The directory of agents: a list with search and filters, and standard catalogs. Each caller sees the
//! agents that it may call, with URLs under the base that the caller uses.
//!
//! Reading order: this file has the routes, `filter` the query parameters, `search` the full-text search,
//! `catalog` the standard formats.

mod catalog;
mod filter;
mod search;

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{RawQuery, State},
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, get},
};
use http::{HeaderValue, StatusCode, header};
use nuncio_protocol::AgentCard;
use nuncio_server::bind::PublicBase;
use serde_json::{Value, json};

use self::{catalog::card_url, filter::Filter};
use crate::{
    agent_urls::{self, AgentUrls},
    fleet::Fleet,
    identity::Access,
};

/// State of the handlers.
#[derive(Clone)]
struct Directory {
    fleet: Arc<Fleet>,
    urls: AgentUrls,
}

/// An agent as one caller sees it.
struct DirectoryEntry {
    name: Arc<str>,
    url: String,
    card: Arc<AgentCard>,
    /// The agent is a remote one, and callers may read its upstream card.
    shows_upstream: bool,
}

/// The paths of the directory, with their handlers.
pub(crate) fn routes(fleet: &Arc<Fleet>, urls: &AgentUrls) -> [(&'static str, MethodRouter); 3] {
    let directory = Directory { fleet: Arc::clone(fleet), urls: urls.clone() };
    [
        ("/agents", get(list)),
        ("/.well-known/ai-catalog.json", get(ai_catalog)),
        ("/.well-known/api-catalog", get(api_catalog)),
    ]
    .map(|(path, handler)| (path, handler.with_state(directory.clone())))
}

type Seen = (Option<Extension<Access>>, Option<Extension<PublicBase>>);

impl Directory {
    fn base(&self, seen: &Seen) -> String {
        seen.1.as_ref().map_or_else(|| self.urls.base().to_owned(), |Extension(base)| base.to_string())
    }

    fn entries(&self, seen: &Seen) -> Vec<DirectoryEntry> {
        let base = self.base(seen);
        let may_see = |name: &str| seen.0.as_ref().is_some_and(|Extension(access)| access.may_call(name));
        let agents = self.fleet.all().into_iter().filter(|agent| agent.is_listed() && may_see(agent.name()));
        agents
            .map(|agent| DirectoryEntry {
                name: Arc::clone(agent.name()),
                url: format!("{base}{}", agent_urls::path(agent.name())),
                card: Arc::clone(&agent.shown().card),
                shows_upstream: agent
                    .upstream()
                    .is_some_and(|upstream| upstream.card_for_callers().is_some()),
            })
            .collect()
    }
}

async fn list(
    State(directory): State<Directory>,
    access: Option<Extension<Access>>,
    base: Option<Extension<PublicBase>>,
    RawQuery(query): RawQuery,
) -> Response {
    let filter = match Filter::parse(query.as_deref().unwrap_or_default()) {
        Ok(filter) => filter,
        Err(message) => {
            let error = json!({ "code": 400, "status": "INVALID_ARGUMENT", "message": message });
            return (StatusCode::BAD_REQUEST, Json(json!({ "error": error }))).into_response();
        }
    };
    let page = filter.apply(directory.entries(&(access, base)));
    let agents: Vec<_> = page.entries.iter().map(summary).collect();
    let mut body = json!({ "agents": agents, "totalSize": page.total });
    if let Some(token) = page.next {
        body["nextPageToken"] = token.into();
    }
    for_this_caller(Json(body).into_response())
}

async fn ai_catalog(
    State(directory): State<Directory>,
    access: Option<Extension<Access>>,
    base: Option<Extension<PublicBase>>,
) -> Response {
    let seen = (access, base);
    typed(catalog::AI_CATALOG, &catalog::ai_catalog(&directory.base(&seen), &directory.entries(&seen)))
}

async fn api_catalog(
    State(directory): State<Directory>,
    access: Option<Extension<Access>>,
    base: Option<Extension<PublicBase>>,
) -> Response {
    let seen = (access, base);
    let base = directory.base(&seen);
    let mut response = typed(catalog::API_CATALOG, &catalog::api_catalog(&base, &directory.entries(&seen)));
    // For clients that send a HEAD request (RFC 9727, section 3).
    let link = format!("<{base}/.well-known/api-catalog>; rel=\"api-catalog\"");
    if let Ok(link) = HeaderValue::from_str(&link) {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}

fn typed(media_type: &'static str, body: &Value) -> Response {
    for_this_caller(([(header::CONTENT_TYPE, media_type)], body.to_string()).into_response())
}

/// Forbids caching: another caller may see other agents, and another base.
fn for_this_caller(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// An agent in the list.
fn summary(DirectoryEntry { name, url, card, shows_upstream }: &DirectoryEntry) -> Value {
    let skills: Vec<_> =
        card.skills.iter().map(|skill| json!({ "id": skill.id, "name": skill.name })).collect();
    let mut summary = json!({
        "name": name,
        "title": card.name,
        "description": card.description,
        "version": card.version,
        "skills": skills,
        "tags": tags(card),
        "url": url,
        "card": card_url(url),
    });
    if *shows_upstream {
        summary["upstreamCard"] = format!("{url}/upstream-card").into();
    }
    summary
}

/// The tags of all skills, each once.
fn tags(card: &AgentCard) -> Vec<&str> {
    let mut tags: Vec<_> = card.skills.iter().flat_map(|skill| &skill.tags).map(String::as_str).collect();
    tags.sort_unstable();
    tags.dedup();
    tags
}
