//! Calls that go round in circles are stopped: each hub that a call comes through adds itself to it, and refuses
//! one that has been here before, or has come too far.
//!
//! ```text
//! Nuncio-Hops: 5f1c…/billing,9a02…/search         hub and agent, the first one first
//! tracestate:  nuncio=2c9f0e11a4b7:7d40a1b2c3d4   the same as digests, past agents that hand on only the trace
//! ```

use std::borrow::Cow;

use aws_lc_rs::digest;
use nuncio_protocol::{Error, ErrorKind, HOPS_TRACE_KEY, Result, TraceContext};

/// A call comes through so many hubs at most (decision 0011).
const MOST: usize = 5;

/// As many bytes of a digest tell a hop from others, and five of them fit into a member of `tracestate`.
const DIGEST: usize = 6;

/// So many members a `tracestate` may have.
const MOST_MEMBERS: usize = 32;

/// An agent of this hub, as a hop.
pub(crate) struct Hop {
    own: String,
    digest: String,
}

impl Hop {
    pub(crate) fn new(hub: &str, agent: &str) -> Self {
        let own = format!("{hub}/{agent}");
        Self { digest: digest_of(&own), own }
    }

    /// The hops of a call that goes out from here.
    ///
    /// # Errors
    /// It has been here before, or has come too far.
    pub(crate) fn next(&self, hops: &[String]) -> Result<Vec<String>> {
        if hops.iter().any(|hop| digest_of(hop) == self.digest) {
            let agent = self.own.rsplit('/').next().unwrap_or_default();
            let why = format!("the call goes round in a circle: it has come through {agent} before");
            return Err(Error::new(ErrorKind::InvalidRequest, why));
        }
        if hops.len() >= MOST {
            let why =
                format!("the call has come through {} hubs; no more than {MOST} are allowed", hops.len());
            return Err(Error::new(ErrorKind::InvalidRequest, why));
        }
        let mut next = Vec::with_capacity(hops.len() + 1);
        next.extend_from_slice(hops);
        next.push(self.own.clone());
        Ok(next)
    }
}

impl Hop {
    /// The trace as it goes out: the same trace, or a new one, with a span of our own, and the hops.
    pub(crate) fn trace(&self, incoming: Option<&TraceContext>, hops: &[String]) -> TraceContext {
        let digests = hops.iter().map(|hop| {
            if *hop == self.own { Cow::Borrowed(&*self.digest) } else { Cow::Owned(digest_of(hop)) }
        });
        trace(incoming, digests)
    }
}

fn trace<'a>(incoming: Option<&TraceContext>, digests: impl Iterator<Item = Cow<'a, str>>) -> TraceContext {
    let chance = random::<24>();
    let (span, fresh) = chance.split_at(16);
    let parent = incoming.and_then(|trace| child(&trace.parent, span));
    // Nobody records a trace that begins here, unless somebody did already.
    let parent = parent.unwrap_or_else(|| ["00-", fresh, "-", span, "-00"].concat());
    let others = incoming.and_then(|trace| trace.state.as_deref()).unwrap_or_default();
    let mut state = String::with_capacity(HOPS_TRACE_KEY.len() + MOST * (2 * DIGEST + 1) + 1 + others.len());
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
    for other in others.take(MOST_MEMBERS - 1) {
        state.push(',');
        state.push_str(other);
    }
    TraceContext { parent, state: Some(state) }
}

/// `version-trace-span-flags` with another span; `None` if it cannot be read.
fn child(parent: &str, span: &str) -> Option<String> {
    let mut fields = parent.split('-');
    let (version, trace, _, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let is_hex = |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let well_formed = is_hex(version, 2) && is_hex(trace, 32) && is_hex(flags, 2);
    (well_formed && version != "ff").then(|| ["00-", trace, "-", span, "-", flags].concat())
}

/// What stands for a hop in the trace; it stands for itself once it does.
fn digest_of(hop: &str) -> String {
    if !hop.contains('/') {
        return hop.to_owned();
    }
    let digest = digest::digest(&digest::SHA256, hop.as_bytes());
    hex(&digest.as_ref()[..DIGEST])
}

/// So many random bytes, in hex.
pub(super) fn random<const N: usize>() -> String {
    hex(&rand::random::<[u8; N]>())
}

/// Once per call, so without a formatter.
pub(in super::super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
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
        let longest = Hop::new("h", "a").trace(None, &vec!["a".repeat(80) + "/b"; MOST]).state.unwrap();
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
