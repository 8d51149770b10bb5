//! Checks of messages and their answers.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use nuncio_protocol::{Binding, ErrorKind, Timestamp, Version, op::Op};
use serde_json::Value;

use super::{Row, Run, Talk};
use crate::{
    answer::{Answer, Said, Typed},
    conversation::{Timed, context_of},
    observed::{Checked, Observed},
    probe::refused_with,
    shape::{self, Class, Deviation},
};

pub(super) const CHECKS: &[Row] = &[
    ("send.empty-params", Run::Sent(|talk| invalid(talk, "empty-params"))),
    ("send.empty-parts", Run::Sent(|talk| invalid(talk, "empty-parts"))),
    ("send.two-members", Run::Sent(|talk| invalid(talk, "two-members"))),
    (
        "send.unknown-task",
        Run::Sent(|talk| refused_with(talk.seen.call("unknown-task")?, &[ErrorKind::TaskNotFound])),
    ),
    ("send.shape", Run::Sent(shape)),
    ("send.members", Run::Sent(members)),
    ("send.names", Run::Sent(names)),
    ("send.timestamps", Run::Sent(timestamps)),
    ("send.precision", Run::Sent(precision)),
    ("send.base64", Run::Sent(base64)),
    ("send.context", Run::Sent(context)),
    ("send.blocks", Run::Sent(blocks)),
    ("send.immediate", Run::Sent(immediate)),
    ("send.context-mismatch", Run::Sent(context_mismatch)),
    ("send.media-type", Run::Sent(media_type)),
];

/// An agent that takes at least this long shows whether it returns before the end.
const LONG: std::time::Duration = std::time::Duration::from_secs(1);

/// The answer to a message that was executed.
pub(super) fn answered(timed: Option<&Timed>) -> Result<&Timed, Observed> {
    let timed = timed.ok_or_else(|| Observed::no_setup("no message was sent"))?;
    timed.answer.seen()?;
    match &timed.answer.said {
        Said::Error(refusal) => {
            let why = format!("the agent refused the message: {}", refusal.message);
            Err(Observed::no_setup(why).on(&timed.answer.exchange))
        }
        Said::Success(_) | Said::Foreign(_) | Said::Silent(_) => Ok(timed),
    }
}

/// The mistakes of a message are told with invalid params; a liberal agent may call the request invalid.
fn invalid(talk: &Talk<'_>, name: &'static str) -> Checked {
    refused_with(
        talk.seen.call(name)?,
        &[ErrorKind::InvalidParams, ErrorKind::InvalidRequest, ErrorKind::ContentTypeNotSupported],
    )
}

fn shape(talk: &Talk<'_>) -> Checked {
    let timed = answered(talk.seen.blocking.as_ref()).or_else(|_| answered(talk.seen.immediate.as_ref()))?;
    let answer = &timed.answer;
    let broken = |why: String, seen: String| {
        Err(Observed::broken(why)
            .seen(crate::wire::shortened(&seen))
            .expecting(form(talk))
            .on(&answer.exchange))
    };
    let Some(success) = answer.success() else {
        return broken("the answer is not one of this binding".to_owned(), answer.shown());
    };
    if let Err(why) = &success.typed {
        return broken(format!("the answer cannot be decoded: {why}"), success.raw.to_string());
    }
    let has = |name: &str| usize::from(success.raw[name].is_object());
    let is_formed = match (talk.version(), talk.binding()) {
        (_, Binding::Grpc) => true,
        (Version::V0_3, Binding::JsonRpc) => {
            success.raw["kind"] == "task" || success.raw["kind"] == "message"
        }
        _ => has("task") + has("message") + has("msg") == 1,
    };
    if is_formed {
        return Ok(Observed::met().on(&answer.exchange));
    }
    broken("the answer has another form".to_owned(), success.raw.to_string())
}

