//! Over a store in memory, with agents that only have a name.

use arc_swap::ArcSwap;
use async_trait::async_trait;
use nuncio_protocol::AgentCard;
use nuncio_server::{
    Emitter, ExecContext, Executor, Retention, Runtime,
    bind::BindOptions,
    push::RootKey,
    store::{MemoryStore, RecordQuery, Store},
};
use serde_json::json;

use super::*;
use crate::{
    agent_urls::AgentUrls,
    agents::{AgentFactory, Consents, Mailboxes},
    config::{AgentKind, AgentLimits, AgentOrigin, Upstream},
    fleet::{AgentInfo, Backend},
    identity::Authenticator,
    limits::Callers,
    telemetry::HubTelemetry,
    trail::Trail,
};

struct Silent;

#[async_trait]
impl Executor for Silent {
    async fn execute(&self, _: ExecContext, _: Emitter) -> nuncio_protocol::Result<()> {
        Ok(())
    }
}

/// The description of what it makes says by which settings; some it cannot make.
struct Names(AgentFactory);

#[async_trait]
impl PrepareAgent for Names {
    async fn prepare(
        self: Arc<Self>,
        wanted: config::Agent,
        _before: Option<Arc<ServedAgent>>,
    ) -> Result<Activate> {
        let title = wanted.title.as_deref().unwrap_or_default();
        anyhow::ensure!(title != "broken", "it cannot be made");
        let mut card = AgentCard::new(&*wanted.name, title);
        card.supported_interfaces = self.0.urls.interfaces(&wanted.name);
        let backend = Backend::Runtime(Runtime::builder(card, Silent).build());
        let info = AgentInfo {
            kind: "test",
            runtime_key: String::new(),
            is_listed: true,
            cards: None,
            asks: false,
            example: "",
        };
        let (options, limits) = (BindOptions::default(), AgentLimits::default());
        let agent = self.0.serve(&wanted.name, backend, info, options, &limits)?;
        Ok(Box::new(move || Ok(Arc::new(agent))))
    }

    /// The tags are the names that the provider lists.
    async fn expand(&self, template: &config::Agent) -> Result<Vec<config::Agent>> {
        let listed = |name: &String| {
            anyhow::ensure!(name != "broken", "there is no list");
            let kind = AgentKind::Demo(config::Demo::Echo);
            Ok(config::Agent::new(name.parse().unwrap(), kind, AgentOrigin::File))
        };
        template.tags.iter().map(listed).collect()
    }
}

/// All that an agent needs, and nothing more.
pub(crate) async fn factory(store: &Arc<dyn Store>) -> AgentFactory {
    let (trail, _) = Trail::new(store);
    let consents = Arc::new(Consents::new(store, &trail));
    let identity = Authenticator::open(&config::Identity::default(), store, trail, true).await.unwrap();
    let limits = config::Limits::default();
    let telemetry = HubTelemetry::start(&config::Telemetry::default()).unwrap();
    let contexts = crate::agents::ContextKey::open(&**store).await.unwrap();
    let urls = AgentUrls::new(&"http://127.0.0.1:2602".parse().unwrap(), None);
    AgentFactory {
        fleet: Arc::new(Fleet::new(&urls)),
        urls,
        rooms: crate::rooms::Rooms::new(store, &telemetry.metrics),
        seated: Arc::default(),
        store: Arc::clone(store),
        retention: Retention::default(),
        pushing: None,
        options: BindOptions::default(),
        callers: Arc::new(Callers::new(&limits, &identity.limits())),
        identity,
        limits: Arc::new(ArcSwap::from_pointee(limits)),
        calls: Arc::default(),
        telemetry: telemetry.clone(),
        consents,
        hub: "hub-1".into(),
        mailboxes: Mailboxes::new(store, contexts.clone(), Arc::clone(&telemetry.metrics)),
        contexts,
        profile: None,
    }
}

/// One that makes only such agents, and their fleet.
pub(crate) async fn registry(store: &Arc<dyn Store>, key: &RootKey) -> (Registry, Arc<Fleet>) {
    let vault = Vault::new(key, "agents").unwrap();
    let records = AgentRecords { store: Arc::clone(store), vault: Some(vault) };
    let factory = factory(store).await;
    let fleet = Arc::new(Fleet::new(&factory.urls));
    (Registry::new(Arc::clone(&fleet), Arc::new(Names(factory)), records), fleet)
}

struct World {
    store: Arc<dyn Store>,
    key: RootKey,
    fleet: Arc<Fleet>,
    registry: Registry,
}

impl World {
    async fn new() -> Self {
        Self::over(Arc::new(MemoryStore::new(100)), RootKey::random()).await
    }

    async fn over(store: Arc<dyn Store>, key: RootKey) -> Self {
        let (registry, fleet) = registry(&store, &key).await;
        Self { store, key, fleet, registry }
    }

