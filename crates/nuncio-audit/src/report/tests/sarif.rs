//! Tests of the SARIF report: the structure that SARIF 2.1.0 requires, and the content.

use serde_json::Value;

use super::sample::{HOSTILE_RESULT, full, result_of};
use crate::{
    AuditResult, Verdict,
    report::{Options, baseline, sarif},
};

fn report(result: &AuditResult, options: &Options<'_>) -> Value {
    serde_json::from_str(&sarif(result, options)).expect("SARIF is JSON")
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("{name} is a list"))
}

#[test]
fn the_log_has_the_required_structure() {
    for result in [result_of(Vec::new()), full(), HOSTILE_RESULT.clone()] {
        let log = report(&result, &Options::default());
        assert_eq!(log["version"], "2.1.0");
        let [run] = list(&log, "runs") else { panic!("one run") };
        let driver = &run["tool"]["driver"];
        assert!(driver["name"].is_string());
        let rules = list(driver, "rules");
        for rule in rules {
            assert!(rule["id"].is_string() && rule["help"]["text"].is_string(), "{rule}");
            assert!(rule["helpUri"].as_str().is_some_and(|uri| uri.starts_with("https://")), "{rule}");
        }
        for result in list(run, "results") {
            check_result(result, rules);
        }
        assert!(run["invocations"][0]["executionSuccessful"].is_boolean());
    }
}

/// A result refers to its rule, has a level of its kind, a message and a place.
fn check_result(result: &Value, rules: &[Value]) {
    if let Some(index) = result["ruleIndex"].as_u64() {
        let rule = &rules[usize::try_from(index).expect("a small number")];
        assert_eq!(rule["id"], result["ruleId"]);
    }
    assert_eq!(result["kind"], "fail");
    assert!(result["level"] == "error" || result["level"] == "warning");
    assert!(result["message"]["text"].as_str().is_some_and(|text| !text.is_empty()));
    assert!(
        result["partialFingerprints"].as_object().is_some_and(|prints| prints.values().all(Value::is_string))
    );
    let location = &result["locations"][0];
    assert!(location["logicalLocations"][0]["fullyQualifiedName"].is_string());
    let uri = &location["physicalLocation"]["artifactLocation"]["uri"];
    assert!(uri.is_null() || uri.as_str().is_some_and(|uri| url::Url::parse(uri).is_ok()), "{uri}");
}

#[test]
fn only_broken_demands_are_results() {
    let result = full();
    let log = report(&result, &Options::default());
    let results = list(&log["runs"][0], "results");
    let count =
        |verdict: Verdict| result.findings.iter().filter(|finding| finding.verdict == verdict).count();
    let level = |name: &str| results.iter().filter(|result| result["level"] == name).count();
    assert_eq!((level("error"), level("warning")), (count(Verdict::Fail), count(Verdict::Loose)));
    assert_eq!(results.len(), count(Verdict::Fail) + count(Verdict::Loose));
}

#[test]
fn fingerprints_are_unique() {
    let log = report(&full(), &Options::default());
    let mut prints: Vec<String> = list(&log["runs"][0], "results")
        .iter()
        .map(|result| result["partialFingerprints"].to_string())
        .collect();
    let count = prints.len();
    prints.sort();
    prints.dedup();
    assert_eq!(prints.len(), count);
}

#[test]
fn a_baseline_tells_new_results_from_old_ones() {
    let new = full();
    let mut old = new.clone();
    let broken = |verdict: Verdict| matches!(verdict, Verdict::Fail | Verdict::Loose);
    let first = old.findings.iter_mut().find(|finding| broken(finding.verdict)).expect("a broken demand");
    first.verdict = Verdict::Pass;
    let changes = baseline::compare(&old, &new);
    let log = report(&new, &Options { changes: Some(&changes), ..Options::default() });
    let states: Vec<&Value> =
        list(&log["runs"][0], "results").iter().map(|result| &result["baselineState"]).collect();
    assert_eq!(states.iter().filter(|state| **state == "new").count(), 1);
    assert_eq!(states.iter().filter(|state| **state == "unchanged").count(), states.len() - 1);
}
