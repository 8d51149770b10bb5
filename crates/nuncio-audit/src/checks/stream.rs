//! Checks of streams.

use std::collections::BTreeMap;

use nuncio_protocol::{Binding, Event, Version};
use serde_json::Value;

use super::{Row, Run, Talk};
use crate::{
    conversation::StreamSeen,
    observed::{Checked, Observed},
    outcome::Unseen,
    wire::End,
};

pub(super) const CHECKS: &[Row] = &[
    ("stream.opens", Run::Sent(opens)),
    ("stream.envelope", Run::Sent(envelope)),
    ("stream.first", Run::Sent(first)),
    ("stream.order", Run::Sent(order)),
    ("stream.kind", Run::Sent(kind)),
    ("stream.chunks", Run::Sent(chunks)),
    ("stream.terminal", Run::Sent(terminal)),
    ("stream.closes", Run::Sent(closes)),
    ("stream.readers", Run::Sent(readers)),
    ("stream.leaving", Run::Sent(leaving)),
    ("stream.resume", Run::Sent(resume)),
];

/// The stream, whether it opened or not.
fn stream<'a>(talk: &'a Talk<'_>) -> Result<&'a StreamSeen, Observed> {
    talk.seen
        .stream
        .as_ref()
        .ok_or_else(|| Observed::unseen(Unseen::Undeclared, "the card declares no streaming"))
}

/// The stream with its events.
fn events<'a>(talk: &'a Talk<'_>) -> Result<&'a StreamSeen, Observed> {
    let stream = stream(talk)?;
    match (&stream.refused, stream.typed().is_empty()) {
        (Some(_), _) => Err(Observed::no_setup("no stream opened")),
        (None, true) => {
            Err(Observed::unseen(Unseen::Slow, "no event came on the stream in time").on(&stream.exchange))
        }
        (None, false) => Ok(stream),
    }
}

fn broken(stream: &StreamSeen, why: impl Into<String>) -> Checked {
    Err(Observed::broken(why).on(&stream.exchange))
}

fn opens(talk: &Talk<'_>) -> Checked {
    let stream = stream(talk)?;
    let Some(answer) = &stream.refused else { return Ok(Observed::met().on(&stream.exchange)) };
    let answer = answer.seen()?;
    Err(Observed::broken(format!("no stream opens: {}", answer.shown()))
        .seen(answer.shown())
        .expecting("HTTP 200 with text/event-stream")
        .on(&answer.exchange))
}

fn envelope(talk: &Talk<'_>) -> Checked {
    let stream = events(talk)?;
    for seen in &stream.events {
        let envelope = &seen.envelope;
        let is_response = envelope["jsonrpc"] == "2.0" && envelope["id"] == 1;
        match talk.binding() {
            Binding::JsonRpc if !is_response => {
                return broken(
                    stream,
                    format!("an event is no JSON-RPC response with the id of the request: {envelope}"),
                );
            }
            Binding::HttpJson if envelope.get("jsonrpc").is_some() => {
                return broken(stream, "an event is wrapped in a JSON-RPC response");
            }
            _ if seen.event.is_err() => {
                return broken(stream, format!("an event cannot be decoded: {envelope}"));
            }
            _ => {}
        }
    }
    Ok(Observed::met())
}

fn first(talk: &Talk<'_>) -> Checked {
    let stream = events(talk)?;
    let events = stream.typed();
    match events.first() {
        Some(Event::Task(_)) => Ok(Observed::met()),
        Some(Event::Message(_)) if events.len() == 1 => Ok(Observed::met()),
        Some(Event::Message(_)) => broken(stream, "after a message the stream goes on"),
        _ => broken(stream, "the stream begins with an update, not with the task"),
    }
}

/// A stream may repeat the whole task at its end.
fn order(talk: &Talk<'_>) -> Checked {
    let stream = events(talk)?;
    let events = stream.typed();
    let Some(Event::Task(task)) = events.first() else {
        return Ok(Observed::no_setup("the stream does not begin with a task"));
    };
    for (number, event) in events.iter().enumerate().skip(1) {
        let is_last = number + 1 == events.len();
        match event {
            Event::Message(_) => return broken(stream, "a message comes after the task"),
            Event::Task(_) if !is_last => {
                return broken(stream, "the whole task is repeated in the middle of the stream");
            }
            _ if event.task_id() != Some(&task.id) => {
                return broken(stream, "an event is about another task");
            }
            _ => {}
        }
    }
    Ok(Observed::met())
}

fn kind(talk: &Talk<'_>) -> Checked {
    let stream = events(talk)?;
    let has = |value: &Value, name: &str| value.get(name).is_some();
    for seen in &stream.events {
        let raw = &seen.raw;
        match (talk.version(), talk.binding()) {
            (Version::V1_0, _) => {
                let inner = raw.as_object().and_then(|members| members.values().next()).unwrap_or(raw);
                if let Some(name) = ["kind", "final"].iter().find(|name| has(raw, name) || has(inner, name)) {
                    return broken(stream, format!("an event of 1.0 has the member {name}: {raw}"));
                }
            }
            (Version::V0_3, Binding::JsonRpc) if !raw["kind"].is_string() => {
                return broken(stream, format!("an event of 0.3 has no kind: {raw}"));
            }
            _ => {}
        }
    }
    if talk.version() == Version::V0_3 && talk.binding() == Binding::JsonRpc {
        return last_is_final(stream);
    }
    Ok(Observed::met())
}

