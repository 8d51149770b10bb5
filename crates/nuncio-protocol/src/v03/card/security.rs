//! Security schemes and requirements of a card, in both versions. Schemes have a `type` in v0.3 and a
//! member per kind in v1.0; requirements are plain maps in v0.3 and wrapped ones in v1.0. The samples of
//! v1.0.0 show the v0.3 form, so both are accepted everywhere (trap T-16).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{JsonObject, member};
use crate::{OAuthFlows, SecurityRequirement, SecurityScheme};

/// The members of a scheme in v1.0.
const WRAPPERS: &[&str] = &[
    "apiKeySecurityScheme",
    "httpAuthSecurityScheme",
    "oauth2SecurityScheme",
    "openIdConnectSecurityScheme",
    "mtlsSecurityScheme",
];

/// The same in snake case, in the same order.
const SNAKE_WRAPPERS: &[&str] = &[
    "api_key_security_scheme",
    "http_auth_security_scheme",
    "oauth2_security_scheme",
    "open_id_connect_security_scheme",
    "mtls_security_scheme",
];

/// The flows of OAuth 2.0, the most useful first.
const FLOWS: &[(&str, &str)] = &[
    ("authorizationCode", "authorization_code"),
    ("clientCredentials", "client_credentials"),
    ("implicit", "implicit"),
    ("password", "password"),
    ("deviceCode", "device_code"),
];

/// The new names of a scheme that was split, by its old name.
type Splits = BTreeMap<String, Vec<String>>;

/// Upgrades the schemes and requirements of a card, and of its skills, to the form of v1.0.
pub(super) fn upgrade(card: &mut JsonObject) {
    let splits = upgrade_schemes(card);
    upgrade_requirements(card, &splits);
    for skill in super::objects_mut(card.get_mut("skills")) {
        upgrade_requirements(skill, &splits);
    }
}

fn upgrade_schemes(card: &mut JsonObject) -> Splits {
    let Some(Value::Object(schemes)) = member(card, &["securitySchemes", "security_schemes"]).cloned() else {
        return Splits::new();
    };
    let mut names: BTreeSet<String> = schemes.keys().cloned().collect();
    let mut splits = Splits::new();
    let mut upgraded = JsonObject::new();
    for (name, scheme) in schemes {
        for (i, (flow, scheme)) in upgrade_scheme(&scheme).into_iter().enumerate() {
            let own = if i == 0 { name.clone() } else { fresh_name(&mut names, &name, flow) };
            splits.entry(name.clone()).or_default().push(own.clone());
            upgraded.insert(own, scheme);
        }
    }
    card.remove("security_schemes");
    card.insert("securitySchemes".to_owned(), Value::Object(upgraded));
    splits
}

/// A new name: `{name}-{flow}`, with additional dashes until it is unique.
fn fresh_name(names: &mut BTreeSet<String>, name: &str, flow: &str) -> String {
    let mut fresh = format!("{name}-{flow}");
    while !names.insert(fresh.clone()) {
        fresh.push('-');
    }
    fresh
}

/// Upgrades a scheme to v1.0: one scheme, or one per OAuth 2.0 flow, with the name of the flow (trap T-15).
/// Empty for a kind of scheme that v1.0 does not have.
fn upgrade_scheme(scheme: &Value) -> Vec<(&'static str, Value)> {
    let Some(object) = scheme.as_object() else { return Vec::new() };
    let wrapped = WRAPPERS.iter().zip(SNAKE_WRAPPERS).find_map(|(camel, snake)| {
        member(object, &[*camel, *snake]).and_then(Value::as_object).map(|inner| (*camel, inner.clone()))
    });
    let typed = || {
        let mut inner = object.clone();
        let kind = inner.remove("type")?;
        Some(match kind.as_str()? {
            "apiKey" => {
                let location = inner.remove("in").or_else(|| inner.remove("location"));
                inner.insert("location".to_owned(), location.unwrap_or_default());
                (WRAPPERS[0], inner)
            }
            "http" => (WRAPPERS[1], inner),
            "oauth2" => (WRAPPERS[2], inner),
            "openIdConnect" => (WRAPPERS[3], inner),
            "mutualTLS" => (WRAPPERS[4], inner),
            _ => return None,
        })
    };
    match wrapped.or_else(typed) {
        Some((wrapper, inner)) if wrapper == WRAPPERS[2] => split_flows(wrapper, &inner),
        Some((wrapper, inner)) => vec![("", json!({ wrapper: inner }))],
        None => Vec::new(),
    }
}

fn split_flows(wrapper: &str, scheme: &JsonObject) -> Vec<(&'static str, Value)> {
    let Some(flows) = scheme.get("flows").and_then(Value::as_object) else { return Vec::new() };
    let one = |(camel, snake): &(&'static str, &str)| {
        let flow = member(flows, &[*camel, *snake])?;
        let mut scheme = scheme.clone();
        scheme.insert("flows".to_owned(), json!({ *camel: flow }));
        Some((*camel, json!({ wrapper: scheme })))
    };
    FLOWS.iter().filter_map(one).collect()
}

