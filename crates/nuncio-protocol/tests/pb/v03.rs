//! v0.3: down and up again is the identity for messages, tasks and events, and for all else as far as
//! v0.3 can say it. The bytes are those of its other protobuf form, the ProtoJSON of HTTP+JSON.

use bytes::Bytes;
use nuncio_protocol::{
    AgentCard, AgentInterface, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, ErrorKind, Event,
    GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, ListTasksResponse,
    Message, Metadata, OAuthFlows, Part, SecurityScheme, SendMessageRequest, SendMessageResponse,
    SubscribeToTaskRequest, Task, TaskPushNotificationConfig, Version,
    op::{Call, Op, Reply},
    v03::{
        LEFTOVER, Rest,
        pb::{self, generated},
    },
    wire::Dialect as _,
};
use proptest::prelude::*;
use serde_json::json;

use crate::{
    oracle::{of_bytes, of_json},
    strategies as any,
};

fn encode_call(call: &Call) -> Bytes {
    let mut out = Vec::new();
    pb::encode_call(call, &mut out).unwrap();
    out.into()
}

fn encode_reply(op: Op, reply: &Reply) -> Bytes {
    let mut out = Vec::new();
    pb::encode_reply(op, reply, &mut out).unwrap();
    out.into()
}

/// The part of a value that v0.3 can express.
trait Kept {
    fn kept(self) -> Self;
}

macro_rules! kept {
    ($($ty:ty: |$value:ident| $kept:expr;)+) => {$(
        impl Kept for $ty {
            fn kept(self) -> Self {
                let $value = self;
                $kept
            }
        }
    )+};
}

kept! {
    Task: |task| task;
    SendMessageResponse: |sent| sent;
    GetTaskRequest: |req| Self { tenant: None, history_length: nonzero(req.history_length), ..req };
    CancelTaskRequest: |req| Self { tenant: None, metadata: Metadata::new(), ..req };
    SubscribeToTaskRequest: |req| Self { tenant: None, ..req };
    GetTaskPushNotificationConfigRequest: |req| Self { tenant: None, ..req };
    DeleteTaskPushNotificationConfigRequest: |req| Self { tenant: None, ..req };
    ListTaskPushNotificationConfigsRequest: |req| Self { tenant: None, ..req };
    GetExtendedAgentCardRequest: |_req| Self { tenant: None };
    TaskPushNotificationConfig: |config| Self { tenant: None, ..config };
    ListTaskPushNotificationConfigsResponse: |page| Self {
        configs: page.configs.into_iter().map(Kept::kept).collect(),
        ..page
    };
}

/// There is no presence: 0 is unset.
fn nonzero(length: Option<i32>) -> Option<i32> {
    length.filter(|length| *length != 0)
}

impl Kept for SendMessageRequest {
    fn kept(self) -> Self {
        let mut configuration = self.configuration.unwrap_or_default();
        configuration.history_length = nonzero(configuration.history_length);
        if let Some(config) = &mut configuration.task_push_notification_config {
            config.tenant = None;
            config.task_id = None;
        }
        Self { tenant: None, configuration: Some(configuration), ..self }
    }
}

impl Kept for Box<AgentCard> {
    fn kept(mut self) -> Self {
        let flags = &mut self.capabilities;
        for flag in [&mut flags.streaming, &mut flags.push_notifications, &mut flags.extended_agent_card] {
            *flag = flag.filter(|flag| *flag);
        }
        for text in [&mut self.documentation_url, &mut self.icon_url] {
            text.take_if(|text| text.is_empty());
        }
        self.signatures.clear();
        self.security_schemes.retain(|_, scheme| {
            let SecurityScheme::OAuth2(scheme) = scheme else { return true };
            if let OAuthFlows::AuthorizationCode(flow) = &mut scheme.flows {
                flow.pkce_required = false;
            }
            !matches!(scheme.flows, OAuthFlows::DeviceCode(_))
        });
        self
    }
}

