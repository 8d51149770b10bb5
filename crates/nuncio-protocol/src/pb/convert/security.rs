//! Security schemes and requirements.

use super::{Convert, Mismatch, convert, convert_oneof};
use crate::{OAuthFlows, pb::generated as pb};

convert! {
    SecurityRequirement => pb::SecurityRequirement { schemes }
    StringList => pb::StringList { list }
    ApiKeySecurityScheme => pb::ApiKeySecurityScheme { description, location, name }
    HttpAuthSecurityScheme => pb::HttpAuthSecurityScheme { description, scheme, bearer_format }
    OAuth2SecurityScheme => pb::OAuth2SecurityScheme { description, flows, oauth2_metadata_url }
    OpenIdConnectSecurityScheme => pb::OpenIdConnectSecurityScheme { description, open_id_connect_url }
    MutualTlsSecurityScheme => pb::MutualTlsSecurityScheme { description }
    AuthorizationCodeOAuthFlow => pb::AuthorizationCodeOAuthFlow {
        authorization_url, token_url, refresh_url, scopes, pkce_required,
    }
    ClientCredentialsOAuthFlow => pb::ClientCredentialsOAuthFlow { token_url, refresh_url, scopes }
    DeviceCodeOAuthFlow => pb::DeviceCodeOAuthFlow { device_authorization_url, token_url, refresh_url, scopes }
    ImplicitOAuthFlow => pb::ImplicitOAuthFlow { authorization_url, refresh_url, scopes }
    PasswordOAuthFlow => pb::PasswordOAuthFlow { token_url, refresh_url, scopes }
}

convert_oneof! {
    SecurityScheme => pb::SecurityScheme, scheme: pb::security_scheme::Scheme {
        ApiKey = ApiKeySecurityScheme "apiKeySecurityScheme",
        HttpAuth = HttpAuthSecurityScheme "httpAuthSecurityScheme",
        OAuth2 = Oauth2SecurityScheme "oauth2SecurityScheme",
        OpenIdConnect = OpenIdConnectSecurityScheme "openIdConnectSecurityScheme",
        MutualTls = MtlsSecurityScheme "mtlsSecurityScheme",
    }
    OAuthFlows => pb::OAuthFlows, flow: pb::o_auth_flows::Flow {
        AuthorizationCode = AuthorizationCode "authorizationCode",
        ClientCredentials = ClientCredentials "clientCredentials",
        Implicit = Implicit "implicit",
        Password = Password "password",
        DeviceCode = DeviceCode "deviceCode",
    }
}

/// This message cannot be decoded as empty, because there is no default flow.
impl Convert<Option<pb::OAuthFlows>> for OAuthFlows {
    fn to_pb(&self) -> Result<Option<pb::OAuthFlows>, Mismatch> {
        self.to_pb().map(Some)
    }

    fn from_pb(pb: Option<pb::OAuthFlows>) -> Result<Self, Mismatch> {
        Convert::from_pb(pb.ok_or_else(|| Mismatch::new("required"))?)
    }
}