/// Upgrades `securityRequirements`, or else `security`, in either form.
fn upgrade_requirements(object: &mut JsonObject, splits: &Splits) {
    let names = ["securityRequirements", "security_requirements", "security"];
    let Some(Value::Array(list)) = member(object, &names) else { return };
    let upgraded: Vec<Value> = list
        .iter()
        .filter_map(Value::as_object)
        .flat_map(|requirement| spread(&scopes_by_scheme(requirement), splits))
        .map(|schemes| json!({ "schemes": schemes }))
        .collect();
    object.remove("security_requirements");
    object.insert("securityRequirements".to_owned(), upgraded.into());
}

/// The scopes of each scheme, from `{"schemes":{name:{"list":[…]}}}` or from `{name:[…]}`.
fn scopes_by_scheme(requirement: &JsonObject) -> Vec<(&String, Value)> {
    let wrapped = requirement.get("schemes").and_then(Value::as_object);
    let list = |scopes: &Value| match scopes {
        Value::Object(object) => object.get("list").cloned().unwrap_or_else(|| json!([])),
        Value::Array(_) => scopes.clone(),
        _ => json!([]),
    };
    wrapped.unwrap_or(requirement).iter().map(|(name, scopes)| (name, list(scopes))).collect()
}

/// One requirement for each combination of the schemes that a scheme was split into: any flow satisfies a
/// requirement of the original scheme.
fn spread(requirement: &[(&String, Value)], splits: &Splits) -> Vec<JsonObject> {
    let mut spread = vec![JsonObject::new()];
    for (name, scopes) in requirement {
        let own = vec![(*name).clone()];
        let names = splits.get(*name).unwrap_or(&own);
        spread = names
            .iter()
            .flat_map(|name| {
                spread.iter().cloned().map(move |mut schemes| {
                    schemes.insert(name.clone(), json!({ "list": scopes }));
                    schemes
                })
            })
            .collect();
    }
    spread
}

/// Adds `security`, if there are requirements.
pub(super) fn add_requirements(object: &mut JsonObject, requirements: &[SecurityRequirement]) {
    if requirements.is_empty() {
        return;
    }
    let plain = requirements.iter().map(|requirement| {
        Value::Object(
            requirement.schemes.iter().map(|(name, scopes)| (name.clone(), json!(scopes.list))).collect(),
        )
    });
    object.insert("security".to_owned(), plain.collect());
}

/// Adds the members of the v0.3 form to a scheme.
pub(super) fn add_scheme(object: &mut JsonObject, scheme: &SecurityScheme) {
    let (description, members) = match scheme {
        SecurityScheme::ApiKey(scheme) => {
            (&scheme.description, json!({ "type": "apiKey", "in": scheme.location, "name": scheme.name }))
        }
        SecurityScheme::HttpAuth(scheme) => {
            let mut members = json!({ "type": "http", "scheme": scheme.scheme });
            add_text(&mut members, "bearerFormat", &scheme.bearer_format);
            (&scheme.description, members)
        }
        SecurityScheme::OAuth2(scheme) => {
            let mut members = json!({ "type": "oauth2", "flows": downgrade_flows(&scheme.flows) });
            add_text(&mut members, "oauth2MetadataUrl", &scheme.oauth2_metadata_url);
            (&scheme.description, members)
        }
        SecurityScheme::OpenIdConnect(scheme) => {
            let members = json!({ "type": "openIdConnect", "openIdConnectUrl": scheme.open_id_connect_url });
            (&scheme.description, members)
        }
        SecurityScheme::MutualTls(scheme) => (&scheme.description, json!({ "type": "mutualTLS" })),
    };
    if let Value::Object(members) = members {
        object.extend(members);
    }
    if !description.is_empty() {
        object.insert("description".to_owned(), description.as_str().into());
    }
}

/// Removes the v1.0 members of a scheme.
pub(super) fn remove_v1(scheme: &mut JsonObject) {
    scheme.retain(|name, _| !WRAPPERS.contains(&name.as_str()));
}

fn add_text(object: &mut Value, name: &str, text: &str) {
    if !text.is_empty() {
        object[name] = text.into();
    }
}

/// Downgrades the flows. v0.3 has neither the device code nor required PKCE; both are lost.
fn downgrade_flows(flows: &OAuthFlows) -> Value {
    let (name, refresh_url, mut flow) = match flows {
        OAuthFlows::AuthorizationCode(flow) => {
            let members = json!({
                "authorizationUrl": flow.authorization_url,
                "tokenUrl": flow.token_url,
                "scopes": flow.scopes,
            });
            ("authorizationCode", &flow.refresh_url, members)
        }
        OAuthFlows::ClientCredentials(flow) => {
            let members = json!({ "tokenUrl": flow.token_url, "scopes": flow.scopes });
            ("clientCredentials", &flow.refresh_url, members)
        }
        OAuthFlows::Implicit(flow) => {
            let members = json!({ "authorizationUrl": flow.authorization_url, "scopes": flow.scopes });
            ("implicit", &flow.refresh_url, members)
        }
        OAuthFlows::Password(flow) => {
            ("password", &flow.refresh_url, json!({ "tokenUrl": flow.token_url, "scopes": flow.scopes }))
        }
        OAuthFlows::DeviceCode(_) => return json!({}),
    };
    add_text(&mut flow, "refreshUrl", refresh_url);
    json!({ name: flow })
}
