//! The events of a room: the stream of the administration API, and the lines that are printed of it.

use std::time::Duration;

use anyhow::Result;
use nuncio_client::EventAnswer;
use nuncio_hub::admin::api::{RoomArtifact, RoomEvent, WatchOptions, WatchRoom, WireCall};

use crate::{
    args::Admin,
    output::{self, Format},
};

/// Pause before a stream that has ended is opened again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The events of a room; a stream that ends is opened again after the last event.
pub(super) struct RoomEvents<'a> {
    hub: &'a Admin,
    request: WatchRoom,
    stream: Option<EventAnswer>,
}

impl<'a> RoomEvents<'a> {
    /// Opens the stream.
    pub(super) async fn open(hub: &'a Admin, name: String, options: WatchOptions) -> Result<Self> {
        let request = WatchRoom { name, options };
        let stream = Some(hub.follow(&request).await?);
        Ok(Self { hub, request, stream })
    }

    /// The next event. It may be dropped while it waits.
    ///
    /// # Errors
    /// The hub refuses the stream.
    pub(super) async fn next(&mut self) -> Result<RoomEvent> {
        loop {
            let Some(stream) = &mut self.stream else {
                tokio::time::sleep(RETRY_INTERVAL).await;
                self.stream = Some(self.hub.follow(&self.request).await?);
                continue;
            };
            let Ok(Some(event)) = stream.next().await else {
                self.stream = None;
                continue;
            };
            if let Ok(event) = serde_json::from_str::<RoomEvent>(&event.data) {
                self.request.options.after = Some(event.cursor.clone());
                return Ok(event);
            }
        }
    }
}

/// Prints an event as both sides are shown: with the seat that has it.
pub(super) fn print(event: &RoomEvent, format: Format) -> Result<()> {
    if format == Format::Json {
        return output::json(event);
    }
    let seat = &event.seat;
    let round = event.round.map(|round| format!("round {round}  ")).unwrap_or_default();
    if let Some(message) = &event.message {
        output::row(&format!("{round}{seat} has  {}: {}", message.from, message.text))?;
    }
    if let Some(artifact) = &event.artifact {
        output::row(&format!("{round}{seat} has  {}", made(artifact)))?;
    }
    if let Some(state) = event.state {
        output::row(&format!("{round}{seat} is   {}", output::state(state)))?;
    }
    if let Some(holding) = &event.holding {
        output::row(&format!("seat {seat} is held by {} until {}", holding.holder, holding.until))?;
    }
    if event.is_free == Some(true) {
        output::row(&format!("seat {seat} is held by nobody"))?;
    }
    if let Some(wire) = &event.wire {
        output::row(&format!("{seat} {}", line(wire)))?;
    }
    Ok(())
}

/// An artifact in a line.
pub(super) fn made(artifact: &RoomArtifact) -> String {
    let maker = artifact.maker.as_deref().unwrap_or("?");
    let name = artifact.name.as_deref().unwrap_or(&artifact.id);
    format!("{maker} made {name}: {}", artifact.text)
}

/// A call in a line.
fn line(wire: &WireCall) -> String {
    let WireCall { direction, operation, version, bytes, .. } = wire;
    let arrow = if direction == "in" { "->" } else { "<-" };
    let binding = wire.binding.as_deref().unwrap_or("in the hub");
    let validity = if wire.faults.is_empty() { "valid".to_owned() } else { wire.faults.join(", ") };
    let payload = wire.payload.as_ref().map(|payload| format!("  {payload}")).unwrap_or_default();
    format!("{arrow} {operation}  {version} {binding}  {bytes} bytes  {validity}{payload}")
}
