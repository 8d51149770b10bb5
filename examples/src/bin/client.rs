//! Calls any A2A agent: `cargo run -p nuncio-examples --bin client`
use nuncio_client::{Client, protocol::Result};

#[tokio::main]
async fn main() -> Result<()> {
    let client = Client::connect("http://127.0.0.1:2650").await?;
    println!("{}", client.send("hello").await?.text());
    Ok(())
}
