//! Push notification configuration: nested and with a resource name in v0.3, flat in v1.0 (REQ-110). v0.3
//! has no tenant.

use super::{super::generated as pb, task_of};
use crate::{
    AuthenticationInfo, PushConfigId, TaskPushNotificationConfig,
    pb::convert::{Convert, InField as _, Mismatch, convert},
    v03::{
        call::default_config_id,
        name::{self, Name},
    },
};

convert! {
    ListTaskPushNotificationConfigsResponse => pb::ListTaskPushNotificationConfigResponse {
        configs, next_page_token,
    }
}

/// The scheme of a configuration with credentials and without a scheme.
const DEFAULT_SCHEME: &str = "Bearer";

/// The configuration in a send: its task is that of the message.
impl Convert<pb::PushNotificationConfig> for TaskPushNotificationConfig {
    fn to_pb(&self) -> Result<pb::PushNotificationConfig, Mismatch> {
        Ok(pb::PushNotificationConfig {
            id: Convert::<String>::to_pb(&self.id)?,
            url: self.url.clone(),
            token: Convert::<String>::to_pb(&self.token)?,
            authentication: self.authentication.as_ref().map(downgrade_authentication),
        })
    }

    fn from_pb(pb: pb::PushNotificationConfig) -> Result<Self, Mismatch> {
        Ok(Self {
            tenant: None,
            id: Convert::from_pb(pb.id)?,
            task_id: None,
            url: pb.url,
            token: Convert::from_pb(pb.token)?,
            authentication: pb.authentication.and_then(upgrade_authentication),
        })
    }
}

fn downgrade_authentication(authentication: &AuthenticationInfo) -> pb::AuthenticationInfo {
    pb::AuthenticationInfo {
        schemes: vec![authentication.scheme.clone()],
        credentials: authentication.credentials.clone().unwrap_or_default(),
    }
}

/// v1.0 has one scheme: the first. Credentials without a scheme are taken for a bearer token.
fn upgrade_authentication(pb: pb::AuthenticationInfo) -> Option<AuthenticationInfo> {
    let credentials = Some(pb.credentials).filter(|credentials| !credentials.is_empty());
    let listed = pb.schemes.into_iter().find(|scheme| !scheme.is_empty());
    let scheme = listed.or_else(|| credentials.is_some().then(|| DEFAULT_SCHEME.to_owned()))?;
    Some(AuthenticationInfo { scheme, credentials })
}

/// A configuration in an answer.
impl Convert<pb::TaskPushNotificationConfig> for TaskPushNotificationConfig {
    fn to_pb(&self) -> Result<pb::TaskPushNotificationConfig, Mismatch> {
        let id = self.id.as_ref().map_or("", PushConfigId::as_str);
        // Without a task there is no valid name, so it stays empty.
        let name =
            self.task_id.as_ref().map(|task_id| name::of_config(task_id.as_str(), id)).unwrap_or_default();
        Ok(pb::TaskPushNotificationConfig { name, push_notification_config: Some(self.to_pb()?) })
    }

    fn from_pb(pb: pb::TaskPushNotificationConfig) -> Result<Self, Mismatch> {
        let mut config: Self =
            pb.push_notification_config.map_or_else(|| Ok(Self::default()), Self::from_pb)?;
        if pb.name.is_empty() {
            return Ok(config);
        }
        let malformed = || {
            Mismatch::new(format!(
                "expected tasks/{{id}}/pushNotificationConfigs/{{id}}, got \"{}\"",
                pb.name
            ))
        };
        let (task_id, id) = Name::parse(&pb.name).ok_or_else(malformed).at("name")?.split();
        config.task_id = task_id;
        config.id = config.id.or(id);
        Ok(config)
    }
}

/// The request to create a configuration.
impl Convert<pb::CreateTaskPushNotificationConfigRequest> for TaskPushNotificationConfig {
    fn to_pb(&self) -> Result<pb::CreateTaskPushNotificationConfigRequest, Mismatch> {
        let task_id = self.task_id.clone().unwrap_or_default();
        // REQUIRED in the proto, which has no way to leave the id to the server.
        let id = self.id.clone().unwrap_or_else(|| default_config_id(&task_id));
        let config = Self { id: Some(id.clone()), ..self.clone() };
        Ok(pb::CreateTaskPushNotificationConfigRequest {
            parent: name::of_task(task_id.as_str()),
            config_id: id.to_pb()?,
            config: Some(config.to_pb()?),
        })
    }

    fn from_pb(pb: pb::CreateTaskPushNotificationConfigRequest) -> Result<Self, Mismatch> {
        let task_id = task_of(&pb.parent).at("parent")?;
        // The name inside only repeats the parent and the id.
        let inner = pb.config.and_then(|config| config.push_notification_config);
        let mut config: Self = inner.map_or_else(|| Ok(Self::default()), Self::from_pb).at("config")?;
        let id: Option<PushConfigId> = Convert::from_pb(pb.config_id)?;
        config.id = id.or(config.id).or_else(|| Some(default_config_id(&task_id)));
        config.task_id = Some(task_id);
        Ok(config)
    }
}
