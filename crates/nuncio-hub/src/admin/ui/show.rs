//! Values as they are shown: words instead of constants, bounded lengths, and no character that hides another.

use nuncio_protocol::TaskState;
use serde::Serialize;
use serde_json::Value;
use url::form_urlencoded;

/// Maximum length of a text in a list.
pub(super) const MAX_CELL_CHARS: usize = 200;

/// Maximum length of the name of a download.
const MAX_FILE_NAME: usize = 64;

/// Maximum depth of indentation.
const MAX_INDENT: usize = 16;

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

/// The name of a file for a download: plain letters only, so that no browser or system reads anything into it.
pub(super) fn file_name(text: &str) -> String {
    let plain = text.chars().filter(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.'));
    let name: String = plain.take(MAX_FILE_NAME).collect();
    name.trim_matches('.').to_owned()
}

/// JSON over several lines, with the same care.
pub(super) fn json(value: &impl Serialize, max_chars: usize) -> String {
    text(&serde_json::to_string_pretty(value).unwrap_or_default(), max_chars)
}

/// A text of JSON over several lines: only the white space between its tokens is changed. Other text stays as it is.
pub(super) fn indented(text: &str) -> String {
    let (mut shown, mut depth, mut is_string, mut is_escaped) = (String::new(), 0usize, false, false);
    let line = |shown: &mut String, depth: usize| {
        shown.push('\n');
        shown.extend(std::iter::repeat_n("  ", depth.min(MAX_INDENT)));
    };
    let mut chars = text.trim().chars().peekable();
    if !matches!(chars.peek(), Some('{' | '[')) {
        return text.to_owned();
    }
    while let Some(char) = chars.next() {
        if is_string {
            is_string = char != '"' || is_escaped;
            is_escaped = char == '\\' && !is_escaped;
            shown.push(char);
            continue;
        }
        match char {
            char if char.is_whitespace() => {}
            '{' | '[' => {
                shown.push(char);
                while chars.next_if(|next| next.is_whitespace()).is_some() {}
                if let Some(end) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    shown.push(end);
                } else {
                    depth += 1;
                    line(&mut shown, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut shown, depth);
                shown.push(char);
            }
            ',' => {
                shown.push(char);
                line(&mut shown, depth);
            }
            ':' => shown.push_str(": "),
            char => {
                is_string = char == '"';
                shown.push(char);
            }
        }
    }
    shown
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
    fn json_is_indented_and_other_text_stays() {
        for (given, expected) in [
            (r#"{"a":[1,2],"b":{}}"#, "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}"),
            (r#"{"a":"x, {y}: \"z\\"}"#, "{\n  \"a\": \"x, {y}: \\\"z\\\\\"\n}"),
            ("<html>, {", "<html>, {"),
            ("]]", "]]"),
            ("", ""),
        ] {
            assert_eq!(indented(given), expected);
        }
    }

    #[test]
    fn names_of_downloads_are_plain() {
        for (given, expected) in [
            ("report.pdf", "report.pdf"),
            ("../../etc/passwd", "etcpasswd"),
            ("invoice\u{202E}fdp.exe\"\r\nX: y", "invoicefdp.exeXy"),
            ("...", ""),
            ("Grüße", "Gre"),
        ] {
            assert_eq!(file_name(given), expected);
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
