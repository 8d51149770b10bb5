//! A courier that changes notifications on their way.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use nuncio_client::Egress;
use nuncio_server::push::{Courier, Failure, ReceiverResponse};
use url::Url;

/// Changes the headers and the body of the notification with this number; `None` loses it.
pub(crate) type Notify = fn(HeaderMap, Bytes, usize) -> Option<(HeaderMap, Bytes)>;

/// The courier.
#[derive(Debug)]
pub(crate) struct Odd {
    pub(crate) egress: Egress,
    pub(crate) notify: Option<Notify>,
    pub(crate) sent: AtomicUsize,
}

#[async_trait]
impl Courier for Odd {
    fn check(&self, url: &Url) -> Result<(), String> {
        Courier::check(&self.egress, url)
    }

    async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Duration,
    ) -> Result<ReceiverResponse, Failure> {
        let number = self.sent.fetch_add(1, Ordering::SeqCst);
        match self.notify.and_then(|notify| notify(headers, body, number)) {
            Some((headers, body)) => Courier::post(&self.egress, url, headers, body, deadline).await,
            None => Ok(ReceiverResponse {
                status: http::StatusCode::OK,
                retry_after: None,
                excerpt: String::new(),
            }),
        }
    }
}
