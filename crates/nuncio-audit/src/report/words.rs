//! The words of reports for verdicts, levels, depths and reasons.

use crate::{Depth, Level, Reachability, Unseen, Verdict};

/// The reason of unseen findings in one clause.
pub(super) fn unseen_reason(reason: Option<Unseen>, depth: Option<Depth>) -> String {
    let clause = match (reason, depth) {
        (Some(Unseen::Depth), Some(depth)) => return format!("needs {}", depth_option(depth)),
        (Some(Unseen::Depth), None) => "needs a greater depth",
        (Some(Unseen::Unreachable), _) => "the interface did not answer as an A2A agent",
        (Some(Unseen::Slow), _) => "the agent did not answer in time",
        (Some(Unseen::Credentials), _) => "the agent asked for credentials",
        (Some(Unseen::Setup), _) => "the situation of the check did not come about",
        (Some(Unseen::Undeclared), _) => "the card does not declare it",
        (Some(Unseen::Deadline), _) => "the deadline of the audit had passed",
        (None, _) => "no reason is given",
    };
    clause.to_owned()
}

/// The option that adds a depth.
pub(super) fn depth_option(depth: Depth) -> &'static str {
    match depth {
        Depth::Look => "no option",
        Depth::Send => "--send TEXT",
        Depth::Push => "--push",
        Depth::Key => "--as VARIABLE",
    }
}

/// The name of a depth.
pub(super) fn depth_name(depth: Depth) -> &'static str {
    match depth {
        Depth::Look => "look",
        Depth::Send => "send",
        Depth::Push => "push",
        Depth::Key => "key",
    }
}

/// The word of a verdict.
pub(super) fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Loose => "loose",
        Verdict::Fail => "fail",
        Verdict::Info => "info",
        Verdict::Unseen => "unseen",
    }
}

/// The word of a level.
pub(super) fn level_name(level: Level) -> &'static str {
    match level {
        Level::Must => "MUST",
        Level::Should => "SHOULD",
        Level::May => "MAY",
    }
}

/// The word for the reachability of an interface.
pub(super) fn reachability_name(reachability: Reachability) -> &'static str {
    match reachability {
        Reachability::Answers => "answers",
        Reachability::Wrong => "answers wrongly",
        Reachability::Closed => "needs credentials",
        Reachability::Silent => "silent",
        Reachability::Slow => "slow",
        Reachability::Unknown => "not audited",
    }
}
