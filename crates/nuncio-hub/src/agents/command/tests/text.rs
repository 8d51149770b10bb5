//! Text in, text out.

use nuncio_protocol::{A2aService as _, TaskState};
use serde_json::json;

use super::*;

#[tokio::test]
async fn output_is_the_artifact_and_the_exit_code_the_state() {
    for (text, expected) in [
        ("cat", &["artifact output \"hi\" last", "status completed"][..]),
        ("true", &["status completed"]),
        ("printf '%s' \"$NUNCIO_AGENT\"", &["artifact output \"coder\" last", "status completed"]),
        ("echo a; echo noise >&2", &["artifact output \"a\n\" last", "status completed"]),
        ("exit 3", &["status failed \"exit code 3\""]),
        ("exit 77", &["status failed \"exit code 77\""]),
        ("echo no such file >&2; exit 1", &["status failed \"exit code 1\nno such file\""]),
        ("echo a; exit 1", &["artifact output \"a\n\" last", "status failed \"exit code 1\""]),
        ("kill -KILL $$", &["status failed \"killed by signal 9 (SIGKILL)\""]),
        ("kill -SEGV $$", &["status failed \"killed by signal 11 (SIGSEGV)\""]),
        ("printf '\\377x'", &["artifact output \"\u{FFFD}x\" last", "status completed"]),
    ] {
        assert_eq!(whole(&run(Format::Text, text, "hi").await), worked(expected), "{text}");
    }
}

#[tokio::test]
async fn output_streams_as_it_comes_and_characters_stay_whole() {
    let mut gate = Gate::new();
    let program = r#"printf 'a\303'; read x < "$GATE"; printf '\237'; read x < "$GATE"; printf b"#;
    let agent = agent(&gate.script(Format::Text, program));
    let mut stream = agent.stream("hi").await.unwrap();
    assert_eq!(next_news(&mut stream).await, "3 artifact output \"a\"");
    gate.open(1);
    assert_eq!(next_news(&mut stream).await, "4 artifact output +\"ß\"");
    gate.open(1);
    let rest = whole(&lines(stream).await);
    assert_eq!(rest, ["artifact output +\"b\" last", "status completed"]);
}

/// A program that writes byte by byte does not make an event of each.
#[tokio::test]
async fn small_writes_are_put_together() {
    let program = "i=0; while [ $i -lt 2000 ]; do printf x; i=$((i+1)); done";
    let agent = agent(&script(Format::Text, program));
    let stream = agent.stream("hi").await.unwrap();
    let seen = lines(stream).await;
    assert!(seen.len() < 1000, "{} events", seen.len());
    let text: usize = seen.iter().map(|line| line.matches('x').count()).sum();
    assert_eq!(text, 2000);
}

/// However it was cut, the task has one text.
#[tokio::test]
async fn a_text_that_comes_in_pieces_is_one_part() {
    let mut gate = Gate::new();
    let program = r#"i=0; while [ $i -lt 400 ]; do printf 'token %s ' $i; [ $i = 200 ] && read x < "$GATE"; i=$((i+1)); done"#;
    let agent = agent(&gate.script(Format::Text, program));
    let mut stream = agent.stream("hi").await.unwrap();
    let first = next_news(&mut stream).await;
    assert!(first.starts_with("3 artifact output \"token 0 "), "the first piece comes at once: {first}");
    gate.open(1);
    lines(stream).await;
    let request = nuncio_protocol::ListTasksRequest { include_artifacts: Some(true), ..Default::default() };
    let task = agent.runtime.list_tasks(&agent.cx, request).await.unwrap().tasks.remove(0);
    let text: String = (0..400).map(|number| format!("token {number} ")).collect();
    assert_eq!(task.artifacts[0].parts, [Part::text(text)]);
    assert_eq!(agent.get(&task.id).await.unwrap(), task);
}

#[tokio::test]
async fn data_is_a_line_and_files_are_refused() {
    let seen = run(Format::Text, "cat", say(vec![Part::text("a"), Part::data(json!({"b": 1}))])).await;
    assert_eq!(whole(&seen), worked(&["artifact output \"a\n{\"b\":1}\n\" last", "status completed"]));
    let agent = agent(&script(Format::Text, "cat"));
    for file in
        [Part::raw("x"), Part::url("https://example.com/x"), Part::raw("x").with_media_type("image/png")]
    {
        let error = agent.send(say(vec![file])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ContentTypeNotSupported);
    }
    // Where there is a task already, it says so.
    let task = agent.begin(say(vec![Part::raw("x")])).await.unwrap();
    let task = agent.until(&task.id, TaskState::Failed).await.unwrap();
    assert!(task.status.message.unwrap().text().contains("no files"));
}

