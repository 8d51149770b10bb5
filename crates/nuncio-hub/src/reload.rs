//! Reload of the configuration while the hub runs: all of it, or nothing.
//!
//! A reload has three triggers: a changed file ([`Reloading::watch`] checks every second), SIGHUP, and the
//! admin API. An invalid configuration changes nothing, and the errors go to the trigger's origin. The same
//! holds for a file that is empty or has lost settings that are rarely removed on purpose (`config/lost.rs`),
//! unless the admin API forces the reload. Files are read when they have not changed for an interval, because
//! they may still be being written. Connections, streams and tasks continue in any case.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use nuncio_protocol::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify};

use crate::{
    admin::Reloader,
    clock,
    config::{self, Changes, Config, Loaded, Problem, Problems, Source, WebOrigin},
    fleet::Fleet,
    identity::Authenticator,
    limits::Callers,
    registry::Registry,
    telemetry::HubTelemetry,
    trail::{Row, What},
};

/// Interval between two checks of the files, and the time for which they must be unchanged before they are
/// read.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The parts of a running hub that a reload changes.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) identity: Arc<Authenticator>,
    pub(crate) callers: Arc<Callers>,
    /// The limits of callers.
    pub(crate) limits: Arc<ArcSwap<config::Limits>>,
    /// Rules of calls to all agents.
    pub(crate) calls: Arc<ArcSwap<config::Calls>>,
    /// The web origins that may call.
    pub(crate) origins: Arc<ArcSwap<Vec<WebOrigin>>>,
    pub(crate) telemetry: HubTelemetry,
}

impl Live {
    /// Applies a configuration. The agents come first: only they can fail.
    async fn apply(&self, config: &Config) -> Result<(), Problems> {
        let before = self.limits.swap(Arc::new(config.limits.clone()));
        let bounds = |limits: &config::Limits| (limits.body_bytes, limits.parts, limits.max_task_bytes);
        let calls_before = self.calls.swap(Arc::new(config.calls.clone()));
        let anew = bounds(&before) != bounds(&config.limits) || *calls_before != config.calls;
        if let Err(problems) = self.serve(config, anew).await {
            self.callers.configure(&before, &self.identity.limits());
            self.limits.store(before);
            self.calls.store(calls_before);
            return Err(problems);
        }
        self.identity.configure(&config.identity).map_err(|error| wrong(format!("identity: {error:#}")))?;
        self.callers.configure(&config.limits, &self.identity.limits());
        self.origins.store(Arc::new(config.cors.origins.clone()));
        self.fleet.set_default(config.default_agent.as_deref());
        Ok(())
    }

    async fn serve(&self, config: &Config, anew: bool) -> Result<(), Problems> {
        let tools_before = self.registry.set_tools(config.tools.clone()).await;
        let problem = match self.registry.configure(config.agents.clone(), anew).await {
            Ok(failed) => match failed.first() {
                Some((name, error)) => format!("the agent {name} cannot be served: {error:#}"),
                None => return Ok(()),
            },
            Err(error) => format!("the agents cannot be read from the store: {error}"),
        };
        self.registry.set_tools(tools_before).await;
        Err(wrong(problem))
    }
}

/// The files of a configuration, for messages.
fn files(loaded: &Loaded) -> Vec<String> {
    loaded.files.iter().map(|(path, _)| path.display().to_string()).collect()
}

fn wrong(text: String) -> Problems {
    Problems(vec![Problem::general(config::Severity::Error, text)])
}

/// A configuration that is reloaded on changes.
pub struct Reloading {
    source: Source,
    live: Live,
    /// The configuration in force. Locked while it is replaced.
    loaded: Mutex<Loaded>,
    /// The same, rendered for the admin API.
    shown: ArcSwap<Value>,
    /// The outcomes of reloads, for the admin API.
    outcomes: ArcSwap<Outcomes>,
    /// Its files.
    files: ArcSwap<Vec<String>>,
    /// Notified when a reload is requested.
    asked: Notify,
}

/// The outcomes of the last reloads.
#[derive(Clone, Default)]
struct Outcomes {
    /// The last reload that changed something, with the difference by keys.
    changed: Option<(Timestamp, Vec<Value>)>,
    /// The last reload, if it was refused.
    refused: Option<(Timestamp, String)>,
}

