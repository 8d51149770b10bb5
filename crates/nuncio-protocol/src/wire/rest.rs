//! The HTTP+JSON binding as pure functions, both directions (spec 11): verb, path, query and body to an
//! operation with parameters, and back; errors to `google.rpc.Status` JSON, and back.
//!
//! The routes come from the operation table; what differs between versions is in [`Paths`], what differs
//! in shapes is the [`Dialect`](super::Dialect)'s.
//!
//! Deliberately absent: lists in queries (REQ-053). No request that travels by query has a repeated
//! field, so a name that comes twice is refused.

mod client;
mod escape;
mod route;
mod server;
mod status;

pub use self::{
    client::{Outgoing, encode_request},
    route::{Route, find_route},
    server::{Incoming, Refused, decode_request},
    status::{decode_body, decode_error, decode_event, encode_error},
};
use crate::op::{Op, OpRow};

/// The routes of one version, below the agent's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Before every route: empty, or such as `/v1`.
    pub prefix: &'static str,
    /// The extended card, after the prefix.
    pub card: &'static str,
    /// True if each route also answers after a segment that names a tenant (REQ-044).
    pub tenants: bool,
}

impl Paths {
    /// Version 1.0: the table as it is (REQ-042).
    pub const V1: Self = Self { prefix: "", card: "/extendedAgentCard", tenants: true };

    /// The path of an operation, after the prefix, with `{name}` for what varies.
    fn template(&self, row: &OpRow) -> &'static str {
        if row.op == Op::GetExtendedAgentCard { self.card } else { row.path }
    }

    /// True for a name that begins a route, of whatever version or of the server itself, and so cannot be
    /// a tenant (trap T-10).
    fn is_reserved(&self, tenant: &str) -> bool {
        const OTHERS: [&str; 3] = ["v1", ".well-known", "agents"];
        let first = |path: &'static str| path.split('/').nth(1);
        OTHERS.contains(&tenant)
            || first(self.prefix) == Some(tenant)
            || Op::TABLE.iter().any(|row| first(self.template(row)) == Some(tenant))
    }
}

#[cfg(test)]
mod tests;
