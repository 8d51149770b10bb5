//! Reads the answer of a provider of models of arbitrary bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nuncio_hub::fuzz_model_answer(data));
