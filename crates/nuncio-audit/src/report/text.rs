//! Text that agents sent, made harmless: characters that are invisible or that steer a terminal are shown as
//! escapes, and lengths are bounded.

/// Characters of a text that is shown in a line.
pub(super) const MAX_LINE: usize = 400;
/// Characters of a text that is shown in a block.
pub(super) const MAX_BLOCK: usize = 4_000;
/// Entries of a list of names.
pub(super) const MAX_NAMES: usize = 24;

/// True for characters that are not shown as they are: controls, direction overrides, invisible characters
/// and the tags by which text can be hidden. Joiners stay, because emoji and several scripts need them.
pub(super) fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// A text in one line: line breaks and tabs become spaces, hidden characters escapes.
pub(super) fn line(text: &str) -> String {
    bounded(text, MAX_LINE, |character| match character {
        '\n' | '\r' | '\t' => Some(' '),
        other => (!is_hidden(other)).then_some(other),
    })
}

/// A text in several lines: hidden characters become escapes, but for line feeds and tabs.
pub(super) fn block(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    bounded(text.trim_end(), MAX_BLOCK, |character| match character {
        '\n' => Some('\n'),
        '\t' => Some('\t'),
        other => (!is_hidden(other)).then_some(other),
    })
}

/// A list of names in one line; none is a dash.
pub(super) fn names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    let mut shown: Vec<String> = names.take(MAX_NAMES).map(line).collect();
    if count > MAX_NAMES {
        shown.push(format!("and {} more", count - MAX_NAMES));
    }
    if shown.is_empty() { "–".to_owned() } else { shown.join(", ") }
}

/// At most `limit` characters of a text, as they are.
pub(super) fn clip(text: &str, limit: usize) -> String {
    bounded(text, limit, Some)
}

/// Copies at most `limit` characters; those for which `shown` has none become escapes.
fn bounded(text: &str, limit: usize, shown: impl Fn(char) -> Option<char>) -> String {
    let mut out = String::with_capacity(text.len().min(limit));
    let mut characters = text.chars();
    for character in characters.by_ref().take(limit) {
        match shown(character) {
            Some(character) => out.push(character),
            None => out.extend(character.escape_unicode()),
        }
    }
    let left = characters.count();
    if left > 0 {
        out.push_str(&format!(" … ({left} more characters)"));
    }
    out
}

/// The date of an RFC 3339 time, for headings; a dash if it is none.
pub(super) fn date(time: &str) -> &str {
    let date = time.split_once('T').map_or(time, |(date, _)| date);
    let is_date = date.len() == 10 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if is_date { date } else { "–" }
}

/// Breaks a line of text into lines of at most `width` characters, at spaces where there are any.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut current = String::new();
    let mut length = 0;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        for piece in pieces(word, width) {
            let piece_length = piece.chars().count();
            if length > 0 && length + 1 + piece_length > width {
                lines.push(std::mem::take(&mut current));
                length = 0;
            }
            if length > 0 {
                current.push(' ');
                length += 1;
            }
            current.push_str(&piece);
            length += piece_length;
        }
    }
    lines.push(current);
    lines
}

/// A word that is longer than a line, in pieces of a line each.
fn pieces(word: &str, width: usize) -> Vec<String> {
    let characters: Vec<char> = word.chars().collect();
    characters.chunks(width.max(1)).map(|piece| piece.iter().collect()).collect()
}
