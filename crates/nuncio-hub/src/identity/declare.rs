//! Security schemes on cards: exactly those that the hub accepts, none where none is required.

use std::collections::BTreeMap;

use nuncio_protocol::{
    AgentCard, ApiKeySecurityScheme, HttpAuthSecurityScheme, OpenIdConnectSecurityScheme,
    SecurityRequirement, SecurityScheme, StringList,
};

use super::{API_KEY, issuer::Issuer};

/// The accepted security schemes; each suffices alone.
pub(super) fn schemes<'a>(issuers: impl IntoIterator<Item = &'a Issuer>) -> Vec<(String, SecurityScheme)> {
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

/// Replaces the security schemes and requirements of a card.
pub(super) fn declare(card: &mut AgentCard, schemes: Vec<(String, SecurityScheme)>) {
    let require = |name: &String| SecurityRequirement {
        schemes: BTreeMap::from([(name.clone(), StringList::default())]),
    };
    card.security_requirements = schemes.iter().map(|(name, _)| require(name)).collect();
    card.security_schemes = schemes.into_iter().collect();
    // They refer to schemes of the upstream card, which this hub does not accept.
    card.skills.iter_mut().for_each(|skill| skill.security_requirements.clear());
}