/// A configuration of no task has no name, and one without an id gets that of its task.
fn push_config() -> impl Strategy<Value = TaskPushNotificationConfig> {
    any::push_config().prop_map(|mut config| {
        let task_id = config.task_id.get_or_insert_with(|| "t".into()).clone();
        config.id.get_or_insert_with(|| task_id.as_str().into());
        config
    })
}

fn page_of_push_configs() -> impl Strategy<Value = ListTaskPushNotificationConfigsResponse> {
    (proptest::collection::vec(push_config(), 0..3), any::page_of_push_configs())
        .prop_map(|(configs, page)| ListTaskPushNotificationConfigsResponse { configs, ..page })
}

/// A card that v0.3 clients reach, at distinct addresses.
fn card() -> impl Strategy<Value = Box<AgentCard>> {
    (any::boxed_card(), 1_usize..4).prop_map(|(mut card, count)| {
        let interface = |i| AgentInterface {
            url: format!("https://{i}.example"),
            protocol_binding: "GRPC".to_owned(),
            tenant: None,
            protocol_version: "0.3".to_owned(),
        };
        card.supported_interfaces = (0..count).map(interface).collect();
        card
    })
}

/// One test per operation: there and back, and against the ProtoJSON.
macro_rules! calls {
    ($($test:ident: $op:ident($strategy:expr) as $pb:ident;)+) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]
            $(#[test]
            fn $test(req in $strategy) {
                let call = Call::$op(Box::new(req.clone()));
                let bytes = encode_call(&call);
                let Call::$op(again) = pb::decode_call(Op::$op, bytes.clone()).unwrap() else { panic!("another call") };
                prop_assert_eq!(*again, req.kept());

                let mut json = Vec::new();
                Rest.encode_call(&call, &mut json).unwrap();
                let json = str::from_utf8(&json).unwrap();
                let name = concat!("a2a.v1.", stringify!($pb));
                prop_assert_eq!(of_json(name, json), of_bytes(name, &bytes), "{}", json);
            })+
        }
    };
}

calls! {
    send_message: SendMessage(any::send_request()) as SendMessageRequest;
    send_streaming_message: SendStreamingMessage(any::send_request()) as SendMessageRequest;
    get_task: GetTask(any::get_request()) as GetTaskRequest;
    cancel_task: CancelTask(any::cancel_request()) as CancelTaskRequest;
    subscribe_to_task: SubscribeToTask(any::subscribe_request()) as TaskSubscriptionRequest;
    create_config: CreateTaskPushNotificationConfig(push_config()) as CreateTaskPushNotificationConfigRequest;
    get_config: GetTaskPushNotificationConfig(any::get_config_request()) as GetTaskPushNotificationConfigRequest;
    list_configs: ListTaskPushNotificationConfigs(any::list_configs_request())
        as ListTaskPushNotificationConfigRequest;
    delete_config: DeleteTaskPushNotificationConfig(any::delete_config_request())
        as DeleteTaskPushNotificationConfigRequest;
    get_card: GetExtendedAgentCard(any::card_request()) as GetAgentCardRequest;
}

macro_rules! replies {
    ($($test:ident: $op:ident $reply:ident($strategy:expr) as $pb:ident;)+) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]
            $(#[test]
            fn $test(answer in $strategy) {
                let reply = Reply::$reply(answer.clone());
                let bytes = encode_reply(Op::$op, &reply);
                let Reply::$reply(again) = pb::decode_reply(Op::$op, bytes.clone()).unwrap() else { panic!("another reply") };
                prop_assert_eq!(again, answer.kept());

                let mut json = Vec::new();
                Rest.encode_reply(Op::$op, &reply, &mut json).unwrap();
                let json = str::from_utf8(&json).unwrap();
                let name = concat!("a2a.v1.", stringify!($pb));
                prop_assert_eq!(of_json(name, json), of_bytes(name, &bytes), "{}", json);
            })+
        }
    };
}

