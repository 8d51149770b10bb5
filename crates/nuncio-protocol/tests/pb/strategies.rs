//! Any value of every type of the protocol, as far as both JSON and protobuf can say it: integers up to
//! 2^53, floats that are no integers, moments in milliseconds, and no set but empty optional strings.

use std::{collections::BTreeMap, sync::Arc};

use nuncio_protocol::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider,
    AgentSkill, ApiKeySecurityScheme, Artifact, AuthenticationInfo, AuthorizationCodeOAuthFlow,
    CancelTaskRequest, ClientCredentialsOAuthFlow, Content, DeleteTaskPushNotificationConfigRequest,
    DeviceCodeOAuthFlow, Event, GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest,
    GetTaskRequest, HttpAuthSecurityScheme, ImplicitOAuthFlow, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, Message, Metadata,
    MutualTlsSecurityScheme, OAuth2SecurityScheme, OAuthFlows, OpenIdConnectSecurityScheme, Part,
    PasswordOAuthFlow, Role, Scopes, SecurityRequirement, SecurityScheme, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, StringList, SubscribeToTaskRequest, Task,
    TaskArtifactUpdateEvent, TaskPushNotificationConfig, TaskState, TaskStatus, TaskStatusUpdateEvent,
    Timestamp,
};
use proptest::{collection, option, prelude::*, sample::select};
use serde_json::{Number, Value};

/// Any text, also empty, with what JSON must escape.
fn text() -> impl Strategy<Value = String> {
    "[a-zé😀 \"\\\\\n/]{0,6}"
}

/// A value that is not empty if present.
fn word() -> impl Strategy<Value = String> {
    "[a-z0-9_.-]{1,6}"
}

fn maybe_word() -> impl Strategy<Value = Option<String>> {
    option::of(word())
}

fn words() -> impl Strategy<Value = Vec<String>> {
    collection::vec(text(), 0..3)
}

fn id<T: From<String> + std::fmt::Debug>() -> impl Strategy<Value = T> {
    word().prop_map(T::from)
}

fn maybe_id<T: From<String> + std::fmt::Debug>() -> impl Strategy<Value = Option<T>> {
    option::of(id())
}

pub(crate) fn json() -> impl Strategy<Value = Value> {
    let integer = -(1_i64 << 53)..=1_i64 << 53;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        integer.prop_map(Value::from),
        any::<i32>().prop_map(|n| Number::from_f64(f64::from(n) + 0.25).map_or(Value::Null, Value::Number)),
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            collection::vec((text(), inner), 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

pub(crate) fn metadata() -> impl Strategy<Value = Metadata> {
    prop_oneof![
        2 => Just(Metadata::new()),
        1 => collection::vec((text(), json()), 0..3).prop_map(|members| members.into_iter().collect()),
    ]
}

fn moment() -> impl Strategy<Value = Timestamp> {
    // The years 1 to 9999.
    (-62_135_596_800_000_i64..253_370_000_000_000).prop_filter_map("a date", Timestamp::from_millis)
}

fn part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        text().prop_map(Content::Text),
        collection::vec(any::<u8>(), 0..9).prop_map(|bytes| Content::Raw(bytes.into())),
        // Looks like base64 text, or does when it is written as such.
        "([A-Za-z0-9+/]{4}){3,5}".prop_map(|text| Content::Raw(text.into())),
        text().prop_map(Content::Url),
        json().prop_map(|json| Content::Data(json.into())),
    ];
    (content, metadata(), maybe_word(), maybe_word()).prop_map(|(content, metadata, filename, media_type)| {
        Part { content, metadata, filename, media_type }
    })
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    collection::vec(part(), 0..3)
}

pub(crate) fn message() -> impl Strategy<Value = Message> {
    let names = (id(), maybe_id(), maybe_id(), select(Role::ALL));
    (names, parts(), metadata(), words(), collection::vec(id(), 0..3)).prop_map(
        |((message_id, context_id, task_id, role), parts, metadata, extensions, reference_task_ids)| {
            Message { message_id, context_id, task_id, role, parts, metadata, extensions, reference_task_ids }
        },
    )
}

