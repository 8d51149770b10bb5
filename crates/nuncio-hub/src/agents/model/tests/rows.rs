//! Rows of `docs/models.md` that need no tool: statuses of providers, limits of the conversation, parts by dialect, and
//! what is shown to whom.

use nuncio_protocol::{ErrorKind, Part};
use nuncio_server::store::{RecordQuery, Records as _};

use super::*;
use crate::config::ModelDialect;

fn declaring(world: &World) -> Harness {
    world.harness.calling(|cx| cx.extensions = [MODEL_EXTENSION.into()].into_iter().collect())
}

fn report(task: &Task) -> Value {
    task.metadata.get(MODEL_EXTENSION).unwrap().get().unwrap()
}

#[tokio::test]
async fn a_provider_that_is_busy_is_asked_again_whatever_its_word_for_it() {
    for status in [429, 502, 503, 504, 529] {
        let busy = || Reply::Status(status, &[("retry-after", "0")], String::new());
        let provider = ScriptedProvider::start([busy(), busy(), says(&["ok"])]).await;
        let task = World::scripted(&provider).await.harness.task("hi").await.unwrap();
        assert_eq!(told(&task), (TaskState::Completed, String::new(), answer("ok")), "{status}");
        let provider = ScriptedProvider::start([busy(), busy(), busy()]).await;
        let error = World::scripted(&provider).await.harness.send("hi").await.unwrap_err();
        assert_eq!((error.kind(), provider.asked().len()), (ErrorKind::Unavailable, 3), "{status}");
        assert!(error.retry_after().is_some() && error.message().contains(&status.to_string()), "{error}");
    }
}

#[tokio::test]
async fn without_a_connection_the_call_is_unavailable_and_a_fallback_is_asked() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let target = || format!("openai:http://{free}/v1#tiny").parse().unwrap();
    let settings = Model { retry_window: Duration::from_millis(1), ..Model::new(target()) };
    let error = World::of(settings.clone()).await.harness.send("hi").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.retry_after().is_some() && !error.message().contains(&free.port().to_string()), "{error}");
    let fallback = ScriptedProvider::start([says(&["from the other"])]).await;
    let fallback = vec![format!("openai:{}#other", fallback.url()).parse().unwrap()];
    let task = World::of(Model { fallback, ..settings }).await.harness.task("hi").await.unwrap();
    assert_eq!(told(&task).2, answer("from the other"));
}

#[tokio::test]
async fn a_provider_that_refuses_the_hub_is_not_configured() {
    for status in [401, 403] {
        let provider = ScriptedProvider::start([super::status(status, "no access for key k-1")]).await;
        let world = World::scripted(&provider).await;
        let (state, words, _) = told(&world.harness.task("hi").await.unwrap());
        assert!(state == TaskState::Failed && words.contains("not configured"), "{status}: {words}");
        assert!(!words.contains("k-1"), "the cause is for the log: {words}");
        let health = world.agent.upstream().unwrap().health();
        assert!(matches!(health.condition, Condition::Degraded(_)), "{status}: {health:?}");
    }
}

/// The oldest turns go first. What is not in the prompt is counted: turns beyond the limits, and those without an answer.
#[tokio::test]
async fn a_limit_of_the_conversation_leaves_out_the_oldest_turns_and_counts_them() {
    for (turns, bytes, spoken, omitted) in [
        (20, 200_000, &["one", "three", "last"][..], 1),
        (2, 200_000, &["three", "last"], 2),
        (1, 200_000, &["three", "last"], 2),
        (0, 200_000, &["last"], 3),
        (20, 1, &["last"], 3),
    ] {
        let script = [says(&["1"]), status(400, "no"), says(&["3"]), says(&["4"])];
        let provider = ScriptedProvider::start(script).await;
        let settings = Model { history_turns: turns, history_bytes: bytes, ..model(&provider) };
        let harness = declaring(&World::of(settings).await);
        for said in ["one", "two", "three"] {
            harness.task(in_context(said)).await.unwrap();
        }
        let task = harness.task(in_context("last")).await.unwrap();
        let prompt = provider.asked().pop().unwrap().body["messages"].clone();
        let users = prompt.as_array().unwrap().iter().filter(|message| message["role"] == "user");
        let users: Vec<_> = users.map(|message| message["content"].as_str().unwrap()).collect();
        assert_eq!(
            (&users[..], &report(&task)["omittedTurns"]),
            (spoken, &json!(omitted)),
            "{turns} {bytes}"
        );
    }
}

