//! Discovery of an agent's card (spec 8.2).

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{ACCEPT, IF_MODIFIED_SINCE, IF_NONE_MATCH},
};
use jiff::Timestamp;
use nuncio_protocol::{AgentCard, Error, ErrorKind, Result};
use serde_json::Value;
use url::Url;

use super::cache::{self, Storage, Validators};
use crate::{
    Credentials,
    auth::Granted,
    choose::decode_card,
    egress::{Egress, is_loopback, shown},
    failure::Failure,
    transport::status,
};

const WELL_KNOWN: &str = ".well-known/agent-card.json";
/// The path of cards before v0.3.
const LEGACY: &str = ".well-known/agent.json";

/// A card and its source.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchedCard {
    /// The card, in v1.0 terms.
    pub card: AgentCard,
    /// The card as received: signatures cover this form, and unknown members are kept.
    pub json: Value,
    /// The URL that it was fetched from.
    pub url: Url,
}

impl FetchedCard {
    /// Parses a card of either version, such as one in a file. Credentials are bound to the origin of
    /// `url`.
    ///
    /// # Errors
    /// `InvalidAgentResponse` if it is not a card.
    pub fn read(url: &Url, body: &[u8]) -> Result<Self> {
        read_card(url, body)
    }
}

/// A card, shared between clients.
pub(crate) type SharedCard = Arc<FetchedCard>;

/// An answer to a request for a card.
pub(crate) enum CardResponse {
    Card(SharedCard, Option<Storage>),
    /// The cached card is still current.
    NotModified(Option<Storage>),
    NotFound,
}

