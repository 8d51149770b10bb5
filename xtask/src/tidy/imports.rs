//! The imports of one Rust file: every path that begins at `crate`, `self` or `super`, outside of tests.

use super::{
    source::Source,
    tokens::{Token, group_end, item_end, text, tokens},
};

/// A path from the root of the crate, with its line.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// The name that a `use` gives it.
    pub(super) name: String,
    pub(super) line: usize,
}

/// The imports of a file, and the modules that it declares for tests only.
#[derive(Default)]
pub(super) struct Imports {
    pub(super) imports: Vec<Import>,
    pub(super) test_modules: Vec<String>,
}

/// Reads the file of a module. The path of the root module is empty.
pub(super) fn imports(source: &Source, module: &[&str]) -> Imports {
    let tokens = tokens(&source.text);
    let mut found = Imports::default();
    let mut module: Vec<String> = module.iter().copied().map(str::to_owned).collect();
    // The ends of the enclosing inline modules.
    let mut ends = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        while ends.last().is_some_and(|end| at >= *end) {
            ends.pop();
            module.pop();
        }
        match text(&tokens, at) {
            "#" if is_for_tests(&tokens, at) => {
                let end = item_end(&tokens, at);
                found.test_modules.extend(declared(&tokens[at..end]));
                at = end;
            }
            "mod" if text(&tokens, at + 2) == "{" => {
                module.push(text(&tokens, at + 1).to_owned());
                ends.push(group_end(&tokens, at + 2));
                at += 3;
            }
            "use" if module.is_empty() => {
                let (leaves, end) = leaves(&tokens, at + 1, &[]);
                found.imports.extend(leaves.into_iter().filter_map(|leaf| resolve(leaf, &module)));
                at = end;
            }
            "crate" | "self" | "super" if begins_path(&tokens, at) => {
                let (leaves, end) = leaves(&tokens, at, &[]);
                found.imports.extend(leaves.into_iter().filter_map(|leaf| resolve(leaf, &module)));
                at = end;
            }
            _ => at += 1,
        }
    }
    found
}

/// Whether the attribute at `at` keeps its item for tests: `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn is_for_tests(tokens: &[Token], at: usize) -> bool {
    let is =
        |words: &[&str]| words.iter().enumerate().all(|(offset, word)| text(tokens, at + offset) == *word);
    is(&["#", "[", "cfg", "(", "test", ")"]) || is(&["#", "[", "cfg", "(", "all", "(", "test", ","])
}

/// The module that an item declares with a file of its own.
fn declared(item: &[Token]) -> Option<String> {
    let at = item.iter().position(|token| token.text == "mod")?;
    (text(item, at + 2) == ";").then(|| text(item, at + 1).to_owned())
}

/// Whether a path begins here. A path in `pub(in …)` is a visibility and imports nothing.
fn begins_path(tokens: &[Token], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map_or("", |at| text(tokens, at));
    let is_visibility = before(1) == "in" && before(2) == "(";
    text(tokens, at + 1) == "::" && before(1) != "::" && !is_visibility
}

/// One path of a use tree, as written.
struct Leaf {
    path: Vec<String>,
    name: String,
    line: usize,
}

/// The paths of the use tree at `at`, and the index after it.
fn leaves(tokens: &[Token], mut at: usize, prefix: &[String]) -> (Vec<Leaf>, usize) {
    let line = tokens.get(at).map_or(0, |token| token.line);
    let mut path = prefix.to_vec();
    loop {
        if text(tokens, at) == "{" {
            let end = group_end(tokens, at);
            let mut all = Vec::new();
            at += 1;
            while at + 1 < end {
                let (branch, next) = leaves(tokens, at, &path);
                all.extend(branch);
                // Past the comma.
                at = next.max(at) + 1;
            }
            return (all, end);
        }
        if !tokens.get(at).is_some_and(Token::is_word) {
            break;
        }
        path.push(text(tokens, at).to_owned());
        at += 1;
        if text(tokens, at) != "::" {
            break;
        }
        at += 1;
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if text(tokens, at) == "as" {
        text(tokens, at + 1).clone_into(&mut name);
        at += 2;
    }
    (vec![Leaf { path, name, line }], at)
}

/// Resolves `crate`, `self` and `super` in a module. A path to the root itself, or beyond it, is no import.
fn resolve(leaf: Leaf, module: &[String]) -> Option<Import> {
    let mut words = leaf.path.into_iter().peekable();
    let mut path = module.to_vec();
    while let Some(step) = words.next_if(|word| ["crate", "self", "super"].contains(&word.as_str())) {
        match step.as_str() {
            "crate" => path.clear(),
            "super" => drop(path.pop()?),
            _ => {}
        }
    }
    path.extend(words);
    (!path.is_empty()).then_some(Import { path, name: leaf.name, line: leaf.line })
}
