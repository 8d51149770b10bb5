//! The hub's network edge, over real sockets.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod admin;
mod administration;
mod cards;
mod connections;
mod dashboard;
mod found;
mod playground;
mod schema;
mod telemetry;
mod tls;
mod versions;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use nuncio_hub::{
    Certificates, Hub,
    config::{Config, Connections},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};

/// The timeout for operations that are immediate; only a failing test waits this long.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// A timeout that passes quickly, and one that does not pass in a test.
const SHORT_TIMEOUT: Duration = Duration::from_millis(50);
const NEVER: Duration = Duration::from_secs(86_400);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// The demo agents on a free port.
fn config() -> Config {
    Config { demo: true, drain_grace: Duration::ZERO, ..Config::new(([127, 0, 0, 1], 0).into()) }
}

/// With these timeouts.
fn impatient(head_timeout: Duration, idle_timeout: Duration) -> Config {
    Config { connections: Connections { head_timeout, idle_timeout, ..Connections::default() }, ..config() }
}

/// A hub that runs beside the test.
struct Running {
    address: SocketAddr,
    url: String,
    certificates: Option<Certificates>,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    async fn start(config: Config) -> Self {
        Self::run(Hub::bind(config).await.unwrap())
    }

    fn run(hub: Hub) -> Self {
        let (address, url, certificates) = (hub.address(), hub.local_url(), hub.certificates());
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(hub.run(async move { drop(stopped.await) }));
        Self { address, url, certificates, stop, ended }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

/// Asks on a plain connection that is kept, and reads the answer.
async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"ok\n") {
        assert_ne!(within("the answer", stream.read_buf(&mut answer)).await.unwrap(), 0, "{answer:?}");
    }
    String::from_utf8(answer).unwrap()
}

/// All that comes until the connection is closed, in good order or not.
async fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = within("the end of the connection", stream.read_to_end(&mut bytes)).await;
    bytes
}

/// A directory of its own for a test.
fn directory(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
