//! The arguments of `nuncio room`.

use clap::{Args, Subcommand, ValueEnum};

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
        /// Further settings as in the file, such as agent_b=seller or max_turns=20; may be repeated.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        more: Vec<String>,
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
    /// Print what both sides have from now on, until Ctrl-C.
    Watch {
        #[command(flatten)]
        hub: Admin,
        /// The name of the room.
        name: String,
        /// Begin with what the last round has already.
        #[arg(long)]
        whole: bool,
        /// Print the calls of the parties, too: direction, version, binding, size and faults.
        #[arg(long)]
        wire: bool,
    },
    /// Record the payloads of calls for a time. `watch --wire` shows them; the trail has a row of it.
    Record {
        #[command(flatten)]
        hub: Admin,
        /// The name of the room.
        name: String,
        /// The time, at most 60 minutes; 0 ends the recording.
        #[arg(long, default_value_t = 10)]
        minutes: u32,
    },
    /// Join a room: take a seat, read what is said, and speak. Leaving it, or no sign for a time, frees the seat.
    Join {
        #[command(flatten)]
        join: RoomJoin,
        /// Take the seat from the person or agent that holds it.
        #[arg(long)]
        take_over: bool,
    },
    /// Join a room at a seat that somebody holds: as `join --take-over`.
    TakeOver {
        #[command(flatten)]
        join: RoomJoin,
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

/// The seat to join.
#[derive(Debug, Args)]
pub(crate) struct RoomJoin {
    #[command(flatten)]
    pub(crate) hub: Admin,
    /// The name of the room.
    pub(crate) name: String,
    /// The seat.
    #[arg(long, value_enum, default_value_t = SeatName::B)]
    pub(crate) seat: SeatName,
    /// The name that other operators see [default: the user of this machine].
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) holder: Option<String>,
}

/// A seat of a room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum SeatName {
    A,
    B,
}

impl SeatName {
    /// Its name in addresses.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}
