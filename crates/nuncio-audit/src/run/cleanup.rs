//! Cancels what an audit has begun.

use nuncio_protocol::op::Op;

use super::Station;
use crate::{
    answer::Answer,
    card::FoundCard,
    probe::{Probe, on_task},
    wire::Session,
};

/// Cancels the tasks that have not ended; returns those that could not be canceled.
pub(super) async fn cancel_begun(session: &Session, found: &FoundCard, stations: &[Station]) -> Vec<String> {
    let mut left = Vec::new();
    for station in stations {
        let (Some(interface), Some(conversation)) = (&station.interface, &station.conversation) else {
            continue;
        };
        let probe = Probe::new(session, interface, &found.card);
        let mut tasks = conversation.begun.clone();
        tasks.sort();
        tasks.dedup();
        for id in tasks {
            let has_ended =
                |answer: &Answer| answer.task().is_some_and(|task| task.status.state.is_terminal());
            let get = probe.call(on_task(Op::GetTask, id.as_str())).await;
            if get.as_ref().is_ok_and(|answer| has_ended(answer) || answer.error().is_some()) {
                continue;
            }
            let canceled = probe.call(on_task(Op::CancelTask, id.as_str())).await;
            if !canceled.is_ok_and(|answer| has_ended(&answer) || answer.error().is_some()) {
                left.push(id.to_string());
            }
        }
    }
    left
}
