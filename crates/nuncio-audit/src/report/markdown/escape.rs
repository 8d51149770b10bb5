//! Text that agents sent, as Markdown that has no markup in it.

use crate::report::text;

/// Text in prose: markup is escaped, addresses and mentions are no links.
pub(super) fn prose(content: &str) -> String {
    let content = text::line(content);
    let mut out = String::with_capacity(content.len());
    let mut rest = content.chars().peekable();
    while let Some(character) = rest.next() {
        if matches!(
            character,
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '<' | '>' | '#' | '|' | '~' | '&' | '!' | '$'
        ) {
            out.push('\\');
        }
        out.push(character);
        // Forges make links of `https://`, `www.` and `@name`, escaped or not; a joiner without width ends them.
        let begins_link = match character {
            ':' => rest.peek() == Some(&'/'),
            '.' => ends_with_www(&out),
            '@' => rest.peek().is_some_and(|next| next.is_alphanumeric()),
            _ => false,
        };
        if begins_link {
            out.push('\u{2060}');
        }
    }
    out
}

fn ends_with_www(text: &str) -> bool {
    text.len() >= 4 && text.as_bytes()[text.len() - 4..].eq_ignore_ascii_case(b"www.")
}

/// Text as a code span, in which nothing is markup; in a cell of a table, too.
pub(super) fn code(content: &str) -> String {
    let content = text::line(content);
    if content.trim().is_empty() {
        return "–".to_owned();
    }
    let fence = "`".repeat(longest_run(&content) + 1);
    let content = content.replace('|', "\\|");
    let pad = if content.starts_with(['`', ' ']) || content.ends_with(['`', ' ']) { " " } else { "" };
    format!("{fence}{pad}{content}{pad}{fence}")
}

/// Text as a fenced block, whose fence is longer than any in the text.
pub(super) fn fenced(content: &str, language: &str, indent: &str) -> String {
    let content = text::block(content);
    let fence = "`".repeat(longest_run(&content).max(2) + 1);
    let body: String = content.split('\n').map(|line| format!("{indent}{line}\n")).collect();
    format!("{indent}{fence}{language}\n{body}{indent}{fence}\n")
}

/// The longest run of backticks.
fn longest_run(content: &str) -> usize {
    content.split(|character| character != '`').map(str::len).max().unwrap_or_default()
}
