//! The playground: trials sent, shown, canceled.

use std::sync::Arc;

use nuncio_audit::exchange::Validity;
use nuncio_client::{Credentials, agent_url};
use nuncio_protocol::{Binding, Message, Metadata, Part, Version};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::{
    AdminState,
    api::{
        CancelTrial, FrameDirection, FrameValidity, ListTrials, NewTrial, SendTrial, ShowTrial, Trial,
        TrialFrame, TrialMode, TrialSummary, Trials,
    },
    endpoint::Reply,
    problem::AdminProblem,
};
use crate::playground::{self, AnswerMode, Direction, PRINCIPAL, TrialRefusal, TrialState, TrialTarget};

/// Maximum number of parts of a message.
const MAX_PARTS: usize = 100;

pub(super) async fn list(state: Arc<AdminState>, _: ListTrials) -> Result<Reply<Trials>, AdminProblem> {
    let trials = state.playground.all();
    let trials = trials.iter().map(|trial| summary(trial, &trial.state())).collect();
    Ok(Reply::new(Trials { trials }))
}

pub(super) async fn send(state: Arc<AdminState>, request: SendTrial) -> Result<Reply<Trial>, AdminProblem> {
    let new = read(request.trial)?;
    let trial = state.playground.send(new).await.map_err(refused)?;
    Ok(noted(&trial))
}

pub(super) async fn show(state: Arc<AdminState>, request: ShowTrial) -> Result<Reply<Trial>, AdminProblem> {
    Ok(Reply::new(shown(&*find(&state, &request.id)?)))
}

pub(super) async fn cancel(
    state: Arc<AdminState>,
    request: CancelTrial,
) -> Result<Reply<Trial>, AdminProblem> {
    let trial = find(&state, &request.id)?;
    state.playground.cancel(&trial).await;
    Ok(noted(&trial))
}

fn find(state: &AdminState, id: &str) -> Result<Arc<playground::Trial>, AdminProblem> {
    state.playground.find(id).ok_or_else(|| {
        AdminProblem::not_found(format!(
            "there is no trial {id}: only the last ones are kept, until the hub stops; send the message again"
        ))
    })
}

/// The answer, with the row about the agent and the principal.
fn noted(trial: &playground::Trial) -> Reply<Trial> {
    let subject = match &trial.target {
        TrialTarget::Agent(name) => name.clone(),
        TrialTarget::Card(url) => without_query(url),
    };
    Reply::new(shown(trial)).subject(subject).principal(PRINCIPAL)
}

/// An address without what may be a credential.
fn without_query(url: &url::Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    shown.to_string()
}

fn refused(refusal: TrialRefusal) -> AdminProblem {
    match refusal {
        TrialRefusal::NoAgent(name) => {
            AdminProblem::not_found(format!("there is no agent {name}; GET /api/v1/agents lists them"))
        }
        TrialRefusal::Invalid(why) => AdminProblem::invalid(why),
        TrialRefusal::Unavailable(why) => AdminProblem::unavailable(why),
    }
}

