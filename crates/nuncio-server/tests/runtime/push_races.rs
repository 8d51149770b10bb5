//! Webhooks when things happen at once: what is owed is told, once at a time, and to nobody who is gone.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use nuncio_server::{
    protocol::{
        A2aService as _, DeleteTaskPushNotificationConfigRequest, ErrorKind,
        GetTaskPushNotificationConfigRequest, Result, Task, TaskId, TaskPushNotificationConfig, TaskState,
    },
    push::{Push, PushOptions, Retry},
    store::{DeliveryQuery, DeliveryState, MAX_WEBHOOKS, MemoryStore, OperatorQueries as _},
    testing::{
        FailingStore, Harness, Say, ScriptedExecutor, Step,
        courier::{Post, Reaction, ScriptedCourier},
    },
};
use tokio::{sync::Notify, time::timeout};

use super::{refused, secs, settle};

const OLD: &str = "http://old.example/";
const NEW: &str = "http://new.example/";

/// An agent on this store, and receivers that do this.
fn agent(
    executor: ScriptedExecutor,
    store: FailingStore,
    react: impl Fn(&Post) -> Reaction + Send + Sync + 'static,
) -> (Harness, ScriptedCourier, Push) {
    let courier = ScriptedCourier::new(react);
    let (harness, push) = Harness::pushing(
        executor,
        store,
        &courier,
        |engine| engine.retry(Retry { give_up: secs(2 * 60 * 60), ..Retry::default() }),
        |builder, push| builder.push(push, PushOptions::default()),
    );
    (harness, courier, push)
}

fn any_store() -> FailingStore {
    FailingStore::new(MemoryStore::default())
}

fn hangs() -> ScriptedExecutor {
    ScriptedExecutor::steps([Step::Working, Step::Hang])
}

/// Works until it is told to end.
fn works_until(end: &Arc<Notify>) -> ScriptedExecutor {
    let end = Arc::clone(end);
    ScriptedExecutor::new(move |_, out| {
        let end = Arc::clone(&end);
        async move {
            out.working().await?;
            end.notified().await;
            Ok(())
        }
    })
}

fn config(id: &str, url: &str) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig { id: Some(id.into()), url: url.to_owned(), ..Default::default() }
}

async fn create(harness: &Harness, task: &TaskId, id: &str, url: &str) -> Result<TaskPushNotificationConfig> {
    let given = TaskPushNotificationConfig { task_id: Some(task.clone()), ..config(id, url) };
    harness.runtime.create_task_push_notification_config(&harness.cx, given).await
}

async fn delete(harness: &Harness, task: &Task, id: &str) {
    let req = DeleteTaskPushNotificationConfigRequest {
        task_id: task.id.clone(),
        id: id.into(),
        ..Default::default()
    };
    harness.runtime.delete_task_push_notification_config(&harness.cx, req).await.unwrap();
}

/// Long enough for what is due by the clock of the system, which may be ahead of the paused one.
async fn heard() {
    tokio::time::sleep(secs(10)).await;
}

/// The states that a receiver was told, of those at this address.
fn told(posts: &[Post], url: &str) -> Vec<String> {
    let state = |post: &Post| {
        let body = [&post.body["task"], &post.body["statusUpdate"]].into_iter().find(|body| body.is_object());
        let state = body.and_then(|body| body["status"]["state"].as_str()).unwrap_or("?");
        state.trim_start_matches("TASK_STATE_").to_lowercase()
    };
    posts.iter().filter(|post| post.url == url).map(state).collect()
}

