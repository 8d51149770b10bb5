//! Scenarios as text against a printed task, and laws over any scenario.
//!
//! A scenario is steps with `;` between them: `working "words"` is a status, with or without words of the
//! agent; `artifact a "x"` puts an artifact, `artifact a + "y"` appends to it, `artifact a +
//! & "y"` goes on with its text; `user "words"` is what a caller says; `snapshot working` is the whole task anew. `of other …` makes it another task's event,
//! `in other …` another context's, `in nowhere …` one without a context.

use std::{fmt::Write as _, sync::Arc};

use proptest::{collection, prelude::*};

use super::fold;
use crate::{
    Artifact, Content, ContextId, Event, Message, Part, Role, Task, TaskArtifactUpdateEvent, TaskId,
    TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};

const STATES: &[(&str, TaskState)] = &[
    ("submitted", TaskState::Submitted),
    ("working", TaskState::Working),
    ("completed", TaskState::Completed),
    ("failed", TaskState::Failed),
    ("canceled", TaskState::Canceled),
    ("input-required", TaskState::InputRequired),
    ("rejected", TaskState::Rejected),
    ("auth-required", TaskState::AuthRequired),
];

fn state(name: &str) -> TaskState {
    let known = STATES.iter().find(|(known, _)| *known == name);
    known.unwrap_or_else(|| panic!("{name} is no state")).1
}

fn state_name(state: TaskState) -> &'static str {
    STATES.iter().find(|(_, known)| *known == state).map_or("unspecified", |(name, _)| name)
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).unwrap()
}

fn empty_task() -> Task {
    Task { id: "t".into(), context_id: "c".into(), ..Task::default() }
}

/// The author of a step's event.
struct Address {
    task_id: TaskId,
    context_id: ContextId,
}

/// One step of a scenario. The texts are also the ids of the messages.
fn event(step: &str) -> Event {
    let mut address = Address { task_id: "t".into(), context_id: "c".into() };
    let mut step = step.trim();
    if let Some(rest) = step.strip_prefix("of other ") {
        (address.task_id, step) = ("other".into(), rest);
    } else if let Some(rest) = step.strip_prefix("in other ") {
        (address.context_id, step) = ("other".into(), rest);
    } else if let Some(rest) = step.strip_prefix("in nowhere ") {
        (address.context_id, step) = ("".into(), rest);
    }
    let mut quoted = step.split('"');
    let words: Vec<&str> = quoted.next().unwrap_or_default().split_whitespace().collect();
    let texts: Vec<&str> = quoted.step_by(2).collect();
    build(address, &words, &texts)
}

fn build(Address { task_id, context_id }: Address, words: &[&str], texts: &[&str]) -> Event {
    let status = |name: &str| TaskStatus {
        state: state(name),
        message: texts.first().map(|text| Arc::new(Message::agent(*text, Part::text(*text)))),
        timestamp: None,
    };
    match *words {
        ["user"] => {
            let message = Message::user(texts[0], Part::text(texts[0]));
            Event::Message(Arc::new(Message {
                task_id: Some(task_id),
                context_id: Some(context_id),
                ..message
            }))
        }
        ["snapshot", name] => {
            Event::Task(Task { id: task_id, context_id, status: status(name), ..Task::default() })
        }
        ["artifact", id, ref mark @ ..] => {
            let parts: Vec<Part> = texts.iter().map(|text| Part::text(*text)).collect();
            Event::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id,
                context_id,
                artifact: Arc::new(Artifact::new(id, parts)),
                append: mark.contains(&"+"),
                joins: mark.contains(&"&"),
                ..TaskArtifactUpdateEvent::default()
            })
        }
        [name] => Event::StatusUpdate(TaskStatusUpdateEvent {
            task_id,
            context_id,
            status: status(name),
            ..TaskStatusUpdateEvent::default()
        }),
        _ => panic!("{words:?} is no step"),
    }
}

