//! A file of the repository as the rules see it: its path, its text, and which lines of it are code.

use std::fs;
use std::path::Path;

use crate::Result;

/// Folders whose content we did not write.
const SKIPPED: [&str; 6] = [".git", ".cache", ".venv", "__pycache__", "node_modules", "target"];

/// A text file, read once for all rules.
pub(crate) struct Source {
    /// From the root of the repository, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(crate) fn is_under(&self, folder: &str) -> bool {
        self.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    }

    pub(crate) fn is_generated(&self) -> bool {
        self.text.starts_with("// @generated")
    }

    /// A file that is nothing but tests.
    pub(crate) fn is_test(&self) -> bool {
        let mut folders: Vec<&str> = self.path.split('/').collect();
        let file = folders.pop();
        file == Some("tests.rs") || folders.contains(&"tests")
    }

    /// The number of lines before the tests at the end of the file.
    pub(crate) fn body_len(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        (0..lines.len()).find(|&at| starts_test_tail(&lines[at..])).unwrap_or(lines.len())
    }

    /// Numbered lines with the comments taken out; strings stay.
    pub(crate) fn code(&self) -> Vec<(usize, String)> {
        without_comments(&self.text)
            .lines()
            .map(str::to_owned)
            .zip(1..)
            .map(|(line, at)| (at, line))
            .collect()
    }
}

/// Reads every text file under `root`, in the order of the paths.
pub(crate) fn read_all(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    read_folder(root, "", &mut sources)?;
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn read_folder(folder: &Path, prefix: &str, sources: &mut Vec<Source>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
            read_folder(&entry.path(), &format!("{path}/"), sources)?;
        }
        // What is not UTF-8 is not text, and no rule has anything to say about it.
        if kind.is_file()
            && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
        {
            sources.push(Source { path, text });
        }
    }
    Ok(())
}

/// An inline test module in the outermost scope. A mere `mod tests;` does not count: it may stand at
/// the top of a file. That nothing follows the module is clippy's business (`items_after_test_module`).
fn starts_test_tail(lines: &[&str]) -> bool {
    let Some((first, rest)) = lines.split_first() else { return false };
    let for_tests = first.starts_with("#[cfg(test)]") || first.starts_with("#[cfg(all(test,");
    let item = rest.iter().find(|line| !line.starts_with("#["));
    for_tests && item.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
}

/// Blanks out comments and keeps the line breaks, so that line numbers stay true.
pub(super) fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_comment = rest.starts_with("//") || rest.starts_with("/*");
        let len = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if is_comment => block_comment_len(rest),
            '"' => string_len(rest, raw_string_hashes(&code)),
            '\'' => char_literal_len(rest),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(len);
        code.extend(token.chars().filter(|&c| c == '\n' || !is_comment));
        rest = after;
    }
    code
}

/// Block comments nest in Rust.
fn block_comment_len(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while let Some(next) = text[at..].find(['/', '*']).map(|offset| at + offset) {
        let is_open = text[next..].starts_with("/*");
        let is_close = text[next..].starts_with("*/");
        depth = if is_close { depth - 1 } else { depth + usize::from(is_open) };
        at = next + if is_open || is_close { 2 } else { 1 };
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The number of hashes, if the code so far ends in the `r##` of a raw string.
pub(super) fn raw_string_hashes(code: &str) -> Option<usize> {
    let before = code.trim_end_matches('#');
    before.ends_with('r').then_some(code.len() - before.len())
}

pub(super) fn string_len(text: &str, raw_hashes: Option<usize>) -> usize {
    if let Some(hashes) = raw_hashes {
        let end = format!("\"{}", "#".repeat(hashes));
        return text[1..].find(&end).map_or(text.len(), |at| 1 + at + end.len());
    }
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == '"' && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// A quote may also begin a lifetime; then it stands alone.
pub(super) fn char_literal_len(text: &str) -> usize {
    if text.starts_with("'\\") {
        let end = text.get(3..).and_then(|rest| rest.find('\''));
        return end.map_or(text.len(), |at| 3 + at + 1);
    }
    let mut letters = text.chars().skip(1);
    match (letters.next(), letters.next()) {
        (Some(letter), Some('\'')) => 2 + letter.len_utf8(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::{Source, without_comments};

    #[test]
    fn comments_go_and_everything_else_stays() {
        let cases = [
            ("let a = 1; // one", "let a = 1; "),
            ("/// doc\nfn f() {}", "\nfn f() {}"),
            ("a /* x /* y */\n z */ b", "a \n b"),
            (r#"("https://a", "\"//")// c"#, r#"("https://a", "\"//")"#),
            (r##"r#"a"//b"# // c"##, r##"r#"a"//b"# "##),
            (r#"('"', '\'', '\u{2f}') // c"#, r#"('"', '\'', '\u{2f}') "#),
            ("fn f<'a>(x: &'a str) {} // it's", "fn f<'a>(x: &'a str) {} "),
            ("'é' // c", "'é' "),
            ("a / b * c", "a / b * c"),
            ("/* never closed", ""),
        ];
        for (text, code) in cases {
            assert_eq!(without_comments(text), code, "from {text}");
        }
    }

    #[test]
    fn the_body_ends_where_the_inline_tests_begin() {
        let cases = [
            ("a\nb\n", 2),
            ("a\n#[cfg(test)]\nmod tests {\n}\n", 1),
            ("a\n#[cfg(test)]\n#[expect(x)]\nmod tests {\n}\n", 1),
            ("#[cfg(test)]\nmod tests;\na\n", 3),
            ("#[cfg(test)]\nfn helper() {}\na\n", 3),
        ];
        for (text, len) in cases {
            let source = Source { path: "a.rs".to_owned(), text: text.to_owned() };
            assert_eq!(source.body_len(), len, "from {text}");
        }
    }

    #[test]
    fn a_test_file_is_known_by_its_path() {
        let cases = [
            ("tests/src/lib.rs", true),
            ("crates/a/tests/b.rs", true),
            ("crates/a/src/b/tests.rs", true),
            ("crates/a/src/b/tests/c.rs", true),
            ("crates/a/src/testing.rs", false),
            ("crates/a/src/contests.rs", false),
        ];
        for (path, is_test) in cases {
            let source = Source { path: path.to_owned(), text: String::new() };
            assert_eq!(source.is_test(), is_test, "{path}");
        }
    }
}
