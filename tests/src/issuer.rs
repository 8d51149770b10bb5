//! An issuer of tokens (JWT) on a port of its own, with one key.

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{Json, Router, routing::get};
use jsonwebtoken::{Algorithm, EncodingKey, Header, crypto::aws_lc::DEFAULT_PROVIDER, encode, jwk::Jwk};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const AUDIENCE: &str = "nuncio";

/// An issuer, for as long as the test runs.
pub struct Issuer {
    url: String,
    key: EncodingKey,
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Issuer {
    /// Publishes its key.
    ///
    /// # Panics
    /// When it finds no port.
    pub async fn start() -> Self {
        // If somebody else has installed one, it is that one.
        let _ = DEFAULT_PROVIDER.install_default();
        // PKCS#8 of Ed25519 without the public key (RFC 8410, 7), and a seed that is nobody's secret.
        let head = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
        let key = EncodingKey::from_ed_der(&[&head[..], &[7; 32]].concat());
        let socket = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        let jwk = serde_json::to_value(Jwk::from_encoding_key(&key, Algorithm::EdDSA).unwrap()).unwrap();
        let keys = json!({ "keys": [jwk] });
        let about = json!({ "issuer": url, "jwks_uri": format!("{url}/keys") });
        let document = |json: Value| get(async move || Json(json));
        let router = Router::new()
            .route("/.well-known/openid-configuration", document(about))
            .route("/keys", document(keys));
        tokio::spawn(async move { axum::serve(socket, router).await });
        Self { url, key }
    }

    /// The value of `Authorization` that makes its bearer this one, for an hour.
    ///
    /// # Panics
    /// When it cannot be signed.
    #[must_use]
    pub fn bearer(&self, name: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let claims = json!({ "iss": self.url, "aud": AUDIENCE, "sub": name, "exp": now + 3600 });
        let token = encode(&Header::new(Algorithm::EdDSA), &claims, &self.key).unwrap();
        format!("Bearer {token}")
    }

    /// The lines of a configuration file that make a hub trust this issuer.
    #[must_use]
    pub fn setting(&self) -> String {
        format!("[[identity.jwt]]\nissuer = \"{}\"\naudience = [\"{AUDIENCE}\"]\n", self.url)
    }
}
