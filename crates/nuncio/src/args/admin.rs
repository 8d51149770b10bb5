//! Options to reach the admin API of a hub.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use url::Url;

/// The heading of the options for the connection to a hub.
const HUB: &str = "Hub";

/// The default URL of the admin API.
pub(crate) const DEFAULT_ADMIN: &str = "http://127.0.0.1:2603";

/// The hub, and its admin token.
#[derive(Debug, ClapArgs)]
pub(crate) struct Admin {
    /// The URL of the hub's admin API.
    #[arg(long, value_name = "URL", default_value = DEFAULT_ADMIN, env = "NUNCIO_ADMIN")]
    #[arg(help_heading = HUB, value_parser = admin_url)]
    pub(crate) admin: Url,

    /// The file with the admin token [default: the file that a hub on this machine and port writes]. The
    /// environment variable NUNCIO_ADMIN_TOKEN can hold the token itself.
    #[arg(long, value_name = "FILE", env = "NUNCIO_ADMIN_TOKEN_FILE", help_heading = HUB)]
    pub(crate) admin_token_file: Option<PathBuf>,
}

fn admin_url(text: &str) -> Result<Url, String> {
    let plain = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    };
    let expected = "expected a URL such as http://127.0.0.1:2603, without credentials and without a query";
    Url::parse(text).ok().filter(plain).ok_or_else(|| expected.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_hub_is_administered() {
        for (text, ok) in [
            ("http://127.0.0.1:2603", true),
            ("https://hub.example/behind", true),
            ("127.0.0.1:2603", false),
            ("http://me:pw@127.0.0.1", false),
            ("http://127.0.0.1/?a", false),
        ] {
            assert_eq!(admin_url(text).is_ok(), ok, "{text}");
        }
    }
}
