//! The public card as callers see it: one signed document for both versions, with URLs below the base under
//! which the caller reaches the server.
//!
//! A document is made once per base and cached, because signing is expensive. The base is never derived from
//! a request here: the code before the routes, which knows the trusted proxies, adds a [`PublicBase`] to the
//! request.

use std::{collections::VecDeque, fmt, sync::Arc, time::SystemTime};

use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header, uri::Scheme};
use nuncio_protocol::{AgentCard, Error, Result, grpc_target};
use parking_lot::Mutex;
use serde_json::Value;

use super::{BindOptions, Document, answer, version::for_all_versions};

/// The maximum number of cached documents besides the one of our own base. A proxy may forward any host name
/// that its callers invent, so the cache is bounded.
const MAX_BASES: usize = 64;

/// The headers by which a proxy describes the original request.
const FORWARDING: &str =
    "forwarded, x-forwarded-for, x-forwarded-host, x-forwarded-port, x-forwarded-prefix, x-forwarded-proto";

/// The URL under which callers reach this server, such as `https://agents.example.com` or
/// `https://example.com/agents`. As an extension of a request: the URL for this caller.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PublicBase {
    /// Without a trailing slash.
    url: Arc<str>,
}

impl PublicBase {
    /// Parses a URL with the scheme `http` or `https` and without credentials, query and fragment; `None` for
    /// any other.
    #[must_use]
    pub fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let is_http = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&uri.scheme());
        let authority = uri.authority()?.as_str();
        let is_plain = !authority.contains('@') && uri.query().is_none() && !url.contains('#');
        (is_http && is_plain).then(|| Self { url: url.trim_end_matches('/').into() })
    }

    /// The URL as text, without a trailing slash.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// Scheme, authority and path.
    fn parts(&self) -> (&str, &str, &str) {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        (scheme, authority, path)
    }
}

impl fmt::Display for PublicBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

type SignCard = dyn Fn(&mut Value, Option<&PublicBase>) -> Result<()> + Send + Sync;

/// Signs a finished card. It also gets the base for which the card is presented, if that is known, because
/// the keys are published below it.
#[derive(Clone)]
pub struct CardSigner(Arc<SignCard>);

impl CardSigner {
    /// A signer that calls this function.
    pub fn new(sign: impl Fn(&mut Value, Option<&PublicBase>) -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(sign))
    }
}

impl fmt::Debug for CardSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CardSigner")
    }
}

/// The card of an agent for every base.
pub(super) struct Cards {
    card: AgentCard,
    options: BindOptions,
    /// The time since which the card is unchanged.
    made: SystemTime,
    /// For our own base.
    own: Arc<Document>,
    /// For other bases, oldest first. The lock is held for a lookup or an insert, never while a card is made.
    others: Mutex<VecDeque<(PublicBase, Arc<Document>)>>,
}

impl Cards {
    pub(super) fn new(card: &AgentCard, options: &BindOptions) -> Result<Self> {
        let made = SystemTime::now();
        let own = Arc::new(document(card, None, options, made)?);
        Ok(Self { card: card.clone(), options: options.clone(), made, own, others: Mutex::default() })
    }

    /// The public card for a caller that reaches the server under this base; `None` is our own base.
    pub(super) fn respond(&self, headers: &HeaderMap, base: Option<&PublicBase>) -> Response {
        match self.document(base) {
            Ok(document) => document.respond(headers),
            Err(error) => {
                answer::log(&error);
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }

    /// A card of this agent, such as the extended one, with its URLs for this base, and signed.
    pub(super) fn present(&self, card: &AgentCard, base: Option<&PublicBase>) -> Result<AgentCard> {
        let mut card = moved(card, self.elsewhere(base), &self.options);
        if let Some(CardSigner(sign)) = &self.options.card_signer {
            let mut json = serde_json::to_value(&card).map_err(Error::internal)?;
            sign(&mut json, base.or(self.options.card_base.as_ref()))?;
            card.signatures = serde_json::from_value(json["signatures"].take()).map_err(Error::internal)?;
        }
        Ok(card)
    }

    fn document(&self, base: Option<&PublicBase>) -> Result<Arc<Document>> {
        let Some(base) = self.elsewhere(base) else { return Ok(Arc::clone(&self.own)) };
        let kept = || self.others.lock();
        let find = |kept: &VecDeque<(PublicBase, Arc<Document>)>| {
            kept.iter().find(|(known, _)| known == base).map(|(_, document)| Arc::clone(document))
        };
        if let Some(document) = find(&kept()) {
            return Ok(document);
        }
        let document = Arc::new(document(&self.card, Some(base), &self.options, self.made)?);
        let mut kept = kept();
        // Another request may have made it meanwhile.
        if let Some(document) = find(&kept) {
            return Ok(document);
        }
        if kept.len() >= MAX_BASES {
            kept.pop_front();
        }
        kept.push_back((base.clone(), Arc::clone(&document)));
        Ok(document)
    }

    /// The base, if it is not our own.
    fn elsewhere<'a>(&self, base: Option<&'a PublicBase>) -> Option<&'a PublicBase> {
        base.filter(|base| self.options.card_base.as_ref() != Some(*base))
    }
}

