//! The arguments of `nuncio listen`.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args as ClapArgs;
use url::Url;

use super::{Hidden, address};

/// The heading of the options that authenticate notifications.
const PROOF: &str = "Authentication of notifications";

#[derive(Debug, ClapArgs)]
pub(crate) struct Listen {
    /// The address to listen on; port 0 picks a free one. Beyond this machine, notifications must be authenticated.
    #[arg(long, default_value = "127.0.0.1:2604", value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// Require this token of the push configuration. Others can see the command line: prefer the environment
    /// variable. Without any of these options a random token is generated.
    #[arg(long, value_name = "TOKEN", env = "NUNCIO_PUSH_TOKEN", hide_env_values = true, help_heading = PROOF)]
    pub(crate) token: Option<Hidden>,

    /// Require a signature by this shared secret (whsec_ and base64); may be repeated: any of them suffices.
    #[arg(long = "secret", value_name = "SECRET", env = "NUNCIO_PUSH_SECRET", hide_env_values = true)]
    #[arg(help_heading = PROOF)]
    pub(crate) secrets: Vec<Hidden>,

    /// Require a signature by a key of the JWKS at this URL, such as
    /// http://127.0.0.1:2602/.well-known/jwks.json.
    #[arg(long, value_name = "URL", help_heading = PROOF)]
    pub(crate) jwks: Option<Url>,

    /// Require a signature by a key of this JWKS, JWK or PEM file; may be repeated: any of them suffices.
    #[arg(long = "key", value_name = "FILE", help_heading = PROOF)]
    pub(crate) keys: Vec<PathBuf>,

    /// Accept only signatures made for this audience; may be repeated.
    #[arg(long = "audience", value_name = "URL", help_heading = PROOF)]
    pub(crate) audiences: Vec<Url>,

    /// Accept only notifications of this task; may be repeated.
    #[arg(long = "task", value_name = "ID", help_heading = PROOF)]
    pub(crate) tasks: Vec<String>,

    /// Exit after the first notification.
    #[arg(long, conflicts_with = "count")]
    pub(crate) once: bool,

    /// Exit after this many notifications.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// The HTTP status to answer instead of 204, to test how a sender reacts. Unless it is 2xx, a repeated
    /// notification is printed again.
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u16).range(200..=599))]
    pub(crate) answer: Option<u16>,

    /// The Retry-After header to answer, in seconds.
    #[arg(long, value_name = "SECONDS", requires = "answer")]
    pub(crate) retry_after: Option<u32>,
}
