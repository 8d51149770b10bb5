//! The findings of an audit while it runs.

use std::collections::BTreeMap;

use super::Station;
use crate::{
    catalogue::{CATALOGUE, Check, Depth, Scope},
    checks::{self, Run},
    interface::Interface,
    observed::Observed,
    options::AuditOptions,
    outcome::{Finding, Unseen},
};

/// Observations by the index of their check in the catalogue and the number of their interface.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    options: &'a AuditOptions,
    depths: Vec<Depth>,
    seen: BTreeMap<(usize, Option<usize>), Observed>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(options: &'a AuditOptions) -> Self {
        Self { options, depths: options.depths(), seen: BTreeMap::new() }
    }

    fn selected(&self) -> impl Iterator<Item = (usize, &'static Check)> {
        CATALOGUE.iter().enumerate().filter(|(_, check)| self.options.selects(check))
    }

    /// The checks to run on an interface.
    pub(super) fn for_interface(&self, interface: &Interface) -> Vec<(usize, Run)> {
        let applies = |check: &Check| {
            check.scope == Scope::Interface
                && self.depths.contains(&check.depth)
                && check.applies(interface.version, interface.binding)
        };
        let checks = self.selected().filter(|(_, check)| applies(check));
        checks.filter_map(|(index, check)| Some((index, checks::find(check.id)?))).collect()
    }

    /// Runs the checks of the whole agent that this function knows how to run.
    pub(super) fn of_card(&mut self, run: impl Fn(Run) -> Option<Observed>) {
        let checks: Vec<_> = self.selected().filter(|(_, check)| check.scope == Scope::Agent).collect();
        for (index, check) in checks {
            if let Some(observed) = checks::find(check.id).and_then(&run) {
                self.put(index, None, observed);
            }
        }
    }

    pub(super) fn put(&mut self, index: usize, interface: Option<usize>, observed: Observed) {
        self.seen.insert((index, interface), observed);
    }

    /// Notes whether an interface answers.
    pub(super) fn put_reach(&mut self, number: usize, observed: Observed) {
        let reach = self.selected().find(|(_, check)| check.id == "reach.answers");
        if let Some((index, _)) = reach {
            self.put(index, Some(number), observed);
        }
    }

    /// Notes that nothing was seen of an interface, for the checks that have no observation yet.
    pub(super) fn blind(&mut self, number: usize, why: &Observed, applies: impl Fn(&Check) -> bool) {
        let checks: Vec<_> =
            self.selected().filter(|(_, check)| check.scope == Scope::Interface && applies(check)).collect();
        for (index, _) in checks {
            self.seen.entry((index, Some(number))).or_insert_with(|| why.clone());
        }
    }

    /// Every finding, in the order of the catalogue, then of the interfaces.
    pub(super) fn finish(mut self, stations: &[Station]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (index, check) in self.selected().collect::<Vec<_>>() {
            if check.scope == Scope::Agent {
                let observed = self.seen.remove(&(index, None));
                let section = check.sections.v1_0.or(check.sections.v0_3);
                findings.extend(observed.and_then(|observed| observed.finding(check, section, None)));
                continue;
            }
            for (number, station) in stations.iter().enumerate() {
                let Some(interface) = &station.interface else { continue };
                if !check.applies(interface.version, interface.binding) {
                    continue;
                }
                let observed = self.seen.remove(&(index, Some(number))).unwrap_or_else(|| self.unseen(check));
                let section = check.sections.of(interface.version);
                findings.extend(observed.finding(check, section, Some(&interface.id)));
            }
        }
        findings
    }

    /// The reason why a check has no observation.
    fn unseen(&self, check: &Check) -> Observed {
        if self.depths.contains(&check.depth) {
            return Observed::unseen(Unseen::Setup, "the agent made nothing that this check could look at");
        }
        let option = match check.depth {
            Depth::Look => "look",
            Depth::Send => "--send",
            Depth::Push => "--push",
            Depth::Key => "--as",
        };
        Observed::unseen(Unseen::Depth, format!("needs {option}"))
    }
}