#[tokio::test]
async fn tokens_are_told_to_callers_that_declare_the_extension_only() {
    let provider = ScriptedProvider::start([says(&["ok"]), says(&["ok"])]).await;
    let world = World::scripted(&provider).await;
    let task = world.harness.task("hi").await.unwrap();
    assert!(task.metadata.get(MODEL_EXTENSION).is_none(), "{:?}", task.metadata);
    assert_eq!(report(&declaring(&world).task("hi").await.unwrap())["inputTokens"], 7);
}

/// Nothing of a caller reaches the provider but its message.
#[tokio::test]
async fn no_header_credential_or_id_of_a_caller_reaches_the_provider() {
    let provider = ScriptedProvider::start([says(&["ok"])]).await;
    let world = World::scripted(&provider).await;
    let task = world.harness.as_caller("ann-principal").task(in_context("hi")).await.unwrap();
    let asked = provider.asked().remove(0);
    let sent = format!("{} {}", asked.head, asked.body);
    for own in ["ann-principal", "c-1", task.id.as_str(), task.history[0].message_id.as_str()] {
        assert!(!sent.contains(own), "{own}: {sent}");
    }
}

/// The dialect takes the parts that the card lists; any other is refused by its name.
#[tokio::test]
async fn each_dialect_takes_the_parts_that_its_card_lists() {
    let raw = |media_type: &str| Part::raw(&b"x"[..]).with_media_type(media_type);
    let url = |media_type: &str| Part::url("https://e.example/f").with_media_type(media_type);
    for (dialect, part, expected) in [
        (
            ModelDialect::OpenAi,
            raw("audio/wav"),
            Some(json!({ "type": "input_audio", "input_audio": { "data": "eA==", "format": "wav" } })),
        ),
        (
            ModelDialect::OpenAi,
            raw("audio/mpeg"),
            Some(json!({ "type": "input_audio", "input_audio": { "data": "eA==", "format": "mp3" } })),
        ),
        (ModelDialect::OpenAi, url("audio/wav"), None),
        (ModelDialect::OpenAi, url("application/pdf"), None),
        (ModelDialect::OpenAi, raw("video/mp4"), None),
        (
            ModelDialect::Anthropic,
            raw("image/png"),
            Some(
                json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "eA==" } }),
            ),
        ),
        (
            ModelDialect::Anthropic,
            url("image/png"),
            Some(json!({ "type": "image", "source": { "type": "url", "url": "https://e.example/f" } })),
        ),
        (
            ModelDialect::Anthropic,
            raw("application/pdf"),
            Some(
                json!({ "type": "document", "source": { "type": "base64", "media_type": "application/pdf", "data": "eA==" } }),
            ),
        ),
        (
            ModelDialect::Anthropic,
            url("application/pdf"),
            Some(json!({ "type": "document", "source": { "type": "url", "url": "https://e.example/f" } })),
        ),
        (ModelDialect::Anthropic, raw("audio/wav"), None),
    ] {
        let provider = ScriptedProvider::start([says(&["ok"])]).await;
        let target = format!("{}:{}#tiny", dialect.word(), provider.url()).parse().unwrap();
        let world = World::of(Model::new(target)).await;
        let modes = world.agent.runtime().unwrap().card().default_input_modes.clone();
        let media_type = part.media_type.clone().unwrap();
        let sent = world.harness.send(parts(vec![Part::text("see"), part])).await;
        match expected {
            Some(expected) => {
                assert!(sent.is_ok(), "{dialect:?} {media_type}: {sent:?}");
                let content = &provider.asked()[0].body["messages"][0]["content"][1];
                assert_eq!(content, &expected, "{dialect:?} {media_type}");
                let group = format!("{}/*", media_type.split('/').next().unwrap());
                assert!(modes.contains(&media_type) || modes.contains(&group), "{media_type}: {modes:?}");
            }
            None => {
                let error = sent.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ContentTypeNotSupported, "{dialect:?} {media_type}");
                assert!(error.message().contains("part 1") && provider.asked().is_empty(), "{error}");
            }
        }
    }
}