fn form(talk: &Talk<'_>) -> &'static str {
    match (talk.version(), talk.binding()) {
        (Version::V0_3, Binding::JsonRpc) => r#"{"kind":"task",…} or {"kind":"message",…}"#,
        _ => r#"{"task":{…}} or {"message":{…}}"#,
    }
}

/// The results that were seen: their operations, JSON and exchanges.
fn results<'a>(talk: &'a Talk<'_>) -> Vec<(Op, &'a Value, &'a Answer)> {
    let sent = [talk.seen.blocking.as_ref(), talk.seen.immediate.as_ref()];
    let sent = sent.into_iter().flatten().map(|timed| (Op::SendMessage, &timed.answer));
    let got = talk.seen.calls.get("get").map(|answer| (Op::GetTask, answer));
    let answers = sent.chain(got);
    answers.filter_map(|(op, answer)| answer.success().map(|success| (op, &success.raw, answer))).collect()
}

/// The deviations of all results and events, with the exchange of the first.
fn deviations<'a>(
    talk: &'a Talk<'_>,
    classes: &[Class],
) -> Result<Vec<(Deviation, &'a crate::wire::Exchange)>, Observed> {
    let results = results(talk);
    if results.is_empty() {
        return Err(Observed::no_setup("the agent gave no result"));
    }
    let dialect = talk.interface.dialect();
    let mut found = Vec::new();
    for (op, raw, answer) in results {
        found.extend(
            shape::of_result(dialect, op, raw).into_iter().map(|deviation| (deviation, &answer.exchange)),
        );
    }
    if let Some(stream) = &talk.seen.stream {
        let events = stream.events.iter().flat_map(|seen| shape::of_event(dialect, &seen.raw));
        found.extend(events.map(|deviation| (deviation, &stream.exchange)));
    }
    found.retain(|(deviation, _)| classes.contains(&deviation.class));
    Ok(found)
}

fn members(talk: &Talk<'_>) -> Checked {
    let found = deviations(talk, &[Class::Name, Class::Missing, Class::Value])?;
    if let Some((first, exchange)) = found.first() {
        return Err(Observed::broken(format!("{}: {} instead of {}", first.path, first.before, first.after))
            .seen(first.before.clone())
            .expecting(first.after.clone())
            .on(exchange));
    }
    let unknown = deviations(talk, &[Class::Unknown])?;
    Ok(match unknown.first() {
        Some((first, exchange)) => {
            Observed::info(format!("{} is no member of this version; clients ignore it", first.path))
                .on(exchange)
        }
        None => Observed::met(),
    })
}

fn names(talk: &Talk<'_>) -> Checked {
    match deviations(talk, &[Class::Enum])?.first() {
        None => Ok(Observed::met()),
        Some((first, exchange)) => {
            Err(Observed::broken(format!("{} is {} instead of {}", first.path, first.before, first.after))
                .seen(first.before.clone())
                .expecting(first.after.clone())
                .on(exchange))
        }
    }
}

/// Every timestamp that was seen, with its exchange.
fn times<'a>(talk: &'a Talk<'_>) -> Result<Vec<(String, &'a str, &'a Answer)>, Observed> {
    let mut found = Vec::new();
    for (_, raw, answer) in results(talk) {
        let values = shape::values(raw, &["timestamp"]).into_iter();
        found.extend(values.filter_map(|(path, value)| Some((path, value.as_str()?, answer))));
    }
    if found.is_empty() { Err(Observed::no_setup("the agent gave no timestamp")) } else { Ok(found) }
}

fn timestamps(talk: &Talk<'_>) -> Checked {
    let times = times(talk)?;
    let wrong = times.iter().find(|(_, text, _)| !text.ends_with('Z') || Timestamp::parse(text).is_err());
    match wrong {
        None => Ok(Observed::met()),
        Some((path, text, answer)) => Err(Observed::broken(format!("{path} is not a time in UTC with Z"))
            .seen(*text)
            .expecting(
                Timestamp::parse(text).map_or("2026-01-31T12:00:00.000Z".to_owned(), |time| time.to_string()),
            )
            .on(&answer.exchange)),
    }
}

fn precision(talk: &Talk<'_>) -> Checked {
    let times = times(talk)?;
    let digits = |text: &str| {
        let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
        fraction.bytes().take_while(u8::is_ascii_digit).count()
    };
    match times.iter().find(|(_, text, _)| digits(text) < 3) {
        None => Ok(Observed::met()),
        Some((path, text, answer)) => {
            Err(Observed::broken(format!("{path} has no milliseconds")).seen(*text).on(&answer.exchange))
        }
    }
}

