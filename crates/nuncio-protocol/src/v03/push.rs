//! Webhooks: nested and named by task in v0.3, flat in v1.0 (REQ-110). Push configurations have no
//! metadata, so members that v0.3 cannot express are lost; see the loss table in docs/protocol-notes.md.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{
        self, MapAccess, SeqAccess,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
    ser::SerializeStruct as _,
};

use super::{
    downgrade::{Down, down, field_if},
    form::JsonForm,
    name::{self, Name},
    shape::{Up, list},
};
use crate::{
    AuthenticationInfo, ListTaskPushNotificationConfigsResponse, PushConfigId, TaskId,
    TaskPushNotificationConfig,
    lenient::{self, none_if_empty, null_default},
};

/// The scheme of a configuration with credentials and without a scheme.
const DEFAULT_SCHEME: &str = "Bearer";

/// `PushNotificationConfig`, without its task.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PushShape {
    #[serde(deserialize_with = "none_if_empty")]
    id: Option<PushConfigId>,
    #[serde(deserialize_with = "null_default")]
    url: String,
    #[serde(deserialize_with = "none_if_empty")]
    token: Option<String>,
    authentication: Option<AuthenticationShape>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AuthenticationShape {
    #[serde(deserialize_with = "lenient::list")]
    schemes: Vec<String>,
    /// The member of v1.0, which some peers already send.
    #[serde(deserialize_with = "none_if_empty")]
    scheme: Option<String>,
    #[serde(deserialize_with = "none_if_empty")]
    credentials: Option<String>,
}

impl AuthenticationShape {
    /// Takes the first scheme; without any, credentials alone are taken for a bearer token.
    fn upgrade(self) -> Option<AuthenticationInfo> {
        let listed = self.schemes.into_iter().find(|scheme| !scheme.is_empty());
        let default = self.credentials.is_some().then(|| DEFAULT_SCHEME.to_owned());
        let scheme = listed.or(self.scheme).or(default)?;
        Some(AuthenticationInfo { scheme, credentials: self.credentials })
    }
}

impl PushShape {
    pub(super) fn upgrade(self) -> TaskPushNotificationConfig {
        TaskPushNotificationConfig {
            tenant: None,
            id: self.id,
            task_id: None,
            url: self.url,
            token: self.token,
            authentication: self.authentication.and_then(AuthenticationShape::upgrade),
        }
    }
}

/// `TaskPushNotificationConfig` of either form, or the request of the proto around it.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct TaskPushShape {
    #[serde(alias = "task_id", deserialize_with = "none_if_empty")]
    task_id: Option<TaskId>,
    #[serde(deserialize_with = "none_if_empty")]
    name: Option<Name>,
    #[serde(deserialize_with = "none_if_empty")]
    parent: Option<Name>,
    #[serde(alias = "config_id", deserialize_with = "none_if_empty")]
    config_id: Option<PushConfigId>,
    config: Option<Box<TaskPushShape>>,
    #[serde(alias = "push_notification_config")]
    push_notification_config: Option<PushShape>,
}

impl TaskPushShape {
    fn upgrade(self) -> TaskPushNotificationConfig {
        let inner = self.config.map(|config| config.upgrade()).unwrap_or_default();
        let own = self.push_notification_config.map(PushShape::upgrade);
        let (named_task, named_id) = self.name.map(Name::split).unwrap_or_default();
        let parent = self.parent.and_then(|parent| parent.split().0);
        let mut config = own.unwrap_or(inner.clone());
        config.task_id = self.task_id.or(parent).or(named_task).or(inner.task_id);
        config.id = self.config_id.or(config.id).or(named_id).or(inner.id);
        config
    }
}

impl<'de> Deserialize<'de> for Up<TaskPushNotificationConfig> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        TaskPushShape::deserialize(deserializer).map(|shape| Up(shape.upgrade()))
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PageShape {
    #[serde(deserialize_with = "list::<_, TaskPushNotificationConfig, _>")]
    configs: Vec<TaskPushNotificationConfig>,
    #[serde(alias = "next_page_token", deserialize_with = "null_default")]
    next_page_token: String,
}

/// A page, or the bare array of JSON-RPC.
impl<'de> Deserialize<'de> for Up<ListTaskPushNotificationConfigsResponse> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = PageShape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of push notification configurations")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<PageShape, A::Error> {
                let configs = list::<_, TaskPushNotificationConfig, _>(SeqAccessDeserializer::new(seq))?;
                Ok(PageShape { configs, next_page_token: String::new() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PageShape, A::Error> {
                PageShape::deserialize(MapAccessDeserializer::new(map))
            }

            fn visit_unit<E: de::Error>(self) -> Result<PageShape, E> {
                Ok(PageShape::default())
            }
        }
        let PageShape { configs, next_page_token } = deserializer.deserialize_any(Visitor)?;
        Ok(Up(ListTaskPushNotificationConfigsResponse { configs, next_page_token }))
    }
}

/// The configuration without its task.
pub(super) struct Nested<'a>(pub(super) &'a TaskPushNotificationConfig);

impl Serialize for Nested<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let config = self.0;
        let mut object = serializer.serialize_struct("PushNotificationConfig", 4)?;
        field_if(&mut object, config.id.is_some(), "id", &config.id)?;
        object.serialize_field("url", &config.url)?;
        field_if(&mut object, config.token.is_some(), "token", &config.token)?;
        if let Some(authentication) = &config.authentication {
            object.serialize_field("authentication", &Authentication(authentication))?;
        }
        object.end()
    }
}

struct Authentication<'a>(&'a AuthenticationInfo);

impl Serialize for Authentication<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let authentication = self.0;
        let mut object = serializer.serialize_struct("AuthenticationInfo", 2)?;
        object.serialize_field("schemes", &[&authentication.scheme])?;
        field_if(
            &mut object,
            authentication.credentials.is_some(),
            "credentials",
            &authentication.credentials,
        )?;
        object.end()
    }
}

impl<F: JsonForm> Serialize for Down<'_, F, TaskPushNotificationConfig> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let config = self.value();
        let task = config.task_id.as_ref().map_or("", TaskId::as_str);
        let mut object = serializer.serialize_struct("TaskPushNotificationConfig", 2)?;
        if F::HAS_KIND {
            object.serialize_field("taskId", task)?;
        } else {
            let id = config.id.as_ref().map_or("", PushConfigId::as_str);
            // Without a task there is no valid name, so it stays empty.
            let name = if task.is_empty() { String::new() } else { name::of_config(task, id) };
            object.serialize_field("name", &name)?;
        }
        object.serialize_field("pushNotificationConfig", &Nested(config))?;
        object.end()
    }
}

impl<F: JsonForm> Serialize for Down<'_, F, ListTaskPushNotificationConfigsResponse> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let page = self.value();
        let configs = down::<F, _>(page.configs.as_slice());
        if F::HAS_KIND {
            return configs.serialize(serializer);
        }
        let mut object = serializer.serialize_struct("ListTaskPushNotificationConfigResponse", 2)?;
        object.serialize_field("configs", &configs)?;
        field_if(&mut object, !page.next_page_token.is_empty(), "nextPageToken", &page.next_page_token)?;
        object.end()
    }
}
