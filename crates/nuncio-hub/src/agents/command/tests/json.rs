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
               {"text":"b"}"#,
            &[
                "1 task submitted",
                "2 status working",
                "3 artifact output \"a\"",
                "4 artifact output +\"b\"",
                "5 artifact output +\"\" last",
                "6 status completed",
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

#[tokio::test]
async fn a_line_that_is_not_understood_fails_the_task_and_ends_the_program() {
    for (said, why) in [
        ("hello", "line 1 of the program's output is no JSON object: hello"),
        (
            "{\"status\":\"working\"}\n\nTraceback",
            "line 3 of the program's output is no JSON object: Traceback",
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

/// What a program is told, with the ids replaced.
#[tokio::test]
async fn a_program_is_told_everything() {
    let program =
        r#"read -r line; printf '{"artifact":{"artifactId":"told","parts":[{"data":%s}]}}' "$line""#;
    let harness = agent(&script(Format::Json, program));
    let parts = vec![Part::text("a"), Part::data(json!({"b": 1})), Part::raw("file").with_filename("f.txt")];
    let request = say(parts).change(|request| {
        request.metadata.insert("k".to_owned(), json!("v"));
    });
    let task = harness.task(request).await.unwrap();
    let nuncio_protocol::Content::Data(told) = task.artifacts[0].parts[0].content.clone() else {
        panic!("{task:?}")
    };
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
