#![no_main]

#[path = "../../crates/nuncio-protocol/tests/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("jsonrpc_response", data));
