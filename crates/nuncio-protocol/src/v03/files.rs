//! Content of files in the protobuf messages of v0.3, which gRPC and HTTP+JSON use. The field is `bytes`,
//! and the SDKs disagree about its content: Python, Go and Java send the base64 text of the content,
//! JavaScript the content itself.
//!
//! A mark that we wrote ourselves decides first, then the user agent of the peer or a setting. Without
//! either, text that is very likely base64 is decoded. JSON-RPC is not affected.

use std::{borrow::Cow, cell::Cell};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;

/// Form of file content in the protobuf messages of v0.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileBytes {
    /// Unknown. Base64 text is sent; received content is decoded if it looks like base64.
    #[default]
    Detect,
    /// Base64 text, as in the Python, Go and Java SDKs.
    Base64,
    /// The content itself, as in the JavaScript SDK.
    Raw,
}

/// User agents of the HTTP and gRPC libraries of the official SDKs; `*` matches any suffix of the name.
const USER_AGENTS: &[(&str, FileBytes)] = &[
    ("grpc-node-js", FileBytes::Raw),
    ("node", FileBytes::Raw),
    ("undici", FileBytes::Raw),
    ("Deno", FileBytes::Raw),
    ("Bun", FileBytes::Raw),
    ("grpc-go", FileBytes::Base64),
    ("grpc-python*", FileBytes::Base64),
    ("grpc-java-*", FileBytes::Base64),
    ("python-httpx", FileBytes::Base64),
    ("Go-http-client", FileBytes::Base64),
    ("Java-http-client", FileBytes::Base64),
];

impl FileBytes {
    /// The form of a caller with this `User-Agent`.
    #[must_use]
    pub fn of_user_agent(user_agent: &str) -> Self {
        let known = |word: &str| {
            let (name, _) = word.split_once('/').unwrap_or((word, ""));
            USER_AGENTS.iter().find(|(known, _)| match known.strip_suffix('*') {
                Some(head) => name.starts_with(head),
                None => name == *known,
            })
        };
        user_agent.split_ascii_whitespace().find_map(known).map_or(Self::Detect, |(_, form)| *form)
    }
}

thread_local! {
    /// Serde and the protobuf conversions cannot pass an argument; one call is decoded or encoded on one
    /// thread from beginning to end.
    static CURRENT: Cell<Option<FileBytes>> = const { Cell::new(None) };
}

/// Restores the previous form, also when a decoder panics.
struct Restore(Option<FileBytes>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Runs a decoder or an encoder with this form.
pub(super) fn with<T>(form: FileBytes, run: impl FnOnce() -> T) -> T {
    let _restore = Restore(CURRENT.replace(Some(form)));
    run()
}

/// Runs a decoder or an encoder with the current form, or with [`FileBytes::Detect`].
pub(super) fn with_any<T>(run: impl FnOnce() -> T) -> T {
    with(current().unwrap_or_default(), run)
}

/// The current form; `None` in JSON-RPC.
pub(super) fn current() -> Option<FileBytes> {
    CURRENT.get()
}

/// Minimum length of text that is detected as base64.
const MIN_DETECTED: usize = 16;

/// True for media types of text content, which may itself be base64.
fn is_text(media_type: Option<&str>) -> bool {
    let head = media_type.and_then(|media_type| media_type.get(..5));
    head.is_some_and(|head| head.eq_ignore_ascii_case("text/"))
}

/// The content of text that is very likely base64.
fn detect(text: &[u8], media_type: Option<&str>) -> Option<Bytes> {
    let may_be = text.len() >= MIN_DETECTED && !is_text(media_type);
    if may_be && !text.iter().all(u8::is_ascii_hexdigit) { decode(text) } else { None }
}

/// The content of canonical base64: standard alphabet, padded, without trailing bits.
fn decode(text: &[u8]) -> Option<Bytes> {
    // A quick check that excludes most binary content.
    let may_be = text.len().is_multiple_of(4) && text.iter().take(MIN_DETECTED).all(u8::is_ascii_graphic);
    if may_be { STANDARD.decode(text).ok().map(Bytes::from) } else { None }
}

/// Decodes the content of a file; `mark` is set if the sender was Nuncio.
pub(super) fn read(content: Bytes, media_type: Option<&str>, mark: Option<bool>, form: FileBytes) -> Bytes {
    let decoded = match (mark, form) {
        (Some(true), _) | (None, FileBytes::Base64) => decode(&content),
        (Some(false), _) | (None, FileBytes::Raw) => None,
        (None, FileBytes::Detect) => detect(&content, media_type),
    };
    decoded.unwrap_or(content)
}

/// Encodes the content of a file.
pub(super) fn write(content: &[u8], form: FileBytes) -> Cow<'_, [u8]> {
    match form {
        FileBytes::Raw => Cow::Borrowed(content),
        FileBytes::Base64 | FileBytes::Detect => Cow::Owned(STANDARD.encode(content).into_bytes()),
    }
}

