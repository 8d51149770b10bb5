//! The depths beyond messages: webhooks, and a second caller.

use futures_util::{FutureExt as _, StreamExt as _, stream};

use super::{Station, findings::Findings, settled};
use crate::{
    audit::Reachability,
    card::FoundCard,
    catalogue::Depth,
    checks::{Foreign, PushTalk, Run},
    observed::Observed,
    options::{AuditOptions, PushOptions},
    outcome::Unseen,
    probe::Probe,
    push::{PushSeen, Receiver},
    wire::Session,
};

/// Maximum number of interfaces whose webhooks are watched at once.
const MAX_WATCHED: usize = 8;

/// Sends one message with a webhook over each interface that answers, and runs the checks of webhooks.
///
/// Most of the time is spent on waiting for notifications, so the interfaces wait together.
pub(super) async fn push(
    options: &AuditOptions,
    session: &Session,
    found: &FoundCard,
    stations: &mut [Station],
    findings: &mut Findings<'_>,
) {
    let (Some(push), Some(text)) = (&options.push, &options.send) else { return };
    // Each interface has a receiver of its own: an agent may delay all notifications to an address that refuses one.
    // A fixed port has room for one receiver at a time.
    let at_once = if push.listen.port() == 0 { MAX_WATCHED } else { 1 };
    let watching: Vec<_> = stations
        .iter()
        .map(|station| watch(options, session, found, station, (push, text)).boxed())
        .collect();
    let seen: Vec<_> = stream::iter(watching).buffered(at_once).collect().await;
    for (number, (station, seen)) in stations.iter_mut().zip(seen).enumerate() {
        let (Some(seen), Some(interface)) = (seen, &station.interface) else { continue };
        let seen = match seen {
            Ok(seen) => seen,
            Err(why) => {
                findings.blind(number, &why, |check| check.depth == Depth::Push);
                continue;
            }
        };
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
}

/// The record of webhooks over an interface, or the reason why there is none; `None` if the interface does not
/// answer.
async fn watch(
    options: &AuditOptions,
    session: &Session,
    found: &FoundCard,
    station: &Station,
    (push, text): (&PushOptions, &str),
) -> Option<Result<PushSeen, Observed>> {
    let interface = station.interface.as_ref()?;
    if station.report.reachability != Reachability::Answers {
        return None;
    }
    let probe = Probe::new(session, interface, &found.card);
    if !probe.pushes() {
        return Some(Err(Observed::unseen(Unseen::Undeclared, "the card declares no webhooks")));
    }
    options.tell(&format!("webhooks over {} {}", interface.id.binding, interface.id.version));
    match Receiver::start(push).await {
        Ok(receiver) => Some(Ok(PushSeen::watch(&probe, text, &receiver).await)),
        Err(error) => {
            let why = format!("cannot listen at {}: {error}; give another address with --push", push.listen);
            Some(Err(Observed::unseen(Unseen::Setup, why)))
        }
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
