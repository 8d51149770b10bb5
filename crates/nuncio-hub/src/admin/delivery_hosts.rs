//! The hosts of webhooks: grouped by host and cause, paused and resumed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use nuncio_protocol::Timestamp;
use nuncio_server::{
    push::{MAX_PAUSED, Push},
    store::{Attempt, Delivery, DeliveryQuery, DeliveryState, FailureCause},
};
use url::{Host, Url};

use super::{
    AdminState,
    api::{
        CauseCount, DeliveryCause, DeliveryHost, DeliveryHosts, ListDeliveryHosts, PauseDeliveryHost,
        PausedHost, ResumeDeliveryHost,
    },
    endpoint::Reply,
    problem::AdminProblem,
};

/// The maximum number of deliveries of a state that are counted.
const MAX_COUNTED: usize = 5_000;
/// The port of a host that is named without one.
const DEFAULT_PORT: u16 = 443;

/// Deliveries by cause: their number, and the id of the newest.
type Causes = BTreeMap<DeliveryCause, (u64, String)>;

#[derive(Default)]
struct Group {
    pending: u64,
    dead: u64,
    oldest_pending: Option<Timestamp>,
    causes: Causes,
}

pub(super) async fn list(
    state: Arc<AdminState>,
    _: ListDeliveryHosts,
) -> Result<Reply<DeliveryHosts>, AdminProblem> {
    let (mut groups, mut causes, mut complete) = (HashMap::<Arc<str>, Group>::new(), Causes::new(), true);
    for of in [DeliveryState::Pending, DeliveryState::Dead] {
        let query = DeliveryQuery { state: Some(of), limit: MAX_COUNTED, ..DeliveryQuery::default() };
        let (deliveries, more) = state.store.deliveries(&query).await?;
        complete &= !more;
        for delivery in &deliveries {
            let cause = cause_of(delivery.recent.last());
            let group = groups.entry(Arc::clone(&delivery.webhook.target)).or_default();
            group.add(delivery);
            for causes in [&mut causes, &mut group.causes] {
                // The newest come first.
                causes.entry(cause).or_insert_with(|| (0, delivery.id().to_string())).0 += 1;
            }
        }
    }
    let paused = state.push.as_ref().map(Push::paused).unwrap_or_default();
    for target in paused.keys() {
        groups.entry(Arc::clone(target)).or_default();
    }
    let host = |(target, group): (Arc<str>, Group)| DeliveryHost {
        paused: paused.get(&target).copied(),
        host: target.to_string(),
        pending: group.pending,
        dead: group.dead,
        oldest_pending: group.oldest_pending,
        causes: counts(group.causes),
    };
    let mut hosts: Vec<_> = groups.into_iter().map(host).collect();
    let rank = |host: &DeliveryHost| (std::cmp::Reverse(host.pending + host.dead), host.host.clone());
    hosts.sort_by_cached_key(rank);
    Ok(Reply::new(DeliveryHosts { hosts, causes: counts(causes), complete }))
}

impl Group {
    fn add(&mut self, delivery: &Delivery) {
        match delivery.state {
            DeliveryState::Pending => {
                self.pending += 1;
                let since = delivery.since;
                self.oldest_pending = Some(self.oldest_pending.map_or(since, |oldest| oldest.min(since)));
            }
            DeliveryState::Dead => self.dead += 1,
            DeliveryState::Delivered => {}
        }
    }
}

fn counts(causes: Causes) -> Vec<CauseCount> {
    let count = |(cause, (deliveries, newest))| CauseCount { cause, deliveries, newest };
    let mut counts: Vec<_> = causes.into_iter().map(count).collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.deliveries));
    counts
}

