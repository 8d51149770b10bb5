//! The options of `serve` that say where notifications go, and what they look like.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::{Args as ClapArgs, ValueEnum};
use nuncio_hub::config::{self, Network};

use crate::exit;

const WEBHOOKS: &str = "Webhooks";
const HOUR: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = WEBHOOKS)]
pub(crate) struct Webhooks {
    /// No agent tells webhooks.
    #[arg(long)]
    pub(crate) no_push: bool,

    /// Callers may name webhooks on this machine and in private networks. Without this they are refused: a
    /// caller could reach through us what it cannot reach itself.
    #[arg(long, env = "NUNCIO_ALLOW_PRIVATE_PUSH")]
    allow_private_push: bool,

    /// Callers may name webhooks in this network, whatever it is; may be repeated.
    #[arg(long = "allow-push", value_name = "CIDR")]
    allow_push: Vec<Network>,

    /// Callers may name no webhook in this network, whatever else is said; may be repeated. For public addresses
    /// that are inside of the house.
    #[arg(long = "deny-push", value_name = "CIDR")]
    deny_push: Vec<Network>,

    /// Webhooks are told by https only.
    #[arg(long)]
    push_https_only: bool,

    /// After so many hours a delivery that still fails is given up.
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    push_give_up_hours: u32,

    /// Tell webhooks of artifacts piece by piece, as they are made; else once, when they are complete.
    #[arg(long)]
    push_chunks: bool,

    /// What webhooks get that were registered in version 0.3.
    #[arg(long, value_enum, default_value_t = Dialect::Standard)]
    push_dialect: Dialect,

    /// Sign notifications with the secret in this file, too (Standard Webhooks: whsec_ and base64); may be
    /// repeated: all sign, so that one can be replaced.
    #[arg(long = "push-secret-file", value_name = "FILE")]
    push_secret_files: Vec<PathBuf>,

    /// The key that seals what callers confide, and signs notifications; made when it is not there. Beside the
    /// data when absent; with a database it must be said, and be the same at every hub.
    #[arg(long, value_name = "FILE", env = "NUNCIO_KEY_FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dialect {
    /// The bare task.
    Standard,
    /// A JSON-RPC response around the event.
    Neuralpost,
}

impl Webhooks {
    pub(crate) fn config(&self) -> anyhow::Result<Option<config::Push>> {
        if self.no_push {
            return Ok(None);
        }
        if self.push_give_up_hours == 0 {
            return Err(exit::usage("--push-give-up-hours 0: expected 1 or more; --no-push tells nobody"));
        }
        let mut secrets = Vec::new();
        for file in &self.push_secret_files {
            let flag = || format!("--push-secret-file {}", file.display());
            let text =
                std::fs::read_to_string(file).with_context(|| format!("{}: cannot read it", flag()))?;
            secrets.push(text.trim().parse().with_context(flag)?);
        }
        Ok(Some(config::Push {
            allow_private: self.allow_private_push,
            allow: self.allow_push.clone(),
            deny: self.deny_push.clone(),
            https_only: self.push_https_only,
            give_up: HOUR * self.push_give_up_hours,
            chunks: self.push_chunks,
            dialect: match self.push_dialect {
                Dialect::Standard => config::Dialect::Standard,
                Dialect::Neuralpost => config::Dialect::NeuralPost,
            },
            secrets,
        }))
    }
}
