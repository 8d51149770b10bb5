//! Agent cards between the versions (decision 0005; traps T-14, T-15, T-16, T-24; REQ-208).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use nuncio_protocol::{
    AgentCard, ErrorKind,
    v03::{decode_card, downgrade_card, union_card, upgrade_card},
};
use serde_json::{Value, json};

/// A v0.3 card with everything that has a place in v1.0.
fn old_card() -> Value {
    json!({
        "protocolVersion": "0.3.0",
        "name": "Mirror",
        "description": "Says it back",
        "url": "https://mirror.example/a2a",
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [
            {"url": "https://mirror.example/a2a", "transport": "JSONRPC"},
            {"url": "https://mirror.example/rest", "transport": "HTTP+JSON"},
        ],
        "provider": {"organization": "Mirrors", "url": "https://mirror.example"},
        "version": "1.2.3",
        "iconUrl": "https://mirror.example/icon.png",
        "documentationUrl": "https://mirror.example/docs",
        "capabilities": {
            "streaming": true, "pushNotifications": false,
            "extensions": [{"uri": "https://ext.example/x", "required": true, "params": {"a": 1}}],
        },
        "supportsAuthenticatedExtendedCard": true,
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "header", "name": "X-Key", "description": "ask us"},
            "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            "oauth": {"type": "oauth2", "oauth2MetadataUrl": "https://id.example/meta", "flows": {
                "clientCredentials": {"tokenUrl": "https://id.example/token", "scopes": {"read": "to read"}}}},
            "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://id.example/.well-known"},
            "cert": {"type": "mutualTLS"},
        },
        "security": [{"oauth": ["read"]}, {"key": [], "cert": []}],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["application/json"],
        "skills": [{
            "id": "mirror", "name": "Mirror", "description": "Turn by turn", "tags": ["relay"],
            "examples": ["hi"], "inputModes": ["text/plain"], "outputModes": ["text/plain"],
            "security": [{"bearer": []}],
        }],
    })
}

fn new_card() -> Value {
    json!({
        "name": "Mirror",
        "description": "Says it back",
        "supportedInterfaces": [
            {"url": "https://mirror.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
            {"url": "https://mirror.example/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "0.3"},
        ],
        "provider": {"organization": "Mirrors", "url": "https://mirror.example"},
        "version": "1.2.3",
        "iconUrl": "https://mirror.example/icon.png",
        "documentationUrl": "https://mirror.example/docs",
        "capabilities": {
            "streaming": true, "pushNotifications": false, "extendedAgentCard": true,
            "extensions": [{"uri": "https://ext.example/x", "required": true, "params": {"a": 1}}],
        },
        "securitySchemes": {
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key", "description": "ask us"}},
            "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer", "bearerFormat": "JWT"}},
            "oauth": {"oauth2SecurityScheme": {"oauth2MetadataUrl": "https://id.example/meta", "flows": {
                "clientCredentials": {"tokenUrl": "https://id.example/token", "scopes": {"read": "to read"}}}}},
            "oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://id.example/.well-known"}},
            "cert": {"mtlsSecurityScheme": {}},
        },
        "securityRequirements": [
            {"schemes": {"oauth": {"list": ["read"]}}},
            {"schemes": {"key": {}, "cert": {}}},
        ],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["application/json"],
        "skills": [{
            "id": "mirror", "name": "Mirror", "description": "Turn by turn", "tags": ["relay"],
            "examples": ["hi"], "inputModes": ["text/plain"], "outputModes": ["text/plain"],
            "securityRequirements": [{"schemes": {"bearer": {}}}],
        }],
    })
}

fn read(card: &Value) -> AgentCard {
    decode_card(card.to_string().as_bytes()).unwrap_or_else(|error| panic!("{card}: {error}"))
}

fn v1(card: &AgentCard) -> Value {
    serde_json::to_value(card).unwrap()
}

/// `json` with some members put in their place.
fn with(mut json: Value, members: &Value) -> Value {
    for (name, value) in members.as_object().unwrap() {
        json[name] = value.clone();
    }
    json
}

/// `json` without some members.
fn without(mut json: Value, members: &[&str]) -> Value {
    json.as_object_mut().unwrap().retain(|name, _| !members.contains(&name.as_str()));
    json
}

