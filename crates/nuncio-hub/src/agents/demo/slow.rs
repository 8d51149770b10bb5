//! Counts down, one step per second, and streams each step as a chunk of one artifact. A second word of the
//! message sets another step: `40 20ms`. A third word `ask` asks for the next message instead of completing the
//! task: `40 20ms ask`.

use std::time::Duration;

use async_trait::async_trait;
use nuncio_protocol::{AgentCard, Result};
use nuncio_server::{Emitter, ExecContext, Executor, Runtime, RuntimeBuilder};

/// Limits: steps of a countdown (an hour at one step per second), and milliseconds of a step.
const MAX_STEPS: u32 = 3600;
const MAX_STEP_MS: u64 = 60_000;

struct Slow;

#[async_trait]
impl Executor for Slow {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        let said = cx.text();
        let (from, step) = countdown(&said);
        out.working().await?;
        // Each step is a piece.
        let mut text = out.text_stream("countdown").with_id("countdown").with_pace(Duration::ZERO);
        for n in (1..=from).rev() {
            text.push(format!("{n} ")).await?;
            tokio::select! {
                () = tokio::time::sleep(step) => {}
                () = cx.cancellation.cancelled() => return Ok(()),
            }
        }
        text.finish_with("done").await?;
        if said.split_whitespace().nth(2) == Some("ask") {
            out.input_required("From which number now?").await?;
        } else {
            out.completed().await?;
        }
        Ok(())
    }

    /// A repeated execution does no harm: its first chunk replaces the artifact.
    fn is_idempotent(&self) -> bool {
        true
    }
}

/// The number of steps, and the duration of a step.
fn countdown(text: &str) -> (u32, Duration) {
    let mut words = text.split_whitespace();
    let from = words.next().and_then(|from| from.parse().ok()).unwrap_or(5).min(MAX_STEPS);
    let pace = words.next().and_then(|pace| pace.strip_suffix("ms")?.parse().ok());
    (from, Duration::from_millis(pace.unwrap_or(1000).min(MAX_STEP_MS)))
}

pub(in crate::agents) fn agent(mut card: AgentCard) -> RuntimeBuilder {
    card.description = "Counts down, a second a step, and streams each step.".to_owned();
    card.skills = vec![super::skill(
        "countdown",
        "Countdown",
        "Counts down from a number; a second word sets the milliseconds per step, a third, \"ask\", asks for the next one.",
        &["5", "40 20ms", "40 20ms ask"],
    )];
    Runtime::builder(card, Slow).refuse_media_type("application/x-unsupported*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_a_step_unless_another_pace_is_set() {
        for (text, from, millis) in [
            ("7", 7, 1000),
            (" 40 20ms\n", 40, 20),
            ("3 0ms", 3, 0),
            ("3 20", 3, 1000),
            ("hello", 5, 1000),
            ("9999999 9999999ms", MAX_STEPS, MAX_STEP_MS),
            ("", 5, 1000),
        ] {
            assert_eq!(countdown(text), (from, Duration::from_millis(millis)), "{text:?}");
        }
    }
}
