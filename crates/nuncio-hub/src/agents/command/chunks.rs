//! The artifact that plain text goes to, piece by piece.

use nuncio_protocol::{Artifact, ArtifactId, Part, Result};
use nuncio_server::{Emitter, ExecContext};

const NAME: &str = "output";

/// An artifact in the making. There is none as long as there is nothing in it.
pub(super) struct Chunks<'a> {
    out: &'a Emitter,
    id: ArtifactId,
    /// There is a piece of it.
    begun: bool,
    /// There may be more.
    open: bool,
}

impl<'a> Chunks<'a> {
    pub(super) fn new(cx: &ExecContext, out: &'a Emitter) -> Self {
        // What was made for an earlier message of the task stays.
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

    /// Adds a piece.
    pub(super) async fn add(&mut self, text: String, last: bool) -> Result<()> {
        let artifact = Artifact::new(self.id.clone(), Part::text(text)).with_name(NAME);
        self.out.chunk(artifact, self.begun, last).await?;
        (self.begun, self.open) = (true, !last);
        Ok(())
    }

    /// Completes it with this last piece, if there is anything to complete.
    pub(super) async fn close(&mut self, text: String) -> Result<()> {
        if self.open || !text.is_empty() {
            self.add(text, true).await?;
        }
        Ok(())
    }
}
