//! The typed client against a hub in this process: every route of the hub's table, answers and refusals.

use std::{collections::BTreeSet, path::Path};

use nuncio_hub::{
    Hub,
    admin::api::{
        AcceptAccess, AccessCaller, AccessFilter, AccessState, AddAgent, AddRoom, AgentSettings, AuditAgent,
        AuditRequest, BlockAccess, CancelTask, CancelTrial, ChangeAgent, CreateAdminToken, CreateInvitation,
        CreateKey, CreateMailbox, DeclineAccess, DeleteKey, DeliveryFilter, EnableMailbox, EraseTasks,
        ErasureTarget, EventKind, EventOptions, FollowEvents, HubEvent, JoinSeat, KeyRotation, LeaveSeat,
        ListAccess, ListAdminTokens, ListAgents, ListDeliveries, ListDeliveryHosts, ListHubs,
        ListInvitations, ListKeys, ListMailboxes, ListRooms, ListTaskArtifacts, ListTasks, ListTrail,
        ListTrials, MailboxRetry, MailboxRotation, NewAdminToken, NewAgent, NewInvitation, NewKey,
        NewMailbox, NewRoom, NewTrial, OpenDashboard, Paging, PauseDeliveryHost, RecordRoom,
        RecordingRequest, RedriveDeliveries, RedriveFilter, RefreshAgent, ReloadConfig, ReloadOptions,
        RemoveAgent, RemoveMailbox, RemoveRoom, ReplayDelivery, ResetRoom, ResumeDeliveryHost, RetryMailbox,
        RevokeAccess, RevokeAdminToken, RevokeInvitation, RevokeKey, Role, RoomEvent, RoomOptions,
        RoomResetOptions, RotateKey, RotateMailbox, SayAtSeat, SeatJoin, SeatLeaving, SeatOptions, SeatWords,
        SendTrial, ShowAbout, ShowAgent, ShowAgentHealth, ShowArtifactPart, ShowAudit, ShowConfig,
        ShowDelivery, ShowDiagnostics, ShowDocument, ShowHealth, ShowKey, ShowMailbox, ShowRoom, ShowSeat,
        ShowStats, ShowTask, ShowTrial, StatsOptions, StoreKind, TakeOver, TakeOverLeases, TakeOverSeat,
        TaskFilter, TimelineOptions, TrailFilter, WatchOptions, WatchRoom, What,
    },
    config::{self, Config},
};
use nuncio_protocol::{TaskState, Timestamp};
use serde_json::{Map, Value, json};
use tokio::{sync::oneshot, task::JoinHandle};

use super::*;

/// A hub with the demo agents, and its client, which notes the routes it calls.
struct Client {
    admin: Admin,
    called: BTreeSet<&'static str>,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<()>>,
}

impl Client {
    async fn start(token_file: &Path) -> Self {
        let admin = config::Admin {
            listen: Some(([127, 0, 0, 1], 0).into()),
            token_file: Some(token_file.to_owned()),
        };
        let config = Config { admin, demo: true, ..Config::new(([127, 0, 0, 1], 0).into()) };
        let hub = Hub::bind(config).await.unwrap();
        let address = hub.administered().unwrap().address;
        let admin = Admin {
            admin: format!("http://{address}").parse().unwrap(),
            admin_token_file: Some(token_file.to_owned()),
        };
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(hub.run(async move { drop(stopped.await) }));
        Self { admin, called: BTreeSet::new(), stop, ended }
    }

    async fn ok<R: Route>(&mut self, request: R) -> R::Answer {
        self.called.insert(R::ID);
        self.admin.call(&request).await.unwrap_or_else(|error| panic!("{}: {error:#}", R::ID))
    }

    /// Follows the events: a change causes one, and after it a client goes on.
    async fn follow(&mut self) {
        self.called.insert(FollowEvents::ID);
        let mut events = self.admin.follow(&FollowEvents { options: EventOptions::default() }).await.unwrap();
        let token = NewAdminToken { name: "seen".to_owned(), role: Role::Operator };
        self.ok(CreateAdminToken { token }).await;
        let event: HubEvent = serde_json::from_str(&events.next().await.unwrap().unwrap().data).unwrap();
        // Earlier rows may be told now: they are written a moment later.
        assert!(matches!(event.kind, EventKind::Key | EventKind::Trail | EventKind::Agent), "{event:?}");
        let wrong = EventOptions { after: Some("nonsense".to_owned()) };
        let refused = self.admin.follow(&FollowEvents { options: wrong }).await.unwrap_err();
        assert!(refused.to_string().contains("after: expected the cursor"), "{refused:#}");
    }

