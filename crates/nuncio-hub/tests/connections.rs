//! What the hub does with connections, before any request is read.

use std::time::Duration;

use nuncio_hub::{
    Hub,
    config::{Config, Data},
};
use tokio::{io::AsyncReadExt as _, net::TcpStream};

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_is_closed() {
    // It was kept for ever, and with it one of the connections that may be open.
    let hub = Hub::bind(Config {
        listen: ([127, 0, 0, 1], 0).into(),
        public_url: None,
        data: Data::Memory { keep_finished: 10 },
        demo: true,
        profile: None,
        default_agent: None,
        drain_grace: Duration::ZERO,
        connections: 10,
    })
    .await
    .unwrap();
    let address = hub.address();
    tokio::spawn(hub.run(std::future::pending()));
    let mut silent = TcpStream::connect(address).await.unwrap();
    // Paused time leaps while sockets are still at work, so an hour is given minute by minute.
    for _ in 0..60 {
        if let Ok(read) = tokio::time::timeout(Duration::from_secs(60), silent.read_u8()).await {
            assert!(read.is_err(), "closed by the hub, without a word");
            return;
        }
    }
    panic!("still open after an hour");
}
