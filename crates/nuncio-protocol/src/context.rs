//! The context of a call: the caller, the version, and all other data beside its parameters.

use std::{fmt, sync::Arc, time::Instant};

use crate::{
    Binding, Seq, Version,
    op::{Op, OpSet},
};

/// The header with [`CallContext::hops`], separated by commas.
pub const HOPS_HEADER: &str = "nuncio-hops";

/// The member of `tracestate` with the hops, separated by colons, for agents that forward only the trace.
pub const HOPS_TRACE_KEY: &str = "nuncio";

/// All data of a call beside its parameters.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The caller's version.
    pub version: Version,
    /// The binding of the call; `None` if it did not arrive over one.
    pub binding: Option<Binding>,
    /// True if the caller did not state its version, and the method or the path implies it.
    pub version_inferred: bool,
    /// True if the parameters have members that our types do not know.
    pub has_unknown_fields: bool,
    /// URIs of the extensions that the caller declared.
    pub extensions: Vec<String>,
    /// The tenant for routing, if the binding has it outside of the parameters.
    pub tenant: Option<String>,
    /// The caller.
    pub caller: Caller,
    /// The time at which the caller stops waiting.
    pub deadline: Option<Instant>,
    /// W3C trace context, passed on to all calls that this one causes.
    pub trace: Option<TraceContext>,
    /// Resume a stream after this entry.
    pub last_event_id: Option<Seq>,
    /// The idempotency key; a repeat of the same send has the same key.
    pub idempotency_key: Option<String>,
    /// Additional headers (in gRPC: metadata) of an outgoing call. Headers of the protocol override them.
    /// Empty on a server, so that received headers are never forwarded by accident.
    pub headers: Headers,
    /// Received headers that may be forwarded; only on a server, and only those that it is configured to
    /// keep.
    pub forwardable_headers: Headers,
    /// The hubs that the call has passed, the first one first, to detect circles.
    pub hops: Vec<String>,
}

impl CallContext {
    /// An anonymous call in this version.
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

/// Headers by case-insensitive name, each with one value. Values are never printed, because some are
/// secret.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Sets a header, and replaces one of the same name.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let name = name.into();
        self.0.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        self.0.push((name, value.into()));
    }

    /// Names and values, in the order in which they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// True if there are no headers.
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

/// A caller and its allowed operations. Tasks belong to the principal that created them, within its tenant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Caller {
    principal: Option<Arc<str>>,
    tenant: Option<Arc<str>>,
    operations: OpSet,
}

impl Caller {
    /// The anonymous caller.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self { principal: None, tenant: None, operations: OpSet::ALL }
    }

    /// An authenticated caller.
    pub fn authenticated(principal: impl Into<Arc<str>>) -> Self {
        Self { principal: Some(principal.into()), ..Self::anonymous() }
    }

    /// Sets the tenant: tasks are separate from those of the same principal in other tenants.
    #[must_use]
    pub fn of_tenant(mut self, tenant: impl Into<Arc<str>>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Allows only these operations.
    #[must_use]
    pub fn limited_to(mut self, operations: OpSet) -> Self {
        self.operations = operations;
        self
    }

    /// The owner of this caller's tasks; `None` for the anonymous caller.
    #[must_use]
    pub fn principal(&self) -> Option<&Arc<str>> {
        self.principal.as_ref()
    }

    /// The tenant that the credential proves. It overrides the tenant of a call.
    #[must_use]
    pub fn tenant(&self) -> Option<&Arc<str>> {
        self.tenant.as_ref()
    }

    /// True if the caller may use this operation.
    #[must_use]
    pub fn may(&self, op: Op) -> bool {
        self.operations.contains(op)
    }
}

/// A received W3C trace context.
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
