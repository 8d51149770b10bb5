//! Bytes as hexadecimal text.

/// The bytes in hex. Done once per call, so without a formatter.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// So many random bytes, in hex.
pub(super) fn random_hex<const N: usize>() -> String {
    hex(&rand::random::<[u8; N]>())
}
