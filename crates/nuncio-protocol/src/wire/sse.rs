//! Server-sent events: an encoder of frames, and a decoder with limited memory.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use memchr::memchr2;

use crate::Seq;

/// A comment frame that keeps idle connections open.
pub const HEARTBEAT: &[u8] = b": keep-alive\n\n";

/// Encodes one frame; `data` writes its single line, which must not contain a line break (JSON has none).
pub fn encode_frame(seq: Option<Seq>, out: &mut Vec<u8>, data: impl FnOnce(&mut Vec<u8>)) {
    if let Some(seq) = seq {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(seq.0.to_string().as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    data(out);
    out.extend_from_slice(b"\n\n");
}

/// A received event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Frame<'a> {
    /// The last id received so far, including this event's; later frames inherit it.
    pub id: Option<&'a str>,
    /// The name of the event, without meaning in A2A.
    pub event: Option<&'a str>,
    /// The data lines, joined by line breaks.
    pub data: &'a str,
}

/// An event or a line is larger than the limit, or is not text. The stream cannot be continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Larger than the limit.
    TooLarge,
    /// Not UTF-8.
    NotText,
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "an event of the stream is larger than the limit",
            Self::NotText => "the stream is not UTF-8",
        })
    }
}

impl std::error::Error for DecodeError {}

/// Decodes bytes, in chunks of any size, to frames (WHATWG event stream: LF, CR or CRLF, a leading BOM,
/// comments, unknown fields). Nearly all data is a single complete line, which is returned without a copy.
#[derive(Debug)]
pub struct Decoder {
    /// Received bytes that are not consumed yet.
    buffer: Bytes,
    /// The beginning of the next line in `buffer`.
    start: usize,
    /// The end of the part of `buffer` that was searched for a line end.
    searched: usize,
    /// The last id.
    id: Option<String>,
    /// The event name of the current frame.
    event: Option<String>,
    /// The data of the current frame.
    data: FrameData,
    /// Several data lines, or one that is not in `buffer` any more.
    joined: String,
    /// The current frame was returned; the next one begins.
    is_given: bool,
    /// The last line ended with CR; an LF directly after it belongs to it.
    after_cr: bool,
    /// The first bytes may be a BOM.
    at_start: bool,
    /// The limit of a line and of a frame, in bytes.
    limit: usize,
}

/// The data of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
enum FrameData {
    /// No data line, not even an empty one.
    None,
    /// One line, as its range in the buffer.
    Line(Range<usize>),
    /// The joined text.
    Joined,
}

