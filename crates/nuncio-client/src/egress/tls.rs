//! TLS of outgoing connections: whom we trust, who we are, and what its errors mean.

use std::{
    error::Error as StdError,
    fmt, io,
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use nuncio_protocol::{Error, Result};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, Error as RustlsError, InconsistentKeys, InvalidMessage,
    RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::{CertifiedKey, SingleCertAndKey},
};

use super::{
    Egress, Names,
    guard::{Policy, Screen},
    resolve::{self, Lookup, Resolver, Screening},
};

/// The reason why a certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// There is none.
    #[error("no certificate in it; expected PEM with BEGIN CERTIFICATE")]
    NoCertificate,
    /// One cannot be read.
    #[error("certificate number {number} in it cannot be read: {why}")]
    BadCertificate {
        /// Its number, counted from 1.
        number: usize,
        /// The message of the parser.
        why: String,
    },
    /// There is none.
    #[error("no private key in it; expected PEM with BEGIN PRIVATE KEY, and the key not encrypted")]
    NoKey,
    /// The key cannot be used for TLS.
    #[error("the private key cannot be used: {0}")]
    BadKey(String),
    /// The two are not a pair.
    #[error("the key does not belong to the certificate; the certificate of the key has to be the first")]
    KeyMismatch,
}

/// Settings of an [`Egress`].
///
/// Trusted are the authorities that are compiled in, those of the system, and those that are added here.
///
/// A client certificate keeps the rule of all credentials: it is shown to the origin of an agent's card, to
/// origins that the caller allows, and to the token endpoint; other interfaces that a card names are
/// spoken to without it. It is shown only to servers that ask for one. It reveals who we are, but no
/// secret: nobody can use it without its key.
///
/// ```no_run
/// use nuncio_client::Egress;
///
/// # fn run(ca: &[u8], certificate: &[u8], key: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
/// let egress = Egress::builder().root_certificates(ca)?.client_identity(certificate, key)?.build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until it builds"]
pub struct EgressBuilder {
    roots: Vec<CertificateDer<'static>>,
    identity: Option<Arc<CertifiedKey>>,
    policy: Option<Policy>,
    screen: Option<Screen>,
    /// The resolver, if it is not the system's.
    lookup: Option<Lookup>,
}

impl EgressBuilder {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Trusts these certificate authorities, too: one or more certificates in PEM. May be repeated.
    ///
    /// # Errors
    /// There is none, or one cannot be read.
    pub fn root_certificates(mut self, pem: &[u8]) -> Result<Self, TlsError> {
        let certificates = certificates(pem)?;
        let mut probe = RootCertStore::empty();
        for (number, certificate) in (1..).zip(&certificates) {
            probe
                .add(certificate.clone())
                .map_err(|error| TlsError::BadCertificate { number, why: error.to_string() })?;
        }
        self.roots.extend(certificates);
        Ok(self)
    }

    /// Sets our identity for servers that ask (mutual TLS): our certificate and those that lead from it to an
    /// authority, and the key of the first. Both in PEM; they may be in one file.
    ///
    /// # Errors
    /// One of them is missing or cannot be read, or they are not a pair.
    pub fn client_identity(mut self, certificate_pem: &[u8], key_pem: &[u8]) -> Result<Self, TlsError> {
        let chain = certificates(certificate_pem)?;
        // What is wrong with a key is not quoted.
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| TlsError::NoKey)?;
        let pair = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
        let pair = pair.map_err(|error| match error {
            RustlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::KeyMismatch,
            RustlsError::InvalidCertificate(why) => {
                TlsError::BadCertificate { number: 1, why: RustlsError::from(why).to_string() }
            }
            other => TlsError::BadKey(other.to_string()),
        })?;
        self.identity = Some(Arc::new(pair));
        Ok(self)
    }

    /// For addresses that a caller gave, see [`Egress::guarded`].
    pub fn guarded(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// For agents that the operator named and others own: their names never lead to link-local addresses, nor to those
    /// where clouds hand out credentials, except for these. (A proxy of the environment resolves names by itself.)
    pub fn refuse_link_local(mut self, except: Vec<IpAddr>) -> Self {
        self.screen = Some(Screen { named: except });
        self
    }

    /// Names as a test has them.
    #[cfg(test)]
    pub(super) fn lookup(mut self, lookup: Lookup) -> Self {
        self.lookup = Some(lookup);
        self
    }

    /// The way out with these settings.
    ///
    /// # Errors
    /// `Internal` if the TLS library refuses our settings.
    pub fn build(mut self) -> Result<Egress> {
        let lookup = self.lookup.take().unwrap_or_else(resolve::system);
        let names = match (self.policy.take(), self.screen.take()) {
            (Some(policy), _) => Names::Guarded(Arc::new(Resolver::new(policy, lookup))),
            (None, Some(screen)) => Names::Screened(Arc::new(Screening::new(screen, lookup))),
            (None, None) => Names::Open,
        };
        let anonymous = Egress::with_tls(&self.config(None)?, &names, None)?;
        let Some(identity) = &self.identity else { return Ok(anonymous) };
        let anonymous = Some(Arc::new(anonymous));
        Egress::with_tls(&self.config(Some(identity))?, &names, anonymous)
    }

    fn config(&self, identity: Option<&Arc<CertifiedKey>>) -> Result<ClientConfig> {
        let mut roots = known_roots();
        if !self.roots.is_empty() {
            Arc::make_mut(&mut roots).add_parsable_certificates(self.roots.iter().cloned());
        }
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(Error::internal)?
            .with_root_certificates(roots);
        Ok(match identity {
            Some(pair) => {
                config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(pair))))
            }
            None => config.with_no_client_auth(),
        })
    }
}

