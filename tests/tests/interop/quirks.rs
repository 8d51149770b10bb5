//! The known differences of the SDKs. Each has its reason; none leaves out a whole kind of content.

use nuncio_protocol::{Binding, Version};

/// A known difference of an SDK's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Quirk {
    /// A second cancel succeeds.
    CancelsTwice,
    /// A message to a finished task is refused as invalid parameters.
    FinishedIsInvalid,
    /// An error has a code of gRPC and no name.
    VagueErrors,
    /// The bytes of a 0.3 file are the bytes themselves, where other SDKs put base64 text.
    RawFiles,
    /// The name of a file is lost.
    NoFileNames,
    /// Null becomes 0.
    NoNull,
    /// A webhook cannot be made for an existing task.
    NoCreate,
    /// Webhooks are not listed.
    NoList,
    /// Webhooks are not deleted.
    NoDelete,
}

impl Quirk {
    /// The difference and its reason, for the table.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::CancelsTwice => {
                "a second cancel is answered with the canceled task, which one sentence of the specification \
                 allows (3.3.1) and another forbids (3.1.5)"
            }
            Self::FinishedIsInvalid => {
                "a message to a finished task is refused as invalid parameters instead of an unsupported operation"
            }
            Self::VagueErrors => {
                "an error over gRPC is a code and a sentence, so that several errors look alike"
            }
            Self::RawFiles => {
                "over HTTP+JSON and gRPC of 0.3 its files are bytes, where other SDKs put base64 text: it needs \
                 `file_bytes = \"raw\"`"
            }
            Self::NoFileNames => "its proto of 0.3 has no name of a file",
            Self::NoNull => "null in data is read as 0",
            Self::NoCreate => "it takes another body for a new webhook than all other servers",
            Self::NoList => "it has no operation to list webhooks",
            Self::NoDelete => "it has no operation to delete webhooks",
        }
    }
}

/// The checks that a client skips, each as `NAME: why`, as it prints them.
pub(crate) fn skipped(version: Version, binding: Binding) -> &'static [&'static str] {
    match (version, binding) {
        (Version::V1_0, _) => &[],
        (Version::V0_3, Binding::Grpc) => {
            &["history_zero: 0.3 over gRPC cannot say 0", "list_tasks: 0.3 has no such operation"]
        }
        (Version::V0_3, _) => &["list_tasks: 0.3 has no such operation"],
    }
}