impl Decoder {
    /// A decoder that refuses frames of more than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: Bytes::new(),
            start: 0,
            searched: 0,
            id: None,
            event: None,
            data: FrameData::None,
            joined: String::new(),
            is_given: false,
            after_cr: false,
            at_start: true,
            limit,
        }
    }

    /// Adds received bytes. Call [`Self::next_frame`] until it returns none before adding more.
    pub fn push(&mut self, bytes: Bytes) {
        let rest = std::mem::take(&mut self.buffer).split_off(self.start);
        self.searched -= self.start;
        self.start = 0;
        self.buffer = if rest.is_empty() {
            bytes
        } else {
            // Owned from the second chunk on, so that it grows in place: a large event arrives in many
            // chunks.
            let mut rest = rest.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&*shared));
            rest.extend_from_slice(&bytes);
            rest.freeze()
        };
    }

    /// The next complete frame, if there is one.
    ///
    /// # Errors
    /// The stream exceeds a limit or is not text; it cannot be continued.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, DecodeError> {
        if std::mem::take(&mut self.is_given) {
            self.begin();
        }
        match self.advance() {
            Ok(true) => {
                self.is_given = true;
                self.frame().map(Some)
            }
            Ok(false) => Ok(None),
            Err(error) => {
                // A caller that continues after the error must not find a stale range.
                self.begin();
                Err(error)
            }
        }
    }

    /// Consumes lines; true at the end of a frame with data.
    fn advance(&mut self) -> Result<bool, DecodeError> {
        while let Some(line) = self.next_line()? {
            if !line.is_empty() {
                self.field(line)?;
            } else if self.data == FrameData::None {
                self.begin();
            } else {
                return Ok(true);
            }
        }
        self.let_go()?;
        Ok(false)
    }

    /// Begins a frame; the id stays.
    fn begin(&mut self) {
        (self.event, self.data) = (None, FrameData::None);
        self.joined.clear();
    }

    /// Releases the buffer if only the beginning of a line is left, so that its memory can be reused.
    fn let_go(&mut self) -> Result<(), DecodeError> {
        if let FrameData::Line(line) = &self.data {
            self.joined.push_str(text(&self.buffer[line.clone()])?);
            self.data = FrameData::Joined;
        }
        if self.start == self.buffer.len() {
            self.buffer = Bytes::new();
            (self.start, self.searched) = (0, 0);
        }
        Ok(())
    }

    /// The range of the next line in `buffer`, without its end.
    fn next_line(&mut self) -> Result<Option<Range<usize>>, DecodeError> {
        if self.after_cr && self.start < self.buffer.len() {
            self.after_cr = false;
            if self.buffer[self.start] == b'\n' {
                self.start += 1;
                self.searched = self.searched.max(self.start);
            }
        }
        if self.at_start {
            // Waits for three bytes, or for one that is not part of a BOM.
            const BOM: &[u8] = b"\xef\xbb\xbf";
            if self.buffer.len() < BOM.len() && BOM.starts_with(&self.buffer) {
                return Ok(None);
            }
            self.at_start = false;
            if self.buffer.starts_with(BOM) {
                self.start = BOM.len();
                self.searched = self.start;
            }
        }
        let end = memchr2(b'\n', b'\r', &self.buffer[self.searched..]);
        let Some(end) = end.map(|offset| self.searched + offset) else {
            self.searched = self.buffer.len();
            return if self.buffer.len() - self.start > self.limit {
                Err(DecodeError::TooLarge)
            } else {
                Ok(None)
            };
        };
        let line = self.start..end;
        self.after_cr = self.buffer[end] == b'\r';
        self.start = end + 1;
        self.searched = self.start;
        if line.len() > self.limit { Err(DecodeError::TooLarge) } else { Ok(Some(line)) }
    }

    fn field(&mut self, line: Range<usize>) -> Result<(), DecodeError> {
        const DATA: &[u8] = b"data:";
        let bytes = &self.buffer[line.clone()];
        if bytes.starts_with(DATA) {
            // Nearly every line is a data line: its name need not be searched.
            let begin = line.start + DATA.len();
            let space = self.buffer[begin..line.end].starts_with(b" ");
            return self.data_line(begin + usize::from(space)..line.end);
        }
        let field = text(bytes)?;
        let (name, value) = field.split_once(':').unwrap_or((field, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => return self.data_line(line.end..line.end),
            "id" if !value.contains('\0') => {
                // Reuses the allocation: nearly every frame has an id.
                let id = self.id.get_or_insert_default();
                id.clear();
                id.push_str(value);
            }
            "event" => self.event = Some(value.to_owned()),
            // Comments (an empty name), `retry`, and unknown fields.
            _ => {}
        }
        Ok(())
    }

    fn data_line(&mut self, line: Range<usize>) -> Result<(), DecodeError> {
        let value = text(&self.buffer[line.clone()])?;
        let before = match &self.data {
            FrameData::None => 0,
            FrameData::Line(line) => line.len(),
            FrameData::Joined => self.joined.len(),
        };
        if before + value.len() + 1 > self.limit {
            return Err(DecodeError::TooLarge);
        }
        match std::mem::replace(&mut self.data, FrameData::Joined) {
            FrameData::None => {
                self.data = FrameData::Line(line);
                return Ok(());
            }
            FrameData::Line(first) => self.joined.push_str(text(&self.buffer[first])?),
            FrameData::Joined => {}
        }
        self.joined.push('\n');
        self.joined.push_str(value);
        Ok(())
    }

    fn frame(&self) -> Result<Frame<'_>, DecodeError> {
        let data = match &self.data {
            FrameData::None => "",
            FrameData::Line(line) => text(&self.buffer[line.clone()])?,
            FrameData::Joined => &self.joined,
        };
        Ok(Frame { id: self.id.as_deref(), event: self.event.as_deref(), data })
    }
}

fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::NotText)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of its own.
    type Kept = (Option<String>, Option<String>, String);

    fn decode(bytes: &[u8], cut: usize, limit: usize) -> Result<Vec<Kept>, DecodeError> {
        let mut decoder = Decoder::new(limit);
        let mut frames = Vec::new();
        for chunk in bytes.chunks(cut) {
            decoder.push(Bytes::copy_from_slice(chunk));
            while let Some(Frame { id, event, data }) = decoder.next_frame()? {
                frames.push((id.map(str::to_owned), event.map(str::to_owned), data.to_owned()));
            }
        }
        Ok(frames)
    }

    fn frame(id: Option<&str>, data: &str) -> Kept {
        (id.map(str::to_owned), None, data.to_owned())
    }

    #[test]
    fn however_the_bytes_are_cut() {
        let stream = "\u{feff}: hello\n\nid: 1\ndata: {\"ä\":1}\n\ndata:two\ndata: lines\r\n\r\n\
                      id:2\rdata: cr\r\revent: x\nretry: 5\nunknown: y\n\ndata\n\ndata: unfinished";
        let expected = vec![
            frame(Some("1"), "{\"ä\":1}"),
            frame(Some("1"), "two\nlines"),
            frame(Some("2"), "cr"),
            frame(Some("2"), ""),
        ];
        for cut in 1..=stream.len() {
            assert_eq!(decode(stream.as_bytes(), cut, 1000).unwrap(), expected, "cut every {cut} bytes");
        }
    }

    #[test]
    fn an_endless_line_or_event_is_refused() {
        let line = vec![b'x'; 200];
        assert_eq!(decode(&line, 7, 100), Err(DecodeError::TooLarge));
        let event = b"data: 0123456789\n".repeat(20);
        assert_eq!(decode(&event, 7, 100), Err(DecodeError::TooLarge));
        for cut in [3, 100] {
            assert_eq!(decode(b"data: \xff\n\n", cut, 100), Err(DecodeError::NotText));
            assert_eq!(decode(b"data: x\ndata: \xff\n\n", cut, 100), Err(DecodeError::NotText));
        }
    }

    /// A reader of a socket reuses its buffer.
    #[test]
    fn what_was_read_is_given_back() {
        let (mut decoder, chunk) = (Decoder::new(1000), Bytes::from("data: 1\n\ndata: 2\n".to_owned()));
        decoder.push(chunk.clone());
        assert_eq!(decoder.next_frame().unwrap().unwrap().data, "1");
        assert!(!chunk.is_unique(), "it lies where it came");
        assert_eq!(decoder.next_frame(), Ok(None));
        assert!(chunk.is_unique(), "although a frame is in the making");
        decoder.push(Bytes::from_static(b"\n"));
        assert_eq!(decoder.next_frame().unwrap().unwrap().data, "2");
    }

    /// Copied for each piece, an event of 16 MB would be copied a thousand times.
    #[test]
    fn a_large_event_in_many_pieces_grows_in_place() {
        let (mut decoder, piece) = (Decoder::new(1 << 22), Bytes::from(vec![b'x'; 1024]));
        decoder.push(Bytes::from_static(b"data: "));
        let (mut moves, mut place) = (0, std::ptr::null());
        for _ in 0..2048 {
            decoder.push(piece.clone());
            assert_eq!(decoder.next_frame(), Ok(None));
            moves += usize::from(std::mem::replace(&mut place, decoder.buffer.as_ptr()) != place);
        }
        assert!(moves < 32, "{moves} moves");
        decoder.push(Bytes::from_static(b"\n\n"));
        assert_eq!(decoder.next_frame().unwrap().unwrap().data.len(), 2048 * 1024);
    }

    #[test]
    fn after_an_error_nothing_is_looked_for_that_is_gone() {
        let mut decoder = Decoder::new(100);
        decoder.push(Bytes::from_static(b"data: a line that is longer than what comes\nid: \xff\n"));
        assert_eq!(decoder.next_frame(), Err(DecodeError::NotText));
        decoder.push(Bytes::from_static(b"data: y\n\n"));
        assert_eq!(decoder.next_frame().unwrap().unwrap().data, "y");
    }

    #[test]
    fn what_we_write_we_read() {
        let mut out = Vec::new();
        encode_frame(Some(Seq(7)), &mut out, |out| out.extend_from_slice(b"{}"));
        out.extend_from_slice(HEARTBEAT);
        encode_frame(None, &mut out, |out| out.extend_from_slice(b"[]"));
        assert_eq!(decode(&out, 5, 100).unwrap(), [frame(Some("7"), "{}"), frame(Some("7"), "[]")]);
    }
}
