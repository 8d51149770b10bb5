//! Official SDKs in rooms: their servers as agents in both seats, of either version, and their clients at a seat.

use std::fs;

use nuncio_protocol::{Binding, Version};
use nuncio_tests::{
    data::Folder,
    eventually,
    hub::{Hub, cli},
    peer::{self, Peer},
};
use serde_json::Value;

use crate::sdk::{JAVASCRIPT_1, JAVASCRIPT_03, PYTHON_1, PYTHON_03, Sdk};

/// A hub with a room of these settings, and the flags of its administration.
async fn hub(folder: &Folder, settings: &str) -> (Hub, Vec<String>) {
    let (file, token) = (folder.path().join("nuncio.toml"), folder.path().join("token"));
    fs::write(&file, settings).unwrap();
    let (file, token) = (file.to_str().unwrap().to_owned(), token.to_str().unwrap().to_owned());
    let args = ["--config", &file, "--admin", "127.0.0.1:0", "--admin-token-file", &token];
    let hub = Hub::of_agents("127.0.0.1:0", &args).await;
    let admin = format!("http://{}", hub.announced["admin"]["listen"].as_str().unwrap());
    (hub, ["--admin", &admin, "--admin-token-file", &token].map(str::to_owned).to_vec())
}

/// The last round of the room, once it has ended.
async fn ended(admin: &[String]) -> Value {
    let args: Vec<&str> = ["room", "show", "talk", "--content", "-o", "json"]
        .into_iter()
        .chain(admin.iter().map(|arg| &**arg))
        .collect();
    eventually("the end of the round", async || {
        let output = cli(&args).await;
        let mut shown: Value = serde_json::from_str(&output.stdout).unwrap();
        let round = shown["rounds"].as_array_mut().unwrap().pop()?;
        (round["seats"][1]["state"] == "TASK_STATE_FAILED").then_some(round)
    })
    .await
}

/// Two agents talk from the opening to the last turn, each in its own version.
async fn talk(first: (&Sdk, Version), second: (&Sdk, Version)) {
    let a = Peer::start(&first.0.server(), first.0.args(first.1)).await;
    let b = Peer::start(&second.0.server(), second.0.args(second.1)).await;
    let settings = format!(
        "[rooms.talk]\nagent_a = \"{}\"\nagent_b = \"{}\"\nopening = \"Shall we?\"\nmax_turns = 4\n",
        a.url, b.url
    );
    let folder = Folder::new();
    let (_hub, admin) = hub(&folder, &settings).await;
    let round = ended(&admin).await;
    let seats = round["seats"].as_array().unwrap();
    let said: Vec<&str> = seats[0]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["from"].as_str().unwrap())
        .collect();
    assert_eq!(said, ["a", "b", "a", "b"], "{round}");
    assert_eq!(seats[0]["messages"], seats[1]["messages"]);
    for message in seats[0]["messages"].as_array().unwrap() {
        assert_eq!(message["text"], "Shall we?", "every agent echoes");
    }
    assert_eq!(seats[0]["artifacts"], seats[1]["artifacts"], "both sides have the artifacts");
    let makers: Vec<&str> = seats[0]["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|made| made["maker"].as_str().unwrap())
        .collect();
    assert_eq!(makers, ["b", "a", "b"]);
    assert_eq!(seats[1]["ended"], "max-turns");
}

#[tokio::test(flavor = "multi_thread")]
async fn python_agents_of_two_versions_talk_in_a_room() {
    talk((&PYTHON_1, Version::V1_0), (&PYTHON_03, Version::V0_3)).await;
    talk((&PYTHON_03, Version::V0_3), (&PYTHON_1, Version::V1_0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_agents_of_two_versions_talk_in_a_room() {
    talk((&JAVASCRIPT_1, Version::V1_0), (&JAVASCRIPT_03, Version::V0_3)).await;
    talk((&JAVASCRIPT_03, Version::V0_3), (&PYTHON_1, Version::V1_0)).await;
}

/// A room with an echo in the other seat is an echo to a caller: the checks of the SDK's client pass as they do against
/// the echo itself.
#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_sdks_hold_a_seat() {
    let settings =
        "[agents.echo]\ndemo = \"echo\"\n[rooms.talk]\nagent_b = \"echo\"\nrounds = \"parallel\"\n";
    let folder = Folder::new();
    let (hub, _) = hub(&folder, settings).await;
    for (sdk, version) in [
        (&PYTHON_1, Version::V1_0),
        (&JAVASCRIPT_1, Version::V1_0),
        (&PYTHON_03, Version::V0_3),
        (&JAVASCRIPT_03, Version::V0_3),
    ] {
        for binding in [Binding::JsonRpc, Binding::HttpJson] {
            let report = peer::check(&sdk.client(), &hub.agent("talk"), binding, sdk.args(version)).await;
            for check in ["card", "send", "stream", "get", "not_found", "cancel", "finished"] {
                assert!(
                    report.passed.iter().any(|passed| passed == check),
                    "{version} {binding:?}: {report:?}"
                );
            }
        }
    }
}
