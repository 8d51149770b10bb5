//! The artifact that plain text goes to.

use nuncio_server::{Emitter, ExecContext, TextStream};

use crate::config::Command;

const NAME: &str = "output";

/// The text of this execution. What was made for an earlier message of the task stays.
pub(super) fn text(settings: &Command, cx: &ExecContext, out: &Emitter) -> TextStream {
    let taken = |id: &str| {
        cx.task.iter().flat_map(|task| &task.artifacts).any(|made| made.artifact_id.as_str() == id)
    };
    let mut id = NAME.to_owned();
    let mut number = 1;
    while taken(&id) {
        number += 1;
        id = format!("{NAME}-{number}");
    }
    out.text_stream(NAME).with_id(id).with_pace(settings.pace)
}
