//! The end of programs, which leaves no process behind.

use nuncio_protocol::TaskState;

use super::*;

/// Long enough that whatever waits for it is seen to hang.
const LONG: Duration = Duration::from_secs(3600);
/// A grace for those that will not go.
const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_cancel_ends_all_of_a_program() {
    for (program, grace) in [
        // It goes when it is asked to.
        ("sleep 1000 & echo $!; wait", LONG),
        // It goes by itself when it is asked to, and so does what it has started. The child writes its own id:
        // between fork and exec it would still have the handler of its parent, and lose the signal.
        ("trap 'exit 0' TERM; sh -c 'echo $$; exec sleep 1000' & while :; do wait; done", LONG),
        // Neither it nor what it has started listens.
        ("trap '' TERM; sleep 1000 & echo $!; while :; do wait; done", SHORT),
        // What it has started does not hold its output and does not listen.
        ("(trap '' TERM; exec sleep 1000) >/dev/null 2>&1 & echo $!; wait", LONG),
    ] {
        let harness = agent(&Command { grace, ..script(Format::Text, program) });
        let task = harness.begin("hi").await.unwrap();
        let mut stream = harness.subscribe(&task.id).await.unwrap();
        let started = pid(&next_news(&mut stream).await);
        let task = harness.cancel(&task.id).await.unwrap();
        assert_eq!(task.status.state, TaskState::Canceled, "{program}");
        gone(started).await;
    }
}

#[tokio::test]
async fn a_hub_that_ends_takes_programs_with_it() {
    let harness = agent(&script(Format::Text, "sleep 1000 & echo $!; wait"));
    let mut stream = harness.stream("hi").await.unwrap();
    let started = pid(&next_news(&mut stream).await);
    harness.runtime.drain(Duration::ZERO).await;
    gone(started).await;
    let last = lines(stream).await.pop().unwrap();
    assert!(last.contains("status failed \"the server was shut down"), "{last}");
}

/// The runtime drops an executor that does not stop in time.
#[tokio::test]
async fn an_execution_that_is_dropped_takes_its_program_with_it() {
    let program = "trap '' TERM; sleep 1000 & echo $!; while :; do wait; done";
    let settings = Command { grace: LONG, ..script(Format::Text, program) };
    let limits = Limits { cancel_grace: SHORT, ..Limits::default() };
    let harness =
        Harness::with(Program::new(&settings, "coder", &isolation()), |builder| builder.limits(limits));
    let task = harness.begin("hi").await.unwrap();
    let mut stream = harness.subscribe(&task.id).await.unwrap();
    let started = pid(&next_news(&mut stream).await);
    harness.cancel(&task.id).await.unwrap();
    gone(started).await;
}

#[tokio::test]
async fn a_program_has_its_time() {
    let program = "sleep 1000 & echo $!; wait";
    let settings = Command { time_limit: Some(SHORT * 5), ..script(Format::Text, program) };
    let task = agent(&settings).task("hi").await.unwrap();
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(task.status.message.unwrap().text(), "the program ran for longer than 500ms");
    gone(Pid::from_raw(task.artifacts[0].text().trim().parse().unwrap()).unwrap()).await;
}

#[tokio::test]
async fn a_program_may_not_write_for_ever() {
    for format in [Format::Text, Format::Json] {
        let program = match format {
            Format::Text => "yes",
            Format::Json => r#"while :; do echo '{"text":"y"}'; done"#,
        };
        let settings = Command { output_limit: 100_001, ..script(format, program) };
        let task = agent(&settings).task("hi").await.unwrap();
        assert_eq!(task.status.state, TaskState::Failed);
        assert_eq!(task.status.message.unwrap().text(), "the program wrote more than 100001 bytes");
        if format == Format::Text {
            assert_eq!(task.artifacts[0].text(), format!("{}y", "y\n".repeat(50_000)));
        }
    }
}

#[tokio::test]
async fn output_that_others_hold_open_is_not_waited_for() {
    let settings = Command { grace: SHORT, ..script(Format::Text, "sleep 1000 & echo $!") };
    let task = agent(&settings).task("hi").await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    gone(Pid::from_raw(task.artifacts[0].text().trim().parse().unwrap()).unwrap()).await;
}

/// A program that has ended leaves no process behind, not even one that holds no pipe.
#[tokio::test]
async fn what_a_program_has_started_goes_with_it() {
    let settings = Command { grace: LONG, ..script(Format::Text, "sleep 1000 >/dev/null 2>&1 & echo $!") };
    let task = agent(&settings).task("hi").await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    gone(Pid::from_raw(task.artifacts[0].text().trim().parse().unwrap()).unwrap()).await;
}

