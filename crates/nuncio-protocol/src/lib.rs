//! The Agent2Agent protocol (A2A) as Rust types: both versions in use, the wire format of every binding,
//! the lifecycle of a task, and the trait that clients and servers share.
//!
//! This crate does no I/O, starts no task and reads no clock.
//!
//! Reading order: the types ([`Message`], [`Task`], [`Event`], [`AgentCard`]), the requests, the [`Error`]
//! with its table, the trait [`A2aService`], the [`op`] table, [`Interceptor`], [`fold`], then [`wire`].
//!
//! ```
//! use nuncio_protocol::{Message, Part};
//!
//! let message = Message::user("m-1", Part::text("hello"));
//! let json = serde_json::to_string(&message)?;
//! assert_eq!(json, r#"{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hello"}]}"#);
//! # Ok::<_, serde_json::Error>(())
//! ```
//!
//! | feature | adds |
//! |---|---|
//! | `grpc` | protobuf forms of both versions |

mod ids;
mod json;
mod lenient;
mod time;
mod version;

mod card;
mod event;
mod message;
mod metadata;
mod push;
mod request;
mod security;
mod task;

mod canonical;
mod context;
mod error;
mod fold;
mod intercept;
pub mod op;
#[cfg(feature = "grpc")]
pub mod pb;
pub mod retry;
mod service;
mod stream;
pub mod v03;
mod validate;
pub mod wire;

pub use self::{
    canonical::{canonical_card, canonical_json},
    card::{
        AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider,
        AgentSkill, Binding, SKILL_SCHEMAS_EXTENSION, grpc_target,
    },
    context::{CallContext, Caller, HOPS_HEADER, HOPS_TRACE_KEY, Headers, TraceContext},
    error::{ERROR_DOMAIN, Error, ErrorKind, ErrorRow, Fault, FieldViolation, GrpcCode, Result},
    event::{Event, TaskArtifactUpdateEvent, TaskStatusUpdateEvent},
    fold::{Refusal, fold},
    ids::{ArtifactId, ContextId, MessageId, PushConfigId, Seq, TaskId},
    intercept::{Interceptor, Interceptors, Next},
    json::{Json, Members},
    message::{Content, Message, Part, Role},
    metadata::Metadata,
    push::{AuthenticationInfo, TaskPushNotificationConfig},
    request::{
        CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
        GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
        ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse,
        SendMessageConfiguration, SendMessageRequest, SendMessageResponse, SubscribeToTaskRequest,
    },
    security::{
        ApiKeySecurityScheme, AuthorizationCodeOAuthFlow, ClientCredentialsOAuthFlow, DeviceCodeOAuthFlow,
        HttpAuthSecurityScheme, ImplicitOAuthFlow, MutualTlsSecurityScheme, OAuth2SecurityScheme, OAuthFlows,
        OpenIdConnectSecurityScheme, PasswordOAuthFlow, Scopes, SecurityRequirement, SecurityScheme,
        StringList,
    },
    service::{A2aService, CallHandler, RESUME_EXTENSION},
    stream::{EventStream, StreamItem},
    task::{Artifact, Task, TaskState, TaskStatus},
    time::{InvalidTimestamp, Timestamp},
    v03::FileBytes,
    validate::{DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, Validate, validate_task},
    version::Version,
};
