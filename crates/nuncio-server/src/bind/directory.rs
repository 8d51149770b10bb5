//! Several agents on one port: a call without a path of its own names its agent by the tenant.

use nuncio_protocol::{Error, Result};

use super::Agent;

/// Finds agents by name.
pub trait Directory: Send + Sync + 'static {
    /// The agent of this name, or the one for calls without a name (which are all calls of versions that have
    /// no tenant), as far as a request with these extensions may know of it.
    fn find(&self, name: Option<&str>, extensions: &http::Extensions) -> Option<Agent>;

    /// Refuses the credentials of a request with these extensions, where the agent of this name cannot accept them.
    ///
    /// # Errors
    /// The error for the caller.
    fn permit(&self, name: Option<&str>, extensions: &http::Extensions) -> Result<()> {
        let _ = (name, extensions);
        Ok(())
    }

    /// The names of all agents that a request with these extensions may be told of.
    fn names(&self, extensions: &http::Extensions) -> Vec<String> {
        let _ = extensions;
        Vec::new()
    }

    /// The same for a look ahead of the call, which then asks again; refusals are not recorded here.
    fn look_ahead(&self, name: Option<&str>, extensions: &http::Extensions) -> Option<Agent> {
        self.find(name, extensions)
    }
}

/// The most tenants that an error names.
const MAX_NAMED_TENANTS: usize = 20;

/// The error of a call whose tenant leads nowhere; `None`: it has none, and there is no default agent.
pub(super) fn refuse_tenant(
    directory: &dyn Directory,
    tenant: Option<&str>,
    extensions: &http::Extensions,
) -> Error {
    match tenant {
        Some(_) => unknown_tenant(),
        None => unnamed(&directory.names(extensions)),
    }
}

/// The error of a tenant that names no agent, over every binding.
pub(super) fn unknown_tenant() -> Error {
    Error::invalid_field("tenant", "there is no agent of this name here")
}

/// The error of a call without a tenant where there is no default agent.
fn unnamed(tenants: &[String]) -> Error {
    let why = "required: it names the agent, and there is no default agent, which is the only one that versions \
               without a tenant can reach";
    let named = tenants.iter().take(MAX_NAMED_TENANTS).map(String::as_str).collect::<Vec<_>>().join(", ");
    let why = match tenants.len() {
        0 => why.to_owned(),
        count if count > MAX_NAMED_TENANTS => {
            format!("{why}; tenants are {named} and {} more", count - MAX_NAMED_TENANTS)
        }
        _ => format!("{why}; tenants are {named}"),
    };
    Error::invalid_field("tenant", why)
}
