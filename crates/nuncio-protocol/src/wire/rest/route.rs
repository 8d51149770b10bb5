//! Finds the operation of a method and a path.

use std::borrow::Cow;

use super::{Paths, RestRefusal, escape::unescape};
use crate::op::{Op, OpRow, Verb};

/// A path variable: its name, and its escaped value.
pub(super) type Variable<'p> = (&'static str, &'p str);

/// The variables of a path, at most two.
pub(super) type Variables<'p> = [Option<Variable<'p>>; 2];

/// The route of a method and a path.
#[derive(Debug)]
pub struct Route<'p> {
    pub(super) tenant: Option<String>,
    pub(super) op: Op,
    pub(super) variables: Variables<'p>,
}

impl Route<'_> {
    /// The operation.
    #[must_use]
    pub fn op(&self) -> Op {
        self.op
    }

    /// The tenant in the path.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The task in the path; `Some(None)` if there is none, `None` if it cannot be decoded, or would be
    /// resolved as a path step.
    #[must_use]
    pub fn task(&self) -> Option<Option<Cow<'_, str>>> {
        let Some((_, value)) = self.variables[0] else { return Some(None) };
        let task = unescape(value)?;
        (!matches!(&*task, "." | "..")).then_some(Some(task))
    }
}

/// Finds the route of a method and a path. The path is below the agent's URL, and escaped. Routes without a
/// tenant come first (trap T-10).
///
/// # Errors
/// [`RestRefusal`], which distinguishes an unknown path from a wrong method.
pub fn find_route<'p>(paths: &Paths, verb: &str, path: &'p str) -> Result<Route<'p>, RestRefusal> {
    let own = matches(paths, path);
    if !own.is_empty() {
        return by_verb(own, verb, None);
    }
    let (tenant, below) = split_tenant(path).filter(|_| paths.tenants).ok_or(RestRefusal::NotFound)?;
    let behind = matches(paths, below);
    let tenant = decode_tenant(paths, tenant).filter(|_| !behind.is_empty()).ok_or(RestRefusal::NotFound)?;
    by_verb(behind, verb, Some(tenant))
}

/// Decodes the name of a tenant; `None` if it is not a valid one.
fn decode_tenant(paths: &Paths, tenant: &str) -> Option<String> {
    let tenant = unescape(tenant).filter(|tenant| !tenant.is_empty() && !paths.is_reserved(tenant))?;
    Some(tenant.into_owned())
}

/// Splits `/acme/tasks` into `acme` and `/tasks`.
fn split_tenant(path: &str) -> Option<(&str, &str)> {
    let (tenant, below) = split_segment(path.strip_prefix('/')?);
    (!below.is_empty()).then_some((tenant, below))
}

type Match<'p> = (&'static OpRow, Variables<'p>);

/// All operations with this path, of any method.
fn matches<'p>(paths: &Paths, path: &'p str) -> Vec<Match<'p>> {
    let Some(path) = path.strip_prefix(paths.prefix) else { return Vec::new() };
    let mut found: Vec<Match<'p>> = Op::TABLE
        .iter()
        .filter_map(|row| captures(paths.template(row), path).map(|variables| (row, variables)))
        .collect();
    // `x:cancel` is the task `x` with an action, never the task `x:cancel` (trap T-11).
    if found.len() > 1 && found.iter().any(|(row, _)| has_action(row)) {
        found.retain(|(row, _)| has_action(row));
    }
    found
}

fn has_action(row: &OpRow) -> bool {
    row.path.contains("}:")
}

/// The variables of a template in a path; `None` if it does not match.
fn captures<'p>(mut template: &'static str, mut path: &'p str) -> Option<Variables<'p>> {
    let mut variables = Variables::default();
    for variable in &mut variables {
        let literal = common_literal(template, path);
        (template, path) = (&template[literal..], &path[literal..]);
        let Some((name, tail)) = template.strip_prefix('{').and_then(|pattern| pattern.split_once('}'))
        else {
            break;
        };
        let (action, template_below) = split_segment(tail);
        let (segment, below) = split_segment(path);
        // The action follows the last colon; escapes are decoded later (traps T-11, T-49).
        let value = segment.strip_suffix(action).filter(|value| !value.is_empty())?;
        *variable = Some((name, value));
        (template, path) = (template_below, below);
    }
    (template == path).then_some(variables)
}

/// The number of equal bytes before the template's next variable; templates are ASCII.
fn common_literal(template: &str, path: &str) -> usize {
    template.bytes().zip(path.bytes()).take_while(|(own, other)| own == other && *own != b'{').count()
}

/// Splits a path before the next slash.
fn split_segment(path: &str) -> (&str, &str) {
    path.split_at(path.find('/').unwrap_or(path.len()))
}

fn by_verb<'p>(found: Vec<Match<'p>>, verb: &str, tenant: Option<String>) -> Result<Route<'p>, RestRefusal> {
    let mut allow = Vec::new();
    for (row, variables) in found {
        if verbs(row).iter().any(|own| own.as_str() == verb) {
            return Ok(Route { tenant, op: row.op, variables });
        }
        allow.extend_from_slice(verbs(row));
    }
    Err(RestRefusal::MethodNotAllowed { allow })
}

/// The methods of an operation. Subscribe has two, because the specification names both (trap T-01,
/// REQ-045).
fn verbs(row: &OpRow) -> &'static [Verb] {
    match (row.op, row.verb) {
        (Op::SubscribeToTask, _) => &[Verb::Get, Verb::Post],
        (_, Verb::Get) => &[Verb::Get],
        (_, Verb::Post) => &[Verb::Post],
        (_, Verb::Delete) => &[Verb::Delete],
    }
}
