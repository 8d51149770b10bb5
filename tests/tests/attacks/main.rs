//! What one caller, or one agent, does to take a hub down: the hub stays up, and the others are served.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod lists;
