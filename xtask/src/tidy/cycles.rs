//! Layers: the top-level modules of a crate import each other in one direction only.
//!
//! The imports are those of the code without its tests. A name that the root of a crate exports counts as
//! an import of the module behind it. The cycles of today are broken by the edges in [`BACK_EDGES`], each of
//! which is to be removed; the list may shrink and must not grow.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    Finding, Violation,
    imports::{Imports, imports},
    source::Source,
};

/// The file of the edges that are still allowed to close a cycle: `crate: from -> to  # imported items`.
pub(super) const BACK_EDGES: &str = "xtask/src/tidy/back_edges.txt";

/// The first import of one module in another.
struct Place<'a> {
    path: &'a str,
    line: usize,
}

/// The edges between the modules of a crate.
type Edges<'a> = BTreeMap<(String, String), Place<'a>>;

/// An edge of the list.
struct BackEdge<'a> {
    krate: &'a str,
    from: &'a str,
    to: &'a str,
    line: usize,
}

/// Reports cycles of modules, and listed edges that are not needed any more.
pub(super) fn check(sources: &[Source]) -> Vec<Violation<'_>> {
    let crates = crates(sources);
    let (listed, mut violations) = back_edges(sources);
    for (krate, files) in &crates {
        let mut edges = edges(files);
        let of_crate: Vec<&BackEdge<'_>> = listed.iter().filter(|edge| edge.krate == *krate).collect();
        let mut left = Vec::new();
        for edge in of_crate {
            match edges.remove(&(edge.from.to_owned(), edge.to.to_owned())) {
                Some(_) => left.push(edge),
                None => violations.push(stale(edge, "is gone")),
            }
        }
        for edge in left {
            if path(&edges, edge.to, edge.from).is_none() {
                violations.push(stale(edge, "closes no cycle any more"));
            }
        }
        violations.extend(cycles(&edges).iter().map(|cycle| describe(&edges, cycle)));
    }
    let unknown = listed.iter().filter(|edge| !crates.contains_key(edge.krate));
    violations.extend(unknown.map(|edge| stale(edge, "is gone with its crate")));
    violations
}

fn stale<'a>(edge: &BackEdge<'_>, reason: &str) -> Violation<'a> {
    let advice = format!("the import {} -> {} {reason}; delete this line", edge.from, edge.to);
    Violation { path: BACK_EDGES, finding: Finding { line: edge.line, advice } }
}

/// The listed edges, and the lines of the list that cannot be read.
fn back_edges(sources: &[Source]) -> (Vec<BackEdge<'_>>, Vec<Violation<'_>>) {
    let list = sources.iter().find(|source| source.path == BACK_EDGES).map_or("", |source| &source.text);
    let mut edges = Vec::new();
    let mut violations = Vec::new();
    for (line, text) in (1..).zip(list.lines()) {
        if text.starts_with('#') || text.trim().is_empty() {
            continue;
        }
        match back_edge(text, line) {
            Some(edge) => edges.push(edge),
            None => {
                let advice = "not an edge: expected `crate: from -> to  # imported items`".to_owned();
                violations.push(Violation { path: BACK_EDGES, finding: Finding { line, advice } });
            }
        }
    }
    (edges, violations)
}

fn back_edge(text: &str, line: usize) -> Option<BackEdge<'_>> {
    let (edge, reason) = text.split_once('#')?;
    let (krate, edge) = edge.split_once(':')?;
    let (from, to) = edge.split_once("->")?;
    (!reason.trim().is_empty()).then_some(BackEdge { krate, from: from.trim(), to: to.trim(), line })
}

/// The Rust files of each crate under `crates/`, tests apart, each with its module.
fn crates(sources: &[Source]) -> BTreeMap<&str, Vec<(&Source, Vec<&str>)>> {
    let mut crates: BTreeMap<&str, Vec<(&Source, Vec<&str>)>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_rust() && !source.is_test()) {
        let Some((krate, file)) =
            source.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        crates.entry(krate).or_default().push((source, module(file)));
    }
    crates
}

