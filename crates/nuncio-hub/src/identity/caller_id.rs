//! The identity of a caller for limits.

use std::sync::Arc;

use nuncio_protocol::Caller;

use super::ApiKey;

/// A principal within its tenant. All anonymous callers are one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CallerId {
    principal: Option<Arc<str>>,
    tenant: Option<Arc<str>>,
}

impl From<&Caller> for CallerId {
    fn from(caller: &Caller) -> Self {
        Self { principal: caller.principal().cloned(), tenant: caller.tenant().cloned() }
    }
}

/// The holder of the key.
impl From<&ApiKey> for CallerId {
    fn from(key: &ApiKey) -> Self {
        Self { principal: Some(key.principal.as_str().into()), tenant: key.tenant.as_deref().map(Into::into) }
    }
}
