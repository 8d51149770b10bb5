//! v0.3 → v1.0 → v0.3. Paths are those of the v0.3 form: of the JSON schema for JSON-RPC and for cards over
//! HTTP+JSON, of ProtoJSON for all else. In protobuf itself a default is as good as absent, so no row is
//! about that.

use nuncio_protocol::op::Op;

use super::{
    ALL, CARD,
    Effect::{Changed, Computed, Filled, Lost, Refused, Rewritten},
    GRPC, JSON, JSON_RPC, PROTO, REST, Row, SENDS,
    Section::{UpAnswers, UpCards, UpErrors, UpRequests},
    rule,
};
use crate::wire::{Kind, Wire};

const FILES: &[Kind] = &[Kind::Call(Op::SendMessage), Kind::Event];
const CREATE: &[Kind] = &[Kind::Call(Op::CreateTaskPushNotificationConfig)];
const WEBHOOKS: &[Kind] = &[
    Kind::Call(Op::SendMessage),
    Kind::Call(Op::CreateTaskPushNotificationConfig),
    Kind::Reply(Op::GetTaskPushNotificationConfig),
    Kind::Reply(Op::ListTaskPushNotificationConfigs),
];
const TASKS: &[Kind] = &[Kind::Reply(Op::GetTask), Kind::Event];
const FREE_FORM: &[Kind] = &[Kind::Call(Op::SendMessage), Kind::Reply(Op::GetTask), Kind::Event];
const V1_JSON: &[Wire] = &[Wire::V1Json];
const V1_GRPC: &[Wire] = &[Wire::V1Grpc];