fn artifact() -> impl Strategy<Value = Artifact> {
    (id(), text(), text(), parts(), metadata(), words()).prop_map(
        |(artifact_id, name, description, parts, metadata, extensions)| Artifact {
            artifact_id,
            name,
            description,
            parts,
            metadata,
            extensions,
        },
    )
}

fn status() -> impl Strategy<Value = TaskStatus> {
    (select(TaskState::ALL), option::of(message().prop_map(Arc::new)), option::of(moment()))
        .prop_map(|(state, message, timestamp)| TaskStatus { state, message, timestamp })
}

pub(crate) fn task() -> impl Strategy<Value = Task> {
    let artifacts = collection::vec(artifact().prop_map(Arc::new), 0..3);
    let history = collection::vec(message().prop_map(Arc::new), 0..3);
    (id(), id(), status(), artifacts, history, metadata()).prop_map(
        |(id, context_id, status, artifacts, history, metadata)| Task {
            id,
            context_id,
            status,
            artifacts,
            history,
            metadata,
        },
    )
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let status = (id(), id(), status(), metadata()).prop_map(|(task_id, context_id, status, metadata)| {
        Event::StatusUpdate(TaskStatusUpdateEvent { task_id, context_id, status, metadata })
    });
    let artifact = (id(), id(), artifact(), any::<(bool, bool)>(), metadata()).prop_map(
        |(task_id, context_id, artifact, (append, last_chunk), metadata)| {
            let artifact = Arc::new(artifact);
            Event::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id,
                context_id,
                artifact,
                append,
                last_chunk,
                joins: false,
                metadata,
            })
        },
    );
    prop_oneof![
        task().prop_map(Event::Task),
        message().prop_map(|message| Event::Message(Arc::new(message))),
        status,
        artifact,
    ]
}

pub(crate) fn sent() -> impl Strategy<Value = SendMessageResponse> {
    prop_oneof![
        task().prop_map(SendMessageResponse::Task),
        message().prop_map(|message| SendMessageResponse::Message(Arc::new(message))),
    ]
}

pub(crate) fn page_of_tasks() -> impl Strategy<Value = ListTasksResponse> {
    (collection::vec(task(), 0..2), text(), any::<(i32, i32)>()).prop_map(
        |(tasks, next_page_token, (page_size, total_size))| ListTasksResponse {
            tasks,
            next_page_token,
            page_size,
            total_size,
            ..ListTasksResponse::default()
        },
    )
}

pub(crate) fn push_config() -> impl Strategy<Value = TaskPushNotificationConfig> {
    let authentication =
        (word(), maybe_word()).prop_map(|(scheme, credentials)| AuthenticationInfo { scheme, credentials });
    (maybe_word(), maybe_id(), maybe_id(), text(), maybe_word(), option::of(authentication)).prop_map(
        |(tenant, id, task_id, url, token, authentication)| TaskPushNotificationConfig {
            tenant,
            id,
            task_id,
            url,
            token,
            authentication,
        },
    )
}

pub(crate) fn page_of_push_configs() -> impl Strategy<Value = ListTaskPushNotificationConfigsResponse> {
    (collection::vec(push_config(), 0..3), text()).prop_map(|(configs, next_page_token)| {
        ListTaskPushNotificationConfigsResponse { configs, next_page_token }
    })
}

pub(crate) fn send_request() -> impl Strategy<Value = SendMessageRequest> {
    let configuration = (words(), option::of(push_config()), option::of(any::<i32>()), any::<bool>())
        .prop_map(
            |(accepted_output_modes, task_push_notification_config, history_length, return_immediately)| {
                SendMessageConfiguration {
                    accepted_output_modes,
                    task_push_notification_config,
                    history_length,
                    return_immediately,
                }
            },
        );
    (maybe_word(), message(), option::of(configuration), metadata()).prop_map(
        |(tenant, message, configuration, metadata)| SendMessageRequest {
            tenant,
            message,
            configuration,
            metadata,
        },
    )
}

