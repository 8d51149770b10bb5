//! Checks the house rules that clippy cannot see.
//!
//! A rule looks at one file, or at all of them, and says what is wrong and what to do. An exception is a line
//! in one of the lists below or in `tidy/back_edges.txt`, with its reason; nothing can be switched off from
//! the file itself.

mod citations;
mod cycles;
mod imports;
mod prose;
mod seeds;
mod source;
mod tokens;

#[cfg(test)]
mod tests;

use std::path::Path;

use self::source::Source;
use crate::Result;

/// A rule: what it guards, and how.
struct Rule {
    name: &'static str,
    check: fn(&Source) -> Vec<Finding>,
}

/// A rule about the files together.
struct TreeRule {
    name: &'static str,
    check: fn(&[Source]) -> Vec<Violation<'_>>,
}

/// A finding and the file in which it is.
struct Violation<'a> {
    path: &'a str,
    finding: Finding,
}

/// A line that breaks a rule.
struct Finding {
    line: usize,
    /// The violation and its remedy.
    advice: String,
}

const RULES: [Rule; 10] = [
    Rule { name: "file-ceiling", check: file_ceiling },
    Rule { name: "module-doc", check: module_doc },
    Rule { name: "protocol-without-io", check: protocol_without_io },
    Rule { name: "old-version-words", check: old_version_words },
    Rule { name: "one-caller-of-commit", check: one_caller_of_commit },
    Rule { name: "typed-answers", check: typed_answers },
    Rule { name: "one-table-of-kinds", check: one_table_of_kinds },
    Rule { name: "nothing-unfinished", check: nothing_unfinished },
    Rule { name: "sources-of-our-own", check: sources_of_our_own },
    Rule { name: "named-columns", check: named_columns },
];

const TREE_RULES: [TreeRule; 4] = [
    TreeRule { name: "citation", check: citations::check },
    TreeRule { name: "module-cycle", check: cycles::check },
    TreeRule { name: "plain-comments", check: prose::check },
    TreeRule { name: "seed-row", check: seeds::check },
];

/// Longest file, without its tests.
const MAX_FILE_LINES: usize = 700;

/// Files over the ceiling, each with the reason why it is not split.
const OVERSIZE: [(&str, &str); 0] = [];

/// Crates that would bring I/O, a runtime or a clock into the protocol crate, alone or as a family (`tokio-util`).
const IO_CRATES: [&str; 4] = ["tokio", "hyper", "axum", "reqwest"];

/// The words by which code names the old version of the protocol.
const OLD_VERSION_WORDS: [&str; 3] = ["v03", "V03", "\"0.3\""];

/// The home of the old version.
const OLD_VERSION_HOME: &str = "crates/nuncio-protocol/src/v03";

/// Files that may name the old version, each with its reason.
const OLD_VERSION_SELECTORS: [(&str, &str); 12] = [
    ("crates/nuncio-protocol/src/lib.rs", "declares the module"),
    ("crates/nuncio-protocol/src/version.rs", "parses the version from the wire"),
    ("crates/nuncio-server/src/bind/version.rs", "selects the dialect of a request"),
    ("crates/nuncio-server/src/push/payload.rs", "selects the dialect of a webhook"),
    ("crates/nuncio-client/src/choose.rs", "selects the dialect of an agent"),
    ("crates/nuncio-audit/src/interface.rs", "selects the dialect of an audited interface"),
    ("crates/nuncio-hub/src/agents/demo/conformance.rs", "has a profile for the test kit of that version"),
    ("crates/nuncio-hub/src/config/agent/demo.rs", "has the word for that profile"),
    ("crates/nuncio-hub/src/config/agent/mailbox.rs", "has the words for the format of deliveries"),
    ("crates/nuncio-hub/src/config/agent/mod.rs", "reads the version to speak from a file"),
    ("crates/nuncio/src/args.rs", "takes the version to speak from the command line"),
    ("crates/nuncio/src/args/options.rs", "takes that profile from the command line"),
];

/// The file that commits, and the folders that implement and test commits.
const COMMIT_CALLER: &str = "crates/nuncio-server/src/runtime/journal.rs";
const COMMIT_HOME: &str = "crates/nuncio-server/src/store";

/// The commands, which read answers of the administration API by its types.
const COMMANDS: &str = "crates/nuncio/src";
/// The enum of all kinds of agents, the table that tells them apart, and the settings that it is read into.
const AGENT_KIND: &str = "AgentKind";
const KIND_TABLE: &str = "crates/nuncio-hub/src/agents/mod.rs";
const KIND_HOME: &str = "crates/nuncio-hub/src/config";

