//! Seats of rooms as agents, and agents as parties of rooms.
//!
//! Reading order: this file (a seat as an agent), `seated` (the agents in seats), `driver` (finds the rounds in which
//! an agent speaks next), `turn` (one turn of an agent).

mod driver;
mod seated;
mod turn;

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use nuncio_protocol::{
    AgentExtension, AgentSkill, CallContext, Interceptor, Next, Result as CallResult,
    op::{Call, Reply},
};
use nuncio_server::Runtime;

pub(crate) use self::{driver::RoomDriver, seated::SeatedAgents};
use super::{AgentFactory, Kind, Label, Prepared, delegation::Hop, kind::RuntimeSpec};
use crate::{
    config,
    fleet::ServedAgent,
    rooms::{ROOM_EXTENSION, SeatExecutor, SeatRules, Side},
};

#[async_trait]
impl Kind for config::Seat {
    fn name() -> &'static str {
        "room"
    }

    async fn prepare(&self, desired: &config::Agent, factory: &AgentFactory) -> Result<Prepared> {
        let side = if self.is_second { Side::B } else { Side::A };
        let room = factory.rooms.prepare(&self.room);
        let mut card = super::card(&factory.urls, &desired.name);
        card.description = format!(
            "Seat {} of the room {}: a conversation with the other seat.",
            side.name(),
            self.room.name
        );
        card.skills = vec![AgentSkill {
            id: "talk".to_owned(),
            name: "Talk".to_owned(),
            description: "Takes a message to the party in the other seat, and brings its answers.".to_owned(),
            tags: vec!["room".to_owned()],
            ..AgentSkill::default()
        }];
        card.capabilities.extensions.push(AgentExtension {
            uri: ROOM_EXTENSION.to_owned(),
            description:
                "metadata of a message say who speaks next: yield, hold, authorize, complete, fail, reject"
                    .to_owned(),
            ..AgentExtension::default()
        });
        let label = Label::of(desired);
        label.put_on(&mut card);
        let executor = SeatExecutor { room: Arc::clone(&room), side };
        let circles = NoCircles(Hop::new(&factory.hub, &self.room.name));
        let rules = SeatRules { room, side };
        let builder = Runtime::builder(card, executor).interceptor(circles).interceptor(rules);
        let seated = factory.seated.prepare(&self.room, self.is_second, factory).await?;
        let (rooms, settings) = (factory.rooms.clone(), Arc::clone(&self.room));
        let on_activate = move |served: &Arc<ServedAgent>| {
            seated();
            if let Some(runtime) = served.runtime() {
                rooms.activate(&settings, side, runtime);
            }
        };
        let prepared = Prepared::durable(RuntimeSpec::new(builder));
        Ok(Prepared { on_activate: Some(Box::new(on_activate)), ..prepared })
    }

    /// A room keeps its runtimes: its settings are read anew with each event.
    fn runtime_key(&self) -> String {
        format!("room {}", self.room.name)
    }
}

/// Refuses messages that have come through the room before: an agent in a seat must not call its own room.
struct NoCircles(Hop);

#[async_trait]
impl Interceptor for NoCircles {
    async fn intercept(&self, cx: &mut CallContext, call: Call, next: Next<'_>) -> CallResult<Reply> {
        if matches!(call, Call::SendMessage(_) | Call::SendStreamingMessage(_)) {
            self.0.pass(&cx.hops)?;
        }
        next.run(cx, call).await
    }
}
