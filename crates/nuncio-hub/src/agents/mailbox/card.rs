//! The card of a mailbox: what a worker has put there, or a card that says what a mailbox is.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;
use nuncio_client::FetchedCard;
use nuncio_protocol::AgentCard;
use nuncio_server::store::{Expect, PutRecord, Record, Store, StoreError, Topic};
use url::Url;

use super::{
    executor::MailboxExecutor,
    problem::Problem,
    registry::{Mailbox, Mailboxes},
};
use crate::{
    agent_urls::AgentUrls,
    agents::{Label, remote::present},
    clock,
};

/// The kind of the records with cards.
const KIND: &str = "mailbox-card";

/// Bytes of a card.
const MAX_CARD_BYTES: usize = 256 << 10;

/// The card that callers see, made of the stored one.
pub(super) fn shown(mailbox: &Mailbox, stored: Option<&Record>) -> AgentCard {
    let published = stored.and_then(|record| match read(&record.value) {
        Ok(card) => Some(card),
        Err(why) => {
            tracing::warn!(mailbox = &*mailbox.name, why, "the card of a mailbox cannot be read");
            None
        }
    });
    mailbox.card.store(stored.map_or(0, |record| record.version), Ordering::Relaxed);
    let label = mailbox.label.load();
    match published {
        Some(card) => present(&mailbox.name, &card, &label, &mailbox.urls),
        None => of_mailbox(&mailbox.name, &label, &mailbox.urls),
    }
}

/// The card of a mailbox where no worker has put one.
fn of_mailbox(name: &str, label: &Label, urls: &AgentUrls) -> AgentCard {
    let what = "A mailbox: messages wait until a worker takes them. No worker has described itself yet.";
    present(name, &AgentCard::new(name, what), label, urls)
}

/// The stored card.
pub(super) async fn stored(store: &dyn Store, name: &str) -> Result<Option<Record>, StoreError> {
    store.record(KIND, name).await
}

fn read(body: &[u8]) -> Result<AgentCard, String> {
    // The address does not matter: those of the card are replaced.
    let nowhere = Url::parse("http://localhost").map_err(|error| error.to_string())?;
    FetchedCard::read(&nowhere, body).map(|fetched| fetched.card).map_err(|error| error.message().to_owned())
}

/// Stores a worker's card, and shows it.
pub(super) async fn publish(
    mailboxes: &Arc<Mailboxes>,
    mailbox: &Arc<Mailbox>,
    body: Bytes,
) -> Result<(), Problem> {
    if body.len() > MAX_CARD_BYTES {
        return Err(Problem::invalid(format!("the card has more than {MAX_CARD_BYTES} bytes")));
    }
    read(&body).map_err(|why| Problem::invalid(format!("the body is no agent card: {why}")))?;
    let store = mailboxes.book.store();
    if stored(&**store, &mailbox.name).await?.is_some_and(|record| record.value == body) {
        return Ok(());
    }
    let (kind, key, at) = (KIND.into(), Arc::clone(&mailbox.name), clock::now());
    let put = PutRecord { kind, key, value: body, at, expect: Expect::Anything };
    store.put_records(vec![put]).await?;
    store.signals().send(changes(), &mailbox.name);
    show(mailboxes, mailbox).await?;
    Ok(())
}

/// The topic of changed cards for other hubs.
pub(super) fn changes() -> Topic {
    Topic::Records(KIND.into())
}

/// Shows the stored card from now on, if it is not shown yet.
pub(super) async fn show(mailboxes: &Arc<Mailboxes>, mailbox: &Arc<Mailbox>) -> Result<(), StoreError> {
    let stored = stored(&**mailboxes.book.store(), &mailbox.name).await?;
    let version = stored.as_ref().map_or(0, |record| record.version);
    if version == mailbox.card.load(Ordering::Relaxed) {
        return Ok(());
    }
    let Some(agent) = mailbox.agent() else { return Ok(()) };
    let Some(runtime) = agent.runtime() else { return Ok(()) };
    let executor = MailboxExecutor { mailbox: Arc::clone(mailbox), mailboxes: Arc::clone(mailboxes) };
    runtime.replace(shown(mailbox, stored.as_ref()), Arc::new(executor));
    match agent.show(AgentCard::clone(&runtime.card())) {
        Ok(()) => tracing::info!(mailbox = &*mailbox.name, "the card of a mailbox has changed"),
        Err(error) => {
            tracing::warn!(mailbox = &*mailbox.name, %error, "the card of a mailbox cannot be shown");
        }
    }
    Ok(())
}
