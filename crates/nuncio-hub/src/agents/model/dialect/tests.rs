//! Events as providers send them.

use super::*;

fn decoded(dialect: Dialect, data: &str) -> Result<Vec<Piece>, Undecodable> {
    decode(dialect, data)
}

fn call(index: u64, id: &str, name: &str, arguments: &str) -> Piece {
    let call = ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() };
    Piece::Call { index, call }
}

#[test]
fn chunks_of_chat_completions() {
    let usage = |input, output, cached, reasoning| Piece::Usage(Usage { input, output, cached, reasoning });
    for (data, expected) in [
        ("[DONE]", vec![Piece::End]),
        (" [DONE]", vec![Piece::End]),
        (r#"{"choices":[]}"#, vec![]),
        (r#"{}"#, vec![]),
        (r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#, vec![]),
        (r#"{"choices":[{"delta":{"content":null}}],"usage":null}"#, vec![]),
        (
            r#"{"choices":[{"delta":{"content":"ä"},"finish_reason":null}]}"#,
            vec![Piece::Text("ä".to_owned())],
        ),
        (r#"{"choices":[{"delta":{"reasoning":"r"}}]}"#, vec![Piece::Reasoning("r".to_owned())]),
        (
            r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"length"}]}"#,
            vec![Piece::Text("x".to_owned()), Piece::Finish(Finish::Length)],
        ),
        (r#"{"choices":[{"delta":{},"finish_reason":"something"}]}"#, vec![Piece::Finish(Finish::Other)]),
        (
            r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}"#,
            vec![usage(Some(9), Some(3), None, None)],
        ),
        (
            r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}"#,
            vec![usage(Some(9), Some(3), Some(4), Some(2))],
        ),
        (
            r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"t","function":{"name":"n","arguments":"{"}}]}}]}"#,
            vec![call(1, "t", "n", "{")],
        ),
        (
            r#"{"choices":[{"message":{"tool_calls":[{"function":{"name":"n","arguments":{"a":1}}}]},"finish_reason":"tool_calls"}]}"#,
            vec![call(0, "", "n", r#"{"a":1}"#), Piece::Finish(Finish::Tools)],
        ),
        (r#"{"error":{"message":"gone","code":500}}"#, vec![Piece::Error("gone".to_owned())]),
        (r#"{"error":"gone"}"#, vec![Piece::Error("gone".to_owned())]),
    ] {
        assert_eq!(decoded(Dialect::OpenAi, data), Ok(expected), "{data}");
    }
}

#[test]
fn events_of_messages() {
    for (data, expected) in [
        (r#"{"type":"ping"}"#, vec![]),
        (r#"{"type":"content_block_stop","index":0}"#, vec![]),
        (
            r#"{"type":"content_block_delta","delta":{"type":"signature_delta","signature":"x"}}"#,
            vec![Piece::Signature("x".to_owned())],
        ),
        (
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}"#,
            vec![call(1, "t", "n", "")],
        ),
        (
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"n","input":{"a":1}}}"#,
            vec![call(1, "t", "n", r#"{"a":1}"#)],
        ),
        (
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{"}}"#,
            vec![call(1, "", "", "{")],
        ),
        (
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
            vec![Piece::Finish(Finish::Tools)],
        ),
        (
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"ä"}}"#,
            vec![Piece::Text("ä".to_owned())],
        ),
        (
            r#"{"type":"message_delta","delta":{"stop_reason":"refusal"}}"#,
            vec![Piece::Finish(Finish::Refused)],
        ),
        (
            r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}"#,
            vec![Piece::Finish(Finish::Length)],
        ),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            vec![Piece::Error("Overloaded".to_owned())],
        ),
        (r#"{"type":"message_stop"}"#, vec![Piece::End]),
        (r#"{"type":"of_next_year","x":1}"#, vec![]),
    ] {
        assert_eq!(decoded(Dialect::Anthropic, data), Ok(expected), "{data}");
    }
}

/// Any text is decoded or refused, and never more than that: every cut of every event of the tables, and values of
/// another type in each place.
#[test]
fn nothing_that_a_provider_sends_is_fatal() {
    let events = [
        r#"{"choices":[{"index":0,"delta":{"content":"x","refusal":"y","reasoning":"z"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens_details":{"reasoning_tokens":1}}}"#,
        r#"{"type":"message_start","message":{"usage":{"input_tokens":1,"cache_read_input_tokens":18446744073709551615}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}"#,
        r#"{"error":{"message":["x"]}}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"t","function":{"name":"n","arguments":"{"}}]}}]}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"n","input":{"a":1}}}"#,
    ];
    for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
        for event in events {
            for (at, _) in event.char_indices() {
                let _ = decoded(dialect, &event[..at]);
                let _ = error_message(&event.as_bytes()[at..]);
                let _ = decode_models(&event.as_bytes()[..at]);
            }
            for other in ["null", "1", "-1.5e300", "\"t\"", "[]", "{}", "[[1]]", "true"] {
                for (at, _) in event.match_indices(':') {
                    let end = event[at + 1..].find([',', '}']).map_or(event.len(), |end| at + 1 + end);
                    let _ = decoded(dialect, &format!("{}{other}{}", &event[..=at], &event[end..]));
                }
            }
        }
    }
}

#[test]
fn errors_and_lists_in_the_forms_that_servers_have() {
    for (body, expected) in [
        (r#"{"error":{"message":"a","type":"x"}}"#, Some("a")),
        (r#"{"error":"a"}"#, Some("a")),
        (r#"{"type":"error","error":{"type":"invalid_request_error","message":"a"}}"#, Some("a")),
        (r#"{"message":"a"}"#, Some("a")),
        (r#"{"detail":"a"}"#, Some("a")),
        (r#"[{"error":{"message":"a"}}]"#, Some("a")),
        (r#"{"error":{"message":" "}}"#, None),
        ("<html>", None),
        ("", None),
    ] {
        assert_eq!(error_message(body.as_bytes()).as_deref(), expected, "{body}");
    }
    for (body, expected) in [
        (r#"{"data":[{"id":"a"},{"id":"b","owned_by":"x"}]}"#, Some(vec!["a", "b"])),
        (r#"{"models":[{"name":"a"},{}]}"#, Some(vec!["a"])),
        (r#"{"data":[]}"#, Some(vec![])),
        (r#"{"data":{}}"#, None),
        ("[]", None),
    ] {
        assert_eq!(
            decode_models(body.as_bytes()).ok(),
            expected.map(|list| list.iter().map(ToString::to_string).collect()),
            "{body}"
        );
    }
}
