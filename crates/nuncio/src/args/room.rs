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
    /// Add a room to a hub: two seats, one conversation.
    Create {
        #[command(flatten)]
        hub: Admin,
        /// The name of the room; its seats are agents of this name and NAME/b.
        name: String,
        /// The name on the cards of its seats.
        #[arg(long, value_name = "TEXT")]
        title: Option<String>,
        /// A principal that holds seat a; may be repeated [default: every caller that may call it].
        #[arg(long = "holder-a", value_name = "NAME")]
        holders_a: Vec<String>,
        /// A principal that holds seat b; may be repeated [default: every caller that may call it].
        #[arg(long = "holder-b", value_name = "NAME")]
        holders_b: Vec<String>,
        /// Refuse messages of the seat whose turn it is not.
        #[arg(long)]
        strict_turns: bool,
        /// Keep open rounds open when a further one begins.
        #[arg(long)]
        parallel: bool,
    },
    /// Remove a room that was added by `create`. Its tasks are kept.
    Remove {
        #[command(flatten)]
        hub: Admin,
        /// The name of the room.
        name: String,
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
