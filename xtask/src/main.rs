//! Chores of the repository that need more than a shell line: `cargo xtask <chore>`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a chore reports to the terminal")]

mod api;
mod codegen;
mod supply;
mod tidy;

#[cfg(test)]
mod facts;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <chore>

  api               list the public API of the SDK crates in docs/api/
  api --check       fail if what is committed is not the public API
  codegen           make the protobuf messages and the descriptor set from proto/
  codegen --check   fail if what is committed is not what codegen makes
  supply            check licenses, bans and sources of all dependencies against deny.toml, offline
  tidy              check the house rules that clippy cannot see";

/// Chores only report; nobody branches on what went wrong.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<()> {
    match args {
        ["api"] => api::write(&root()?),
        ["api", "--check"] => api::check(&root()?),
        ["codegen"] => codegen::write(&root()?),
        ["codegen", "--check"] => codegen::check(&root()?),
        ["supply"] => supply::run(&root()?),
        ["tidy"] => tidy::run(&root()?),
        _ => Err(USAGE.into()),
    }
}

/// The root of the workspace: chores work from any folder.
///
/// Asked of cargo at run time. A path compiled in would be that of another checkout, if two share a
/// target folder.
fn root() -> Result<PathBuf> {
    let xtask = std::env::var("CARGO_MANIFEST_DIR").map_err(|_| "start me as `cargo xtask`")?;
    let root = Path::new(&xtask).parent().ok_or("xtask is not inside a workspace")?;
    Ok(root.to_owned())
}