impl fmt::Debug for EgressBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressBuilder")
            .field("roots", &self.roots.len())
            .field("identity", &self.identity.is_some())
            .field("policy", &self.policy)
            .finish()
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut certificates = Vec::new();
    for (number, certificate) in (1..).zip(CertificateDer::pem_slice_iter(pem)) {
        let bad = |error: rustls::pki_types::pem::Error| TlsError::BadCertificate {
            number,
            why: error.to_string(),
        };
        certificates.push(certificate.map_err(bad)?);
    }
    if certificates.is_empty() { Err(TlsError::NoCertificate) } else { Ok(certificates) }
}

/// The roots are read once: the system's store may be a few hundred files.
fn known_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let load = || {
        let mut roots = RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        // An image without a CA bundle has none of these, and that is fine.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    };
    Arc::clone(ROOTS.get_or_init(load))
}

/// An error of TLS about which there is more to say than the library does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// We do not know who signed the peer's certificate.
    UnknownIssuer,
    /// The peer shows the certificate of an authority as its own.
    AuthorityAsPeer,
    /// The peer does not speak TLS at all.
    NotTls,
    /// The peer asks for a certificate, and we have shown none.
    CertificateRequired,
    /// The peer does not accept the certificate that we have shown.
    CertificateRefused,
}

impl Trouble {
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::UnknownIssuer => {
                "its certificate is signed by an authority that is not trusted here; \
                 if it is yours, add it to the trusted ones (--ca FILE on the command line)"
            }
            Self::AuthorityAsPeer => {
                "its certificate is marked as that of an authority; make one with basicConstraints CA:FALSE"
            }
            Self::NotTls => "it does not seem to speak TLS; try http",
            Self::CertificateRequired => "it asks for a client certificate, and none was shown",
            Self::CertificateRefused => "it does not accept the client certificate",
        }
    }

    /// True if the peer has refused us: then it has not seen the call, and asking again is of no use.
    pub(super) fn is_refusal(self) -> bool {
        match self {
            Self::CertificateRequired | Self::CertificateRefused => true,
            Self::UnknownIssuer | Self::AuthorityAsPeer | Self::NotTls => false,
        }
    }
}

/// True if a cause of an error is one of TLS.
pub(super) fn is_tls(cause: &(dyn StdError + 'static)) -> bool {
    match cause.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref().is_some_and(|inner| is_tls(inner)),
        None => cause.is::<RustlsError>(),
    }
}

/// The trouble with TLS that a cause of an error names.
pub(super) fn trouble(cause: &(dyn StdError + 'static)) -> Option<Trouble> {
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        // An I/O error skips what it wraps in its own chain of causes.
        return trouble(error.get_ref()?);
    }
    match cause.downcast_ref::<RustlsError>()? {
        RustlsError::InvalidCertificate(CertificateError::UnknownIssuer) => Some(Trouble::UnknownIssuer),
        // The verifier's own error is not among ours; it is known by its name.
        RustlsError::InvalidCertificate(CertificateError::Other(other))
            if other.0.to_string() == "CaUsedAsEndEntity" =>
        {
            Some(Trouble::AuthorityAsPeer)
        }
        RustlsError::InvalidMessage(InvalidMessage::InvalidContentType) => Some(Trouble::NotTls),
        RustlsError::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => Some(Trouble::CertificateRequired),
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA => Some(Trouble::CertificateRefused),
            _ => None,
        },
        _ => None,
    }
}
