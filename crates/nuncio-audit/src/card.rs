//! Discovery of the card, with every exchange that checks read.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use nuncio_client::{FetchedCard, TrustedKeys, card_urls};
use nuncio_protocol::{AgentCard, Version};
use serde_json::Value;
use url::Url;

use crate::{
    audit::CardFacts,
    observed::Observed,
    outcome::Unseen,
    wire::{Exchange, Request, Response, Session, shortened, without_query},
};

/// The card of an agent.
#[derive(Debug)]
pub(crate) struct FoundCard {
    pub(crate) exchange: Exchange,
    pub(crate) url: Url,
    /// The card as received.
    pub(crate) json: Value,
    /// The card in the types of the protocol.
    pub(crate) card: AgentCard,
    /// The given URL names the card itself, not the agent.
    pub(crate) is_given: bool,
    /// It was found at the address of cards before 0.3 only.
    pub(crate) is_legacy: bool,
    /// The card is served at that address, too.
    pub(crate) has_legacy: bool,
    /// The answer to a conditional request.
    pub(crate) revalidated: Option<Exchange>,
    /// The keys of its signatures.
    pub(crate) keys: Option<TrustedKeys>,
}

impl FoundCard {
    pub(crate) fn response(&self) -> Option<&Response> {
        self.exchange.response.as_ref().ok()
    }

    /// True if the card has the interfaces of 1.0.
    pub(crate) fn is_v1_0(&self) -> bool {
        self.json["supportedInterfaces"].is_array()
    }

    /// True if the card has the members of 0.3.
    pub(crate) fn is_v0_3(&self) -> bool {
        self.json["url"].is_string()
    }

    /// The members of the objects in a list of the card.
    pub(crate) fn objects<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Value> {
        self.json[name].as_array().into_iter().flatten()
    }

    /// The protected headers of the signatures, decoded.
    pub(crate) fn protected(&self) -> Vec<Value> {
        let decode = |signature: &Value| {
            let text = signature["protected"].as_str()?;
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
        };
        self.objects("signatures").map(|signature| decode(signature).unwrap_or_default()).collect()
    }

    pub(crate) fn facts(&self) -> CardFacts {
        let card = &self.card;
        let shapes = [(Version::V1_0, self.is_v1_0()), (Version::V0_3, self.is_v0_3())];
        CardFacts {
            url: without_query(&self.url),
            name: card.name.clone(),
            version: card.version.clone(),
            description: shortened(&card.description),
            provider: card.provider.as_ref().map(|provider| provider.organization.clone()),
            shapes: shapes
                .iter()
                .filter(|(_, has)| *has)
                .map(|(version, _)| version.as_str().to_owned())
                .collect(),
            skills: card.skills.iter().map(|skill| skill.id.clone()).collect(),
            security_schemes: card.security_schemes.keys().cloned().collect(),
            requires_credentials: !card.security_requirements.is_empty(),
            extensions: card.capabilities.extensions.iter().map(|extension| extension.uri.clone()).collect(),
            signatures: card.signatures.len(),
        }
    }
}

/// Fetches the card.
///
/// # Errors
/// The observation of `card.found`.
pub(crate) async fn discover(session: &Session, agent: &Url) -> Result<FoundCard, Observed> {
    let places = card_urls(agent);
    let mut first = None;
    for (number, url) in places.iter().enumerate() {
        let exchange = session.send(request(url)).await;
        match read(&exchange) {
            Ok((json, card)) => {
                let mut found = FoundCard {
                    exchange,
                    url: url.clone(),
                    json,
                    card,
                    is_given: places.len() == 1,
                    is_legacy: number > 0,
                    has_legacy: number > 0,
                    revalidated: None,
                    keys: None,
                };
                found.complete(session, places.get(1)).await;
                return Ok(found);
            }
            Err(observed) => first = first.or(Some(observed)),
        }
    }
    Err(first.unwrap_or_else(|| Observed::broken("there is no card")))
}

fn request(url: &Url) -> Request {
    let request = Request { hides_query: true, ..Request::get(url.clone()) };
    request.header("accept", "application/json")
}

/// Reads the answer to a request for a card.
fn read(exchange: &Exchange) -> Result<(Value, AgentCard), Observed> {
    let response = exchange.response.as_ref().map_err(|failure| Observed::silent(failure).on(exchange))?;
    let at = exchange.request.shown_url();
    let unseen = |why: Unseen, reason: String| Err(Observed::unseen(why, reason).on(exchange));
    match response.status {
        200..=299 => {}
        401 | 403 => {
            let status = response.status;
            let why =
                format!("{at} answers HTTP {status}: the card needs credentials; set NUNCIO_KEY or --header");
            return unseen(Unseen::Credentials, why);
        }
        300..=399 => {
            let to = response.header("location").unwrap_or("another address");
            let why = format!("{at} redirects to {to}: redirects are not followed; audit that address");
            return unseen(Unseen::Unreachable, why);
        }
        429 | 500..=599 => {
            return unseen(Unseen::Unreachable, format!("{at} answers HTTP {}", response.status));
        }
        status => {
            return Err(
                Observed::broken(format!("{at} answers HTTP {status}: there is no card")).on(exchange)
            );
        }
    }
    if serde_json::from_slice::<serde::de::IgnoredAny>(&response.body).is_err() {
        let media_type = response.media_type();
        let why = format!("{at} answers with {media_type}, not JSON: is it an agent?");
        return unseen(Unseen::Unreachable, why);
    }
    match FetchedCard::read(&exchange.request.url, &response.body) {
        Ok(fetched) => Ok((fetched.json, fetched.card)),
        Err(error) => Err(Observed::broken(error.message()).on(exchange)),
    }
}

impl FoundCard {
    /// Fetches what checks of the card need besides the card.
    async fn complete(&mut self, session: &Session, legacy: Option<&Url>) {
        if let Some(legacy) = legacy.filter(|_| !self.is_legacy) {
            self.has_legacy = read(&session.send(request(legacy)).await).is_ok();
        }
        if let Some(etag) = self.response().and_then(|response| response.header("etag").map(str::to_owned)) {
            let again = request(&self.url).header("if-none-match", &etag);
            self.revalidated = Some(session.send(again).await);
        }
        for header in self.protected() {
            let url = header["jku"].as_str().and_then(|url| Url::parse(url).ok());
            // A card may name any address; only that of the agent itself is called.
            let Some(url) = url.filter(|url| url.origin() == self.url.origin()) else { continue };
            let exchange = session.send(request(&url)).await;
            let body = exchange
                .response
                .ok()
                .filter(|response| response.status == 200)
                .map(|response| response.body);
            let keys = body.and_then(|body| serde_json::from_slice(&body).ok());
            self.keys = keys.and_then(|keys: Value| TrustedKeys::from_jwks(&keys).ok()).or(self.keys.take());
        }
    }
}
