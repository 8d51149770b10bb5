//! The HTTP+JSON binding as pure functions, in both directions (spec 11): method, path, query and body to
//! an operation with parameters, and back; errors to `google.rpc.Status` JSON, and back.
//!
//! The routes come from the operation table. [`Paths`] has the differences between versions, and the
//! [`Dialect`](super::Dialect) the shapes.
//!
//! Deliberately absent: lists in queries (REQ-053). No request with a query has a repeated field, so a
//! repeated name is refused.

mod client;
mod escape;
mod route;
mod server;
mod status;

pub use self::{
    client::{Outgoing, encode_request},
    route::{Route, find_route},
    server::{RestRefusal, RestRequest, decode_request},
    status::{decode_body, decode_error, decode_event, encode_error},
};
use crate::op::{Op, OpRow};

/// The routes of one version, below the agent's URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The prefix of every route: empty, or a path such as `/v1`.
    pub prefix: &'static str,
    /// The path of the extended card, after the prefix.
    pub card: &'static str,
    /// True if each route may also have a tenant as its first segment (REQ-044).
    pub tenants: bool,
}

impl Paths {
    /// Version 1.0: the operation table, unchanged (REQ-042).
    pub const V1: Self = Self { prefix: "", card: "/extendedAgentCard", tenants: true };

    /// The path of an operation, after the prefix, with `{name}` for variables.
    fn template(&self, row: &OpRow) -> &'static str {
        if row.op == Op::GetExtendedAgentCard { self.card } else { row.path }
    }

    /// True for a name that begins a route of any version or of the server itself, and so cannot be a
    /// tenant (trap T-10).
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
