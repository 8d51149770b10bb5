//! The parameters of the operations, in both directions (REQ-200).
//!
//! HTTP+JSON merges path, query and body into one object before, with path variables under their v1.0 names
//! (`id`, `taskId`); so those are accepted beside the names of v0.3 (`name`, `parent`).

use std::marker::PhantomData;

use serde::{
    Deserialize, Serialize, Serializer,
    de::DeserializeOwned,
    ser::{SerializeMap as _, SerializeStruct as _},
};
use serde_json::value::RawValue;

use super::{
    downgrade::{Down, down, field_if},
    form::JsonForm,
    name::{self, Name},
    push::{Nested, PushShape},
    shape::{Up, one},
};
use crate::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, Error, ErrorKind,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, Message,
    Metadata, PushConfigId, Result, SendMessageConfiguration, SendMessageRequest, SubscribeToTaskRequest,
    TaskId, TaskPushNotificationConfig,
    json::decode,
    lenient::{self, int32, int32_or_zero, none_if_empty},
    metadata::metadata,
    op::{Call, Op},
};

/// ListTasks has no JSON-RPC method in v0.3, no rpc in its proto, and no shape on its REST path (REQ-206).
pub(super) fn no_list_tasks() -> Error {
    Error::new(ErrorKind::UnsupportedOperation, "v0.3 has no ListTasks")
}

/// Decodes the parameters of an operation.
pub(super) fn upgrade<F: JsonForm>(op: Op, params: Option<&RawValue>) -> Result<Call> {
    let send = || shape::<SendShape>(params).map(SendShape::upgrade::<F>).map(Box::new);
    let target = || shape::<TargetShape>(params).and_then(TargetShape::agreed);
    Ok(match op {
        Op::SendMessage => Call::SendMessage(send()?),
        Op::SendStreamingMessage => Call::SendStreamingMessage(send()?),
        Op::GetTask => Call::GetTask(Box::new(target()?.into_get::<F>())),
        Op::ListTasks => return Err(no_list_tasks()),
        Op::CancelTask => Call::CancelTask(Box::new(target()?.into_cancel())),
        Op::SubscribeToTask => Call::SubscribeToTask(Box::new(SubscribeToTaskRequest {
            tenant: None,
            id: target()?.into_task(),
        })),
        Op::CreateTaskPushNotificationConfig => {
            let Up(mut config) = shape::<Up<TaskPushNotificationConfig>>(params)?;
            // The same default as a2a-python 0.3, so that a get without an id finds it.
            config.id = config.id.or_else(|| config.task_id.as_ref().map(default_config_id));
            Call::CreateTaskPushNotificationConfig(Box::new(config))
        }
        Op::GetTaskPushNotificationConfig => {
            let (task_id, id) = target()?.into_config();
            let id = id.unwrap_or_else(|| default_config_id(&task_id));
            let req = GetTaskPushNotificationConfigRequest { tenant: None, task_id, id };
            Call::GetTaskPushNotificationConfig(Box::new(req))
        }
        Op::ListTaskPushNotificationConfigs => {
            Call::ListTaskPushNotificationConfigs(Box::new(target()?.into_list()))
        }
        Op::GetExtendedAgentCard => Call::GetExtendedAgentCard(Box::default()),
        Op::DeleteTaskPushNotificationConfig => {
            let (task_id, id) = target()?.into_config();
            let req =
                DeleteTaskPushNotificationConfigRequest { tenant: None, task_id, id: id.unwrap_or_default() };
            Call::DeleteTaskPushNotificationConfig(Box::new(req))
        }
    })
}

fn shape<T: DeserializeOwned + Default>(params: Option<&RawValue>) -> Result<T> {
    params.map_or_else(|| Ok(T::default()), |json| decode(ErrorKind::InvalidParams, json.get()))
}

/// The id of a configuration that was created without one.
pub(super) fn default_config_id(task_id: &TaskId) -> PushConfigId {
    task_id.as_str().into()
}

/// `MessageSendParams`, or `SendMessageRequest` of the proto.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct SendShape {
    // `request` is the name of the field in the proto, which Python clients use.
    #[serde(alias = "request", deserialize_with = "one::<_, Message, _>")]
    message: Message,
    configuration: Option<ConfigurationShape>,
    #[serde(deserialize_with = "metadata::<_, 1>")]
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ConfigurationShape {
    #[serde(alias = "accepted_output_modes", deserialize_with = "lenient::list")]
    accepted_output_modes: Vec<String>,
    blocking: Option<bool>,
    #[serde(alias = "history_length", deserialize_with = "int32")]
    history_length: Option<i32>,
    #[serde(alias = "push_notification_config", alias = "pushNotification", alias = "push_notification")]
    push_notification_config: Option<PushShape>,
}

impl SendShape {
    fn upgrade<F: JsonForm>(self) -> SendMessageRequest {
        SendMessageRequest {
            tenant: None,
            message: self.message,
            configuration: self.configuration.map(ConfigurationShape::upgrade::<F>),
            metadata: self.metadata,
        }
    }
}

