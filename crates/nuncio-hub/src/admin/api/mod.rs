//! The admin API as types: every request, query, body and answer, shared by the hub that serves it, the
//! OpenAPI document that describes it and the clients that call it.
//!
//! Reading order: `route` defines a route, `path` and `paging` the common parts of routes, `error` the body
//! of a refusal; then one file per resource. A request is a value of its route's type:
//!
//! ```
//! use nuncio_hub::admin::api::{Route as _, ShowKey};
//!
//! let request = ShowKey { id: "team a".to_owned() };
//! assert_eq!((ShowKey::METHOD.as_str(), request.path().as_str()), ("GET", "/keys/team%20a"));
//! ```
//!
//! **Invariant:** the types are the JSON on the wire and nothing else: handlers convert between them and the
//! internal types of the hub and its store. An answer may gain members, so readers ignore unknown ones;
//! requests with unknown members are refused.

mod about;
mod agents;
mod config;
mod deliveries;
mod error;
mod health;
mod keys;
mod paging;
mod path;
mod rooms;
mod route;
mod schema;
mod tasks;
mod trail;

pub(super) use self::path::{is_near, names};
pub use self::{
    about::{About, ShowAbout, ShowDocument},
    agents::{
        AddAgent, AddedAgent, Agent, AgentDetails, AgentHealth, AgentOrigin, AgentSettings, Agents,
        ChangeAgent, HealthState, Interface, ListAgents, NewAgent, RefreshAgent, RemoveAgent, ShowAgent,
        ShowAgentHealth, TaskMode,
    },
    config::{ConfigInForce, ReloadConfig, ReloadOptions, Reloaded, ShowConfig},
    deliveries::{
        Attempt, Delivery, DeliveryFilter, DeliveryPage, DeliveryState, ListDeliveries, RedriveDeliveries,
        RedriveFilter, Redriven, ReplayDelivery, ShowDelivery,
    },
    error::{ErrorBody, ErrorDetail, ErrorStatus},
    health::{AgentStatus, HubHealth, ShowHealth},
    keys::{
        CreateKey, DeleteKey, Key, KeyLimits, KeyRotation, KeyWithSecret, Keys, ListKeys, NewKey, RevokeKey,
        RotateKey, ShowKey,
    },
    paging::{DEFAULT_PAGE_SIZE, ListRoute, MAX_PAGE_SIZE, Page, Paging},
    rooms::{
        AddRoom, ListRooms, NewRoom, RemoveRoom, ResetRoom, Room, RoomDetails, RoomMessage, RoomOptions,
        RoomReset, RoomResetOptions, RoomRound, RoomSeat, Rooms, ShowRoom,
    },
    route::{RequestParts, Route},
    tasks::{
        CancelTask, EntryKind, EraseTasks, Erased, ErasureTarget, ListTasks, ShowTask, TaskDetails,
        TaskFilter, TaskPage, TaskSummary, TimelineEntry, TimelineOptions, Webhook,
    },
    trail::{ListTrail, TrailFilter, TrailPage, TrailRow, What},
};