    /// Another hub over the same data, or the same after a restart.
    async fn again(&self, configured: Vec<config::Agent>) -> Self {
        let again = Self::over(Arc::clone(&self.store), self.key.clone()).await;
        assert!(again.registry.configure(configured, false).await.unwrap().is_empty());
        again
    }

    /// The served agents, as `name=title`.
    fn served(&self) -> Vec<String> {
        let told = |agent: &Arc<ServedAgent>| format!("{}={}", agent.name(), agent.shown().card.description);
        self.fleet.all().iter().map(told).collect()
    }

    async fn add(&self, name: &str, given: Value) -> Result<u64, ChangeRefusal> {
        self.registry.add(&name.parse().unwrap(), object(given)).await?;
        Ok(self.registry.find(name).await.unwrap().given.unwrap().1)
    }

    /// The agent that answers at the root, and the tenants of its card.
    fn root(&self) -> Option<(String, Vec<String>)> {
        let agent = self.fleet.default_agent()?;
        let card = &agent.shown().card;
        let tenants = card.supported_interfaces.iter().filter_map(|interface| interface.tenant.clone());
        Some((agent.name().to_string(), tenants.collect()))
    }
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("expected an object, got {value}") };
    object
}

fn configured(name: &str, title: &str) -> config::Agent {
    let upstream = Upstream::new("https://configured.example".parse().unwrap());
    let kind = AgentKind::Upstream(Box::new(upstream));
    let mut agent = config::Agent::new(name.parse().unwrap(), kind, AgentOrigin::File);
    agent.title = Some(title.to_owned());
    agent
}

fn given(title: &str) -> Value {
    json!({ "url": "https://added.example", "title": title })
}

#[tokio::test]
async fn what_is_added_is_served_at_once_and_after_a_restart() {
    let world = World::new().await;
    assert_eq!(world.add("b", given("one")).await.unwrap(), 1);
    assert_eq!(world.served(), ["b=one"]);
    let patch = object(json!({ "title": "two" }));
    assert_eq!(world.registry.change("b", patch, Expect::Version(1)).await.unwrap(), 2);
    assert_eq!(world.served(), ["b=two"]);
    let again = world.again(vec![configured("a", "file")]).await;
    assert_eq!(again.served(), ["a=file", "b=two"]);
    again.registry.remove("b", Expect::Anything).await.unwrap();
    assert_eq!(again.served(), ["a=file"]);
    assert_eq!(again.again(vec![]).await.served(), Vec::<String>::new());
}

#[tokio::test]
async fn of_two_with_one_name_the_configured_one_is_served_while_it_is_there() {
    let world = World::new().await;
    world.add("a", given("api")).await.unwrap();
    let again = world.again(vec![configured("a", "file")]).await;
    assert_eq!(again.served(), ["a=file"]);
    let elsewhere = again.registry.remove("a", Expect::Anything).await.unwrap_err();
    assert!(matches!(elsewhere, ChangeRefusal::Elsewhere(AgentOrigin::File)), "{elsewhere:?}");
    let taken = again.add("a", given("other")).await.unwrap_err();
    assert!(matches!(taken, ChangeRefusal::Taken(AgentOrigin::File)), "{taken:?}");
    // A reload without it.
    assert!(again.registry.configure(vec![], false).await.unwrap().is_empty());
    assert_eq!(again.served(), ["a=api"]);
}

