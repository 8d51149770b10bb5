//! A small HTTP/1.1 client over one connection: as little as a load generator needs.

use anyhow::{Context as _, Result, bail};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

pub(crate) struct Connection {
    stream: TcpStream,
    /// Received and not yet taken.
    buffer: Vec<u8>,
    taken: usize,
    /// The body of the last answer, or the part that has arrived.
    pub(crate) body: Vec<u8>,
}

enum Length {
    Known(usize),
    Chunked,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Result<Self> {
        let stream =
            TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(16 * 1024), taken: 0, body: Vec::new() })
    }

    /// One request, one whole answer.
    pub(crate) async fn call(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await?;
        match self.head().await? {
            Length::Known(length) => {
                while self.buffer.len() - self.taken < length {
                    self.more().await?;
                }
                self.body.extend_from_slice(&self.buffer[self.taken..self.taken + length]);
                self.taken += length;
            }
            Length::Chunked => while self.chunk().await? {},
        }
        Ok(())
    }

    /// One request, and the answer until it holds this text so many times.
    pub(crate) async fn open_stream(&mut self, request: &[u8], text: &[u8], times: usize) -> Result<()> {
        self.stream.write_all(request).await?;
        let Length::Chunked = self.head().await? else {
            bail!("expected a stream, got {}", String::from_utf8_lossy(&self.buffer))
        };
        self.read_until(text, times).await
    }

    /// Reads on until the body holds this text so many times.
    pub(crate) async fn read_until(&mut self, text: &[u8], times: usize) -> Result<()> {
        while count(&self.body, text) < times {
            if !self.chunk().await? {
                bail!("the stream ended early");
            }
        }
        Ok(())
    }

    /// One request, and each piece of its answer as it comes.
    pub(crate) async fn follow(&mut self, request: &[u8], mut piece: impl FnMut(&[u8])) -> Result<()> {
        self.stream.write_all(request).await?;
        let Length::Chunked = self.head().await? else {
            bail!("expected a stream, got {}", String::from_utf8_lossy(&self.buffer))
        };
        while self.chunk().await? {
            piece(&self.body);
            self.body.clear();
        }
        Ok(())
    }

    async fn more(&mut self) -> Result<()> {
        if self.taken == self.buffer.len() {
            self.buffer.clear();
            self.taken = 0;
        }
        self.buffer.reserve(8 * 1024);
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }

    async fn head(&mut self) -> Result<Length> {
        self.body.clear();
        let end = loop {
            if let Some(at) = find(&self.buffer[self.taken..], b"\r\n\r\n") {
                break self.taken + at;
            }
            self.more().await?;
        };
        let head = std::str::from_utf8(&self.buffer[self.taken..end])?;
        let is_empty = head.starts_with("HTTP/1.1 204");
        if !is_empty && !head.starts_with("HTTP/1.1 200") {
            bail!("unexpected answer: {head}");
        }
        let mut length = Length::Chunked;
        for line in head.split("\r\n") {
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = Length::Known(value.trim().parse()?);
            }
        }
        self.taken = end + 4;
        Ok(if is_empty { Length::Known(0) } else { length })
    }

    /// Adds a chunk to the body; false at the last one.
    async fn chunk(&mut self) -> Result<bool> {
        let line = loop {
            if let Some(at) = find(&self.buffer[self.taken..], b"\r\n") {
                break self.taken + at;
            }
            self.more().await?;
        };
        let size = usize::from_str_radix(std::str::from_utf8(&self.buffer[self.taken..line])?.trim(), 16)?;
        let (start, end) = (line + 2 - self.taken, line + 2 - self.taken + size + 2);
        while self.buffer.len() - self.taken < end {
            self.more().await?;
        }
        let from = self.taken + start;
        self.body.extend_from_slice(&self.buffer[from..from + size]);
        self.taken += end;
        Ok(size > 0)
    }
}

pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

pub(crate) fn count(haystack: &[u8], needle: &[u8]) -> usize {
    memchr::memmem::find_iter(haystack, needle).count()
}