    /// Calls a route whose handler refuses, in these words.
    async fn refused<R: Route>(&mut self, request: R, words: &str) {
        self.called.insert(R::ID);
        let error = self.admin.call(&request).await.err().unwrap_or_else(|| panic!("{}", R::ID));
        assert!(error.to_string().contains(words), "{}: {error:#}", R::ID);
    }
}

fn settings(value: Value) -> AgentSettings {
    match value {
        Value::Object(settings) => AgentSettings(settings),
        _ => AgentSettings(Map::new()),
    }
}

/// The document lists every route of the table, so a route that this client does not know fails the test.
#[tokio::test]
async fn every_route_of_the_table_is_reachable_from_the_typed_client() {
    let folder = std::env::temp_dir().join(format!("nuncio-admin-client-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut client = Client::start(&folder.join("hub.token")).await;

    assert_eq!(client.ok(ShowAbout {}).await.version, env!("CARGO_PKG_VERSION"));
    let health = client.ok(ShowHealth {}).await;
    assert!(health.ready && !health.agents.is_empty(), "{health:?}");
    assert_eq!(client.ok(ListAgents {}).await.agents.len(), health.agents.len());
    assert_eq!(client.ok(ShowAgent { name: "echo".to_owned() }).await.agent.kind, "demo");
    client.ok(ShowAgentHealth { name: "echo".to_owned() }).await;
    client.refused(RefreshAgent { name: "echo".to_owned() }, "has no card to fetch").await;
    let agent =
        NewAgent { name: "far".to_owned(), settings: settings(json!({ "url": "http://127.0.0.1:1" })) };
    assert_eq!(client.ok(AddAgent { agent }).await.details.agent.name, "far");
    let change = |version| ChangeAgent {
        name: "far".to_owned(),
        settings: settings(json!({ "title": "Far" })),
        version,
    };
    client.refused(ShowAudit { name: "far".to_owned() }, "has not been audited yet").await;
    let options = AuditRequest { deadline_seconds: Some(30), ..AuditRequest::default() };
    let audit = client.ok(AuditAgent { name: "far".to_owned(), options }).await;
    assert!(audit.report.unwrap().result.grounds.no_card && audit.summary.grade.is_none());
    client.ok(change(None)).await;
    client.refused(change(Some(77)), "read it again").await;
    client.ok(RemoveAgent { name: "far".to_owned(), version: None }).await;

    let key = NewKey { name: "team-a/b".to_owned(), ..NewKey::default() };
    let created = client.ok(CreateKey { key }).await;
    let named = || created.key.name.clone();
    assert!(created.volatile && created.secret.starts_with(&created.key.prefix), "{created:?}");
    assert_eq!(client.ok(ListKeys {}).await.keys.len(), 1);
    assert_eq!(client.ok(ShowKey { id: named() }).await.id, created.key.id);
    let rotation = KeyRotation { overlap_seconds: Some(60) };
    assert!(client.ok(RotateKey { id: named(), rotation }).await.key.overlap_ends.is_some());
    assert!(client.ok(RevokeKey { id: named() }).await.revoked.is_some());
    client.ok(DeleteKey { id: named() }).await;
    client.refused(ShowKey { id: named() }, "there is no key team-a/b").await;

    let mailbox = NewMailbox { name: "coder".to_owned(), settings: AgentSettings::default() };
    let made = client.ok(CreateMailbox { mailbox: mailbox.clone() }).await;
    assert!(made.mailbox.key_prefix.is_some_and(|prefix| made.secret.starts_with(&prefix)));
    client.refused(CreateMailbox { mailbox }, "exists already").await;
    let name = || "coder".to_owned();
    assert_eq!(client.ok(ListMailboxes {}).await.mailboxes.len(), 1);
    assert_eq!(client.ok(ShowMailbox { name: name() }).await.mailbox.waiting, 0);
    let rotation = MailboxRotation { overlap_seconds: Some(60) };
    assert_ne!(client.ok(RotateMailbox { name: name(), rotation }).await.secret, made.secret);
    let retry = MailboxRetry::default();
    assert_eq!(client.ok(RetryMailbox { name: name(), retry }).await.tasks.len(), 0);
    client.refused(EnableMailbox { name: name() }, "coder has no webhook").await;
    let take_over = TakeOver::default();
    assert_eq!(client.ok(TakeOverLeases { name: name(), take_over }).await.leases, 0);
    client.ok(RemoveMailbox { name: name() }).await;
    client.refused(ShowMailbox { name: name() }, "there is no mailbox coder").await;

    let guest = || "guest".to_owned();
    let invitation = NewInvitation { mailbox: guest(), expires: None };
    let invited = client.ok(CreateInvitation { invitation }).await;
    assert!(invited.code.starts_with(&invited.invitation.prefix));
    assert_eq!(client.ok(ListInvitations {}).await.invitations.len(), 1);
    client.ok(RevokeInvitation { mailbox: guest() }).await;
    client.refused(RevokeInvitation { mailbox: guest() }, "there is no invitation to guest").await;

    let at = |agent: &str| AccessCaller {
        agent: agent.to_owned(),
        principal: "ann".to_owned(),
        ..AccessCaller::default()
    };
    let filter = AccessFilter { state: Some(AccessState::Waiting), ..AccessFilter::default() };
    assert_eq!(client.ok(ListAccess { filter }).await.callers.len(), 0);
    client.refused(AcceptAccess { caller: at("none") }, "there is no agent none").await;
    client.refused(BlockAccess { caller: at("echo") }, "set access = \"ask\"").await;
    client.refused(DeclineAccess { caller: at("echo") }, "there is nothing to decline for ann at echo").await;
    client.refused(RevokeAccess { caller: at("echo") }, "there is nothing to revoke").await;

    let text = || Some("x".to_owned());
    let filter = TaskFilter {
        agent: text(),
        state: Some(TaskState::Working),
        principal: text(),
        context: text(),
        id: text(),
        since: Some(Timestamp::EPOCH),
        before: Some(Timestamp::MAX),
        paging: Paging::default(),
    };
    assert_eq!(client.ok(ListTasks { filter }).await.tasks.len(), 0);

    let stats = client.ok(ShowStats { options: StatsOptions { minutes: Some(0) } }).await;
    assert_eq!(
        (stats.ready, stats.agents.up, stats.store.kind),
        (true, health.agents.len(), StoreKind::Memory)
    );
    let options = TimelineOptions { content: Some(true), ..TimelineOptions::default() };
    client.refused(ShowTask { id: "t 1".to_owned(), options }, "there is no task t 1").await;
    client.refused(CancelTask { id: "t 1".to_owned() }, "there is no task t 1").await;
    client.refused(ListTaskArtifacts { id: "t 1".to_owned() }, "there is no task t 1").await;
    let part = |number: &str| ShowArtifactPart {
        id: "t 1".to_owned(),
        artifact: "a/b".to_owned(),
        number: number.to_owned(),
    };
    client.refused(part("1"), "there is no task t 1").await;

    assert!(client.ok(ListHubs {}).await.hubs[0].this);
    assert!(client.ok(ShowDiagnostics {}).await.0["agents"]["agents"].is_array());
    assert_eq!(client.ok(ListTrials {}).await.trials.len(), 0);
    client.refused(SendTrial { trial: NewTrial::default() }, "expected one of agent").await;
    client.refused(ShowTrial { id: "t".to_owned() }, "there is no trial t").await;
    client.refused(CancelTrial { id: "t".to_owned() }, "there is no trial t").await;

    let target = ErasureTarget { principal: None, tenant: None, agent: None };
    assert_eq!(client.ok(EraseTasks { target }).await.erased, 0);

    assert_eq!(client.ok(ListDeliveries { filter: DeliveryFilter::default() }).await.deliveries.len(), 0);
    client.refused(ShowDelivery { id: "w-1".to_owned() }, "there is no delivery w-1").await;
    client.refused(ReplayDelivery { id: "w-1".to_owned() }, "there is no delivery w-1").await;
    let filter = RedriveFilter { since: Timestamp::EPOCH, agent: None };
    assert_eq!(client.ok(RedriveDeliveries { filter }).await.redriven, 0);

    assert!(client.ok(ListDeliveryHosts {}).await.complete);
    let host = || "hooks.example".to_owned();
    client.refused(PauseDeliveryHost { host: host() }, "webhooks are turned off").await;
    client.refused(ResumeDeliveryHost { host: host() }, "webhooks are turned off").await;

    let token = NewAdminToken { name: "wall".to_owned(), role: Role::Viewer };
    let token = client.ok(CreateAdminToken { token }).await;
    assert!(token.volatile && token.text.starts_with("nuncio_viewer_"), "{token:?}");
    assert_eq!(client.ok(ListAdminTokens {}).await.tokens[0].name, "wall");
    client.ok(RevokeAdminToken { id: token.token.id }).await;
    client.refused(RevokeAdminToken { id: "wall".to_owned() }, "there is no admin token wall").await;
    client.follow().await;
    let room = NewRoom { name: "talk".to_owned(), settings: settings(json!({ "strict_turns": true })).0 };
    assert_eq!(client.ok(AddRoom { room: room.clone() }).await.seats, ["talk", "talk/b"]);
    client.refused(AddRoom { room }, "exists already").await;
    assert_eq!(client.ok(ListRooms {}).await.rooms.len(), 1);
    client.refused(RemoveAgent { name: "talk".to_owned(), version: None }, "a seat of a room").await;
    seats(&mut client).await;
    client.ok(RemoveRoom { name: "talk".to_owned() }).await;
    assert_eq!(client.ok(ListRooms {}).await.rooms.len(), 0);
    let room = || "r".to_owned();
    client.refused(ShowRoom { name: room(), options: RoomOptions::default() }, "there is no room r").await;
    client
        .refused(ResetRoom { name: room(), options: RoomResetOptions::default() }, "there is no room r")
        .await;

    client.refused(ShowConfig {}, "has no configuration source").await;
    let options = ReloadOptions { force: true };
    client.refused(ReloadConfig { options }, "has no configuration source").await;
    let paging = Paging { limit: Some(1), after: None };
    let filter = TrailFilter { what: Some(What::KeyRevoked), paging, ..TrailFilter::default() };
    client.ok(ListTrail { filter }).await;

    let code = client.ok(OpenDashboard {}).await;
    assert!(code.path.starts_with("/ui/login?code="), "{code:?}");

    let document = client.ok(ShowDocument {}).await;
    let served: BTreeSet<&str> = document["paths"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|methods| methods.as_object().unwrap().values())
        .map(|operation| operation["operationId"].as_str().unwrap())
        .collect();
    assert_eq!(client.called, served);

    client.stop.send(()).unwrap();
    client.ended.await.unwrap().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

/// A seat: joined, spoken at, taken over, left, watched.
async fn seats(client: &mut Client) {
    let (name, seat) = (|| "talk".to_owned(), || "b".to_owned());
    let join = |holder: &str| SeatJoin { holder: holder.to_owned() };
    let ann = client.ok(JoinSeat { name: name(), seat: seat(), join: join("ann") }).await;
    client.refused(JoinSeat { name: name(), seat: seat(), join: join("bob") }, "held by ann").await;
    let words = |lease: &str, text: &str| SeatWords {
        lease: lease.to_owned(),
        text: text.to_owned(),
        // The room keeps turns.
        next: Some("hold".to_owned()),
        ..SeatWords::default()
    };
    client.ok(SayAtSeat { name: name(), seat: seat(), words: words(&ann.lease, "hello") }).await;
    let empty = SayAtSeat { name: name(), seat: seat(), words: words(&ann.lease, "") };
    client.refused(empty, "text: is empty").await;
    let bob = client.ok(TakeOverSeat { name: name(), seat: seat(), join: join("bob") }).await;
    assert_eq!((ann.generation, bob.generation), (1, 2));
    let late = SayAtSeat { name: name(), seat: seat(), words: words(&ann.lease, "still here") };
    client.refused(late, "the lease of the seat is over").await;
    let options = SeatOptions { content: Some(true), lease: Some(bob.lease.clone()) };
    let shown = client.ok(ShowSeat { name: name(), seat: seat(), options }).await;
    assert!(shown.is_yours, "{shown:?}");
    let said = shown.round.unwrap().seats.remove(0).messages.unwrap();
    assert_eq!(
        said.iter().map(|message| &*message.text).collect::<Vec<_>>(),
        ["hello"],
        "nothing was stored"
    );
    let recording = RecordingRequest { minutes: 1 };
    assert!(client.ok(RecordRoom { name: name(), recording }).await.until.is_some());
    let options =
        WatchOptions { content: Some(true), whole: Some(true), wire: Some(true), ..WatchOptions::default() };
    let watch = WatchRoom { name: name(), options };
    client.called.insert(WatchRoom::ID);
    let mut stream = client.admin.follow(&watch).await.unwrap();
    client.ok(SayAtSeat { name: name(), seat: seat(), words: words(&bob.lease, "and bye") }).await;
    let (mut texts, mut lines) = (Vec::new(), Vec::new());
    while texts.len() < 4 || lines.is_empty() {
        let event = stream.next().await.unwrap().unwrap();
        let event: RoomEvent = serde_json::from_str(&event.data).unwrap();
        texts.extend(event.message.map(|message| format!("{} {}", event.seat, message.text)));
        lines.extend(event.wire);
    }
    texts.sort();
    assert_eq!(texts, ["a and bye", "a hello", "b and bye", "b hello"]);
    assert_eq!((&*lines[0].operation, &*lines[0].direction), ("SendMessage", "in"));
    assert!(lines[0].payload.as_ref().is_some_and(|payload| payload.contains("and bye")), "{lines:?}");
    let lease = SeatLeaving { lease: bob.lease };
    client.ok(LeaveSeat { name: name(), seat: seat(), lease: lease.clone() }).await;
    client.refused(LeaveSeat { name: name(), seat: seat(), lease }, "is over").await;
}
