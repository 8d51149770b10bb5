//! The plan of an audit: its checks and the number of its messages, without a call but for the card.

use serde::Serialize;

use crate::{
    card::discover,
    catalogue::{CATALOGUE, Check, Depth, Scope},
    observed::Observed,
    options::AuditOptions,
    outcome::InterfaceId,
    run::{session, stations},
};

/// The maximum number of messages over one interface: by `--send`, and by `--push` besides.
const MESSAGES_BY_SEND: u32 = 3;
const MESSAGES_BY_PUSH: u32 = 1;

/// The plan of an audit.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The interfaces to audit.
    pub interfaces: Vec<InterfaceId>,
    /// The checks to run.
    pub checks: Vec<PlannedCheck>,
    /// The maximum number of messages to the agent.
    pub max_messages: u32,
}

/// A check of a plan.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedCheck {
    /// The id of the check.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Its depth.
    pub depth: Depth,
    /// The number of interfaces on which it runs; 1 for a check of the whole agent.
    pub interfaces: usize,
}

/// Plans an audit. Reads the card, and calls nothing else.
///
/// # Errors
/// The reason why there is no card.
pub async fn plan(options: &AuditOptions) -> Result<Plan, String> {
    let session = session(options);
    let found = discover(&session, &options.target).await.map_err(|Observed { reason, .. }| reason)?;
    let stations = stations(options, &found);
    let interfaces: Vec<_> = stations.iter().filter_map(|station| station.interface.as_ref()).collect();
    let depths = options.depths();
    let runs = |check: &Check| match check.scope {
        Scope::Agent => 1,
        Scope::Interface => {
            interfaces.iter().filter(|interface| check.applies(interface.version, interface.binding)).count()
        }
    };
    let checks = CATALOGUE.iter().filter(|check| options.selects(check) && depths.contains(&check.depth));
    let checks = checks.map(|check| PlannedCheck {
        id: check.id,
        title: check.title,
        depth: check.depth,
        interfaces: runs(check),
    });
    let per_interface = [(Depth::Send, MESSAGES_BY_SEND), (Depth::Push, MESSAGES_BY_PUSH)];
    let per_interface: u32 =
        per_interface.iter().filter(|(depth, _)| depths.contains(depth)).map(|(_, n)| n).sum();
    let count = u32::try_from(interfaces.len()).unwrap_or(u32::MAX);
    Ok(Plan {
        checks: checks.filter(|check| check.interfaces > 0).collect(),
        interfaces: stations.iter().map(|station| station.report.id.clone()).collect(),
        max_messages: per_interface.saturating_mul(count),
    })
}
