//! Stops calls that go in circles: each hub adds its hop to a call, and refuses a call that already has
//! this hop or has too many hops.
//!
//! ```text
//! Nuncio-Hops: 5f1c…/billing,9a02…/search         hub and agent, the first one first
//! tracestate:  nuncio=2c9f0e11a4b7:7d40a1b2c3d4   the same as digests, for agents that forward only the
//! trace
//! ```

use std::{borrow::Cow, sync::Arc};

use aws_lc_rs::digest;
use nuncio_protocol::{Error, ErrorKind, HOPS_TRACE_KEY, Result, TraceContext};
use nuncio_server::store::{Expect, PutRecord, Store, StoreError};

use super::super::hex::{hex, random_hex};
use crate::clock;

/// Maximum number of hops of a call (decision 0011).
const MAX_HOPS: usize = 5;

/// Bytes of a digest: enough to distinguish hops, and five digests fit into a member of `tracestate`.
const DIGEST: usize = 6;

/// Maximum number of members of a `tracestate` (W3C Trace Context, 3.3.1.1).
const MAX_MEMBERS: usize = 32;

/// The hop of an agent of this hub. Every call from the agent to another one has to pass it.
pub(crate) struct Hop {
    own: String,
    digest: String,
}

impl Hop {
    pub(crate) fn new(hub: &str, agent: &str) -> Self {
        let own = format!("{hub}/{agent}");
        Self { digest: digest_of(&own), own }
    }

    /// Passes a call from this agent to another one.
    ///
    /// # Errors
    /// `InvalidRequest` if the call already has this hop, or has too many.
    pub(crate) fn pass(&self, hops: &[String]) -> Result<Passage<'_>> {
        if hops.iter().any(|hop| digest_of(hop) == self.digest) {
            let agent = self.own.rsplit('/').next().unwrap_or_default();
            let why = format!("the call goes round in a circle: it has come through {agent} before");
            return Err(Error::new(ErrorKind::InvalidRequest, why));
        }
        if hops.len() >= MAX_HOPS {
            let why =
                format!("the call has come through {} hubs; no more than {MAX_HOPS} are allowed", hops.len());
            return Err(Error::new(ErrorKind::InvalidRequest, why));
        }
        let mut next = Vec::with_capacity(hops.len() + 1);
        next.extend_from_slice(hops);
        next.push(self.own.clone());
        Ok(Passage { hop: self, hops: next })
    }

    /// The hops of a call that is forwarded from here.
    ///
    /// # Errors
    /// As for [`Hop::pass`].
    pub(crate) fn next(&self, hops: &[String]) -> Result<Vec<String>> {
        self.pass(hops).map(|passage| passage.hops)
    }

    /// The outgoing trace context: the incoming trace or a new one, with a new span id and the hops.
    pub(crate) fn trace(&self, incoming: Option<&TraceContext>, hops: &[String]) -> TraceContext {
        let digests = hops.iter().map(|hop| {
            if *hop == self.own { Cow::Borrowed(&*self.digest) } else { Cow::Owned(digest_of(hop)) }
        });
        trace(incoming, digests)
    }
}

/// A call that has passed the hop of an agent.
#[derive(Clone)]
pub(crate) struct Passage<'a> {
    hop: &'a Hop,
    /// The hops of the call, including this one.
    pub(crate) hops: Vec<String>,
}

impl Passage<'_> {
    /// See [`Hop::trace`].
    pub(crate) fn trace(&self, incoming: Option<&TraceContext>) -> TraceContext {
        self.hop.trace(incoming, &self.hops)
    }
}

fn trace<'a>(incoming: Option<&TraceContext>, digests: impl Iterator<Item = Cow<'a, str>>) -> TraceContext {
    let chance = random_hex::<24>();
    let (span, fresh) = chance.split_at(16);
    let parent = incoming.and_then(|trace| child(&trace.parent, span));
    // A new trace is not sampled; an incoming one keeps its flags.
    let parent = parent.unwrap_or_else(|| ["00-", fresh, "-", span, "-00"].concat());
    let others = incoming.and_then(|trace| trace.state.as_deref()).unwrap_or_default();
    let mut state =
        String::with_capacity(HOPS_TRACE_KEY.len() + MAX_HOPS * (2 * DIGEST + 1) + 1 + others.len());
    state.push_str(HOPS_TRACE_KEY);
    state.push('=');
    for (number, digest) in digests.enumerate() {
        if number > 0 {
            state.push(':');
        }
        state.push_str(&digest);
    }
    let others = others.split(',').map(str::trim).filter(|member| {
        !member.is_empty() && member.split_once('=').is_none_or(|(key, _)| key != HOPS_TRACE_KEY)
    });
    for other in others.take(MAX_MEMBERS - 1) {
        state.push(',');
        state.push_str(other);
    }
    TraceContext { parent, state: Some(state) }
}

