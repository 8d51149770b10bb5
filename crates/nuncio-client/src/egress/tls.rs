//! TLS of outgoing connections: trusted roots, client certificate, and explanations of errors.

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
    Egress, HostResolver,
    guard::{Policy, Screen},
    resolve::{self, Lookup, Resolver, Screening},
};

/// The reason why a certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// There is no certificate.
    #[error("no certificate in it; expected PEM with BEGIN CERTIFICATE")]
    NoCertificate,
    /// A certificate cannot be read.
    #[error("certificate number {number} in it cannot be read: {why}")]
    BadCertificate {
        /// Its number, counted from 1.
        number: usize,
        /// The message of the parser.
        why: String,
    },
    /// There is no private key.
    #[error("no private key in it; expected PEM with BEGIN PRIVATE KEY, and the key not encrypted")]
    NoKey,
    /// The key cannot be used for TLS.
    #[error("the private key cannot be used: {0}")]
    BadKey(String),
    /// The key does not belong to the certificate.
    #[error("the key does not belong to the certificate; the certificate of the key has to be the first")]
    KeyMismatch,
}

/// Settings of an [`Egress`].
///
/// The trusted roots are those compiled in, those of the system, and those added here.
///
/// A client certificate follows the rule of all credentials: it is shown to the origin of an agent's card,
/// to origins that the caller allows, and to the token endpoint; other interfaces of a card are called
/// without it. It is shown only to servers that request one. It reveals our identity, but no secret: it
/// cannot be used without its key.
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

    /// Also trusts these certificate authorities: one or more certificates in PEM. May be repeated.
    ///
    /// # Errors
    /// There is no certificate, or one cannot be read.
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

    /// Sets the client certificate for servers that request one (mutual TLS): the chain, beginning with our
    /// certificate, and its key. Both in PEM; they may be in one file.
    ///
    /// # Errors
    /// One of them is missing or cannot be read, or the key does not belong to the certificate.
    pub fn client_identity(mut self, certificate_pem: &[u8], key_pem: &[u8]) -> Result<Self, TlsError> {
        let chain = certificates(certificate_pem)?;
        // Errors never quote the key.
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

    /// Makes it an egress for URLs of callers, see [`Egress::guarded`].
    pub fn guarded(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Refuses host names that resolve to link-local or cloud metadata addresses, except for these
    /// addresses. For agents that the operator configured and others run. (A proxy of the environment
    /// resolves names by itself.)
    pub fn refuse_link_local(mut self, except: Vec<IpAddr>) -> Self {
        self.screen = Some(Screen { named: except });
        self
    }

    /// Sets the resolver of a test.
    #[cfg(test)]
    pub(super) fn lookup(mut self, lookup: Lookup) -> Self {
        self.lookup = Some(lookup);
        self
    }

    /// Builds the egress.
    ///
    /// # Errors
    /// `Internal` if the TLS library refuses our settings.
    pub fn build(mut self) -> Result<Egress> {
        let lookup = self.lookup.take().unwrap_or_else(resolve::system);
        let names = match (self.policy.take(), self.screen.take()) {
            (Some(policy), _) => HostResolver::Guarded(Arc::new(Resolver::new(policy, lookup))),
            (None, Some(screen)) => HostResolver::Screened(Arc::new(Screening::new(screen, lookup))),
            (None, None) => HostResolver::Open,
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

/// The compiled-in roots and those of the system, loaded once: the system's may be a few hundred files.
fn known_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let load = || {
        let mut roots = RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        // A container image without a CA bundle has none.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    };
    Arc::clone(ROOTS.get_or_init(load))
}

/// A TLS error with advice for the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// The peer's certificate is not trusted.
    Untrusted(Distrust),
    /// The peer does not speak TLS.
    NotTls,
    /// The peer requires a client certificate, and none was sent.
    CertificateRequired,
    /// The peer refuses our client certificate.
    CertificateRefused,
}

/// The reason why the peer's certificate is not trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Distrust {
    UnknownIssuer,
    Expired,
    NotYetValid,
    /// It is for other host names.
    WrongName,
    Revoked,
    /// It is not for servers.
    WrongPurpose,
    /// The peer uses a CA certificate as its own.
    AuthorityAsPeer,
    /// A trusted issuer has the name of its issuer, and another key.
    BadSignature,
    /// It cannot be read, or it has properties that are not supported.
    Unusable,
}

impl Trouble {
    /// The reason and the remedy; `cause` is the message of the TLS library.
    pub(super) fn explain(self, cause: &str) -> String {
        match self {
            Self::Untrusted(distrust) => format!("its certificate is not trusted: {}", distrust.reason()),
            Self::NotTls => format!("{cause}; it does not seem to speak TLS; try http"),
            Self::CertificateRequired => {
                format!("{cause}; it asks for a client certificate, and none was shown")
            }
            Self::CertificateRefused => format!("{cause}; it does not accept the client certificate"),
        }
    }

    /// True if the peer has refused us: it has not received the call, and a retry would not help.
    pub(super) fn is_refusal(self) -> bool {
        match self {
            Self::CertificateRequired | Self::CertificateRefused => true,
            Self::Untrusted(_) | Self::NotTls => false,
        }
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason(), self.remedy())
    }
}

impl Distrust {
    fn reason(self) -> &'static str {
        match self {
            Self::UnknownIssuer => "its issuer is unknown",
            Self::Expired => "it has expired",
            Self::NotYetValid => "it is not valid yet",
            Self::WrongName => "it is for another host name",
            Self::Revoked => "it is revoked",
            Self::WrongPurpose => "it is not for servers",
            Self::AuthorityAsPeer => "it is that of a certificate authority",
            Self::BadSignature => "no trusted issuer has signed it",
            Self::Unusable => "it cannot be read, or has unsupported properties",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::UnknownIssuer | Self::BadSignature => {
                "if you trust its issuer, or it is self-signed, name its file with --ca (auth.ca in nuncio.toml)"
            }
            Self::NotYetValid => "compare the clocks of both machines",
            Self::WrongName => "call the host by a name of the certificate",
            Self::WrongPurpose => "make one with extendedKeyUsage serverAuth",
            Self::AuthorityAsPeer => "make one with basicConstraints CA:FALSE",
            Self::Expired | Self::Revoked | Self::Unusable => "replace it",
        }
    }

    fn of(error: &CertificateError) -> Self {
        match error {
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::WrongName
            }
            CertificateError::Revoked => Self::Revoked,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Self::WrongPurpose
            }
            // The key of the trusted issuer is of another algorithm: it cannot have made the signature.
            CertificateError::BadSignature
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => Self::BadSignature,
            // The verifier's error is not a public type; it is recognised by its text.
            CertificateError::Other(other) if other.0.to_string() == "CaUsedAsEndEntity" => {
                Self::AuthorityAsPeer
            }
            _ => Self::Unusable,
        }
    }
}

/// True if the cause is a TLS error.
pub(super) fn is_tls(cause: &(dyn StdError + 'static)) -> bool {
    match cause.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref().is_some_and(|inner| is_tls(inner)),
        None => cause.is::<RustlsError>(),
    }
}

/// The known TLS problem of a cause.
pub(super) fn trouble(cause: &(dyn StdError + 'static)) -> Option<Trouble> {
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        // An I/O error leaves out the error it wraps from its own chain.
        return trouble(error.get_ref()?);
    }
    match cause.downcast_ref::<RustlsError>()? {
        RustlsError::InvalidCertificate(error) => Some(Trouble::Untrusted(Distrust::of(error))),
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
