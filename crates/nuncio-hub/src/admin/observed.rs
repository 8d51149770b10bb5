//! The capabilities of remote agents: as their cards declare them, and as their answers show them.

use nuncio_protocol::op::Op;
use serde_json::Value;

use super::{
    AdminState,
    api::{Capability, Observation, ObservedCapability},
};
use crate::{fleet::ServedAgent, telemetry::OpTotals};

/// A capability, the member of the card that declares it, and the operations that show it.
type Row = (Capability, Option<&'static str>, &'static [Op]);

const ROWS: [Row; 6] = [
    (Capability::Send, None, &[Op::SendMessage]),
    (Capability::Streaming, Some("streaming"), &[Op::SendStreamingMessage, Op::SubscribeToTask]),
    (
        Capability::PushNotifications,
        Some("pushNotifications"),
        &[
            Op::CreateTaskPushNotificationConfig,
            Op::GetTaskPushNotificationConfig,
            Op::ListTaskPushNotificationConfigs,
            Op::DeleteTaskPushNotificationConfig,
        ],
    ),
    (Capability::ExtendedCard, Some("extendedAgentCard"), &[Op::GetExtendedAgentCard]),
    (Capability::List, None, &[Op::ListTasks]),
    (Capability::Cancel, None, &[Op::CancelTask]),
];

/// The capabilities of a remote agent; none of another one.
pub(super) fn observed(state: &AdminState, agent: &ServedAgent) -> Vec<ObservedCapability> {
    // A model or a mailbox has a status, but no card and no answers of the protocol.
    let upstream = agent.upstream().filter(|upstream| upstream.access().is_some());
    let Some(upstream) = upstream else { return Vec::new() };
    let (card, is_proxied) = (upstream.card(), agent.runtime().is_none());
    let row = |(capability, member, ops): Row| {
        let mut totals = OpTotals::default();
        for op in ops {
            let of = state.facts.samples.observed(agent.name(), *op, is_proxied);
            totals.answered += of.answered;
            totals.refused += of.refused;
            totals.failed += of.failed;
        }
        let declared = member.and_then(|member| card.as_ref().map(|card| declares(card, member)));
        let OpTotals { answered, refused, failed } = totals;
        ObservedCapability { capability, declared, observed: observation(totals), answered, refused, failed }
    };
    ROWS.into_iter().map(row).collect()
}

/// True if a card declares a capability; one of 0.3 has the extended card at its top.
fn declares(card: &Value, member: &str) -> bool {
    let old = (member == "extendedAgentCard").then(|| &card["supportsAuthenticatedExtendedCard"]);
    card["capabilities"][member] == true || old.is_some_and(|old| *old == true)
}

fn observation(OpTotals { answered, refused, failed }: OpTotals) -> Observation {
    match (answered, refused, failed) {
        (0, 0, 0) => Observation::Unknown,
        (0, 0, _) => Observation::Fails,
        (0, _, _) => Observation::Refused,
        _ => Observation::Works,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_observed_is_what_was_answered() {
        for (answered, refused, failed, expected) in [
            (0, 0, 0, Observation::Unknown),
            (0, 0, 3, Observation::Fails),
            (0, 1, 3, Observation::Refused),
            (1, 1, 3, Observation::Works),
        ] {
            assert_eq!(observation(OpTotals { answered, refused, failed }), expected);
        }
    }

    #[test]
    fn a_capability_is_declared_by_a_card_of_either_version() {
        for (card, member, expected) in [
            (json!({ "capabilities": { "streaming": true } }), "streaming", true),
            (json!({ "capabilities": { "streaming": false } }), "streaming", false),
            (json!({}), "pushNotifications", false),
            (json!({ "supportsAuthenticatedExtendedCard": true }), "extendedAgentCard", true),
            (json!({ "supportsAuthenticatedExtendedCard": true }), "streaming", false),
            (json!({ "capabilities": { "extendedAgentCard": true } }), "extendedAgentCard", true),
        ] {
            assert_eq!(declares(&card, member), expected, "{card} {member}");
        }
    }
}