#[tokio::test]
async fn a_program_that_closes_its_output_still_works() {
    let mut gate = Gate::new();
    let agent = agent(&gate.script(Format::Text, r#"echo up; exec >&-; read x < "$GATE"; exit 6"#));
    let mut stream = agent.stream("hi").await.unwrap();
    assert!(next_news(&mut stream).await.starts_with("3 artifact output \"up\n\""));
    gate.open(1);
    assert!(lines(stream).await.last().unwrap().ends_with("status failed \"exit code 6\""));
}

#[tokio::test]
async fn a_program_that_has_said_its_end_is_not_kept() {
    let program = r#"trap '' TERM; sleep 1000 & printf '{"completed":"%s"}\n' $!; while :; do wait; done"#;
    let task = agent(&Command { grace: SHORT, ..script(Format::Json, program) }).task("hi").await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    gone(Pid::from_raw(task.status.message.unwrap().text().parse().unwrap()).unwrap()).await;
}

#[tokio::test]
async fn a_hundred_at_once() {
    let mut gate = Gate::new();
    let program = r#"echo up; read x < "$GATE"; echo down"#;
    let settings = Command { processes: 100, ..gate.script(Format::Text, program) };
    let agent = agent(&settings);
    let mut streams = Vec::new();
    for _ in 0..100 {
        streams.push(agent.stream("hi").await.unwrap());
    }
    for stream in &mut streams {
        assert_eq!(next_news(stream).await, "3 artifact output \"up\n\"");
    }
    // All of them run: none has been let on.
    gate.open(100);
    for stream in streams {
        assert!(lines(stream).await.last().unwrap().ends_with("status completed"));
    }
}

#[tokio::test]
async fn further_messages_wait_for_a_process() {
    let folder = Folder::new();
    let settings = Command {
        processes: 1,
        directory: Some(folder.0.clone()),
        ..script(Format::Text, "mkdir lock && rmdir lock")
    };
    let agent = agent(&settings);
    let tasks = futures_util::future::join_all((0..20).map(|_| agent.task("hi"))).await;
    assert!(tasks.into_iter().all(|task| task.unwrap().status.state == TaskState::Completed));
}

#[tokio::test]
async fn a_message_that_waits_can_be_canceled() {
    let mut gate = Gate::new();
    let settings = gate.script(Format::Text, r#"echo up; read x < "$GATE""#);
    let agent = agent(&Command { processes: 1, ..settings });
    let mut first = agent.stream("hi").await.unwrap();
    assert_eq!(next_news(&mut first).await, "3 artifact output \"up\n\"");
    let second = agent.begin("hi").await.unwrap();
    assert_eq!(second.status.state, TaskState::Submitted);
    assert_eq!(agent.cancel(&second.id).await.unwrap().status.state, TaskState::Canceled);
    gate.open(1);
    assert!(lines(first).await.last().unwrap().ends_with("status completed"));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn memory_has_a_limit() {
    let mut gate = Gate::new();
    let mut settings = gate.script(Format::Text, r#"echo up; read x < "$GATE"; ulimit -v"#);
    settings.memory_limit = Some(512 * 1024 * 1024);
    let agent = agent(&settings);
    let mut stream = agent.stream("hi").await.unwrap();
    assert_eq!(next_news(&mut stream).await, "3 artifact output \"up\n\"");
    gate.open(1);
    let seen = lines(stream).await;
    assert!(seen[0].starts_with("4 artifact output +\"524288\n\""), "{seen:?}");
}

/// The output of a program goes into the task, and a task has a limit.
#[tokio::test]
async fn a_program_that_says_more_than_a_task_may_have_is_killed() {
    let settings = script(Format::Text, "echo $$; yes");
    let limits = Limits { max_task_bytes: 1 << 20, ..Limits::default() };
    let harness =
        Harness::with(Program::new(&settings, "coder", &isolation()), |builder| builder.limits(limits));
    let task = harness.task("hi").await.unwrap();
    assert_eq!(task.status.state, TaskState::Failed);
    let why = task.status.message.as_ref().unwrap().text().into_owned();
    assert!(why.contains("max_task_bytes"), "{why}");
    let said = task.artifacts[0].text().into_owned();
    assert!(said.len() <= 1 << 20, "what came is kept: {} bytes", said.len());
    let number = said.lines().next().unwrap().parse().unwrap();
    gone(Pid::from_raw(number).unwrap()).await;
}
