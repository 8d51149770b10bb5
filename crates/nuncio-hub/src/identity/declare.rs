//! Security schemes on cards: exactly those that the hub accepts, none where none is required.

use std::collections::{BTreeMap, BTreeSet};

use nuncio_protocol::{
    AgentCard, ApiKeySecurityScheme, HttpAuthSecurityScheme, OpenIdConnectSecurityScheme,
    SecurityRequirement, SecurityScheme, StringList,
};

use super::{API_KEY, issuer::TrustedIssuer};

/// The accepted security schemes; each suffices alone.
pub(super) fn schemes<'a>(
    issuers: impl IntoIterator<Item = &'a TrustedIssuer>,
) -> Vec<(String, SecurityScheme)> {
    let bearer = HttpAuthSecurityScheme {
        description: "An API key of this hub.".to_owned(),
        scheme: "Bearer".to_owned(),
        ..HttpAuthSecurityScheme::default()
    };
    let header = ApiKeySecurityScheme {
        description: "An API key of this hub.".to_owned(),
        location: "header".to_owned(),
        name: API_KEY.to_owned(),
    };
    let mut schemes = vec![
        ("bearer".to_owned(), SecurityScheme::HttpAuth(bearer)),
        ("apiKey".to_owned(), SecurityScheme::ApiKey(header)),
    ];
    for (number, issuer) in issuers.into_iter().enumerate() {
        let description = format!("A token of {}.", issuer.name());
        let scheme = match issuer.discovery() {
            Some(url) => SecurityScheme::OpenIdConnect(OpenIdConnectSecurityScheme {
                description,
                open_id_connect_url: url.to_string(),
            }),
            None => SecurityScheme::HttpAuth(HttpAuthSecurityScheme {
                description,
                scheme: "Bearer".to_owned(),
                bearer_format: "JWT".to_owned(),
            }),
        };
        schemes.push((if number == 0 { "oidc".to_owned() } else { format!("oidc{}", number + 1) }, scheme));
    }
    schemes
}

/// Leaves the schemes that skills name: what a skill demands beyond the hub is its agent's own word.
pub(crate) fn retain_schemes_of_skills(card: &mut AgentCard) {
    let requirements = card.skills.iter().flat_map(|skill| &skill.security_requirements);
    let named: BTreeSet<_> = requirements.flat_map(|requirement| requirement.schemes.keys()).collect();
    card.security_schemes.retain(|name, _| named.contains(name));
}

/// Puts these on a card: all of them will do for a call. Schemes that only a skill demands stay, and give way where one
/// of these has their name.
pub(super) fn declare(card: &mut AgentCard, schemes: Vec<(String, SecurityScheme)>) {
    let require = |name: &String| SecurityRequirement {
        schemes: BTreeMap::from([(name.clone(), StringList::default())]),
    };
    card.security_requirements = schemes.iter().map(|(name, _)| require(name)).collect();
    retain_schemes_of_skills(card);
    let own: BTreeMap<_, _> = schemes.into_iter().collect();
    let theirs = std::mem::take(&mut card.security_schemes);
    let other = |name: String| {
        let mut free = name.clone();
        while own.contains_key(&free) || (free != name && theirs.contains_key(&free)) {
            free.insert_str(0, "upstream-");
        }
        free
    };
    for skill in &mut card.skills {
        for requirement in &mut skill.security_requirements {
            let named = std::mem::take(&mut requirement.schemes);
            requirement.schemes = named.into_iter().map(|(name, scopes)| (other(name), scopes)).collect();
        }
    }
    let moved = theirs.iter().map(|(name, scheme)| (other(name.clone()), scheme.clone()));
    card.security_schemes = moved.chain(own.clone()).collect();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_skill_keeps_what_it_demands_under_a_name_that_is_free() {
        let mut card: AgentCard = serde_json::from_value(json!({
            "securitySchemes": {
                "bearer": {"httpAuthSecurityScheme": {"scheme": "Digest"}},
                "key": {"apiKeySecurityScheme": {"location": "header", "name": "x-key"}},
            },
            "skills": [{"id": "s", "securityRequirements": [
                {"schemes": {"bearer": {"list": ["a"]}, "key": {"list": []}}}]}],
        }))
        .unwrap();
        declare(&mut card, schemes([]));
        // Cards are shown again and again.
        let shown = card.clone();
        let names: Vec<_> = shown.security_schemes.keys().map(String::as_str).collect();
        assert_eq!(names, ["apiKey", "bearer", "key", "upstream-bearer"]);
        let demanded: Vec<_> = shown.skills[0].security_requirements[0].schemes.keys().collect();
        assert_eq!(demanded, ["key", "upstream-bearer"]);
        assert!(
            matches!(&shown.security_schemes["bearer"], SecurityScheme::HttpAuth(own) if own.scheme == "Bearer"),
            "what the hub asks for is not theirs to say"
        );
        let all: Vec<_> = shown.security_requirements.iter().flat_map(|one| one.schemes.keys()).collect();
        assert_eq!(all, ["bearer", "apiKey"]);
    }
}