/// The mark for content that detection would get wrong, so that another Nuncio decodes it correctly.
pub(super) fn mark(content: &[u8], media_type: Option<&str>, form: FileBytes) -> Option<bool> {
    match form {
        FileBytes::Raw => detect(content, media_type).map(|_| false),
        FileBytes::Base64 | FileBytes::Detect => {
            let is_detected = content.len().div_ceil(3) * 4 >= MIN_DETECTED
                && !is_text(media_type)
                && !content.chunks(3).all(is_hexadecimal);
            (!content.is_empty() && !is_detected).then_some(true)
        }
    }
}

/// True if the base64 text of these bytes, at most three, has only hexadecimal characters.
fn is_hexadecimal(bytes: &[u8]) -> bool {
    let mut text = [0; 4];
    let length = STANDARD.encode_slice(bytes, &mut text).unwrap_or_default();
    text.iter().take(length).all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_agents_of_the_sdks() {
        for (user_agent, form) in [
            ("grpc-node-js/1.13.4", FileBytes::Raw),
            ("my-agent/1.0 grpc-node-js/1.13.4", FileBytes::Raw),
            ("node", FileBytes::Raw),
            ("undici", FileBytes::Raw),
            ("Deno/2.1.4", FileBytes::Raw),
            ("Bun/1.1.0", FileBytes::Raw),
            ("grpc-python-asyncio/1.70.0 grpc-c/45.0.0 (linux; chttp2)", FileBytes::Base64),
            ("grpc-python/1.70.0 grpc-c/45.0.0", FileBytes::Base64),
            ("grpc-go/1.70.0", FileBytes::Base64),
            ("grpc-java-netty/1.70.0", FileBytes::Base64),
            ("python-httpx/0.28.1", FileBytes::Base64),
            ("Go-http-client/1.1", FileBytes::Base64),
            ("Java-http-client/21.0.4", FileBytes::Base64),
            ("nuncio/0.1.0", FileBytes::Detect),
            ("tonic/0.14.0", FileBytes::Detect),
            ("nodejs-app/1.0", FileBytes::Detect),
            ("Mozilla/5.0 (X11; Linux x86_64)", FileBytes::Detect),
            ("", FileBytes::Detect),
        ] {
            assert_eq!(FileBytes::of_user_agent(user_agent), form, "{user_agent}");
        }
    }

    #[test]
    fn content_of_an_unknown_peer_is_decoded_where_it_can_hardly_be_anything_else() {
        let text = |content: &str| STANDARD.encode(content);
        for (content, media_type, decoded) in [
            (text("twelve bytes"), None, Some("twelve bytes")),
            (text("twelve bytes"), Some("image/png"), Some("twelve bytes")),
            (text("a file with padding"), None, Some("a file with padding")),
            // Fifteen characters or fewer are anything.
            (text("nine byte"), None, None),
            (text("twelve bytes"), Some("text/plain"), None),
            (text("twelve bytes"), Some("Text/CSV; charset=utf-8"), None),
            // A digest is base64, too.
            ("00112233445566778899aabbccddeeff".to_owned(), None, None),
            ("00112233445566778899AABBCCDDEEFF".to_owned(), None, None),
            // Not canonical: no padding, bits after the end, another alphabet, a line break.
            (text("a file with padding").trim_end_matches('=').to_owned(), None, None),
            ("dHdlbHZlIGJ5dGVzIR==".to_owned(), None, None),
            ("_-_-_-_-_-_-_-_-".to_owned(), None, None),
            ("dHdlbHZlIGJ5dGVz\n".to_owned(), None, None),
            ("just some words of 32 characters".to_owned(), None, None),
            (String::new(), None, None),
        ] {
            let read = read(content.clone().into(), media_type, None, FileBytes::Detect);
            assert_eq!(read, decoded.unwrap_or(&content).as_bytes(), "{content} {media_type:?}");
        }
    }

    #[test]
    fn what_is_known_goes_before_detection() {
        let text = STANDARD.encode("hello");
        for (content, mark, form, expected) in [
            (&*text, None, FileBytes::Detect, &*text),
            (&*text, None, FileBytes::Base64, "hello"),
            (&*text, None, FileBytes::Raw, &*text),
            (&*text, Some(true), FileBytes::Raw, "hello"),
            (&*text, Some(false), FileBytes::Base64, &*text),
            ("no base64 at all", Some(true), FileBytes::Base64, "no base64 at all"),
        ] {
            let read = read(content.to_owned().into(), Some("text/plain"), mark, form);
            assert_eq!(read, expected.as_bytes(), "{content} {mark:?} {form:?}");
        }
    }

    #[test]
    fn what_we_write_we_read_as_it_was() {
        let contents =
            ["", "a", "hello", "twelve bytes", "dHdlbHZlIGJ5dGVz", "00112233445566778899aabbccddeeff"];
        for content in contents {
            for media_type in [None, Some("text/plain"), Some("image/png")] {
                for form in [FileBytes::Detect, FileBytes::Base64, FileBytes::Raw] {
                    let (mark, written) =
                        (mark(content.as_bytes(), media_type, form), write(content.as_bytes(), form));
                    let read = read(written.into_owned().into(), media_type, mark, FileBytes::Detect);
                    assert_eq!(read, content.as_bytes(), "{media_type:?} {form:?}");
                }
            }
        }
    }
}
