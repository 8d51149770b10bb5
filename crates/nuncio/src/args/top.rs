//! The arguments of `nuncio top`.

use std::time::Duration;

use clap::Args as ClapArgs;

use super::{Admin, delivery::duration};

#[derive(Debug, ClapArgs)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) hub: Admin,
    /// Show the figures once and exit; the default where stdout is no terminal.
    #[arg(long)]
    pub(crate) once: bool,
    /// The time between two updates, such as 2s or 1m.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "2s")]
    pub(crate) interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|interval| match interval.is_zero() {
        true => Err("expected at least 1s".to_owned()),
        false => Ok(interval),
    })
}
