//! The card of a remote agent: fetched, stored for times when the agent is down, and rebuilt as the hub's
//! card.
//!
//! Description, skills and extensions are the agent's. Interfaces and security schemes are the hub's. The
//! hub signs the card that it serves, so the agent's signatures are removed; the original card stays
//! available.

use std::sync::Arc;

use anyhow::Context as _;
use nuncio_client::FetchedCard;
use nuncio_protocol::{AgentCapabilities, AgentCard, Error, ErrorKind, RESUME_EXTENSION, Result};
use nuncio_server::store::{PutRecord, Records};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use super::Link;
use crate::{
    agent_urls::AgentUrls, agents::Label, clock, config::CardSource, identity::retain_schemes_of_skills,
};

/// The kind of the records with the last good cards.
const KIND: &str = "card";

/// A stored card.
#[derive(Serialize, Deserialize)]
struct StoredCard {
    url: String,
    card: Value,
}

/// Fetches the card from its configured source. While the agent is up, the HTTP caching of the card is
/// respected.
pub(in crate::agents) async fn fetch(link: &Link) -> Result<Arc<FetchedCard>> {
    let (egress, credentials, settings) = (&link.egress, &link.credentials, &link.settings);
    let fresh = nuncio_client::CardCache::new();
    let cards = if link.probe.is_up() { &link.cards } else { &fresh };
    let fetching = async {
        match &settings.card {
            None => cards.discover(egress, &settings.url, credentials).await,
            Some(CardSource::Url(url)) => cards.fetch(egress, url, credentials).await,
            Some(CardSource::File(file)) => {
                let text = super::read("card", file)
                    .map_err(|error| Error::new(ErrorKind::InvalidAgentResponse, format!("{error:#}")))?;
                FetchedCard::read(&settings.url, &text).map(Arc::new)
            }
        }
    };
    match tokio::time::timeout(settings.timeout, fetching).await {
        Ok(fetched) => fetched,
        Err(_) => Err(Error::new(ErrorKind::DeadlineExceeded, "the request for the card timed out")),
    }
}

/// Stores a good card, for times when none can be fetched.
pub(in crate::agents) async fn keep(
    store: &dyn Records,
    agent: &str,
    card: &FetchedCard,
) -> anyhow::Result<()> {
    let kept = StoredCard { url: card.url.to_string(), card: card.json.clone() };
    let put = PutRecord {
        kind: KIND.into(),
        key: agent.into(),
        value: serde_json::to_vec(&kept)?.into(),
        at: clock::now(),
        expect: nuncio_server::store::Expect::Anything,
    };
    store.put_records(vec![put]).await?;
    Ok(())
}

/// The last good card, if there is one.
pub(in crate::agents) async fn kept(
    store: &dyn Records,
    agent: &str,
) -> anyhow::Result<Option<Arc<FetchedCard>>> {
    let Some(record) = store.record(KIND, agent).await? else { return Ok(None) };
    let kept: StoredCard = serde_json::from_slice(&record.value).context("a stored card cannot be read")?;
    let card = FetchedCard::read(&Url::parse(&kept.url)?, kept.card.to_string().as_bytes())?;
    Ok(Some(Arc::new(card)))
}

/// Builds the hub's card of an agent from the agent's own card.
pub(crate) fn present(name: &str, theirs: &AgentCard, label: &Label, urls: &AgentUrls) -> AgentCard {
    let mut card = AgentCard {
        supported_interfaces: urls.interfaces(name),
        capabilities: capabilities(&theirs.capabilities),
        // The hub's card declares the authentication of the hub.
        security_requirements: Vec::new(),
        signatures: Vec::new(),
        ..theirs.clone()
    };
    if card.default_input_modes.is_empty() {
        card.default_input_modes = vec!["*/*".to_owned()];
    }
    if card.default_output_modes.is_empty() {
        card.default_output_modes = vec!["*/*".to_owned()];
    }
    let mut card = labelled(card, name, label);
    retain_schemes_of_skills(&mut card);
    card
}

/// The hub's card of an agent that was not reached yet.
pub(in crate::agents) fn provisional(name: &str, label: &Label, urls: &AgentUrls) -> AgentCard {
    let why = "This agent has not been reached yet. Its skills are listed here once it has.";
    let mut card = AgentCard::new(name, why);
    card.supported_interfaces = urls.interfaces(name);
    card.capabilities = capabilities(&AgentCapabilities::default());
    card.default_input_modes = vec!["*/*".to_owned()];
    card.default_output_modes = vec!["*/*".to_owned()];
    labelled(card, name, label)
}

/// The capabilities that the hub provides for every agent; extensions are the agent's. Push notifications
/// and resumable streams are added by the code that provides them.
fn capabilities(theirs: &AgentCapabilities) -> AgentCapabilities {
    let extensions = theirs.extensions.iter().filter(|extension| extension.uri != RESUME_EXTENSION);
    AgentCapabilities {
        streaming: Some(true),
        push_notifications: Some(false),
        extensions: extensions.cloned().collect(),
        extended_agent_card: None,
        state_transition_history: theirs.state_transition_history,
    }
}

