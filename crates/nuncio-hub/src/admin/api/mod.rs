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
mod access;
mod admin_tokens;
mod agents;
mod audits;
mod config;
mod dashboard;
mod deliveries;
mod delivery_hosts;
mod error;
mod events;
mod health;
mod hubs;
mod invitations;
mod keys;
mod mailboxes;
mod paging;
mod path;
mod playground;
mod rooms;
mod route;
mod schema;
mod stats;
mod tasks;
mod trail;

pub(super) use self::path::{is_near, names};
pub use self::{
    about::{About, ShowAbout, ShowDocument},
    access::{
        AcceptAccess, AccessCaller, AccessFilter, AccessPage, AccessState, BlockAccess, CallerAccess,
        DeclineAccess, ListAccess, RevokeAccess,
    },
    admin_tokens::{
        AdminToken, AdminTokenList, AdminTokenWithText, CreateAdminToken, ListAdminTokens, NewAdminToken,
        RevokeAdminToken, Role,
    },
    agents::{
        AddAgent, AddedAgent, Agent, AgentDetails, AgentHealth, AgentOrigin, AgentSettings, Agents,
        Capability, ChangeAgent, HealthState, Interface, ListAgents, NewAgent, Observation,
        ObservedCapability, RefreshAgent, RemoveAgent, ShowAgent, ShowAgentHealth, TaskMode,
    },
    audits::{AgentAudit, AuditAgent, AuditRequest, AuditSummary, ShowAudit},
    config::{ConfigInForce, ReloadConfig, ReloadOptions, Reloaded, ShowConfig},
    dashboard::{DashboardCode, OpenDashboard},
    deliveries::{
        Attempt, Delivery, DeliveryFilter, DeliveryPage, DeliveryState, ListDeliveries, RedriveDeliveries,
        RedriveFilter, Redriven, ReplayDelivery, ShowDelivery,
    },
    delivery_hosts::{
        CauseCount, DeliveryCause, DeliveryHost, DeliveryHosts, ListDeliveryHosts, PauseDeliveryHost,
        PausedHost, ResumeDeliveryHost,
    },
    error::{ErrorBody, ErrorDetail, ErrorStatus},
    events::{EventKind, EventOptions, FollowEvents, HubEvent},
    health::{AgentStatus, HubHealth, ShowHealth},
    hubs::{Diagnostics, HubInfo, HubList, ListHubs, ShowDiagnostics},
    invitations::{
        CreateInvitation, Invitation, InvitationWithCode, Invitations, ListInvitations, NewInvitation,
        RevokeInvitation,
    },
    keys::{
        CreateKey, DeleteKey, Key, KeyLimits, KeyRotation, KeyWithSecret, Keys, ListKeys, NewKey, RevokeKey,
        RotateKey, ShowKey,
    },
    mailboxes::{
        CreateMailbox, EnableMailbox, ListMailboxes, Mailbox, MailboxDetails, MailboxLease, MailboxList,
        MailboxRetry, MailboxRotation, MailboxTurn, MailboxWithSecret, MailboxWorker, NewMailbox, PoisonTask,
        RemoveMailbox, Retried, RetryMailbox, RotateMailbox, ShowMailbox, TakeOver, TakeOverLeases,
        TakenOver,
    },
    paging::{DEFAULT_PAGE_SIZE, ListRoute, MAX_PAGE_SIZE, Page, Paging},
    playground::{
        CancelTrial, FrameDirection, FrameValidity, ListTrials, NewTrial, SendTrial, ShowTrial, Trial,
        TrialFrame, TrialMode, TrialSummary, Trials,
    },
    rooms::{
        AddRoom, JoinSeat, LeaveSeat, ListRooms, NewRoom, RecordRoom, Recording, RecordingRequest,
        RemoveRoom, ResetRoom, Room, RoomArtifact, RoomDetails, RoomEvent, RoomMessage, RoomOptions,
        RoomReset, RoomResetOptions, RoomRound, RoomSeat, Rooms, SayAtSeat, SeatDetails, SeatHolding,
        SeatJoin, SeatLease, SeatLeaving, SeatOptions, SeatSaid, SeatWords, ShowRoom, ShowSeat, TakeOverSeat,
        WatchOptions, WatchRoom, WireCall,
    },
    route::{RequestParts, Route},
    stats::{
        AgentCounts, AgentFigures, CallRates, DEFAULT_HISTORY_MINUTES, DeliveryBacklog, ErrorCount,
        InterfaceCount, Latency, MemoryFigures, MinuteSample, ShowStats, StateCount, Stats, StatsOptions,
        StoreFigures, StoreKind, Warning, WarningKind,
    },
    tasks::{
        ArtifactPart, CancelTask, EntryKind, EraseTasks, Erased, ErasureTarget, ListTaskArtifacts, ListTasks,
        PartKind, RemoteTask, ShowArtifactPart, ShowTask, TaskArtifact, TaskArtifacts, TaskDetails,
        TaskFilter, TaskPage, TaskSummary, TimelineEntry, TimelineOptions, Webhook,
    },
    trail::{ListTrail, TrailFilter, TrailPage, TrailRow, What},
};
