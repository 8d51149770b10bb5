//! A relayed answer that counts in the memory account while it is read.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use nuncio_protocol::{Error, Result};
use nuncio_server::GrowingReservation;

/// A body whose bytes are reserved before they are handed on. It ends with `ResourceExhausted` if they are not
/// free.
pub(super) struct CountedBody<B> {
    body: B,
    reservation: GrowingReservation,
    read: usize,
}

impl<B> CountedBody<B> {
    pub(super) fn new(body: B, reservation: GrowingReservation) -> Self {
        Self { body, reservation, read: 0 }
    }
}

impl<B: Body<Data = Bytes, Error = Error> + Unpin> Body for CountedBody<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let this = &mut *self;
        let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(cx)?) else { return Poll::Ready(None) };
        this.read += frame.data_ref().map_or(0, Bytes::len);
        Poll::Ready(Some(this.reservation.grow_to(this.read).map(|()| frame)))
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};
    use nuncio_protocol::ErrorKind;
    use nuncio_server::{MemoryAccount, MemoryUse};

    use super::*;

    const MIB: usize = 1 << 20;

    fn body(
        account: &MemoryAccount,
        bytes: usize,
    ) -> CountedBody<impl Body<Data = Bytes, Error = Error> + Unpin> {
        let body = Full::new(Bytes::from(vec![b'x'; bytes])).map_err(|never| match never {});
        CountedBody::new(body, account.growing(MemoryUse::Responses))
    }

    #[tokio::test]
    async fn an_answer_counts_until_it_is_read_and_waits_for_no_memory() {
        let account = MemoryAccount::new(4 * MIB);
        let used = || account.usage(MemoryUse::Responses).used;
        let mut first = body(&account, 3 * MIB);
        first.frame().await.unwrap().unwrap();
        assert_eq!(used(), 3 * MIB);
        let refused = body(&account, 3 * MIB).frame().await.unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
        assert!(refused.retry_after().is_some());
        assert_eq!((used(), account.usage(MemoryUse::Responses).refused), (3 * MIB, 1));
        drop(first);
        assert_eq!(used(), 0);
        body(&account, 3 * MIB).frame().await.unwrap().unwrap();
    }
}
