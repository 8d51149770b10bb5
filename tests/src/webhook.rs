//! A webhook with our receiver behind it.

use std::sync::Arc;

use axum::{Router, body::Bytes, http::HeaderMap, routing::post};
use nuncio_client::{
    Receiver,
    receiver::{Notification, ReceiverBuilder},
};
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::JoinHandle,
};

use crate::within;

/// Listens on a port of its own. Ends when it is dropped.
#[derive(Debug)]
pub struct Webhook {
    /// Its URL.
    pub url: String,
    accepted: UnboundedReceiver<Notification>,
    serving: JoinHandle<()>,
}

impl Webhook {
    /// Takes what such a receiver accepts.
    ///
    /// # Panics
    /// When the receiver cannot be, or there is no free port.
    pub async fn open(receiver: ReceiverBuilder) -> Self {
        let receiver: Arc<Receiver> = Arc::new(receiver.build().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let url = format!("http://{}/hook", listener.local_addr().expect("a listener has an address"));
        let (accept, accepted) = unbounded_channel();
        let take = move |headers: HeaderMap, body: Bytes| async move {
            let keep = async |notification| accept.send(notification);
            receiver.accept_with(&headers, &body, keep).await
        };
        let router = Router::new().route("/hook", post(take));
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serving does not end by itself");
        });
        Self { url, accepted, serving }
    }

    /// The next notification.
    ///
    /// # Panics
    /// When it does not come.
    pub async fn next(&mut self) -> Notification {
        within("a notification", self.accepted.recv()).await.expect("the webhook is open")
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
