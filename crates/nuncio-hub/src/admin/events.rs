//! The events of the hub as a stream.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream, stream::BoxStream};
use nuncio_protocol::Seq;

use super::{
    AdminState,
    api::{EventKind, FollowEvents, HubEvent},
    problem::AdminProblem,
};
use crate::{
    clock,
    events::{self, Cursor, Read},
};

/// The minimum time between two reads of the log by one reader: changes of a task within it are one event.
const PACE: Duration = Duration::from_millis(100);

pub(super) async fn follow(
    state: Arc<AdminState>,
    request: FollowEvents,
) -> Result<BoxStream<'static, HubEvent>, AdminProblem> {
    let log = Arc::clone(&state.events);
    let begin = match request.options.after.as_deref() {
        None | Some("") => log.end(),
        Some(text) => Cursor::parse(text)
            .ok_or_else(|| AdminProblem::invalid("after: expected the cursor of an earlier event"))?,
    };
    let reads = stream::unfold((log, begin, false), |(log, after, is_late)| async move {
        if is_late {
            tokio::time::sleep(PACE).await;
        }
        let read = log.next(after).await?;
        let (events, after) = match read {
            Read::Events(events) => {
                let last = events.last().map_or(after, |(cursor, _)| *cursor);
                (events.into_iter().map(shown).collect(), last)
            }
            Read::Reset(cursor) => (vec![reset(cursor)], cursor),
        };
        Some((stream::iter(events), (log, after, true)))
    });
    Ok(reads.flatten().boxed())
}

fn shown((cursor, event): (Cursor, events::HubEvent)) -> HubEvent {
    let events::HubEvent { at, kind, agent, subject, state, seq, word } = event;
    let text = |text: Option<Arc<str>>| text.map(|text| text.as_ref().to_owned());
    let (kind, is_task) = match kind {
        events::EventKind::Task => (EventKind::Task, true),
        events::EventKind::Delivery => (EventKind::Delivery, false),
        events::EventKind::Agent => (EventKind::Agent, false),
        events::EventKind::Key => (EventKind::Key, false),
        events::EventKind::Config => (EventKind::Config, false),
        events::EventKind::Trail => (EventKind::Trail, false),
        events::EventKind::Trial => (EventKind::Trial, false),
    };
    let (task_id, subject) = if is_task { (text(subject), None) } else { (None, text(subject)) };
    HubEvent {
        cursor: cursor.to_string(),
        kind,
        at,
        agent: text(agent),
        task_id,
        state,
        sequence: seq.map(|Seq(number)| number),
        subject,
        change: text(word),
    }
}

fn reset(cursor: Cursor) -> HubEvent {
    HubEvent {
        cursor: cursor.to_string(),
        kind: EventKind::Reset,
        at: clock::now(),
        agent: None,
        task_id: None,
        state: None,
        sequence: None,
        subject: None,
        change: None,
    }
}
