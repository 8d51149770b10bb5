//! The bytes that are written: all of them go through the log of SQLite before they reach the file.

use std::{path::PathBuf, sync::Arc};

use nuncio_protocol::{Artifact, Event, Part, TaskArtifactUpdateEvent, TaskState};

use super::{Folder, end, open};
use crate::store::{
    Store,
    conformance::{Writer, scope},
};

/// Tokens of a program or a model, and how many come in one piece: 80 a second for 5 seconds, at a piece each 100 ms.
const TOKENS: usize = 400;
const PER_PIECE: usize = 8;

/// It was 3.8 MB, in 250 pieces.
const MAX_WRITTEN: u64 = 1_500_000;

#[tokio::test]
async fn four_hundred_tokens_in_pieces_write_few_bytes() {
    let folder = Folder::new();
    let handle = Arc::new(open(&folder.file()).await);
    let store: Arc<dyn Store> = handle.clone();
    let mut log = folder.file().into_os_string();
    log.push("-wal");
    let log = PathBuf::from(log);
    let written = || std::fs::metadata(&log).unwrap().len();
    let (id, context) = ("01983f6a-6b1c-7c3e-9d5a-2f3b4c5d6e7f", "01983f6a-6b1c-7c3e-9d5a-0a1b2c3d4e5f");
    let before = written();
    let mut writer = Writer::create(&store, &scope("ann"), id, context, 1).await;
    writer.status(TaskState::Working, 2).await;
    for piece in 0..TOKENS / PER_PIECE {
        let event = Event::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: id.into(),
            context_id: context.into(),
            artifact: Arc::new(
                Artifact::new("output", Part::text("token".repeat(PER_PIECE))).with_name("output"),
            ),
            append: piece > 0,
            joins: true,
            ..TaskArtifactUpdateEvent::default()
        });
        // Each by itself, as if the disk were faster than the tokens.
        writer.append(event).await;
    }
    writer.status(TaskState::Completed, 3).await;
    assert_eq!(writer.task.artifacts[0].parts, [Part::text("token".repeat(TOKENS))]);
    let bytes = written() - before;
    assert!(bytes > 0 && bytes <= MAX_WRITTEN, "{bytes} bytes");
    drop((store, writer));
    end(handle).await;
}
