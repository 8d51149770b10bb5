//! Records of agents that were added by the API. They are sealed, because settings may contain credentials.

use std::{collections::BTreeMap, sync::Arc};

use nuncio_server::store::{Expect, PutRecord, RecordQuery, Refused as Lost, Store, StoreError, Topic};
use serde_json::{Map, Value};

pub(crate) use nuncio_server::push::Vault;

use super::{
    ChangeRefusal, Desired, rooms,
    settings::{self, ToolServers},
};
use crate::{clock::now, config::AgentName};

/// The kind of the records.
const KIND: &str = "agent";
/// Records per read.
const PAGE: usize = 500;

/// The stored agents of the API.
pub(crate) struct AgentRecords {
    pub(crate) store: Arc<dyn Store>,
    /// `None` without a key: then no agent can be stored.
    pub(crate) vault: Option<Vault>,
}

impl AgentRecords {
    /// Reads all agents. A record that cannot be read is left out and logged.
    pub(super) async fn all(&self, tools: &ToolServers) -> Result<BTreeMap<AgentName, Desired>, StoreError> {
        let mut all = BTreeMap::new();
        let mut after = None;
        loop {
            let query =
                RecordQuery { kind: KIND.into(), after: after.take(), limit: PAGE, ..RecordQuery::default() };
            let records = self.store.records(&query).await?;
            for record in &records {
                match self.open(&record.key, &record.value, record.version, tools) {
                    Ok((name, desired)) => drop(all.insert(name, desired)),
                    Err(why) => {
                        tracing::error!(name = record.key, %why, "an agent that the API added cannot be served")
                    }
                }
            }
            match records.last() {
                Some(last) if records.len() == PAGE => after = Some(last.key.clone()),
                _ => return Ok(all),
            }
        }
    }

    fn open(
        &self,
        key: &str,
        value: &[u8],
        version: u64,
        tools: &ToolServers,
    ) -> Result<(AgentName, Desired), String> {
        let text = std::str::from_utf8(value).map_err(|error| error.to_string())?;
        let vault = self.vault.as_ref().ok_or("there is no key to open it; start the hub with --key-file")?;
        let text = vault.open(&sealed_for(key), text).ok_or("it was sealed with another key")?;
        let given: Map<String, Value> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let name = rooms::parse_name(key)?;
        let agent = settings::read(&name, &given, tools).map_err(|refused| format!("{refused:?}"))?;
        Ok((name, Desired { agent, given: Some((given, version)) }))
    }

    pub(super) async fn put(
        &self,
        name: &AgentName,
        given: &Map<String, Value>,
        expect: Expect,
    ) -> Result<u64, ChangeRefusal> {
        let vault = self.vault.as_ref().ok_or_else(|| {
            ChangeRefusal::Failed(
                "agents of the API are stored under a key, and this hub has none; start it with --key-file"
                    .to_owned(),
            )
        })?;
        let text = serde_json::to_string(given).map_err(|error| ChangeRefusal::Failed(error.to_string()))?;
        let sealed =
            vault.seal(&sealed_for(name), &text).map_err(|error| ChangeRefusal::Failed(error.to_string()))?;
        let put =
            PutRecord { kind: KIND.into(), key: (**name).into(), value: sealed.into(), at: now(), expect };
        let written = self.store.put_records(vec![put]).await?.pop();
        self.store.signals().send(changes(), name);
        written.unwrap_or(Err(Lost::NotFound)).map_err(|refused| lost(&refused))
    }

    pub(super) async fn drop(&self, name: &str, version: u64) -> Result<(), ChangeRefusal> {
        let dropped = self.store.delete_record(KIND, name, Expect::Version(version)).await?;
        self.store.signals().send(changes(), name);
        dropped.map(drop).map_err(|refused| lost(&refused))
    }
}

/// The topic of changes for other hubs.
pub(super) fn changes() -> Topic {
    Topic::Records(KIND.into())
}

/// The sealing context: a record cannot be used for another agent.
fn sealed_for(name: &str) -> String {
    format!("agent {name}")
}

fn lost(lost: &Lost) -> ChangeRefusal {
    match lost {
        Lost::Version(version) => ChangeRefusal::Changed(version.0),
        Lost::NotFound | Lost::Held | Lost::NotHeld | Lost::Record | Lost::KeyTaken | Lost::Full => {
            ChangeRefusal::Changed(0)
        }
    }
}
