#![no_main]

#[path = "../../crates/nuncio-protocol/tests/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("v1_event", data));
