//! `nuncio audit`: audits an agent and prints the report.

use std::{fs, io::IsTerminal as _, path::Path, process::ExitCode, sync::Arc};

use anyhow::Result;
use nuncio_audit::{
    AuditOptions, AuditResult, PushOptions, audit, plan,
    report::{
        self, Format as ReportFormat, Options,
        baseline::{self, Changes},
    },
};
use nuncio_client::{Credentials, agent_url};

use super::target::setting;
use crate::{
    args::{Audit, AuditReports, FailOn},
    exit,
    output::{self, Format},
};

pub(super) async fn run(args: Audit, format: Format) -> Result<ExitCode> {
    // Options are checked before the agent is called.
    let options = options(&args, format)?;
    let reports = Reports::new(&args.reports)?;
    let earlier = args.baseline.as_deref().map(read_baseline).transpose()?;
    if args.dry_run {
        return dry_run(&options, format).await;
    }
    let result = audit(&options).await;
    let changes = earlier.map(|earlier| baseline::compare(&earlier, &result));
    reports.publish(&result, changes.as_ref(), format)
}

/// The reports that a command publishes: on stdout, and in files.
pub(super) struct Reports<'a> {
    /// The files with their formats.
    files: Vec<(&'a Path, ReportFormat)>,
    fail_on: report::FailOn,
}

impl<'a> Reports<'a> {
    /// Reads the options.
    ///
    /// # Errors
    /// The extension of a file is unknown.
    pub(super) fn new(args: &'a AuditReports) -> Result<Self> {
        let format = |path: &Path| {
            ReportFormat::of_path(path).ok_or_else(|| {
                let known = ReportFormat::extensions().join(", ");
                exit::usage(format!(
                    "--report {}: the extension tells the format; expected one of {known}",
                    path.display()
                ))
            })
        };
        let files: Result<_> = args.files.iter().map(|path| Ok((path.as_path(), format(path)?))).collect();
        let fail_on = match args.fail_on {
            FailOn::Must => report::FailOn::Must,
            FailOn::Should => report::FailOn::Should,
        };
        Ok(Self { files: files?, fail_on })
    }

    /// Writes the files, prints the report, and returns the exit code of its result.
    pub(super) fn publish(
        &self,
        result: &AuditResult,
        changes: Option<&Changes>,
        format: Format,
    ) -> Result<ExitCode> {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let shown = Options { changes, fail_on: self.fail_on, colour };
        for (path, format) in &self.files {
            fs::write(path, report::render(*format, result, &Options { colour: false, ..shown })).map_err(
                |error| exit::usage(format!("--report {}: cannot be written: {error}", path.display())),
            )?;
        }
        let text = match format {
            Format::Human => report::terminal(result, &shown),
            Format::Json => report::json(result, &shown),
        };
        output::bytes(text.as_bytes())?;
        Ok(ExitCode::from(code(result, self.fail_on)))
    }
}

fn code(result: &AuditResult, fail_on: report::FailOn) -> u8 {
    if result.grounds.no_card {
        exit::UNREACHABLE
    } else if fail_on.is_met_by(result) {
        exit::OTHER
    } else {
        exit::OK
    }
}

fn options(args: &Audit, format: Format) -> Result<AuditOptions> {
    let target = agent_url(&args.url).map_err(|error| exit::usage(error.to_string()))?;
    let connection = &args.connection;
    let mut options = AuditOptions::new(target, connection.egress()?);
    options.credentials = connection.credentials()?;
    options.second = args.second.as_deref().map(second).transpose()?;
    options.send.clone_from(&args.send);
    options.push = args.push.map(|listen| PushOptions { listen, url: args.push_url.clone() });
    options.only.clone_from(&args.only);
    options.skip.clone_from(&args.skip);
    options.extensions.clone_from(&connection.extensions);
    options.versions = connection.a2a_version.into_iter().collect();
    options.bindings = connection.binding.into_iter().collect();
    if let Some(timeout) = connection.timeout {
        (options.timeout, options.message_timeout) = (timeout, timeout);
    }
    if let Some(deadline) = args.deadline {
        options.deadline = deadline;
    }
    if format == Format::Human && std::io::stderr().is_terminal() {
        options.progress = Some(Arc::new(|line: &str| output::note(&format!("auditing {line}"))));
    }
    if let Some(name) = options.unknown_name() {
        let why = format!("{name:?} is neither a check nor an area; nuncio audit URL --dry-run lists them");
        return Err(exit::usage(why));
    }
    Ok(options)
}

/// The credentials of the second caller.
fn second(variable: &str) -> Result<Credentials> {
    let key = setting(variable).ok_or_else(|| {
        exit::usage(format!("--as {variable}: set this environment variable to a bearer token"))
    })?;
    Credentials::none().bearer(&key).map_err(|error| exit::usage(format!("--as {variable}: {error}")))
}

fn read_baseline(path: &Path) -> Result<AuditResult> {
    let wrong = |why: String| exit::usage(format!("--baseline {}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    baseline::parse(&text).map_err(|error| wrong(error.to_string()))
}

async fn dry_run(options: &AuditOptions, format: Format) -> Result<ExitCode> {
    let plan = match plan(options).await {
        Ok(plan) => plan,
        Err(why) => {
            output::error(format, &why, None, &serde_json::json!({ "message": why }));
            return Ok(ExitCode::from(exit::UNREACHABLE));
        }
    };
    if format == Format::Json {
        output::json(&plan)?;
        return Ok(ExitCode::from(exit::OK));
    }
    for id in &plan.interfaces {
        output::line(&format!("{} {} at {}", id.binding, id.version, id.url))?;
    }
    output::line("")?;
    for check in &plan.checks {
        let depth = format!("{:?}", check.depth).to_lowercase();
        output::line(&format!("{:5} {:24} × {}  {}", depth, check.id, check.interfaces, check.title))?;
    }
    let checks: usize = plan.checks.iter().map(|check| check.interfaces).sum();
    let messages = output::count(plan.max_messages, "message", "messages");
    output::line(&format!("\n{checks} checks; at most {messages} to the agent"))?;
    Ok(ExitCode::from(exit::OK))
}
