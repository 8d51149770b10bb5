//! Webhooks of the hub: one engine for all agents, guarded egress, and signatures by a published key.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use nuncio_client::{AddressKind, Egress, Policy, Refusal, SigningKey};
use nuncio_server::{
    push::{
        Courier, Failure, Push, PushOptions, ReceiverAnswer, ReceiverResponse, Retry, RootKey, Sign,
        sign_by_key, sign_by_secrets,
    },
    store::Store,
};
use url::Url;

use crate::{
    config::{self, Secret},
    push_receiver::{Notification, PushReceiver},
    signing::JWKS,
};

/// The engine with the default options of all agents.
#[derive(Clone)]
pub(crate) struct Pushing {
    pub(crate) push: Push,
    pub(crate) options: PushOptions,
}

impl Pushing {
    /// The options of an agent: the defaults with its own settings.
    pub(crate) fn options_of(&self, desired: &config::Agent) -> Result<PushOptions> {
        let mut options = self.options.clone();
        let special = &desired.push;
        if let Some(chunks) = special.chunks {
            options.chunks = chunks;
        }
        if let Some(dialect) = special.dialect {
            options.dialect = dialect;
        }
        if let Some(secrets) = special.signing_secrets() {
            options.sign = sign(&secrets)?;
        }
        Ok(options)
    }
}

/// The key that signs notifications.
pub(crate) fn signing_key(root_key: &RootKey) -> Result<SigningKey> {
    SigningKey::from_ed25519_seed(&root_key.derive("push signing"))
        .context("the key for notifications is refused")
}

/// Starts the delivery to webhooks; `base` is the address of the hub as receivers see it.
pub(crate) fn start(
    config: &config::Push,
    store: &Arc<dyn Store>,
    root_key: RootKey,
    base: &str,
    receiver: PushReceiver,
) -> Result<Pushing> {
    let egress = guarded(config)?;
    let key = signing_key(&root_key)?.with_jku(format!("{base}{JWKS}"));
    let push = Push::builder(Arc::clone(store), HubCourier { egress, receiver }, root_key)
        .retry(Retry { give_up: config.give_up, ..Retry::default() })
        .sign(sign_by_key(key, base.to_owned()))
        .build()?;
    let mut options = PushOptions::default();
    options.chunks = config.chunks;
    options.dialect = config.dialect;
    options.sign = sign(&config.signing_secrets())?;
    Ok(Pushing { push, options })
}

/// The way out to addresses that callers and operators name.
pub(crate) fn guarded(config: &config::Push) -> Result<Egress> {
    let policy = Policy {
        allow_private: config.allow_private,
        allow: config.allow.iter().map(config::Network::net).collect(),
        deny: config.deny.iter().map(config::Network::net).collect(),
        https_only: config.https_only,
        ..Policy::default()
    };
    Ok(Egress::guarded(policy)?)
}

/// Signs with all of these secrets; `None` if there are none.
fn sign(secrets: &[Secret]) -> Result<Option<Sign>> {
    let secrets = secrets.iter().map(|secret| secret.reveal().parse().context("a webhook secret"));
    let secrets = secrets.collect::<Result<Vec<_>>>()?;
    Ok((!secrets.is_empty()).then(|| sign_by_secrets(secrets)))
}

/// The guarded egress, and the way to the hub's own receiver. A refusal that an option would lift is explained to the
/// caller and to the operator.
struct HubCourier {
    egress: Egress,
    receiver: PushReceiver,
}

#[async_trait]
impl Courier for HubCourier {
    fn check(&self, url: &Url) -> Result<(), String> {
        if self.receiver.is_open(url) {
            return Ok(());
        }
        let Err(refusal) = self.egress.admit(url) else { return Ok(()) };
        let (one, all) = match &refusal {
            Refusal::Address { kind: AddressKind::Loopback, .. } => {
                ("at a loopback address", "on loopback addresses")
            }
            Refusal::Address { kind: AddressKind::Private, .. } => {
                ("in a private network", "in private networks")
            }
            _ => return Err(refusal.to_string()),
        };
        tracing::info!("refused a webhook {one}; --allow-private-push allows it");
        Err(format!(
            "webhooks {all} are not allowed by this hub; its operator allows them with --allow-private-push or \
             --allow-push NETWORK"
        ))
    }

    async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Duration,
    ) -> Result<ReceiverResponse, Failure> {
        let notification = || Notification { headers: headers.clone(), body: body.clone() };
        if self.receiver.deliver(url, notification()) {
            return Ok(ReceiverResponse {
                status: StatusCode::NO_CONTENT,
                retry_after: None,
                excerpt: String::new(),
            });
        }
        Courier::post(&self.egress, url, headers, body, deadline).await
    }

    async fn ask(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Duration,
        max_body: usize,
    ) -> Result<ReceiverAnswer, Failure> {
        Courier::ask(&self.egress, url, headers, body, deadline, max_body).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REQ-168
    #[test]
    fn a_refused_webhook_is_explained() {
        let receiver = PushReceiver::new("http://127.0.0.1:2604");
        let inbox = receiver.open(Box::new(|_| {}));
        let courier = HubCourier { egress: Egress::guarded(Policy::default()).unwrap(), receiver };
        assert_eq!(courier.check(&Url::parse(&inbox.url).unwrap()), Ok(()), "the hub's own receiver");
        let remedy = "its operator allows them with --allow-private-push or --allow-push NETWORK";
        let loopback = format!("webhooks on loopback addresses are not allowed by this hub; {remedy}");
        let private = format!("webhooks in private networks are not allowed by this hub; {remedy}");
        for (url, expected) in [
            ("https://hooks.example/", None),
            ("http://127.0.0.1:2604/", Some(&*loopback)),
            ("http://localhost:2604/", Some(&*loopback)),
            ("https://10.1.2.3/", Some(&*private)),
            ("https://169.254.169.254/", Some("169.254.169.254 is an address of cloud metadata")),
        ] {
            let refused = courier.check(&Url::parse(url).unwrap()).err();
            assert_eq!(refused.as_deref(), expected, "{url}");
        }
    }
}
