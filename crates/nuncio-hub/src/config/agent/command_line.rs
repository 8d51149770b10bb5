//! Splits a command line into words: quotes and backslashes as in a shell, and nothing else of a shell.
//!
//! Hand-written because its refusals matter most: `./agent | tee log` needs a shell, and without a refusal it
//! would start a program with odd arguments.

use std::{iter::Peekable, str::Chars};

/// Characters with a meaning in a shell where they are not quoted.
const OPERATORS: &[char] = &['|', '&', ';', '<', '>', '(', ')', '$', '`', '\n'];

/// The words of a line; at least one.
///
/// # Errors
/// Describes the mistake in the line.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace() && *c != '\n').is_some() {}
        if chars.peek().is_none() {
            break;
        }
        words.push(word(&mut chars)?);
    }
    match words.first().map(String::as_str) {
        None | Some("") => Err("expected a program and its arguments".to_owned()),
        Some(_) => Ok(words),
    }
}

fn word(chars: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut word = String::new();
    if chars.peek() == Some(&'~') {
        return Err(no_shell('~'));
    }
    while let Some(c) = chars.next_if(|c| !c.is_whitespace() || *c == '\n') {
        match c {
            '\'' => quoted(chars, &mut word)?,
            '"' => double_quoted(chars, &mut word)?,
            '\\' => word.push(chars.next().ok_or("a backslash at the end escapes nothing")?),
            operator if OPERATORS.contains(&operator) => return Err(no_shell(operator)),
            other => word.push(other),
        }
    }
    Ok(word)
}

fn quoted(chars: &mut Peekable<Chars<'_>>, word: &mut String) -> Result<(), String> {
    loop {
        match chars.next().ok_or("a single quote (') is not closed; add its closing quote")? {
            '\'' => return Ok(()),
            c => word.push(c),
        }
    }
}

/// Keeps `$NAME` as it is: it may be meant for `sh -c "…"`.
fn double_quoted(chars: &mut Peekable<Chars<'_>>, word: &mut String) -> Result<(), String> {
    const OPEN: &str = "a double quote (\") is not closed; add its closing quote";
    loop {
        match chars.next().ok_or(OPEN)? {
            '"' => return Ok(()),
            '\\' => match chars.next().ok_or(OPEN)? {
                c @ ('"' | '\\' | '$' | '`') => word.push(c),
                other => word.extend(['\\', other]),
            },
            c => word.push(c),
        }
    }
}

fn no_shell(character: char) -> String {
    format!(
        "{character:?} means something to a shell only, and no shell is started; quote it, or write sh -c '…'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_as_a_shell_reads_them() {
        for (line, expected) in [
            ("./agent", &["./agent"][..]),
            ("  ./agent \t --fast  ", &["./agent", "--fast"]),
            ("a 'b c' \"d e\"", &["a", "b c", "d e"]),
            (r#"a'b'"c"d"#, &["abcd"]),
            ("a '' \"\"", &["a", "", ""]),
            (r"my\ agent \'x\'", &["my agent", "'x'"]),
            (r#""a\"b\\c\d\$e""#, &[r#"a"b\c\d$e"#]),
            (r"'a\b'", &[r"a\b"]),
            (r#"sh -c "echo $HOME | wc -c""#, &["sh", "-c", "echo $HOME | wc -c"]),
            ("sh -c 'a; b > c'", &["sh", "-c", "a; b > c"]),
            ("agent #1 a=b * ? {x} [y] a~b !", &["agent", "#1", "a=b", "*", "?", "{x}", "[y]", "a~b", "!"]),
            ("größe 'ß'", &["größe", "ß"]),
        ] {
            assert_eq!(split(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn what_is_no_command_says_why() {
        for (line, why) in [
            ("", "expected a program"),
            ("   ", "expected a program"),
            ("'' x", "expected a program"),
            ("a 'b", "(') is not closed"),
            ("a \"b", "(\") is not closed"),
            ("a \"b\\", "(\") is not closed"),
            ("a \\", "escapes nothing"),
            ("a | b", "'|' means something to a shell only"),
            ("a&", "sh -c '…'"),
            ("a; b", "';'"),
            ("a > b", "'>'"),
            ("a < b", "'<'"),
            ("a $HOME", "'$'"),
            ("a `b`", "'`'"),
            ("a (b)", "'('"),
            ("~/agent", "'~'"),
            ("a\nb", "'\\n'"),
        ] {
            let error = split(line).unwrap_err();
            assert!(error.contains(why), "{line}: expected {why:?} in {error:?}");
        }
    }
}
