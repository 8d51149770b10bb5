//! Golden JSON of v1.0: `tests/data/v1`, one case per file, named after its type.
//!
//! `type.case.json` is read and written again as it is. `type.case.in.json` is liberal input (REQ-010 to
//! REQ-013, REQ-021, traps T-12, T-13, T-28, T-30, T-40) and is written as `type.case.out.json`.

use std::{collections::BTreeSet, fs};

use nuncio_protocol as a2a;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

fn rewrite<T: Serialize + DeserializeOwned>(json: &str) -> Result<Value, serde_json::Error> {
    let value: T = serde_json::from_str(json)?;
    serde_json::to_value(value)
}

type Rewrite = fn(&str) -> Result<Value, serde_json::Error>;

/// Every type of the specification's data model by the prefix of its files.
const TYPES: &[(&str, Rewrite)] = &[
    ("agent-capabilities", rewrite::<a2a::AgentCapabilities>),
    ("agent-card", rewrite::<a2a::AgentCard>),
    ("agent-card-signature", rewrite::<a2a::AgentCardSignature>),
    ("agent-extension", rewrite::<a2a::AgentExtension>),
    ("agent-interface", rewrite::<a2a::AgentInterface>),
    ("agent-provider", rewrite::<a2a::AgentProvider>),
    ("agent-skill", rewrite::<a2a::AgentSkill>),
    ("artifact", rewrite::<a2a::Artifact>),
    ("authentication-info", rewrite::<a2a::AuthenticationInfo>),
    ("cancel-task-request", rewrite::<a2a::CancelTaskRequest>),
    ("delete-task-push-notification-config-request", rewrite::<a2a::DeleteTaskPushNotificationConfigRequest>),
    ("get-extended-agent-card-request", rewrite::<a2a::GetExtendedAgentCardRequest>),
    ("get-task-push-notification-config-request", rewrite::<a2a::GetTaskPushNotificationConfigRequest>),
    ("get-task-request", rewrite::<a2a::GetTaskRequest>),
    ("list-task-push-notification-configs-request", rewrite::<a2a::ListTaskPushNotificationConfigsRequest>),
    ("list-task-push-notification-configs-response", rewrite::<a2a::ListTaskPushNotificationConfigsResponse>),
    ("list-tasks-request", rewrite::<a2a::ListTasksRequest>),
    ("list-tasks-response", rewrite::<a2a::ListTasksResponse>),
    ("message", rewrite::<a2a::Message>),
    ("o-auth-flows", rewrite::<a2a::OAuthFlows>),
    ("part", rewrite::<a2a::Part>),
    ("security-requirement", rewrite::<a2a::SecurityRequirement>),
    ("security-scheme", rewrite::<a2a::SecurityScheme>),
    ("send-message-configuration", rewrite::<a2a::SendMessageConfiguration>),
    ("send-message-request", rewrite::<a2a::SendMessageRequest>),
    ("send-message-response", rewrite::<a2a::SendMessageResponse>),
    ("stream-response", rewrite::<a2a::Event>),
    ("string-list", rewrite::<a2a::StringList>),
    ("subscribe-to-task-request", rewrite::<a2a::SubscribeToTaskRequest>),
    ("task", rewrite::<a2a::Task>),
    ("task-artifact-update-event", rewrite::<a2a::TaskArtifactUpdateEvent>),
    ("task-push-notification-config", rewrite::<a2a::TaskPushNotificationConfig>),
    ("task-status", rewrite::<a2a::TaskStatus>),
    ("task-status-update-event", rewrite::<a2a::TaskStatusUpdateEvent>),
];

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/v1");

fn golden_files() -> BTreeSet<String> {
    let names = fs::read_dir(FOLDER).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(format!("{FOLDER}/{file}")).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Reads `file` as the type of its prefix and compares what is written to `expected`.
fn check(file: &str, expected: &str) -> Result<(), String> {
    let prefix = file.split('.').next().unwrap();
    let (_, rewrite) =
        TYPES.iter().find(|(name, _)| *name == prefix).ok_or(format!("{file}: no such type"))?;
    let written = rewrite(&read(file)).map_err(|error| format!("{file}: {error}"))?;
    let expected: Value =
        serde_json::from_str(&read(expected)).map_err(|error| format!("{expected}: {error}"))?;
    if written == expected {
        return Ok(());
    }
    Err(format!("{file}\n--- expected\n{expected:#}\n--- written\n{written:#}"))
}

#[test]
fn every_golden_file_is_written_as_it_should_be() {
    let failures: Vec<String> = golden_files()
        .iter()
        .filter_map(|file| match file.strip_suffix(".in.json") {
            Some(case) => check(file, &format!("{case}.out.json")).err(),
            None => check(file, file).err(),
        })
        .collect();
    assert!(failures.is_empty(), "{} cases differ\n\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn every_type_has_a_full_and_a_minimal_form() {
    let files = golden_files();
    for (name, _) in TYPES {
        for form in ["full", "minimal"] {
            assert!(files.contains(&format!("{name}.{form}.json")), "{name}.{form}.json is missing");
        }
    }
}
