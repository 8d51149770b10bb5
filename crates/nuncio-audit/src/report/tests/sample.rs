//! Results of audits for the tests.

use std::sync::LazyLock;

use nuncio_protocol::{Binding, Version};
use serde_json::Value;

use crate::{
    AuditResult, CATALOGUE, Capability, CardFacts, Check, Depth, Excerpt, Finding, Grounds, InterfaceId,
    InterfaceReport, Level, Reachability, Scope, Unseen, Verdict, audit::FORMAT,
};

/// Text that breaks out of every format that does not escape it.
pub(super) const HOSTILE: &str = "</style></pre></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'& \
    \u{1b}[31m\u{1b}]0;title\u{7}\u{9b}31m\u{8}\u{0}\u{7f}\u{202e}\u{200b}\u{2028}\u{feff}\u{fffe}\u{e0041}\r\n\
    # heading\n- [x](javascript:alert(1)) ![i](https://evil.example/i) ```\n~~~ | a | b |\n]]> --> <!-- \
    @someone https://evil.example www.evil.example `code` $(reboot) {0} [link](1)";

/// A finding with this verdict of the check, for an interface.
pub(super) fn finding(check: &Check, interface: Option<&InterfaceId>, verdict: Verdict) -> Finding {
    let version = interface.and_then(|interface| Version::parse(&interface.version));
    let section = check.sections.of(version.unwrap_or(Version::V1_0)).or(check.sections.v0_3);
    let unseen = (verdict == Verdict::Unseen).then_some(Unseen::Depth);
    let is_broken = matches!(verdict, Verdict::Fail | Verdict::Loose);
    let shown = |text: &str| is_broken.then(|| text.to_owned());
    Finding {
        check: check.id.to_owned(),
        area: check.area,
        level: check.level,
        interface: interface.cloned(),
        section: section.map(str::to_owned),
        verdict,
        unseen,
        reason: if verdict == Verdict::Pass { String::new() } else { format!("the reason of {}", check.id) },
        observed: shown("{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{\"kind\":\"task\"}}"),
        expected: shown("{\n  \"jsonrpc\": \"2.0\",\n  \"id\": 1,\n  \"result\": { \"task\": {} }\n}"),
        repeat: shown(
            "curl -sS -X POST -H 'Content-Type: application/json' -d '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"GetTask\",\"params\":{\"id\":\"unknown\"}}' https://agent.example/rpc",
        ),
        exchange: is_broken.then(|| Excerpt {
            request: "POST /rpc HTTP/1.1\nA2A-Version: 1.0\n\n{}".to_owned(),
            response: "200 OK\ncontent-type: application/json\n\n{}".to_owned(),
        }),
    }
}

pub(super) fn interface(version: Version, binding: Binding) -> InterfaceId {
    let path = binding.as_str().to_lowercase().replace("+json", "");
    InterfaceId {
        version: version.as_str().to_owned(),
        binding: binding.as_str().to_owned(),
        url: format!("https://agent.example/{version}/{path}"),
    }
}

/// A result with these findings and nothing else.
pub(super) fn result_of(findings: Vec<Finding>) -> AuditResult {
    AuditResult {
        format: FORMAT,
        auditor: "0.1.0".to_owned(),
        target: "https://agent.example".to_owned(),
        depths: vec![Depth::Look, Depth::Send],
        started: "2026-11-18T14:00:00Z".to_owned(),
        finished: "2026-11-18T14:00:04Z".to_owned(),
        card: Some(CardFacts {
            url: "https://agent.example/.well-known/agent-card.json".to_owned(),
            name: "Weather agent".to_owned(),
            version: "1.4.0".to_owned(),
            description: "Forecasts for every place".to_owned(),
            provider: Some("Example Weather".to_owned()),
            shapes: vec!["1.0".to_owned(), "0.3".to_owned()],
            skills: vec!["forecast".to_owned(), "history".to_owned()],
            security_schemes: vec!["key (apiKey)".to_owned()],
            requires_credentials: true,
            extensions: vec!["https://agent.example/extensions/units".to_owned()],
            signatures: 1,
        }),
        interfaces: Vec::new(),
        capabilities: Vec::new(),
        findings,
        grounds: Grounds::default(),
        messages_sent: 6,
        requests_sent: 148,
        left_running: Vec::new(),
        deadline_passed: false,
    }
}