replies! {
    sent: SendMessage Sent(any::sent()) as SendMessageResponse;
    a_task: GetTask Task(any::task()) as Task;
    a_push_config: GetTaskPushNotificationConfig PushConfig(push_config()) as TaskPushNotificationConfig;
    a_page_of_push_configs: ListTaskPushNotificationConfigs PushConfigs(page_of_push_configs())
        as ListTaskPushNotificationConfigResponse;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn an_event(event in any::event()) {
        let mut bytes = Vec::new();
        pb::encode_event(&event, &mut bytes).unwrap();
        prop_assert_eq!(&pb::decode_event(bytes.clone().into()).unwrap(), &event);

        let mut json = Vec::new();
        Rest.encode_event(&event, &mut json);
        let json = str::from_utf8(&json).unwrap();
        let name = "a2a.v1.StreamResponse";
        prop_assert_eq!(of_json(name, json), of_bytes(name, &bytes), "{}", json);
    }

    // The JSON card is not ProtoJSON, so there is no second opinion.
    #[test]
    fn a_card(card in card()) {
        let bytes = encode_reply(Op::GetExtendedAgentCard, &Reply::Card(card.clone()));
        let Reply::Card(again) = pb::decode_reply(Op::GetExtendedAgentCard, bytes).unwrap() else { panic!("another reply") };
        prop_assert_eq!(again, card.kept());
    }
}

#[test]
fn there_is_no_list_tasks() {
    // REQ-206
    let call = Call::ListTasks(Box::default());
    let reply = Reply::Tasks(ListTasksResponse::default());
    for error in [
        pb::encode_call(&call, &mut Vec::new()).unwrap_err(),
        pb::decode_call(Op::ListTasks, Bytes::new()).unwrap_err(),
        pb::encode_reply(Op::ListTasks, &reply, &mut Vec::new()).unwrap_err(),
        pb::decode_reply(Op::ListTasks, Bytes::new()).err().unwrap(),
    ] {
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    }
    assert_eq!(pb::rpc_name(Op::ListTasks), None);
}

#[test]
fn every_other_operation_has_its_rpc() {
    for row in Op::TABLE.iter().filter(|row| row.op != Op::ListTasks) {
        assert_eq!(pb::op_from_rpc(pb::rpc_name(row.op).unwrap()), Some(row.op));
    }
    assert_eq!(pb::op_from_rpc("TaskSubscription"), Some(Op::SubscribeToTask));
    assert_eq!(pb::op_from_rpc("SubscribeToTask"), None);
}

#[test]
fn the_two_versions_never_share_a_path() {
    let (old, new) = (pb::CODEC, nuncio_protocol::pb::CODEC);
    assert_ne!(old.service, new.service);
    assert_eq!((old.version, new.version), (Version::V0_3, Version::V1_0));
}

#[test]
fn malformed_names_are_refused() {
    // REQ-067
    for (op, names) in [
        (Op::GetTask, &["", "t-1", "tasks/", "task/t-1", "tasks/t/pushNotificationConfigs/c"][..]),
        (Op::CancelTask, &["", "t-1"]),
        (Op::SubscribeToTask, &["", "t-1"]),
        (Op::CreateTaskPushNotificationConfig, &["", "t-1"]),
        (Op::ListTaskPushNotificationConfigs, &["", "t-1"]),
        (
            Op::GetTaskPushNotificationConfig,
            &["", "tasks/t", "tasks/t/pushNotificationConfigs/", "tasks//pushNotificationConfigs/c"],
        ),
        (Op::DeleteTaskPushNotificationConfig, &["", "tasks/t"]),
    ] {
        for name in names {
            // In all of these the name is field 1.
            let request = generated::CancelTaskRequest { name: (*name).to_owned() };
            let error = pb::decode_call(op, prost::Message::encode_to_vec(&request).into()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParams, "{op:?} {name}");
            assert!(["name", "parent"].contains(&&*error.violations()[0].field), "{error}");
        }
    }
}

