//! A small HTTP/2 client over one connection, one call at a time: as little as a load generator needs.
//! Made by hand, so that a call is one write of bytes that are there already, and nothing is decoded.

use anyhow::{Context as _, Result, bail};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// Of DATA and HEADERS.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Of SETTINGS and PING.
const ACK: u8 = 1;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_WINDOW: u32 = (1 << 31) - 1;
const DEFAULT_WINDOW: u32 = 65_535;

const FRAME_HEAD: usize = 9;

pub(crate) struct GrpcConnection {
    stream: TcpStream,
    /// The headers of the next call.
    headers: Vec<u8>,
    /// The headers of all calls after the first, when the server knows them by number.
    known_headers: Vec<u8>,
    next_stream: u32,
    outgoing: Vec<u8>,
    /// Received and not yet taken.
    buffer: Vec<u8>,
    taken: usize,
    /// The messages of the last answer, each with its length before it.
    pub(crate) body: Vec<u8>,
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    /// Start of its payload in the buffer.
    start: usize,
    end: usize,
}

impl GrpcConnection {
    /// Opens a connection for calls of one method.
    pub(crate) async fn open(address: &str, path: &str, version: &str) -> Result<Self> {
        let mut stream =
            TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let mut hello = PREFACE.to_vec();
        // Windows so large that a load never fills them.
        frame(&mut hello, SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, MAX_WINDOW));
        frame(&mut hello, WINDOW_UPDATE, 0, 0, &(MAX_WINDOW - DEFAULT_WINDOW).to_be_bytes());
        stream.write_all(&hello).await?;
        let (headers, known_headers) = header_blocks(path, version)?;
        Ok(Self {
            stream,
            headers,
            known_headers,
            next_stream: 1,
            outgoing: Vec::with_capacity(4 * 1024),
            buffer: Vec::with_capacity(16 * 1024),
            taken: 0,
            body: Vec::new(),
        })
    }

    /// One message, one whole answer.
    pub(crate) async fn call(&mut self, message: &[u8]) -> Result<()> {
        let id = self.next_stream;
        self.next_stream += 2;
        self.outgoing.clear();
        frame(&mut self.outgoing, HEADERS, END_HEADERS, id, &self.headers);
        frame(&mut self.outgoing, DATA, END_STREAM, id, message);
        self.stream.write_all(&self.outgoing).await?;
        self.headers.clone_from(&self.known_headers);
        self.body.clear();
        loop {
            let Frame { kind, flags, stream, start, end } = self.frame().await?;
            match kind {
                DATA => self.body.extend_from_slice(&self.buffer[start..end]),
                SETTINGS | PING if flags & ACK == 0 => {
                    let payload = if kind == PING { &self.buffer[start..end] } else { &[] };
                    self.outgoing.clear();
                    frame(&mut self.outgoing, kind, ACK, 0, payload);
                    self.stream.write_all(&self.outgoing).await?;
                }
                RST_STREAM | GOAWAY => bail!("the server gave up: frame {kind}, stream {stream} of {id}"),
                _ => {}
            }
            if stream == id && matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
                return Ok(());
            }
        }
    }

    /// The next frame, whole.
    async fn frame(&mut self) -> Result<Frame> {
        self.fill(FRAME_HEAD).await?;
        let head = &self.buffer[self.taken..self.taken + FRAME_HEAD];
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        self.fill(FRAME_HEAD + length).await?;
        let start = self.taken + FRAME_HEAD;
        self.taken = start + length;
        Ok(Frame { kind, flags, stream, start, end: self.taken })
    }

    /// Reads until so many bytes are there to be taken.
    async fn fill(&mut self, length: usize) -> Result<()> {
        while self.buffer.len() - self.taken < length {
            self.buffer.drain(..self.taken);
            self.taken = 0;
            self.buffer.reserve(8 * 1024);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the server closed the connection");
            }
        }
        Ok(())
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    // Nothing that is sent here needs the fourth byte.
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()[..]].concat()
}

/// The headers of a call, as the first call on a connection has them and as all others do (RFC 7541).
fn header_blocks(path: &str, version: &str) -> Result<(Vec<u8>, Vec<u8>)> {
    // By their numbers in the static table: POST and http.
    let mut known = vec![0x80 | 3, 0x80 | 6];
    let mut first = known.clone();
    // The names of the first three are in the static table, too.
    let headers: [(u8, &str, &str); 5] = [
        (4, ":path", path),
        (1, ":authority", "localhost"),
        (31, "content-type", "application/grpc"),
        (0, "te", "trailers"),
        (0, "a2a-version", version),
    ];
    // The dynamic table begins at 62 with the newest entry.
    for (number, (name_number, name, value)) in (62..67).rev().zip(headers) {
        first.push(0x40 | name_number);
        if name_number == 0 {
            text(&mut first, name)?;
        }
        text(&mut first, value)?;
        known.push(0x80 | number);
    }
    Ok((first, known))
}

/// Not compressed; up to 126 bytes the length is one byte.
fn text(out: &mut Vec<u8>, text: &str) -> Result<()> {
    let length = u8::try_from(text.len()).ok().filter(|length| *length < 127).context("a long header")?;
    out.push(length);
    out.extend_from_slice(text.as_bytes());
    Ok(())
}
