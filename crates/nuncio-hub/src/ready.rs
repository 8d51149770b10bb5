//! Checks the store while the hub serves, so that a load balancer sends calls elsewhere while it fails.

use std::{convert::Infallible, time::Duration};

use nuncio_server::store::Store;

use crate::{fleet::Fleet, grpc::GrpcHealth};

/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Updates `fleet` and `health` with the result of each check, for as long as it is polled.
pub(crate) async fn watch(store: &dyn Store, fleet: &Fleet, health: &GrpcHealth) -> Infallible {
    if store.is_immediate() {
        // The memory store cannot fail.
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let mut trouble = look(store).await.err();
        // A check may succeed while writes do not (a full disk).
        if !fleet.is_recording() {
            trouble.get_or_insert_with(|| "the task store does not accept writes".to_owned());
        }
        let now = trouble.is_none();
        if !fleet.store_is(now) {
            continue;
        }
        health.set(fleet.why_not_ready().is_empty()).await;
        match trouble {
            Some(error) => tracing::error!(%error, "not ready"),
            None => tracing::info!("the task store answers again; ready"),
        }
    }
}

async fn look(store: &dyn Store) -> Result<(), String> {
    match tokio::time::timeout(CHECK_TIMEOUT, store.ready()).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the task store has not answered for {} seconds", CHECK_TIMEOUT.as_secs())),
    }
}
