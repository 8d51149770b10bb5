//! A whole agent: it shouts back. Try it: `nuncio send http://127.0.0.1:2650 hello`
use std::sync::Arc;

use nuncio_server::protocol::{AgentCard, Result};
use nuncio_server::{Emitter, ExecContext, Executor, Runtime, bind};

struct Shout;

#[async_trait::async_trait]
impl Executor for Shout {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        out.working().await?;
        out.text("shout", cx.text().to_uppercase()).await?;
        Ok(()) // returning completes the task
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (address, url) = ("127.0.0.1:2650", "http://127.0.0.1:2650");
    let card = AgentCard::new("shout", "Shouts back.").served_at(url).with_streaming();
    let runtime = Runtime::builder(card, Shout).build();
    let agent = bind::Agent::new(Arc::new(runtime.clone()), &runtime.card(), bind::BindOptions::default())?;
    axum::serve(tokio::net::TcpListener::bind(address).await?, bind::router(&agent)).await?;
    Ok(())
}
