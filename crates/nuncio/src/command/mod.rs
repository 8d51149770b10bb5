//! The commands, a file each.

mod admin;
mod card;
mod delivery;
mod hint;
mod listen;
mod push;
mod send;
mod serve;
mod signals;
mod store;
mod target;
mod task;

use std::process::ExitCode;

use anyhow::Result;
use tracing_subscriber::EnvFilter;

use crate::{
    args::{Args, Command, LogFormat},
    exit,
};

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    start_log(&args)?;
    let format = args.output;
    match args.command {
        Command::Serve(serve) => serve::run(serve, format).await,
        Command::Send(send) => send::run(send, format).await,
        Command::Listen(listen) => listen::run(listen, format).await,
        Command::Task(command) => task::run(command, format).await,
        Command::Push(command) => push::run(command, format).await,
        Command::Delivery(command) => delivery::run(command, format).await,
        Command::Card(command) => card::run(command, format).await,
        Command::Store(command) => store::run(command, format).await,
    }
}

fn start_log(args: &Args) -> Result<()> {
    let filter = EnvFilter::try_new(&args.log_level).map_err(|error| exit::usage(error.to_string()))?;
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match args.log_format {
        LogFormat::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}
