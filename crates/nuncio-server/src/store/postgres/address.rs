//! The address and TLS settings of the database, from its URL.
//!
//! | `sslmode` | TLS | accepted certificate |
//! |---|---|---|
//! | `disable` | never | |
//! | `prefer` (default) | if the server offers it | any: stops eavesdroppers, not impostors |
//! | `require` | always | any, or one issued by `sslrootcert` if that is set |
//! | `verify-full` | always | issued by `sslrootcert` or the system's roots, for this host name |
//!
//! `signals=off` stops LISTEN and NOTIFY, for a proxy that drops notifications. `commits=4` keeps four commits
//! under way at a time, for a database that is far away.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::OsStrExt as _,
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use tokio_postgres::config::{Config, Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::MAX_COMMITS;
use crate::store::OpenError;

/// The timeout for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The settings of a connection.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    /// The address without the password, for messages.
    pub(super) place: String,
    /// False if the address switches signals off.
    pub(super) signals: bool,
    /// The number of commits under way at a time, if the address sets it.
    pub(super) commits: Option<usize>,
    /// `sslmode` and `sslrootcert`, for PostgreSQL's client programs.
    ssl: (String, Option<String>),
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.place).finish()
    }
}

impl Address {
    /// The same settings as environment variables of PostgreSQL's client programs.
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let config = &self.config;
        let host = |host: &Host| match host {
            Host::Tcp(host) => host.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        let joined = |values: Vec<String>| (!values.is_empty()).then(|| values.join(",").into());
        let roots = match &self.ssl {
            (mode, None) if mode == "verify-full" => Some("system".to_owned()),
            (_, roots) => roots.clone(),
        };
        let values: [(&'static str, Option<OsString>); 7] = [
            ("PGHOST", joined(config.get_hosts().iter().map(host).collect())),
            ("PGPORT", joined(config.get_ports().iter().map(ToString::to_string).collect())),
            ("PGUSER", config.get_user().map(Into::into)),
            ("PGDATABASE", config.get_dbname().map(Into::into)),
            ("PGPASSWORD", config.get_password().map(|password| OsStr::from_bytes(password).to_owned())),
            ("PGSSLMODE", Some(self.ssl.0.clone().into())),
            ("PGSSLROOTCERT", roots.map(Into::into)),
        ];
        values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        let invalid = |why: &str| OpenError::Invalid(format!("the address of the database {why}"));
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| invalid("must begin with postgres://"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        // Otherwise a part of the password would be taken for the host, and appear in messages.
        let authority = path.split('/').next().unwrap_or_default();
        if path.matches('@').count() > 1 || path.contains('@') != authority.contains('@') {
            return Err(invalid("has an @ or / in its user or password; write %40 or %2F"));
        }
        let (mut mode, mut roots, mut signals, mut commits, mut others) =
            ("prefer", None, "on", None, Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslmode", value)) => mode = value,
                Some(("signals", value)) => signals = value,
                Some(("commits", value)) => commits = Some(value),
                Some(("sslrootcert", value)) => roots = Some(value.replace("%2F", "/")),
                _ => others.push(option),
            }
        }
        let signals = match signals {
            "on" => true,
            "off" => false,
            _ => return Err(invalid("has unknown signals; use on or off")),
        };
        let commits = match commits.map(|value| value.parse().ok().filter(|n| (1..=MAX_COMMITS).contains(n)))
        {
            Some(None) => {
                return Err(invalid(&format!("has an unknown number of commits; use 1 to {MAX_COMMITS}")));
            }
            Some(commits) => commits,
            None => None,
        };
        let ssl = (mode.to_owned(), roots.clone());
        let plain = format!("postgres://{path}?{}", others.join("&"));
        let mut config: Config = plain.parse().map_err(|error| {
            let why = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
            invalid(&format!("is invalid: {why}"))
        })?;
        let (ssl_mode, trust) = match mode {
            "disable" => (SslMode::Disable, Trust::Anybody),
            "prefer" => (SslMode::Prefer, Trust::Anybody),
            "require" => (SslMode::Require, roots.map_or(Trust::Anybody, Trust::File)),
            "verify-full" => (SslMode::Require, roots.map_or(Trust::System, Trust::File)),
            _ => return Err(invalid("has an unknown sslmode; use disable, prefer, require or verify-full")),
        };
        config
            .ssl_mode(ssl_mode)
            .connect_timeout(CONNECT_TIMEOUT)
            // Detects a silently dropped connection within seconds.
            .tcp_user_timeout(Duration::from_secs(5))
            .keepalives_idle(Duration::from_secs(3))
            .keepalives_interval(Duration::from_secs(1))
            .keepalives_retries(3)
            // Of several hosts, connects to the current primary.
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_application_name().is_none() {
            config.application_name("nuncio");
        }
        let tls = MakeRustlsConnect::new(trust.into_config()?);
        Ok(Self { place: place(&config), config, tls, signals, commits, ssl })
    }
}

/// The accepted certificates.
enum Trust {
    Anybody,
    System,
    File(String),
}

impl Trust {
    fn into_config(self) -> Result<ClientConfig, OpenError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let invalid = |why: &dyn fmt::Display| OpenError::Invalid(format!("TLS to the database: {why}"));
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| invalid(&error))?;
        let mut roots = RootCertStore::empty();
        match self {
            Self::Anybody => {
                let verifier = Arc::new(AnyCertificate(provider));
                return Ok(builder
                    .dangerous()
                    .with_custom_certificate_verifier(verifier)
                    .with_no_client_auth());
            }
            Self::System => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Self::File(path) => {
                let certificates = CertificateDer::pem_file_iter(&path).and_then(Iterator::collect);
                let certificates: Vec<CertificateDer<'static>> =
                    certificates.map_err(|error| invalid(&format_args!("sslrootcert {path}: {error}")))?;
                roots.add_parsable_certificates(certificates);
            }
        }
        if roots.is_empty() {
            return Err(invalid(&"there are no root certificates; name a file with sslrootcert"));
        }
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

/// The user, host and database; never the password.
fn place(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => String::new(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let user = config.get_user().map_or_else(String::new, |user| format!("{user}@"));
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{user}{host}:{port}/{database}")
}

/// Accepts every certificate, as for `sslmode=require` without roots; signatures are still verified.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn a_url_says_where_and_never_the_password() {
        for (url, place) in [
            ("postgres://ann:s3cret@db.example:6543/tasks", "postgres://ann@db.example:6543/tasks"),
            ("postgresql://ann:s3%40cret@db/tasks?sslmode=require", "postgres://ann@db:5432/tasks"),
            ("postgres://db?sslmode=disable&application_name=x", "postgres://db:5432/"),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.place, place);
            assert!(!format!("{address:?}{:?}", address.config).contains("s3"), "{address:?}");
        }
    }

    #[test]
    fn the_number_of_commits_is_set_by_the_address() {
        for (url, commits) in
            [("postgres://db/tasks", None), ("postgres://db/tasks?commits=8&sslmode=disable", Some(8))]
        {
            assert_eq!(Address::parse(url).unwrap().commits, commits, "{url}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_its_password() {
        for (url, why) in [
            ("mysql://ann:s3cret@db", "begin with postgres://"),
            ("postgres://ann:s3@cret@db/tasks", "%40"),
            ("postgres://ann:s3/cret@db/tasks", "%2F"),
            ("postgres://ann:s3cret@db:port/tasks", "port"),
            ("postgres://ann:s3cret@db/tasks?colour=red", "colour"),
            ("postgres://ann:s3cret@db/tasks?sslmode=maybe", "sslmode"),
            ("postgres://ann:s3cret@db/tasks?commits=0", "use 1 to 16"),
            ("postgres://ann:s3cret@db/tasks?commits=17", "use 1 to 16"),
            ("postgres://ann:s3cret@db/tasks?commits=many", "use 1 to 16"),
            ("postgres://ann:s3cret@db/tasks?sslmode=verify-full&sslrootcert=%2Fnone", "sslrootcert /none"),
        ] {
            let error = Address::parse(url).unwrap_err();
            assert!(error.to_string().contains(why), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("s3"), "{error}");
        }
    }
}
