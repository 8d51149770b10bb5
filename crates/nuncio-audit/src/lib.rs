//! Audits an A2A agent: compares its card, its behaviour and the specification, for both versions and every
//! binding on the card.
//!
//! Reading order of the modules:
//!
//! | module | content |
//! |---|---|
//! | [`catalogue`] | the checks as data: level, requirement, section, reason, fix |
//! | [`outcome`] | the verdict of a check on one interface, with its evidence |
//! | [`mod@audit`] | the result of a run: target, card, interfaces, findings |
//! | [`exchange`] | single calls of an interface, judged frame by frame, for programs that show them |
//! | `wire` | raw exchanges: requests, bounded answers, streams |
//! | `interface`, `answer` | calls of a version and binding as requests, and the meaning of answers |
//! | `probe`, `observed` | the means of a check, and its observation |
//! | `card`, `survey`, `conversation` | what is looked at: the card, the interfaces, messages and their tasks |
//! | `shape` | deviations of an answer from its exact form |
//! | `checks` | the functions of the catalogue, an area each |
//! | `run`, `options` | the order of an audit, and its options |
//! | [`report`] | the score, and the reports in every format |

pub mod audit;
pub mod catalogue;
pub mod exchange;
pub mod outcome;
pub mod report;

mod answer;
mod card;
mod checks;
mod conversation;
mod interface;
mod observed;
mod options;
mod plan;
mod probe;
mod push;
mod run;
mod shape;
mod survey;
mod wire;

pub use self::{
    audit::{AuditResult, Capability, CardFacts, Grounds, InterfaceReport, Reachability},
    catalogue::{Area, CATALOGUE, Check, Depth, Level, Scope, Sections},
    options::{
        AuditOptions, DEFAULT_DEADLINE, DEFAULT_MESSAGE_TIMEOUT, DEFAULT_TIMEOUT, Progress, PushOptions,
    },
    outcome::{Excerpt, Finding, InterfaceId, Unseen, Verdict},
    plan::{Plan, PlannedCheck, plan},
    run::audit,
};
