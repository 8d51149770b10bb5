//! A TCP relay that cuts connections after so many bytes, in either direction, again and again.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
};

/// Listens at a port of its own and relays to another one. Each connection carries a number of bytes, of both directions
/// together, and is cut.
#[derive(Debug)]
pub struct Torn {
    /// Its own address.
    pub address: SocketAddr,
    cuts: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Torn {
    /// Starts before this address. Connections carry as many bytes as the list says, one after the other, and then from
    /// its beginning again. A list that grows cuts an exchange at every place, and lets it through in the end.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn before(to: SocketAddr, carries: Vec<usize>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let cuts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&cuts);
        let serving = tokio::spawn(async move {
            for carries in carries.into_iter().cycle() {
                let (near, _) = listener.accept().await.expect("the relay accepts");
                tokio::spawn(relay(near, to, carries, Arc::clone(&counted)));
            }
        });
        Self { address, cuts, serving }
    }

    /// The number of connections that it has cut.
    #[must_use]
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::Relaxed)
    }

    /// Its address as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Torn {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn relay(near: TcpStream, to: SocketAddr, carries: usize, cuts: Arc<AtomicUsize>) {
    let Ok(far) = TcpStream::connect(to).await else { return };
    let left = Arc::new(AtomicUsize::new(carries));
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let cut = tokio::select! {
        cut = one_way(near_in, far_out, &left) => cut,
        cut = one_way(far_in, near_out, &left) => cut,
    };
    if cut {
        cuts.fetch_add(1, Ordering::Relaxed);
    }
}

/// Carries until an end hangs up (false), or nothing more may be carried (true).
async fn one_way(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, left: &AtomicUsize) -> bool {
    let mut buffer = vec![0; 4 << 10];
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return false,
            Ok(read) => read,
        };
        let before = left.load(Ordering::Relaxed);
        let carried = read.min(before);
        left.store(before - carried, Ordering::Relaxed);
        if to.write_all(&buffer[..carried]).await.is_err() {
            return false;
        }
        if carried < read || before == carried {
            return true;
        }
    }
}
