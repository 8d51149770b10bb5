//! The artifact of plain text, emitted chunk by chunk.

use nuncio_protocol::{Artifact, ArtifactId, Part, Result};
use nuncio_server::{Emitter, ExecContext};

const NAME: &str = "output";

/// An artifact that is being written. It is not created before its first chunk.
pub(super) struct Chunks<'a> {
    out: &'a Emitter,
    id: ArtifactId,
    /// A chunk was emitted.
    begun: bool,
    /// The last chunk was not emitted yet.
    open: bool,
}

impl<'a> Chunks<'a> {
    pub(super) fn new(cx: &ExecContext, out: &'a Emitter) -> Self {
        // Artifacts of earlier messages of the task keep their ids.
        let taken = |id: &str| {
            cx.task.iter().flat_map(|task| &task.artifacts).any(|made| made.artifact_id.as_str() == id)
        };
        let mut id = NAME.to_owned();
        let mut number = 1;
        while taken(&id) {
            number += 1;
            id = format!("{NAME}-{number}");
        }
        Self { out, id: id.into(), begun: false, open: false }
    }

    /// Emits a chunk.
    pub(super) async fn add(&mut self, text: String, last: bool) -> Result<()> {
        let artifact = Artifact::new(self.id.clone(), Part::text(text)).with_name(NAME);
        self.out.chunk(artifact, self.begun, last).await?;
        (self.begun, self.open) = (true, !last);
        Ok(())
    }

    /// Emits the last chunk, unless the artifact is empty or already complete.
    pub(super) async fn close(&mut self, text: String) -> Result<()> {
        if self.open || !text.is_empty() {
            self.add(text, true).await?;
        }
        Ok(())
    }
}
