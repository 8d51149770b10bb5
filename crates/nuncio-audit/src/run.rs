//! The run of an audit: card, reachability, looks, conversations, lists, and the findings of all of them.

mod capabilities;
mod cleanup;
mod deep;
mod findings;

use std::sync::atomic::{AtomicU32, Ordering};

use nuncio_protocol::op::Op;
use tokio::time::Instant;

use self::findings::Findings;
use crate::{
    answer::Answer,
    audit::{AuditResult, FORMAT, Grounds, InterfaceReport, Reachability},
    card::{FoundCard, discover},
    catalogue::{self, CATALOGUE, Check},
    checks::{Run, Talk},
    conversation::Conversation,
    interface::{Interface, identify},
    observed::{Checked, Observed},
    options::AuditOptions,
    outcome::Unseen,
    probe::{Probe, on_task},
    survey::{SeenError, Survey, blind, reach},
    wire::{Session, without_query},
};

/// The reason for which an interface is not called.
const FOREIGN: &str = "it is at a host where this audit may not call";

/// An interface of the card on its way through the audit.
#[derive(Debug)]
pub(crate) struct Station {
    pub(crate) report: InterfaceReport,
    /// The interface, if the auditor speaks its version and binding.
    pub(crate) interface: Option<Interface>,
    pub(crate) conversation: Option<Conversation>,
    /// The task of the first conversation, read here.
    elsewhere: Option<Answer>,
}

/// Audits an agent. There is always a result: an agent that cannot be reached has one finding about that.
pub async fn audit(options: &AuditOptions) -> AuditResult {
    let started = now();
    let session = session(options);
    options.tell("card");
    let found = discover(&session, &options.target).await;
    let mut result = AuditResult {
        format: FORMAT,
        auditor: env!("CARGO_PKG_VERSION").to_owned(),
        target: without_query(&options.target),
        depths: options.depths(),
        started,
        finished: String::new(),
        card: None,
        interfaces: Vec::new(),
        capabilities: Vec::new(),
        findings: Vec::new(),
        grounds: Grounds::default(),
        messages_sent: 0,
        requests_sent: 0,
        left_running: Vec::new(),
        deadline_passed: false,
    };
    match found {
        Err(observed) => {
            result.grounds.no_card = true;
            let check = catalogue::find("card.found");
            result
                .findings
                .extend(check.and_then(|check| observed.finding(check, check.sections.v1_0, None)));
        }
        Ok(found) => audit_card(options, &session, &found, &mut result).await,
    }
    result.messages_sent = session.messages.load(Ordering::Relaxed);
    result.requests_sent = session.requests.load(Ordering::Relaxed);
    result.deadline_passed = Instant::now() >= session.deadline;
    result.finished = now();
    result
}

fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

pub(crate) fn session(options: &AuditOptions) -> Session {
    Session {
        egress: options.egress.clone(),
        credentials: options.credentials.clone(),
        second: options.second.clone(),
        home: options.target.clone(),
        timeout: options.timeout,
        message_timeout: options.message_timeout,
        deadline: Instant::now() + options.deadline,
        requests: AtomicU32::new(0),
        messages: AtomicU32::new(0),
    }
}

/// The interfaces of a card that the options select.
pub(crate) fn stations(options: &AuditOptions, found: &FoundCard) -> Vec<Station> {
    let listed = found.card.supported_interfaces.iter();
    let is_selected = |station: &Station| {
        station.interface.as_ref().is_none_or(|interface| {
            (options.versions.is_empty() || options.versions.contains(&interface.version))
                && (options.bindings.is_empty() || options.bindings.contains(&interface.binding))
        })
    };
    let stations = listed.map(|listed| {
        let (interface, reason) = match Interface::read(listed, &found.url, &found.card, &options.extensions)
        {
            Ok(interface) if !is_allowed(options, &interface) => (None, FOREIGN.to_owned()),
            Ok(interface) => (Some(interface), String::new()),
            Err(why) => (None, why),
        };
        let reachability = Reachability::Unknown;
        let report =
            InterfaceReport { id: identify(listed), tenant: listed.tenant.clone(), reachability, reason };
        Station { report, interface, conversation: None, elsewhere: None }
    });
    stations.filter(is_selected).collect()
}

/// True if the options let the audit call this interface.
fn is_allowed(options: &AuditOptions, interface: &Interface) -> bool {
    options.interface_hosts.as_ref().is_none_or(|hosts| hosts.contains(&interface.url))
}

async fn audit_card(options: &AuditOptions, session: &Session, found: &FoundCard, result: &mut AuditResult) {
    let mut stations = stations(options, found);
    let mut findings = Findings::new(options);
    findings.of_card(|run| match run {
        Run::Card(check) => Some(settled(check(found))),
        _ => None,
    });
    let mut errors = Vec::new();
    for (number, station) in stations.iter_mut().enumerate() {
        look(options, session, found, (number, station), &mut findings, &mut errors).await;
    }
    if let Some(text) = &options.send {
        converse(options, session, found, &mut stations, text, &mut findings).await;
    }
    deep::push(options, session, found, &mut stations, &mut findings).await;
    for (number, station) in stations.iter_mut().enumerate() {
        deep::isolate(options, session, found, (number, station), &mut findings).await;
        list(session, found, (number, station), &mut findings).await;
    }
    let reports: Vec<_> = stations.iter().map(|station| station.report.clone()).collect();
    let survey = Survey { card: found, reports: &reports, errors };
    findings.of_card(|run| match run {
        Run::Agent(check) => Some(settled(check(&survey))),
        _ => None,
    });
    result.left_running = cleanup::cancel_begun(session, found, &stations).await;
    result.card = Some(found.facts());
    result.findings = findings.finish(&stations);
    result.capabilities = capabilities::compare(found, &stations, &result.findings);
    result.grounds = grounds(&reports, &result.findings);
    result.interfaces = reports;
}

