//! Bytes as hexadecimal text.

/// Encodes the bytes in hex. Runs once per call, so it avoids the formatter.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Makes `N` random bytes, in hex.
pub(super) fn random_hex<const N: usize>() -> String {
    hex(&rand::random::<[u8; N]>())
}