fn base64(talk: &Talk<'_>) -> Checked {
    let mut seen = false;
    for (_, raw, answer) in results(talk) {
        for (path, value) in shape::values(raw, &["raw", "bytes", "fileWithBytes"]) {
            seen = true;
            let text = value.as_str().unwrap_or_default();
            if STANDARD.decode(text).is_err() {
                return Err(Observed::broken(format!("{path} is not standard base64"))
                    .seen(crate::wire::shortened(text))
                    .expecting("standard base64 with padding")
                    .on(&answer.exchange));
            }
        }
    }
    Ok(if seen { Observed::met() } else { Observed::no_setup("the agent answered without a file") })
}

fn context(talk: &Talk<'_>) -> Checked {
    let timed = answered(talk.seen.immediate.as_ref()).or_else(|_| answered(talk.seen.blocking.as_ref()))?;
    if context_of(&timed.answer).is_some() {
        return Ok(Observed::met().on(&timed.answer.exchange));
    }
    if timed.answer.success().is_none_or(|success| success.typed.is_err()) {
        return Ok(Observed::no_setup("the answer cannot be decoded"));
    }
    Err(Observed::broken("the answer has no contextId").expecting("contextId").on(&timed.answer.exchange))
}

fn blocks(talk: &Talk<'_>) -> Checked {
    let timed = answered(talk.seen.blocking.as_ref())?;
    let Some(task) = timed.answer.task() else {
        return Ok(Observed::no_setup("the agent answers with messages"));
    };
    let state = task.status.state;
    if state.is_settled() {
        return Ok(Observed::met().on(&timed.answer.exchange));
    }
    Err(Observed::broken("the send returned before the task had ended or asked for input")
        .seen(state.as_str())
        .expecting("a terminal or interrupted state")
        .on(&timed.answer.exchange))
}

fn immediate(talk: &Talk<'_>) -> Checked {
    let timed = answered(talk.seen.immediate.as_ref())?;
    let Some(task) = timed.answer.task() else {
        return Ok(Observed::no_setup("the agent answers with messages"));
    };
    if !task.status.state.is_settled() {
        return Ok(Observed::met().on(&timed.answer.exchange));
    }
    let usual = talk.seen.blocking.as_ref().map(|timed| timed.elapsed).unwrap_or_default();
    if usual > LONG && timed.elapsed > usual / 2 {
        return Err(Observed::broken(
            "the send waited for the end of the task, although it was to return at once",
        )
        .seen(task.status.state.as_str())
        .expecting("TASK_STATE_SUBMITTED or TASK_STATE_WORKING")
        .on(&timed.answer.exchange));
    }
    Ok(Observed::no_setup("the task had ended before the send could return"))
}

fn context_mismatch(talk: &Talk<'_>) -> Checked {
    let answer = talk.seen.call("context-mismatch")?;
    if answer.error().is_some() {
        return Ok(Observed::met().on(&answer.exchange));
    }
    Err(Observed::broken("a message with the context of another conversation is accepted")
        .seen(answer.shown())
        .expecting("error -32602 (INVALID_PARAMS)")
        .on(&answer.exchange))
}

fn media_type(talk: &Talk<'_>) -> Checked {
    let Some(answer) = talk.seen.calls.get("media-type") else {
        return Ok(Observed::no_setup("the card accepts every media type"));
    };
    let answer = answer.seen()?;
    if let Some(Ok(Typed::Task(task))) = answer.success().map(|success| &success.typed)
        && task.status.state == nuncio_protocol::TaskState::Rejected
    {
        let why = "the task is rejected: section 3.1.1 names ContentTypeNotSupportedError";
        return Ok(Observed::info(why).on(&answer.exchange));
    }
    let verdict = refused_with(answer, &[ErrorKind::ContentTypeNotSupported]);
    if verdict.is_err() && talk.version() == Version::V0_3 && answer.error().is_none() {
        let why = "the agent works on a media type that its card does not have: 0.3 has an error for that, and no rule \
                   when to answer with it";
        return Ok(Observed::info(why).on(&answer.exchange));
    }
    verdict
}
