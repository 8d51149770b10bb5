//! Counts down, a second a step, and streams each step as a piece of one artifact.

use std::time::Duration;

use async_trait::async_trait;
use nuncio_protocol::{AgentCard, Artifact, Part, Result};
use nuncio_server::{Emitter, ExecContext, Executor, Runtime, RuntimeBuilder};

pub(super) const NAME: &str = "slow";

/// The longest countdown: an hour.
const MOST: u32 = 3600;

struct Slow;

#[async_trait]
impl Executor for Slow {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        let from: u32 = cx.text().trim().parse().unwrap_or(5).min(MOST);
        out.working().await?;
        for n in (0..=from).rev() {
            let text = if n == 0 { "done".to_owned() } else { format!("{n} ") };
            out.chunk(Artifact::new("countdown", Part::text(text)).with_name("countdown"), n < from, n == 0)
                .await?;
            if n > 0 {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(1)) => {}
                    () = cx.cancellation.cancelled() => return Ok(()),
                }
            }
        }
        out.completed().await?;
        Ok(())
    }
}

pub(super) fn agent(mut card: AgentCard) -> RuntimeBuilder {
    card.description = "Counts down, a second a step, and streams each step.".to_owned();
    card.skills =
        vec![super::skill("countdown", "Countdown", "Counts down from a number of seconds.", &["5"])];
    // Counting again does no harm, and its first piece replaces what was said before.
    Runtime::builder(card, Slow).idempotent(true).refuse_media_type("application/x-unsupported*")
}