#[tokio::test]
async fn a_program_that_does_not_read_is_not_waited_for() {
    let long = "x".repeat(10_000_000);
    assert_eq!(whole(&run(Format::Text, "true", long.as_str()).await), worked(&["status completed"]));
    // It goes on for a while, with its input open and full.
    let mut gate = Gate::new();
    let agent = agent(&gate.script(Format::Text, r#"echo up; read x < "$GATE"; exit 4"#));
    let mut stream = agent.stream(long.as_str()).await.unwrap();
    assert_eq!(next_news(&mut stream).await, "3 artifact output \"up\n\"");
    gate.open(1);
    assert_eq!(lines(stream).await.last().unwrap(), "5 status failed \"exit code 4\"");
}

#[tokio::test]
async fn long_messages_and_long_answers_arrive_whole() {
    let long = "äx\n".repeat(1_000_000);
    let task = agent(&script(Format::Text, "cat")).task(long.as_str()).await.unwrap();
    assert_eq!(task.artifacts.len(), 1);
    assert!(task.artifacts[0].text() == long, "{} bytes of {}", task.artifacts[0].text().len(), long.len());
}

#[tokio::test]
async fn a_program_sees_what_it_is_allowed_to_see() {
    let mut settings = Command::new(Format::Text, "env", []);
    settings.inherit = vec!["PATH".to_owned(), "NUNCIO_NOT_SET".to_owned()];
    settings.environment.0 =
        [("TOKEN", "s3cret"), ("NUNCIO_AGENT", "another")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let harness = agent(&settings).calling(|cx| {
        cx.trace = Some(nuncio_protocol::TraceContext { parent: "00-ab-cd-01".to_owned(), state: None });
    });
    let task = harness.task("hi").await.unwrap();
    let text = task.artifacts[0].text().into_owned();
    let mut seen: Vec<&str> = text.lines().collect();
    seen.sort_unstable();
    let expected = [
        "NUNCIO_AGENT=coder".to_owned(),
        format!("NUNCIO_CONTEXT_ID={}", isolation().contexts.derive(&harness.cx.caller, &task.context_id)),
        format!("NUNCIO_TASK_ID={}", task.id),
        format!("PATH={}", std::env::var("PATH").unwrap()),
        "TOKEN=s3cret".to_owned(),
        "TRACEPARENT=00-ab-cd-01".to_owned(),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_program_runs_where_it_is_told_to() {
    let folder = Folder::new();
    let directory = folder.0.canonicalize().unwrap();
    let settings = Command { directory: Some(directory.clone()), ..Command::new(Format::Text, "pwd", []) };
    let task = agent(&settings).task("hi").await.unwrap();
    assert_eq!(task.artifacts[0].text().trim_end(), directory.to_str().unwrap());
}

#[tokio::test]
async fn what_cannot_be_run_says_why() {
    let folder = Folder::new();
    let plain = folder.0.join("plain");
    std::fs::write(&plain, "x").unwrap();
    let program = |program: &str| Command::new(Format::Text, program, []);
    for (settings, why) in [
        (program("nuncio-no-such-program"), "the program of this agent was not found"),
        (program("./no/such/program"), "the program of this agent was not found"),
        (program("/"), "the program of this agent was not found"),
        (program(plain.to_str().unwrap()), "the program of this agent may not be executed"),
        (
            Command { directory: Some(folder.0.join("gone")), ..program("cat") },
            "the working directory of this agent's program is not there",
        ),
        (
            Command { environment: path(folder.0.to_str().unwrap()), ..program("sh") },
            "the program of this agent was not found",
        ),
        (
            Command { environment: path(folder.0.to_str().unwrap()), ..program("plain") },
            "the program of this agent may not be executed",
        ),
    ] {
        // The operator is told at once, and is not stopped: it may come.
        drop(Program::new(&settings, "coder", &isolation()));
        let seen = lines(agent(&settings).stream("hi").await.unwrap()).await;
        assert_eq!(
            seen,
            ["1 task submitted".to_owned(), format!("2 status failed \"{why}\"")],
            "{settings:?}"
        );
    }
}

fn path(path: &str) -> config::Environment {
    config::Environment([("PATH".to_owned(), path.to_owned())].into())
}

#[test]
fn without_the_operators_words_the_card_says_what_is_known_of_a_program() {
    let urls = AgentUrls::new(&Url::parse("http://127.0.0.1:2602").unwrap(), None);
    let mut settings = Command::new(Format::Text, "/opt/agents/coder.py", []);
    let text = card(&urls, "coder", &settings);
    assert_eq!(text.default_input_modes, ["text/plain", "application/json"]);
    assert_eq!(text.default_output_modes, ["text/plain"]);
    assert_eq!(text.capabilities.streaming, Some(true));
    settings.format = Format::Json;
    let json = card(&urls, "coder", &settings);
    assert_eq!(json.default_input_modes, ["*/*"]);
    for card in [text, json] {
        let [skill] = &card.skills[..] else { panic!("{card:?}") };
        assert_eq!((&*skill.id, &*skill.tags[0]), ("message", "program"), "it is not called as the agent");
        for said in [&card.description, &skill.name, &skill.description] {
            assert!(!said.is_empty() && !said.contains("coder"), "{said}");
        }
    }
}
