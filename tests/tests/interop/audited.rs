//! `nuncio audit` on the official servers: every finding is one that was reviewed by hand and is listed in the
//! documentation, and every listed one is found.

use std::{collections::BTreeSet, fs};

use futures_util::future::join_all;
use nuncio_tests::{
    hub::{cli, root},
    peer::Peer,
};
use serde_json::Value;

use crate::sdk::{JAVASCRIPT_1, JAVASCRIPT_03, PYTHON_1, PYTHON_03, Sdk};

/// The reviewed findings, below the root of the repository.
const PAGE: &str = "docs/audit-sdks.md";

/// Official servers, with the arguments that let them answer 0.3 as well.
const SERVERS: &[(&Sdk, &[&str])] =
    &[(&PYTHON_1, &["--v03"]), (&PYTHON_03, &[]), (&JAVASCRIPT_1, &["--v03"]), (&JAVASCRIPT_03, &[])];

/// Checks that depend on a race inside the SDK: a canceled task may still complete.
const RACES: &str = "task.cancel,task.cancel-twice";

/// A finding: the server, the check, its verdict and the interfaces.
type Finding = [String; 4];

async fn findings((sdk, args): (&Sdk, &[&str])) -> Vec<Finding> {
    let peer = Peer::start(&sdk.server(), args).await;
    let args = ["audit", &peer.url, "--send", "hello", "--push", "--skip", RACES, "-o", "json"];
    let output = cli(&args).await;
    let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(output.code, Some(1), "a requirement is not met: {}", output.stderr);
    assert_eq!(report["leftRunning"], Value::Null);
    let mut found: Vec<Finding> = Vec::new();
    for finding in report["findings"].as_array().unwrap() {
        let [check, verdict] = ["check", "verdict"].map(|name| finding[name].as_str().unwrap());
        if !matches!(verdict, "fail" | "loose") {
            continue;
        }
        let interface = &finding["interface"];
        let interface = match interface["binding"].as_str() {
            Some(binding) => format!("{} {binding}", interface["version"].as_str().unwrap()),
            None => "card".to_owned(),
        };
        match found.iter_mut().find(|known| known[1] == check && known[2] == verdict) {
            Some(known) => known[3] = format!("{}, {interface}", known[3]),
            None => found.push([sdk.title(), check.to_owned(), verdict.to_owned(), interface]),
        }
    }
    found
}

/// The rows of the page: server, check, verdict, interfaces; the evidence is for people.
fn listed(page: &str) -> BTreeSet<Finding> {
    let mut title = String::new();
    let mut rows = BTreeSet::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut title);
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if let [check, verdict, interfaces, _evidence] = &cells[..]
            && let Some(check) = check.strip_prefix('`').and_then(|check| check.strip_suffix('`'))
        {
            let row = [check, verdict, interfaces].map(|cell| (*cell).to_owned());
            let [check, verdict, interfaces] = row;
            rows.insert([title.clone(), check, verdict, interfaces]);
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn every_finding_on_an_official_server_was_reviewed() {
    let found: BTreeSet<Finding> =
        join_all(SERVERS.iter().map(|server| findings(*server))).await.into_iter().flatten().collect();
    let listed = listed(&fs::read_to_string(root().join(PAGE)).unwrap());
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(new.is_empty() && gone.is_empty(), "not in {PAGE}: {new:#?}\nonly in {PAGE}: {gone:#?}");
}
