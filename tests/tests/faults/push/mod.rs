//! Notifications, with real receivers that are away, slow, broken or hostile, and hubs that are killed.
//!
//! | file | what it holds |
//! |---|---|
//! | `down` | a receiver that comes late |
//! | `bad` | every kind of bad receiver, beside a good one |
//! | `kills` | `kill -9` between an attempt and its record |
//! | `pair` | two hubs on one database, one of which dies |
//! | `delete` | nothing comes after a webhook is deleted |
//! | `crowd` | thousands of tasks while half of the receivers hang |
//! | `outage` | PostgreSQL goes away in mid-delivery |
//! | `key` | copies of a store, and a key that does not fit |

mod bad;
mod crowd;
mod delete;
mod down;
mod key;
mod kills;
mod outage;
mod pair;

use std::{collections::HashMap, net::SocketAddr, path::Path, sync::Arc};

use nuncio_client::{Candidate, Credentials, Direct, Egress};
use nuncio_protocol::{
    A2aService, AgentInterface, Binding, CallContext, Event, GetTaskRequest, SendMessageRequest, Seq,
    StreamItem, Task, TaskId, TaskPushNotificationConfig, Version,
    wire::{Dialect as _, V1},
};
use nuncio_tests::{
    eventually,
    hub::{Hub, cli},
    receiver::{Post, Receiver},
};
use serde_json::Value;
use url::Url;

use crate::{
    ledger::Ledger,
    load::{a_task, cx, insist, log_after, say},
    path,
};

/// An agent of a hub, in this version, by JSON-RPC.
fn agent(hub: SocketAddr, name: &str, version: Version) -> Arc<dyn A2aService> {
    let home = Url::parse(&format!("http://{hub}/")).unwrap();
    let interface = AgentInterface {
        url: format!("{home}agents/{name}"),
        protocol_binding: Binding::JsonRpc.as_str().to_owned(),
        tenant: None,
        protocol_version: version.as_str().to_owned(),
    };
    let candidate = Candidate { interface, version, binding: Binding::JsonRpc };
    Arc::new(Direct::new(&Egress::operator().unwrap(), &candidate, &Credentials::none(), &home).unwrap())
}

/// Words to an agent, of whose task this address is to be told.
fn say_and_tell(words: &str, url: String) -> SendMessageRequest {
    let mut req = say(words, true);
    let config = TaskPushNotificationConfig { url, ..TaskPushNotificationConfig::default() };
    if let Some(configuration) = &mut req.configuration {
        configuration.task_push_notification_config = Some(config);
    }
    req
}

/// Begins a task, insisting.
async fn begin(service: &dyn A2aService, version: Version, req: &SendMessageRequest) -> TaskId {
    let attempt = || async {
        let key = Some(req.message.message_id.as_str().to_owned());
        let cx = CallContext { idempotency_key: key, version, ..cx() };
        service.send_message(&cx, req.clone()).await
    };
    a_task(insist(&Ledger::default(), "send", attempt).await.unwrap()).id
}

/// A task that has ended, and its log.
async fn ended(service: &dyn A2aService, id: &TaskId) -> (Task, Vec<StreamItem>) {
    let task = eventually("the end of a task", async || {
        let req = GetTaskRequest { id: id.clone(), ..GetTaskRequest::default() };
        service.get_task(&cx(), req).await.ok().filter(|task| task.status.state.is_terminal())
    });
    let task = task.await;
    let log = log_after(service, &task, Seq::ZERO).await;
    (task, log)
}

/// The entries of a log that webhooks are told of.
fn owed(log: &[StreamItem]) -> Vec<(u64, &Event)> {
    let tells = |event: &Event| match event {
        Event::Task(_) | Event::StatusUpdate(_) => true,
        Event::ArtifactUpdate(update) => update.last_chunk,
        Event::Message(_) => false,
    };
    let entries = log.iter().map(|item| (item.seq().unwrap().0, &**item.event()));
    entries.filter(|(_, event)| tells(event)).collect()
}

/// Waits until everything of a log has come to a path, then looks at it: all came, first in the order of the log,
/// repeated as what it was. Gives how many were repeated.
async fn arrived(receiver: &Receiver, path: &str, log: &[StreamItem], version: Version) -> usize {
    let owed = owed(log);
    let last = owed.iter().map(|(seq, _)| *seq).collect::<Vec<_>>();
    let what = format!("all notifications to {path}");
    let posts = eventually(&what, async || {
        let posts = receiver.posts_to(path);
        last.iter().all(|seq| posts.iter().any(|post| post.seq() == *seq)).then_some(posts)
    });
    let posts = posts.await;
    check(path, &posts, &owed, version)
}

fn check(path: &str, posts: &[Arc<Post>], owed: &[(u64, &Event)], version: Version) -> usize {
    let mut first: Vec<&Post> = Vec::new();
    let mut last: HashMap<u64, &Post> = HashMap::new();
    for post in posts {
        assert_eq!(post.webhook(), posts[0].webhook(), "{path}: one webhook has one name");
        assert_eq!(post.header("a2a-version"), version.as_str(), "{path}");
        if let Some(before) = last.insert(post.seq(), post) {
            assert!(before.attempt() <= post.attempt(), "{path}: {before:?} before {post:?}");
            let same = version == Version::V0_3 || before.body == post.body;
            assert!(same, "{path}: one id, two bodies: {before:?} and {post:?}");
        } else {
            first.push(post);
        }
    }
    let came: Vec<_> = first.iter().map(|post| post.seq()).collect();
    let expected: Vec<_> = owed.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(came, expected, "{path}: all of them, in the order of the log");
    for (post, (_, event)) in first.iter().zip(owed) {
        check_body(post, event, version);
    }
    posts.len() - first.len()
}

fn check_body(post: &Post, event: &Event, version: Version) {
    let body: Value = serde_json::from_slice(&post.body).unwrap_or_else(|error| panic!("{error}: {post:?}"));
    match (version, event) {
        (Version::V0_3, _) => assert_eq!(body["kind"], "task", "{body}"),
        // It is put together of its pieces.
        (Version::V1_0, Event::ArtifactUpdate(_)) => {
            assert_ne!(body["artifactUpdate"], Value::Null, "{body}")
        }
        (Version::V1_0, event) => {
            let mut expected = Vec::new();
            V1.encode_event(&Arc::new(event.clone()), &mut expected);
            assert_eq!(body, serde_json::from_slice::<Value>(&expected).unwrap());
        }
    }
}

/// The administration of a hub.
struct Admin {
    url: String,
    token_file: String,
}

impl Admin {
    /// A hub at this address with its administration.
    async fn hub(listen: &str, token_file: &Path, args: &[&str]) -> (Hub, Self) {
        let token_file = path(token_file).to_owned();
        let admin = ["--allow-private-push", "--admin", "127.0.0.1:0", "--admin-token-file", &token_file];
        let hub = Hub::start_at(listen, &[&admin, args].concat()).await;
        let url = format!("http://{}", hub.announced["admin"]["listen"].as_str().unwrap());
        (hub, Self { url, token_file })
    }

    /// The output of `nuncio delivery …`.
    async fn delivery(&self, args: &[&str]) -> Vec<Value> {
        let hub = ["--admin", &self.url, "--admin-token-file", &self.token_file, "-o", "json"];
        let output = cli(&[&["delivery"], args, &hub].concat()).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The deliveries of a task, by event.
    async fn of(&self, task: &TaskId) -> Vec<Value> {
        let mut all = self.delivery(&["list", "--task", task.as_str()]).await;
        all.sort_by_key(|delivery| delivery["eventId"].as_u64());
        all
    }
}
