//! The table of metrics is what is told and what is documented; labels stay few.

use super::*;

const BEGIN: &str = "<!-- metrics: made from telemetry/metrics.rs, held current by its tests -->\n";
const END: &str = "<!-- end of metrics -->\n";

impl Definition {
    /// As Prometheus calls it.
    fn full_name(&self) -> String {
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        format!("{}{suffix}", self.name)
    }

    fn kind_name(&self) -> &'static str {
        match self.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Info => "info",
        }
    }
}

fn table() -> String {
    let rows = ALL.iter().map(|definition| {
        let labels: Vec<_> = definition.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind) = (definition.full_name(), definition.kind_name());
        format!("| `{name}` | {kind} | {} | {} |\n", labels.join(", "), definition.help)
    });
    format!("| metric | kind | labels | meaning |\n|---|---|---|---|\n{}", rows.collect::<String>())
}

#[test]
fn the_documentation_has_the_table() {
    let document = include_str!("../../../../../docs/operating.md");
    let (_, rest) = document.split_once(BEGIN).expect("where the table begins");
    let (documented, _) = rest.split_once(END).expect("where the table ends");
    assert!(documented == table(), "put this into docs/operating.md:\n{}", table());
}

/// One of everything.
fn all_touched() -> Arc<Metrics> {
    let metrics = Arc::new(Metrics::default());
    let agent = metrics.agent("echo");
    let (op, version, binding) = (Op::SendStreamingMessage, Version::V1_0, Some(Binding::Grpc));
    for outcome in [CallOutcome::Ok, CallOutcome::Abandoned, CallOutcome::Error(ErrorKind::TaskNotFound)] {
        agent.count(op, version, binding, outcome);
    }
    agent.count(Op::GetTask, Version::V1_0, None, CallOutcome::Ok);
    agent.count_unsaid(op, version, binding);
    metrics.responded(404);
    metrics.add_tasks("echo", TaskState::InputRequired, 7);
    metrics.running("echo", 2);
    metrics.denied("no_credentials");
    let translations = metrics.translations(&"echo".into(), (Version::V1_0, Binding::Grpc));
    translations.count(Version::V0_3, Some(Binding::JsonRpc), false);
    translations.count(Version::V0_3, Some(Binding::JsonRpc), true);
    translations.count(Version::V1_0, Some(Binding::Grpc), true);
    metrics.add_model_tokens("echo", "input", 3);
    metrics.mailbox("coder", 2, 1, Duration::from_secs(3));
    metrics.lease_offered("coder");
    metrics.lease_ended("coder", LeaseEnd::Done);
    metrics.delivered("coder", "answered");
    metrics.webhook_gone("coder", true);
    metrics.agent_is("echo", false);
    metrics.room_turn("talk", true);
    metrics.room_waits("talk", "b", 1);
    metrics.reloaded(true);
    metrics.reloaded(false);
    metrics.answered(StoreOp::Commit, Duration::from_millis(2), false);
    metrics
}

#[test]
fn every_metric_is_told_with_its_help_and_its_labels() {
    let text = all_touched().text();
    for definition in ALL {
        let name = definition.name;
        let kind = definition.kind_name();
        assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name}: {text}");
        assert!(text.contains(&format!("# HELP {name} {}.\n", definition.help)), "{name}: {text}");
        let line = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#')).expect(name);
        for label in definition.labels {
            assert!(line.contains(&format!("{label}=\"")), "{label} of {line}");
        }
    }
    assert_eq!(text.matches("# TYPE ").count(), ALL.len());
}

#[test]
fn what_was_counted_is_told() {
    let text = all_touched().text();
    let stream = r#"agent="echo",operation="SendStreamingMessage",version="1.0",binding="GRPC""#;
    for expected in [
        format!(r#"nuncio_requests_total{{{stream},outcome="ok"}} 1"#),
        format!(r#"nuncio_requests_total{{{stream},outcome="abandoned"}} 1"#),
        format!(r#"nuncio_requests_total{{{stream},outcome="task_not_found"}} 1"#),
        r#"version="1.0",binding="-",outcome="ok"} 1"#.to_owned(),
        r#"nuncio_inferred_versions_total{agent="echo",binding="GRPC"} 1"#.to_owned(),
        r#"nuncio_http_responses_total{status="404"} 1"#.to_owned(),
        r#"nuncio_tasks{agent="echo",state="input_required"} 7"#.to_owned(),
        r#"nuncio_running_tasks{agent="echo"} 2"#.to_owned(),
        r#"nuncio_agent_up{agent="echo"} 0"#.to_owned(),
        r#"nuncio_model_tokens_total{agent="echo",kind="input"} 3"#.to_owned(),
        r#"nuncio_store_seconds_count{operation="commit"} 1"#.to_owned(),
        r#"nuncio_store_errors_total{operation="commit"} 1"#.to_owned(),
        r#"nuncio_config_reloads_total{outcome="refused"} 1"#.to_owned(),
        r#"to_version="1.0",to_binding="GRPC",lossy="false"} 1"#.to_owned(),
        r#"to_version="1.0",to_binding="GRPC",lossy="true"} 1"#.to_owned(),
    ] {
        assert!(text.contains(&expected), "{expected}\n{text}");
    }
}

/// Every operation, version and binding has a place of its own.
#[test]
fn cells_are_not_shared() {
    let metrics = Arc::new(Metrics::default());
    let agent = metrics.agent("echo");
    let bindings = || Binding::ALL.iter().copied().map(Some).chain([None]);
    for row in Op::TABLE {
        for version in Version::ALL {
            bindings().for_each(|binding| agent.count(row.op, *version, binding, CallOutcome::Ok));
        }
    }
    let text = metrics.text();
    let counted = text.lines().filter(|line| line.starts_with("nuncio_requests_total{"));
    assert_eq!(counted.clone().count(), CELLS);
    assert!(counted.clone().all(|line| line.ends_with(" 1")), "{text}");
    // An agent that is made again goes on counting.
    metrics.agent("echo").count(Op::GetTask, Version::V1_0, None, CallOutcome::Ok);
    assert!(metrics.text().contains(r#"operation="GetTask",version="1.0",binding="-",outcome="ok"} 2"#));
}