/// Parses an agent's URL as people write it. The scheme may be left out; the default is `https`, or `http`
/// on this machine.
///
/// # Errors
/// It is not an http or https URL, or contains credentials.
pub fn agent_url(text: &str) -> Result<Url> {
    let text = text.trim();
    let invalid =
        |why: &str| Error::invalid_field("url", format!("{text:?} is not the URL of an agent: {why}"));
    let url = if text.contains("://") {
        Url::parse(text).map_err(|error| invalid(&error.to_string()))?
    } else {
        let url = Url::parse(&format!("https://{text}")).map_err(|error| invalid(&error.to_string()))?;
        if is_loopback(&url) {
            Url::parse(&format!("http://{text}")).map_err(|error| invalid(&error.to_string()))?
        } else {
            url
        }
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("expected http or https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        // Not quoted: it may contain a password.
        return Err(Error::invalid_field("url", "holds a user or a password; give credentials separately"));
    }
    Ok(url)
}

/// The URLs where the card of an agent may be, in the order to try. A URL that ends in `.json` is the card
/// itself; below any other, the well-known paths are tried.
#[must_use]
pub fn card_urls(agent: &Url) -> Vec<Url> {
    if agent.path().ends_with(".json") {
        return vec![agent.clone()];
    }
    let below = |place: &str| {
        let mut url = agent.clone();
        url.set_path(&format!("{}/{place}", agent.path().trim_end_matches('/')));
        url.set_query(None);
        url.set_fragment(None);
        url
    };
    vec![below(WELL_KNOWN), below(LEGACY)]
}

/// Finds and fetches the card of an agent. Credentials are sent, because the caller gave the URL and some
/// agents show their card only to authenticated clients.
///
/// # Errors
/// `InvalidAgentResponse` if there is no card or the document is not a card; otherwise the error of the
/// transport or the status.
pub async fn discover(egress: &Egress, agent: &Url, credentials: &Credentials) -> Result<Arc<FetchedCard>> {
    let places = card_urls(agent);
    for url in &places {
        if let CardResponse::Card(card, _) = fetch(egress, url, credentials, None).await? {
            return Ok(card);
        }
    }
    Err(no_card(&places))
}

pub(crate) fn no_card(places: &[Url]) -> Error {
    let missing =
        places.first().and_then(named).map(|(name, hub)| format!("there is no agent {name} at {hub}: "));
    let lists = places.first().map(|place| format!("; {} lists the agents of a hub", directory(place)));
    let places: Vec<_> = places.iter().map(shown).collect();
    let message = format!(
        "{}no agent card at {}; give the address of the agent or of its card{}",
        missing.unwrap_or_default(),
        places.join(" or "),
        lists.unwrap_or_default()
    );
    Error::new(ErrorKind::InvalidAgentResponse, message)
}

/// The name of the agent in a URL of a hub, and the address of the hub.
fn named(url: &Url) -> Option<(&str, String)> {
    let (above, below) = url.path().split_once("/agents/")?;
    let name = below.split('/').next().filter(|name| !name.is_empty() && !name.starts_with('.'))?;
    Some((name, format!("{}{above}", url.origin().ascii_serialization())))
}

/// The URL of the list of agents, if the URL belongs to a hub. A hub may be below a path of its host.
fn directory(url: &Url) -> String {
    let below = url.path().find("/agents/").map(|at| &url.path()[..at]);
    format!("{}{}/agents", url.origin().ascii_serialization(), below.unwrap_or_default())
}

/// Requests the card at one URL.
pub(crate) async fn fetch(
    egress: &Egress,
    url: &Url,
    credentials: &Credentials,
    validators: Option<&Validators>,
) -> Result<CardResponse> {
    let (egress, granted) = credentials.for_target(egress.clone(), url, &url.origin());
    Ok(granted.renewing(|| ask(&egress, url, &granted, validators)).await?)
}

async fn ask(
    egress: &Egress,
    url: &Url,
    granted: &Granted,
    validators: Option<&Validators>,
) -> Result<CardResponse, Failure> {
    let mut headers = granted.headers().await?;
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(validators) = validators {
        condition(&mut headers, validators);
    }
    let response = egress.send(Method::GET, url, headers, Bytes::new()).await?;
    let (code, headers) = (response.status(), response.headers().clone());
    let storage = cache::storage(&headers);
    match code {
        StatusCode::NOT_MODIFIED if validators.is_some() => return Ok(CardResponse::NotModified(storage)),
        StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(CardResponse::NotFound),
        _ => {}
    }
    let body = egress.read(response).await?;
    if !code.is_success() {
        let head = status::ResponseHead { url, status: code, headers: &headers, withheld: false };
        return Err(Failure::answered(head.error(&body, Timestamp::now())));
    }
    let card = read_card(url, &body).map_err(Failure::answered)?;
    Ok(CardResponse::Card(Arc::new(card), storage))
}

fn condition(headers: &mut HeaderMap, validators: &Validators) {
    if let Some(etag) = &validators.etag {
        headers.insert(IF_NONE_MATCH, etag.clone());
    }
    if let Some(date) = &validators.last_modified {
        headers.insert(IF_MODIFIED_SINCE, date.clone());
    }
}

/// Parses a card. The content type is not checked (trap T-44).
fn read_card(url: &Url, body: &[u8]) -> Result<FetchedCard> {
    let not_a_card = |why: &str| {
        let message = format!("the document at {} is not an agent card: {why}", shown(url));
        Error::new(ErrorKind::InvalidAgentResponse, message)
    };
    let json: Value = serde_json::from_slice(body).map_err(|error| not_a_card(&error.to_string()))?;
    if !json.is_object() {
        return Err(not_a_card("expected a JSON object"));
    }
    let card = decode_card(body).map_err(|error| not_a_card(error.message()))?;
    Ok(FetchedCard { card, json, url: url.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_card() {
        for (agent, expected) in [
            (
                "https://a.example",
                "https://a.example/.well-known/agent-card.json https://a.example/.well-known/agent.json",
            ),
            (
                "http://localhost:2602/agents/billing/?x=1#y",
                "http://localhost:2602/agents/billing/.well-known/agent-card.json \
                 http://localhost:2602/agents/billing/.well-known/agent.json",
            ),
            ("https://a.example/cards/b.json?v=2", "https://a.example/cards/b.json?v=2"),
        ] {
            let urls: Vec<_> = card_urls(&Url::parse(agent).unwrap()).into_iter().map(String::from).collect();
            assert_eq!(urls.join(" "), expected, "{agent}");
        }
    }

    #[test]
    fn a_missing_card_names_the_list_of_agents() {
        for (agent, begins, expected) in [
            (
                "http://localhost:2602/agents/billng",
                "there is no agent billng at http://localhost:2602: no agent card at ",
                "http://localhost:2602/agents",
            ),
            (
                "https://a.example/hub/agents/billing/?x=s3cret",
                "there is no agent billing at https://a.example/hub: ",
                "https://a.example/hub/agents",
            ),
            ("https://a.example/billing", "no agent card at ", "https://a.example/agents"),
            ("https://a.example/cards/b.json", "no agent card at ", "https://a.example/agents"),
        ] {
            let error = no_card(&card_urls(&Url::parse(agent).unwrap()));
            let expected = format!(
                "; give the address of the agent or of its card; {expected} lists the agents of a hub"
            );
            assert!(error.message().starts_with(begins) && error.message().ends_with(&expected), "{error}");
            assert!(!error.message().contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn addresses_as_people_write_them() {
        for (text, expected) in [
            ("localhost:2602", "http://localhost:2602/"),
            ("127.0.0.1:2602/agents/a", "http://127.0.0.1:2602/agents/a"),
            ("[::1]:2602", "http://[::1]:2602/"),
            ("agent.example", "https://agent.example/"),
            (" http://agent.example:80/x ", "http://agent.example/x"),
        ] {
            assert_eq!(agent_url(text).unwrap().as_str(), expected, "{text}");
        }
        for text in ["", "ftp://a.example", "https://user:secret@a.example", "https://"] {
            let error = agent_url(text).unwrap_err();
            assert!(!error.message().contains("secret"), "{error}");
        }
    }
}
