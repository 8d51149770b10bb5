//! The layout of a file: spaces, indents and blank lines in one form. Keys, values and comments stay as they are, and
//! where they are.
//!
//! | Part | Form |
//! |---|---|
//! | keys and values | one space around `=`, none around the dots of a key |
//! | tables | one blank line before a table and the comment above it |
//! | lists, inline tables | one space after a comma; `[a, b]`, `{ a = 1 }`; further lines by four spaces |
//! | comments | on a line of their own, or two spaces after a value |
//! | blank lines | one at most, none at either end of the file |

use std::{path::Path, sync::Arc};

use toml_parser::{
    Source,
    lexer::{Token, TokenKind},
};

use super::{
    parse::parse,
    problem::Problems,
    tree::{Node, SourceText},
};

/// The indent of a line within brackets, per bracket.
const INDENT: &str = "    ";

/// The text of a configuration file in the usual layout.
///
/// # Errors
/// Mistakes of syntax, with their places in the file at `path`.
pub fn format(path: &Path, text: &str) -> Result<String, Problems> {
    let file = Arc::new(SourceText { path: path.to_owned(), text: text.to_owned() });
    let mut problems = Vec::new();
    let _: Node = parse(&file, &mut problems);
    if problems.is_empty() { Ok(layout(text)) } else { Err(Problems(problems)) }
}

fn layout(text: &str) -> String {
    let mut writer = LayoutWriter::default();
    for token in Source::new(text).lex() {
        match token.kind() {
            TokenKind::Eof => break,
            TokenKind::Whitespace => writer.has_space = true,
            TokenKind::Newline => writer.end_line(),
            _ => writer.token(token, text.get(token.span().start()..token.span().end()).unwrap_or_default()),
        }
    }
    if !writer.out.is_empty() && writer.last.is_some() {
        writer.out.push('\n');
    }
    writer.out
}

#[derive(Default)]
struct LayoutWriter {
    out: String,
    /// The last token of this line; `None` at its beginning.
    last: Option<TokenKind>,
    /// There was white space since the last token.
    has_space: bool,
    /// The line is a key and its value, and no table.
    has_value: bool,
    /// The open brackets of a value.
    depth: usize,
    /// The blank lines above this line.
    blank_lines: usize,
    /// The first of the comment lines right above this line.
    comments: Option<usize>,
}

impl LayoutWriter {
    fn end_line(&mut self) {
        if self.last.take().is_none() {
            self.blank_lines += 1;
        } else {
            self.out.push('\n');
        }
        self.has_space = false;
        self.has_value &= self.depth > 0;
    }

    fn token(&mut self, token: Token, text: &str) {
        let kind = token.kind();
        match self.last {
            Some(last) => self.out.push_str(self.between(last, kind)),
            None => self.begin_line(kind),
        }
        self.out.push_str(if kind == TokenKind::Comment { text.trim_end() } else { text });
        match kind {
            TokenKind::Equals => self.has_value = true,
            _ if !self.has_value => {}
            _ if is_opening(kind) => self.depth += 1,
            _ if is_closing(kind) => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        (self.last, self.has_space) = (Some(kind), false);
    }

    fn begin_line(&mut self, kind: TokenKind) {
        let is_table = kind == TokenKind::LeftSquareBracket && self.depth == 0;
        let ends_bracket = is_closing(kind) && self.depth > 0;
        let follows_bracket = self.depth > 0 && self.out.trim_end().ends_with(['[', '{']);
        if self.blank_lines > 0 && !self.out.is_empty() && !ends_bracket && !follows_bracket {
            self.out.push('\n');
            self.comments = None;
        }
        if is_table {
            // Its comment is part of it.
            let at = self.comments.unwrap_or(self.out.len());
            if at > 0 && !self.out[..at].ends_with("\n\n") {
                self.out.insert(at, '\n');
            }
        }
        self.blank_lines = 0;
        self.comments = (kind == TokenKind::Comment).then(|| self.comments.unwrap_or(self.out.len()));
        let indent = self.depth - usize::from(ends_bracket);
        self.out.push_str(&INDENT.repeat(indent));
    }

    /// The space between two tokens of a line.
    fn between(&self, last: TokenKind, next: TokenKind) -> &'static str {
        use TokenKind::{
            Comma, Comment, Dot, Equals, LeftCurlyBracket, LeftSquareBracket, RightCurlyBracket,
            RightSquareBracket,
        };
        match (last, next) {
            (_, Comment) => "  ",
            (LeftCurlyBracket, RightCurlyBracket) => "",
            (LeftCurlyBracket, _) | (_, RightCurlyBracket) => " ",
            (LeftSquareBracket, _) | (_, RightSquareBracket | Comma) | (Dot, _) | (_, Dot) => "",
            (Equals | Comma, _) | (_, Equals) => " ",
            // A date and its time.
            _ if self.has_space => " ",
            _ => "",
        }
    }
}

