//! Leases of seats: a person joins a seat, and nobody else speaks there until the person leaves or gives no sign.
//!
//! A lease stands in the record of the room, so that every hub knows it. Each holder is of a new generation.
//!
//! **Invariant:** a message of a holder whose lease is over is refused before anything of it is stored. When a seat is
//! taken over, the messages of the holder before have arrived.

use std::time::Duration;

use nuncio_protocol::{CallContext, Error, ErrorKind, Result, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    Room,
    round::{Ledger, Side},
};
use crate::{
    clock::now,
    config::{self, Party},
};

/// The header of calls from within the hub that says by which right they speak. Received headers never get there.
const AUTHORITY: &str = "nuncio-seat";
/// Maximum length of the name of a holder, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// The lease of a seat.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SeatLease {
    /// The number of holders that the seat has had.
    pub(crate) generation: u64,
    /// The last holder, until it has left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<SeatHolder>,
}

/// The holder of a seat.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SeatHolder {
    /// Known to the holder only.
    id: String,
    /// The name under which it has joined.
    pub(crate) name: String,
    /// The end of the lease.
    pub(crate) until: Timestamp,
}

/// A lease as its holder gets it.
#[derive(Clone, Debug)]
pub(crate) struct GrantedSeat {
    pub(crate) id: String,
    pub(crate) generation: u64,
    pub(crate) until: Timestamp,
}

/// The reason why a seat is not leased.
#[derive(Debug)]
pub(crate) enum JoinRefusal {
    /// Somebody holds it: a name, and the end of the lease if there is one.
    Held(String, Option<Timestamp>),
    /// The name is empty or too long.
    Name,
    /// The store cannot be read or written.
    Failed(Error),
}

/// The right by which a message is said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Authority {
    /// A caller of the seat's address.
    Caller,
    /// The driver of the agent in the seat.
    Driver,
    /// The holder of a lease.
    Lease(String),
}

impl Authority {
    /// The authority of a call. The driver of an agent shows the secret of the room.
    pub(super) fn of(cx: &CallContext, secret: &str) -> Self {
        let named = cx.headers.iter().find(|(name, _)| *name == AUTHORITY);
        match named {
            None => Self::Caller,
            Some((_, shown)) if shown == secret => Self::Driver,
            Some((_, lease)) => Self::Lease(lease.to_owned()),
        }
    }

    /// Puts it on a call from within the hub.
    pub(super) fn put_on(&self, cx: &mut CallContext, secret: &str) {
        match self {
            Self::Caller => {}
            Self::Driver => cx.headers.set(AUTHORITY, secret),
            Self::Lease(lease) => cx.headers.set(AUTHORITY, lease),
        }
    }
}

impl SeatLease {
    /// The holder, while its lease lasts.
    pub(crate) fn holder(&self, now: Timestamp) -> Option<&SeatHolder> {
        self.holder.as_ref().filter(|holder| now < holder.until)
    }

    fn is_of(&self, id: &str, now: Timestamp) -> bool {
        self.holder(now).is_some_and(|holder| holder.id == id)
    }

    fn grant(&mut self, name: &str, until: Timestamp) -> GrantedSeat {
        let id = Uuid::now_v7().simple().to_string();
        self.generation += 1;
        self.holder = Some(SeatHolder { id: id.clone(), name: name.to_owned(), until });
        GrantedSeat { id, generation: self.generation, until }
    }
}

impl Room {
    /// Leases a seat to a person of this name. A seat that somebody holds is leased only if it is taken over; an agent
    /// holds its seat.
    pub(crate) async fn join(
        &self,
        side: Side,
        name: &str,
        takes_over: bool,
    ) -> std::result::Result<GrantedSeat, JoinRefusal> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(JoinRefusal::Name);
        }
        let settings = self.settings();
        let agent = match settings.party(side == Side::B) {
            Party::Agent(name) => Some(name.to_string()),
            Party::Remote(url) => Some(url.to_string()),
            Party::Caller | Party::Person => None,
        };
        let mut held = None;
        let lease = |ledger: &mut Ledger| {
            let now = now();
            let lease = ledger.leases.of_mut(side);
            held = match (lease.holder(now), &agent) {
                _ if takes_over => None,
                (Some(holder), _) => Some((holder.name.clone(), Some(holder.until))),
                (None, Some(agent)) => Some((format!("the agent {agent}"), None)),
                (None, None) => None,
            };
            if held.is_some() {
                return None;
            }
            let granted = lease.grant(name, now + settings.lease);
            ledger.rounds.iter_mut().for_each(|round| _ = round.attend(side, now));
            Some(granted)
        };
        match self.change(lease).await.map_err(JoinRefusal::Failed)? {
            Some(granted) => {
                self.until_arrived(side).await;
                Ok(granted)
            }
            None => {
                let (name, until) = held.unwrap_or_default();
                Err(JoinRefusal::Held(name, until))
            }
        }
    }

    /// Extends a lease. The record is written only when a third of the time is over.
    ///
    /// # Errors
    /// The lease is over.
    pub(crate) async fn renew(&self, side: Side, id: &str) -> Result<Timestamp> {
        let settings = self.settings();
        let (ledger, _) = self.load().await?;
        let known = ledger.leases.of(side).holder(now()).filter(|holder| holder.id == id);
        let until = known.ok_or_else(over)?.until;
        if until > now() + settings.lease * 2 / 3 {
            return Ok(until);
        }
        let renew = |ledger: &mut Ledger| {
            let now = now();
            let lease = ledger.leases.of_mut(side);
            let is_held = lease.is_of(id, now);
            let holder = lease.holder.as_mut().filter(|_| is_held)?;
            holder.until = now + settings.lease;
            Some(holder.until)
        };
        self.change(renew).await?.ok_or_else(over)
    }

    /// Ends a lease.
    ///
    /// # Errors
    /// It is over already.
    pub(crate) async fn leave(&self, side: Side, id: &str) -> Result<()> {
        let leave = |ledger: &mut Ledger| {
            let lease = ledger.leases.of_mut(side);
            lease.is_of(id, now()).then(|| lease.holder = None)
        };
        self.change(leave).await?.ok_or_else(over)
    }

    /// The time after which a holder that gave no sign loses its seat.
    pub(crate) fn lease_time(&self) -> Duration {
        self.settings().lease
    }
}

impl Ledger {
    /// Checks whether messages may be said at a seat by this right.
    ///
    /// # Errors
    /// Somebody else holds the seat, or the lease is over.
    pub(super) fn check_authority(
        &self,
        side: Side,
        by: &Authority,
        settings: &config::Room,
        now: Timestamp,
    ) -> Result<()> {
        let lease = self.leases.of(side);
        let refused = |why: String| Err(Error::new(ErrorKind::PermissionDenied, why));
        match (by, lease.holder(now)) {
            (Authority::Lease(id), Some(holder)) if holder.id == *id => Ok(()),
            (Authority::Lease(_), _) => Err(over()),
            (_, Some(holder)) => {
                refused(format!("the seat is held by {}; wait until it is free", holder.name))
            }
            (Authority::Driver, None) => Ok(()),
            (Authority::Caller, None) => match settings.party(side == Side::B) {
                Party::Caller => Ok(()),
                Party::Person => refused("the seat is for a person who joins it".to_owned()),
                Party::Agent(_) | Party::Remote(_) => refused("an agent holds the seat".to_owned()),
            },
        }
    }
}

fn over() -> Error {
    let why = "the lease of the seat is over: it was taken over, or nothing was heard in time; join again";
    Error::new(ErrorKind::PermissionDenied, why)
}