/// A result with every check of the catalogue on four interfaces, and every verdict.
pub(super) fn full() -> AuditResult {
    let interfaces = [
        interface(Version::V1_0, Binding::JsonRpc),
        interface(Version::V1_0, Binding::HttpJson),
        interface(Version::V1_0, Binding::Grpc),
        interface(Version::V0_3, Binding::JsonRpc),
    ];
    let mut findings = Vec::new();
    for (number, check) in CATALOGUE.iter().enumerate() {
        if check.scope == Scope::Agent {
            findings.push(finding(check, None, verdict(number, 0)));
            continue;
        }
        for (at, interface) in interfaces.iter().enumerate() {
            let version = Version::parse(&interface.version).expect("a version of ours");
            let binding = Binding::from_name(&interface.binding).expect("a binding of ours");
            if check.applies(version, binding) {
                findings.push(finding(check, Some(interface), verdict(number, at)));
            }
        }
    }
    let mut result = result_of(findings);
    result.interfaces = interfaces.iter().map(interface_report).collect();
    result.capabilities = capabilities();
    result.left_running = vec!["task-17".to_owned()];
    result.deadline_passed = true;
    result
}

fn verdict(number: usize, interface: usize) -> Verdict {
    let check = &CATALOGUE[number];
    match (number % 9, interface) {
        (3, 0 | 1) if check.level == Level::Must => Verdict::Fail,
        (3 | 5, _) if check.level == Level::Should => Verdict::Loose,
        (7, _) => Verdict::Info,
        _ if check.level == Level::May => Verdict::Info,
        _ if check.depth > Depth::Send => Verdict::Unseen,
        _ => Verdict::Pass,
    }
}

fn interface_report(id: &InterfaceId) -> InterfaceReport {
    let reachability = if id.binding == "GRPC" { Reachability::Slow } else { Reachability::Answers };
    let reason = if reachability == Reachability::Slow { "no answer within 5 s" } else { "" };
    InterfaceReport { id: id.clone(), tenant: None, reachability, reason: reason.to_owned() }
}

fn capabilities() -> Vec<Capability> {
    let capability = |name: &str, declared: &str, observed: &str, agrees| Capability {
        name: name.to_owned(),
        declared: declared.to_owned(),
        observed: observed.to_owned(),
        agrees,
    };
    vec![
        capability("streaming", "yes", "yes", Some(true)),
        capability(
            "push notifications",
            "no",
            "yes, on 1.0 JSONRPC, 1.0 HTTP+JSON and 0.3 JSONRPC",
            Some(false),
        ),
        capability("extended card", "no", "not observed", None),
    ]
}

/// A third of the full result, with hostile text in the place of every string that is not ours.
pub(super) static HOSTILE_RESULT: LazyLock<AuditResult> = LazyLock::new(|| {
    let mut result = full();
    let mut number = 0;
    result.findings.retain(|_| {
        number += 1;
        number % 3 == 0
    });
    let mut value = serde_json::to_value(result).expect("a result is JSON");
    poison(&mut value, "");
    serde_json::from_value(value).expect("texts may be anything")
});

/// Members whose values are words of the auditor.
const OWN_WORDS: [&str; 6] = ["depths", "area", "level", "verdict", "unseen", "reachability"];

fn poison(value: &mut Value, name: &str) {
    match value {
        Value::String(text) if !OWN_WORDS.contains(&name) => {
            // The check stays known every other time, so that both paths are taken.
            let is_check = name == "check";
            if !is_check || text.len() % 2 == 0 {
                *text = format!("{HOSTILE}{}", "A".repeat(6_000));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| poison(item, name)),
        Value::Object(members) => members.iter_mut().for_each(|(name, value)| poison(value, name)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
