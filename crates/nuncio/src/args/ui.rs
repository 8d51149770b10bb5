//! The arguments of `nuncio ui`.

use clap::Args as ClapArgs;

use super::Admin;

#[derive(Debug, ClapArgs)]
pub(crate) struct Ui {
    #[command(flatten)]
    pub(crate) hub: Admin,
    /// Print the address and open no browser.
    #[arg(long)]
    pub(crate) print: bool,
}
