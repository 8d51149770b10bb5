//! A webhook that is gone: nothing is posted to it until an operator says so, or the address changes.

use bytes::Bytes;
use nuncio_protocol::Timestamp;
use nuncio_server::store::{Expect, PutRecord, StoreError};
use serde::{Deserialize, Serialize};

use super::Webhook;
use crate::{
    agents::mailbox::registry::{Mailbox, Mailboxes},
    clock,
    trail::{Row, What},
};

/// The kind of the records; the key is the mailbox.
const KIND: &str = "mailbox-gone";

/// A webhook that has answered 410.
#[derive(Serialize, Deserialize)]
struct Gone {
    /// The SHA-256 of its address: another address is another webhook.
    address: String,
}

impl Webhook {
    fn fingerprint(&self) -> String {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, self.url.as_str().as_bytes());
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Mailboxes {
    /// The time since which the webhook of a mailbox is gone; `None`: it is used.
    pub(in crate::agents::mailbox) async fn gone_since(
        &self,
        mailbox: &Mailbox,
    ) -> Result<Option<Timestamp>, StoreError> {
        let Some(webhook) = &mailbox.webhook else { return Ok(None) };
        let Some(record) = self.book.store().record(KIND, &mailbox.name).await? else { return Ok(None) };
        let gone: Gone = serde_json::from_slice(&record.value).map_err(StoreError::broken)?;
        Ok((gone.address == webhook.fingerprint()).then_some(record.at))
    }

    /// Notes that the webhook is gone.
    pub(super) async fn disable(&self, mailbox: &Mailbox, webhook: &Webhook) -> Result<(), StoreError> {
        let gone = Gone { address: webhook.fingerprint() };
        let value: Bytes = serde_json::to_vec(&gone).map_err(StoreError::broken)?.into();
        let name = &*mailbox.name;
        let put = PutRecord {
            kind: KIND.into(),
            key: name.into(),
            value,
            at: clock::now(),
            expect: Expect::Anything,
        };
        self.book.store().put_records(vec![put]).await?;
        tracing::warn!(
            mailbox = name,
            "the webhook of a mailbox is gone (410): its messages wait; nuncio mailbox enable"
        );
        let detail = Some("its webhook answered 410".to_owned());
        webhook.identity.trail().note(Row {
            agent: Some(name.to_owned()),
            detail,
            ..Row::of(What::MailboxDisabled)
        });
        Ok(())
    }

    /// Posts to the webhook of this mailbox again; true if it was gone until now, `None` without such a webhook.
    ///
    /// # Errors
    /// The store is unavailable.
    pub(crate) async fn enable(&self, name: &str) -> Result<Option<bool>, StoreError> {
        let Some(mailbox) = self.find(name).filter(|mailbox| mailbox.webhook.is_some()) else {
            return Ok(None);
        };
        let deleted = self.book.store().delete_record(KIND, name, Expect::Anything).await?;
        self.announce(&mailbox.name);
        Ok(Some(deleted == Ok(true)))
    }

    /// Forgets that the webhook of a mailbox was gone, because the mailbox is gone.
    ///
    /// # Errors
    /// The store is unavailable.
    pub(crate) async fn forget_switch(&self, name: &str) -> Result<(), StoreError> {
        self.book.store().delete_record(KIND, name, Expect::Anything).await.map(drop)
    }
}
