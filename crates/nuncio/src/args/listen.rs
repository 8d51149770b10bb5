//! The options of `nuncio listen`.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args as ClapArgs;
use url::Url;

use super::{Hidden, address};

/// The heading of the options that say what a notification must prove.
const PROOF: &str = "Proof";

#[derive(Debug, ClapArgs)]
pub(crate) struct Listen {
    /// Where notifications come in, at any path; port 0 takes a free one. Beyond this machine a proof has to be
    /// asked for.
    #[arg(long, default_value = "127.0.0.1:2604", value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// Ask for this token of the push configuration. Others can see the command line: it is better put into
    /// the variable. Where nothing else is asked for, one is made up.
    #[arg(long, value_name = "TOKEN", env = "NUNCIO_PUSH_TOKEN", hide_env_values = true, help_heading = PROOF)]
    pub(crate) token: Option<Hidden>,

    /// Ask for a signature by this shared secret, whsec_ and base64; may be repeated: any will do.
    #[arg(long = "secret", value_name = "SECRET", env = "NUNCIO_PUSH_SECRET", hide_env_values = true)]
    #[arg(help_heading = PROOF)]
    pub(crate) secrets: Vec<Hidden>,

    /// Ask for a signature by a key that is published here, such as
    /// http://127.0.0.1:2602/.well-known/jwks.json.
    #[arg(long, value_name = "URL", help_heading = PROOF)]
    pub(crate) jwks: Option<Url>,

    /// Ask for a signature by a key of this JWKS, JWK or PEM file; may be repeated: any will do.
    #[arg(long = "key", value_name = "FILE", help_heading = PROOF)]
    pub(crate) keys: Vec<PathBuf>,

    /// Refuse signatures by keys that are made for another address than this; may be repeated.
    #[arg(long = "audience", value_name = "URL", help_heading = PROOF)]
    pub(crate) audiences: Vec<Url>,

    /// Refuse notifications of other tasks than this; may be repeated.
    #[arg(long = "task", value_name = "ID", help_heading = PROOF)]
    pub(crate) tasks: Vec<String>,

    /// End after the first notification.
    #[arg(long, conflicts_with = "count")]
    pub(crate) once: bool,

    /// End after so many notifications.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Answer with this status instead of 204, to see what a sender makes of it. What is not answered with
    /// 2xx is shown again when it comes again.
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u16).range(200..=599))]
    pub(crate) answer: Option<u16>,

    /// Answer with Retry-After as well.
    #[arg(long, value_name = "SECONDS", requires = "answer")]
    pub(crate) retry_after: Option<u32>,
}
