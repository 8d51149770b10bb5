//! The commands, a file each.

mod access;
mod admin;
mod admin_token;
mod agent;
mod audit;
mod card;
mod check;
mod config;
mod connect;
mod delivery;
mod erase;
mod healthcheck;
mod hint;
mod invite;
mod key;
mod key_file;
mod listen;
mod mailbox;
mod manual;
mod pages;
mod push;
mod room;
mod send;
mod serve;
mod signals;
mod store;
mod target;
mod task;
mod top;
mod trail;
mod ui;
mod version;

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    args::{Args, Command},
    log,
};

/// The default log level.
const DEFAULT_LOG_LEVEL: &str = "info";

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let format = args.output;
    // `serve` starts the log itself, by its configuration.
    if !matches!(args.command, Command::Serve(_)) {
        log::start(
            args.log_level.as_deref().unwrap_or(DEFAULT_LOG_LEVEL),
            args.log_format.unwrap_or_default(),
        )?;
    }
    match args.command {
        Command::Serve(serve) => Box::pin(serve::run(serve, format)).await,
        Command::Init(init) => config::init(&init, format),
        Command::Check(command) => check::run(command, format).await,
        Command::Send(send) => send::run(send, format).await,
        Command::Audit(args) => Box::pin(audit::run(*args, format)).await,
        Command::Listen(listen) => listen::run(listen, format).await,
        Command::Invite(command) => invite::run(command, format).await,
        Command::Register(register) => Box::pin(invite::redeem(register, format)).await,
        Command::Connect(connect) => Box::pin(connect::run(connect, format)).await,
        Command::Task(command) => task::run(command, format).await,
        Command::Push(command) => push::run(command, format).await,
        Command::Agent(command) => agent::run(command, format).await,
        Command::Access(command) => access::run(command, format).await,
        Command::Key(command) => key::run(command, format).await,
        Command::Mailbox(command) => mailbox::run(command, format).await,
        Command::AdminToken(command) => admin_token::run(command, format).await,
        Command::Top(top) => Box::pin(top::run(top, format)).await,
        Command::Room(command) => room::run(command, format).await,
        Command::Trail(trail) => trail::run(trail, format).await,
        Command::Erase(erase) => erase::run(erase, format).await,
        Command::Config(command) => config::run(command, format).await,
        Command::Delivery(command) => delivery::run(command, format).await,
        Command::Card(command) => card::run(command, format).await,
        Command::Store(command) => store::run(command, format).await,
        Command::Ui(ui) => ui::run(ui, format).await,
        Command::Healthcheck(check) => Ok(healthcheck::run(check, format).await),
        Command::Version => version::run(format),
        Command::Completion(completion) => manual::complete(&completion),
        Command::Man(man) => manual::man(&man),
    }
}
