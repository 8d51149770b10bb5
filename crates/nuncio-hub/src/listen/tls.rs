//! TLS: a certificate and its key from files, which may be replaced while the hub runs.
//!
//! Contents are compared, not times: a mounted secret is replaced by a symbolic link, and some file systems
//! have a resolution of seconds. An unusable pair is logged once and changes nothing.

use std::{fmt, fs, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use nuncio_protocol::Timestamp;
use parking_lot::{Mutex, RwLock};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
    server::TlsStream,
};

use super::certificate;
use crate::config::{TlsFiles, shown_path};

/// Interval at which the files are read.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// The response to a client that speaks plain HTTP.
const NOT_PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    content-type: text/plain\r\n\
    content-length: 44\r\n\
    connection: close\r\n\r\n\
    this port speaks https; call it by https://\n";

/// Maximum number of bytes read from such a client, so that it gets to read the response.
const MAX_PLAIN_BYTES: u64 = 64 * 1024;

/// The certificate for new connections. Cheap to clone.
#[derive(Clone)]
pub struct Certificates {
    inner: Arc<Inner>,
}

struct Inner {
    files: TlsFiles,
    /// Each pair has its own configuration: sessions under the previous one are not resumed.
    current: RwLock<Arc<ServerConfig>>,
    /// The last content of the files, usable or not. Locked while they are read and judged, so that two
    /// concurrent reloads do not overtake each other.
    found: Mutex<Pem>,
}

#[derive(PartialEq, Eq)]
struct Pem {
    cert: Vec<u8>,
    key: Vec<u8>,
}

/// The result of a reload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reload {
    /// The files have not changed.
    Same,
    /// A new pair is in use.
    Changed,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the file that is wrong, and the expected content.
    pub(crate) fn load(files: TlsFiles) -> Result<Self> {
        let pem = Pem::read(&files)?;
        let current = RwLock::new(Arc::new(pem.configure(&files)?));
        Ok(Self { inner: Arc::new(Inner { files, current, found: Mutex::new(pem) }) })
    }

    /// Reads the files again. If they are wrong, the pair in use stays.
    ///
    /// # Errors
    /// Names the file that is wrong; once, until the files change again.
    pub fn reload(&self) -> Result<Reload> {
        let Inner { files, current, found } = &*self.inner;
        let mut found = found.lock();
        let pem = Pem::read(files)?;
        if pem == *found {
            return Ok(Reload::Same);
        }
        let config = pem.configure(files);
        *found = pem;
        *current.write() = Arc::new(config?);
        Ok(Reload::Changed)
    }

    /// The time at which the certificate of the hub itself, the first in its file, expires.
    pub(crate) fn expires(&self) -> Option<Timestamp> {
        let chain = CertificateDer::pem_slice_iter(&self.inner.found.lock().cert).next()?.ok()?;
        certificate::not_after(&chain)
    }

    /// Reloads the files at intervals, for ever.
    pub(super) async fn watch(&self) {
        // A missing file is logged once as well.
        let mut last = String::new();
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            let this = self.clone();
            // Files may be on a disk that hangs.
            match tokio::task::spawn_blocking(move || this.reload()).await {
                Ok(Ok(Reload::Same)) => last.clear(),
                Ok(Ok(Reload::Changed)) => {
                    last.clear();
                    tracing::info!("the TLS certificate was replaced; new connections use it");
                }
                Ok(Err(error)) => {
                    let error = format!("{error:#}");
                    if error != last {
                        tracing::error!(%error, "cannot reload the certificate; the current one stays in use");
                    }
                    last = error;
                }
                Err(error) => tracing::error!(%error, "the TLS certificate could not be checked for changes"),
            }
        }
    }

    /// Does the TLS handshake; `None` if the client speaks plain HTTP and was told to use https.
    pub(super) async fn accept(&self, stream: TcpStream) -> std::io::Result<Option<TlsStream<TcpStream>>> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
            refuse(stream).await?;
            return Ok(None);
        }
        let config = Arc::clone(&self.inner.current.read());
        TlsAcceptor::from(config).accept(stream).await.map(Some)
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("files", &self.inner.files).finish_non_exhaustive()
    }
}

/// Answers a client that speaks plain HTTP. Closing with unread bytes would reset the connection before the
/// client reads the response.
async fn refuse(mut stream: TcpStream) -> std::io::Result<()> {
    stream.write_all(NOT_PLAIN).await?;
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(MAX_PLAIN_BYTES), &mut tokio::io::sink()).await?;
    Ok(())
}

impl Pem {
    fn read(files: &TlsFiles) -> Result<Self> {
        let read = |flag: &str, path: &Path| {
            fs::read(path).with_context(|| {
                format!("{flag} {}: cannot read it; expected a file in PEM format", shown_path(path))
            })
        };
        Ok(Self { cert: read("--tls-cert", &files.cert)?, key: read("--tls-key", &files.key)? })
    }

    fn configure(&self, files: &TlsFiles) -> Result<ServerConfig> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.cert)
            .collect::<Result<_, _>>()
            .map_err(|error| anyhow!("--tls-cert {}: {error}", shown_path(&files.cert)))?;
        if chain.is_empty() {
            return Err(anyhow!(
                "--tls-cert {}: there is no certificate in it; expected PEM with BEGIN CERTIFICATE",
                shown_path(&files.cert)
            ));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| {
            anyhow!(
                "--tls-key {}: there is no private key in it; expected PEM with BEGIN PRIVATE KEY, \
                 without a password: {error}",
                shown_path(&files.key)
            )
        })?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .context("TLS 1.2 and 1.3 are not available")?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| {
                anyhow!(
                    "--tls-cert {} and --tls-key {} cannot be used together: {error}; \
                     expected a certificate with its intermediate certificates, and the key it was made for",
                    shown_path(&files.cert),
                    shown_path(&files.key)
                )
            })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn files_are_looked_at_now_and_then() {
        let directory = std::env::temp_dir().join(format!("nuncio-tls-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let files = TlsFiles { cert: directory.join("cert.pem"), key: directory.join("key.pem") };
        let renew = || {
            let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            fs::write(&files.cert, pair.cert.pem()).unwrap();
            fs::write(&files.key, pair.signing_key.serialize_pem()).unwrap();
        };
        renew();
        let certificates = Certificates::load(files.clone()).unwrap();
        let current = || Arc::as_ptr(&certificates.inner.current.read()) as usize;
        let old = current();
        let changed = async {
            for _ in 0..100 {
                tokio::time::sleep(RELOAD_INTERVAL).await;
                if current() != old {
                    return true;
                }
            }
            false
        };
        renew();
        let changed = tokio::select! {
            () = certificates.watch() => false,
            changed = changed => changed,
        };
        fs::remove_dir_all(&directory).unwrap();
        assert!(changed, "the new pair was not found");
    }
}
