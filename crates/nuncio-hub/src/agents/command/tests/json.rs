//! A JSON object per line.

use nuncio_protocol::TaskState;
use nuncio_server::testing::summary;
use serde_json::{Value, json};

use super::*;

/// A program that says these lines.
fn says(lines: &str) -> String {
    format!("cat <<'END'\n{lines}\nEND\n")
}

#[tokio::test]
async fn lines_are_events() {
    for (said, expected) in [
        ("", &["1 task submitted", "2 status completed"][..]),
        (
            r#"{"status":"working","text":"half"}
               {"artifact":{"artifactId":"a","parts":[{"text":"x"}]}}

               {"completed":"done"}"#,
            &[
                "1 task submitted",
                "2 status working \"half\"",
                "3 artifact a \"x\" last",
                "4 status completed \"done\"",
            ],
        ),
        (
            r#"{"text":"a"}
               {"text":"b","last":true}
               {"completed":null}"#,
            &[
                "1 task submitted",
                "2 status working",
                "3 artifact output \"a\"",
                "4 artifact output +\"b\" last",
                "5 status completed",
            ],
        ),
        (
            r#"{"artifactUpdate":{"taskId":"another","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"x"}]}}}
               {"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":"y"}]},"append":true,"lastChunk":true}}
               {"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}"#,
            &[
                "1 task submitted",
                "2 status working",
                "3 artifact a \"x\"",
                "4 artifact a +\"y\" last",
                "5 status completed",
            ],
        ),
        (r#"{"message":"hello"}"#, &["- message \"hello\""]),
        (r#"{"failed":"no"}"#, &["1 task submitted", "2 status failed \"no\""]),
        (r#"{"rejected":"no"}"#, &["1 task submitted", "2 status rejected \"no\""]),
        // What comes after the end does not count.
        (
            r#"{"completed":""}
               {"failed":"no"}
               garbage"#,
            &["1 task submitted", "2 status completed"],
        ),
    ] {
        assert_eq!(run(Format::Json, &says(said), "hi").await, expected, "{said}");
    }
}

/// The cuts of text depend on timing.
#[tokio::test]
async fn lines_of_text_are_one_text() {
    for (said, expected) in [
        (
            r#"{"text":"a"} {"text":""} {"text":"b"}"#,
            &["artifact output \"ab\" last", "status completed"][..],
        ),
        (
            r#"{"text":"a"} {"text":"b"} {"status":"working","text":"half"} {"text":"c"} {"completed":null}"#,
            &[
                "artifact output \"ab\"",
                "status working \"half\"",
                "artifact output +\"c\" last",
                "status completed",
            ],
        ),
        (
            r#"{"text":"a"} {"text":"b"} {"inputRequired":"which?"}"#,
            &["artifact output \"ab\" last", "status input-required \"which?\""],
        ),
        (r#"{"text":""} {"text":"","last":true}"#, &["status completed"]),
        (
            r#"{"text":"a"} {"text":"b"} {"failed":"no"}"#,
            &["artifact output \"ab\" last", "status failed \"no\""],
        ),
    ] {
        let program = says(&said.replace("} {", "}\n{"));
        assert_eq!(whole(&run(Format::Json, &program, "hi").await), worked(expected), "{said}");
        let task = agent(&script(Format::Json, &program)).task("hi").await.unwrap();
        assert!(task.artifacts.iter().all(|artifact| artifact.parts.len() == 1), "{said}: {task:?}");
    }
}

#[tokio::test]
async fn a_line_that_is_not_understood_fails_the_task_and_ends_the_program() {
    for (said, why) in [
        (
            "hello",
            "line 1 of the program's output is no JSON object; expected an object such as {\"text\": \"…\"}: hello",
        ),
        (
            "{\"status\":\"working\"}\n\nTraceback",
            "line 3 of the program's output is no JSON object; expected an object such as {\"text\": \"…\"}: Traceback",
        ),
        (
            r#"{"txt":"x"}"#,
            r#"line 1 of the program's output has the unknown key "txt"; did you mean "text"?: {"txt":"x"}"#,
        ),
    ] {
        let program = format!("{}\nexec sleep 1000", says(said));
        let task = agent(&script(Format::Json, &program)).task("hi").await.unwrap();
        assert_eq!(task.status.state, TaskState::Failed, "{said}");
        assert_eq!(task.status.message.unwrap().text(), why);
    }
}

#[tokio::test]
async fn the_exit_code_counts_where_nothing_else_was_said() {
    let fails = |said: &str| format!("{}\necho why >&2; exit 5", says(said));
    for (said, expected) in [
        ("", "2 status failed \"exit code 5\nwhy\""),
        (r#"{"status":"working"}"#, "3 status failed \"exit code 5\nwhy\""),
        (r#"{"completed":"done"}"#, "2 status completed \"done\""),
    ] {
        assert_eq!(run(Format::Json, &fails(said), "hi").await.last().unwrap(), expected, "{said}");
    }
}

/// The input of a program, with the ids replaced.
#[tokio::test]
async fn a_program_is_told_everything() {
    let harness = agent(&script(Format::Json, TELLS));
    let parts = vec![Part::text("a"), Part::data(json!({"b": 1})), Part::raw("file").with_filename("f.txt")];
    let request = say(parts).change(|request| {
        request.metadata.insert("k", "v");
    });
    let task = harness.task(request).await.unwrap();
    let told: Value = task.artifacts[0].parts[0].as_data().unwrap().get().unwrap();
    assert_eq!(told["taskId"], task.id.as_str());
    let context = isolation().contexts.derive(&harness.cx.caller, &task.context_id);
    assert_eq!(told["contextId"], context.as_str());
    assert_eq!(told["message"]["contextId"], context.as_str());
    assert_eq!(told["agent"], "coder");
    assert_eq!(told["metadata"], json!({"k": "v"}));
    assert_eq!(told["task"], Value::Null);
    let parts = json!([{"text": "a"}, {"data": {"b": 1}}, {"raw": "ZmlsZQ==", "filename": "f.txt"}]);
    assert_eq!(told["message"]["parts"], parts);
    assert_eq!(told["message"]["role"], "ROLE_USER");
}

/// A program that tells what it was told.
const TELLS: &str =
    r#"read -r line; printf '{"artifact":{"artifactId":"told","parts":[{"data":%s}]}}' "$line""#;

/// A message of this conversation.
fn in_context(context: &str, text: &str) -> Say {
    Say::from(text).change(|request| request.message.context_id = Some(context.into()))
}

/// The texts of the messages that the program was told of, task by task; `None` if it was told of no conversation.
fn earlier(task: &nuncio_protocol::Task) -> Option<Vec<String>> {
    let told: Value = task.artifacts.last().unwrap().parts[0].as_data().unwrap().get().unwrap();
    let said = |task: &Value| {
        let history = task["history"].as_array().unwrap();
        let texts = history.iter().map(|message| message["parts"][0]["text"].as_str().unwrap().to_owned());
        texts.collect::<Vec<_>>().join(" ")
    };
    Some(told.get("earlier")?.as_array().unwrap().iter().map(said).collect())
}

#[tokio::test]
async fn a_program_is_told_the_conversation_so_far() {
    let program = agent(&script(Format::Json, TELLS));
    let (ann, bob) = (program.as_caller("ann"), program.as_caller("bob"));
    let first = ann.task(in_context("c", "one")).await.unwrap();
    assert_eq!(earlier(&first), None);
    assert_eq!(earlier(&ann.task(in_context("c", "two")).await.unwrap()), Some(vec!["one".to_owned()]));
    assert_eq!(earlier(&ann.task(in_context("other", "three")).await.unwrap()), None, "another conversation");
    assert_eq!(earlier(&bob.task(in_context("c", "four")).await.unwrap()), None, "another caller");
    let last = ann.task(in_context("c", "five")).await.unwrap();
    assert_eq!(earlier(&last), Some(vec!["one".to_owned(), "two".to_owned()]));
    let told: Value = last.artifacts[0].parts[0].as_data().unwrap().get().unwrap();
    let before = &told["earlier"][0];
    assert_eq!(
        (&before["id"], &before["status"]["state"]),
        (&json!(first.id), &json!("TASK_STATE_COMPLETED"))
    );
    assert_eq!(before["artifacts"][0]["artifactId"], "told", "with what was made");
    assert_eq!(
        (&before["contextId"], &before["history"][0]["contextId"]),
        (&told["contextId"], &told["contextId"])
    );
}

#[tokio::test]
async fn a_program_is_told_as_much_of_the_conversation_as_its_settings_say() {
    for (turns, bytes, expected) in [
        (20, 200_000, Some(vec!["one", "two", "three"])),
        (2, 200_000, Some(vec!["two", "three"])),
        (0, 200_000, None),
        (20, 100, None),
    ] {
        // Only the last one tells: what is told would be told again.
        let mut settings = script(
            Format::Json,
            r#"read -r line
               case "$line" in
                 *'"four"'*) printf '{"artifact":{"artifactId":"told","parts":[{"data":%s}]}}' "$line" ;;
               esac"#,
        );
        (settings.earlier_turns, settings.earlier_bytes) = (turns, bytes);
        let program = agent(&settings);
        for text in ["one", "two", "three"] {
            program.task(in_context("c", text)).await.unwrap();
        }
        let told = earlier(&program.task(in_context("c", "four")).await.unwrap());
        let expected = expected.map(|texts| texts.into_iter().map(str::to_owned).collect());
        assert_eq!(told, expected, "{turns} turns, {bytes} bytes");
    }
}

/// The next message starts the program anew, with the task as it was.
#[tokio::test]
async fn a_question_is_answered_by_the_next_message() {
    let program = r#"
        read -r line
        case "$line" in
          *'"task":'*INPUT_REQUIRED*) echo '{"text":"thanks"}'; echo '{"completed":"bye"}' ;;
          *) echo '{"text":"well"}'; echo '{"inputRequired":"which one?"}' ;;
        esac"#;
    let harness = agent(&script(Format::Json, program));
    let asked = harness.task("hi").await.unwrap();
    assert_eq!(summary(&asked), "input-required \"which one?\" | user: hi | output \"well\"");
    let done = harness.task(Say::to(&asked, "that one")).await.unwrap();
    assert_eq!(
        summary(&done),
        "completed \"bye\" | user: hi; agent: which one?; user: that one | output \"well\"; output-2 \"thanks\""
    );
}

#[tokio::test]
async fn lines_have_a_limit() {
    let mut settings = script(Format::Json, r#"printf '{"text":"%01000d"}\n' 0; exec sleep 1000"#);
    settings.line_limit = 1000;
    let task = agent(&settings).task("hi").await.unwrap();
    let why = "line 1 of the program's output is longer than 1000 bytes";
    assert_eq!(task.status.message.unwrap().text(), why);
    // Also one that has no end.
    let mut settings = script(Format::Json, "printf '%02000d' 0; exec sleep 1000");
    settings.line_limit = 1000;
    let task = agent(&settings).task("hi").await.unwrap();
    assert_eq!(task.status.message.unwrap().text(), why);
}
