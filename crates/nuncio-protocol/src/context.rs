//! The context of a call: who calls, in which version, and what came with the call beside its parameters.

use std::{fmt, sync::Arc, time::Instant};

use crate::{
    Binding, Seq, Version,
    op::{Op, OpSet},
};

/// The header that carries [`CallContext::hops`], separated by commas.
pub const HOPS_HEADER: &str = "nuncio-hops";

/// The member of `tracestate` that carries them, separated by colons, past agents that hand on the trace and no
/// other header.
pub const HOPS_TRACE_KEY: &str = "nuncio";

/// Everything about a call beside its parameters: the caller, the version, the binding, the deadline.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The version the caller speaks.
    pub version: Version,
    /// The binding that the call came by; `None` where it came by none.
    pub binding: Option<Binding>,
    /// True if the caller did not name its version: the method or the path proves it.
    pub version_inferred: bool,
    /// True if the parameters have members that our types do not know.
    pub has_unknown_fields: bool,
    /// URIs of the extensions the caller declared.
    pub extensions: Vec<String>,
    /// Routing, where the binding carries it outside of the parameters.
    pub tenant: Option<String>,
    /// The caller.
    pub caller: Caller,
    /// The moment at which the caller stops waiting.
    pub deadline: Option<Instant>,
    /// W3C trace context, handed on to whatever the call causes.
    pub trace: Option<TraceContext>,
    /// Resume a stream after this entry.
    pub last_event_id: Option<Seq>,
    /// A repeat of the same send has the same key.
    pub idempotency_key: Option<String>,
    /// Further headers (in gRPC: metadata) that a client sends along. What the protocol itself says comes
    /// before them. On a server there are none: what came with a call must not go out again with
    /// another by accident.
    pub headers: Headers,
    /// Headers that came with the call and may be forwarded; only on a server, and only those that it was told to
    /// keep.
    pub forwardable_headers: Headers,
    /// The hubs that the call has come through, the first one first, so that it goes round in no circle.
    pub hops: Vec<String>,
}

impl CallContext {
    /// A call by nobody in particular in this version.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self {
            version,
            binding: None,
            version_inferred: false,
            has_unknown_fields: false,
            extensions: Vec::new(),
            tenant: None,
            caller: Caller::anonymous(),
            deadline: None,
            trace: None,
            last_event_id: None,
            idempotency_key: None,
            headers: Headers::default(),
            forwardable_headers: Headers::default(),
            hops: Vec::new(),
        }
    }

    /// True if the caller declared the extension. It is active if the agent declares it, too (spec 4.6).
    #[must_use]
    pub fn declares(&self, uri: &str) -> bool {
        self.extensions.iter().any(|declared| declared == uri)
    }
}

impl Default for CallContext {
    fn default() -> Self {
        Self::new(Version::V1_0)
    }
}

/// Headers by name, whatever its case, each with one value. Some are secrets, so none is printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Sets a header, in place of another of this name.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let name = name.into();
        self.0.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        self.0.push((name, value.into()));
    }

    /// Names and values, in the order in which they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

/// A caller, and the operations that it may use. Tasks belong to the principal that made them, within its tenant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Caller {
    principal: Option<Arc<str>>,
    tenant: Option<Arc<str>>,
    operations: OpSet,
}

impl Caller {
    /// Nobody in particular.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self { principal: None, tenant: None, operations: OpSet::ALL }
    }

    /// Somebody who has proved it.
    pub fn authenticated(principal: impl Into<Arc<str>>) -> Self {
        Self { principal: Some(principal.into()), ..Self::anonymous() }
    }

    /// One who belongs to this tenant: tasks are kept apart from those of the same principal in others.
    #[must_use]
    pub fn of_tenant(mut self, tenant: impl Into<Arc<str>>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// One who may do these and nothing else.
    #[must_use]
    pub fn limited_to(mut self, operations: OpSet) -> Self {
        self.operations = operations;
        self
    }

    /// The name under which this caller's tasks are kept; `None` for the anonymous caller.
    #[must_use]
    pub fn principal(&self) -> Option<&Arc<str>> {
        self.principal.as_ref()
    }

    /// The tenant that the caller proved to belong to. What a call says about its tenant does not count then.
    #[must_use]
    pub fn tenant(&self) -> Option<&Arc<str>> {
        self.tenant.as_ref()
    }

    /// True if the caller may do this.
    #[must_use]
    pub fn may(&self, op: Op) -> bool {
        self.operations.contains(op)
    }
}

/// W3C trace context as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceContext {
    /// `traceparent`.
    pub parent: String,
    /// `tracestate`.
    pub state: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_one_value_per_name_and_do_not_show_it() {
        let mut cx = CallContext::default();
        for (name, value) in [("X-Key", "old"), ("x-team", "a"), ("x-key", "s3cret")] {
            cx.headers.set(name, value);
        }
        let all: Vec<_> = cx.headers.iter().collect();
        assert_eq!(all, [("x-team", "a"), ("x-key", "s3cret")]);
        let shown = format!("{cx:?}");
        assert!(shown.contains("x-key") && !shown.contains("s3cret"), "{shown}");
    }
}
