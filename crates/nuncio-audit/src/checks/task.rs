//! Checks of tasks after their messages.

use nuncio_protocol::{ErrorKind, Task, TaskState, Version};

use super::{Row, Run, Talk, send::answered};
use crate::{
    answer::Answer,
    observed::{Checked, Observed},
    probe::refused_with,
};

pub(super) const CHECKS: &[Row] = &[
    ("task.get", Run::Sent(get)),
    ("task.history", Run::Sent(history)),
    ("task.history-zero", Run::Sent(history_zero)),
    ("task.history-negative", Run::Sent(history_negative)),
    ("task.cancel", Run::Sent(cancel)),
    ("task.cancel-ended", Run::Sent(cancel_ended)),
    ("task.cancel-twice", Run::Sent(cancel_twice)),
    ("task.message-ended", Run::Sent(message_ended)),
    ("task.subscribe-ended", Run::Sent(subscribe_ended)),
    ("task.same", Run::Sent(same)),
];

/// The task of the message that waited.
fn task<'a>(talk: &'a Talk<'_>) -> Result<&'a Task, Observed> {
    answered(talk.seen.blocking.as_ref())?;
    talk.seen.task().ok_or_else(|| Observed::no_setup("the agent answers with messages"))
}

/// The task in an answer.
fn task_in(answer: &Answer) -> Result<&Task, Observed> {
    answer.task().ok_or_else(|| {
        Observed::broken(format!("expected the task, got {}", answer.shown()))
            .seen(answer.shown())
            .on(&answer.exchange)
    })
}

/// The first difference between two views of a task.
fn difference(one: &Task, other: &Task) -> Option<String> {
    let texts =
        |task: &Task| task.artifacts.iter().map(|artifact| artifact.text().into_owned()).collect::<Vec<_>>();
    let ids =
        |task: &Task| task.artifacts.iter().map(|artifact| artifact.artifact_id.clone()).collect::<Vec<_>>();
    if one.id != other.id {
        Some(format!("id {} and {}", one.id, other.id))
    } else if one.context_id != other.context_id {
        Some(format!("contextId {:?} and {:?}", one.context_id.as_str(), other.context_id.as_str()))
    } else if one.status.state != other.status.state {
        Some(format!("state {} and {}", one.status.state.as_str(), other.status.state.as_str()))
    } else if ids(one) != ids(other) || texts(one) != texts(other) {
        Some(format!(
            "{} artifacts and {} artifacts, or other content",
            one.artifacts.len(),
            other.artifacts.len()
        ))
    } else {
        None
    }
}

fn get(talk: &Talk<'_>) -> Checked {
    let sent = task(talk)?;
    let answer = talk.seen.call("get")?;
    let got = task_in(answer)?;
    match difference(sent, got).filter(|_| sent.status.state.is_settled()) {
        None => Ok(Observed::met().on(&answer.exchange)),
        Some(why) => Err(Observed::broken(format!("the answer to the message and GetTask differ: {why}"))
            .on(&answer.exchange)),
    }
}

fn history(talk: &Talk<'_>) -> Checked {
    let whole = task_in(talk.seen.call("get")?).map_err(|_| Observed::no_setup("the task cannot be read"))?;
    let answer = talk.seen.call("history-one")?;
    let got = task_in(answer)?;
    let broken = |why: &str| {
        let seen = format!("{} messages", got.history.len());
        Err(Observed::broken(why).seen(seen).expecting("the latest message").on(&answer.exchange))
    };
    if got.history.len() > 1 {
        return broken("historyLength 1 gives more than one message");
    }
    match (whole.history.last(), got.history.first()) {
        (None, _) => Ok(Observed::no_setup("the agent keeps no history")),
        (Some(_), None) => Ok(Observed::met()),
        (Some(last), Some(only)) if last.message_id == only.message_id => Ok(Observed::met()),
        _ => broken("historyLength 1 gives another message than the latest"),
    }
}

fn history_zero(talk: &Talk<'_>) -> Checked {
    let answer = talk.seen.call("history-zero")?;
    let got = answer.task().ok_or_else(|| Observed::no_setup("the task cannot be read"))?;
    if got.history.is_empty() {
        return Ok(Observed::met().on(&answer.exchange));
    }
    Err(Observed::broken("historyLength 0 gives a history")
        .seen(format!("{} messages", got.history.len()))
        .expecting("none")
        .on(&answer.exchange))
}

fn history_negative(talk: &Talk<'_>) -> Checked {
    refused_with(talk.seen.call("history-negative")?, &[ErrorKind::InvalidParams])
}