fn read(mut new: NewTrial) -> Result<playground::NewTrial, AdminProblem> {
    let key = new.key.take();
    let given = serde_json::to_value(&new).map_err(|_| AdminProblem::internal())?;
    let NewTrial {
        agent,
        card,
        version,
        binding,
        mode,
        parts,
        metadata,
        extensions,
        context_id,
        task_id,
        push,
        key: _,
    } = new;
    let target = match (agent, card) {
        (Some(name), None) => TrialTarget::Agent(name),
        (None, Some(url)) => {
            let url = agent_url(&url);
            TrialTarget::Card(
                url.map_err(|error| AdminProblem::invalid(format!("card: {}", error.message())))?,
            )
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err(AdminProblem::invalid("expected one of agent, a name, and card, an address"));
        }
    };
    let credentials = match key {
        None => Credentials::none(),
        Some(_) if matches!(target, TrialTarget::Agent(_)) => {
            return Err(AdminProblem::invalid(
                "key: an agent of the hub is called as the principal operator; leave the key out",
            ));
        }
        // The error must not show the key.
        Some(key) => Credentials::none()
            .bearer(&key)
            .map_err(|_| AdminProblem::invalid("key: it has characters that a header cannot hold"))?,
    };
    if parts.is_empty() || parts.len() > MAX_PARTS {
        return Err(AdminProblem::invalid(format!("parts: expected 1 to {MAX_PARTS}")));
    }
    let part = |(number, part): (usize, Value)| {
        serde_json::from_value::<Part>(part)
            .map_err(|error| AdminProblem::invalid(format!("parts[{number}]: {error}")))
    };
    let parts = parts.into_iter().enumerate().map(part).collect::<Result<Vec<_>, _>>()?;
    let mut message = Message::user(Uuid::now_v7().to_string(), parts);
    message.context_id = context_id.map(Into::into);
    message.task_id = task_id.map(Into::into);
    message.extensions = extensions.clone();
    message.metadata = Metadata::from_serialize(&metadata)
        .map_err(|error| AdminProblem::invalid(format!("metadata: {error}")))?;
    Ok(playground::NewTrial {
        target,
        version: version
            .map(|text| parse("version", &text, Version::ALL, |version| version.as_str()))
            .transpose()?,
        binding: binding
            .map(|text| parse("binding", &text, &BINDINGS, |binding| binding.as_str()))
            .transpose()?,
        mode: match mode {
            TrialMode::Stream => AnswerMode::Stream,
            TrialMode::Wait => AnswerMode::Wait,
            TrialMode::Now => AnswerMode::AtOnce,
        },
        message,
        extensions,
        pushes: push,
        credentials,
        given,
    })
}

/// The bindings that a trial speaks.
const BINDINGS: [Binding; 3] = [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc];

fn parse<T: Copy>(
    name: &str,
    text: &str,
    all: &[T],
    word: impl Fn(&T) -> &'static str,
) -> Result<T, AdminProblem> {
    let found = all.iter().find(|value| word(value).eq_ignore_ascii_case(text));
    found.copied().ok_or_else(|| {
        let words: Vec<_> = all.iter().map(word).collect();
        AdminProblem::invalid(format!("{name}: {text} is unknown; expected one of {}", words.join(", ")))
    })
}

fn shown(trial: &playground::Trial) -> Trial {
    let state = trial.state();
    let summary = summary(trial, &state);
    let TrialState { frames, is_cut, task, reply, curl, .. } = state;
    Trial {
        summary,
        frames: frames.into_iter().map(frame).collect(),
        truncated: is_cut,
        task: task.as_ref().and_then(value),
        reply: reply.as_deref().and_then(value),
        curl,
        request: serde_json::from_value(trial.given.clone()).ok(),
    }
}

fn value(value: &impl Serialize) -> Option<Value> {
    serde_json::to_value(value).ok()
}

fn summary(trial: &playground::Trial, state: &TrialState) -> TrialSummary {
    let (agent, card) = match &trial.target {
        TrialTarget::Agent(name) => (Some(name.clone()), None),
        TrialTarget::Card(url) => (None, Some(without_query(url))),
    };
    let interface = trial.interface();
    let task = state.task.as_ref();
    let context = task.map(|task| &task.context_id);
    let context = context.or(state.reply.as_ref().and_then(|reply| reply.context_id.as_ref()));
    TrialSummary {
        id: trial.id.clone(),
        agent,
        card,
        version: interface.version.clone(),
        binding: interface.binding.clone(),
        url: interface.url.clone(),
        began: trial.began,
        ended: state.ended,
        task_id: task.map(|task| task.id.to_string()),
        context_id: context.map(ToString::to_string),
        state: task.map(|task| task.status.state),
        frame_count: state.frames.len(),
    }
}

fn frame(frame: playground::TrialFrame) -> TrialFrame {
    let playground::TrialFrame { number, at, direction, label, validity, notes, text, is_cut } = frame;
    TrialFrame {
        number,
        at,
        direction: match direction {
            Direction::Sent => FrameDirection::Sent,
            Direction::Received => FrameDirection::Received,
            Direction::Notified => FrameDirection::Notified,
        },
        label,
        validity: validity.map(|validity| match validity {
            Validity::Valid => FrameValidity::Valid,
            Validity::Deviates => FrameValidity::Deviates,
            Validity::Error => FrameValidity::Error,
            Validity::Invalid => FrameValidity::Invalid,
        }),
        notes,
        text: Some(text).filter(|text| !text.is_empty()),
        truncated: is_cut,
    }
}
