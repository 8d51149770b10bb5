//! Artifacts of a room: made by the party of one seat, and shown at both.
//!
//! The task of the maker has the artifact first, in one transaction with the entry that the other seat is owed.

use std::sync::Arc;

use nuncio_protocol::{Artifact, ArtifactId, ErrorKind, Event, Result, TaskArtifactUpdateEvent, TaskId};
use nuncio_server::store::Projection;

use super::{
    Room,
    room::{MAX_ATTEMPTS, contended, not_served, refusal},
    round::{Round, RuleBreak, Side},
};
use crate::clock::now;

impl Room {
    /// Adds an artifact to the task of this seat, and to that of the other one. The same artifact is not added again;
    /// another one of its id takes its place.
    ///
    /// # Errors
    /// The round has ended; the store is down (try again).
    pub(crate) async fn make(&self, side: Side, task: &TaskId, artifact: &Artifact) -> Result<()> {
        let _alone = self.writing.lock().await;
        for _ in 0..MAX_ATTEMPTS {
            let (mut ledger, version) = self.load().await?;
            let open = |round: &&mut Round| !round.has_ended();
            let Some(round) = ledger.of_task_mut(side, task).filter(open) else {
                return Err(refusal(RuleBreak::Ended));
            };
            let known = self.find_artifact(side, round, &artifact.artifact_id).await?;
            if known.is_some_and(|known| *known == *artifact) {
                return self.mirror(None).await;
            }
            round.make(side, artifact.artifact_id.clone(), now());
            let Some(runtime) = self.runtime(side) else { return Err(not_served()) };
            let out = runtime.write_to(self.scope(side), task).await?;
            out.put_record(self.put(&ledger, version)?)?;
            out.emit(whole(Arc::new(artifact.clone()))).await?;
            match out.flush().await {
                // Another hub wrote to the room first.
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    let mirrored = self.mirror(None).await;
                    self.announce();
                    return mirrored;
                }
            }
        }
        Err(contended())
    }

    /// An artifact of this seat, from its task.
    pub(super) async fn find_artifact(
        &self,
        side: Side,
        round: &Round,
        id: &ArtifactId,
    ) -> Result<Option<Arc<Artifact>>> {
        let (scope, task) = (self.scope(side), round.tasks.of(side));
        let shown = Projection { artifacts: true, history: Some(0) };
        let task = self.store().shown(scope, task, shown).await?;
        let mut artifacts = task.into_iter().flat_map(|task| task.artifacts);
        Ok(artifacts.find(|artifact| artifact.artifact_id == *id))
    }
}

/// An artifact that is complete.
pub(super) fn whole(artifact: Arc<Artifact>) -> Event {
    let update = TaskArtifactUpdateEvent { artifact, last_chunk: true, ..TaskArtifactUpdateEvent::default() };
    Event::ArtifactUpdate(update)
}
