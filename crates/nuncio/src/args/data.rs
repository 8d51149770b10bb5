//! The options that say where tasks are kept, and the commands that look after that place.

use std::{convert::Infallible, fmt, path::PathBuf, str::FromStr};

use clap::{Args as ClapArgs, Subcommand};
use nuncio_hub::config::Data;

use crate::exit;

/// What was typed after `--data`. It may hold a password, so that nobody shows it, clap neither.
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
    /// The place that it names. A variable that is set to nothing is how some containers unset one.
    pub(crate) fn data(place: Option<&Self>) -> anyhow::Result<Option<Data>> {
        let Some(Self(text)) = place.filter(|place| !place.0.is_empty()) else { return Ok(None) };
        text.parse().map(Some).map_err(|error| exit::usage(format!("--data: {error}")))
    }
}

/// Which store.
#[derive(Debug, ClapArgs)]
pub(crate) struct Which {
    /// The store, as for `serve`: a file, sqlite:FILE or postgres://….
    #[arg(long, value_name = "STORE", env = "NUNCIO_DATA", hide_env_values = true)]
    pub(crate) data: Option<Place>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Look for damage; beside a running hub, too.
    Check {
        #[command(flatten)]
        which: Which,
    },
    /// Copy it into a new file; beside a running hub, too. A database is copied by pg_dump.
    Backup {
        #[command(flatten)]
        which: Which,
        /// The copy; there must be nothing yet.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Bring it to the version of this program, as `serve` does when it starts.
    Migrate {
        #[command(flatten)]
        which: Which,
    },
    /// Give back the room of what has been forgotten; not while a hub runs on a file.
    Vacuum {
        #[command(flatten)]
        which: Which,
    },
}
