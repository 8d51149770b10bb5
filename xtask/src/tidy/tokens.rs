//! The tokens of a Rust file, as far as the rule about imports needs them.

use super::source::{char_literal_len, raw_string_hashes, string_len, without_comments};

/// A word, `::`, or any other single character. Comments and quoted literals are left out.
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
}

impl Token {
    pub(super) fn is_word(&self) -> bool {
        self.text.starts_with(is_word_char)
    }
}

/// The tokens of a file, in order.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let code = without_comments(text);
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(first) = code[at..].chars().next() {
        let rest = &code[at..];
        let (len, is_token) = match first {
            '"' => (string_len(rest, raw_string_hashes(&code[..at])), false),
            '\'' => (char_literal_len(rest), false),
            ':' if rest.starts_with("::") => (2, true),
            _ if is_word_char(first) => (rest.find(|c| !is_word_char(c)).unwrap_or(rest.len()), true),
            _ => (first.len_utf8(), !first.is_whitespace()),
        };
        let token = &rest[..len];
        if is_token {
            tokens.push(Token { text: token.to_owned(), line });
        }
        line += token.matches('\n').count();
        at += len;
    }
    tokens
}

/// The text of a token; empty after the end.
pub(super) fn text(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| &token.text)
}

/// The index after the bracket that closes the one at `at`.
pub(super) fn group_end(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(at) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 1 => return at + 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    tokens.len()
}

/// The index after the item at `at`, which may begin with attributes.
pub(super) fn item_end(tokens: &[Token], mut at: usize) -> usize {
    while text(tokens, at) == "#" {
        at = group_end(tokens, at + 1);
    }
    let mut has_body = false;
    let mut has_semicolon = false;
    while at < tokens.len() {
        match text(tokens, at) {
            "fn" | "mod" | "impl" | "struct" | "enum" | "trait" | "macro_rules" => has_body = true,
            "use" | "let" | "const" | "static" | "type" => has_semicolon = true,
            "{" if has_body || !has_semicolon => return group_end(tokens, at),
            "(" | "[" | "{" => {
                at = group_end(tokens, at);
                continue;
            }
            ";" => return at + 1,
            // A field, a variant or an arm.
            "," if !has_body && !has_semicolon => return at + 1,
            "}" | ")" => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