/// Marks the response of the legacy card path as deprecated.
pub(super) fn deprecated(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("deprecation"), HeaderValue::from_static("true"));
    headers.insert(header::LINK, HeaderValue::from_static("<agent-card.json>; rel=\"successor-version\""));
    response
}

/// Keeps shared caches from storing a card that is made for one caller (spec 13.3).
pub(super) fn for_this_caller_only(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(header::VARY, HeaderValue::from_static("authorization"));
}

fn document(
    card: &AgentCard,
    elsewhere: Option<&PublicBase>,
    options: &BindOptions,
    made: SystemTime,
) -> Result<Document> {
    let mut json = for_all_versions(&moved(card, elsewhere, options));
    if let Some(CardSigner(sign)) = &options.card_signer {
        sign(&mut json, elsewhere.or(options.card_base.as_ref()))?;
    }
    let document = Document::new(&json, options.card_max_age, made)?;
    Ok(if options.card_follows_proxies { document.varying_by(FORWARDING) } else { document })
}

/// Moves the card's URLs to another base. URLs that are not below our own base belong to others and stay.
/// gRPC has fixed paths, so it cannot be reached below a base with a path, and its interface is removed.
fn moved(card: &AgentCard, elsewhere: Option<&PublicBase>, options: &BindOptions) -> AgentCard {
    let mut card = card.clone();
    let (Some(own), Some(elsewhere)) = (&options.card_base, elsewhere) else { return card };
    let own_target = grpc_target(own.as_str());
    if !elsewhere.parts().2.is_empty() {
        card.supported_interfaces.retain(|interface| interface.url != own_target);
    }
    let interfaces = card.supported_interfaces.iter_mut().map(|interface| &mut interface.url);
    let provider = card.provider.iter_mut().map(|provider| &mut provider.url);
    let others = card.documentation_url.iter_mut().chain(&mut card.icon_url);
    for url in interfaces.chain(provider).chain(others) {
        match url.strip_prefix(own.as_str()) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => *url = format!("{elsewhere}{rest}"),
            _ if *url == own_target => *url = grpc_target(elsewhere.as_str()),
            _ => {}
        }
    }
    // The signatures covered the other URLs.
    card.signatures.clear();
    card
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        sync::{
            Barrier,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
    };

    use nuncio_protocol::{AgentProvider, Binding};
    use serde_json::json;

    use super::*;

    fn base(url: &str) -> PublicBase {
        PublicBase::parse(url).unwrap()
    }

    fn cards(change: impl FnOnce(&mut AgentCard, &mut BindOptions)) -> Cards {
        let mut card =
            AgentCard::new("a", "b").reached_at(Binding::JsonRpc, "http://127.0.0.1:2602/agents/a");
        let mut options =
            BindOptions { card_base: Some(base("http://127.0.0.1:2602")), ..BindOptions::default() };
        change(&mut card, &mut options);
        Cards::new(&card, &options).unwrap()
    }

    #[test]
    fn a_base_is_an_address_and_nothing_more() {
        for (url, expected) in [
            ("http://localhost", Some("http://localhost")),
            ("https://a.example/", Some("https://a.example")),
            ("https://[::1]:8443/x/y/", Some("https://[::1]:8443/x/y")),
            ("ftp://a.example", None),
            ("a.example", None),
            ("/x", None),
            ("", None),
            ("https://user@a.example", None),
            ("https://a.example?x", None),
            ("https://a.example#x", None),
            ("https://a b.example", None),
        ] {
            assert_eq!(PublicBase::parse(url).as_ref().map(PublicBase::as_str), expected, "{url:?}");
        }
    }

    #[test]
    fn our_own_addresses_move_and_those_of_others_stay() {
        let (root, below) = ("https://agents.example.com", "https://agents.example.com/hub");
        for (own, url, public, expected) in [
            ("http://h:1", "http://h:1", below, Some(below)),
            ("http://h:1", "http://h:1/agents/a", below, Some("https://agents.example.com/hub/agents/a")),
            ("http://h:1/x", "http://h:1/x/agents/a", below, Some("https://agents.example.com/hub/agents/a")),
            ("http://h:1", "http://h:1/agents/a", root, Some("https://agents.example.com/agents/a")),
            // gRPC has no scheme and no path, and cannot be reached below one.
            ("http://h:1", "h:1", root, Some("agents.example.com:443")),
            ("http://h", "h:80", root, Some("agents.example.com:443")),
            ("https://[::1]", "[::1]:443", root, Some("agents.example.com:443")),
            ("http://h:1", "h:1", "http://[::1]:9", Some("[::1]:9")),
            ("http://h:1", "h:1", below, None),
            ("http://h:1", "h:10", root, Some("h:10")),
            ("http://h:1", "h:10", below, Some("h:10")),
            ("http://h:1", "http://h:10/agents/a", below, Some("http://h:10/agents/a")),
            ("http://h:1", "https://h:1/agents/a", below, Some("https://h:1/agents/a")),
            ("http://h:1", "http://elsewhere/agents/a", below, Some("http://elsewhere/agents/a")),
        ] {
            let cards = cards(|_, options| options.card_base = Some(base(own)));
            let mut card = AgentCard::new("a", "b").reached_at(Binding::Grpc, url);
            card.provider = Some(AgentProvider { url: url.to_owned(), ..AgentProvider::default() });
            let seen = cards.present(&card, Some(&base(public))).unwrap();
            let urls: HashSet<_> =
                seen.supported_interfaces.iter().map(|interface| interface.url.as_str()).collect();
            assert_eq!(urls, expected.into_iter().collect(), "{url} of {own} at {public}");
            if let Some(expected) = expected {
                assert_eq!(seen.provider.unwrap().url, expected);
            }
            let same = cards.present(&card, Some(&base(own))).unwrap();
            assert_eq!((same, cards.present(&card, None).unwrap()), (card.clone(), card));
        }
    }

    #[test]
    fn a_card_is_signed_for_the_base_it_is_shown_under() {
        let signer = CardSigner::new(|json, base| {
            let protected = format!("{} {}", base.unwrap(), json["supportedInterfaces"][0]["url"]);
            json["signatures"] = json!([{ "protected": protected, "signature": "s" }]);
            Ok(())
        });
        let cards = cards(|_, options| options.card_signer = Some(signer));
        let elsewhere = base("https://a.example");
        for (base, expected) in [
            (None, "http://127.0.0.1:2602 \"http://127.0.0.1:2602/agents/a\""),
            (Some(&elsewhere), "https://a.example \"https://a.example/agents/a\""),
        ] {
            let card = cards.present(&cards.card, base).unwrap();
            assert_eq!(card.signatures[0].protected, expected);
        }
    }

    /// A caller that makes a proxy forward invented host names costs some work, but no memory.
    #[test]
    fn documents_are_kept_and_bounded() {
        static SIGNED: AtomicUsize = AtomicUsize::new(0);
        let signer = CardSigner::new(|_, _| {
            SIGNED.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let cards = cards(|_, options| options.card_signer = Some(signer));
        let bases: Vec<_> = (0..=MAX_BASES).map(|n| base(&format!("https://h{n}.example"))).collect();
        for base in bases.iter().chain(&bases[1..]) {
            cards.document(Some(base)).unwrap();
        }
        assert_eq!(SIGNED.load(Ordering::Relaxed), 1 + bases.len(), "the own one, and each once");
        assert_eq!(cards.others.lock().len(), MAX_BASES);
        cards.document(Some(&bases[0])).unwrap();
        assert_eq!(SIGNED.load(Ordering::Relaxed), 2 + bases.len(), "the oldest was forgotten");
    }

    #[test]
    fn who_asks_at_once_gets_the_same_document() {
        let both_sign = Barrier::new(2);
        let signer = CardSigner::new(move |_, base| {
            if base.is_some_and(|base| base.as_str() == "https://a.example") {
                both_sign.wait();
            }
            Ok(())
        });
        let cards = cards(|_, options| options.card_signer = Some(signer));
        let ask = || cards.document(Some(&base("https://a.example"))).unwrap();
        let (one, other) = thread::scope(|scope| {
            let other = scope.spawn(ask);
            (ask(), other.join().unwrap())
        });
        assert!(Arc::ptr_eq(&one, &other));
        assert_eq!(cards.others.lock().len(), 1);
    }
}
