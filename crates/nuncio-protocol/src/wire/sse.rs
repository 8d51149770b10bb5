//! Server-sent events: frames out, and a decoder that bounds what a peer can make us keep.

use memchr::memchr2;

use crate::Seq;

/// A comment frame that keeps idle connections open.
pub const HEARTBEAT: &[u8] = b": keep-alive\n\n";

/// Writes one frame; `data` writes its single line, which must hold no line break (JSON has none).
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

/// An event as it was received.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Frame {
    /// The last id seen so far, this event's included; ids are inherited by the frames after them.
    pub id: Option<String>,
    /// The event's name; A2A gives it no meaning.
    pub event: Option<String>,
    /// The data lines, joined by line breaks.
    pub data: String,
}

/// An event or a line is larger than allowed, or is not text. The stream is of no more use.
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

/// Turns bytes, however they are cut, into frames (WHATWG event stream: LF, CR or CRLF, a leading BOM,
/// comments, unknown fields).
#[derive(Debug)]
pub struct Decoder {
    /// Received and not yet taken as lines.
    buffer: Vec<u8>,
    /// Where in `buffer` the next line begins.
    start: usize,
    /// Up to where `buffer` was searched for a line end.
    searched: usize,
    /// The frame in the making.
    frame: Frame,
    /// True if the frame in the making has a data line, be it empty.
    has_data: bool,
    /// A CR ended the last line; an LF right after it belongs to it.
    after_cr: bool,
    /// The first bytes may be a BOM.
    at_start: bool,
    /// What a line, and a frame, may be at most.
    limit: usize,
}

impl Decoder {
    /// A decoder that refuses frames of more than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            frame: Frame::default(),
            has_data: false,
            after_cr: false,
            at_start: true,
            limit,
        }
    }

    /// Takes bytes as they come. Call [`Self::next_frame`] until it has none before giving more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one.
    ///
    /// # Errors
    /// The stream breaks a bound or is no text; there is nothing more to be had from it.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, DecodeError> {
        while let Some((from, to)) = self.next_line()? {
            if from == to {
                if let Some(frame) = self.dispatch() {
                    return Ok(Some(frame));
                }
                continue;
            }
            self.field(from, to)?;
        }
        Ok(None)
    }

    /// The bounds of the next line in `buffer`, without its end.
    fn next_line(&mut self) -> Result<Option<(usize, usize)>, DecodeError> {
        if self.after_cr && self.start < self.buffer.len() {
            self.after_cr = false;
            if self.buffer[self.start] == b'\n' {
                self.start += 1;
                self.searched = self.searched.max(self.start);
            }
        }
        if self.at_start {
            // Wait for three bytes, or for one that shows that it is no BOM.
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
        let line = (self.start, end);
        self.after_cr = self.buffer[end] == b'\r';
        self.start = end + 1;
        self.searched = self.start;
        if line.1 - line.0 > self.limit { Err(DecodeError::TooLarge) } else { Ok(Some(line)) }
    }

    fn field(&mut self, from: usize, to: usize) -> Result<(), DecodeError> {
        let line = std::str::from_utf8(&self.buffer[from..to]).map_err(|_| DecodeError::NotText)?;
        // Nearly every line is one of data: no need to look for the end of its name.
        let data = line.strip_prefix("data:").map(|value| ("data", value));
        let (name, value) = data.or_else(|| line.split_once(':')).unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if self.frame.data.len() + value.len() + 1 > self.limit {
                    return Err(DecodeError::TooLarge);
                }
                if self.has_data {
                    self.frame.data.push('\n');
                }
                self.frame.data.push_str(value);
                self.has_data = true;
            }
            "id" if !value.contains('\0') => self.frame.id = Some(value.to_owned()),
            "event" => self.frame.event = Some(value.to_owned()),
            // Comments (an empty name), `retry`, and what we do not know.
            _ => {}
        }
        Ok(())
    }

    /// The frame in the making, if it has data; the id stays for the next.
    fn dispatch(&mut self) -> Option<Frame> {
        let next = Frame { id: self.frame.id.clone(), ..Frame::default() };
        let frame = std::mem::replace(&mut self.frame, next);
        std::mem::take(&mut self.has_data).then_some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8], cut: usize, limit: usize) -> Result<Vec<Frame>, DecodeError> {
        let mut decoder = Decoder::new(limit);
        let mut frames = Vec::new();
        for chunk in bytes.chunks(cut) {
            decoder.push(chunk);
            while let Some(frame) = decoder.next_frame()? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    fn frame(id: Option<&str>, data: &str) -> Frame {
        Frame { id: id.map(str::to_owned), event: None, data: data.to_owned() }
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
        assert_eq!(decode(b"data: \xff\n\n", 3, 100), Err(DecodeError::NotText));
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
