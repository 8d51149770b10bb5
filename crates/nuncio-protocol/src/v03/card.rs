//! Agent cards of both versions, and of both in one document (decision 0005). Cards are decoded once and
//! cached, so JSON trees are fast enough here.

mod security;

use serde_json::{Map, Value, json};

use crate::{AgentCard, AgentInterface, Binding, Error, ErrorKind, Result, Version, json::decode};

type JsonObject = Map<String, Value>;

/// The protocol version in v0.3 cards.
const PROTOCOL_VERSION: &str = "0.3.0";

/// Decodes a card of v1.0, of v0.3, or of both at once. A card without `supportedInterfaces` and with `url`
/// is one of v0.3.
///
/// # Errors
/// `InvalidAgentResponse` with the problem.
pub fn decode_card(json: &[u8]) -> Result<AgentCard> {
    let card: JsonObject = serde_json::from_slice(json).map_err(|error| invalid(&error.to_string()))?;
    if member(&card, &["supportedInterfaces", "supported_interfaces"]).is_some_and(Value::is_array) {
        return decode_v1(card);
    }
    upgrade_card(Value::Object(card))
}

/// Upgrades a v0.3 card. Signatures do not survive a rewrite (REQ-208).
///
/// # Errors
/// `InvalidAgentResponse` with the problem.
pub fn upgrade_card(card: Value) -> Result<AgentCard> {
    let Value::Object(mut card) = card else { return Err(invalid("expected an object")) };
    let interfaces = interfaces_of_v03(&card);
    if interfaces.is_empty() {
        return Err(invalid("neither supportedInterfaces nor url"));
    }
    card.insert("supportedInterfaces".to_owned(), json!(interfaces));
    card.remove("signatures");
    read(card)
}

/// Decodes a card with v1.0 interfaces.
fn decode_v1(card: JsonObject) -> Result<AgentCard> {
    let legacy = interfaces_of_v03(&card);
    let is_union = member(&card, &["protocolVersion", "protocol_version"])
        .and_then(Value::as_str)
        .is_some_and(|version| Version::parse(version) == Some(Version::V0_3));
    let mut card = read(card)?;
    // A card of both versions may have its v0.3 interfaces in the v0.3 members only.
    for interface in legacy.into_iter().filter(|_| is_union) {
        let is_known = card.supported_interfaces.iter().any(|known| {
            known.url == interface.url
                && known.protocol_binding == interface.protocol_binding
                && known.version() == interface.version()
        });
        if !is_known {
            card.supported_interfaces.push(interface);
        }
    }
    Ok(card)
}

/// Decodes a card with v1.0 interfaces; all other members may be of either version.
fn read(mut card: JsonObject) -> Result<AgentCard> {
    move_extended_card_flag(&mut card);
    security::upgrade(&mut card);
    decode(ErrorKind::InvalidAgentResponse, &Value::Object(card).to_string())
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse, format!("not an agent card: {why}"))
}

fn member<'a>(object: &'a JsonObject, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| object.get(*name)).filter(|value| !value.is_null())
}

/// `url` and `preferredTransport` first, then the additional ones without duplicates. All are 0.3,
/// independent of the card's version: no other supported version has cards of this shape.
fn interfaces_of_v03(card: &JsonObject) -> Vec<AgentInterface> {
    let interface = |object: &JsonObject, transport: &[&str]| {
        let url = object.get("url").and_then(Value::as_str).filter(|url| !url.is_empty())?;
        // REQUIRED by 03 section 5.6.1, optional in the schema.
        let binding = member(object, transport).and_then(Value::as_str).filter(|binding| !binding.is_empty());
        let binding = binding.unwrap_or(Binding::JsonRpc.as_str());
        Some(AgentInterface {
            url: url.to_owned(),
            protocol_binding: binding.to_owned(),
            tenant: None,
            protocol_version: Version::V0_3.as_str().to_owned(),
        })
    };
    let additional =
        member(card, &["additionalInterfaces", "additional_interfaces"]).and_then(Value::as_array);
    let mut found = Vec::from_iter(interface(card, &["preferredTransport", "preferred_transport"]));
    for object in additional.into_iter().flatten().filter_map(Value::as_object) {
        found.extend(interface(object, &["transport"]).filter(|interface| !found.contains(interface)));
    }
    found
}