pub(super) const ROWS: &[Row] = &[
    Row::new(
        UpRequests,
        "GetTask, SubscribeToTask, and get, list and delete of webhooks",
        &[
            Kind::Call(Op::GetTask),
            Kind::Call(Op::SubscribeToTask),
            Kind::Call(Op::GetTaskPushNotificationConfig),
            Kind::Call(Op::ListTaskPushNotificationConfigs),
            Kind::Call(Op::DeleteTaskPushNotificationConfig),
        ],
        &["metadata"],
    )
    .becomes(JSON_RPC, "lost", Lost(rule::always))
    .elsewhere("–")
    .because("v1.0 has metadata on sends and on cancels only"),
    Row::new(UpRequests, "SendMessage, SendStreamingMessage", SENDS, &["configuration"])
        .when("absent")
        .becomes(ALL, "`{\"blocking\":true}`", Filled(rule::blocking))
        .because("`blocking` is always said"),
    Row::new(UpRequests, "SendMessage, SendStreamingMessage", SENDS, &["configuration.blocking"])
        .when("absent")
        .becomes(JSON_RPC, "`true`", Filled(rule::yes))
        .elsewhere("`false`")
        .because("absent means wait"),
    Row::new(UpRequests, "SendMessage, SendStreamingMessage", SENDS, &["configuration.blocking"])
        .when("absent")
        .becomes(REST, "`false`", Filled(rule::no))
        .elsewhere("–")
        .because("ProtoJSON leaves `false` out, so absent is how it is said"),
    Row::new(UpRequests, "CreateTaskPushNotificationConfig", CREATE, &["pushNotificationConfig.id"])
        .when("absent")
        .becomes(JSON_RPC, "the task's id", Filled(rule::id_of_task))
        .elsewhere("see below")
        .because("a webhook without an id is stored under that of its task, as a2a-python 0.3 did"),
    Row::new(
        UpRequests,
        "CreateTaskPushNotificationConfig",
        CREATE,
        &["configId", "config.name", "config.pushNotificationConfig.id"],
    )
    .when("absent")
    .becomes(PROTO, "from the task's id", Filled(rule::named_after_task))
    .elsewhere("see above")
    .because("the same"),
    Row::new(
        UpRequests,
        "GetTaskPushNotificationConfig",
        &[Kind::Call(Op::GetTaskPushNotificationConfig)],
        &["pushNotificationConfigId"],
    )
    .when("absent")
    .becomes(JSON_RPC, "the task's id", Filled(rule::own_id))
    .elsewhere("–")
    .because("the same"),
    Row::new(UpAnswers, "a webhook, anywhere", WEBHOOKS, &["**.authentication"])
        .when("without `schemes` and `credentials`")
        .becomes(ALL, "lost", Lost(rule::says_nothing))
        .because("says nothing"),
    Row::new(UpAnswers, "a webhook, anywhere", WEBHOOKS, &["**.authentication.schemes"])
        .when("absent or empty")
        .becomes(ALL, "`[\"Bearer\"]`", Computed(rule::bearer))
        .because("credentials alone can mean only that"),
    Row::new(UpAnswers, "a webhook, anywhere", WEBHOOKS, &["**.authentication.schemes"])
        .when("several")
        .becomes(ALL, "the first of them", Changed(rule::first_only))
        .because("v1.0 has one scheme"),
    Row::new(UpAnswers, "a status update", &[Kind::Event], &["final", "statusUpdate.final"])
        .when("other than the state says")
        .becomes(ALL, "as the state says", Computed(rule::is_last))
        .because("v1.0 has no such member; true after a state that ends the interaction, else false"),
    Row::new(UpAnswers, "a task, a status update", TASKS, &["**.timestamp"])
        .when("finer than milliseconds, or not in UTC")
        .becomes(JSON, "milliseconds, UTC", Changed(rule::cut_to_milliseconds))
        .elsewhere("see below")
        .because("so v1.0 writes it, and so do we"),
    Row::new(UpAnswers, "a task, a status update", TASKS, &["**.timestamp"])
        .when("finer than milliseconds, by way of v1.0 JSON")
        .becomes(GRPC, "milliseconds", Changed(rule::cut_to_milliseconds))
        .elsewhere("see above")
        .through(V1_JSON)
        .because("so v1.0 writes it in JSON; by way of v1.0 gRPC it is kept"),
    Row::new(UpAnswers, "a file, anywhere", FILES, &["**.fileWithBytes"])
        .when("the content itself")
        .becomes(PROTO, "its base64 text", Changed(rule::to_base64_text))
        .elsewhere("–")
        .because("most SDKs read nothing else; agents with `file_bytes = \"raw\"` and callers known by their user agent get the content itself"),
    Row::new(
        UpAnswers,
        "a task, an event",
        TASKS,
        &[
            "**.artifacts",
            "**.history",
            "**.metadata",
            "**.extensions",
            "**.referenceTaskIds",
            "**.append",
            "**.lastChunk",
        ],
    )
    .when("empty or `false`")
    .becomes(ALL, "left out", Lost(rule::is_default))
    .because("the same as absent"),
    Row::new(UpAnswers, "messages, tasks, events", FREE_FORM, &["**.metadata", "**.data"])
        .when("integers beyond 2^53, by way of v1.0 gRPC")
        .becomes(
            JSON,
            "refused: InvalidParams in a request, else InvalidAgentResponse",
            Refused(rule::has_large_integer, rule::by_sender),
        )
        .elsewhere("–")
        .through(V1_GRPC)
        .because("protobuf has doubles only"),
    Row::new(UpAnswers, "messages, tasks, events", FREE_FORM, &["**.metadata", "**.data"])
        .when("whole numbers written as `1.0`, by way of v1.0 gRPC")
        .becomes(JSON, "`1`", Changed(rule::to_integers))
        .elsewhere("–")
        .through(V1_GRPC)
        .because("protobuf has doubles only; most of them were integers"),
    Row::new(UpCards, "a card", CARD, &["protocolVersion"])
        .when("another")
        .becomes(ALL, "`0.3.0`", Computed(rule::protocol_version))
        .because("what is behind a card of this shape speaks v0.3, whatever it says"),
    Row::new(UpCards, "a card", CARD, &["preferredTransport"])
        .when("absent")
        .becomes(ALL, "`JSONRPC`", Filled(rule::json_rpc))
        .because("the default, and required by the text"),
    Row::new(UpCards, "a card", CARD, &["additionalInterfaces"])
        .when("without the main one, or with one twice")
        .becomes(ALL, "each once, the main one first", Computed(rule::every_interface))
        .because("the main one should be repeated there"),
    Row::new(UpCards, "a card", CARD, &["capabilities.stateTransitionHistory"])
        .becomes(JSON, "lost", Lost(rule::always))
        .elsewhere("–")
        .because("v1.0 has no such member"),
    Row::new(UpCards, "a card", CARD, &["securitySchemes.*"])
        .when("of an unknown kind")
        .becomes(ALL, "lost", Lost(rule::is_unknown_scheme))
        .because("v1.0 has five kinds"),
    Row::new(UpCards, "a card", CARD, &["securitySchemes.*"])
        .when("OAuth without a flow")
        .becomes(ALL, "lost", Lost(rule::has_no_flow))
        .because("v1.0 has exactly one flow per scheme"),
    Row::new(UpCards, "a card", CARD, &["securitySchemes.*", "security", "skills[].security"])
        .when("OAuth with several flows")
        .becomes(JSON, "one scheme and one requirement per flow", Rewritten(rule::split_flows))
        .elsewhere("–")
        .because("the same; the first keeps the name, the others are called `name-flow`"),
    Row::new(UpCards, "a card", CARD, &["signatures"])
        .becomes(ALL, "lost", Lost(rule::always))
        .because("they are over another document"),
    Row::new(
        UpCards,
        "a card",
        CARD,
        &[
            "security",
            "skills[].security",
            "skills[].examples",
            "skills[].inputModes",
            "skills[].outputModes",
            "capabilities.extensions",
            "capabilities.extensions[].required",
        ],
    )
    .when("empty or `false`")
    .becomes(JSON, "left out", Lost(rule::is_default))
    .because("the same as absent"),
    Row::new(UpErrors, "an error", &[Kind::Error], &["code"])
        .when("none of ours")
        .becomes(JSON_RPC, "-32603", Changed(rule::internal_if_unknown))
        .elsewhere("–")
        .because("what it meant is known to its sender only"),
    Row::new(UpErrors, "an error", &[Kind::Error], &["body.code"])
        .when("absent")
        .becomes(REST, "by class, or by status", Filled(rule::code_of_answer))
        .elsewhere("–")
        .because("the specification asks for no code"),
    Row::new(UpErrors, "an error", &[Kind::Error], &["body.type"])
        .when("absent")
        .becomes(REST, "the name of its class", Filled(rule::class_of_answer))
        .elsewhere("–")
        .because("some clients know errors by nothing else"),
    Row::new(UpErrors, "an error", &[Kind::Error], &["status"])
        .when("another than that of the code")
        .becomes(REST, "that of the code", Computed(rule::status_of_code))
        .elsewhere("–")
        .because("the specification has no statuses; ours are in the table of errors below"),
    Row::new(UpErrors, "an error", &[Kind::Error], &["code"])
        .when("the message names another class")
        .becomes(GRPC, "that of the class", Computed(rule::code_of_class))
        .elsewhere("–")
        .because("servers of the time said UNIMPLEMENTED for much"),
    Row::new(UpErrors, "an error", &[Kind::Error], &["data"])
        .becomes(
            JSON_RPC,
            "an object; `details` is a list: our `ErrorInfo`, then each detail, with a type",
            Computed(rule::object_with_reason),
        )
        .elsewhere("see below")
        .because("a2a-go 0.3 takes an object only"),
    Row::new(UpErrors, "an error", &[Kind::Error], &["body.data"])
        .becomes(REST, "a list: our `ErrorInfo`, then each detail, with a type", Computed(rule::with_reason))
        .elsewhere("the same list, as `details`")
        .because(
            "v1.0 has typed details; what has no type is wrapped as `google.protobuf.Struct` or `Value`",
        ),
    Row::new(UpErrors, "an error", &[Kind::Error], &["body.error"])
        .becomes(REST, "`code`, `status`, `message` and `details` as in v1.0", Computed(rule::error_of_answer))
        .elsewhere("–")
        .because("a2a-go 2.x reads nothing else, and a2a-java 0.3 fails without it"),
];
