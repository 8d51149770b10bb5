//! v1.0 → v0.3 → v1.0. Paths are those of v1.0 JSON.

use nuncio_protocol::op::Op;

use super::{
    ALL, CARD,
    Effect::{Changed, Filled, Lost, Refused},
    GRPC, JSON_RPC, PROTO, Row, SENDS,
    Section::{DownAnswers, DownCards, DownProtobuf, DownRequests},
    rule,
};
use crate::wire::{Kind, Wire};

/// All that v0.3 has.
const CALLS: &[Kind] = &[
    Kind::Call(Op::SendMessage),
    Kind::Call(Op::SendStreamingMessage),
    Kind::Call(Op::GetTask),
    Kind::Call(Op::CancelTask),
    Kind::Call(Op::SubscribeToTask),
    Kind::Call(Op::CreateTaskPushNotificationConfig),
    Kind::Call(Op::GetTaskPushNotificationConfig),
    Kind::Call(Op::ListTaskPushNotificationConfigs),
    Kind::Call(Op::DeleteTaskPushNotificationConfig),
    Kind::Call(Op::GetExtendedAgentCard),
];
const CREATE: &[Kind] = &[Kind::Call(Op::CreateTaskPushNotificationConfig)];
const CONFIG: &[Kind] =
    &[Kind::Reply(Op::CreateTaskPushNotificationConfig), Kind::Reply(Op::GetTaskPushNotificationConfig)];
const CONFIGS: &[Kind] = &[Kind::Reply(Op::ListTaskPushNotificationConfigs)];
const WEBHOOKS: &[Kind] = &[
    Kind::Call(Op::SendMessage),
    Kind::Call(Op::SendStreamingMessage),
    Kind::Call(Op::CreateTaskPushNotificationConfig),
    Kind::Reply(Op::CreateTaskPushNotificationConfig),
    Kind::Reply(Op::GetTaskPushNotificationConfig),
    Kind::Reply(Op::ListTaskPushNotificationConfigs),
];
/// Documents that contain messages, tasks or extensions.
const FREE_FORM: &[Kind] = &[
    Kind::Call(Op::SendMessage),
    Kind::Call(Op::SendStreamingMessage),
    Kind::Reply(Op::SendMessage),
    Kind::Reply(Op::GetTask),
    Kind::Reply(Op::CancelTask),
    Kind::Event,
    Kind::Reply(Op::GetExtendedAgentCard),
];
const TASKS: &[Kind] =
    &[Kind::Reply(Op::SendMessage), Kind::Reply(Op::GetTask), Kind::Reply(Op::CancelTask), Kind::Event];
const PROTOBUF: &[Wire] = &[Wire::Grpc, Wire::V1Grpc];
const NEW_PROTOBUF: &[Wire] = &[Wire::V1Grpc];