/// Cancel is best effort: a task that has ended meanwhile may not be cancelable.
fn cancel(talk: &Talk<'_>) -> Checked {
    if !talk.seen.calls.contains_key("cancel") {
        return Ok(Observed::no_setup("the task had ended before it could be canceled"));
    }
    let answer = talk.seen.call("cancel")?;
    match answer.error() {
        Some(refusal) if refusal.kind == ErrorKind::TaskNotCancelable => {
            let why = "the agent does not cancel this task; the specification leaves that to the agent";
            return Ok(Observed::info(why).on(&answer.exchange));
        }
        _ => {}
    }
    let state = task_in(answer)?.status.state;
    let after = talk.seen.call("after-cancel").ok().and_then(Answer::task).map(|task| task.status.state);
    if state == TaskState::Canceled && after.is_some_and(|after| after != TaskState::Canceled) {
        let seen = after.map_or("", TaskState::as_str);
        return Err(Observed::broken("the canceled task is not canceled when it is read again")
            .seen(seen)
            .expecting("TASK_STATE_CANCELED")
            .on(&answer.exchange));
    }
    Ok(Observed::met().on(&answer.exchange))
}

fn cancel_ended(talk: &Talk<'_>) -> Checked {
    let before = task(talk)?;
    let answer = talk.seen.call("cancel-ended")?;
    refused_with(answer, &[ErrorKind::TaskNotCancelable])?;
    let after = talk.seen.call("after-ended").ok().and_then(Answer::task);
    match after.map(|after| after.status.state).filter(|state| *state != before.status.state) {
        None => Ok(Observed::met().on(&answer.exchange)),
        Some(state) => Err(Observed::broken("a refused cancel changed the task")
            .seen(state.as_str())
            .expecting(before.status.state.as_str())
            .on(&answer.exchange)),
    }
}

fn cancel_twice(talk: &Talk<'_>) -> Checked {
    let first = talk.seen.call("after-cancel")?;
    let Some(state) = first.task().map(|task| task.status.state).filter(|state| state.is_terminal()) else {
        return Ok(Observed::no_setup("the first cancel did not end the task"));
    };
    let answer = talk.seen.call("cancel-again")?;
    let after = talk.seen.call("after-cancel-again")?.task().map(|task| task.status.state);
    let has_changed = after.is_some_and(|after| after != state);
    if has_changed && answer.error().is_some() {
        let seen = after.map_or("", TaskState::as_str);
        let why = format!(
            "the task changed from {} to {seen} after it had ended; the second cancel was refused, so that the first one \
             may be the cause",
            state.as_str()
        );
        return Ok(Observed::info(why).on(&answer.exchange));
    }
    if has_changed {
        return Err(Observed::broken("the second cancel changed the task")
            .seen(after.map_or("", TaskState::as_str))
            .expecting(state.as_str())
            .on(&answer.exchange));
    }
    match answer.error() {
        Some(refusal) if !matches!(refusal.kind, ErrorKind::TaskNotCancelable | ErrorKind::TaskNotFound) => {
            Err(Observed::broken(format!("the second cancel is answered with {}", refusal.shown()))
                .seen(refusal.shown())
                .expecting("the task, or TaskNotCancelableError")
                .on(&answer.exchange))
        }
        _ => Ok(Observed::met().on(&answer.exchange)),
    }
}

fn message_ended(talk: &Talk<'_>) -> Checked {
    task(talk)?;
    let answer = talk.seen.call("message-ended")?;
    if talk.version() == Version::V1_0 {
        return refused_with(answer, &[ErrorKind::UnsupportedOperation]);
    }
    if answer.error().is_some() {
        return Ok(Observed::met().on(&answer.exchange));
    }
    Err(Observed::broken("a message to an ended task is accepted").seen(answer.shown()).on(&answer.exchange))
}

fn subscribe_ended(talk: &Talk<'_>) -> Checked {
    if talk.card.capabilities.streaming != Some(true) {
        return Ok(Observed::skip());
    }
    task(talk)?;
    refused_with(talk.seen.call("subscribe-ended")?, &[ErrorKind::UnsupportedOperation])
}

/// The task that was made over the first interface, read over this one.
fn same(talk: &Talk<'_>) -> Checked {
    let Some((made, answer)) = talk.elsewhere else { return Ok(Observed::skip()) };
    let answer = answer.seen()?;
    let got = task_in(answer)?;
    match difference(made, got) {
        None => Ok(Observed::met().on(&answer.exchange)),
        Some(why) => {
            Err(Observed::broken(format!("the task differs between interfaces: {why}")).on(&answer.exchange))
        }
    }
}