#[tokio::test]
async fn a_reload_changes_what_has_changed_or_nothing_at_all() {
    let world = World::new().await;
    world.registry.configure(vec![configured("a", "one"), configured("b", "one")], false).await.unwrap();
    let kept = world.fleet.get("a").unwrap();
    let failed = world
        .registry
        .configure(vec![configured("a", "one"), configured("b", "two"), configured("c", "broken")], false)
        .await
        .unwrap();
    assert_eq!(failed.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(world.served(), ["a=one", "b=one"], "all stays as it was");
    let failed =
        world.registry.configure(vec![configured("a", "one"), configured("b", "two")], false).await.unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(world.served(), ["a=one", "b=two"]);
    assert!(Arc::ptr_eq(&kept, &world.fleet.get("a").unwrap()), "it was not made anew");
}

#[tokio::test]
async fn another_hub_of_the_same_store_sees_it_when_it_looks() {
    let world = World::new().await;
    let other = world.again(vec![]).await;
    world.add("a", given("one")).await.unwrap();
    other.registry.look().await.unwrap();
    assert_eq!(other.served(), ["a=one"]);
    world.registry.remove("a", Expect::Anything).await.unwrap();
    other.registry.look().await.unwrap();
    assert!(other.served().is_empty());
}

#[tokio::test]
async fn what_is_refused_changes_nothing() {
    let world = World::new().await;
    world.add("a", given("one")).await.unwrap();
    let refused = [
        (world.add("a", given("two")).await, "Taken(Api)"),
        (world.add("b", given("broken")).await, "it cannot be made"),
        (world.add("b", json!({ "command": "rm -rf /" })).await, "Forbidden"),
        (world.add("b", json!({ "url": "cmd:./agent" })).await, "Forbidden"),
        (world.add("b", json!({ "url": "cmd+json:./agent" })).await, "Forbidden"),
        (world.add("b", json!({ "url": "file:///etc/passwd" })).await, "Invalid"),
        (world.add("b", json!({ "title": "b" })).await, "Invalid"),
        (world.registry.change("a", object(given("two")), Expect::Version(7)).await, "Changed(1)"),
        (world.registry.change("a", object(given("broken")), Expect::Version(1)).await, "it cannot be made"),
        (world.registry.change("a", object(json!({ "url": null })), Expect::Anything).await, "Invalid"),
        (world.registry.change("b", object(given("two")), Expect::Anything).await, "Missing"),
        (world.registry.remove("a", Expect::Version(7)).await.map(|()| 0), "Changed(1)"),
        (world.registry.remove("b", Expect::Anything).await.map(|()| 0), "Missing"),
    ];
    for (outcome, expected) in refused {
        let said = format!("{:?}", outcome.unwrap_err());
        assert!(said.contains(expected), "expected {expected} in {said}");
    }
    assert_eq!(world.served(), ["a=one"]);
    assert_eq!(world.again(vec![]).await.served(), ["a=one"]);
}

#[tokio::test]
async fn what_is_kept_is_sealed_and_without_the_key_it_is_left_out() {
    let world = World::new().await;
    world.add("a", json!({ "url": "https://added.example", "auth": { "bearer": "s3cret" } })).await.unwrap();
    let query = RecordQuery { kind: "agent".into(), limit: 10, ..RecordQuery::default() };
    let records = world.store.records(&query).await.unwrap();
    assert!(!String::from_utf8_lossy(&records[0].value).contains("s3cret"));
    let stranger = World::over(Arc::clone(&world.store), RootKey::random()).await;
    assert!(stranger.registry.configure(vec![], false).await.unwrap().is_empty());
    assert!(stranger.served().is_empty());
}

#[test]
fn members_replace_members_and_null_takes_away() {
    let mut given = object(json!({ "a": 1, "b": { "c": 1, "d": 2 }, "e": [1, 2], "f": 1 }));
    merge(&mut given, object(json!({ "a": null, "b": { "c": null, "x": 1 }, "e": [3], "f": { "g": 1 } })));
    assert_eq!(Value::Object(given), json!({ "b": { "d": 2, "x": 1 }, "e": [3], "f": { "g": 1 } }));
}

/// Callers of the old name get an advice.
#[tokio::test]
async fn the_only_agent_answers_at_the_root_until_there_is_a_second_one() {
    let world = World::new().await;
    let url = |name: &str| json!({ "url": format!("https://{name}.example") });
    let add = async |name: &str| {
        let added = world.registry.add(&name.parse().unwrap(), object(url(name))).await.unwrap();
        added.root_lost.map(|name| name.to_string())
    };
    let alone = |name: &str| Some((name.to_owned(), Vec::new()));
    assert_eq!(world.root(), None);
    assert_eq!(add("first").await, None);
    assert_eq!(world.root(), alone("first"), "its card says no tenant");
    assert_eq!(add("second").await.as_deref(), Some("first"));
    assert_eq!(world.root(), None);
    let tenants = |name: &str| {
        let card = &world.fleet.get(name).unwrap().shown().card;
        card.supported_interfaces.iter().filter_map(|interface| interface.tenant.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (tenants("first"), tenants("second")),
        (vec!["first".to_owned(); 3], vec!["second".to_owned(); 3])
    );
    assert_eq!(add("third").await, None, "nobody was there any more");
    world.fleet.set_default(Some("second"));
    assert_eq!((world.root(), tenants("second").len()), (alone("second"), 0));
    assert_eq!(add("fourth").await, None, "the named one stays");
    world.fleet.set_default(None);
    for name in ["second", "third", "fourth"] {
        world.registry.remove(name, Expect::Anything).await.unwrap();
    }
    assert_eq!(world.root(), alone("first"), "alone again");
}

#[tokio::test]
async fn the_models_of_a_provider_are_agents_as_long_as_it_lists_them() {
    let world = World::new().await;
    let template = |tags: &[&str]| {
        let mut target: config::ModelTarget = "openai:#any".parse().unwrap();
        target.name.clear();
        let kind = AgentKind::Model(Box::new(config::Model::new(target)));
        let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        config::Agent { tags, ..config::Agent::new("local".parse().unwrap(), kind, AgentOrigin::File) }
    };
    for (configured, expected) in [
        (vec![template(&["local-a", "local-b"])], &["local-a", "local-b"][..]),
        (vec![template(&["local-b", "local-c"])], &["local-b", "local-c"]),
        (vec![template(&["broken"])], &["local-b", "local-c"]),
        (vec![], &[]),
    ] {
        assert!(world.registry.configure(configured, false).await.unwrap().is_empty());
        world.registry.list_again().await;
        let served: Vec<_> = world.fleet.all().iter().map(|agent| agent.name().to_string()).collect();
        assert_eq!(served, expected);
    }
}