#[test]
fn a_card_goes_up_and_down() {
    let card = upgrade_card(old_card()).unwrap();
    assert_eq!(v1(&card), new_card());
    assert_eq!(read(&old_card()), card);
    assert_eq!(read(&new_card()), card);
    assert_eq!(downgrade_card(&card).unwrap(), old_card());
}

#[test]
fn a_union_card_is_both_cards_at_once() {
    let mut card = read(&new_card());
    card.supported_interfaces.insert(0, serde_json::from_value(json!(
        {"url": "https://mirror.example/v1", "protocolBinding": "GRPC", "tenant": "x", "protocolVersion": "1.0"}
    )).unwrap());
    card.signatures = serde_json::from_value(json!([{"protected": "p", "signature": "s"}])).unwrap();
    let union = union_card(&card);
    assert_eq!(read(&union), card, "a client of 1.0 and our own reader");
    assert_eq!(serde_json::from_value::<AgentCard>(union.clone()).unwrap(), card, "any reader of 1.0");

    // A client of 0.3 does not look at the members of 1.0, so it sees the card that goes down.
    let seen = without(union, &["supportedInterfaces", "securityRequirements", "signatures"]);
    let mut seen = with(
        seen.clone(),
        &json!({"capabilities": without(seen["capabilities"].clone(), &["extendedAgentCard"])}),
    );
    seen["skills"][0] = without(seen["skills"][0].clone(), &["securityRequirements"]);
    for scheme in seen["securitySchemes"].as_object_mut().unwrap().values_mut() {
        scheme.as_object_mut().unwrap().retain(|name, _| !name.ends_with("SecurityScheme"));
    }
    assert_eq!(seen, old_card());
}