async fn states(harness: &Harness) -> Vec<(DeliveryState, u32)> {
    let all = DeliveryQuery { limit: 1_000, ..DeliveryQuery::default() };
    let (deliveries, _) = harness.store.deliveries(&all).await.unwrap();
    deliveries.iter().rev().map(|one| (one.state, one.attempts)).collect()
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_a_registration_is_told_also_if_it_was_said_before() {
    // On its way to the store while the webhook was put there: it was told to nobody.
    let end = Arc::new(Notify::new());
    let executor = works_until(&end);
    let (harness, courier, _push) =
        agent(executor, FailingStore::alone(MemoryStore::default()), |_| Reaction::Status(200));
    let task = harness.begin("hi").await.unwrap();
    harness.until(&task.id, TaskState::Working).await.unwrap();
    harness.store.hold_writes(true);
    end.notify_one();
    settle().await;
    let mut making = Box::pin(create(&harness, &task.id, "a", NEW));
    let answered = timeout(secs(1), &mut making).await.is_ok();
    harness.store.hold_writes(false);
    if !answered {
        making.await.unwrap();
    }
    harness.until(&task.id, TaskState::Completed).await.unwrap();
    heard().await;
    let told = told(&courier.posts(), NEW);
    assert!(!answered || told == ["completed"], "answered before the end was recorded, and told {told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_of_a_task_that_is_just_being_taken_over_is_told() {
    let data = MemoryStore::default();
    let first = Harness::of(
        nuncio_server::testing::card(),
        FailingStore::waiting(data.another()),
        hangs(),
        |builder| builder,
    );
    let task = first.begin("hi").await.unwrap();
    first.until(&task.id, TaskState::Working).await.unwrap();
    first.store.retire();
    let (harness, courier, _push) = agent(hangs(), FailingStore::alone(data), |_| Reaction::Status(200));
    // It was read, and is not in memory yet.
    harness.store.hold_writes(true);
    settle().await;
    create(&harness, &task.id, "a", NEW).await.unwrap();
    harness.store.hold_writes(false);
    harness.until(&task.id, TaskState::Failed).await.unwrap();
    heard().await;
    assert_eq!(told(&courier.posts(), NEW), ["failed"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_being_leased_when_its_webhook_is_deleted_is_not_sent() {
    // REQ-159
    let (harness, courier, _push) = agent(hangs(), any_store(), |_| Reaction::Status(503));
    let task = harness.begin(Say::from("hi").push_by(config("a", OLD))).await.unwrap();
    courier.until(1).await;
    harness.store.hold_writes(true);
    // It is due again, and leased; the answer of the store is on its way.
    tokio::time::sleep(secs(3)).await;
    let posts = courier.posts().len();
    delete(&harness, &task, "a").await;
    harness.store.hold_writes(false);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(courier.posts().len(), posts);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_is_replaced_is_told_at_its_new_place_only() {
    // The old receiver answers too late to stop the new one.
    for how in ["by itself", "with a message", "while it is leased"] {
        let turns = [vec![Step::InputRequired("which?")], vec![Step::InputRequired("why?")]];
        let (harness, courier, _push) = agent(ScriptedExecutor::turns(turns), any_store(), |post| {
            if post.url == OLD { Reaction::Slow(410, 5) } else { Reaction::Status(200) }
        });
        if how == "while it is leased" {
            courier.now(|post| if post.url == OLD { Reaction::Away } else { Reaction::Status(200) });
        }
        let task = harness.task(Say::from("hi").push_by(config("a", OLD))).await.unwrap();
        courier.until(1).await;
        let mut posts = 1;
        match how {
            "by itself" => drop(create(&harness, &task.id, "a", NEW).await.unwrap()),
            "with a message" => {
                drop(harness.task(Say::to(&task, "blue").push_by(config("a", NEW))).await.unwrap())
            }
            _ => {
                harness.store.hold_writes(true);
                tokio::time::sleep(secs(3)).await;
                posts = courier.posts().len();
                create(&harness, &task.id, "a", NEW).await.unwrap();
                harness.store.hold_writes(false);
            }
        }
        tokio::time::sleep(secs(2)).await;
        let then = courier.posts();
        assert_eq!(told(&then, OLD).len(), posts, "{how}");
        assert_eq!(told(&then, NEW)[..2], ["submitted", "input_required"], "{how}");
        tokio::time::sleep(secs(60)).await;
        let kept = GetTaskPushNotificationConfigRequest {
            task_id: task.id.clone(),
            id: "a".into(),
            ..Default::default()
        };
        let kept = harness.runtime.get_task_push_notification_config(&harness.cx, kept).await;
        assert_eq!(kept.unwrap().url, NEW, "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_is_changed_at_another_server_is_soon_let_go() {
    // REQ-159: what it was owed when it was leased goes nowhere any more, but for what is on its way.
    let many = vec![Step::Working; 30];
    for replaced in [false, true] {
        let (data, courier) = (MemoryStore::default(), ScriptedCourier::new(|_| Reaction::Status(503)));
        let server = |executor| {
            let store = FailingStore::waiting(data.another());
            let build = |builder: nuncio_server::RuntimeBuilder, push: &Push| {
                builder.push(push, PushOptions::default())
            };
            Harness::pushing(executor, store, &courier, |engine| engine, build)
        };
        let (harness, _push) = server(ScriptedExecutor::steps(many.clone()));
        let task = harness.task(Say::from("hi").push_by(config("a", OLD))).await.unwrap();
        courier.until(1).await;
        courier.now(|post| if post.url == OLD { Reaction::Slow(200, 1) } else { Reaction::Status(200) });
        let posts = courier.until(4).await.len();
        let (other, _other_push) = server(hangs());
        if replaced {
            create(&other, &task.id, "a", NEW).await.unwrap();
        } else {
            delete(&other, &task, "a").await;
        }
        tokio::time::sleep(secs(60)).await;
        let posts = courier.posts().split_off(posts);
        assert!(told(&posts, OLD).len() <= 1, "{:?}", told(&posts, OLD));
        assert_eq!(told(&posts, NEW).last().map(String::as_str), replaced.then_some("completed"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_is_served_by_one_at_a_time_also_if_answers_of_the_store_are_lost() {
    let tries = AtomicUsize::new(0);
    let (harness, courier, push) = agent(hangs(), any_store(), move |_| {
        if tries.fetch_add(1, Ordering::SeqCst) == 0 { Reaction::Status(503) } else { Reaction::Hang }
    });
    // That it is free is in the store, and yet said again and again, until after it is leased once more.
    harness.store.lose_settlements(7);
    harness.begin(Say::from("hi").push(OLD)).await.unwrap();
    courier.until(1).await;
    tokio::time::sleep(secs(2)).await;
    push.wake();
    tokio::time::sleep(secs(10)).await;
    assert_eq!(courier.posts().len(), 2, "one was answered, one is on its way");
}

#[tokio::test(start_paused = true)]
async fn a_courier_that_panics_costs_an_attempt_and_no_more() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let (harness, courier, push) = agent(hangs(), any_store(), move |_| {
        assert!(count.fetch_add(1, Ordering::SeqCst) >= 3, "this courier is broken");
        Reaction::Status(200)
    });
    harness.begin(Say::from("hi").push(OLD)).await.unwrap();
    let posts = courier.until(2).await;
    assert_eq!(told(&posts, OLD), ["submitted", "working"]);
    assert_eq!(posts[0].header("webhook-attempt"), "4");
    assert!(posts[0].at >= 5, "later and later: {}", posts[0].at);
    heard().await;
    assert_eq!(push.in_hand(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_tried_again_later_and_later_and_given_up() {
    let (harness, courier, push) = agent(hangs(), any_store(), |_| Reaction::Status(200));
    harness.store.fail_reads(true);
    harness.begin(Say::from("hi").push(OLD)).await.unwrap();
    tokio::time::sleep(secs(3 * 60 * 60)).await;
    harness.store.fail_reads(false);
    let states = states(&harness).await;
    let given_up =
        |(state, tries): &(DeliveryState, u32)| *state == DeliveryState::Dead && (1..40).contains(tries);
    assert!(states.len() == 2 && states.iter().all(given_up), "{states:?}");
    assert_eq!((courier.posts().len(), push.in_hand()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_webhook_of_a_message_that_waits_is_told_from_then_on() {
    // Whoever does not wait for the answer would never know that the task has ended before its turn.
    let end = Arc::new(Notify::new());
    let executor = works_until(&end);
    let (harness, courier, _push) = agent(executor, any_store(), |_| Reaction::Status(200));
    let task = harness.begin("hi").await.unwrap();
    harness.until(&task.id, TaskState::Working).await.unwrap();
    harness.begin(Say::to(&task, "more").push(NEW)).await.unwrap();
    end.notify_one();
    harness.until(&task.id, TaskState::Completed).await.unwrap();
    heard().await;
    assert_eq!(told(&courier.posts(), NEW), ["completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_may_replace_a_webhook_of_a_task_that_has_as_many_as_it_may() {
    let turns = [vec![Step::InputRequired("which?")], vec![Step::Working]];
    let (harness, courier, _push) =
        agent(ScriptedExecutor::turns(turns), any_store(), |_| Reaction::Status(200));
    let task = harness.task("hi").await.unwrap();
    for i in 0..MAX_WEBHOOKS {
        create(&harness, &task.id, &format!("c{i}"), OLD).await.unwrap();
    }
    let one_more = harness.task(Say::to(&task, "blue").push_by(config("d", NEW))).await;
    assert_eq!(refused(one_more), ErrorKind::ResourceExhausted);
    harness.task(Say::to(&task, "blue").push_by(config("c0", NEW))).await.unwrap();
    let posts = courier.until(2 * MAX_WEBHOOKS).await;
    assert_eq!(told(&posts, NEW), ["working", "completed"]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_written_down_of_one_webhook_holds_up_no_other() {
    let quick = ScriptedExecutor::steps([Step::Working]);
    let (harness, courier, push) = agent(quick, any_store(), |_| Reaction::Away);
    harness.task(Say::from("hi").push(OLD)).await.unwrap();
    let posts = courier.until(1).await;
    let (uid, _) = posts[0].header("webhook-id").rsplit_once('-').unwrap();
    harness.store.choke_on_settling(uid);
    courier.now(|_| Reaction::Status(200));
    for _ in 0..20 {
        harness.task(Say::from("hi").push(NEW)).await.unwrap();
    }
    tokio::time::sleep(secs(60)).await;
    let all = DeliveryQuery { limit: 1_000, state: Some(DeliveryState::Delivered), ..Default::default() };
    let (delivered, _) = harness.store.deliveries(&all).await.unwrap();
    assert_eq!(delivered.len(), 60, "all others are told, and it is written down");
    let old = courier.posts().iter().filter(|post| post.url == OLD).count();
    assert!(old < 10, "{old} posts of what cannot be written down");
    assert_eq!(push.in_hand(), 1, "it stays in hand");
}
