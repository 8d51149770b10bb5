//! Where tasks are kept.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Data {
    /// "memory" (gone with the process), a file (FILE or sqlite:FILE), or a database
    /// (postgres://USER:PASSWORD@HOST/NAME).
    #[schemars(example = "nuncio.db")]
    pub(crate) store: String,
    /// What an answer promises; in memory there is nothing to promise.
    pub(crate) durability: Durability,
    /// For how many days finished tasks are kept; 0: for ever. 30 when absent, but in memory only their number
    /// counts.
    #[schemars(example = 30)]
    pub(crate) keep_days: Option<u32>,
    /// How many finished tasks are kept in memory.
    #[schemars(range(min = 1))]
    pub(crate) keep_finished: usize,
    /// The key that seals what callers confide, and signs notifications; made when it is not there. Beside the
    /// data when absent; with a database it must be said, and be the same at every hub.
    #[schemars(example = "hub.key")]
    pub(crate) key_file: Option<String>,
}

impl Default for Data {
    fn default() -> Self {
        Self {
            store: "memory".to_owned(),
            durability: Durability::Full,
            keep_days: None,
            keep_finished: config::KEEP_FINISHED,
            key_file: None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// What is answered is on disk.
    Full,
    /// What is answered may be lost with the machine, not with the hub.
    Relaxed,
}

impl From<Durability> for config::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Full => Self::Full,
            Durability::Relaxed => Self::Relaxed,
        }
    }
}
