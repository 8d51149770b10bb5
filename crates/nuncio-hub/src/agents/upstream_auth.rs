//! The hub's own credentials and TLS settings for services that it calls: remote agents, and providers of models.

use std::{fs, net::IpAddr, path::Path};

use anyhow::{Context as _, Result};
use nuncio_client::{ClientCredentials, Credentials, Egress};

use crate::config::{Auth, Credential};

/// The egress for a service, with its TLS settings. Names that resolve to link-local addresses are refused, except for
/// these addresses.
pub(super) fn egress(auth: &Auth, allowed: Vec<IpAddr>) -> Result<Egress> {
    let mut builder = Egress::builder().refuse_link_local(allowed);
    for file in &auth.authorities {
        builder = builder.root_certificates(&read("auth.ca", file)?).context("auth.ca")?;
    }
    if let Some(identity) = &auth.identity {
        let cert = read("auth.client_cert", &identity.cert)?;
        let key = read("auth.client_key", &identity.key)?;
        builder = builder.client_identity(&cert, &key).context("auth.client_cert")?;
    }
    Ok(builder.build()?)
}

/// The credentials that the hub presents to a service.
pub(super) fn credentials(auth: &Auth) -> Result<Credentials> {
    let mut credentials = Credentials::none();
    match &auth.credential {
        None => {}
        Some(Credential::Bearer(token)) => credentials = credentials.bearer(token.reveal())?,
        Some(Credential::Basic { user, password }) => {
            credentials = credentials.basic(user, password.reveal())?
        }
        Some(Credential::OAuth2(oauth)) => {
            let secret = oauth.client_secret.reveal();
            let mut client = ClientCredentials::new(oauth.token_url.as_str(), &oauth.client_id, secret)?;
            if !oauth.scopes.is_empty() {
                client = client.scope(oauth.scopes.join(" "));
            }
            if let Some(audience) = &oauth.audience {
                client = client.audience(audience);
            }
            credentials = credentials.client_credentials(client);
        }
    }
    for (name, value) in &auth.headers {
        credentials = credentials.header(name.as_str(), value.reveal())?;
    }
    Ok(credentials)
}

/// Reads the file that a key of the settings names. Errors name the key and not the path: it may be a
/// secret that was put in the wrong key.
pub(super) fn read(key: &str, file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("{key}: the file cannot be read"))
}