/// Moves the flag to its v1.0 member: it has had three names and two locations (trap T-24).
fn move_extended_card_flag(card: &mut JsonObject) {
    let names = [
        "supportsAuthenticatedExtendedCard",
        "supports_authenticated_extended_card",
        "supportsExtendedAgentCard",
        "supports_extended_agent_card",
    ];
    let Some(flag) = member(card, &names).and_then(Value::as_bool) else { return };
    let capabilities = card.entry("capabilities").or_insert_with(|| json!({}));
    if capabilities.is_null() {
        *capabilities = json!({});
    }
    if let Value::Object(capabilities) = capabilities
        && member(capabilities, &["extendedAgentCard", "extended_agent_card"]).is_none()
    {
        capabilities.insert("extendedAgentCard".to_owned(), flag.into());
    }
}

/// Downgrades a card to v0.3. Signatures do not survive a rewrite (REQ-208); docs/protocol-notes.md lists
/// the other losses.
///
/// # Errors
/// `VersionNotSupported` if the agent has no interface of v0.3.
pub fn downgrade_card(card: &AgentCard) -> Result<Value> {
    let mut object = to_object(card);
    if !add_v03(&mut object, card) {
        return Err(Error::new(ErrorKind::VersionNotSupported, "the agent has no interface of version 0.3"));
    }
    for name in ["supportedInterfaces", "securityRequirements", "signatures"] {
        object.remove(name);
    }
    if let Some(Value::Object(capabilities)) = object.get_mut("capabilities") {
        capabilities.remove("extendedAgentCard");
    }
    for skill in objects_mut(object.get_mut("skills")) {
        skill.remove("securityRequirements");
    }
    if let Some(Value::Object(schemes)) = object.get_mut("securitySchemes") {
        for scheme in schemes.values_mut().filter_map(Value::as_object_mut) {
            security::remove_v1(scheme);
        }
    }
    Ok(Value::Object(object))
}

/// The v1.0 card with the members of v0.3 added, readable by clients of both versions. Without an interface
/// of version 0.3 it is the plain v1.0 card.
#[must_use]
pub fn union_card(card: &AgentCard) -> Value {
    let mut object = to_object(card);
    add_v03(&mut object, card);
    Value::Object(object)
}

fn to_object(card: &AgentCard) -> JsonObject {
    match serde_json::to_value(card) {
        Ok(Value::Object(object)) => object,
        // A card serializes to an object: it has only string keys and finite numbers.
        Ok(_) | Err(_) => JsonObject::new(),
    }
}

fn objects_mut(list: Option<&mut Value>) -> impl Iterator<Item = &mut JsonObject> {
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The interfaces for v0.3 clients; the first is the preferred one.
pub(super) fn interfaces_for_v03(card: &AgentCard) -> impl Iterator<Item = &AgentInterface> {
    let is_reached =
        |interface: &&AgentInterface| interface.version() == Some(Version::V0_3) && !interface.url.is_empty();
    card.supported_interfaces.iter().filter(is_reached)
}

/// Adds the members of v0.3; false if the card has no interface of that version.
fn add_v03(object: &mut JsonObject, card: &AgentCard) -> bool {
    let legacy = || interfaces_for_v03(card);
    let Some(main) = legacy().next() else { return false };
    // The main interface is repeated among the additional ones (03 section 5.6.2, SHOULD).
    let additional: Vec<Value> = legacy()
        .map(|interface| json!({ "url": interface.url, "transport": interface.protocol_binding }))
        .collect();
    object.insert("protocolVersion".to_owned(), PROTOCOL_VERSION.into());
    object.insert("url".to_owned(), main.url.as_str().into());
    object.insert("preferredTransport".to_owned(), main.protocol_binding.as_str().into());
    object.insert("additionalInterfaces".to_owned(), additional.into());
    if let Some(flag) = card.capabilities.extended_agent_card {
        object.insert("supportsAuthenticatedExtendedCard".to_owned(), flag.into());
    }
    if let (Some(flag), Some(Value::Object(capabilities))) =
        (card.capabilities.state_transition_history, object.get_mut("capabilities"))
    {
        capabilities.insert("stateTransitionHistory".to_owned(), flag.into());
    }
    security::add_requirements(object, &card.security_requirements);
    for (object, skill) in objects_mut(object.get_mut("skills")).zip(&card.skills) {
        security::add_requirements(object, &skill.security_requirements);
    }
    if let Some(Value::Object(schemes)) = object.get_mut("securitySchemes") {
        for (name, scheme) in &card.security_schemes {
            if let Some(Value::Object(object)) = schemes.get_mut(name) {
                security::add_scheme(object, scheme);
            }
        }
    }
    true
}