/// `state "words"; a = x + y; history: user "hi", agent "hm"`.
fn print(task: &Task) -> String {
    let mut out = state_name(task.status.state).to_owned();
    if let Some(message) = &task.status.message {
        write!(out, " \"{}\"", message.text()).unwrap();
    }
    for artifact in &task.artifacts {
        let parts: Vec<_> = artifact.parts.iter().filter_map(Part::as_text).collect();
        write!(out, "; {} = {}", artifact.artifact_id, parts.join(" + ")).unwrap();
    }
    let history: Vec<String> = task.history.iter().map(|message| print_message(message)).collect();
    if !history.is_empty() {
        write!(out, "; history: {}", history.join(", ")).unwrap();
    }
    out
}

fn print_message(message: &Message) -> String {
    let who = if message.role == Role::User { "user" } else { "agent" };
    format!("{who} \"{}\"", message.text())
}

/// Folds a scenario; what was refused is listed behind the task.
#[track_caller]
fn run(scenario: &str) -> (Task, String) {
    let mut task = empty_task();
    let mut refused = String::new();
    for step in scenario.split(';') {
        let before = task.clone();
        if let Err(refusal) = fold(&mut task, &event(step), at(0)) {
            assert_eq!(task, before, "a refusal leaves the task untouched: {step}");
            write!(refused, "; refused: {refusal}").unwrap();
        }
    }
    let printed = print(&task) + &refused;
    (task, printed)
}

#[track_caller]
fn check(scenario: &str, expected: &str) {
    assert_eq!(run(scenario).1, expected, "{scenario}");
}

