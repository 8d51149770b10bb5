//! The list of agents in standard formats: AI Catalog, and API catalog (RFC 9727).

use serde_json::{Value, json};

use super::DirectoryEntry;

/// The media type of an AI Catalog.
pub(super) const AI_CATALOG: &str = "application/ai-catalog+json";
/// The media type of an API catalog.
pub(super) const API_CATALOG: &str =
    r#"application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727""#;

/// An AI Catalog with the card of each agent.
pub(super) fn ai_catalog(base: &str, entries: &[DirectoryEntry]) -> Value {
    let entries: Vec<_> = entries
        .iter()
        .map(|DirectoryEntry { name, url, card, .. }| {
            let mut entry = json!({
                "identifier": url,
                "displayName": card.name,
                "mediaType": "application/a2a-agent-card+json",
                "url": card_url(url),
                "description": card.description,
                "tags": super::tags(card),
                "version": card.version,
                "metadata": { "name": name },
            });
            if let Some(provider) = &card.provider {
                entry["publisher"] =
                    json!({ "identifier": provider.url, "displayName": provider.organization });
            }
            entry
        })
        .collect();
    json!({
        "specVersion": "1.0",
        "host": { "displayName": "Nuncio", "identifier": base },
        "entries": entries,
    })
}

/// A link set (RFC 9727): each agent is an API that its card describes.
pub(super) fn api_catalog(base: &str, entries: &[DirectoryEntry]) -> Value {
    let items: Vec<_> = entries.iter().map(|entry| json!({ "href": entry.url })).collect();
    let mut linkset = vec![json!({ "anchor": format!("{base}/.well-known/api-catalog"), "item": items })];
    linkset.extend(entries.iter().map(|DirectoryEntry { url, card, .. }| {
        let mut links = json!({
            "anchor": url,
            "service-desc": [{ "href": card_url(url), "type": "application/json", "title": card.name }],
        });
        if let Some(documentation) = &card.documentation_url {
            links["service-doc"] = json!([{ "href": documentation }]);
        }
        links
    }));
    json!({ "linkset": linkset })
}

pub(super) fn card_url(url: &str) -> String {
    format!("{url}/.well-known/agent-card.json")
}