/// Replaces the span id of a `traceparent` (`version-trace-span-flags`); `None` if it is malformed.
fn child(parent: &str, span: &str) -> Option<String> {
    let mut fields = parent.split('-');
    let (version, trace, _, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let is_hex = |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let well_formed = is_hex(version, 2) && is_hex(trace, 32) && is_hex(flags, 2);
    (well_formed && version != "ff").then(|| ["00-", trace, "-", span, "-", flags].concat())
}

/// The digest of a hop. A hop that is a digest already is returned unchanged.
fn digest_of(hop: &str) -> String {
    if !hop.contains('/') {
        return hop.to_owned();
    }
    let digest = digest::digest(&digest::SHA256, hop.as_bytes());
    hex(&digest.as_ref()[..DIGEST])
}

/// The unique id of this hub, created once and stored.
///
/// # Errors
/// The store cannot be read or written.
pub(crate) async fn hub_id(store: &dyn Store) -> std::result::Result<Arc<str>, StoreError> {
    let put = PutRecord {
        kind: "hub".into(),
        key: "id".into(),
        value: random_hex::<8>().into(),
        at: clock::now(),
        expect: Expect::Absent,
    };
    // Only the first start writes the id.
    store.put_records(vec![put]).await?;
    let record = store.record("hub", "id").await?;
    let id = record.map(|record| String::from_utf8_lossy(&record.value).into_owned());
    Ok(id.unwrap_or_default().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hops(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn a_call_passes_each_hub_once_and_not_too_many() {
        let digest = digest_of("h1/a");
        for (before, expected) in [
            (&[][..], Ok("h1/a")),
            (&["h2/b"], Ok("h2/b h1/a")),
            (&["h1/b"], Ok("h1/b h1/a")),
            (&["h1/a"], Err("circle")),
            (&["h1/a", "h2/b"], Err("circle")),
            (&[&*digest, "h2/b"], Err("circle")),
            (&["1/a", "2/a", "3/a", "4/a"], Ok("1/a 2/a 3/a 4/a h1/a")),
            (&["1/a", "2/a", "3/a", "4/a", "5/a"], Err("come through 5 hubs")),
        ] {
            match (Hop::new("h1", "a").next(&hops(before)), expected) {
                (Ok(hops), Ok(expected)) => assert_eq!(hops.join(" "), expected),
                (Err(error), Err(words)) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
                    assert!(error.message().contains(words), "{error}");
                }
                (got, expected) => panic!("{before:?}: {got:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn the_trace_goes_on_with_a_span_of_its_own() {
        let parent = format!("00-{}-{}-01", "a".repeat(32), "b".repeat(16));
        let incoming = TraceContext { parent, state: Some("x=1, nuncio=old,y=2".to_owned()) };
        let out = Hop::new("h1", "a").trace(Some(&incoming), &hops(&["h1/a", "0123456789ab"]));
        assert!(out.parent.starts_with(&format!("00-{}-", "a".repeat(32))) && out.parent.ends_with("-01"));
        assert!(!out.parent.contains(&"b".repeat(16)), "{}", out.parent);
        let state = out.state.unwrap();
        assert_eq!(state, format!("nuncio={}:0123456789ab,x=1,y=2", digest_of("h1/a")));
        let longest = Hop::new("h", "a").trace(None, &vec!["a".repeat(80) + "/b"; MAX_HOPS]).state.unwrap();
        assert!(longest.len() < 256, "{}", longest.len());
    }

    #[test]
    fn what_is_no_trace_begins_a_new_one() {
        for parent in ["", "00-1", "ff-00000000000000000000000000000001-0000000000000001-00", "00-zz-zz-00"] {
            let incoming = TraceContext { parent: parent.to_owned(), state: None };
            let out = Hop::new("h", "a").trace(Some(&incoming), &[]).parent;
            assert_eq!(out.split('-').map(str::len).collect::<Vec<_>>(), [2, 32, 16, 2], "{parent:?}: {out}");
        }
    }
}
