//! Security schemes and requirements. v0.3 has neither the device code nor required PKCE; both are lost, as
//! in the JSON forms.

use super::super::generated as pb;
use crate::{
    AuthorizationCodeOAuthFlow, OAuthFlows,
    pb::convert::{Convert, Mismatch, convert, convert_oneof},
};

convert! {
    SecurityRequirement => pb::Security { schemes }
    StringList => pb::StringList { list }
    ApiKeySecurityScheme => pb::ApiKeySecurityScheme { description, location, name }
    HttpAuthSecurityScheme => pb::HttpAuthSecurityScheme { description, scheme, bearer_format }
    OAuth2SecurityScheme => pb::OAuth2SecurityScheme { description, flows, oauth2_metadata_url }
    OpenIdConnectSecurityScheme => pb::OpenIdConnectSecurityScheme { description, open_id_connect_url }
    MutualTlsSecurityScheme => pb::MutualTlsSecurityScheme { description }
    ClientCredentialsOAuthFlow => pb::ClientCredentialsOAuthFlow { token_url, refresh_url, scopes }
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
}

/// True if the kind of the scheme is known: a scheme or a flow of a later version is decoded as unset.
pub(super) fn is_known(scheme: &pb::SecurityScheme) -> bool {
    match &scheme.scheme {
        Some(pb::security_scheme::Scheme::Oauth2SecurityScheme(scheme)) => {
            scheme.flows.as_ref().is_some_and(|flows| flows.flow.is_some())
        }
        Some(_) => true,
        None => false,
    }
}

impl Convert<Option<pb::OAuthFlows>> for OAuthFlows {
    fn to_pb(&self) -> Result<Option<pb::OAuthFlows>, Mismatch> {
        use pb::o_auth_flows::Flow;
        let flow = match self {
            Self::AuthorizationCode(flow) => Some(Flow::AuthorizationCode(flow.to_pb()?)),
            Self::ClientCredentials(flow) => Some(Flow::ClientCredentials(flow.to_pb()?)),
            Self::Implicit(flow) => Some(Flow::Implicit(flow.to_pb()?)),
            Self::Password(flow) => Some(Flow::Password(flow.to_pb()?)),
            Self::DeviceCode(_) => None,
        };
        Ok(Some(pb::OAuthFlows { flow }))
    }

    fn from_pb(pb: Option<pb::OAuthFlows>) -> Result<Self, Mismatch> {
        use pb::o_auth_flows::Flow;
        Ok(match pb.and_then(|flows| flows.flow) {
            Some(Flow::AuthorizationCode(flow)) => Self::AuthorizationCode(Convert::from_pb(flow)?),
            Some(Flow::ClientCredentials(flow)) => Self::ClientCredentials(Convert::from_pb(flow)?),
            Some(Flow::Implicit(flow)) => Self::Implicit(Convert::from_pb(flow)?),
            Some(Flow::Password(flow)) => Self::Password(Convert::from_pb(flow)?),
            None => return Err(Mismatch::new("required")),
        })
    }
}

impl Convert<pb::AuthorizationCodeOAuthFlow> for AuthorizationCodeOAuthFlow {
    fn to_pb(&self) -> Result<pb::AuthorizationCodeOAuthFlow, Mismatch> {
        Ok(pb::AuthorizationCodeOAuthFlow {
            authorization_url: self.authorization_url.clone(),
            token_url: self.token_url.clone(),
            refresh_url: self.refresh_url.clone(),
            scopes: self.scopes.clone(),
        })
    }

    fn from_pb(pb: pb::AuthorizationCodeOAuthFlow) -> Result<Self, Mismatch> {
        Ok(Self {
            authorization_url: pb.authorization_url,
            token_url: pb.token_url,
            refresh_url: pb.refresh_url,
            scopes: pb.scopes,
            pkce_required: false,
        })
    }
}
