//! `nuncio`: `serve` starts the hub, `listen` receives notifications, `store`, `init`, `check` and parts of `config` and
//! `card` work offline, every other command is a client of a hub or an agent.

mod args;
mod command;
mod exit;
mod log;
mod output;

use std::process::ExitCode;

/// For many small, short-lived values (decision 0013).
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let args = match args::parse() {
        Ok(args) => args,
        Err(error) => {
            let format = args::format_of(std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()));
            return exit::report_usage(&error, format);
        }
    };
    let format = args.output;
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&anyhow::Error::new(error).context("cannot start"), format),
    };
    match runtime.block_on(command::run(args)) {
        Ok(code) => code,
        Err(error) => exit::report(&error, format),
    }
}
