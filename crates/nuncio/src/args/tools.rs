//! The arguments of `nuncio healthcheck`, `completion` and `man`.

use std::{path::PathBuf, time::Duration};

use clap::Args as ClapArgs;
use clap_complete::Shell;
use url::Url;

#[derive(Debug, ClapArgs)]
pub(crate) struct Healthcheck {
    /// The URL of the hub [default: the address in NUNCIO_LISTEN, or http://127.0.0.1:2602]. For a hub with
    /// TLS use the URL of its admin API, such as http://127.0.0.1:2603.
    #[arg(value_parser = url)]
    pub(crate) url: Option<Url>,

    /// Check readiness for calls (/readyz) instead of liveness (/healthz).
    #[arg(long)]
    pub(crate) ready: bool,

    /// Seconds to wait for the answer.
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
    /// The directory for the pages of all commands; without it the main page is printed.
    pub(crate) directory: Option<PathBuf>,
}

fn url(text: &str) -> Result<Url, String> {
    let known = |url: &Url| matches!(url.scheme(), "http" | "https");
    let expected = || "expected a URL such as http://127.0.0.1:2602".to_owned();
    Url::parse(text).ok().filter(known).ok_or_else(expected)
}
