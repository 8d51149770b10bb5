//! Callers of a program: their names in its input, and the processes that each leaves for others.

use nuncio_protocol::{Caller, Task, TaskState};
use serde_json::Value;

use super::*;

fn callers() -> [(Caller, Option<&'static str>, Option<&'static str>); 3] {
    [
        (Caller::anonymous(), None, None),
        (Caller::authenticated("ann"), Some("ann"), None),
        (Caller::authenticated("ann").of_tenant("north"), Some("ann"), Some("north")),
    ]
}

#[tokio::test]
async fn a_program_knows_who_calls() {
    let mut settings = script(Format::Text, r#"echo "${NUNCIO_PRINCIPAL-none} ${NUNCIO_TENANT-none}""#);
    // Nobody else says it.
    for name in ["NUNCIO_PRINCIPAL", "NUNCIO_TENANT"] {
        settings.environment.0.insert(name.to_owned(), "operator".to_owned());
    }
    let text = agent(&settings);
    let json = agent(&script(
        Format::Json,
        r#"read -r line; printf '{"artifact":{"artifactId":"told","parts":[{"data":%s}]}}' "$line""#,
    ));
    for (caller, principal, tenant) in callers() {
        let task = text.calling(|cx| cx.caller = caller.clone()).task("hi").await.unwrap();
        let expected = format!("{} {}\n", principal.unwrap_or("none"), tenant.unwrap_or("none"));
        assert_eq!(task.artifacts[0].text(), expected);
        let task = json.calling(|cx| cx.caller = caller.clone()).task("hi").await.unwrap();
        let told = serde_json::to_value(&*task.artifacts[0]).unwrap()["parts"][0]["data"].clone();
        assert_eq!(told["principal"], principal.map_or(Value::Null, Value::from), "{told}");
        assert_eq!(told["tenant"], tenant.map_or(Value::Null, Value::from), "{told}");
    }
}

/// The task that a message goes on with, and those that it refers to, are in the same conversation to the program.
#[tokio::test]
async fn a_program_never_sees_what_a_caller_calls_its_conversation() {
    let program = r#"
        read -r line
        printf '{"artifact":{"artifactId":"told","parts":[{"data":%s}]}}\n' "$line"
        case "$line" in *'"task":'*) ;; *) echo '{"inputRequired":"which one?"}' ;; esac"#;
    let harness = agent(&script(Format::Json, program)).as_caller("ann");
    let named = |say: Say| say.change(|req| req.message.context_id = Some("secret-main".into()));
    let first = harness.task(named("hi".into())).await.unwrap();
    let refer = |req: &mut SendMessageRequest| req.message.reference_task_ids = vec![first.id.clone()];
    let second = harness.task(named("hi".into()).change(refer)).await.unwrap();
    let third = harness.task(Say::to(&first, "this one")).await.unwrap();
    let name = isolation().contexts.derive(&harness.cx.caller, &"secret-main".into());
    for task in [&first, &second, &third] {
        assert_eq!(task.context_id.as_str(), "secret-main", "the caller sees its own");
        for told in &task.artifacts {
            let told = serde_json::to_string(&**told).unwrap();
            assert!(told.contains(name.as_str()) && !told.contains("secret-main"), "{told}");
        }
    }
}

/// One caller has as many processes as it gets, and as many tasks wait; another one is served at once.
#[tokio::test]
async fn one_caller_leaves_processes_for_others() {
    let mut gate = Gate::new();
    let mut settings =
        gate.script(Format::Text, r#"read message; [ "$message" = quick ] || read x < "$GATE""#);
    settings.processes = 8;
    let harness = agent_with(&settings, &Isolation { share: CallerShare::percent(25), ..isolation() });
    let (ann, bob) = (harness.as_caller("ann"), harness.as_caller("bob"));
    let mut tasks = Vec::new();
    for _ in 0..20 {
        tasks.push(ann.begin("wait\n").await.unwrap());
    }
    // Six of eight run, and no more will before one has ended.
    while count(&ann, &tasks, TaskState::Working).await < 6 {
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        assert_eq!(bob.task("quick\n").await.unwrap().status.state, TaskState::Completed);
    }
    assert_eq!(count(&ann, &tasks, TaskState::Working).await, 6);
    assert_eq!(count(&ann, &tasks, TaskState::Submitted).await, 14, "the others wait");
    gate.open(tasks.len());
    for task in &tasks {
        ann.until(&task.id, TaskState::Completed).await.unwrap();
    }
}

async fn count(harness: &Harness, tasks: &[Task], state: TaskState) -> usize {
    let mut count = 0;
    for task in tasks {
        count += usize::from(harness.get(&task.id).await.unwrap().status.state == state);
    }
    count
}