impl ConfigurationShape {
    fn upgrade<F: JsonForm>(self) -> SendMessageConfiguration {
        // Trap T-22. Absent means wait, except in ProtoJSON, where `false` is written as absent.
        let blocking = self.blocking.unwrap_or(F::HAS_PRESENCE);
        SendMessageConfiguration {
            accepted_output_modes: self.accepted_output_modes,
            task_push_notification_config: self.push_notification_config.map(PushShape::upgrade),
            history_length: self.history_length,
            return_immediately: !blocking,
        }
    }
}

/// A task, or a configuration of one, under any of its names in the two forms.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct TargetShape {
    #[serde(deserialize_with = "none_if_empty")]
    id: Option<String>,
    #[serde(alias = "task_id", deserialize_with = "none_if_empty")]
    task_id: Option<TaskId>,
    #[serde(deserialize_with = "none_if_empty")]
    name: Option<Name>,
    #[serde(deserialize_with = "none_if_empty")]
    parent: Option<Name>,
    #[serde(alias = "push_notification_config_id", deserialize_with = "none_if_empty")]
    push_notification_config_id: Option<PushConfigId>,
    #[serde(alias = "history_length", deserialize_with = "int32")]
    history_length: Option<i32>,
    #[serde(alias = "page_size", deserialize_with = "int32_or_zero")]
    page_size: i32,
    #[serde(alias = "page_token", deserialize_with = "none_if_empty")]
    page_token: Option<String>,
    #[serde(deserialize_with = "metadata::<_, 1>")]
    metadata: Metadata,
}

impl TargetShape {
    /// Refuses two names of different tasks: the path of HTTP+JSON has `id`, its body `name`.
    fn agreed(self) -> Result<Self> {
        let by_id = self.task_id.as_ref().map(TaskId::as_str).or(self.id.as_deref());
        let by_name = [("name", &self.name), ("parent", &self.parent)];
        let other = by_name.iter().find(|(_, name)| {
            let named = name.as_ref().map(Name::task);
            named.zip(by_id).is_some_and(|(named, id)| named.as_str() != id)
        });
        match other {
            Some((field, _)) => Err(Error::invalid_field(*field, "names another task than the id")),
            None => Ok(self),
        }
    }

    fn into_task(self) -> TaskId {
        let named = self.name.or(self.parent).and_then(|name| name.split().0);
        self.task_id.or(self.id.map(Into::into)).or(named).unwrap_or_default()
    }

    fn into_get<F: JsonForm>(self) -> GetTaskRequest {
        GetTaskRequest { tenant: None, history_length: self.history_length, id: self.into_task() }
    }

    fn into_cancel(mut self) -> CancelTaskRequest {
        let metadata = std::mem::take(&mut self.metadata);
        CancelTaskRequest { tenant: None, id: self.into_task(), metadata }
    }

    /// `id` is the task's id in v0.3; beside a `taskId` of the path it is the configuration's.
    fn into_config(self) -> (TaskId, Option<PushConfigId>) {
        let (named_task, named_id) = self.name.map(Name::split).unwrap_or_default();
        let (task_id, id) = match self.task_id {
            Some(task_id) => (Some(task_id), self.id.map(Into::into)),
            None => (self.id.map(Into::into), None),
        };
        (task_id.or(named_task).unwrap_or_default(), self.push_notification_config_id.or(id).or(named_id))
    }

    fn into_list(mut self) -> ListTaskPushNotificationConfigsRequest {
        let (page_size, page_token) = (self.page_size, self.page_token.take());
        ListTaskPushNotificationConfigsRequest {
            tenant: None,
            task_id: self.into_task(),
            page_size,
            page_token,
        }
    }
}

impl<F: JsonForm> Serialize for Down<'_, F, SendMessageRequest> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let req = self.value();
        let mut object = serializer.serialize_struct("SendMessageRequest", 3)?;
        object.serialize_field("message", &down::<F, _>(&req.message))?;
        // Always written, because `blocking` always is.
        let default = SendMessageConfiguration::default();
        let configuration = req.configuration.as_ref().unwrap_or(&default);
        object.serialize_field("configuration", &down::<F, _>(configuration))?;
        field_if(&mut object, !req.metadata.is_empty(), "metadata", &req.metadata)?;
        object.end()
    }
}

impl<F: JsonForm> Serialize for Down<'_, F, SendMessageConfiguration> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let configuration = self.value();
        let modes = &configuration.accepted_output_modes;
        let mut object = serializer.serialize_struct("SendMessageConfiguration", 4)?;
        field_if(&mut object, !modes.is_empty(), "acceptedOutputModes", modes)?;
        // v0.3 peers have different defaults (REQ-200).
        object.serialize_field("blocking", &!configuration.return_immediately)?;
        let length = &configuration.history_length;
        field_if(&mut object, length.is_some(), "historyLength", length)?;
        if let Some(config) = &configuration.task_push_notification_config {
            object.serialize_field(F::INLINE_PUSH, &Nested(config))?;
        }
        object.end()
    }
}