pub(crate) fn get_request() -> impl Strategy<Value = GetTaskRequest> {
    (maybe_word(), id(), option::of(any::<i32>())).prop_map(|(tenant, id, history_length)| GetTaskRequest {
        tenant,
        id,
        history_length,
    })
}

pub(crate) fn list_request() -> impl Strategy<Value = ListTasksRequest> {
    let status = option::of(select(&TaskState::ALL[1..]));
    let sizes = (option::of(any::<i32>()), option::of(any::<i32>()), option::of(any::<bool>()));
    (maybe_word(), maybe_id(), status, maybe_word(), option::of(moment()), sizes).prop_map(
        |(tenant, context_id, status, page_token, status_timestamp_after, sizes)| ListTasksRequest {
            tenant,
            context_id,
            status,
            page_size: sizes.0,
            page_token,
            history_length: sizes.1,
            status_timestamp_after,
            include_artifacts: sizes.2,
        },
    )
}

pub(crate) fn cancel_request() -> impl Strategy<Value = CancelTaskRequest> {
    (maybe_word(), id(), metadata()).prop_map(|(tenant, id, metadata)| CancelTaskRequest {
        tenant,
        id,
        metadata,
    })
}

pub(crate) fn subscribe_request() -> impl Strategy<Value = SubscribeToTaskRequest> {
    (maybe_word(), id()).prop_map(|(tenant, id)| SubscribeToTaskRequest { tenant, id })
}

pub(crate) fn get_config_request() -> impl Strategy<Value = GetTaskPushNotificationConfigRequest> {
    (maybe_word(), id(), id()).prop_map(|(tenant, task_id, id)| GetTaskPushNotificationConfigRequest {
        tenant,
        task_id,
        id,
    })
}

pub(crate) fn delete_config_request() -> impl Strategy<Value = DeleteTaskPushNotificationConfigRequest> {
    (maybe_word(), id(), id()).prop_map(|(tenant, task_id, id)| DeleteTaskPushNotificationConfigRequest {
        tenant,
        task_id,
        id,
    })
}

pub(crate) fn list_configs_request() -> impl Strategy<Value = ListTaskPushNotificationConfigsRequest> {
    (maybe_word(), id(), any::<i32>(), maybe_word()).prop_map(|(tenant, task_id, page_size, page_token)| {
        ListTaskPushNotificationConfigsRequest { tenant, task_id, page_size, page_token }
    })
}

pub(crate) fn card_request() -> impl Strategy<Value = GetExtendedAgentCardRequest> {
    maybe_word().prop_map(|tenant| GetExtendedAgentCardRequest { tenant })
}

fn scopes() -> impl Strategy<Value = Scopes> {
    collection::btree_map(text(), text(), 0..3)
}

pub(crate) fn flows() -> impl Strategy<Value = OAuthFlows> {
    let urls = || (text(), text(), text(), scopes());
    prop_oneof![
        (urls(), any::<bool>()).prop_map(
            |((authorization_url, token_url, refresh_url, scopes), pkce_required)| {
                OAuthFlows::AuthorizationCode(AuthorizationCodeOAuthFlow {
                    authorization_url,
                    token_url,
                    refresh_url,
                    scopes,
                    pkce_required,
                })
            }
        ),
        urls().prop_map(|(_, token_url, refresh_url, scopes)| OAuthFlows::ClientCredentials(
            ClientCredentialsOAuthFlow { token_url, refresh_url, scopes }
        )),
        urls().prop_map(|(authorization_url, _, refresh_url, scopes)| OAuthFlows::Implicit(
            ImplicitOAuthFlow { authorization_url, refresh_url, scopes }
        )),
        urls().prop_map(|(_, token_url, refresh_url, scopes)| OAuthFlows::Password(PasswordOAuthFlow {
            token_url,
            refresh_url,
            scopes
        })),
        urls().prop_map(|(device_authorization_url, token_url, refresh_url, scopes)| OAuthFlows::DeviceCode(
            DeviceCodeOAuthFlow { device_authorization_url, token_url, refresh_url, scopes }
        )),
    ]
}