fn is_opening(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket)
}

fn is_closing(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::RightSquareBracket | TokenKind::RightCurlyBracket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::init;

    /// All that a file says: its tokens without spaces and blank lines.
    fn said(text: &str) -> Vec<String> {
        let tokens = Source::new(text).lex().filter(|token| {
            !matches!(token.kind(), TokenKind::Whitespace | TokenKind::Newline | TokenKind::Eof)
        });
        let text = |token: Token| text[token.span().start()..token.span().end()].trim_end().to_owned();
        tokens.map(text).collect()
    }

    fn check(text: &str, expected: &str) {
        let formatted = format(Path::new("nuncio.toml"), text).unwrap();
        assert_eq!(formatted, expected);
        assert_eq!(format(Path::new("nuncio.toml"), &formatted).unwrap(), expected, "it stays so");
        assert_eq!(said(text), said(&formatted));
    }

    #[test]
    fn a_file_in_the_usual_layout() {
        check("", "");
        check("\n\n  # nothing  \n\n\n", "# nothing\n");
        check("demo=true", "demo = true\n");
        check("\u{feff}demo = true\r\nlisten  =\t'x'   # why\r\n", "demo = true\nlisten = 'x'  # why\n");
        check("a . b.\"c d\" =1.5\n", "a.b.\"c d\" = 1.5\n");
        check("t = 1979-05-27 07:32:00Z\n", "t = 1979-05-27 07:32:00Z\n");
        check(
            "demo = true\n[ agents . a ]\n  url=\"x\"\n\n\n[[ identity.jwt ]]\nissuer = 'y'\n",
            "demo = true\n\n[agents.a]\nurl = \"x\"\n\n[[identity.jwt]]\nissuer = 'y'\n",
        );
        check("a = 1\n# of b\n  # and more\n[b]\nc=2\n", "a = 1\n\n# of b\n# and more\n[b]\nc = 2\n");
        check("a = 1\n# of a\n\n[b]\n", "a = 1\n# of a\n\n[b]\n");
        check(
            "a=[1,2 ,3]\nb={}\nc={x=1,y=[ {z=2} ]}\nd=[]\n",
            "a = [1, 2, 3]\nb = {}\nc = { x = 1, y = [{ z = 2 }] }\nd = []\n",
        );
        check(
            "a = [\n\n 1, # one\n  # two\n 2,\n  [3,\n4],\n\n]\n",
            "a = [\n    1,  # one\n    # two\n    2,\n    [3,\n        4],\n]\n",
        );
        check("a = \"\"\"\n  keep  \n\n\nthis\"\"\"\nb=1\n", "a = \"\"\"\n  keep  \n\n\nthis\"\"\"\nb = 1\n");
        check(&init(), &init());
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_place() {
        let problems = format(Path::new("nuncio.toml"), "demo = true\nlisten = \n").unwrap_err();
        assert!(problems.to_string().starts_with("nuncio.toml:2:"), "{problems}");
    }
}
