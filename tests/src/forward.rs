//! A TCP forwarder that can be cut: what lies between a hub and its database.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

/// The treatment of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// They carry what is said.
    Open,
    /// Those that are there are dropped, new ones end at once.
    Cut,
    /// Nothing is carried and nobody is told: packets are swallowed.
    Frozen,
}

/// Listens at a port of its own and forwards to another one.
#[derive(Debug)]
pub struct Forwarder {
    /// Its own address.
    pub address: SocketAddr,
    line: watch::Sender<Line>,
    serving: JoinHandle<()>,
}

impl Forwarder {
    /// Starts to forward.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let (line, seen) = watch::channel(Line::Open);
        let serving = tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.expect("the forwarder accepts");
                if *seen.borrow() == Line::Cut {
                    continue;
                }
                tokio::spawn(handle(near, to, seen.clone()));
            }
        });
        Self { address, line, serving }
    }

    /// Changes what becomes of connections, of those that are there, too.
    pub fn set(&self, line: Line) {
        self.line.send_replace(line);
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn handle(near: TcpStream, to: SocketAddr, mut line: watch::Receiver<Line>) {
    if line.wait_for(|line| *line != Line::Frozen).await.is_err() {
        return;
    }
    let Ok(far) = TcpStream::connect(to).await else { return };
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let cut = async {
        let _ = line.clone().wait_for(|line| *line == Line::Cut).await;
    };
    tokio::select! {
        () = one_way(near_in, far_out, line.clone()) => {}
        () = one_way(far_in, near_out, line.clone()) => {}
        () = cut => {}
    }
}

/// Carries until an end hangs up. While the line is frozen nothing moves; what was under way when it froze is
/// lost, as if its packets had been: the connection never speaks again.
async fn one_way(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut line: watch::Receiver<Line>) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => read,
        };
        if *line.borrow_and_update() == Line::Frozen {
            // Swallowed. A connection with a hole in it is of no use: it stays silent until it is cut.
            std::future::pending::<()>().await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