/// The observation of a check, however it ended.
fn settled(checked: Checked) -> Observed {
    checked.unwrap_or_else(|early| early)
}

/// Finds out whether an interface answers, and runs the checks that send no message.
async fn look(
    options: &AuditOptions,
    session: &Session,
    found: &FoundCard,
    (number, station): (usize, &mut Station),
    findings: &mut Findings<'_>,
    errors: &mut Vec<SeenError>,
) {
    let Some(interface) = &station.interface else {
        let why = Observed::unseen(Unseen::Unreachable, station.report.reason.clone());
        return findings.blind(number, &why, |_| true);
    };
    options.tell(&format!("{} {} at {}", interface.id.binding, interface.id.version, interface.id.url));
    let probe = Probe::new(session, interface, &found.card);
    let (reachability, observed) = reach(&probe).await;
    station.report.reachability = reachability;
    station.report.reason.clone_from(&observed.reason);
    findings.put_reach(number, observed);
    if let Some(why) = blind(reachability) {
        let is_closed = reachability == Reachability::Closed;
        if is_closed {
            run_probes(&probe, number, findings, |check| check.area == catalogue::Area::Auth).await;
        }
        return findings.blind(number, &why, |check| !(is_closed && check.area == catalogue::Area::Auth));
    }
    run_probes(&probe, number, findings, |_| true).await;
    for op in [Op::GetTask, Op::CancelTask] {
        let kind =
            probe.of_unknown(op).await.ok().and_then(|answer| answer.error().map(|refusal| refusal.kind));
        errors.extend(kind.map(|kind| SeenError { op: op.name(), kind, interface: interface.id.clone() }));
    }
}

async fn run_probes(
    probe: &Probe<'_>,
    number: usize,
    findings: &mut Findings<'_>,
    applies: impl Fn(&Check) -> bool,
) {
    for (index, run) in findings.for_interface(probe.interface) {
        if let (Run::Probe(check), true) = (run, applies(&CATALOGUE[index])) {
            let observed = settled(check(probe).await);
            findings.put(index, Some(number), observed);
        }
    }
}

/// Talks to the agent over each interface that answers, then reads the first task over all of them.
async fn converse(
    options: &AuditOptions,
    session: &Session,
    found: &FoundCard,
    stations: &mut [Station],
    text: &str,
    findings: &mut Findings<'_>,
) {
    for station in stations.iter_mut().filter(|station| station.report.reachability == Reachability::Answers)
    {
        let Some(interface) = &station.interface else { continue };
        options.tell(&format!("messages over {} {}", interface.id.binding, interface.id.version));
        let probe = Probe::new(session, interface, &found.card);
        station.conversation = Some(Conversation::hold(&probe, text).await);
    }
    let made = stations.iter().enumerate().find_map(|(number, station)| {
        let task = station.conversation.as_ref()?.task()?;
        task.status.state.is_terminal().then(|| (number, task.clone()))
    });
    if let Some((first, task)) = &made {
        for (_, station) in stations.iter_mut().enumerate().filter(|(number, _)| number != first) {
            let (Some(interface), Some(_)) = (&station.interface, &station.conversation) else { continue };
            let probe = Probe::new(session, interface, &found.card);
            let Ok(request) = probe.request(on_task(Op::GetTask, task.id.as_str())) else { continue };
            station.elsewhere = Some(probe.answer(Op::GetTask, request).await);
        }
    }
    for (number, station) in stations.iter().enumerate() {
        let (Some(interface), Some(seen)) = (&station.interface, &station.conversation) else { continue };
        let elsewhere = made.as_ref().map(|(_, task)| task).zip(station.elsewhere.as_ref());
        let talk = Talk { interface, card: &found.card, seen, elsewhere };
        for (index, run) in findings.for_interface(interface) {
            if let Run::Sent(check) = run {
                findings.put(index, Some(number), settled(check(&talk)));
            }
        }
    }
}

/// Runs the checks of lists, last, so that they find the tasks of the audit.
async fn list(
    session: &Session,
    found: &FoundCard,
    (number, station): (usize, &mut Station),
    findings: &mut Findings<'_>,
) {
    let Some(interface) = &station.interface else { return };
    if station.report.reachability != Reachability::Answers {
        return;
    }
    let probe = Probe::new(session, interface, &found.card);
    for (index, run) in findings.for_interface(interface) {
        if let Run::List(check) = run {
            let observed = settled(check(&probe).await);
            findings.put(index, Some(number), observed);
        }
    }
}

fn grounds(reports: &[InterfaceReport], findings: &[crate::outcome::Finding]) -> Grounds {
    let silent = reports
        .iter()
        .filter(|report| matches!(report.reachability, Reachability::Silent | Reachability::Wrong));
    let failed = |id: &str| {
        let is_failed = |finding: &crate::outcome::Finding| finding.verdict == crate::outcome::Verdict::Fail;
        findings.iter().any(|finding| finding.check.starts_with(id) && is_failed(finding))
    };
    Grounds {
        no_card: false,
        silent_interfaces: silent.map(|report| report.id.clone()).collect(),
        auth_not_enforced: failed("auth.missing") || failed("auth.invalid"),
        foreign_tasks_visible: failed("isolation."),
    }
}
