//! Invitations: codes, each of which becomes a mailbox and its key once. A code is returned once.

use std::fmt;

use nuncio_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{route::routes, schema::Time};

routes! {
    /// Lists the invitations that were not redeemed, without their codes.
    ListInvitations: GET "/invitations", "invitations.list" {} -> Invitations;

    /// Invites a worker to a new mailbox and shows the code, this once.
    CreateInvitation: POST "/invitations", "invitations.create" {
        body invitation: NewInvitation,
    } -> InvitationWithCode, status CREATED, trail InvitationCreated;

    /// Revokes an invitation.
    RevokeInvitation: DELETE "/invitations/{mailbox}", "invitations.revoke" { path mailbox, } -> (),
        status NO_CONTENT, trail InvitationRevoked;
}

/// All invitations.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Invitations {
    pub invitations: Vec<Invitation>,
}

/// An invitation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Invitation {
    /// The name of the mailbox that it becomes.
    pub mailbox: String,
    /// The first characters of its code.
    pub prefix: String,
    #[schemars(with = "Time")]
    pub created: Timestamp,
    #[schemars(with = "Time")]
    pub expires: Timestamp,
}

/// An invitation to create.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewInvitation {
    /// The name of the mailbox: a to z, 0 to 9 and -, at most 63 characters.
    pub mailbox: String,
    /// The end of the invitation; a day by default, 30 days at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub expires: Option<Timestamp>,
}

/// An invitation with its code.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct InvitationWithCode {
    pub invitation: Invitation,
    /// The code, which is good once. It is not shown again.
    pub code: String,
    /// The hub keeps its data in memory: the invitation is lost at its next restart.
    pub volatile: bool,
}

impl fmt::Debug for InvitationWithCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InvitationWithCode").field("invitation", &self.invitation).finish_non_exhaustive()
    }
}
