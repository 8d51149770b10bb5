//! Audits of agents by the hub.
//!
//! An audit goes on if its caller leaves, because the tasks that it began have to be canceled. Its result is stored
//! under the name of the agent: the report of the latest audit, and the outcomes of those before it.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use nuncio_audit::{
    AuditOptions, AuditResult,
    report::{JsonReport, baseline},
};
use nuncio_client::{Credentials, Egress, InterfaceHosts};
use nuncio_server::store::{Expect, PutRecord, Store, StoreError};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::Url;

use super::{
    AdminState, agents,
    api::{AgentAudit, AuditAgent, AuditRequest, AuditSummary, ShowAudit},
    endpoint::Reply,
    problem::AdminProblem,
};
use crate::{clock, config::TlsFiles, fleet::ServedAgent};

/// The kind of the records.
const KIND: &str = "agent-audit";
/// Maximum number of audits at a time: each makes hundreds of requests.
const MAX_RUNNING: usize = 2;
/// Maximum number of outcomes that are kept of an agent.
const MAX_KEPT: usize = 20;
/// Maximum size of a stored report.
const MAX_REPORT_BYTES: usize = 4 << 20;
/// The time for an audit by default.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(60);
/// The longest time for an audit.
const MAX_DEADLINE: Duration = Duration::from_secs(600);

/// The audits of agents: those that run, and the stored ones.
pub(crate) struct Audits {
    store: Arc<dyn Store>,
    /// The certificate of the hub, which is trusted when it audits its own agents.
    certificate: Option<PathBuf>,
    running: Arc<Semaphore>,
}

/// The stored audits of one agent.
#[derive(Default, Serialize, Deserialize)]
struct AuditRecord {
    /// The outcomes, latest first.
    outcomes: Vec<AuditSummary>,
    /// The report of the latest one; absent if it is too large.
    report: Option<Box<JsonReport>>,
}

pub(super) async fn audit(
    state: Arc<AdminState>,
    request: AuditAgent,
) -> Result<Reply<AgentAudit>, AdminProblem> {
    let AuditAgent { name, options } = request;
    let agent = agents::find(&state, &name)?;
    let options = state.audits.options(&agent, options)?;
    let permit = state.audits.permit()?;
    let running = tokio::spawn(async move {
        let result = nuncio_audit::audit(&options).await;
        let audited = state.audits.keep(&name, &result).await;
        drop(permit);
        audited
    });
    let audited = running.await.map_err(|error| {
        tracing::error!(%error, "an audit of an agent failed");
        AdminProblem::internal()
    })?;
    Ok(Reply::new(audited?))
}

pub(super) async fn show(
    state: Arc<AdminState>,
    request: ShowAudit,
) -> Result<Reply<AgentAudit>, AdminProblem> {
    let ShowAudit { name } = request;
    agents::find(&state, &name)?;
    let AuditRecord { outcomes, report } = state.audits.read(&name).await?;
    let latest = outcomes.into_iter().next().ok_or_else(|| {
        AdminProblem::not_found(format!(
            "{name} has not been audited yet; use POST /api/v1/agents/{name}:audit"
        ))
    })?;
    Ok(Reply::new(AgentAudit { summary: latest, report }))
}

impl Audits {
    pub(crate) fn new(store: &Arc<dyn Store>, tls: Option<&TlsFiles>) -> Self {
        Self {
            store: Arc::clone(store),
            certificate: tls.map(|files| files.cert.clone()),
            running: Arc::new(Semaphore::new(MAX_RUNNING)),
        }
    }

    /// The outcomes of an agent's audits, latest first; none if the store does not answer.
    pub(super) async fn summaries(&self, name: &str) -> Vec<AuditSummary> {
        let record = self.read(name).await.unwrap_or_else(|error| {
            tracing::warn!(agent = name, %error, "the audits of an agent cannot be read");
            AuditRecord::default()
        });
        record.outcomes
    }

    /// Deletes the audits of an agent that is removed.
    pub(super) async fn forget(&self, name: &str) {
        if let Err(error) = self.store.delete_record(KIND, name, Expect::Anything).await {
            tracing::warn!(agent = name, %error, "the audits of a removed agent cannot be deleted");
        }
    }

    fn permit(&self) -> Result<OwnedSemaphorePermit, AdminProblem> {
        Arc::clone(&self.running).try_acquire_owned().map_err(|_| {
            AdminProblem::unavailable(format!(
                "{MAX_RUNNING} audits are running at this hub; try again when one has ended"
            ))
        })
    }

