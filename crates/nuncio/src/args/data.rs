//! The arguments of `nuncio store`.

use std::{convert::Infallible, fmt, path::PathBuf, str::FromStr};

use clap::{Args as ClapArgs, Subcommand};
use nuncio_hub::config::Data;

use crate::exit;

/// The value of `--data`. It may contain a password, so it is never printed, not even by clap.
#[derive(Clone)]
pub(crate) struct Place(String);

impl FromStr for Place {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place(…)")
    }
}

impl Place {
    /// The store that it names. An empty variable counts as unset: some containers cannot unset one.
    pub(crate) fn data(place: Option<&Self>) -> anyhow::Result<Option<Data>> {
        let Some(Self(text)) = place.filter(|place| !place.0.is_empty()) else { return Ok(None) };
        text.parse().map(Some).map_err(|error| exit::usage(format!("--data: {error}")))
    }
}

/// The store to work on.
#[derive(Debug, ClapArgs)]
pub(crate) struct Which {
    /// The store, as for `nuncio serve`: FILE, sqlite:FILE or postgres://….
    #[arg(long, value_name = "STORE", env = "NUNCIO_DATA", hide_env_values = true)]
    pub(crate) data: Option<Place>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Check the store for damage. A hub may be running on it.
    Check {
        #[command(flatten)]
        which: Which,
    },
    /// Copy the store to a new file. A hub may be running on it. For PostgreSQL use pg_dump instead.
    Backup {
        #[command(flatten)]
        which: Which,
        /// The file of the copy, which must not exist yet.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Migrate the store to the format of this version, as `nuncio serve` does when it starts.
    Migrate {
        #[command(flatten)]
        which: Which,
    },
    /// Release the disk space of deleted tasks. No hub may be running on a file.
    Vacuum {
        #[command(flatten)]
        which: Which,
    },
}
