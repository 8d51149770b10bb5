//! A connection's stream, plain or TLS, whose bytes are counted.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use super::idle::Activity;

/// Plain or TLS: one type, so that hyper is compiled once.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A stream that counts bytes and stalled writes in its [`Activity`].
pub(super) struct CountedStream {
    stream: Stream,
    activity: Arc<Activity>,
}

impl CountedStream {
    pub(super) fn new(stream: Stream, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.activity.blocked(written.is_pending());
        if let Poll::Ready(Ok(count)) = &written {
            self.activity.wrote(*count);
        }
        written
    }
}

/// Applies an expression to the stream of either kind.
macro_rules! either {
    ($counted:expr, $stream:ident => $does:expr) => {
        match &mut $counted.stream {
            Stream::Plain($stream) => $does,
            Stream::Tls($stream) => $does,
        }
    };
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = either!(self, stream => Pin::new(stream).poll_read(cx, buf));
        self.activity.read(buf.filled().len() - before);
        read
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = either!(self, stream => Pin::new(stream).poll_write(cx, buf));
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = either!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs));
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS accepts what is written and buffers it until the socket takes it.
        let flushed = either!(self, stream => Pin::new(stream).poll_flush(cx));
        self.activity.blocked(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