    /// The options of an audit of this agent.
    fn options(&self, agent: &ServedAgent, request: AuditRequest) -> Result<AuditOptions, AdminProblem> {
        let AuditRequest { send, key, deadline_seconds } = request;
        if send.as_ref().is_some_and(String::is_empty) {
            return Err(AdminProblem::invalid("send: expected a text that is not empty"));
        }
        let deadline = deadline_seconds.map_or(DEFAULT_DEADLINE, Duration::from_secs);
        if deadline.is_zero() || deadline > MAX_DEADLINE {
            let most = MAX_DEADLINE.as_secs();
            return Err(AdminProblem::invalid(format!("deadlineSeconds: expected 1 to {most}")));
        }
        let mut options = match agent.upstream().and_then(|upstream| upstream.access()) {
            Some(_) if key.is_some() => {
                return Err(AdminProblem::invalid(
                    "key: a remote agent is audited with the hub's credentials for it; leave the key out",
                ));
            }
            Some(access) => {
                let mut options = AuditOptions::new(access.url, access.egress);
                options.credentials = access.credentials;
                options.interface_hosts = Some(access.hosts);
                options
            }
            None => self.of_own_agent(agent, key.as_deref()).map_err(|error| {
                AdminProblem::invalid(format!("{} cannot be audited: {error:#}", agent.name()))
            })?,
        };
        options.send = send;
        options.deadline = deadline;
        Ok(options)
    }

    /// The options for an agent of this hub, which is called as its callers do.
    fn of_own_agent(&self, agent: &ServedAgent, key: Option<&str>) -> Result<AuditOptions> {
        let interface = agent.shown().card.supported_interfaces.first().map(|first| first.url.clone());
        let target: Url = interface.context("its card has no interface")?.parse()?;
        let mut egress = Egress::builder();
        if let Some(file) = &self.certificate {
            egress = egress.root_certificates(&fs::read(file).context("the hub's certificate")?)?;
        }
        let hosts = InterfaceHosts::default().allow_url(&target);
        let mut options = AuditOptions::new(target, egress.build()?);
        if let Some(key) = key {
            // The error must not show the key.
            let credentials = Credentials::none().bearer(key).ok();
            options.credentials = credentials.context("the key has characters that a header cannot hold")?;
        }
        options.interface_hosts = Some(hosts);
        Ok(options)
    }

    /// Stores the result of an audit, and compares it with the audit before.
    async fn keep(&self, name: &str, result: &AuditResult) -> Result<AgentAudit, StoreError> {
        let AuditRecord { mut outcomes, report: before } = self.read(name).await?;
        let changes = before.map(|before| baseline::compare(&before.result, result));
        let report = JsonReport::new(result, changes.as_ref());
        let summary = summary(&report);
        outcomes.insert(0, summary.clone());
        outcomes.truncate(MAX_KEPT);
        let report = Some(Box::new(report));
        let mut record = AuditRecord { outcomes, report };
        let mut value = serde_json::to_vec(&record).map_err(StoreError::broken)?;
        let report = record.report.take();
        if value.len() > MAX_REPORT_BYTES {
            value = serde_json::to_vec(&record).map_err(StoreError::broken)?;
        }
        let put = PutRecord {
            kind: KIND.into(),
            key: name.into(),
            value: value.into(),
            at: summary.at,
            // Of two audits at the same time the last one stays.
            expect: Expect::Anything,
        };
        self.store.put_records(vec![put]).await?;
        Ok(AgentAudit { summary, report })
    }

    async fn read(&self, name: &str) -> Result<AuditRecord, StoreError> {
        match self.store.record(KIND, name).await? {
            Some(record) => serde_json::from_slice(&record.value).map_err(StoreError::broken),
            None => Ok(AuditRecord::default()),
        }
    }
}

fn summary(report: &JsonReport) -> AuditSummary {
    let JsonReport { result, score, .. } = report;
    AuditSummary {
        at: clock::now(),
        target: result.target.clone(),
        depths: result.depths.clone(),
        grade: score.grade,
        score: score.overall.score,
        coverage: score.overall.coverage,
        failed: score.overall.fail,
        loose: score.overall.loose,
        messages_sent: result.messages_sent,
    }
}