#[test]
fn blocking_is_the_opposite() {
    // Trap T-22: without a configuration nothing was said, with one `false` was.
    let decode = |configuration| {
        let request = generated::SendMessageRequest { configuration, ..Default::default() };
        let bytes = prost::Message::encode_to_vec(&request).into();
        let Call::SendMessage(req) = pb::decode_call(Op::SendMessage, bytes).unwrap() else {
            panic!("another call")
        };
        req.configuration.map(|configuration| configuration.return_immediately)
    };
    let configuration = generated::SendMessageConfiguration::default();
    assert_eq!(decode(None), None);
    assert_eq!(decode(Some(configuration.clone())), Some(true));
    assert_eq!(
        decode(Some(generated::SendMessageConfiguration { blocking: true, ..configuration })),
        Some(false)
    );
}

#[test]
fn a_card_that_v03_does_not_reach_is_refused() {
    let mut card = AgentCard::default();
    card.supported_interfaces
        .push(AgentInterface { protocol_version: "1.0".to_owned(), ..Default::default() });
    let reply = Reply::Card(Box::new(card));
    let error = pb::encode_reply(Op::GetExtendedAgentCard, &reply, &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::VersionNotSupported);

    let error = pb::decode_reply(Op::GetExtendedAgentCard, Bytes::new()).err().unwrap();
    assert_eq!(error.message(), "invalid agent response: url: required");
}

#[test]
fn a_part_without_content_is_refused_by_its_field() {
    let file = generated::part::Part::File(generated::FilePart::default());
    for part in [generated::Part::default(), generated::Part { part: Some(file), metadata: None }] {
        let message = generated::Message { content: vec![part], ..Default::default() };
        let payload = Some(generated::stream_response::Payload::Msg(message));
        let bytes = prost::Message::encode_to_vec(&generated::StreamResponse { payload });
        let error = pb::decode_event(bytes.into()).unwrap_err();
        assert!(
            error.message().starts_with("invalid agent response: message.content[0]: none of"),
            "{error}"
        );
    }
}

#[test]
fn metadata_under_our_own_keys_survives() {
    for data in [json!({"value": 1}), json!({"value": 1, "more": 2}), json!([1]), json!(null)] {
        for own in [json!({"filename": "x"}), json!({"no": "leftover"}), json!(3), json!({})] {
            let mut part = Part::data(data.clone()).with_filename("f").with_media_type("m/t");
            part.metadata.insert("data_part_compat", json!(true));
            part.metadata.insert(LEFTOVER, own.clone());
            let mut message = Message::user("m", part);
            message.metadata.insert(LEFTOVER, own);
            message.reference_task_ids.push("t-1".into());
            let event = Event::Message(message.into());
            let mut bytes = Vec::new();
            pb::encode_event(&event, &mut bytes).unwrap();
            assert_eq!(pb::decode_event(bytes.into()).unwrap(), event);
        }
    }
}

#[test]
fn the_last_update_says_so() {
    // REQ-147
    for (state, last) in [(2, false), (3, true), (6, true), (8, false)] {
        let status = Some(generated::TaskStatus { state, ..Default::default() });
        let update = generated::TaskStatusUpdateEvent { status, r#final: !last, ..Default::default() };
        let payload = Some(generated::stream_response::Payload::StatusUpdate(update));
        let bytes = prost::Message::encode_to_vec(&generated::StreamResponse { payload });
        let event: Event = pb::decode_event(bytes.into()).unwrap();
        let mut out = Vec::new();
        pb::encode_event(&event, &mut out).unwrap();
        let again: generated::StreamResponse = prost::Message::decode(&*out).unwrap();
        let Some(generated::stream_response::Payload::StatusUpdate(update)) = again.payload else {
            panic!("another")
        };
        assert_eq!(update.r#final, last, "{state}");
    }
}
