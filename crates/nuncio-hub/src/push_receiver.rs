//! The built-in receiver of webhooks: inboxes with addresses that cannot be guessed, for the playground.
//!
//! An agent elsewhere posts to the address over the network. A notification of this hub itself is handed over in the
//! process, because the hub may be at an address that webhooks are not allowed to have.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use axum::{
    body::Bytes,
    extract::DefaultBodyLimit,
    routing::{MethodRouter, post},
};
use http::{HeaderMap, StatusCode, Uri};
use parking_lot::Mutex;
use url::Url;

/// The path of all inboxes.
const PATH: &str = "/playground/notifications/";
/// Number of random bytes in an address.
const TOKEN_BYTES: usize = 24;
/// Maximum size of a notification.
const MAX_BODY_BYTES: usize = 1 << 20;

/// A notification as it was posted.
pub(crate) struct Notification {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The handler of notifications of one inbox.
pub(crate) type OnNotification = Box<dyn Fn(Notification) + Send + Sync>;

/// All open inboxes of the hub.
#[derive(Clone)]
pub(crate) struct PushReceiver {
    /// The address below which all inboxes are.
    base: String,
    inboxes: Arc<Mutex<Inboxes>>,
}

type Inboxes = HashMap<String, Arc<OnNotification>>;

/// An open inbox; it closes when this is dropped.
pub(crate) struct Inbox {
    pub(crate) url: String,
    token: String,
    inboxes: Weak<Mutex<Inboxes>>,
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if let Some(inboxes) = self.inboxes.upgrade() {
            inboxes.lock().remove(&self.token);
        }
    }
}

impl PushReceiver {
    /// `base` is the address of the hub as others see it, without a trailing slash.
    pub(crate) fn new(base: &str) -> Self {
        Self { base: format!("{base}{PATH}"), inboxes: Arc::default() }
    }

    /// Opens an inbox whose notifications this handler gets. Its owner bounds how many it keeps.
    pub(crate) fn open(&self, handler: OnNotification) -> Inbox {
        let bytes: [u8; TOKEN_BYTES] = rand::random();
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.inboxes.lock().insert(token.clone(), Arc::new(handler));
        let url = format!("{}{token}", self.base);
        Inbox { url, token, inboxes: Arc::downgrade(&self.inboxes) }
    }

    /// True if this is the address of an open inbox.
    pub(crate) fn is_open(&self, url: &Url) -> bool {
        self.token(url).is_some_and(|token| self.inboxes.lock().contains_key(token))
    }

    /// Hands a notification over; false if there is no such inbox.
    pub(crate) fn deliver(&self, url: &Url, notification: Notification) -> bool {
        self.token(url).is_some_and(|token| self.hand_over(token, notification))
    }

    fn token<'a>(&self, url: &'a Url) -> Option<&'a str> {
        url.as_str().strip_prefix(&self.base)
    }

    fn hand_over(&self, token: &str, notification: Notification) -> bool {
        let handler = self.inboxes.lock().get(token).cloned();
        handler.is_some_and(|handler| {
            handler(notification);
            true
        })
    }

    /// The route of all inboxes, which needs no credential but the address.
    pub(crate) fn route(&self) -> (String, MethodRouter) {
        let this = self.clone();
        let receive = move |uri: Uri, headers: HeaderMap, body: Bytes| {
            // The table of routes has found the path, and extracts nothing.
            let token = uri.path().strip_prefix(PATH).unwrap_or_default();
            let is_known = this.hand_over(token, Notification { headers, body });
            std::future::ready(if is_known { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND })
        };
        (format!("{PATH}{{token}}"), post(receive).layer(DefaultBodyLimit::max(MAX_BODY_BYTES)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn an_inbox_is_open_until_it_is_dropped() {
        let receiver = PushReceiver::new("http://127.0.0.1:2602");
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let inbox = receiver.open(Box::new(move |_| _ = counted.fetch_add(1, Ordering::Relaxed)));
        let url = Url::parse(&inbox.url).unwrap();
        let others = [
            "http://127.0.0.1:2602/playground/notifications/guessed",
            "http://evil.example/",
            "http://127.0.0.1:2602/",
        ];
        let notification = || Notification { headers: HeaderMap::new(), body: Bytes::new() };
        for other in others {
            let other = Url::parse(other).unwrap();
            assert!(!receiver.is_open(&other) && !receiver.deliver(&other, notification()), "{other}");
        }
        assert!(receiver.is_open(&url) && receiver.deliver(&url, notification()));
        drop(inbox);
        assert!(!receiver.is_open(&url) && !receiver.deliver(&url, notification()));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