#[test]
fn without_an_interface_of_0_3_there_is_nothing_to_go_down_to() {
    let interfaces =
        json!([{"url": "https://a.example", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]);
    let card = read(&with(new_card(), &json!({"supportedInterfaces": interfaces})));
    assert_eq!(downgrade_card(&card).unwrap_err().kind(), ErrorKind::VersionNotSupported);
    assert_eq!(union_card(&card), v1(&card), "the plain v1.0 card");
}

#[test]
fn signatures_do_not_survive_a_rewrite() {
    // REQ-208
    let signatures = json!([{"protected": "p", "signature": "s"}]);
    let card = upgrade_card(with(old_card(), &json!({"signatures": signatures}))).unwrap();
    assert!(card.signatures.is_empty());
    let signed = read(&with(new_card(), &json!({"signatures": signatures})));
    assert_eq!(signed.signatures.len(), 1, "nothing was rewritten");
    assert_eq!(downgrade_card(&signed).unwrap(), old_card());
}

#[test]
fn interfaces_of_sloppy_cards() {
    let addresses = |card: &Value| -> Vec<String> {
        let card = read(card);
        let interfaces = card.supported_interfaces.iter();
        interfaces.map(|i| format!("{} {} {}", i.protocol_version, i.protocol_binding, i.url)).collect()
    };
    for (card, expected) in [
        // `preferredTransport` is REQUIRED by the text and optional in the schema.
        (json!({"url": "u"}), &["0.3 JSONRPC u"][..]),
        (json!({"url": "u", "preferredTransport": "GRPC", "protocolVersion": "0.3.0"}), &["0.3 GRPC u"]),
        (json!({"url": "u", "preferred_transport": "GRPC"}), &["0.3 GRPC u"]),
        // Seeds declare other versions on cards of this shape; what is behind them speaks 0.3.
        (json!({"url": "u", "protocolVersion": "1.0"}), &["0.3 JSONRPC u"]),
        (json!({"url": "u", "protocolVersion": "0.2.6"}), &["0.3 JSONRPC u"]),
        (
            json!({"url": "u", "additionalInterfaces": [
                {"url": "u", "transport": "JSONRPC"}, {"url": "u", "transport": "HTTP+JSON"}, {"transport": "GRPC"}]}),
            &["0.3 JSONRPC u", "0.3 HTTP+JSON u"],
        ),
        // A card of both that names its old address in the old members only.
        (
            json!({"url": "u", "protocolVersion": "0.3.0",
                "supportedInterfaces": [{"url": "n", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]}),
            &["1.0 JSONRPC n", "0.3 JSONRPC u"],
        ),
        // A v1.0 card with a stray `url` is a v1.0 card.
        (
            json!({"url": "u", "supportedInterfaces": [
                {"url": "n", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]}),
            &["1.0 JSONRPC n"],
        ),
    ] {
        assert_eq!(addresses(&card), expected, "{card}");
    }
}

#[test]
fn what_is_no_card_is_refused() {
    for json in
        ["", "[]", "null", "{}", r#"{"name":"x"}"#, r#"{"url":""}"#, r#"{"url":"u","skills":5}"#, "<html>"]
    {
        let error = decode_card(json.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse, "{json}");
    }
    let error = decode_card(br#"{"url":"u","skills":[{"id":5}]}"#).unwrap_err();
    assert!(error.message().contains("skills[0].id"), "{error}");
}

#[test]
fn the_flag_of_the_extended_card_under_all_its_names() {
    // Trap T-24
    for members in [
        json!({"supportsAuthenticatedExtendedCard": true}),
        json!({"supports_authenticated_extended_card": true, "capabilities": null}),
        json!({"supportsExtendedAgentCard": true, "capabilities": {}}),
        json!({"capabilities": {"extendedAgentCard": true}}),
        json!({"capabilities": {"extendedAgentCard": true}, "supportsAuthenticatedExtendedCard": false}),
    ] {
        for card in [json!({"url": "u"}), json!({"supportedInterfaces": []})] {
            let card = with(card, &members);
            assert_eq!(read(&card).capabilities.extended_agent_card, Some(true), "{card}");
        }
    }
    assert_eq!(read(&json!({"url": "u"})).capabilities.extended_agent_card, None);
}

#[test]
fn security_is_read_in_both_forms_on_both_cards() {
    // Trap T-16: the samples of v1.0.0 show the v0.3 form, and v0.3's own proto has the other one.
    let old = json!({
        "securitySchemes": old_card()["securitySchemes"], "security": old_card()["security"],
        "skills": old_card()["skills"],
    });
    let new = json!({
        "securitySchemes": new_card()["securitySchemes"], "securityRequirements": new_card()["securityRequirements"],
        "skills": new_card()["skills"],
    });
    let proto = json!({
        "security_schemes": new_card()["securitySchemes"], "security": new_card()["securityRequirements"],
        "skills": new_card()["skills"],
    });
    let mixed = json!({
        "securitySchemes": old_card()["securitySchemes"], "securityRequirements": old_card()["security"],
        "skills": new_card()["skills"],
    });
    let expected = read(&new_card());
    for base in [json!({"url": "u"}), json!({"supportedInterfaces": []})] {
        for members in [&old, &new, &proto, &mixed] {
            let card = read(&with(base.clone(), members));
            assert_eq!(card.security_schemes, expected.security_schemes, "{members}");
            assert_eq!(card.security_requirements, expected.security_requirements, "{members}");
            assert_eq!(card.skills, expected.skills, "{members}");
        }
    }
}

#[test]
fn several_flows_become_several_schemes() {
    // Trap T-15. Whatever asked for the scheme is met by any of them.
    let flow = json!({"tokenUrl": "https://id.example/token", "scopes": {}});
    let card = read(&json!({
        "url": "u",
        "securitySchemes": {
            "o": {"type": "oauth2", "description": "d", "flows": {"password": flow, "clientCredentials": flow}},
            "o-password": {"type": "http", "scheme": "basic"},
            "odd": {"type": "smoke-signal"},
        },
        "security": [{"o": ["read"], "o-password": []}, {"o-password": []}],
        "skills": [{"id": "s", "security": [{"o": []}]}],
    }));
    assert_eq!(
        v1(&card)["securitySchemes"],
        json!({
            "o": {"oauth2SecurityScheme": {"description": "d", "flows": {"clientCredentials": flow}}},
            "o-password-": {"oauth2SecurityScheme": {"description": "d", "flows": {"password": {"tokenUrl": "https://id.example/token"}}}},
            "o-password": {"httpAuthSecurityScheme": {"scheme": "basic"}},
        })
    );
    assert_eq!(
        v1(&card)["securityRequirements"],
        json!([
            {"schemes": {"o": {"list": ["read"]}, "o-password": {}}},
            {"schemes": {"o-password-": {"list": ["read"]}, "o-password": {}}},
            {"schemes": {"o-password": {}}},
        ])
    );
    assert_eq!(
        v1(&card)["skills"][0]["securityRequirements"],
        json!([{"schemes": {"o": {}}}, {"schemes": {"o-password-": {}}}])
    );
}

#[test]
fn what_a_card_loses_on_the_way_down() {
    // The loss table in docs/protocol-notes.md
    let schemes = json!({
        "pkce": {"oauth2SecurityScheme": {"flows": {"authorizationCode": {
            "authorizationUrl": "a", "tokenUrl": "t", "refreshUrl": "r", "scopes": {}, "pkceRequired": true}}}},
        "device": {"oauth2SecurityScheme": {"flows": {"deviceCode": {
            "deviceAuthorizationUrl": "d", "tokenUrl": "t", "scopes": {}}}}},
        "implicit": {"oauth2SecurityScheme": {"flows": {"implicit": {"authorizationUrl": "a"}}}},
        "password": {"oauth2SecurityScheme": {"flows": {"password": {"tokenUrl": "t"}}}},
    });
    let interfaces = json!([
        {"url": "n", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "o", "protocolBinding": "GRPC", "tenant": "x", "protocolVersion": "0.3.0"},
    ]);
    let card = read(&json!({"supportedInterfaces": interfaces, "securitySchemes": schemes}));
    let down = downgrade_card(&card).unwrap();
    assert_eq!(down["url"], "o");
    assert_eq!(down["preferredTransport"], "GRPC");
    assert_eq!(
        down["additionalInterfaces"],
        json!([{"url": "o", "transport": "GRPC"}]),
        "1.0 and tenant are gone"
    );
    assert_eq!(
        down["securitySchemes"],
        json!({
            "pkce": {"type": "oauth2", "flows": {"authorizationCode": {
                "authorizationUrl": "a", "tokenUrl": "t", "refreshUrl": "r", "scopes": {}}}},
            "device": {"type": "oauth2", "flows": {}},
            "implicit": {"type": "oauth2", "flows": {"implicit": {"authorizationUrl": "a", "scopes": {}}}},
            "password": {"type": "oauth2", "flows": {"password": {"tokenUrl": "t", "scopes": {}}}},
        })
    );
    let up =
        upgrade_card(with(old_card(), &json!({"capabilities": {"stateTransitionHistory": true}}))).unwrap();
    assert_eq!(v1(&up)["capabilities"], json!({"extendedAgentCard": true}), "and on the way up");
}

#[test]
fn a_history_of_states_is_shown_to_whoever_reads_the_old_version() {
    for told in [Some(true), Some(false), None] {
        let mut capabilities = json!({});
        if let Some(told) = told {
            capabilities["stateTransitionHistory"] = told.into();
        }
        let up = upgrade_card(with(old_card(), &json!({ "capabilities": capabilities }))).unwrap();
        for card in [union_card(&up), downgrade_card(&up).unwrap()] {
            assert_eq!(card["capabilities"]["stateTransitionHistory"].as_bool(), told, "{card}");
            let again = read(&card);
            assert_eq!(again.capabilities.state_transition_history, told, "as another hub reads it");
        }
    }
}

#[test]
fn an_interface_without_an_address_reaches_nobody() {
    let interface = |url: &str| json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"});
    let card = read(&json!({"supportedInterfaces": [interface(""), interface("o")]}));
    let down = downgrade_card(&card).unwrap();
    assert_eq!(down["url"], "o", "the first that can be called");
    assert_eq!(down["additionalInterfaces"], json!([{"url": "o", "transport": "JSONRPC"}]));

    let card = read(&json!({"supportedInterfaces": [interface("")]}));
    assert_eq!(downgrade_card(&card).unwrap_err().kind(), ErrorKind::VersionNotSupported);
}

#[test]
fn an_empty_transport_is_none() {
    let card = read(&with(old_card(), &json!({"preferredTransport": "", "additionalInterfaces": []})));
    assert_eq!(card.supported_interfaces[0].protocol_binding, "JSONRPC");
}
