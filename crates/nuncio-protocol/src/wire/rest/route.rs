//! Which operation a verb and a path mean.

use super::{Paths, Refused, escape::unescape};
use crate::op::{Op, OpRow, Verb};

/// A path variable: its name, and its value still escaped.
pub(super) type Variable<'p> = (&'static str, &'p str);

/// What a verb and a path mean.
#[derive(Debug)]
pub(super) struct Route<'p> {
    pub(super) tenant: Option<String>,
    pub(super) op: Op,
    pub(super) variables: Vec<Variable<'p>>,
}

/// The route of a verb and a path. Routes without a tenant come first (trap T-10).
pub(super) fn find<'p>(paths: &Paths, verb: &str, path: &'p str) -> Result<Route<'p>, Refused> {
    let own = matches(paths, path);
    if !own.is_empty() {
        return by_verb(own, verb, None);
    }
    let (tenant, below) = split_tenant(path).filter(|_| paths.tenants).ok_or(Refused::NotFound)?;
    let behind = matches(paths, below);
    let tenant = decode_tenant(paths, tenant).filter(|_| !behind.is_empty()).ok_or(Refused::NotFound)?;
    by_verb(behind, verb, Some(tenant))
}

/// The name of a tenant; `None` if it cannot be one.
fn decode_tenant(paths: &Paths, tenant: &str) -> Option<String> {
    let tenant = unescape(tenant).filter(|tenant| !tenant.is_empty() && !paths.is_reserved(tenant))?;
    Some(tenant.into_owned())
}

/// `/acme/tasks` is `acme` and `/tasks`.
fn split_tenant(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix('/')?;
    let end = path.find('/')?;
    Some(path.split_at(end))
}

type Match<'p> = (&'static OpRow, Vec<Variable<'p>>);

/// Every operation at this path, whatever its verb.
fn matches<'p>(paths: &Paths, path: &'p str) -> Vec<Match<'p>> {
    let Some(path) = path.strip_prefix(paths.prefix) else { return Vec::new() };
    let mut found: Vec<Match<'p>> = Op::TABLE
        .iter()
        .filter_map(|row| captures(paths.template(row), path).map(|variables| (row, variables)))
        .collect();
    // `x:cancel` is the task `x` and something to do with it, never the task `x:cancel` (trap T-11).
    if found.iter().any(|(row, _)| has_action(row)) {
        found.retain(|(row, _)| has_action(row));
    }
    found
}

fn has_action(row: &OpRow) -> bool {
    row.path.contains("}:")
}

/// The variables of a template in a path, segment by segment; `None` if it does not fit.
fn captures<'p>(template: &'static str, path: &'p str) -> Option<Vec<Variable<'p>>> {
    let mut variables = Vec::new();
    let mut segments = path.split('/');
    for pattern in template.split('/') {
        let segment = segments.next()?;
        match pattern.strip_prefix('{').and_then(|pattern| pattern.split_once('}')) {
            // The action is what follows the last colon; escapes are decoded later (traps T-11, T-49).
            Some((name, action)) => {
                let value = segment.strip_suffix(action).filter(|value| !value.is_empty())?;
                variables.push((name, value));
            }
            None if pattern == segment => {}
            None => return None,
        }
    }
    segments.next().is_none().then_some(variables)
}

fn by_verb<'p>(found: Vec<Match<'p>>, verb: &str, tenant: Option<String>) -> Result<Route<'p>, Refused> {
    let mut allow = Vec::new();
    for (row, variables) in found {
        if verbs(row).iter().any(|own| own.as_str() == verb) {
            return Ok(Route { tenant, op: row.op, variables });
        }
        allow.extend_from_slice(verbs(row));
    }
    Err(Refused::MethodNotAllowed { allow })
}

/// Subscribe answers to both verbs, because the specification names both (trap T-01, REQ-045).
fn verbs(row: &OpRow) -> &'static [Verb] {
    match (row.op, row.verb) {
        (Op::SubscribeToTask, _) => &[Verb::Get, Verb::Post],
        (_, Verb::Get) => &[Verb::Get],
        (_, Verb::Post) => &[Verb::Post],
        (_, Verb::Delete) => &[Verb::Delete],
    }
}
