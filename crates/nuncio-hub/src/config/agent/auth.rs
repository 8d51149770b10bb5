//! The hub's credentials for a remote agent.
//!
//! The table has more keys than the settings: secrets may be in files, and one of three methods is chosen.

use std::path::PathBuf;

use http::HeaderName;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use url::Url;

use super::kinds::TableKeys;
use crate::config::{
    Secret,
    form::{FilePath, FileSecret, Form, Headers, HttpUrl, Opt, ValueList},
};

/// The hub's credentials for a remote agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(from = "AuthTable")]
pub struct Auth {
    /// Content of `Authorization`.
    pub credential: Option<Credential>,
    /// Further headers.
    pub headers: Vec<(HeaderName, Secret)>,
    /// Client certificate.
    pub identity: Option<ClientIdentity>,
    /// Trusted certificate authorities besides those of the system: PEM files.
    pub authorities: Vec<PathBuf>,
}

/// Content of `Authorization`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credential {
    /// A bearer token.
    Bearer(Secret),
    /// A user and a password.
    Basic { user: String, password: Secret },
    /// A token that is fetched when needed.
    OAuth2(OAuth2),
}

/// OAuth 2.0 client credentials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OAuth2 {
    pub token_url: Url,
    pub client_id: String,
    pub client_secret: Secret,
    pub scopes: Vec<String>,
    pub audience: Option<String>,
}

/// A certificate and its key, as PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientIdentity {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// The hub's credentials for this agent: at most one of bearer, user and oauth2, and any of the others.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Auth")]
pub(crate) struct AuthTable {
    /// A bearer token.
    #[schemars(example = "${BILLING_TOKEN}")]
    bearer: Option<Secret>,
    /// A file with a bearer token.
    #[serde(with = "Opt::<FileSecret>")]
    #[schemars(example = "billing.token")]
    bearer_file: Option<Secret>,
    /// The user of HTTP Basic.
    #[schemars(example = &"hub")]
    user: Option<String>,
    /// The user's password.
    #[schemars(example = "${BILLING_PASSWORD}")]
    password: Option<Secret>,
    /// A file with the user's password.
    #[serde(with = "Opt::<FileSecret>")]
    #[schemars(example = "billing.password")]
    password_file: Option<Secret>,
    /// OAuth 2.0 client credentials.
    oauth2: Option<OAuth2Table>,
    /// Headers to send: a text, or { file = "…" }.
    #[serde(with = "Headers")]
    #[schemars(example = std::collections::BTreeMap::from([("X-Api-Key", "${BILLING_KEY}")]))]
    headers: Vec<(HeaderName, Secret)>,
    /// Client certificate, as PEM.
    #[serde(with = "Opt::<FilePath>")]
    #[schemars(example = "client.pem")]
    client_cert: Option<PathBuf>,
    /// Its private key, as PEM.
    #[serde(with = "Opt::<FilePath>")]
    #[schemars(example = "client.key")]
    client_key: Option<PathBuf>,
    /// Trusted certificate authorities besides those of the system: PEM files.
    #[serde(with = "ValueList::<FilePath>")]
    #[schemars(example = ["internal-ca.pem"])]
    ca: Vec<PathBuf>,
}

/// OAuth 2.0 client credentials.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OAuth2")]
pub(crate) struct OAuth2Table {
    /// The token endpoint.
    #[serde(with = "HttpUrl")]
    #[schemars(example = "https://login.example.com/token")]
    token_url: Url,
    /// The client id of the hub.
    #[schemars(example = &"nuncio")]
    client_id: String,
    /// The client secret of the hub.
    #[schemars(example = "${BILLING_SECRET}")]
    client_secret: Option<Secret>,
    /// A file with the client secret.
    #[serde(default, with = "Opt::<FileSecret>")]
    #[schemars(example = "billing.secret")]
    client_secret_file: Option<Secret>,
    /// Scopes to request.
    #[serde(default)]
    #[schemars(example = ["invoices"])]
    scopes: Vec<String>,
    /// The audience to request.
    #[schemars(example = &"billing")]
    audience: Option<String>,
}

/// Notes keys of the table that contradict each other.
pub(super) fn check(table: &mut TableKeys<'_>) {
    const AUTH: &str = "auth";
    for (key, file) in [("bearer", "bearer_file"), ("password", "password_file")] {
        table.not_both(&[AUTH], key, file);
    }
    let has_password = table.has(&[AUTH, "password"]) || table.has(&[AUTH, "password_file"]);
    match (table.has(&[AUTH, "user"]), has_password) {
        (true, false) => table.wrong(&[AUTH, "user"], "needs password or password_file"),
        (false, true) => table.wrong(&[AUTH], "a password needs a user"),
        (true, true) | (false, false) => {}
    }
    let has_bearer = table.has(&[AUTH, "bearer"]) || table.has(&[AUTH, "bearer_file"]);
    let ways = [has_bearer, table.has(&[AUTH, "user"]), table.has(&[AUTH, "oauth2"])];
    if ways.into_iter().filter(|is_said| *is_said).count() > 1 {
        table.wrong(&[AUTH], "expected only one of bearer, user and oauth2");
    }
    for (one, other) in [("client_cert", "client_key"), ("client_key", "client_cert")] {
        if table.has(&[AUTH, one]) && !table.has(&[AUTH, other]) {
            table.wrong(&[AUTH, one], &format!("needs {other}"));
        }
    }
    if table.has(&[AUTH, "oauth2"]) {
        let oauth2 = [AUTH, "oauth2"];
        table.not_both(&oauth2, "client_secret", "client_secret_file");
        let has = |key| table.has(&[AUTH, "oauth2", key]);
        if !has("client_secret") && !has("client_secret_file") {
            table.wrong(&oauth2, "client_secret or client_secret_file is missing");
        }
    }
}

/// Contradicting keys have been refused before.
impl From<AuthTable> for Auth {
    fn from(table: AuthTable) -> Self {
        let bearer = table.bearer.or(table.bearer_file).map(Credential::Bearer);
        let password = table.password.or(table.password_file);
        let basic = table.user.zip(password).map(|(user, password)| Credential::Basic { user, password });
        let oauth2 = table.oauth2.and_then(OAuth2Table::into_settings).map(Credential::OAuth2);
        let identity =
            table.client_cert.zip(table.client_key).map(|(cert, key)| ClientIdentity { cert, key });
        Self {
            credential: bearer.or(basic).or(oauth2),
            headers: table.headers,
            identity,
            authorities: table.ca,
        }
    }
}

impl OAuth2Table {
    fn into_settings(self) -> Option<OAuth2> {
        Some(OAuth2 {
            token_url: self.token_url,
            client_id: self.client_id,
            client_secret: self.client_secret.or(self.client_secret_file)?,
            scopes: self.scopes,
            audience: self.audience,
        })
    }
}

impl JsonSchema for Auth {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        AuthTable::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        AuthTable::json_schema(generator)
    }
}
