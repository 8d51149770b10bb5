//! Streams of events, and one event in them.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use futures_core::Stream;

use crate::{Event, Result, Seq};

/// The events of a stream, in order. The end of the stream is the end of the interaction.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<StreamItem>> + Send>>;

/// The number of wire forms, JSON and protobuf; each has a slot for its encoding of an event.
pub(crate) const FORMS: usize = 7;

/// An event of a stream, with its sequence number. Cheap to clone: all subscribers of a task share one, and
/// it is encoded once per dialect for all of them.
#[derive(Clone, Debug)]
pub struct StreamItem(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    seq: Option<Seq>,
    event: Arc<Event>,
    /// Allocated only when it is shared: most items have one reader.
    encoded: OnceLock<Box<[OnceLock<Bytes>; FORMS]>>,
}

impl StreamItem {
    /// An event; `seq` is its resume cursor, if it has one.
    #[must_use]
    pub fn new(seq: Option<Seq>, event: Arc<Event>) -> Self {
        Self(Arc::new(Shared { seq, event, encoded: OnceLock::new() }))
    }

    /// The sequence number in the task's log.
    #[must_use]
    pub fn seq(&self) -> Option<Seq> {
        self.0.seq
    }

    /// The event.
    #[must_use]
    pub fn event(&self) -> &Arc<Event> {
        &self.0.event
    }

    /// The event; a copy if the item is shared.
    #[must_use]
    pub fn into_event(self) -> Event {
        match Arc::try_unwrap(self.0) {
            Ok(shared) => Arc::unwrap_or_clone(shared.event),
            Err(shared) => Event::clone(&shared.event),
        }
    }

    /// The same entry with a changed event, for one stream only: other streams keep theirs.
    #[must_use]
    pub fn changed(&self, change: impl FnOnce(&mut Event)) -> Self {
        let mut event = Event::clone(&self.0.event);
        change(&mut event);
        Self::new(self.0.seq, Arc::new(event))
    }

    /// True if there are other clones.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// The event in this slot's encoding, made by `encode` the first time.
    pub(crate) fn encoded(&self, slot: usize, encode: impl FnOnce(&Event) -> Vec<u8>) -> &Bytes {
        self.slot(slot).get_or_init(|| encode(&self.0.event).into())
    }

    fn slot(&self, slot: usize) -> &OnceLock<Bytes> {
        &self.0.encoded.get_or_init(Box::default)[slot]
    }

    /// Like [`Self::encoded`], for an encoding that can fail.
    #[cfg(feature = "grpc")]
    pub(crate) fn try_encoded(
        &self,
        slot: usize,
        encode: impl FnOnce(&Event) -> Result<Vec<u8>>,
    ) -> Result<&Bytes> {
        let slot = self.slot(slot);
        match slot.get() {
            Some(bytes) => Ok(bytes),
            None => {
                let bytes = encode(&self.0.event)?.into();
                Ok(slot.get_or_init(|| bytes))
            }
        }
    }
}
