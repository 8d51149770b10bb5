//! Name resolution of the guarded egress: every address of a name is checked before one is used.
//!
//! If one address of a name is refused, the whole name is. The others would work, but a public name with a
//! private address is an attack or a mistake, and in either case an error should be visible.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    io,
    net::{SocketAddr, ToSocketAddrs as _},
    pin::Pin,
    sync::Arc,
};

use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use super::guard::{Policy, Refusal, Screen};

/// Maximum number of concurrent lookups. Each blocks a thread for as long as the owner of the name likes;
/// the other threads are for other work.
const MAX_LOOKUPS: usize = 64;
/// Maximum number of concurrent lookups of one name: many webhooks on one slow name must not block all
/// threads.
const MAX_LOOKUPS_OF_A_NAME: usize = 2;

/// Maximum number of addresses per family that are tried. The owner of the name decides how many there are,
/// and each is tried in turn.
const MAX_TRIED_ADDRESSES: usize = 8;

type LookupResult = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Looks up the addresses of a name; their ports have no meaning.
pub(super) type Lookup = Arc<dyn Fn(String) -> LookupResult + Send + Sync>;

/// A resolver that returns only addresses that the policy allows.
pub(super) struct Resolver {
    policy: Arc<Policy>,
    lookup: Lookup,
}

impl Resolver {
    pub(super) fn new(policy: Policy, lookup: Lookup) -> Self {
        Self { policy: Arc::new(policy), lookup }
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, answer) = (Arc::clone(&self.policy), (self.lookup)(name.as_str().to_owned()));
        Box::pin(async move {
            let mut addresses = answer.await?;
            for address in &addresses {
                if let Err(kind) = policy.judge(address.ip()) {
                    tracing::debug!(name = name.as_str(), %address, "the name has an address that is refused");
                    return Err(Refusal::Resolved { name: name.as_str().to_owned(), kind }.into());
                }
            }
            if addresses.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
            }
            let (mut old, mut new) = (0, 0);
            addresses.retain(|address| {
                let known = if address.is_ipv4() { &mut old } else { &mut new };
                *known += 1;
                *known <= MAX_TRIED_ADDRESSES
            });
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// A resolver for names of the operator: removes the addresses that the screen refuses, and fails if none
/// is left.
pub(super) struct Screening {
    screen: Arc<Screen>,
    lookup: Lookup,
}

impl Screening {
    pub(super) fn new(screen: Screen, lookup: Lookup) -> Self {
        Self { screen: Arc::new(screen), lookup }
    }

    pub(super) fn screen(&self) -> &Arc<Screen> {
        &self.screen
    }
}

impl fmt::Debug for Screening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screening").field("screen", &self.screen).finish_non_exhaustive()
    }
}

impl Resolve for Screening {
    fn resolve(&self, name: Name) -> Resolving {
        let (screen, answer) = (Arc::clone(&self.screen), (self.lookup)(name.as_str().to_owned()));
        Box::pin(async move {
            let mut addresses = answer.await?;
            let mut refused = None;
            addresses.retain(|address| match screen.judge(address.ip()) {
                Ok(()) => true,
                Err(kind) => {
                    refused = Some(kind);
                    false
                }
            });
            match refused.filter(|_| addresses.is_empty()) {
                Some(kind) => Err(Refusal::Resolved { name: name.as_str().to_owned(), kind }.into()),
                None => Ok(Box::new(addresses.into_iter()) as Addrs),
            }
        })
    }
}

/// The system's resolver.
pub(super) fn system() -> Lookup {
    bounded(|name| (name, 0).to_socket_addrs().map(Vec::from_iter))
}

/// Runs lookups on blocking threads, within the limits.
fn bounded(ask: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Lookup {
    let (ask, places) = (Arc::new(ask), Arc::new(Semaphore::new(MAX_LOOKUPS)));
    let names = Arc::new(LookupPermits::default());
    Arc::new(move |name| {
        let (ask, places, names) = (Arc::clone(&ask), Arc::clone(&places), Arc::clone(&names));
        Box::pin(async move {
            // The permit of the name first: waiting for it does not block other names.
            let own = names.places(&name).acquire_owned().await.map_err(io::Error::other)?;
            let place = places.acquire_owned().await.map_err(io::Error::other)?;
            let lookup = tokio::task::spawn_blocking(move || {
                // Held until the thread is free, even if the caller has given up.
                let _held = (own, place);
                ask(&name)
            });
            lookup.await.map_err(io::Error::other)?
        })
    })
}

/// The permits of each name with a lookup in progress.
#[derive(Default)]
struct LookupPermits(Mutex<HashMap<String, Arc<Semaphore>>>);

impl LookupPermits {
    fn places(&self, name: &str) -> Arc<Semaphore> {
        let mut names = self.0.lock();
        names.retain(|_, places| Arc::strong_count(places) > 1);
        let places = names.entry(name.trim_end_matches('.').to_owned());
        Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(MAX_LOOKUPS_OF_A_NAME))))
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[tokio::test]
    async fn a_name_of_an_agent_does_not_lead_to_link_local_addresses() {
        for (answer, expected) in [
            ("10.0.0.1", Ok("10.0.0.1")),
            ("127.0.0.1 ::1", Ok("127.0.0.1 ::1")),
            ("169.254.1.1 10.0.0.1 fe80::1", Ok("10.0.0.1")),
            ("169.254.7.7", Ok("169.254.7.7")),
            ("169.254.169.254", Err("agent.example resolves to an address of cloud metadata")),
            ("169.254.1.1 fe80::1", Err("agent.example resolves to a link-local address")),
            ("", Ok("")),
        ] {
            let addresses: Vec<SocketAddr> =
                answer.split_whitespace().map(|text| SocketAddr::new(text.parse().unwrap(), 0)).collect();
            let lookup: Lookup = Arc::new(move |_| {
                let answer = Ok(addresses.clone());
                Box::pin(async move { answer })
            });
            let screen = Screen { named: vec!["169.254.7.7".parse().unwrap()] };
            let found = Screening::new(screen, lookup).resolve("agent.example".parse().unwrap()).await;
            let found = found
                .map(|found| found.map(|address| address.ip().to_string()).collect::<Vec<_>>().join(" "));
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_name_that_takes_long_leaves_room_for_others() {
        let (end, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let lookup = bounded(move |name| {
            if name.starts_with("slow") {
                // Until the test has ended.
                let _ = wait.lock().recv();
            }
            Ok(vec![([192, 0, 2, 1], 0).into()])
        });
        let slow = (0..2 * MAX_LOOKUPS).map(|_| tokio::spawn(lookup("slow.example".to_owned())));
        let slow: Vec<_> = slow.collect();
        // The runtime comes back to us before it has polled them all.
        for _ in 0..MAX_LOOKUPS {
            tokio::task::yield_now().await;
        }
        let quick = tokio::time::timeout(Duration::from_secs(60), lookup("quick.example".to_owned())).await;
        assert_eq!(quick.expect("a place for others").unwrap().len(), 1);
        drop(end);
        for slow in slow {
            assert_eq!(slow.await.unwrap().unwrap().len(), 1, "and all have their turn");
        }
    }
}
