//! The commands for whoever installs the hub: its health, completions, manual pages.

use std::{path::PathBuf, time::Duration};

use clap::Args as ClapArgs;
use clap_complete::Shell;
use url::Url;

#[derive(Debug, ClapArgs)]
pub(crate) struct Healthcheck {
    /// The hub's address; where NUNCIO_LISTEN says that it listens when absent, or http://127.0.0.1:2602. One that
    /// speaks TLS is asked at the address of its administration, such as http://127.0.0.1:2603.
    #[arg(value_parser = url)]
    pub(crate) url: Option<Url>,

    /// Ask whether calls should go there (/readyz), not only whether it is alive (/healthz).
    #[arg(long)]
    pub(crate) ready: bool,

    /// How many seconds it may take to answer.
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = super::seconds)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Completion {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Man {
    /// Write the pages of all commands to this folder; the first page goes to stdout when absent.
    pub(crate) directory: Option<PathBuf>,
}

fn url(text: &str) -> Result<Url, String> {
    let known = |url: &Url| matches!(url.scheme(), "http" | "https");
    let expected = || "expected an address such as http://127.0.0.1:2602".to_owned();
    Url::parse(text).ok().filter(known).ok_or_else(expected)
}