fn labelled(mut card: AgentCard, name: &str, label: &Label) -> AgentCard {
    label.put_on(&mut card);
    if card.name.is_empty() {
        name.clone_into(&mut card.name);
    }
    card
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::SKILL_SCHEMAS_EXTENSION;
    use nuncio_server::store::MemoryStore;
    use serde_json::json;

    use super::*;
    use crate::config::{self, AgentOrigin};

    fn urls() -> AgentUrls {
        AgentUrls::new(&Url::parse("http://hub.example").unwrap(), None)
    }

    fn theirs() -> Value {
        json!({
            "name": "Billing", "description": "Knows invoices.", "version": "7",
            "supportedInterfaces": [
                {"url": "https://billing.internal/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "provider": {"url": "https://acme.example", "organization": "Acme"},
            "iconUrl": "https://acme.example/i.png", "documentationUrl": "https://acme.example/docs",
            "capabilities": {"streaming": false, "extendedAgentCard": true, "extensions": [
                {"uri": "urn:acme:x", "required": true}, {"uri": RESUME_EXTENSION}]},
            "securitySchemes": {"k": {"apiKeySecurityScheme": {"location": "header", "name": "x-key"}},
                "other": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
            "securityRequirements": [{"schemes": {"k": {"list": []}}}],
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "s", "name": "S", "description": "d", "tags": ["a"],
                "securityRequirements": [{"schemes": {"k": {"list": []}}}]}],
            "signatures": [{"protected": "e30", "signature": "AA"}],
        })
    }

    #[test]
    fn our_card_says_what_the_agent_is_and_how_the_hub_is_reached() {
        let card: AgentCard = serde_json::from_value(theirs()).unwrap();
        let label = Label { tags: vec!["finance".to_owned(), "a".to_owned()], ..Label::default() };
        let ours = serde_json::to_value(present("billing", &card, &label, &urls())).unwrap();
        let expected = json!({
            "name": "Billing", "description": "Knows invoices.", "version": "7",
            "supportedInterfaces": urls().interfaces("billing"),
            "provider": {"url": "https://acme.example", "organization": "Acme"},
            "iconUrl": "https://acme.example/i.png", "documentationUrl": "https://acme.example/docs",
            "capabilities": {"streaming": true, "pushNotifications": false, "extensions": [
                {"uri": "urn:acme:x", "required": true}]},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "securitySchemes": {"k": {"apiKeySecurityScheme": {"location": "header", "name": "x-key"}}},
            "skills": [{"id": "s", "name": "S", "description": "d", "tags": ["a", "finance"],
                "securityRequirements": [{"schemes": {"k": {}}}]}],
        });
        assert_eq!(ours, expected);
        assert!(!ours.to_string().contains("billing.internal"), "inner addresses stay inside");
    }

    /// Schemes of skills that are not shown are not shown either.
    #[test]
    fn the_operators_skills_take_the_place_of_the_agents() {
        let desired = |skills: Vec<config::Skill>| config::Agent {
            skills,
            tags: vec!["finance".to_owned()],
            ..config::Agent::new("billing".parse().unwrap(), config::Demo::Echo.into(), AgentOrigin::File)
        };
        let skill = config::Skill {
            id: "pay".to_owned(),
            name: "Pay".to_owned(),
            description: "Pays.".to_owned(),
            tags: Vec::new(),
            examples: vec!["pay 7".to_owned()],
            input_modes: vec!["application/json".to_owned()],
            output_modes: Vec::new(),
            input_schema: json!({ "type": "object" }).as_object().unwrap().clone(),
        };
        let mut theirs: AgentCard = serde_json::from_value(theirs()).unwrap();
        let own =
            json!({ "uri": SKILL_SCHEMAS_EXTENSION, "params": { "skills": { "s": { "inputSchema": {} } } } });
        theirs.capabilities.extensions.push(serde_json::from_value(own.clone()).unwrap());
        let show = |desired| {
            serde_json::to_value(present("billing", &theirs, &Label::of(&desired), &urls())).unwrap()
        };
        let kept = show(desired(Vec::new()));
        assert_eq!(kept["capabilities"]["extensions"][1], own, "those of its skills pass");
        let ours = show(desired(vec![skill]));
        assert_eq!(
            ours["skills"],
            json!([{"id": "pay", "name": "Pay", "description": "Pays.", "tags": ["finance"],
                "examples": ["pay 7"], "inputModes": ["application/json"]}])
        );
        assert_eq!(ours.get("securitySchemes"), None);
        let [_, schemas] = &ours["capabilities"]["extensions"].as_array().unwrap()[..] else {
            panic!("{ours}")
        };
        let params = json!({ "skills": { "pay": { "inputSchema": { "type": "object" } } } });
        assert_eq!((&schemas["uri"], &schemas["params"]), (&json!(SKILL_SCHEMAS_EXTENSION), &params));
    }

    #[test]
    fn the_operator_has_the_last_word_and_an_agent_without_a_card_says_so() {
        let label = Label {
            title: Some("Bills".to_owned()),
            description: Some("Ours.".to_owned()),
            ..Label::default()
        };
        let card: AgentCard = serde_json::from_value(theirs()).unwrap();
        let ours = present("billing", &card, &label, &urls());
        assert_eq!((&*ours.name, &*ours.description), ("Bills", "Ours."));
        let none = provisional("billing", &Label::default(), &urls());
        assert_eq!(none.name, "billing");
        assert!(none.description.contains("not been reached") && none.accepts_input("image/png"));
        assert_eq!(none.capabilities.streaming, Some(true));
    }

    #[tokio::test]
    async fn the_last_good_card_is_kept() {
        let store = MemoryStore::default();
        assert_eq!(kept(&store, "billing").await.unwrap(), None);
        let url = Url::parse("https://billing.internal/card").unwrap();
        let card = FetchedCard::read(&url, theirs().to_string().as_bytes()).unwrap();
        keep(&store, "billing", &card).await.unwrap();
        assert_eq!(*kept(&store, "billing").await.unwrap().unwrap(), card);
        assert_eq!(kept(&store, "other").await.unwrap(), None);
    }
}