/// Joined here, so that this file does not break its own rule.
const UNFINISHED_WORDS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const UNFINISHED_MACRO: &str = concat!("to", "do!(");

/// Papers that are not part of the repository, so that a citation of them leads nowhere.
const FOREIGN_PAPERS: [&str; 2] = [concat!("fact ", "sheet"), concat!("product ", "decision")];

/// Prints every violation in the repository; fails if there is one.
pub(crate) fn run(root: &Path) -> Result<()> {
    let sources = source::read_all(root)?;
    let mut violations: Vec<String> = sources.iter().flat_map(violations).collect();
    violations.extend(tree_violations(&sources));
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => Ok(()),
        count => Err(format!("tidy: {count} to put right").into()),
    }
}

fn violations(source: &Source) -> Vec<String> {
    let mut violations = Vec::new();
    for rule in RULES {
        for Finding { line, advice } in (rule.check)(source) {
            violations.push(format!("{}:{line}: {advice} [{}]", source.path, rule.name));
        }
    }
    violations
}

fn tree_violations(sources: &[Source]) -> Vec<String> {
    let mut violations = Vec::new();
    for rule in TREE_RULES {
        for Violation { path, finding: Finding { line, advice } } in (rule.check)(sources) {
            violations.push(format!("{path}:{line}: {advice} [{}]", rule.name));
        }
    }
    violations
}

fn file_ceiling(source: &Source) -> Vec<Finding> {
    let exempt = source.is_generated() || source.is_test() || lists(&OVERSIZE, &source.path);
    if !source.is_rust() || exempt || source.body_len() <= MAX_FILE_LINES {
        return Vec::new();
    }
    let advice = format!(
        "{} lines without tests, the ceiling is {MAX_FILE_LINES}; split the file by its nouns, \
         or list it in OVERSIZE with a reason",
        source.body_len()
    );
    vec![Finding { line: MAX_FILE_LINES + 1, advice }]
}

fn module_doc(source: &Source) -> Vec<Finding> {
    let applies = source.is_rust() && source.is_under("crates") && !source.is_generated();
    if !applies || source.text.starts_with("//!") {
        return Vec::new();
    }
    let advice = "no module doc; begin the file with `//!` and say its job in one sentence".to_owned();
    vec![Finding { line: 1, advice }]
}