impl std::fmt::Debug for Reloading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloading").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Reloading {
    pub(crate) fn new(source: Source, loaded: Loaded, live: Live) -> Self {
        let shown = ArcSwap::from_pointee(loaded.shown(true));
        let files = ArcSwap::from_pointee(files(&loaded));
        let outcomes = ArcSwap::default();
        Self { source, live, loaded: Mutex::new(loaded), shown, outcomes, files, asked: Notify::new() }
    }

    /// Requests a reload, as on SIGHUP.
    pub fn ask(&self) {
        self.asked.notify_one();
    }

    /// Reloads the files when they change, for as long as it is polled.
    pub async fn watch(&self) -> Infallible {
        let mut settling = Settling::new(self.seen().await);
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                () = self.asked.notified() => settling.ask(),
            }
            if !settling.look(self.seen().await) {
                continue;
            }
            match self.reload(false).await {
                Ok(changes) if changes.is_empty() => tracing::info!("the configuration has not changed"),
                Ok(changes) => {
                    self.live.identity.trail().note(Row::of(What::ConfigReloaded));
                    tell(&changes);
                }
                Err(problems) => {
                    tracing::error!(
                        "the new configuration is invalid; the previous one stays in force: {problems}"
                    );
                }
            }
        }
    }

    /// A hash of the files' contents and of the file names in their folders. Polled instead of watched: this
    /// also sees files that are replaced by a symbolic link, and files on network disks.
    async fn seen(&self) -> u64 {
        let (files, folders) = {
            let loaded = self.loaded.lock().await;
            let files: Vec<_> = loaded.files.iter().map(|(path, _)| path.clone()).collect();
            (files, loaded.folders.clone())
        };
        let look = move || {
            let mut hasher = DefaultHasher::new();
            for file in files {
                std::fs::read(file).ok().hash(&mut hasher);
            }
            for folder in folders {
                let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
                let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
                names.sort();
                names.retain(|name| Path::new(name).extension().is_some_and(|extension| extension == "toml"));
                names.hash(&mut hasher);
            }
            hasher.finish()
        };
        tokio::task::spawn_blocking(look).await.unwrap_or_default()
    }

    async fn try_reload(&self, force: bool) -> Result<Changes, Problems> {
        let mut loaded = self.loaded.lock().await;
        let source = self.source.clone();
        let reading = tokio::task::spawn_blocking(move || source.load());
        let new =
            reading.await.map_err(|error| wrong(format!("the configuration cannot be read: {error}")))??;
        let lost = config::lost(&loaded, &new);
        if !force && lost.has_errors() {
            return Err(lost);
        }
        let root = self.live.fleet.default_agent();
        let mut changes = config::changes(&loaded.config, &new.config);
        self.live.apply(&new.config).await?;
        changes.root_lost = self.live.fleet.check_root(root.as_ref()).map(|name| name.to_string());
        let shown = Arc::new(new.shown(true));
        let before = self.shown.swap(Arc::clone(&shown));
        let difference = difference(&before["config"], &shown["config"]);
        if !difference.is_empty() {
            let changed = Some((clock::now(), difference));
            self.outcomes.store(Arc::new(Outcomes { changed, refused: None }));
        }
        self.files.store(Arc::new(files(&new)));
        *loaded = new;
        Ok(changes)
    }
}

/// The keys whose values differ, each with both values.
fn difference(before: &Value, after: &Value) -> Vec<Value> {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    flatten(String::new(), before, &mut old);
    flatten(String::new(), after, &mut new);
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    changed.map(|key| json!({ "key": key, "before": old.get(key), "after": new.get(key) })).collect()
}

/// The values of a tree by their whole keys, such as `limits.rate.burst`.
fn flatten<'a>(key: String, value: &'a Value, values: &mut BTreeMap<String, &'a Value>) {
    let Value::Object(members) = value else {
        values.insert(key, value);
        return;
    };
    for (name, value) in members {
        let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        flatten(key, value, values);
    }
}

#[async_trait]
impl Reloader for Reloading {
    fn shown(&self) -> Value {
        let mut shown = Value::clone(&self.shown.load());
        let outcomes = self.outcomes.load();
        if let Some((at, difference)) = &outcomes.changed {
            shown["lastReload"] = json!({ "at": at, "changes": difference });
        }
        if let Some((at, problems)) = &outcomes.refused {
            shown["refused"] = json!({ "at": at, "problems": problems });
        }
        shown
    }

