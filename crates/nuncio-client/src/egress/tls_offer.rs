//! The versions of TLS that a server offers, by the first record of its answer to a greeting.

use std::time::Duration;

use nuncio_protocol::{Error, ErrorKind, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use url::Url;

use super::{Egress, shown};

/// The versions of TLS that a server accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlsOffer {
    /// It accepts TLS 1.3.
    pub has_1_3: bool,
    /// It accepts TLS 1.1.
    pub has_1_1: bool,
}

/// The type of a handshake record, which accepts a greeting; an alert refuses it.
const HANDSHAKE: u8 = 22;

impl Egress {
    /// The versions of TLS that the server of a URL accepts: greets it once with TLS 1.3 alone and once with
    /// TLS 1.1 alone, and reads no further than the first byte of each answer.
    ///
    /// # Errors
    /// `UnsupportedOperation` on a guarded egress, which connects by its rules only; `Unavailable` without a
    /// connection.
    pub async fn tls_offer(&self, url: &Url, time: Duration) -> Result<TlsOffer> {
        if self.guard.is_some() || self.has_proxy {
            let why = "versions of TLS are only seen over a direct connection";
            return Err(Error::new(ErrorKind::UnsupportedOperation, why));
        }
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(Error::invalid_field("url", "has no host"));
        };
        let host = host.trim_matches(['[', ']']);
        let accepts = async |greeting: Vec<u8>| {
            let answer = timeout(time, first_byte(host, port, &greeting)).await;
            let unreached = |why: &str| {
                Error::new(ErrorKind::Unavailable, format!("cannot connect to {}: {why}", shown(url)))
            };
            match answer {
                Err(_) => Err(unreached("no answer in time")),
                Ok(Err(error)) => Err(unreached(&error.to_string())),
                Ok(Ok(byte)) => Ok(byte == Some(HANDSHAKE)),
            }
        };
        Ok(TlsOffer {
            has_1_3: accepts(greeting(host, &modern())).await?,
            has_1_1: accepts(greeting_of(0x0302, &[0xc0, 0x13, 0xc0, 0x09, 0x00, 0x2f], host, &[])).await?,
        })
    }
}

/// The first byte of the answer; `None` if the server closes the connection.
async fn first_byte(host: &str, port: u16, greeting: &[u8]) -> std::io::Result<Option<u8>> {
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(greeting).await?;
    let mut byte = [0];
    // A reset is a refusal, too.
    Ok(match stream.read(&mut byte).await {
        Ok(1) => Some(byte[0]),
        Ok(_) | Err(_) => None,
    })
}

/// A greeting of TLS 1.3 without key shares, to which a server that has 1.3 answers with a retry request.
fn greeting(host: &str, extensions: &[u8]) -> Vec<u8> {
    greeting_of(0x0303, &[0x13, 0x01, 0x13, 0x02, 0x13, 0x03], host, extensions)
}

/// The extensions of TLS 1.3: supported versions, and no key share.
fn modern() -> Vec<u8> {
    let mut extensions = extension(43, &[2, 0x03, 0x04]);
    extensions.extend(extension(51, &[0, 0]));
    extensions
}

fn greeting_of(version: u16, suites: &[u8], host: &str, extensions: &[u8]) -> Vec<u8> {
    let mut all = if host.parse::<std::net::IpAddr>().is_ok() { Vec::new() } else { server_name(host) };
    // Groups x25519 and P-256; uncompressed points; signatures by P-256 and RSA.
    all.extend(extension(10, &[0, 4, 0x00, 0x1d, 0x00, 0x17]));
    all.extend(extension(11, &[1, 0]));
    all.extend(extension(13, &[0, 8, 0x04, 0x03, 0x08, 0x04, 0x04, 0x01, 0x08, 0x07]));
    all.extend_from_slice(extensions);
    let mut body = version.to_be_bytes().to_vec();
    // The random of a greeting that leads to no session.
    body.extend([0x6e; 32]);
    body.push(0);
    body.extend(sized(suites));
    body.extend([1, 0]);
    body.extend(sized(&all));
    let mut handshake = vec![1, 0];
    handshake.extend(sized(&body));
    let mut record = vec![HANDSHAKE, 3, 1];
    record.extend(sized(&handshake));
    record
}

fn server_name(host: &str) -> Vec<u8> {
    let mut name = vec![0];
    name.extend(sized(host.as_bytes()));
    extension(0, &sized(&name))
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut extension = kind.to_be_bytes().to_vec();
    extension.extend(sized(content));
    extension
}

/// Bytes after their length in two bytes.
fn sized(bytes: &[u8]) -> Vec<u8> {
    let mut sized = u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes().to_vec();
    sized.extend_from_slice(bytes);
    sized
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{ServerConfig, crypto::aws_lc_rs, version};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// A server with one version of TLS, on a free port.
    async fn server(versions: &[&'static rustls::SupportedProtocolVersion]) -> Url {
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![key.cert.der().clone()],
                key.signing_key.serialize_der().try_into().unwrap(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = acceptor.accept(stream).await;
            }
        });
        Url::parse(&url).unwrap()
    }

    #[tokio::test]
    async fn versions_are_seen_by_the_answer_to_a_greeting() {
        let egress = Egress::operator().unwrap();
        for (versions, expected) in
            [(vec![&version::TLS13, &version::TLS12], true), (vec![&version::TLS12], false)]
        {
            let url = server(&versions).await;
            let offer = egress.tls_offer(&url, Duration::from_secs(5)).await.unwrap();
            assert_eq!(offer, TlsOffer { has_1_3: expected, has_1_1: false });
        }
    }
}