pub(crate) fn scheme() -> impl Strategy<Value = SecurityScheme> {
    prop_oneof![
        (text(), text(), text()).prop_map(|(description, location, name)| SecurityScheme::ApiKey(
            ApiKeySecurityScheme { description, location, name }
        )),
        (text(), text(), text()).prop_map(|(description, scheme, bearer_format)| SecurityScheme::HttpAuth(
            HttpAuthSecurityScheme { description, scheme, bearer_format }
        )),
        (text(), flows(), text()).prop_map(|(description, flows, oauth2_metadata_url)| {
            SecurityScheme::OAuth2(OAuth2SecurityScheme { description, flows, oauth2_metadata_url })
        }),
        (text(), text()).prop_map(|(description, open_id_connect_url)| SecurityScheme::OpenIdConnect(
            OpenIdConnectSecurityScheme { description, open_id_connect_url }
        )),
        text().prop_map(|description| SecurityScheme::MutualTls(MutualTlsSecurityScheme { description })),
    ]
}

fn requirements() -> impl Strategy<Value = Vec<SecurityRequirement>> {
    let schemes = collection::btree_map(text(), words().prop_map(|list| StringList { list }), 0..3);
    collection::vec(schemes.prop_map(|schemes| SecurityRequirement { schemes }), 0..3)
}

fn skill() -> impl Strategy<Value = AgentSkill> {
    ((text(), text(), text()), words(), words(), words(), words(), requirements()).prop_map(
        |((id, name, description), tags, examples, input_modes, output_modes, security_requirements)| {
            AgentSkill {
                id,
                name,
                description,
                tags,
                examples,
                input_modes,
                output_modes,
                security_requirements,
            }
        },
    )
}

fn capabilities() -> impl Strategy<Value = AgentCapabilities> {
    let extension =
        (text(), text(), any::<bool>(), metadata()).prop_map(|(uri, description, required, params)| {
            AgentExtension { uri, description, required, params }
        });
    (any::<[Option<bool>; 3]>(), collection::vec(extension, 0..3)).prop_map(
        |([streaming, push_notifications, extended_agent_card], extensions)| AgentCapabilities {
            streaming,
            push_notifications,
            extensions,
            extended_agent_card,
            // Neither proto has it.
            state_transition_history: None,
        },
    )
}

fn interface() -> impl Strategy<Value = AgentInterface> {
    (text(), text(), maybe_word(), text()).prop_map(|(url, protocol_binding, tenant, protocol_version)| {
        AgentInterface { url, protocol_binding, tenant, protocol_version }
    })
}

pub(crate) fn card() -> impl Strategy<Value = AgentCard> {
    let provider = (text(), text()).prop_map(|(url, organization)| AgentProvider { url, organization });
    let signature = (text(), text(), metadata())
        .prop_map(|(protected, signature, header)| AgentCardSignature { protected, signature, header });
    let texts = (text(), text(), text(), option::of(text()), option::of(text()));
    let lists = (
        collection::vec(interface(), 0..3),
        words(),
        words(),
        collection::vec(skill(), 0..2),
        collection::vec(signature, 0..2),
    );
    let security = (collection::btree_map(text(), scheme(), 0..3), requirements());
    (texts, lists, option::of(provider), capabilities(), security).prop_map(
        |(texts, lists, provider, capabilities, security): (_, _, _, _, (BTreeMap<_, _>, _))| AgentCard {
            name: texts.0,
            description: texts.1,
            supported_interfaces: lists.0,
            provider,
            version: texts.2,
            documentation_url: texts.3,
            capabilities,
            security_schemes: security.0,
            security_requirements: security.1,
            default_input_modes: lists.1,
            default_output_modes: lists.2,
            skills: lists.3,
            signatures: lists.4,
            icon_url: texts.4,
        },
    )
}

pub(crate) fn boxed_card() -> impl Strategy<Value = Box<AgentCard>> {
    card().prop_map(Box::new)
}
