//! Checks every dependency against `deny.toml`: its license, whether it is banned, and its source.
//!
//! These are the checks of `cargo deny check licenses bans sources` that need nothing but the lock file and the
//! manifests. They are here because the tool itself takes longer to build than the project.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use serde::Deserialize;
use spdx::{Expression, LicenseReq, ParseMode};

use crate::Result;

/// The part of `deny.toml` that is checked here.
#[derive(Deserialize)]
struct Policy {
    bans: Bans,
    licenses: Licenses,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Banned>,
}

#[derive(Deserialize)]
struct Banned {
    name: String,
    reason: String,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

/// A package that something of the workspace compiles.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// A path or a repository; `None` for the package registry.
    source: Option<String>,
}

/// Prints every violation; fails if there is one.
pub(crate) fn run(root: &Path) -> Result<()> {
    let policy: Policy = toml::from_str(&fs::read_to_string(root.join("deny.toml"))?)?;
    let packages = packages(root)?;
    let violations: Vec<String> = packages.iter().flat_map(|package| violations(&policy, package)).collect();
    for violation in &violations {
        println!("{violation}");
    }
    if !violations.is_empty() {
        return Err(format!("{} violations of deny.toml", violations.len()).into());
    }
    println!("{} packages: licenses, bans and sources as deny.toml says", packages.len());
    Ok(())
}

/// Every package that any target, platform or feature of the workspace compiles. Cargo's metadata also has those that
/// no feature turns on, its tree has not.
fn packages(root: &Path) -> Result<BTreeSet<Package>> {
    let output = Command::new("cargo")
        .args(["tree", "--locked", "--workspace", "--all-features", "--target", "all", "--edges", "all"])
        .args(["--prefix", "none", "--format", "{p}\t{l}\t"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let lines = String::from_utf8(output.stdout)?;
    Ok(lines.lines().filter_map(package).collect())
}

/// Reads a line such as `name v1.0.0 (source)`, tab, license, tab. A name without a version is one of a feature.
fn package(line: &str) -> Option<Package> {
    let mut fields = line.split('\t');
    let mut words = fields.next()?.splitn(3, ' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    let source =
        words.next().map(|source| source.trim_matches(['(', ')'])).filter(|source| *source != "proc-macro");
    let license = fields.next().filter(|license| !license.is_empty());
    Some(Package {
        name: name.to_owned(),
        version: version.to_owned(),
        license: license.map(str::to_owned),
        source: source.map(|source| source.trim_start_matches("proc-macro) (").to_owned()),
    })
}

fn violations(policy: &Policy, package: &Package) -> Vec<String> {
    let Package { name, version, .. } = package;
    let mut found = Vec::new();
    if let Some(banned) = policy.bans.deny.iter().find(|banned| banned.name == *name) {
        found.push(format!("{name} {version} is banned: {}", banned.reason));
    }
    if let Some(source) = package.source.as_deref().filter(|source| source.contains("://")) {
        found.push(format!("{name} {version} comes from {source}: only the package registry is allowed"));
    }
    if let Some(why) = license_violation(&policy.licenses.allow, package.license.as_deref()) {
        found.push(format!("{name} {version}: {why}"));
    }
    found
}

fn license_violation(allowed: &BTreeSet<String>, license: Option<&str>) -> Option<String> {
    let Some(license) = license else {
        return Some("its manifest names no license".to_owned());
    };
    // Lax: older manifests write MIT/Apache-2.0.
    match Expression::parse_mode(license, ParseMode::LAX) {
        Ok(expression) if expression.evaluate(|required| is_allowed(allowed, required)) => None,
        Ok(_) => Some(format!("its license {license} is not allowed by deny.toml")),
        Err(error) => Some(format!("its license {license} cannot be read: {}", error.reason)),
    }
}

fn is_allowed(allowed: &BTreeSet<String>, required: &LicenseReq) -> bool {
    allowed.contains(&required.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        toml::from_str(
            r#"
            [bans]
            deny = [{ name = "openssl", reason = "one TLS stack" }]
            [licenses]
            allow = ["MIT", "Apache-2.0 WITH LLVM-exception"]
            "#,
        )
        .unwrap()
    }

    #[test]
    fn each_kind_of_violation_is_found() {
        for (line, expected) in [
            ("a v1.0.0\tMIT\t", 0),
            ("a v1.0.0\tMIT\t (*)", 0),
            ("a v1.0.0 (proc-macro)\tMIT\t", 0),
            ("a v1.0.0 (/some/path)\tMIT\t", 0),
            ("a v1.0.0\tGPL-3.0-only OR MIT\t", 0),
            ("a v1.0.0\tGPL-3.0/MIT\t", 0),
            ("a v1.0.0\tApache-2.0 WITH LLVM-exception\t", 0),
            ("a v1.0.0\tApache-2.0\t", 1),
            ("a v1.0.0\tGPL-3.0-only AND MIT\t", 1),
            ("a v1.0.0\tno such license\t", 1),
            ("a v1.0.0\t\t", 1),
            ("a v1.0.0 (https://example.com/a#0123)\tMIT\t", 1),
            ("a v1.0.0 (proc-macro) (https://example.com/a#0123)\tMIT\t", 1),
            ("openssl v1.0.0 (https://example.com/a#0123)\t\t", 3),
        ] {
            let found = violations(&policy(), &package(line).unwrap());
            assert_eq!(found.len(), expected, "{line}: {found:?}");
        }
        assert!(package("a feature \"default\"\t\t").is_none());
    }
}
