//! The names of interfaces in reports.

use std::collections::{BTreeMap, BTreeSet};

use crate::{AuditResult, InterfaceId};

/// The names of the interfaces of a result: version and binding, with the URL where several share these.
#[derive(Debug)]
pub(super) struct Names<'a> {
    /// The versions and bindings that several interfaces have.
    shared: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> Names<'a> {
    pub(super) fn new(result: &'a AuditResult) -> Self {
        let mut urls: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
        for InterfaceId { version, binding, url } in result.interfaces.iter().map(|report| &report.id) {
            urls.entry((version, binding)).or_default().insert(url);
        }
        let shared = urls.into_iter().filter(|(_, urls)| urls.len() > 1).map(|(name, _)| name).collect();
        Self { shared }
    }

    /// The name of an interface.
    pub(super) fn of(&self, interface: &InterfaceId) -> String {
        let InterfaceId { version, binding, url } = interface;
        if self.shared.contains(&(version.as_str(), binding.as_str())) {
            format!("{version} {binding} at {url}")
        } else {
            version_and_binding(interface)
        }
    }

    /// The name of an interface; that of the agent where there is none.
    pub(super) fn or_agent(&self, interface: Option<&InterfaceId>) -> String {
        interface.map_or_else(|| "the agent".to_owned(), |interface| self.of(interface))
    }
}

/// The name of an interface where its URL stands beside it.
pub(super) fn version_and_binding(interface: &InterfaceId) -> String {
    format!("{} {}", interface.version, interface.binding)
}
