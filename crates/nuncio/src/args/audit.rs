//! The options of `nuncio audit`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, ValueEnum, builder::NonEmptyStringValueParser};
use url::Url;

use super::{Connection, address, seconds};

/// The heading of the options for the depth of an audit.
const DEPTH: &str = "Depth";
/// The heading of the options for reports.
const REPORTS: &str = "Reports";
/// The help on depths and credentials.
const HELP: &str = "\
By default the agent gets no message: the card is read, and requests are sent that read or must be refused.
The bearer token is read from the environment variable NUNCIO_KEY.

Exit codes: 0 nothing failed, 1 a check failed (see --fail-on), 3 the agent cannot be reached or has no card.";

#[derive(Debug, ClapArgs)]
#[command(after_help = HELP)]
pub(crate) struct Audit {
    /// Address of the agent or of its card.
    #[arg(value_name = "URL")]
    pub(crate) url: String,

    /// Send messages with this text, at most three over each interface; their tasks are canceled.
    #[arg(long, value_name = "TEXT", help_heading = DEPTH, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) send: Option<String>,

    /// Receive webhooks at this address of this machine [default: 127.0.0.1 and a free port]; sends one more message
    /// over each interface.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:0", help_heading = DEPTH)]
    #[arg(requires = "send", value_parser = address)]
    pub(crate) push: Option<SocketAddr>,

    /// Address of the webhook receiver as the agent reaches it, such as that of a tunnel.
    #[arg(long, value_name = "URL", requires = "push", help_heading = DEPTH)]
    pub(crate) push_url: Option<Url>,

    /// Check the isolation of callers with a second bearer token, from this environment variable.
    #[arg(long = "as", value_name = "VARIABLE", requires = "send", help_heading = DEPTH)]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) second: Option<String>,

    /// Run only these checks or areas, separated by commas, such as card,list.order.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// Leave out these checks or areas, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) skip: Vec<String>,

    /// Print the plan, and call nothing but the card.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Seconds for the whole audit [default: 300].
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    pub(crate) deadline: Option<Duration>,

    /// Show the changes since an earlier JSON report.
    #[arg(long, value_name = "FILE", help_heading = REPORTS)]
    pub(crate) baseline: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) reports: AuditReports,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The options of reports.
#[derive(Debug, ClapArgs)]
pub(crate) struct AuditReports {
    /// Also write a report to this file, by its extension: md, html, json, xml (JUnit) or sarif; may be repeated.
    #[arg(long = "report", value_name = "FILE", help_heading = REPORTS)]
    pub(crate) files: Vec<PathBuf>,

    /// The demands whose breach makes the audit fail.
    #[arg(long, value_enum, default_value_t, help_heading = REPORTS)]
    pub(crate) fail_on: FailOn,
}

/// The demands whose breach makes an audit fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Requirements.
    #[default]
    Must,
    /// Recommendations, too.
    Should,
}
