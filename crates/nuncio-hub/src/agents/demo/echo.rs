//! Repeats the text of the message, as a task with one text artifact, never as a bare message. A message
//! that begins with `hold` keeps its task working until it is canceled.

use async_trait::async_trait;
use nuncio_protocol::{AgentCard, Result};
use nuncio_server::{Emitter, ExecContext, Executor, Runtime, RuntimeBuilder};

struct Echo;

#[async_trait]
impl Executor for Echo {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        out.working().await?;
        let text = cx.text();
        if text.starts_with("hold") {
            cx.cancellation.cancelled().await;
            return Ok(());
        }
        out.text("echo", text).await?;
        out.completed().await?;
        Ok(())
    }

    /// A repeated execution does no harm: it replaces the artifact.
    fn is_idempotent(&self) -> bool {
        true
    }
}

pub(in crate::agents) fn agent(mut card: AgentCard) -> RuntimeBuilder {
    card.description = "Repeats the text of a message.".to_owned();
    card.skills = vec![super::skill(
        "echo",
        "Echo",
        "Repeats the text of a message; \"hold\" waits until it is canceled.",
        &["hello", "hold"],
    )];
    Runtime::builder(card, Echo).refuse_media_type("application/x-unsupported*")
}