/// The module of a file below `src/`; the root has no name.
fn module(file: &str) -> Vec<&str> {
    let mut module: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    let is_root = module == ["lib"] || module == ["main"];
    if is_root || module.last() == Some(&"mod") {
        module.pop();
    }
    module
}

/// Every edge between two top-level modules, with the first import that makes it.
fn edges<'a>(files: &[(&'a Source, Vec<&'a str>)]) -> Edges<'a> {
    let read: Vec<(&Source, &[&str], Imports)> =
        files.iter().map(|(source, module)| (*source, &**module, imports(source, module))).collect();
    let modules: BTreeSet<&str> = files.iter().filter_map(|(_, module)| module.first().copied()).collect();
    let mut exports = BTreeMap::new();
    let mut test_modules = Vec::new();
    for (_, module, imports) in &read {
        if module.is_empty() {
            exports.extend(imports.imports.iter().map(|import| (&import.name, &import.path[0])));
        }
        let in_this = |name: &String| [*module, &[name.as_str()]].concat().join("::");
        test_modules.extend(imports.test_modules.iter().map(in_this));
    }
    let mut edges = Edges::new();
    for (source, module, imports) in &read {
        let name = module.join("::");
        let is_test = test_modules.iter().any(|test| name == *test || name.starts_with(&format!("{test}::")));
        let Some(from) = module.first().filter(|_| !is_test) else { continue };
        for import in &imports.imports {
            let first = &import.path[0];
            let to = if modules.contains(&**first) { Some(&first) } else { exports.get(first) };
            let Some(to) = to.filter(|to| to.as_str() != *from && modules.contains(to.as_str())) else {
                continue;
            };
            let place = Place { path: &source.path, line: import.line };
            edges.entry(((*from).to_owned(), (**to).clone())).or_insert(place);
        }
    }
    edges
}

/// The shortest cycle of every strongly connected component, as the modules on it.
fn cycles(edges: &Edges<'_>) -> Vec<Vec<String>> {
    let mut cycles = Vec::new();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let modules: BTreeSet<&str> = edges.keys().map(|(from, _)| from.as_str()).collect();
    for &module in &modules {
        if done.contains(module) || path(edges, module, module).is_none() {
            continue;
        }
        let is_connected =
            |other: &str| path(edges, module, other).is_some() && path(edges, other, module).is_some();
        let component: Vec<&str> = modules.iter().copied().filter(|other| is_connected(other)).collect();
        cycles.extend(component.iter().filter_map(|member| path(edges, member, member)).min_by_key(Vec::len));
        done.extend(component);
    }
    cycles
}

/// The shortest path from one module to another along at least one edge, with both ends.
fn path(edges: &Edges<'_>, from: &str, to: &str) -> Option<Vec<String>> {
    let mut paths = VecDeque::from([vec![from.to_owned()]]);
    let mut seen = BTreeSet::new();
    while let Some(path) = paths.pop_front() {
        let last = path.last()?;
        for (_, next) in edges.keys().filter(|(start, _)| start == last) {
            let longer = [path.as_slice(), std::slice::from_ref(next)].concat();
            if next == to {
                return Some(longer);
            }
            if seen.insert(next) {
                paths.push_back(longer);
            }
        }
    }
    None
}

fn describe<'a>(edges: &Edges<'a>, cycle: &[String]) -> Violation<'a> {
    let steps = cycle.windows(2).filter_map(|step| {
        let place = edges.get(&(step[0].clone(), step[1].clone()))?;
        Some((place, format!("{} imports {} ({}:{})", step[0], step[1], place.path, place.line)))
    });
    let (places, words): (Vec<&Place<'_>>, Vec<String>) = steps.unzip();
    let advice = format!(
        "module cycle: {}; remove one of these imports: move the shared item into a module below them, \
         or pass it as a parameter",
        words.join(", ")
    );
    let (path, line) = places.first().map_or((BACK_EDGES, 1), |place| (place.path, place.line));
    Violation { path, finding: Finding { line, advice } }
}