/// The cause of a failed attempt.
pub(super) fn cause_of(last: Option<&Attempt>) -> DeliveryCause {
    let Some(attempt) = last else { return DeliveryCause::Unknown };
    match (attempt.cause, attempt.status) {
        (Some(FailureCause::Dns), _) => DeliveryCause::Dns,
        (Some(FailureCause::Connect), _) => DeliveryCause::Connect,
        (Some(FailureCause::Tls), _) => DeliveryCause::Tls,
        (Some(FailureCause::Timeout), _) => DeliveryCause::Timeout,
        (Some(FailureCause::Broken), _) => DeliveryCause::Broken,
        (Some(FailureCause::Blocked), _) => DeliveryCause::Blocked,
        (Some(FailureCause::Internal), _) => DeliveryCause::Internal,
        (Some(FailureCause::Other), _) | (None, None) => DeliveryCause::Unknown,
        (None, Some(400..=499)) => DeliveryCause::ClientError,
        (None, Some(500..=599)) => DeliveryCause::ServerError,
        (None, Some(_)) => DeliveryCause::OtherStatus,
    }
}

pub(super) async fn pause(
    state: Arc<AdminState>,
    request: PauseDeliveryHost,
) -> Result<Reply<PausedHost>, AdminProblem> {
    let (push, target) = (push(&state)?, target(&request.host)?);
    let paused = push.paused();
    if paused.len() >= MAX_PAUSED && !paused.contains_key(&*target) {
        let why = format!("{MAX_PAUSED} hosts are paused already; resume some first");
        return Err(AdminProblem::conflict(why));
    }
    let changed = push.pause(&target).await?;
    Ok(changed_to(push, target, changed))
}

pub(super) async fn resume(
    state: Arc<AdminState>,
    request: ResumeDeliveryHost,
) -> Result<Reply<PausedHost>, AdminProblem> {
    let (push, target) = (push(&state)?, target(&request.host)?);
    let changed = push.resume(&target).await?;
    Ok(changed_to(push, target, changed))
}

fn changed_to(push: &Push, host: String, changed: bool) -> Reply<PausedHost> {
    let paused = push.paused().get(&*host).copied();
    let subject = host.clone();
    Reply::new(PausedHost { host, paused, changed }).subject(subject)
}

fn push(state: &AdminState) -> Result<&Push, AdminProblem> {
    state.push.as_ref().ok_or_else(|| {
        AdminProblem::conflict("webhooks are turned off, so nothing is delivered; set push.enabled = true")
    })
}

/// The target of this text: a host, a host with a port, or a URL.
pub(super) fn target(text: &str) -> Result<String, AdminProblem> {
    let url = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let url = Url::parse(&url).ok();
    let host = url.as_ref().and_then(Url::host).filter(|host| !matches!(host, Host::Domain("")));
    let port = url.as_ref().and_then(Url::port_or_known_default);
    match host {
        Some(host) => Ok(format!("{host}:{}", port.unwrap_or(DEFAULT_PORT))),
        None => Err(AdminProblem::invalid(format!(
            "{text}: expected a host such as hooks.example.com, with its port if that is not 443"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_as_people_write_it() {
        for (text, expected) in [
            ("hooks.example.com", Some("hooks.example.com:443")),
            ("Hooks.Example.com:8443", Some("hooks.example.com:8443")),
            ("127.0.0.1:80", Some("127.0.0.1:80")),
            ("[::1]:9000", Some("[::1]:9000")),
            ("http://hooks.example.com/a?b", Some("hooks.example.com:80")),
            ("https://hooks.example.com:99", Some("hooks.example.com:99")),
            ("", None),
            ("a b", None),
            (":80", None),
            ("a:99999", None),
        ] {
            assert_eq!(target(text).ok().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn causes_are_told_apart_by_status_and_by_failure() {
        let attempt = |cause, status| Attempt { at: Timestamp::EPOCH, took: 1, status, cause, error: None };
        for (attempt, expected) in [
            (None, DeliveryCause::Unknown),
            (Some(attempt(None, None)), DeliveryCause::Unknown),
            (Some(attempt(None, Some(302))), DeliveryCause::OtherStatus),
            (Some(attempt(None, Some(404))), DeliveryCause::ClientError),
            (Some(attempt(None, Some(503))), DeliveryCause::ServerError),
            (Some(attempt(Some(FailureCause::Dns), None)), DeliveryCause::Dns),
            (Some(attempt(Some(FailureCause::Tls), None)), DeliveryCause::Tls),
            (Some(attempt(Some(FailureCause::Blocked), None)), DeliveryCause::Blocked),
        ] {
            assert_eq!(cause_of(attempt.as_ref()), expected, "{attempt:?}");
        }
    }
}