/// Many servers take any name. The name that they do not list degrades the agent, until it has answered.
#[tokio::test]
async fn a_server_that_takes_any_name_is_used_and_its_list_is_told() {
    let provider = ScriptedProvider::start([says(&["ok"])]).await;
    let target = format!("openai:{}#of-any-name", provider.url()).parse().unwrap();
    let world = World::of(Model::new(target)).await;
    let status = world.agent.upstream().unwrap();
    assert!(status.refresh(&world.agent).await.unwrap_err().contains("lists no model of-any-name"));
    assert_eq!(told(&world.harness.task("hi").await.unwrap()).2, answer("ok"));
    assert_eq!(status.health().condition, Condition::Up);
}

/// Two hubs of one store count together: for a caller, and for an agent.
#[tokio::test]
async fn budgets_are_counted_over_all_hubs_of_a_store() {
    let provider = ScriptedProvider::start((0..9).map(|_| says(&["ok"]))).await;
    let data = MemoryStore::default();
    let hub = async |own: Option<u64>, agent: Option<u64>| {
        let store: Arc<FailingStore> = Arc::new(data.another().into());
        let world =
            World::over(store, model(&provider), |desired| desired.limits.tokens_per_day = agent).await;
        let limits = config::Limits { tokens_per_day: own, ..config::Limits::default() };
        world.factory.limits.store(Arc::new(limits));
        world
    };
    // An answer has nine tokens.
    let (first, second) = (hub(Some(10), Some(30)).await, hub(Some(10), Some(30)).await);
    let ann = |world: &World| world.harness.as_caller("ann");
    ann(&first).task("hi").await.unwrap();
    ann(&second).task("hi").await.unwrap();
    for world in [&first, &second] {
        let error = ann(world).send("hi").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        assert!(error.message().contains("yours") && error.retry_after().is_some(), "{error}");
    }
    first.harness.as_caller("bob").task("hi").await.unwrap();
    second.harness.as_caller("eve").task("hi").await.unwrap();
    for world in [&first, &second] {
        let error = world.harness.as_caller("dan").send("hi").await.unwrap_err();
        assert!(error.message().contains("this agent"), "{error}");
    }
}

/// Hubs that count at the same moment lose no token.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_end_at_once_are_all_counted() {
    let provider = ScriptedProvider::start((0..8).map(|_| says(&["ok"]))).await;
    let data = MemoryStore::default();
    let mut sends = Vec::new();
    for _ in 0..2 {
        let store: Arc<FailingStore> = Arc::new(data.another().into());
        let world =
            World::over(store, model(&provider), |desired| desired.limits.tokens_per_day = Some(1000)).await;
        for caller in ["a", "b", "c", "d"] {
            let harness = world.harness.as_caller(caller);
            sends.push(tokio::spawn(async move { harness.task("hi").await.unwrap() }));
        }
    }
    for send in sends {
        send.await.unwrap();
    }
    let query = RecordQuery { kind: "model-tokens".into(), limit: 9, ..RecordQuery::default() };
    let counted = data.records(&query).await.unwrap();
    let counted: Vec<_> = counted.iter().map(|record| String::from_utf8_lossy(&record.value)).collect();
    assert_eq!(counted, ["72"]);
}
