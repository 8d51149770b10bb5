//! Security schemes and requirements of an agent card (spec 4.5).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::lenient::{null_default, oneof};

/// Schemes that are all required (AND). Of a list of requirements, one is enough (OR).
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SecurityRequirement {
    /// The scopes of each scheme, by its name.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub schemes: BTreeMap<String, StringList>,
}

/// A list of strings, wrapped because a protobuf map cannot contain lists.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StringList {
    /// The strings.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    pub list: Vec<String>,
}

/// One way to authenticate.
#[derive(Clone, Debug, PartialEq)]
pub enum SecurityScheme {
    /// A key in a header, query parameter or cookie.
    ApiKey(ApiKeySecurityScheme),
    /// The HTTP `Authorization` header.
    HttpAuth(HttpAuthSecurityScheme),
    /// OAuth 2.0.
    OAuth2(OAuth2SecurityScheme),
    /// OpenID Connect.
    OpenIdConnect(OpenIdConnectSecurityScheme),
    /// A client certificate.
    MutualTls(MutualTlsSecurityScheme),
}

oneof!("SecurityScheme", SecurityScheme {
    "apiKeySecurityScheme" | "api_key_security_scheme" => ApiKey(ApiKeySecurityScheme),
    "httpAuthSecurityScheme" | "http_auth_security_scheme" => HttpAuth(HttpAuthSecurityScheme),
    "oauth2SecurityScheme" | "oauth2_security_scheme" => OAuth2(OAuth2SecurityScheme),
    "openIdConnectSecurityScheme" | "open_id_connect_security_scheme" => OpenIdConnect(OpenIdConnectSecurityScheme),
    "mtlsSecurityScheme" | "mtls_security_scheme" => MutualTls(MutualTlsSecurityScheme),
});

/// A key in a header, query parameter or cookie.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ApiKeySecurityScheme {
    /// For humans.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// `query`, `header` or `cookie`.
    #[serde(deserialize_with = "null_default")]
    pub location: String,
    /// The name of the header, parameter or cookie.
    #[serde(deserialize_with = "null_default")]
    pub name: String,
}

/// The HTTP `Authorization` header.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HttpAuthSecurityScheme {
    /// For humans.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The scheme, such as `Bearer`.
    #[serde(deserialize_with = "null_default")]
    pub scheme: String,
    /// A hint, such as `JWT`.
    #[serde(
        alias = "bearer_format",
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub bearer_format: String,
}

/// OAuth 2.0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuth2SecurityScheme {
    /// For humans.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The flow to obtain a token.
    pub flows: OAuthFlows,
    /// The URL of an RFC 8414 document.
    #[serde(
        default,
        alias = "oauth2_metadata_url",
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub oauth2_metadata_url: String,
}

/// OpenID Connect.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenIdConnectSecurityScheme {
    /// For humans.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The URL of the discovery document.
    #[serde(alias = "open_id_connect_url", deserialize_with = "null_default")]
    pub open_id_connect_url: String,
}

/// A client certificate.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MutualTlsSecurityScheme {
    /// For humans.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// Exactly one flow (trap T-15: v0.3 allowed several in one scheme).
#[derive(Clone, Debug, PartialEq)]
pub enum OAuthFlows {
    /// Authorization code.
    AuthorizationCode(AuthorizationCodeOAuthFlow),
    /// Client credentials.
    ClientCredentials(ClientCredentialsOAuthFlow),
    /// Implicit; deprecated, still in use.
    Implicit(ImplicitOAuthFlow),
    /// Password; deprecated, still in use.
    Password(PasswordOAuthFlow),
    /// Device code (RFC 8628).
    DeviceCode(DeviceCodeOAuthFlow),
}

oneof!("OAuthFlows", OAuthFlows {
    "authorizationCode" | "authorization_code" => AuthorizationCode(AuthorizationCodeOAuthFlow),
    "clientCredentials" | "client_credentials" => ClientCredentials(ClientCredentialsOAuthFlow),
    "implicit" => Implicit(ImplicitOAuthFlow),
    "password" => Password(PasswordOAuthFlow),
    "deviceCode" | "device_code" => DeviceCode(DeviceCodeOAuthFlow),
});

/// Descriptions of scopes for humans, by scope.
pub type Scopes = BTreeMap<String, String>;

/// Authorization code.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuthorizationCodeOAuthFlow {
    /// The authorization URL, where the user agrees.
    #[serde(alias = "authorization_url", deserialize_with = "null_default")]
    pub authorization_url: String,
    /// The URL of the token endpoint.
    #[serde(alias = "token_url", deserialize_with = "null_default")]
    pub token_url: String,
    /// The URL to refresh the token.
    #[serde(
        alias = "refresh_url",
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub refresh_url: String,
    /// Available scopes.
    #[serde(deserialize_with = "null_default")]
    pub scopes: Scopes,
    /// PKCE (RFC 7636) is required.
    #[serde(
        alias = "pkce_required",
        deserialize_with = "null_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub pkce_required: bool,
}

/// Client credentials.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientCredentialsOAuthFlow {
    /// The URL of the token endpoint.
    #[serde(alias = "token_url", deserialize_with = "null_default")]
    pub token_url: String,
    /// The URL to refresh the token.
    #[serde(
        alias = "refresh_url",
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub refresh_url: String,
    /// Available scopes.
    #[serde(deserialize_with = "null_default")]
    pub scopes: Scopes,
}

/// Device code (RFC 8628).
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceCodeOAuthFlow {
    /// The device authorization URL.
    #[serde(alias = "device_authorization_url", deserialize_with = "null_default")]
    pub device_authorization_url: String,
    /// The URL of the token endpoint.
    #[serde(alias = "token_url", deserialize_with = "null_default")]
    pub token_url: String,
    /// The URL to refresh the token.
    #[serde(
        alias = "refresh_url",
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub refresh_url: String,
    /// Available scopes.
    #[serde(deserialize_with = "null_default")]
    pub scopes: Scopes,
}

/// Implicit; deprecated.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImplicitOAuthFlow {
    /// The authorization URL, where the user agrees.
    #[serde(
        alias = "authorization_url",
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub authorization_url: String,
    /// The URL to refresh the token.
    #[serde(
        alias = "refresh_url",
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub refresh_url: String,
    /// Available scopes.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "Scopes::is_empty")]
    pub scopes: Scopes,
}

/// Password; deprecated.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PasswordOAuthFlow {
    /// The URL of the token endpoint.
    #[serde(
        alias = "token_url",
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub token_url: String,
    /// The URL to refresh the token.
    #[serde(
        alias = "refresh_url",
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub refresh_url: String,
    /// Available scopes.
    #[serde(deserialize_with = "null_default", skip_serializing_if = "Scopes::is_empty")]
    pub scopes: Scopes,
}
