//! Keys in PEM, in the form that the JWT library expects: the inner key of RSA and of public keys, the
//! whole PKCS#8 of other private keys.

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use pkcs8::{ObjectIdentifier, PrivateKeyInfo, spki::SubjectPublicKeyInfoRef};

/// The algorithm of a key, by the identifier in its file (RFC 8410, 3; RFC 5480, 2.1.1; RFC 3279, 2.3.1).
const ALGORITHMS: [(ObjectIdentifier, Algorithm); 3] = [
    (ObjectIdentifier::new_unwrap("1.3.101.112"), Algorithm::EdDSA),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.2.1"), Algorithm::ES256),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1"), Algorithm::RS256),
];

/// Reads a private key: PKCS#8, or PKCS#1 of RSA.
pub(super) fn private_key(pem: &str) -> Option<(Algorithm, EncodingKey)> {
    let pem = pem::parse(pem).ok()?;
    let der = pem.contents();
    if pem.tag() == "RSA PRIVATE KEY" {
        return Some((Algorithm::RS256, EncodingKey::from_rsa_der(der)));
    }
    let info = PrivateKeyInfo::try_from(der).ok().filter(|_| pem.tag() == "PRIVATE KEY")?;
    let algorithm = algorithm(info.algorithm.oid)?;
    let key = match algorithm {
        Algorithm::EdDSA => EncodingKey::from_ed_der(der),
        Algorithm::ES256 => EncodingKey::from_ec_der(der),
        _ => EncodingKey::from_rsa_der(info.private_key),
    };
    Some((algorithm, key))
}

/// Reads a public key: SubjectPublicKeyInfo, or PKCS#1 of RSA.
pub(super) fn public_key(pem: &str) -> Option<(Algorithm, DecodingKey)> {
    let pem = pem::parse(pem).ok()?;
    let der = pem.contents();
    if pem.tag() == "RSA PUBLIC KEY" {
        return Some((Algorithm::RS256, DecodingKey::from_rsa_der(der)));
    }
    let info = SubjectPublicKeyInfoRef::try_from(der).ok().filter(|_| pem.tag() == "PUBLIC KEY")?;
    let (algorithm, key) = (algorithm(info.algorithm.oid)?, info.subject_public_key.as_bytes()?);
    let key = match algorithm {
        Algorithm::EdDSA => DecodingKey::from_ed_der(key),
        Algorithm::ES256 => DecodingKey::from_ec_der(key),
        _ => DecodingKey::from_rsa_der(key),
    };
    Some((algorithm, key))
}

fn algorithm(id: ObjectIdentifier) -> Option<Algorithm> {
    ALGORITHMS.iter().find(|(known, _)| *known == id).map(|(_, algorithm)| *algorithm)
}
