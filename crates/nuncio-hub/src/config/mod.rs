//! What the hub is to do, validated. Whoever reads flags or files makes this.

mod data;
mod network;
mod push;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use url::{Host, Url};

pub use self::{
    data::{Data, DatabaseUrl, Durability, KEEP_FINISHED},
    network::Network,
    push::{Dialect, Push},
};
use crate::agents::{self, Profile};

/// A validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where callers reach us; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where whoever administers us reaches us; `None`: nowhere.
    pub admin: Option<Admin>,
    /// Speak TLS with these; `None`: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// How callers see us, if not at the address we listen on.
    pub public_url: Option<Url>,
    /// Names to answer to on loopback, besides our own and that of the public address.
    pub allowed_hosts: Vec<Host>,
    /// Who may say how callers see us. Whoever else sends such headers is not believed.
    pub trusted_proxies: Vec<Network>,
    /// The keys that cards are signed with, all of them. None: cards are not signed. Behind proxies they
    /// need a public address: what is signed is not for proxies to say.
    pub card_keys: Vec<CardKey>,
    /// Serve cards also where old clients look for them.
    pub legacy_card: bool,
    /// Where tasks are kept.
    pub data: Data,
    /// How long finished tasks are kept; `None`: for ever, or until memory is full.
    pub keep: Option<Duration>,
    /// The key from which the hub makes its others; `None`: beside the data. A database needs one.
    pub key_file: Option<PathBuf>,
    /// Webhooks; `None`: no agent has any.
    pub push: Option<Push>,
    /// Serves the demo agents.
    pub demo: bool,
    /// How the demo's conformance agent behaves for a test kit; `None`: for people.
    pub profile: Option<Profile>,
    /// This agent answers at the root, too.
    pub default_agent: Option<String>,
    /// How long running tasks may go on after the signal to stop.
    pub drain_grace: Duration,
    /// What connections may do.
    pub connections: Connections,
}

/// Where whoever administers the hub reaches it.
#[derive(Clone, Debug)]
pub struct Admin {
    /// On this machine; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the token is written to; `None`: where the commands of this user look for it.
    pub token_file: Option<PathBuf>,
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, and those between it and its root.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// A private key that signs cards.
#[derive(Clone, Debug)]
pub struct CardKey {
    /// A PKCS#8 PEM.
    pub file: PathBuf,
    /// How verifiers find the public key; `None`: by its thumbprint (RFC 7638).
    pub kid: Option<String>,
}

/// What connections may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connections {
    /// The most at a time.
    pub most: usize,
    /// The most requests at a time on one connection of HTTP/2.
    pub streams: u32,
    /// How long a handshake of TLS may take, and how long the head of a request, from its first byte.
    pub head_timeout: Duration,
    /// How long one may stay open with nothing to answer.
    pub idle_timeout: Duration,
    /// How long a caller may take nothing of what we have for it. With nothing to say we wait for ever.
    pub write_timeout: Duration,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            // More than the usual limit of open files allows: the system's limit then decides.
            most: 100_000,
            // A proxy puts the streams of many callers on one connection. Each may hold a whole body while it
            // comes in: the window that they share is given back as bodies are read, and bounds no memory.
            streams: 250,
            head_timeout: Duration::from_secs(30),
            // Longer than proxies and clients usually keep one (60 and 90 seconds): whoever may send next
            // should be the one to close, or requests meet a connection that has just gone.
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(60),
        }
    }
}

