//! Results as text, within a limit. Pure.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use super::Outcome;
use crate::agents::model::dialect::{ToolCall, ToolResult};

/// The maximum size of a result; the rest is cut, and the model is told.
const MAX_RESULT_BYTES: usize = 64 << 10;

/// The result of a call, cut to the limit.
pub(super) fn result(call: &ToolCall, outcome: Outcome) -> ToolResult {
    let Outcome { mut text, is_error } = outcome;
    if text.len() > MAX_RESULT_BYTES {
        let whole = text.len();
        text.truncate(text.floor_char_boundary(MAX_RESULT_BYTES));
        let cut = whole - text.len();
        text.push_str(&format!("\n[cut: the last {cut} bytes of {whole} are left out]"));
    }
    ToolResult { id: call.id.clone(), text, is_error }
}

/// The result of a server: its text, or else its structured content. What is not text is described.
pub(super) fn of_server(result: CallToolResult) -> Outcome {
    let mut texts: Vec<String> = result.content.into_iter().map(block).collect();
    if texts.iter().all(String::is_empty) {
        texts.extend(result.structured_content.map(|value| value.to_string()));
    }
    Outcome { text: texts.join("\n"), is_error: result.is_error.unwrap_or_default() }
}

fn block(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => left_out("image", &image.mime_type, image.data.len()),
        ContentBlock::Audio(audio) => left_out("audio", &audio.mime_type, audio.data.len()),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("{uri}:\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                format!("{uri}: {}", left_out("file", mime_type.as_deref().unwrap_or("unknown"), blob.len()))
            }
            _ => "[content of a later version of the protocol, left out]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("{}: {}", link.name, link.uri),
        _ => "[content of a later version of the protocol, left out]".to_owned(),
    }
}

/// A note in place of bytes, which arrive as base64.
fn left_out(what: &str, media_type: &str, base64: usize) -> String {
    format!("[{what} of type {media_type}, about {} bytes, left out]", base64 / 4 * 3)
}
