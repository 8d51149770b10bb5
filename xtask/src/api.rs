//! Lists the public API of the SDK crates, one line per item, so that a break is seen in review.
//!
//! The listing is read from the pages that rustdoc writes: they know what is reachable, what macros and derives
//! make, and every signature. The machine-readable form of rustdoc would need a nightly compiler.

mod page;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

/// The crates that others build on.
const CRATES: [&str; 3] = ["nuncio-protocol", "nuncio-client", "nuncio-server"];

/// The folder of the listings.
const FOLDER: &str = "docs/api";

/// Writes every listing.
pub(crate) fn write(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join(FOLDER))?;
    for (path, listing) in listings(root)? {
        fs::write(root.join(&path), listing)?;
        println!("wrote {path}");
    }
    Ok(())
}

/// Fails if a listing differs from what [`write`] would put there, and shows the lines that do.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut stale = false;
    for (path, listing) in listings(root)? {
        let committed = fs::read_to_string(root.join(&path)).unwrap_or_default();
        for line in difference(&committed, &listing) {
            println!("{path}: {line}");
            stale = true;
        }
    }
    if stale {
        return Err("the public API has changed: run `cargo xtask api`, commit what it writes, \
                    and add a line to CHANGELOG.md for what breaks"
            .into());
    }
    Ok(())
}

/// The lines that went (`-`) and came (`+`).
fn difference(old: &str, new: &str) -> Vec<String> {
    let (before, after): (BTreeSet<&str>, BTreeSet<&str>) = (old.lines().collect(), new.lines().collect());
    let gone = before.difference(&after).map(|line| format!("- {line}"));
    gone.chain(after.difference(&before).map(|line| format!("+ {line}"))).collect()
}

/// Every listing, with its path from the root.
fn listings(root: &Path) -> Result<Vec<(String, String)>> {
    // The selection of `scripts/test`, so that the documentation is made once.
    let made = Command::new("cargo")
        .args(["doc", "--workspace", "--no-deps", "--lib"])
        .current_dir(root)
        .status()?;
    if !made.success() {
        return Err("cargo doc failed: see above".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    CRATES
        .into_iter()
        .map(|name| {
            let lines = listing(&target.join("doc").join(name.replace('-', "_")))?;
            Ok((format!("{FOLDER}/{name}.txt"), lines.into_iter().map(|line| line + "\n").collect()))
        })
        .collect()
}

/// The lines of a crate, from the folder of its pages.
fn listing(doc: &Path) -> Result<BTreeSet<String>> {
    let mut lines = BTreeSet::new();
    // The index of all items is of this build; pages of items that are gone may still lie about.
    let mut pages = page::links(&fs::read_to_string(doc.join("all.html"))?);
    let folders: BTreeSet<String> =
        pages.iter().map(|page| page.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned()).collect();
    pages.extend(
        folders.iter().map(|folder| format!("{folder}/index.html").trim_start_matches('/').to_owned()),
    );
    for page in pages {
        let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder).replace('/', "::");
        let place = if folder.is_empty() { String::new() } else { format!("{folder}::") };
        let html = fs::read_to_string(doc.join(&page))?;
        lines.extend(page::lines(&page, &html).into_iter().map(|line| place.clone() + &line));
    }
    Ok(lines)
}
