//! Reads a configuration of arbitrary bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nuncio_hub::config::fuzz_config(data));