fn protocol_without_io(source: &Source) -> Vec<Finding> {
    if source.path != "crates/nuncio-protocol/Cargo.toml" {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut section = "";
    for (line, text) in (1..).zip(source.text.lines().map(str::trim)) {
        // A dependency is a key of `[dependencies]` or has a section of its own, `[dependencies.name]`.
        let (table, key) = match text.strip_prefix('[').and_then(|header| header.strip_suffix(']')) {
            Some(header) => {
                section = header;
                header.rsplit_once('.').unwrap_or((header, ""))
            }
            None => (section, text),
        };
        let is_dependency = table.ends_with("dependencies") && !table.ends_with("dev-dependencies");
        let family = key.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        if is_dependency && IO_CRATES.contains(&family) {
            let advice = format!(
                "the protocol does no I/O and must not depend on {family}; move what needs it outwards"
            );
            findings.push(Finding { line, advice });
        }
    }
    findings
}

fn old_version_words(source: &Source) -> Vec<Finding> {
    let allowed = source.is_under(OLD_VERSION_HOME)
        || source.is_test()
        || source.is_generated()
        || lists(&OLD_VERSION_SELECTORS, &source.path);
    if !source.is_rust() || !source.is_under("crates") || allowed {
        return Vec::new();
    }
    let body_len = source.body_len();
    let body = source.code().into_iter().filter(|(line, _)| *line <= body_len);
    body.filter_map(|(line, code)| {
        let word = OLD_VERSION_WORDS.into_iter().find(|word| code.contains(word))?;
        let advice = format!(
            "names the old version ({word}); go through `Dialect` or `Version`, \
             or list the file in OLD_VERSION_SELECTORS with a reason"
        );
        Some(Finding { line, advice })
    })
    .collect()
}

fn one_caller_of_commit(source: &Source) -> Vec<Finding> {
    let allowed = source.path == COMMIT_CALLER || source.is_under(COMMIT_HOME);
    if !source.is_rust() || !source.is_under("crates") || allowed {
        return Vec::new();
    }
    let calls = source.code().into_iter().filter(|(_, code)| calls_commit(code));
    let advice = "calls `Store::commit`; every change of a task goes through `record` in runtime/journal.rs";
    calls.map(|(line, _)| Finding { line, advice: advice.to_owned() }).collect()
}

/// A `commit()` without arguments ends a database transaction and is nobody's business here.
fn calls_commit(code: &str) -> bool {
    [".commit(", "Store::commit("]
        .into_iter()
        .any(|call| code.match_indices(call).any(|(at, _)| !code[at + call.len()..].starts_with(')')))
}

fn typed_answers(source: &Source) -> Vec<Finding> {
    if !source.is_rust() || !source.is_under(COMMANDS) || source.is_test() {
        return Vec::new();
    }
    let body_len = source.body_len();
    let code = source.code().into_iter().filter(|(line, code)| *line <= body_len && indexes_by_name(code));
    let advice =
        "reads JSON by the name of a member; use the types of `nuncio_hub::admin::api` or of the protocol";
    code.map(|(line, _)| Finding { line, advice: advice.to_owned() }).collect()
}

/// Whether a value is indexed by a string, as in `answer["keys"]`; a list such as `&["keys"]` is none.
fn indexes_by_name(code: &str) -> bool {
    let is_value = |c: char| c.is_alphanumeric() || matches!(c, '_' | ')' | ']' | '?');
    code.contains(".pointer(")
        || code.match_indices("[\"").any(|(at, _)| code[..at].chars().next_back().is_some_and(is_value))
}

fn one_table_of_kinds(source: &Source) -> Vec<Finding> {
    let allowed = source.path == KIND_TABLE || source.is_under(KIND_HOME) || source.is_test();
    if !source.is_rust() || !source.is_under("crates") || allowed {
        return Vec::new();
    }
    let body_len = source.body_len();
    let tokens = tokens::tokens(&source.text);
    let names_variant = |at: usize| {
        let is_kind = tokens::text(&tokens, at) == AGENT_KIND;
        is_kind && matches!(tokens::text(&tokens, at + 1), "::" | "as") && tokens[at].line <= body_len
    };
    let advice = format!(
        "tells kinds of agents apart; give the trait `Kind` a method for it, or make the settings by `From`: \
         a variant of `{AGENT_KIND}` is named in {KIND_TABLE} and in {KIND_HOME} only"
    );
    let found = (0..tokens.len()).filter(|&at| names_variant(at));
    found.map(|at| Finding { line: tokens[at].line, advice: advice.clone() }).collect()
}

fn nothing_unfinished(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        let word = UNFINISHED_WORDS.into_iter().find(|word| has_word(text, word));
        let found = word.or_else(|| text.contains(UNFINISHED_MACRO).then_some(UNFINISHED_MACRO));
        if let Some(found) = found {
            let advice = format!("`{found}` marks unfinished work; finish it, or write it down as an issue");
            findings.push(Finding { line, advice });
        }
    }
    findings
}

fn sources_of_our_own(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        let text = text.to_lowercase();
        if let Some(paper) = FOREIGN_PAPERS.into_iter().find(|paper| text.contains(paper)) {
            let advice = format!(
                "cites a {paper}, which is not in this repository; cite a row of docs/requirements.md, \
                 a decision, or a section of docs/protocol-notes.md"
            );
            findings.push(Finding { line, advice });
        }
    }
    findings
}

/// Tables in Markdown have a header, and each of its cells a name.
fn named_columns(source: &Source) -> Vec<Finding> {
    if !source.path.ends_with(".md") {
        return Vec::new();
    }
    let lines: Vec<&str> = source.text.lines().collect();
    let is_rule = |line: &str| {
        line.starts_with("|-")
            || line.starts_with("|:-")
            || line.starts_with("| -")
            || line.starts_with("| :-")
    };
    let cells = |line: &'_ str| line.trim().trim_matches('|').split('|').any(|cell| cell.trim().is_empty());
    let headers = lines.windows(2).zip(1..).filter(|(pair, _)| is_rule(pair[1]) && cells(pair[0]));
    let advice = "a column of this table has no name; write the word for its cells into the header";
    headers.map(|(_, line)| Finding { line, advice: advice.to_owned() }).collect()
}

/// Whether `word` stands alone in `text`, not inside a longer word or an encoded blob.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

fn lists(exceptions: &[(&str, &str)], path: &str) -> bool {
    exceptions.iter().any(|(listed, _reason)| *listed == path)
}
