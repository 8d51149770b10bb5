//! The outbox of the PostgreSQL store.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{PushConfigId, TaskId, Timestamp};

use super::{PostgresStore, lease, webhooks};
use crate::store::{Lease, Leases, Outbox, Refused, Scope, Settled, StoreError, Webhook};

#[async_trait]
impl Outbox for PostgresStore {
    async fn put_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: Webhook,
        now: Timestamp,
    ) -> Result<Result<(), Refused>, StoreError> {
        webhooks::put(self, scope, id, &webhook, now).await
    }

    async fn webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Option<Webhook>, StoreError> {
        webhooks::one(self, scope, id, webhook).await
    }

    async fn webhooks(
        &self,
        scope: &Scope,
        id: &TaskId,
        after: Option<&PushConfigId>,
        limit: usize,
    ) -> Result<Option<Vec<Webhook>>, StoreError> {
        webhooks::list(self, scope, id, after, limit).await
    }

    async fn delete_webhook(
        &self,
        scope: &Scope,
        id: &TaskId,
        webhook: &PushConfigId,
    ) -> Result<Result<Option<Arc<str>>, Refused>, StoreError> {
        webhooks::forget(self, scope, id, webhook).await
    }

    async fn lease(&self, lease: &Lease) -> Result<Leases, StoreError> {
        lease::lease(self, lease).await
    }

    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError> {
        lease::settle(self, &settled).await
    }
}
