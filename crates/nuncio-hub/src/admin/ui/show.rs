//! Values as they are shown: words instead of constants, bounded lengths, and no character that hides another.

use nuncio_protocol::TaskState;
use serde::Serialize;
use serde_json::Value;
use url::form_urlencoded;

/// Maximum length of a text in a list.
pub(super) const MAX_CELL_CHARS: usize = 200;

/// The word of a state, such as `working`.
pub(super) fn state(state: TaskState) -> String {
    state.as_str().trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-")
}

/// The word that a value has in the API, such as `dead`.
pub(super) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

/// A text of somebody else: characters that change the direction or hide others are shown by their number, and a
/// long text is cut.
pub(super) fn text(text: &str, max_chars: usize) -> String {
    let mut shown = String::new();
    let mut chars = text.chars();
    for char in chars.by_ref().take(max_chars) {
        match char {
            '\n' | '\t' => shown.push(char),
            char if char.is_control() || is_deceptive(char) => {
                shown.push_str(&format!("\u{27e8}U+{:04X}\u{27e9}", u32::from(char)));
            }
            char => shown.push(char),
        }
    }
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

/// A text in a list.
pub(super) fn cell(value: &str) -> String {
    text(value, MAX_CELL_CHARS)
}

/// True for marks of direction, and for characters without a width.
fn is_deceptive(char: char) -> bool {
    matches!(
        u32::from(char),
        0x061C | 0x180E | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x2069 | 0xFEFF | 0xE0000..=0xE007F
    )
}

/// A segment of a path.
pub(super) fn segment(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// JSON over several lines, with the same care.
pub(super) fn json(value: &impl Serialize, max_chars: usize) -> String {
    text(&serde_json::to_string_pretty(value).unwrap_or_default(), max_chars)
}

/// A number of bytes.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_deceives_is_visible_and_what_is_long_is_cut() {
        for (given, expected) in [
            ("plain\ntext", "plain\ntext"),
            ("a\u{202E}b", "a⟨U+202E⟩b"),
            ("a\u{2066}b\u{200B}", "a⟨U+2066⟩b⟨U+200B⟩"),
            ("\u{0}\u{1b}[31m", "⟨U+0000⟩⟨U+001B⟩[31m"),
            ("<script>", "<script>"),
            ("0123456789", "01234567…"),
        ] {
            let max = if given.starts_with('0') { 8 } else { 100 };
            assert_eq!(text(given, max), expected);
        }
    }

    #[test]
    fn words_and_sizes() {
        assert_eq!(state(TaskState::InputRequired), "input-required");
        assert_eq!(segment("a/b c+d"), "a%2Fb%20c%2Bd");
        for (number, expected) in [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB")] {
            assert_eq!(bytes(number), expected);
        }
    }
}
