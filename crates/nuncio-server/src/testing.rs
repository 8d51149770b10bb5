//! Scripted executors and a harness.
