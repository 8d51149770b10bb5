//! `nuncio completion` and `nuncio man`, generated from the command line.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use crate::{
    args::{Args, Completion, Man},
    exit, output,
};

const NAME: &str = "nuncio";

pub(super) fn complete(completion: &Completion) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(completion.shell, &mut Args::command(), NAME, &mut script);
    output::bytes(&script)?;
    Ok(ExitCode::from(exit::OK))
}

pub(super) fn man(man: &Man) -> Result<ExitCode> {
    let Some(directory) = &man.directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Args::command()).render(&mut page)?;
        output::bytes(&page)?;
        return Ok(ExitCode::from(exit::OK));
    };
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Args::command(), directory))
        .with_context(|| format!("cannot write the manual pages to {}", directory.display()))?;
    Ok(ExitCode::from(exit::OK))
}
