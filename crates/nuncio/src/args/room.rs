//! The arguments of `nuncio room`.

use clap::Subcommand;

use super::Admin;

#[derive(Debug, Subcommand)]
pub(crate) enum RoomCommand {
    /// List the rooms of a hub.
    List {
        #[command(flatten)]
        hub: Admin,
    },
    /// Show a room: its open rounds and the last one, with the task of each seat.
    Show {
        #[command(flatten)]
        hub: Admin,
        /// The name of the room.
        name: String,
        /// Show the words of the parties, too.
        #[arg(long)]
        content: bool,
    },
    /// Print what the parties say from now on, until Ctrl-C.
    Watch {
        #[command(flatten)]
        hub: Admin,
        /// The name of the room.
        name: String,
    },
    /// Cancel the open rounds of a room for both seats.
    Reset {
        #[command(flatten)]
        hub: Admin,
        /// The name of the room.
        name: String,
        /// Begin the next round as well; seat a speaks first.
        #[arg(long)]
        hard: bool,
    },
}