/// A call, encoded in the form `F`.
pub(super) struct Params<'a, F> {
    call: &'a Call,
    form: PhantomData<F>,
}

/// Borrows a call to encode its parameters.
pub(super) fn params<F: JsonForm>(call: &Call) -> Result<Params<'_, F>> {
    match call {
        Call::ListTasks(_) => Err(no_list_tasks()),
        Call::SendMessage(_)
        | Call::SendStreamingMessage(_)
        | Call::GetTask(_)
        | Call::CancelTask(_)
        | Call::SubscribeToTask(_)
        | Call::CreateTaskPushNotificationConfig(_)
        | Call::GetTaskPushNotificationConfig(_)
        | Call::ListTaskPushNotificationConfigs(_)
        | Call::GetExtendedAgentCard(_)
        | Call::DeleteTaskPushNotificationConfig(_) => Ok(Params { call, form: PhantomData }),
    }
}

impl<F: JsonForm> Serialize for Params<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.call {
            Call::SendMessage(req) | Call::SendStreamingMessage(req) => {
                down::<F, _>(&**req).serialize(serializer)
            }
            Call::GetTask(req) => {
                let length = req.history_length.map(i64::from);
                target::<F, S>(serializer, &req.id, &[("historyLength", length)], None)
            }
            Call::CancelTask(req) => {
                let metadata = Some(&req.metadata).filter(|metadata| F::HAS_KIND && !metadata.is_empty());
                target::<F, S>(serializer, &req.id, &[], metadata)
            }
            Call::SubscribeToTask(req) => target::<F, S>(serializer, &req.id, &[], None),
            Call::CreateTaskPushNotificationConfig(req) => create::<F, S>(serializer, req),
            Call::GetTaskPushNotificationConfig(req) => config::<F, S>(serializer, &req.task_id, &req.id),
            Call::DeleteTaskPushNotificationConfig(req) => config::<F, S>(serializer, &req.task_id, &req.id),
            Call::ListTaskPushNotificationConfigs(req) => list::<F, S>(serializer, req),
            Call::GetExtendedAgentCard(_) | Call::ListTasks(_) => serializer.serialize_map(Some(0))?.end(),
        }
    }
}

/// The parameters of an operation on a task.
fn target<F: JsonForm, S: Serializer>(
    serializer: S,
    task_id: &TaskId,
    numbers: &[(&str, Option<i64>)],
    metadata: Option<&Metadata>,
) -> Result<S::Ok, S::Error> {
    let mut object = serializer.serialize_map(None)?;
    if F::HAS_KIND {
        object.serialize_entry("id", task_id)?;
    } else {
        object.serialize_entry("name", &name::of_task(task_id.as_str()))?;
    }
    for (key, number) in numbers {
        if let Some(number) = number {
            object.serialize_entry(key, number)?;
        }
    }
    if let Some(metadata) = metadata {
        object.serialize_entry("metadata", metadata)?;
    }
    object.end()
}

/// The parameters of an operation on a configuration.
fn config<F: JsonForm, S: Serializer>(
    serializer: S,
    task_id: &TaskId,
    id: &PushConfigId,
) -> Result<S::Ok, S::Error> {
    let mut object = serializer.serialize_map(None)?;
    if F::HAS_KIND {
        object.serialize_entry("id", task_id)?;
        object.serialize_entry("pushNotificationConfigId", id)?;
    } else {
        object.serialize_entry("name", &name::of_config(task_id.as_str(), id.as_str()))?;
    }
    object.end()
}

fn create<F: JsonForm, S: Serializer>(
    serializer: S,
    req: &TaskPushNotificationConfig,
) -> Result<S::Ok, S::Error> {
    if F::HAS_KIND {
        return down::<F, _>(req).serialize(serializer);
    }
    let task_id = req.task_id.clone().unwrap_or_default();
    // REQUIRED in the proto; its request has no way to leave the id to the server.
    let id = req.id.clone().unwrap_or_else(|| default_config_id(&task_id));
    let config = TaskPushNotificationConfig { id: Some(id.clone()), ..req.clone() };
    let mut object = serializer.serialize_struct("CreateTaskPushNotificationConfigRequest", 3)?;
    object.serialize_field("parent", &name::of_task(task_id.as_str()))?;
    object.serialize_field("configId", &id)?;
    object.serialize_field("config", &down::<F, _>(&config))?;
    object.end()
}

/// Only the proto has pages.
fn list<F: JsonForm, S: Serializer>(
    serializer: S,
    req: &ListTaskPushNotificationConfigsRequest,
) -> Result<S::Ok, S::Error> {
    if F::HAS_KIND {
        return target::<F, S>(serializer, &req.task_id, &[], None);
    }
    let mut object = serializer.serialize_struct("ListTaskPushNotificationConfigRequest", 3)?;
    object.serialize_field("parent", &name::of_task(req.task_id.as_str()))?;
    field_if(&mut object, req.page_size != 0, "pageSize", &req.page_size)?;
    field_if(&mut object, req.page_token.is_some(), "pageToken", &req.page_token)?;
    object.end()
}
