//! The commands and options of webhooks.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, builder::NonEmptyStringValueParser};

use super::{Hidden, KEY_HELP, Target};

/// What has options that others can see, and variables that they cannot.
const SECRETS_HELP: &str = "\
A bearer token is taken from the environment variable NUNCIO_KEY. What the webhook is to be shown is a secret, and
others can see the command line: NUNCIO_PUSH_TOKEN holds a token, NUNCIO_PUSH_CREDENTIALS credentials.";

#[derive(Debug, Subcommand)]
pub(crate) enum PushCommand {
    /// Have the updates of a task posted to a webhook; one with the same id is replaced.
    #[command(after_help = SECRETS_HELP)]
    Create {
        #[command(flatten)]
        target: Target,
        /// The task.
        task: String,
        #[command(flatten)]
        webhook: Webhook,
    },
    /// Show a webhook of a task.
    #[command(after_help = KEY_HELP)]
    Get {
        #[command(flatten)]
        target: Target,
        /// The task.
        task: String,
        /// The webhook.
        id: String,
    },
    /// List the webhooks of a task; all pages are read.
    #[command(after_help = KEY_HELP)]
    List {
        #[command(flatten)]
        target: Target,
        /// The task.
        task: String,
    },
    /// Remove a webhook; one that is gone already is no mistake.
    #[command(after_help = KEY_HELP)]
    Delete {
        #[command(flatten)]
        target: Target,
        /// The task.
        task: String,
        /// The webhook.
        id: String,
    },
}

/// A webhook, as it is typed.
#[derive(Debug, ClapArgs)]
pub(crate) struct Webhook {
    /// Where updates are posted to.
    #[arg(id = "webhook_url", long = "url", value_name = "URL")]
    pub(crate) url: Hidden,

    /// The name of the webhook; the agent makes one when absent.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: Option<String>,

    /// A secret that comes back with each update, so that the receiver knows it; better in NUNCIO_PUSH_TOKEN.
    #[arg(long)]
    pub(crate) token: Option<Hidden>,

    /// How the agent proves itself to the webhook: Bearer when absent, if there are credentials.
    #[arg(long, value_name = "SCHEME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) auth_scheme: Option<String>,

    /// The credentials of that scheme are in this file; from NUNCIO_PUSH_CREDENTIALS when absent.
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_credentials_file: Option<PathBuf>,
}
