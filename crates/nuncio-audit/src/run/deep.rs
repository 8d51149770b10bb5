//! The depths beyond messages: webhooks, and a second caller.

use super::{Station, findings::Findings, settled};
use crate::{
    audit::Reachability,
    card::FoundCard,
    catalogue::Depth,
    checks::{Foreign, PushTalk, Run},
    observed::Observed,
    options::AuditOptions,
    outcome::Unseen,
    probe::Probe,
    push::{PushSeen, Receiver},
    wire::Session,
};

/// Sends one message with a webhook, and runs the checks of webhooks.
pub(super) async fn push(
    options: &AuditOptions,
    session: &Session,
    found: &FoundCard,
    (number, station): (usize, &mut Station),
    findings: &mut Findings<'_>,
) {
    let (Some(interface), Some(push), Some(text)) = (&station.interface, &options.push, &options.send) else {
        return;
    };
    if station.report.reachability != Reachability::Answers {
        return;
    }
    let probe = Probe::new(session, interface, &found.card);
    if !probe.pushes() {
        let why = Observed::unseen(Unseen::Undeclared, "the card declares no webhooks");
        return findings.blind(number, &why, |check| check.depth == Depth::Push);
    }
    options.tell(&format!("webhooks over {} {}", interface.id.binding, interface.id.version));
    let receiver = match Receiver::start(push).await {
        Ok(receiver) => receiver,
        Err(error) => {
            let why = format!("cannot listen at {}: {error}; give another address with --push", push.listen);
            let why = Observed::unseen(Unseen::Setup, why);
            return findings.blind(number, &why, |check| check.depth == Depth::Push);
        }
    };
    let seen = PushSeen::watch(&probe, text, &receiver).await;
    let talk = PushTalk { interface, seen: &seen, can_arrive: can_arrive(session, push.url.is_some()) };
    for (index, run) in findings.for_interface(interface) {
        if let Run::Pushed(check) = run {
            findings.put(index, Some(number), settled(check(&talk)));
        }
    }
    if let Some(conversation) = &mut station.conversation {
        conversation.begun.extend(seen.task);
    }
}

/// True if the agent can reach the receiver: it is on this machine, or the receiver has an address of its own.
fn can_arrive(session: &Session, has_url: bool) -> bool {
    let host = session.home.host_str().unwrap_or_default();
    has_url
        || host == "localhost"
        || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// Calls for the task of the conversation as the second caller.
pub(super) async fn isolate(
    options: &AuditOptions,
    session: &Session,
    found: &FoundCard,
    (number, station): (usize, &mut Station),
    findings: &mut Findings<'_>,
) {
    if options.second.is_none() {
        return;
    }
    let (Some(interface), Some(conversation)) = (&station.interface, &station.conversation) else { return };
    options.tell(&format!("second caller over {} {}", interface.id.binding, interface.id.version));
    let probe = Probe::new(session, interface, &found.card);
    let foreign = Foreign { probe: &probe, task: conversation.begun.first() };
    for (index, run) in findings.for_interface(interface) {
        if let Run::Foreign(check) = run {
            let observed = settled(check(&foreign).await);
            findings.put(index, Some(number), observed);
        }
    }
}
