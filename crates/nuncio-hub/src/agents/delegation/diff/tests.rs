//! The changes that a snapshot brings, case by case.

use nuncio_protocol::{Timestamp, fold};
use serde_json::json;

use super::*;

/// A task in a few words: its state, `+id text,text` for artifacts, `>id words` for what the agent says with the
/// status, `<id words` for its history.
fn task(text: &str) -> Task {
    let mut words = text.split("; ");
    let state = match words.next().unwrap_or_default() {
        "submitted" => TaskState::Submitted,
        "working" => TaskState::Working,
        "completed" => TaskState::Completed,
        "asks" => TaskState::InputRequired,
        other => panic!("no state: {other}"),
    };
    let mut task = Task {
        id: "t".into(),
        context_id: "c".into(),
        status: TaskStatus { state, message: None, timestamp: Some(Timestamp::EPOCH) },
        ..Task::default()
    };
    for word in words {
        let (id, rest) = word[1..].split_once(' ').unwrap_or((&word[1..], ""));
        let message = || Arc::new(Message::agent(id, Part::text(rest)));
        match &word[..1] {
            "+" => {
                let parts: Vec<_> = rest.split(',').map(Part::text).collect();
                task.artifacts.push(Arc::new(Artifact::new(id, parts)));
            }
            ">" => task.status.message = Some(message()),
            "<" => task.history.push(message()),
            other => panic!("no sign: {other}"),
        }
    }
    task
}

fn line(event: &Event) -> String {
    match event {
        Event::StatusUpdate(update) => {
            let words = update.status.message.as_ref().map(|message| format!(" {:?}", message.text()));
            format!("{}{}", update.status.state, words.unwrap_or_default())
                .replace("TASK_STATE_", "")
                .to_lowercase()
        }
        Event::ArtifactUpdate(update) => {
            let texts: Vec<_> = update.artifact.parts.iter().filter_map(Part::as_text).collect();
            let how = if update.append { "+=" } else { "=" };
            let last = if update.last_chunk { "." } else { "" };
            format!("{} {how} {}{last}", update.artifact.artifact_id, texts.join(","))
        }
        other => panic!("no such event: {other:?}"),
    }
}

#[test]
fn only_what_is_new_is_told() {
    for (known, seen, expected) in [
        // The first look.
        (None, "submitted", "submitted"),
        (None, "working", "working"),
        (None, "completed; +a x", "a = x.; completed"),
        (None, "working; <m1 hm; >m2 soon", "working \"hm\"; working \"soon\""),
        // Nothing new.
        (Some("working"), "working", ""),
        (Some("working; >m1 soon"), "working; >m1 soon", ""),
        (Some("working; +a x,y"), "working; +a x,y", ""),
        (Some("working; +a x"), "working", ""),
        // Artifacts grow, change and come.
        (Some("working; +a x"), "working; +a x,y", "a += y"),
        (Some("working; +a x"), "working; +a y", "a = y"),
        (Some("working; +a x"), "completed; +a x", "completed"),
        (Some("working; +a x"), "completed; +a x,y; +b z", "a += y.; b = z.; completed"),
        // The same text in other pieces is the same text.
        (Some("working; +a x,y"), "working; +a xy", ""),
        (Some("working; +a x,y"), "working; +a xyz", "a += z"),
        (Some("working; +a hel"), "completed; +a hello", "a += lo.; completed"),
        // A new status, and new words about the old one.
        (Some("working; >m1 soon"), "working; >m2 sooner", "working \"sooner\""),
        (Some("working; >m1 soon"), "asks; >m2 which?", "input_required \"which?\""),
        (Some("working; >m1 soon"), "completed; <m1 soon", "completed"),
        // What was said while nobody looked.
        (Some("working; >m1 a"), "working; <m1 a; <m2 b; >m3 c", "working \"b\"; working \"c\""),
        // Words that have another id each time.
        (Some("working; <m1 a; >m2 b"), "working; <m7 a; >m8 b", ""),
        // The question that a follow-up answers is in history by then, and still the upstream's status.
        (Some("asks; <m1 which?"), "asks; >m1 which?", ""),
        (Some("asks; <m1 which?"), "asks; >m2 and how many?", "input_required \"and how many?\""),
        (Some("asks; <m1 which?"), "working; >m2 ok", "working \"ok\""),
    ] {
        let (known, seen) = (known.map(task), task(seen));
        let events = diff(known.as_ref(), &seen);
        let lines: Vec<_> = events.iter().map(line).collect();
        assert_eq!(lines.join("; "), expected, "{known:?} → {seen:?}");
        // The same snapshot again brings no change.
        let mut told = known.unwrap_or_else(|| task("submitted"));
        for event in &events {
            let mut event = event.clone();
            if let Event::StatusUpdate(update) = &mut event {
                update.task_id = "t".into();
            }
            if let Event::ArtifactUpdate(update) = &mut event {
                update.task_id = "t".into();
            }
            fold(&mut told, &event, Timestamp::EPOCH).unwrap();
        }
        assert_eq!(diff(Some(&told), &seen).iter().map(line).collect::<Vec<_>>(), Vec::<String>::new());
    }
}

#[test]
fn an_artifact_with_another_label_is_told_whole() {
    let (known, mut seen) = (task("working; +a x"), task("working; +a x,y"));
    Arc::make_mut(&mut seen.artifacts[0]).name = "A".to_owned();
    assert_eq!(diff(Some(&known), &seen).iter().map(line).collect::<Vec<_>>(), ["a = x,y"]);
}

#[test]
fn parts_that_are_more_than_text_are_not_joined() {
    let (mut known, mut seen) = (task("working; +a x,y"), task("working; +a xyz"));
    let named = |text: &str| Part::text(text).with_filename("f");
    Arc::make_mut(&mut known.artifacts[0]).parts = vec![named("x")];
    Arc::make_mut(&mut seen.artifacts[0]).parts = vec![named("xy")];
    assert_eq!(diff(Some(&known), &seen).iter().map(line).collect::<Vec<_>>(), ["a = xy"]);
}

#[test]
fn metadata_of_the_task_comes_with_its_next_status() {
    let (mut known, mut seen) = (task("working"), task("completed"));
    known.metadata = json!({"a": 1, "b": 2}).as_object().unwrap().clone().into();
    seen.metadata = json!({"a": 1, "b": 3, "c": 4}).as_object().unwrap().clone().into();
    let mut events = diff(Some(&known), &seen);
    assert_eq!(*events[0].metadata_mut(), json!({"b": 3, "c": 4}));
}

#[test]
fn an_artifact_without_parts_is_nothing_to_tell() {
    let mut seen = task("working; +a x");
    Arc::make_mut(&mut seen.artifacts[0]).parts.clear();
    assert_eq!(diff(Some(&task("working")), &seen), []);
}