impl Config {
    /// A hub at this address with no agent yet, and everything else as usual.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            admin: None,
            tls: None,
            public_url: None,
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            card_keys: Vec::new(),
            legacy_card: true,
            data: Data::Memory { keep_finished: KEEP_FINISHED },
            keep: None,
            key_file: None,
            push: None,
            demo: false,
            profile: None,
            default_agent: None,
            drain_grace: Duration::from_secs(30),
            connections: Connections::default(),
        }
    }

    /// Checks what can be checked without touching the world.
    ///
    /// # Errors
    /// Says what is wrong and what to do.
    pub fn validate(&self, allow_anonymous: bool) -> Result<()> {
        if !self.listen.ip().is_loopback() && !allow_anonymous {
            bail!(
                "listening on {} would let anybody call the agents, because no credentials are configured; \
                 listen on 127.0.0.1, or say --allow-anonymous if that is what you want",
                self.listen
            );
        }
        if self.listen.ip().is_unspecified() && self.public_url.is_none() {
            bail!(
                "cards must say where callers reach the agents, and {} is no address to call; \
                 add --public-url, such as {}://HOST:{}",
                self.listen.ip(),
                self.scheme(),
                self.listen.port()
            );
        }
        if let Some(admin) = &self.admin
            && !admin.listen.ip().is_loopback()
        {
            bail!(
                "--admin {}: administration is for this machine only; listen on 127.0.0.1, and from elsewhere \
                 come by a tunnel, such as ssh -L 2603:127.0.0.1:2603",
                admin.listen
            );
        }
        if !self.demo {
            bail!("there is no agent to serve; say --demo for the demo agents");
        }
        if let Some(name) = &self.default_agent
            && !agents::demo_names().contains(&name.as_str())
        {
            bail!(
                "--default {name}: there is no agent of this name; there are {}",
                agents::demo_names().join(", ")
            );
        }
        if let Some(url) = &self.public_url
            && (!matches!(url.scheme(), "http" | "https")
                || !url.username().is_empty()
                || url.password().is_some()
                || url.query().is_some()
                || url.fragment().is_some())
        {
            bail!(
                "--public-url {url}: expected an address such as https://agents.example.com, \
                 without credentials and without a query"
            );
        }
        if !self.card_keys.is_empty() && !self.trusted_proxies.is_empty() && self.public_url.is_none() {
            bail!(
                "--card-key with --trust-proxy would sign whatever address a caller gets a proxy to hand on; \
                 add --public-url with the address that callers use, such as https://agents.example.com"
            );
        }
        if self.connections.most == 0 {
            bail!("--max-connections 0: nobody could connect; expected 1 or more");
        }
        if self.connections.streams == 0 {
            bail!("--max-streams 0: nobody could ask anything by HTTP/2; expected 1 or more");
        }
        if self.connections.head_timeout.is_zero() || self.connections.idle_timeout.is_zero() {
            bail!("--idle-seconds 0: nobody could say anything; expected 1 or more");
        }
        Ok(())
    }

    /// How an address of ours begins, unless somebody stands before us.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config { demo: true, ..Config::new(([127, 0, 0, 1], 2602).into()) }
    }

    /// What is changed, and what is said about it; nothing if all is well.
    fn check(change: impl FnOnce(&mut Config), words: &[&str]) {
        let mut config = config();
        change(&mut config);
        let error = config.validate(false).err().map(|error| error.to_string());
        assert_eq!(error.is_none(), words.is_empty(), "{words:?}: {error:?}");
        let error = error.unwrap_or_default();
        for word in words {
            assert!(error.contains(word), "expected {word:?} in {error:?}");
        }
    }

    #[test]
    fn as_usual() {
        check(|_| {}, &[]);
    }

    #[test]
    fn administration_is_for_this_machine() {
        let at = |ip: [u8; 4]| Some(Admin { listen: (ip, 2603).into(), token_file: None });
        check(|config| config.admin = at([127, 0, 0, 1]), &[]);
        check(|config| config.admin = at([0, 0, 0, 0]), &["--admin 0.0.0.0:2603", "127.0.0.1", "ssh -L"]);
        check(|config| config.admin = at([192, 0, 2, 1]), &["--admin 192.0.2.1:2603"]);
    }

    /// Whoever gets a proxy to hand on a name would get it signed.
    #[test]
    fn what_is_signed_is_not_for_proxies_to_say() {
        let signs = |config: &mut Config| {
            config.card_keys = vec![CardKey { file: "card.pem".into(), kid: None }];
        };
        let trusts = |config: &mut Config| config.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
        check(signs, &[]);
        check(trusts, &[]);
        let both = |config: &mut Config| {
            signs(config);
            trusts(config);
        };
        check(both, &["--card-key", "--trust-proxy", "add --public-url"]);
        let fixed = |config: &mut Config| {
            both(config);
            config.public_url = Some("https://agents.example.com".parse().unwrap());
        };
        check(fixed, &[]);
    }

    #[test]
    fn bounds_that_would_let_nobody_in() {
        check(|config| config.connections.most = 0, &["--max-connections 0", "1 or more"]);
        check(|config| config.connections.streams = 0, &["--max-streams 0", "1 or more"]);
        check(|config| config.connections.idle_timeout = Duration::ZERO, &["--idle-seconds 0", "1 or more"]);
        check(|config| (config.connections.most, config.connections.streams) = (1, 1), &[]);
    }
}
