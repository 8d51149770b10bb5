//! Lines, and what is understood of them.

use serde_json::{Value, json};

use super::*;

fn check(line: &Value, expected: &Said) {
    assert_eq!(parse(line.to_string().as_bytes()).as_ref(), Ok(expected), "{line}");
}

#[test]
fn states_and_their_words() {
    use TaskState::{AuthRequired, Completed, Failed, InputRequired, Rejected, Working};
    let text = |text: &str| vec![Part::text(text)];
    for (line, state, parts) in [
        (json!({"status": "working"}), Working, vec![]),
        (json!({"status": "working", "text": "half"}), Working, text("half")),
        (json!({"status": "working", "parts": [{"data": 1}]}), Working, vec![Part::data(1)]),
        (json!({"status": "TASK_STATE_INPUT_REQUIRED"}), InputRequired, vec![]),
        (json!({"status": "input_required"}), InputRequired, vec![]),
        (json!({"inputRequired": "which one?"}), InputRequired, text("which one?")),
        (json!({"authRequired": "log in"}), AuthRequired, text("log in")),
        (json!({"completed": "done"}), Completed, text("done")),
        (json!({"completed": ""}), Completed, vec![]),
        (json!({"completed": null}), Completed, vec![]),
        (
            json!({"failed": [{"text": "a"}, {"data": {"b": 1}}]}),
            Failed,
            vec![Part::text("a"), Part::data(json!({"b": 1}))],
        ),
        (json!({"rejected": "no"}), Rejected, text("no")),
    ] {
        check(&line, &Said::Status(state, parts));
    }
}

#[test]
fn artifacts_and_text() {
    let artifact = || Artifact::new("a", Part::text("x"));
    let written = json!({"artifactId": "a", "parts": [{"text": "x"}]});
    for (line, append, last) in [
        (json!({"artifact": written}), false, true),
        (json!({"artifact": written, "last": false}), false, false),
        (json!({"artifact": written, "append": true}), true, false),
        (json!({"artifact": written, "append": true, "last": true}), true, true),
    ] {
        check(&line, &Said::Artifact { artifact: artifact(), append, last });
    }
    check(&json!({"text": "x"}), &Said::Text { text: "x".to_owned(), last: false });
    check(&json!({"text": "", "last": true}), &Said::Text { text: String::new(), last: true });
    for reply in [json!("hi"), json!([{"text": "hi"}])] {
        check(&json!({"message": reply}), &Said::Reply(vec![Part::text("hi")]));
    }
}

/// All that the protocol's own words carry is kept, but for the ids of the task and the time.
#[test]
fn the_protocols_own_words() {
    let message =
        json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "ok"}], "metadata": {"k": 1}});
    let status = json!({"state": "TASK_STATE_WORKING", "message": message});
    let artifact = json!({"artifactId": "a", "parts": [{"text": "x"}]});
    for line in [
        json!({"message": message}),
        json!({"statusUpdate": {"status": status, "metadata": {"k": 2}}}),
        json!({"artifactUpdate": {"artifact": artifact, "append": true, "metadata": {"k": 3}}}),
    ] {
        let event: Event = serde_json::from_value(line.clone()).unwrap();
        check(&line, &Said::Event(event));
    }
    let line = |message: Value| json!({"statusUpdate": {"status": {"state": "TASK_STATE_WORKING", "message": message}}});
    let parts = json!([{"text": "ok"}]);
    let kept = line(json!({"messageId": "m", "role": "ROLE_AGENT", "parts": parts}));
    let mut said =
        line(json!({"messageId": "m", "taskId": "t", "contextId": "c", "role": "ROLE_USER", "parts": parts}));
    said["statusUpdate"]["status"]["timestamp"] = json!("2001-01-01T00:00:00Z");
    check(&said, &Said::Event(serde_json::from_value(kept).unwrap()));
}

#[test]
fn what_is_not_understood_says_why() {
    for (line, why) in [
        ("", "is no JSON object"),
        ("hello", "is no JSON object; expected an object such as {\"text\": \"…\"}"),
        ("{\"text\":", "is no JSON object"),
        ("[]", "is no JSON object"),
        ("{}", "has no known key; expected one of status, text"),
        (r#"{"last":true}"#, "has no known key"),
        (r#"{"txt":"x"}"#, r#"unknown key "txt"; did you mean "text"?"#),
        (r#"{"input_required":"x"}"#, r#"did you mean "inputRequired"?"#),
        (
            r#"{"artifact":{"artifactId":"a","parts":[{"text":"x"}]},"apend":true}"#,
            r#"did you mean "append"?"#,
        ),
        (r#"{"zzzzqqq":1}"#, r#"unknown key "zzzzqqq""#),
        (r#"{"text":"x","completed":""}"#, "do not go together"),
        (r#"{"status":"working","last":true}"#, "do not go together"),
        (r#"{"status":"wroking"}"#, r#""wroking"; did you mean "working"?"#),
        (r#"{"status":"canceled"}"#, "expected one of working"),
        (r#"{"status":7}"#, "expected one of working"),
        (r#"{"status":"working","text":"a","parts":[]}"#, r#"both "text" and "parts""#),
        (r#"{"statusUpdate":{"status":{"state":"TASK_STATE_CANCELED"}}}"#, "which an agent may not set"),
        (r#"{"statusUpdate":{}}"#, "TASK_STATE_UNSPECIFIED"),
        (r#"{"text":7}"#, r#"a wrong value in "text""#),
        (r#"{"text":"x","last":"yes"}"#, r#"a wrong value in "last""#),
        (r#"{"artifact":{"parts":[{"text":"x"}]}}"#, "without \"artifactId\""),
        (r#"{"artifact":{"artifactId":"a"}}"#, "without \"parts\""),
        (r#"{"artifact":"x"}"#, r#"a wrong value in "artifact""#),
        (r#"{"artifact":{"artifactId":"a","parts":[{}]}}"#, "none of text, raw, url, data"),
        (r#"{"completed":7}"#, "expected text, or an array of parts"),
        (r#"{"message":""}"#, "an empty \"message\""),
        (r#"{"message":{"parts":[{"text":"x"}]}}"#, "without \"messageId\""),
        (r#"{"message":{"messageId":"m"}}"#, "a message without \"parts\""),
        (
            r#"{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING","message":{}}}}"#,
            "without \"messageId\"",
        ),
        (r#"{"task":{}}"#, "the hub makes the task"),
    ] {
        let error = parse(line.as_bytes()).unwrap_err();
        assert!(error.contains(why), "{line}: expected {why:?} in {error:?}");
    }
}