    fn files(&self) -> Vec<String> {
        Vec::clone(&self.files.load())
    }

    async fn reload(&self, force: bool) -> Result<Changes, Problems> {
        let outcome = self.try_reload(force).await;
        self.live.telemetry.metrics.reloaded(outcome.is_ok());
        let refused = outcome.as_ref().err().map(|problems| (clock::now(), problems.to_string()));
        self.outcomes.rcu(|outcomes| Outcomes { refused: refused.clone(), ..Outcomes::clone(outcomes) });
        outcome
    }
}

/// Decides when files are read: once per content, when two checks in a row have seen the same.
#[derive(Debug)]
struct Settling {
    /// The content that was last read, valid or not: an invalid file is reported once.
    tried: u64,
    /// The content of the last check, if it is still to be read.
    pending: Option<u64>,
    /// A reload was requested, whether or not the files have changed.
    asked: bool,
}

impl Settling {
    fn new(tried: u64) -> Self {
        Self { tried, pending: None, asked: false }
    }

    /// Requests a reload even if the files are unchanged. Earlier checks do not count.
    fn ask(&mut self) {
        (self.asked, self.pending) = (true, None);
    }

    /// True if the content seen now is to be read.
    fn look(&mut self, seen: u64) -> bool {
        if seen == self.tried && !self.asked {
            self.pending = None;
            return false;
        }
        if self.pending.replace(seen) != Some(seen) {
            return false;
        }
        *self = Self::new(seen);
        true
    }
}

fn tell(changes: &Changes) {
    let names = |agents: &[config::Agent]| {
        agents.iter().map(|agent| agent.name.to_string()).collect::<Vec<_>>().join(", ")
    };
    let config::AgentChanges { added, changed, removed } = &changes.agents;
    tracing::info!(
        added = names(added),
        changed = names(changed),
        removed = names(removed),
        identity = changes.identity,
        calls = changes.calls,
        limits = changes.limits,
        "the new configuration is in force"
    );
    if !changes.needs_restart.is_empty() {
        let keys = changes.needs_restart.join(", ");
        tracing::warn!(keys, "these keys have changed as well and take effect after a restart");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps the content that each check finds (`!`: a reload was requested before it) to the checks that read.
    fn reads(looks: &str) -> String {
        let mut settling = Settling::new(u64::from(b'a'));
        let mut seen = String::new();
        for byte in looks.bytes() {
            match byte {
                b'!' => settling.ask(),
                byte => seen.push(if settling.look(u64::from(byte)) { '+' } else { '-' }),
            }
        }
        seen
    }

    #[test]
    fn the_difference_of_two_configurations_is_by_keys() {
        let before = json!({ "listen": "a", "limits": { "rate": { "burst": 1 }, "tasks": 2 }, "demo": true });
        let after = json!({ "listen": "a", "limits": { "rate": { "burst": 3 }, "tasks": 2 }, "tls": { "cert": "c" } });
        assert_eq!(
            difference(&before, &after),
            [
                json!({ "key": "demo", "before": true, "after": null }),
                json!({ "key": "limits.rate.burst", "before": 1, "after": 3 }),
                json!({ "key": "tls.cert", "before": null, "after": "c" }),
            ]
        );
        assert_eq!(difference(&after, &after), Vec::<Value>::new());
    }

    #[test]
    fn files_are_read_when_they_have_settled_and_once() {
        for (looks, expected) in [
            ("aaaa", "----"),
            ("abbbb", "--+--"),
            // Somebody is writing.
            ("abcdee", "-----+"),
            // As before when it is done.
            ("abaa", "----"),
            ("abababb", "------+"),
            // The one that is wrong is put right again.
            ("abbaa", "--+-+"),
            // A requested reload reads the file in any state; the watcher waits until it is unchanged.
            ("a!aaa", "--+-"),
            ("ab!bb", "---+"),
            ("a!bcc", "---+"),
            ("ab!!bbb", "---+-"),
        ] {
            assert_eq!(reads(looks), expected, "{looks}");
        }
    }
}
