//! The text format: the message on standard input, standard output as one growing artifact.

use nuncio_protocol::{Content, Error, ErrorKind, Message, Result};
use nuncio_server::TextStream;

use super::{Stop, output::Output};

/// Data can be written as text, files cannot.
pub(super) const INPUT: &[&str] = &["text/plain", "application/json"];
pub(super) const OUTPUT: &[&str] = &["text/plain"];

/// The input of the program: the text of the message, then a line for each piece of data.
///
/// # Errors
/// A part of the message cannot be written as text.
pub(super) fn input(message: &Message) -> Result<Vec<u8>> {
    let mut text = message.text().into_owned();
    for (i, part) in message.parts.iter().enumerate() {
        match &part.content {
            Content::Text(_) => {}
            Content::Data(data) => {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(&data.to_string());
                text.push('\n');
            }
            Content::Raw(_) | Content::Url(_) => {
                return Err(Error::new(
                    ErrorKind::ContentTypeNotSupported,
                    format!("message.parts[{i}]: this agent takes text and data, and no files"),
                ));
            }
        }
    }
    Ok(text.into_bytes())
}

/// Reads a program's output as text.
pub(super) struct TextReader {
    artifact: TextStream,
    /// The beginning of a character.
    unsaid: Vec<u8>,
}

impl TextReader {
    pub(super) fn new(artifact: TextStream) -> Self {
        Self { artifact, unsaid: Vec::new() }
    }

    pub(super) async fn read(&mut self, output: &mut Output) -> Result<(), Stop> {
        while output.read(&mut self.unsaid).await? {
            let (text, length) = decode(&self.unsaid);
            // Cleared before the emit: if the emit is dropped midway, its text is recorded nevertheless.
            self.unsaid.drain(..length);
            self.artifact.push(text).await?;
        }
        self.close().await?;
        Ok(())
    }

    pub(super) async fn close(&mut self) -> Result<()> {
        let rest = std::mem::take(&mut self.unsaid);
        self.artifact.finish_with(String::from_utf8_lossy(&rest)).await
    }
}

/// Decodes the complete characters, and returns their length in bytes. Invalid UTF-8 is replaced.
fn decode(bytes: &[u8]) -> (String, usize) {
    let length = bytes.len() - cut(bytes);
    (String::from_utf8_lossy(&bytes[..length]).into_owned(), length)
}

/// The number of bytes of an incomplete character at the end.
fn cut(bytes: &[u8]) -> usize {
    let begins = bytes.iter().rev().take(3).position(|byte| *byte >= 0xC0);
    let tail = begins.map_or(&[][..], |at| &bytes[bytes.len() - at - 1..]);
    match std::str::from_utf8(tail) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() == 0 => tail.len(),
        Ok(_) | Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::Part;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_program_reads() {
        for (parts, expected) in [
            (vec![Part::text("hello")], Ok("hello")),
            (vec![Part::text("a"), Part::text("b")], Ok("a\nb")),
            (vec![Part::data(json!({"b": 1, "a": "x\ny"}))], Ok("{\"a\":\"x\\ny\",\"b\":1}\n")),
            (vec![Part::data(json!(null)), Part::text("a"), Part::data(json!([]))], Ok("a\nnull\n[]\n")),
            (vec![Part::text("a\n"), Part::data(json!(1))], Ok("a\n1\n")),
            (vec![Part::text("a"), Part::raw("x")], Err("message.parts[1]")),
            (vec![Part::url("https://example.com/x")], Err("message.parts[0]")),
        ] {
            let said =
                input(&Message::user("m", parts.clone())).map(|bytes| String::from_utf8(bytes).unwrap());
            match (said, expected) {
                (Ok(said), Ok(expected)) => assert_eq!(said, expected, "{parts:?}"),
                (Err(said), Err(expected)) => assert!(said.message().contains(expected), "{said}"),
                (said, expected) => panic!("{parts:?}: {said:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn characters_are_not_cut_in_two() {
        for (bytes, text, left) in [
            (&b""[..], "", 0),
            (b"abc", "abc", 0),
            ("aß".as_bytes(), "aß", 0),
            (b"a\xC3", "a", 1),
            (b"a\xE2\x82", "a", 2),
            (b"a\xF0\x9F\x98", "a", 3),
            ("a😀".as_bytes(), "a😀", 0),
            (b"\xF0\x9F\x98\xC3", "\u{FFFD}", 1),
            // Bytes that can never become a character do not wait.
            (b"a\xFF", "a\u{FFFD}", 0),
            (b"a\xC0", "a\u{FFFD}", 0),
            (b"a\x80\x80\x80\x80", "a\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}", 0),
            (b"a\xE2\x28", "a\u{FFFD}(", 0),
        ] {
            assert_eq!(decode(bytes), (text.to_owned(), bytes.len() - left), "{bytes:?}");
        }
    }

    /// In whatever pieces bytes come, the text is that of the whole.
    #[test]
    fn pieces_make_the_whole() {
        let whole = "aß€😀\u{0}z".as_bytes();
        for first in 0..=whole.len() {
            for second in first..=whole.len() {
                let (mut text, mut unsent) = (String::new(), Vec::new());
                for piece in [&whole[..first], &whole[first..second], &whole[second..]] {
                    unsent.extend_from_slice(piece);
                    let (decoded, length) = decode(&unsent);
                    text.push_str(&decoded);
                    unsent.drain(..length);
                }
                assert_eq!((text.as_bytes(), unsent.len()), (whole, 0), "{first} {second}");
            }
        }
    }
}