pub(super) const ROWS: &[Row] = &[
    Row::new(DownRequests, "ListTasks", &[Kind::Call(Op::ListTasks)], &[])
        .becomes(ALL, "refused: UnsupportedOperation", Refused(rule::always, rule::unsupported_operation))
        .because("no method, no rpc, and no shape on its HTTP path"),
    Row::new(DownRequests, "every request", CALLS, &["tenant"])
        .becomes(ALL, "lost", Lost(rule::always))
        .because("v0.3 has no tenants"),
    Row::new(DownRequests, "SendMessage, SendStreamingMessage", SENDS, &["configuration"])
        .when("absent")
        .becomes(ALL, "`{}`", Filled(rule::empty_object))
        .because("`blocking`, the inverse of `returnImmediately`, is always said, because servers differ without it"),
    Row::new(DownRequests, "SendMessage, SendStreamingMessage", SENDS, &["configuration.historyLength"])
        .when("0")
        .becomes(GRPC, "lost", Lost(rule::is_zero))
        .because("the proto cannot tell 0 from unset; whoever asked must drop the history that comes"),
    Row::new(DownRequests, "GetTask", &[Kind::Call(Op::GetTask)], &["historyLength"])
        .when("0")
        .becomes(GRPC, "lost", Lost(rule::is_zero))
        .because("as above"),
    Row::new(DownRequests, "SendMessage, SendStreamingMessage", SENDS, &[
            "configuration.taskPushNotificationConfig.taskId",
            "configuration.taskPushNotificationConfig.tenant",
        ])
        .becomes(ALL, "lost", Lost(rule::always))
        .because("the webhook of a send is that of its task"),
    Row::new(DownRequests, "CancelTask", &[Kind::Call(Op::CancelTask)], &["metadata"])
        .becomes(PROTO, "lost", Lost(rule::always))
        .because("the proto's request has a name and nothing else"),
    Row::new(DownRequests, "CreateTaskPushNotificationConfig", CREATE, &["taskId"])
        .when("absent")
        .becomes(PROTO, "refused: InvalidParams", Refused(rule::has_no_task, rule::by_sender))
        .because("there is no name without a task; JSON-RPC leaves it to validation"),
    Row::new(DownRequests, "CreateTaskPushNotificationConfig", CREATE, &["id"])
        .when("absent")
        .becomes(ALL, "the task's id", Filled(rule::id_of_task))
        .because("the proto requires one; a server of JSON-RPC stores it so, as a2a-python 0.3 did"),
    Row::new(DownRequests, "ListTaskPushNotificationConfigs", &[Kind::Call(Op::ListTaskPushNotificationConfigs)], &["pageSize", "pageToken"])
        .becomes(JSON_RPC, "lost", Lost(rule::always))
        .because("JSON-RPC lists without pages"),
    Row::new(DownAnswers, "ListTasks", &[Kind::Reply(Op::ListTasks)], &[])
        .becomes(ALL, "refused: UnsupportedOperation", Refused(rule::always, rule::unsupported_operation))
        .because("v0.3 has no such operation"),
    Row::new(DownAnswers, "a webhook", CONFIG, &["tenant"])
        .becomes(ALL, "lost", Lost(rule::always))
        .because("v0.3 has no tenants"),
    Row::new(DownAnswers, "a list of webhooks", CONFIGS, &["configs[].tenant"])
        .becomes(ALL, "lost", Lost(rule::always))
        .because("v0.3 has no tenants"),
    Row::new(DownAnswers, "a list of webhooks", CONFIGS, &["nextPageToken"])
        .becomes(JSON_RPC, "lost", Lost(rule::always))
        .because("JSON-RPC answers a bare array, so whoever answers must drain the pages first"),
    Row::new(DownAnswers, "a webhook, anywhere", WEBHOOKS, &["**.authentication"])
        .when("without `scheme` and `credentials`")
        .becomes(ALL, "lost", Lost(rule::has_no_scheme))
        .because("says nothing; `scheme` is required"),
    Row::new(DownAnswers, "a webhook, anywhere", WEBHOOKS, &["**.authentication.scheme"])
        .when("empty")
        .becomes(ALL, "`Bearer`", Changed(rule::bearer_if_empty))
        .because("what credentials without a scheme are read as"),
    Row::new(DownCards, "a card", CARD, &["supportedInterfaces"])
        .when("none of version 0.3")
        .becomes(ALL, "refused: VersionNotSupported", Refused(rule::is_not_reached, rule::version_not_supported))
        .because("a v0.3 client could not reach the agent"),
    Row::new(DownCards, "a card", CARD, &["supportedInterfaces"])
        .when("of other versions than 0.3, or without `url`")
        .becomes(ALL, "lost", Changed(rule::reached_only))
        .because("of no use to a v0.3 client"),
    Row::new(DownCards, "a card", CARD, &["supportedInterfaces[].tenant"])
        .becomes(ALL, "lost", Lost(rule::always))
        .because("v0.3 has no tenants"),
    Row::new(DownCards, "a card", CARD, &["supportedInterfaces[].protocolVersion"])
        .when("with a patch number")
        .becomes(ALL, "`0.3`", Changed(rule::without_patch))
        .because("interfaces have no version of their own in v0.3"),
    Row::new(DownCards, "a card", CARD, &["supportedInterfaces[].protocolBinding"])
        .when("empty")
        .becomes(ALL, "`JSONRPC`", Changed(rule::json_rpc_if_empty))
        .because("what v0.3 means by none"),
    Row::new(DownCards, "a card", CARD, &["supportedInterfaces"])
        .when("alike in `url` and `protocolBinding`")
        .becomes(ALL, "the first of them", Changed(rule::distinct))
        .because("v0.3 repeats the main one among the others, so what comes twice counts once"),
    Row::new(DownCards, "a card", CARD, &["capabilities.streaming", "capabilities.pushNotifications", "capabilities.extendedAgentCard"])
        .when("`false`")
        .becomes(GRPC, "lost", Lost(rule::is_false))
        .because("the proto cannot tell it from unset, and it means the same"),
    Row::new(DownCards, "a card", CARD, &["documentationUrl", "iconUrl"])
        .when("empty")
        .becomes(GRPC, "lost", Lost(rule::is_default))
        .because("the proto cannot tell it from unset"),
    Row::new(DownCards, "a card", CARD, &["securitySchemes.*"])
        .when("OAuth with the device code flow")
        .becomes(ALL, "lost", Lost(rule::is_device_code))
        .because("v0.3 does not know the flow; the scheme goes down with no flow in it"),
    Row::new(DownCards, "a card", CARD, &["securitySchemes.*.oauth2SecurityScheme.flows.authorizationCode.pkceRequired"])
        .becomes(ALL, "lost", Lost(rule::always))
        .because("v0.3 has no such member"),
    Row::new(DownCards, "a card", CARD, &["signatures"])
        .becomes(ALL, "lost", Lost(rule::always))
        .because("they are over another document"),
    Row::new(DownProtobuf, "messages, tasks, events, cards", FREE_FORM, &["**.metadata", "**.data", "**.params"])
        .when("integers beyond 2^53")
        .becomes(PROTOBUF, "refused: InvalidParams in a request, else InvalidAgentResponse", Refused(rule::has_large_integer, rule::by_sender))
        .because("protobuf has doubles only, and a number that changes is worse than one that fails"),
    Row::new(DownProtobuf, "messages, tasks, events, cards", FREE_FORM, &["**.metadata", "**.data", "**.params"])
        .when("whole numbers written as `1.0`")
        .becomes(PROTOBUF, "`1`", Changed(rule::to_integers))
        .because("protobuf has doubles only; most of them were integers"),
    Row::new(DownProtobuf, "CancelTask", &[Kind::Call(Op::CancelTask)], &["metadata"])
        .when("integers beyond 2^53")
        .becomes(NEW_PROTOBUF, "refused: InvalidParams", Refused(rule::has_large_integer, rule::by_sender))
        .elsewhere("lost altogether")
        .because("as above"),
    Row::new(DownProtobuf, "CancelTask", &[Kind::Call(Op::CancelTask)], &["metadata"])
        .when("whole numbers written as `1.0`")
        .becomes(NEW_PROTOBUF, "`1`", Changed(rule::to_integers))
        .elsewhere("lost altogether")
        .because("as above"),
    Row::new(DownProtobuf, "tasks, events", TASKS, &["**.timestamp"])
        .when("before the year 1")
        .becomes(PROTOBUF, "refused: InvalidAgentResponse", Refused(rule::has_early_moment, rule::by_sender))
        .because("protobuf begins there"),
    Row::new(DownProtobuf, "ListTasks", &[Kind::Call(Op::ListTasks)], &["statusTimestampAfter"])
        .when("before the year 1")
        .becomes(NEW_PROTOBUF, "refused: InvalidParams", Refused(rule::has_early_moment, rule::by_sender))
        .elsewhere("refused altogether")
        .because("protobuf begins there"),
    Row::new(DownProtobuf, "an error", &[Kind::Error], &["data"])
        .when("details with integers beyond 2^53")
        .becomes(PROTOBUF, "lost", Changed(rule::without_large_integers))
        .because("an error must not fail for want of a detail"),
    Row::new(DownProtobuf, "an error", &[Kind::Error], &["data"])
        .when("whole numbers written as `1.0`")
        .becomes(PROTOBUF, "`1`", Changed(rule::to_integers))
        .because("protobuf has doubles only; most of them were integers"),
];
