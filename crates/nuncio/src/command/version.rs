//! `nuncio version`: this program, its build and the protocol that it speaks.

use std::{env::consts, process::ExitCode};

use anyhow::Result;
use nuncio_protocol::{Binding, Version};
use serde::Serialize;

use super::pages::fields;
use crate::output::{self, Format};

/// The features that a build may lack.
const FEATURES: &[(&str, bool)] = &[("jemalloc", cfg!(feature = "jemalloc"))];

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Program {
    version: &'static str,
    build: Build,
    features: Vec<&'static str>,
    protocol_versions: Vec<&'static str>,
    bindings: Vec<&'static str>,
}

#[derive(Serialize)]
struct Build {
    /// The commit that was built; only where the build was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    profile: &'static str,
    os: &'static str,
    arch: &'static str,
}

pub(super) fn run(format: Format) -> Result<ExitCode> {
    let program = Program {
        version: env!("CARGO_PKG_VERSION"),
        build: Build {
            commit: option_env!("NUNCIO_COMMIT").filter(|commit| !commit.is_empty()),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" },
            os: consts::OS,
            arch: consts::ARCH,
        },
        features: FEATURES.iter().filter(|(_, is_built)| *is_built).map(|(name, _)| *name).collect(),
        protocol_versions: Version::ALL.iter().map(|version| version.as_str()).collect(),
        bindings: Binding::ALL.iter().map(|binding| binding.as_str()).collect(),
    };
    match format {
        Format::Json => output::json(&program)?,
        Format::Human => show(&program)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(program: &Program) -> Result<()> {
    let Build { commit, profile, os, arch } = &program.build;
    let commit = commit.map(|commit| format!("{commit}, ")).unwrap_or_default();
    fields(&[
        ("nuncio", Some(program.version.to_owned())),
        ("build", Some(format!("{commit}{profile}, {os} {arch}"))),
        ("features", Some(program.features.join(", ")).filter(|names| !names.is_empty())),
        ("A2A", Some(program.protocol_versions.join(", "))),
        ("bindings", Some(program.bindings.join(", "))),
    ])
}
