//! Seats of rooms as agents.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use nuncio_protocol::{AgentExtension, AgentSkill};
use nuncio_server::Runtime;

use super::{AgentFactory, Kind, Label, Prepared, kind::RuntimeSpec};
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
        let builder = Runtime::builder(card, executor).interceptor(SeatRules { room, side });
        let (rooms, settings) = (factory.rooms.clone(), Arc::clone(&self.room));
        let on_activate = move |served: &Arc<ServedAgent>| {
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