/// The last status of 0.3 says that it is the last.
fn last_is_final(stream: &StreamSeen) -> Checked {
    if stream.end != End::Closed {
        return Ok(Observed::no_setup("the stream did not end"));
    }
    let last = stream.events.iter().rfind(|seen| seen.raw["kind"] == "status-update");
    match last {
        Some(last) if last.raw["final"] != true => broken(stream, "the last status has no final true"),
        _ => Ok(Observed::met()),
    }
}

fn chunks(talk: &Talk<'_>) -> Checked {
    let stream = events(talk)?;
    let events = stream.typed();
    // Whether the last chunk has come, by artifact.
    let mut begun: BTreeMap<&str, bool> = BTreeMap::new();
    if let Some(Event::Task(task)) = events.first() {
        begun.extend(task.artifacts.iter().map(|artifact| (artifact.artifact_id.as_str(), false)));
    }
    let mut seen = false;
    for event in events {
        let Event::ArtifactUpdate(update) = event else { continue };
        seen = true;
        let id = update.artifact.artifact_id.as_str();
        match (begun.get(id), update.append) {
            (None, true) => return broken(stream, format!("the artifact {id} begins with append")),
            (Some(true), true) => {
                return broken(stream, format!("the artifact {id} goes on after lastChunk"));
            }
            _ => {}
        }
        begun.insert(id, update.last_chunk);
    }
    Ok(if seen { Observed::met() } else { Observed::no_setup("no artifact came on the stream") })
}

/// Why nothing can be said about the end of a stream.
fn not_ended(stream: &StreamSeen) -> Option<Observed> {
    match &stream.end {
        End::Closed => None,
        End::Slow => Some(Observed::unseen(Unseen::Slow, "the stream did not end in time")),
        End::TooLong => Some(Observed::unseen(Unseen::Slow, "the stream is longer than the auditor reads")),
        End::Broken(why) => Some(Observed::unseen(Unseen::Unreachable, format!("the stream broke: {why}"))),
    }
}

fn last_status(stream: &StreamSeen) -> Option<nuncio_protocol::TaskState> {
    stream.typed().iter().rev().find_map(|event| event.status().map(|status| status.state))
}

fn terminal(talk: &Talk<'_>) -> Checked {
    let stream = events(talk)?;
    if let [Event::Message(_)] = stream.typed()[..] {
        return Ok(Observed::skip());
    }
    if let Some(observed) = not_ended(stream) {
        return Ok(observed);
    }
    match last_status(stream) {
        Some(state) if state.is_settled() => Ok(Observed::met()),
        Some(state) => broken(stream, format!("the stream ended in {}", state.as_str())),
        None => broken(stream, "no status came on the stream"),
    }
}

fn closes(talk: &Talk<'_>) -> Checked {
    let stream = events(talk)?;
    match (last_status(stream), &stream.end) {
        (Some(state), End::Slow) if state.is_terminal() => {
            broken(stream, "the stream stays open after the terminal status")
        }
        (Some(state), End::Closed) if state.is_terminal() => Ok(Observed::met()),
        (_, End::Closed) => Ok(Observed::no_setup("no terminal status came")),
        _ => Ok(not_ended(stream).unwrap_or_else(Observed::skip)),
    }
}

/// The second reader sees, after its snapshot, the end of what the first sees.
fn readers(talk: &Talk<'_>) -> Checked {
    let stream = events(talk)?;
    let Some((second, end)) = &stream.second else {
        return Ok(Observed::no_setup("the task had ended before a second reader could subscribe"));
    };
    if *end != End::Closed || stream.end != End::Closed {
        return Ok(Observed::unseen(Unseen::Slow, "the streams did not end in time"));
    }
    let second: Vec<_> = second.iter().filter_map(|seen| seen.event.as_ref().ok()).collect();
    let Some((Event::Task(_), later)) = second.split_first().map(|(first, later)| (*first, later)) else {
        return broken(stream, "the stream of a subscription does not begin with the task");
    };
    let all = stream.typed();
    if later.len() < all.len() && all.ends_with(later) {
        return Ok(Observed::met());
    }
    broken(
        stream,
        format!("the second reader has {} events that are not the last of the first reader", later.len()),
    )
}

fn leaving(talk: &Talk<'_>) -> Checked {
    let stream = events(talk)?;
    if !stream.one_left {
        return Ok(Observed::no_setup("the task had ended before a reader could leave"));
    }
    match (&stream.end, last_status(stream)) {
        (End::Closed, Some(state)) if state.is_settled() => Ok(Observed::met()),
        (End::Slow | End::TooLong, _) => Ok(Observed::unseen(Unseen::Slow, "the stream did not end in time")),
        _ => broken(stream, "after a reader had left, the stream of another broke off"),
    }
}

fn resume(talk: &Talk<'_>) -> Checked {
    let stream = events(talk)?;
    Ok(if stream.ids.iter().all(Option::is_some) {
        Observed::info("events have ids: clients may resume with Last-Event-ID, if the agent replays")
    } else {
        Observed::skip()
    })
}