#[test]
fn a_task_from_beginning_to_end() {
    check(
        r#"submitted; working "thinking"; artifact a "x"; artifact a + "y"; completed "done""#,
        r#"completed "done"; a = x + y; history: agent "thinking""#,
    );
    check(r#"snapshot working "on it"; completed"#, r#"completed; history: agent "on it""#);
}

#[test]
fn what_the_agent_said_moves_to_history_when_the_next_status_comes() {
    // C-19, C-21: oldest first
    check(r#"working "1""#, r#"working "1""#);
    check(r#"working "1"; working "2"; working"#, r#"working; history: agent "1", agent "2""#);
    check(
        r#"user "hi"; working; input-required "which?"; user "that"; working; completed "done""#,
        r#"completed "done"; history: user "hi", agent "which?", user "that""#,
    );
    check(
        r#"input-required "which?"; user "that""#,
        r#"input-required; history: agent "which?", user "that""#,
    );
}

#[test]
fn any_jump_between_states_is_allowed() {
    // C-29: only "terminal is final" is normative
    check("working; submitted; auth-required; input-required; submitted", "submitted");
    check("completed", "completed");
    check("input-required; rejected", "rejected");
}

#[test]
fn terminal_is_terminal() {
    // Invariant 6
    for end in ["completed", "failed", "canceled", "rejected"] {
        let over = format!("the task has ended in {}", state(end));
        for late in ["working", "completed", r#"artifact a "x""#, r#"user "hi""#, "snapshot working"] {
            check(&format!("{end}; {late}"), &format!("{end}; refused: {over}"));
        }
    }
}

#[test]
fn artifacts_are_replaced_or_appended_to() {
    // REQ-150, REQ-151, rule 14 of streaming
    check(r#"working; artifact a "x"; artifact a "y""#, "working; a = y");
    check(r#"working; artifact a "x" "y"; artifact a + "z""#, "working; a = x + y + z");
    check(r#"working; artifact a "x"; artifact b "y"; artifact a + "z""#, "working; a = x + z; b = y");
    check(r#"working; artifact a + "x"; artifact a + "y""#, "working; a = x + y");
    check(
        r#"working; artifact a "x"; artifact a + "y"; artifact a "z"; artifact a + "!""#,
        "working; a = z + !",
    );
}

#[test]
fn text_that_joins_goes_on_with_the_last_part() {
    check(r#"working; artifact a & "x"; artifact a + & "y"; artifact a + & "z""#, "working; a = xyz");
    check(r#"working; artifact a + & "x"; artifact a + & "y""#, "working; a = xy");
    check(r#"working; artifact a "x" "y"; artifact a + & "z" "!""#, "working; a = x + yz + !");
    check(r#"working; artifact a "x"; artifact a + "y"; artifact a + & "z""#, "working; a = x + yz");
    check(r#"working; artifact a "x"; artifact b "y"; artifact a + & "z""#, "working; a = xz; b = y");
    check(r#"working; artifact a "x"; artifact a & "y""#, "working; a = y");
    // The last piece may be empty.
    check(r#"working; artifact a "x"; artifact a + & """#, "working; a = x");
    check(r#"working; artifact a "x"; artifact a + """#, "working; a = x + ");
}

#[test]
fn only_text_joins_and_only_text_of_the_same_kind() {
    let named = Part::text("x").with_filename("x.txt");
    let typed = Part::text("x").with_media_type("text/markdown");
    let mut noted = Part::text("x");
    noted.metadata.insert("k", 1);
    let parts = [Part::text("x"), named, typed, noted, Part::raw("x"), Part::data(1), Part::url("x")];
    for last in &parts {
        for next in &parts {
            let mut update = TaskArtifactUpdateEvent {
                task_id: "t".into(),
                artifact: Arc::new(Artifact::new("a", last.clone())),
                joins: true,
                ..TaskArtifactUpdateEvent::default()
            };
            let mut task = empty_task();
            fold(&mut task, &Event::ArtifactUpdate(update.clone()), at(0)).unwrap();
            (update.append, update.artifact) = (true, Arc::new(Artifact::new("a", next.clone())));
            fold(&mut task, &Event::ArtifactUpdate(update), at(0)).unwrap();
            let expected = match (last == next, next.as_text()) {
                (true, Some(_)) => vec![Part { content: Content::Text("xx".to_owned()), ..next.clone() }],
                _ => vec![last.clone(), next.clone()],
            };
            assert_eq!(task.artifacts[0].parts, expected);
        }
    }
}

#[test]
fn an_artifact_has_a_part_unless_it_only_ends_one() {
    // Trap T-13
    let empty = "refused: an artifact needs at least one part";
    check("working; artifact a", &format!("working; {empty}"));
    check("working; artifact a +", &format!("working; {empty}"));
    check(r#"working; artifact a "x"; artifact a"#, &format!("working; a = x; {empty}"));
    check(r#"working; artifact a "x"; artifact a +"#, "working; a = x");
}

#[test]
fn an_event_of_something_else_is_refused() {
    let task = "refused: the event belongs to another task";
    let context = "refused: the event belongs to another context";
    for step in ["completed", r#"artifact a "x""#, r#"user "hi""#, "snapshot completed"] {
        check(&format!("working; of other {step}"), &format!("working; {task}"));
        check(&format!("working; in other {step}"), &format!("working; {context}"));
    }
}

#[test]
fn an_event_without_a_context_is_taken_and_the_context_kept() {
    for step in ["completed", r#"artifact a "x""#, "snapshot working"] {
        let (task, printed) = run(&format!("working; in nowhere {step}"));
        assert!(!printed.contains("refused"), "{printed}");
        assert_eq!(task.context_id.as_str(), "c", "{step}");
    }
}

#[test]
fn a_task_without_a_context_takes_the_one_of_the_next_event() {
    let mut task = Task { context_id: ContextId::default(), ..empty_task() };
    fold(&mut task, &event("working"), at(0)).unwrap();
    assert_eq!(task.context_id.as_str(), "c");
    assert!(fold(&mut task, &event("in other working"), at(0)).is_err());
}

#[test]
fn every_status_gets_a_time_and_keeps_its_own() {
    for step in ["working", "snapshot working"] {
        let mut task = empty_task();
        fold(&mut task, &event(step), at(5)).unwrap();
        assert_eq!(task.status.timestamp, Some(at(5)), "{step}");
    }
    let mut task = empty_task();
    let Event::StatusUpdate(mut update) = event("working") else { unreachable!() };
    update.status.timestamp = Some(at(3));
    fold(&mut task, &Event::StatusUpdate(update), at(5)).unwrap();
    assert_eq!(task.status.timestamp, Some(at(3)));
}

#[test]
fn metadata_of_a_status_and_of_a_piece_is_merged() {
    let mut task = empty_task();
    for (key, value) in [("a", 1), ("b", 2), ("a", 3)] {
        let Event::StatusUpdate(mut update) = event("working") else { unreachable!() };
        update.metadata.insert(key, value);
        fold(&mut task, &Event::StatusUpdate(update), at(0)).unwrap();
    }
    assert_eq!(serde_json::to_string(&task.metadata).unwrap(), r#"{"a":3,"b":2}"#);

    for (name, uri) in [("draft", "u1"), ("", "u1"), ("report", "u2")] {
        let Event::ArtifactUpdate(mut update) = event(r#"artifact a + "x""#) else { unreachable!() };
        let artifact = Arc::make_mut(&mut update.artifact);
        artifact.name = name.to_owned();
        artifact.extensions = vec![uri.to_owned()];
        artifact.metadata.insert(uri, name);
        fold(&mut task, &Event::ArtifactUpdate(update), at(0)).unwrap();
    }
    let artifact = &task.artifacts[0];
    assert_eq!((artifact.name.as_str(), artifact.parts.len()), ("report", 3));
    assert_eq!(artifact.extensions, ["u1", "u2"]);
    assert_eq!(serde_json::to_string(&artifact.metadata).unwrap(), r#"{"u1":"","u2":"report"}"#);
}

/// Steps of any kind; the number makes every text its own.
fn any_step() -> impl Strategy<Value = String> {
    let spoken = prop::bool::weighted(0.7);
    let status = (0..STATES.len(), spoken, prop::bool::weighted(0.1)).prop_map(|(index, spoken, end)| {
        // Ends are rare, so that scenarios get somewhere.
        let name = if end || !STATES[index].1.is_terminal() { STATES[index].0 } else { "working" };
        if spoken { format!("{name} \"#\"") } else { name.to_owned() }
    });
    let artifact = ("[ab]", any::<bool>(), 0..3_usize).prop_map(|(id, append, parts)| {
        format!("artifact {id} {} {}", if append { "+" } else { "" }, "\"#\" ".repeat(parts))
    });
    prop_oneof![4 => status, 4 => artifact]
}

fn any_step_or_caller() -> impl Strategy<Value = String> {
    prop_oneof![6 => any_step(), 2 => Just("user \"#\"".to_owned())]
}

/// The events of steps, stamped as a server stamps what it records, each text with its own number.
fn recorded(steps: &[String]) -> Vec<Event> {
    let mut number = 0;
    let stamp = |(index, step): (usize, &String)| {
        let mut numbered = String::new();
        for piece in step.split_inclusive('#') {
            numbered.push_str(piece);
            if piece.ends_with('#') {
                number += 1;
                numbered.push_str(&number.to_string());
            }
        }
        let mut event = event(&numbered);
        if let Event::StatusUpdate(update) = &mut event {
            update.status.timestamp = Some(at(i64::try_from(index).unwrap()));
        }
        event
    };
    steps.iter().enumerate().map(stamp).collect()
}

fn over_the_wire(event: &Event) -> Event {
    serde_json::from_slice(&serde_json::to_vec(event).unwrap()).unwrap()
}

/// The messages of a task in order: its history, then the message of its status.
fn said(task: &Task, who: impl Fn(Role) -> bool) -> Vec<String> {
    let all = task.history.iter().chain(&task.status.message);
    all.filter(|message| who(message.role)).map(|message| print_message(message)).collect()
}

proptest! {
    #[test]
    fn nothing_changes_a_task_that_has_ended(
        before in collection::vec(any_step_or_caller(), 0..8),
        end in prop::sample::select(vec!["completed", "failed", "canceled", "rejected"]),
        after in collection::vec(any_step_or_caller(), 1..8),
    ) {
        let mut task = empty_task();
        for event in recorded(&before) {
            let _ = fold(&mut task, &event, at(0));
        }
        let _ = fold(&mut task, &event(end), at(0));
        let ended = task.clone();
        prop_assert!(ended.status.state.is_terminal());
        for event in recorded(&after) {
            prop_assert!(fold(&mut task, &event, at(9)).is_err());
            prop_assert_eq!(&task, &ended);
        }
    }

    #[test]
    fn a_refusal_leaves_the_task_untouched(steps in collection::vec(any_step_or_caller(), 0..20)) {
        let mut task = empty_task();
        for event in recorded(&steps) {
            let before = task.clone();
            if fold(&mut task, &event, at(0)).is_err() {
                prop_assert_eq!(&task, &before);
            }
        }
    }

    #[test]
    fn a_client_that_follows_the_stream_has_the_servers_task(
        before in collection::vec(any_step_or_caller(), 0..8),
        after in collection::vec(any_step(), 0..20),
    ) {
        // REQ-135, REQ-142, REQ-151: the stream begins with the task, wherever it then stands
        let mut server = empty_task();
        let mut steps = before.clone();
        steps.extend(after);
        let events = recorded(&steps);
        let (early, late) = events.split_at(before.len());
        for event in early {
            let _ = fold(&mut server, event, at(0));
        }
        let Event::Task(mut client) = over_the_wire(&Event::Task(server.clone())) else { unreachable!() };
        for event in late {
            // What the server refuses is not recorded and reaches nobody.
            if fold(&mut server, event, at(1)).is_ok() {
                fold(&mut client, &over_the_wire(event), at(2)).unwrap();
            }
        }
        prop_assert_eq!(client, server);
    }

    #[test]
    fn a_client_misses_only_what_callers_said(steps in collection::vec(any_step_or_caller(), 0..20)) {
        // A caller's message is in the log, but is no event on the wire
        let (mut server, mut client) = (empty_task(), empty_task());
        for event in recorded(&steps) {
            if fold(&mut server, &event, at(1)).is_ok() && !matches!(event, Event::Message(_)) {
                fold(&mut client, &event, at(2)).unwrap();
            }
        }
        prop_assert_eq!(client.status.state, server.status.state);
        prop_assert_eq!(&client.artifacts, &server.artifacts);
        let agent = |role| role == Role::Agent;
        prop_assert_eq!(said(&client, agent), said(&server, agent));
    }

    #[test]
    fn appending_chunks_gives_the_chunks_in_order(chunks in collection::vec("[a-z]{1,3}", 1..50)) {
        let mut task = empty_task();
        for chunk in &chunks {
            fold(&mut task, &event(&format!("artifact a + \"{chunk}\"")), at(0)).unwrap();
        }
        let parts: Vec<&str> = task.artifacts[0].parts.iter().filter_map(Part::as_text).collect();
        prop_assert_eq!(parts, chunks);
        prop_assert_eq!(task.artifacts.len(), 1);
    }

    #[test]
    fn a_text_that_joins_is_one_part_here_and_the_same_text_for_a_client(
        chunks in collection::vec("[a-zß€]{0,3}", 1..50),
    ) {
        // REQ-151: the client appends parts
        let (mut server, mut client) = (empty_task(), empty_task());
        for chunk in &chunks {
            let event = event(&format!("artifact a + & \"{chunk}\""));
            fold(&mut server, &event, at(0)).unwrap();
            fold(&mut client, &over_the_wire(&event), at(0)).unwrap();
        }
        prop_assert_eq!(&server.artifacts[0].parts, &[Part::text(chunks.concat())]);
        prop_assert_eq!(client.artifacts[0].parts.len(), chunks.len());
        prop_assert_eq!(client.artifacts[0].text(), chunks.concat());
    }

    #[test]
    fn history_neither_loses_nor_repeats_a_message(steps in collection::vec(any_step_or_caller(), 0..20)) {
        let mut task = empty_task();
        let mut expected = Vec::new();
        for event in recorded(&steps) {
            if fold(&mut task, &event, at(0)).is_err() {
                continue;
            }
            match &event {
                Event::Message(message) => expected.push(print_message(message)),
                Event::StatusUpdate(update) => expected.extend(update.status.message.as_deref().map(print_message)),
                Event::Task(_) | Event::ArtifactUpdate(_) => {}
            }
        }
        prop_assert_eq!(said(&task, |_| true), expected);
    }

    #[test]
    fn trimming_keeps_the_most_recent(length in -1..6_i32, total in 0..5_usize) {
        // REQ-113 to REQ-115, C-20
        let mut task = empty_task();
        for number in 0..total {
            task.history.push(Arc::new(Message::user(number.to_string(), Part::text(number.to_string()))));
        }
        let all = task.history.clone();
        task.trim_history(Some(length));
        let kept = usize::try_from(length).map_or(total, |length| length.min(total));
        prop_assert_eq!(&task.history[..], &all[total - kept..]);
    }
}
