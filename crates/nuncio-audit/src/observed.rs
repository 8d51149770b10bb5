//! The observation of a check, before it becomes a finding.

use crate::{
    answer::{Answer, Said},
    catalogue::{Check, Level},
    outcome::{Excerpt, Finding, InterfaceId, Unseen, Verdict},
    wire::{Exchange, Failure},
};

/// The kind of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The demand is met.
    Met,
    /// The demand is not met: a failure or a loose end, by the level of the check.
    Broken,
    /// Contested, or a fact.
    Info,
    /// Not observed.
    Unseen(Unseen),
    /// The check does not apply here; there is no finding.
    Skip,
}

/// The observation of a check.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) kind: Kind,
    pub(crate) reason: String,
    observed: Option<String>,
    expected: Option<String>,
    evidence: Option<Box<(String, Excerpt)>>,
}

/// The result of a check: an early end is an observation as well.
pub(crate) type Checked = Result<Observed, Observed>;

impl Observed {
    fn new(kind: Kind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), observed: None, expected: None, evidence: None }
    }

    pub(crate) fn met() -> Self {
        Self::new(Kind::Met, "")
    }

    pub(crate) fn broken(reason: impl Into<String>) -> Self {
        Self::new(Kind::Broken, reason)
    }

    pub(crate) fn info(reason: impl Into<String>) -> Self {
        Self::new(Kind::Info, reason)
    }

    pub(crate) fn skip() -> Self {
        Self::new(Kind::Skip, "")
    }

    pub(crate) fn unseen(why: Unseen, reason: impl Into<String>) -> Self {
        Self::new(Kind::Unseen(why), reason)
    }

    /// A condition of the check was not met.
    pub(crate) fn no_setup(reason: impl Into<String>) -> Self {
        Self::unseen(Unseen::Setup, reason)
    }

    /// No answer.
    pub(crate) fn silent(failure: &Failure) -> Self {
        let why = match failure {
            Failure::Unreached(_) | Failure::Broken(_) => Unseen::Unreachable,
            Failure::Slow(_) => Unseen::Slow,
            Failure::Deadline => Unseen::Deadline,
        };
        Self::unseen(why, failure.to_string())
    }

    #[must_use]
    pub(crate) fn seen(mut self, observed: impl Into<String>) -> Self {
        self.observed = Some(observed.into());
        self
    }

    #[must_use]
    pub(crate) fn expecting(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    /// The same evidence with another kind and reason.
    #[must_use]
    pub(crate) fn judged(mut self, kind: Kind, reason: impl Into<String>) -> Self {
        self.kind = kind;
        self.reason = reason.into();
        self
    }

    /// Adds the exchange behind the observation.
    #[must_use]
    pub(crate) fn on(mut self, exchange: &Exchange) -> Self {
        self.evidence = Some(Box::new((exchange.request.curl(), exchange.excerpt())));
        self
    }

    /// The finding of a check; `None` if it does not apply.
    pub(crate) fn finding(
        self,
        check: &Check,
        section: Option<&'static str>,
        interface: Option<&InterfaceId>,
    ) -> Option<Finding> {
        let (verdict, unseen) = match (self.kind, check.level) {
            (Kind::Skip, _) => return None,
            (Kind::Met, Level::May) | (Kind::Info, _) | (Kind::Broken, Level::May) => (Verdict::Info, None),
            (Kind::Met, _) => (Verdict::Pass, None),
            (Kind::Broken, Level::Must) => (Verdict::Fail, None),
            (Kind::Broken, Level::Should) => (Verdict::Loose, None),
            (Kind::Unseen(why), _) => (Verdict::Unseen, Some(why)),
        };
        let (repeat, exchange) =
            self.evidence.filter(|_| verdict != Verdict::Pass).map(|evidence| *evidence).unzip();
        Some(Finding {
            check: check.id.to_owned(),
            area: check.area,
            level: check.level,
            interface: interface.cloned(),
            section: section.map(str::to_owned),
            verdict,
            unseen,
            reason: self.reason,
            observed: self.observed,
            expected: self.expected,
            repeat,
            exchange,
        })
    }
}

impl Answer {
    /// The answer, unless there is none, or the agent is too busy to say anything.
    ///
    /// # Errors
    /// The observation of a check that cannot see anything.
    pub(crate) fn seen(&self) -> Result<&Self, Observed> {
        match &self.said {
            Said::Silent(failure) => Err(Observed::silent(failure).on(&self.exchange)),
            Said::Error(refusal) if matches!(refusal.http, 429 | 503) || matches!(refusal.code, 8 | 14) => {
                let why = format!("the agent is too busy: {}", refusal.message);
                Err(Observed::unseen(Unseen::Slow, why).on(&self.exchange))
            }
            Said::Success(_) | Said::Error(_) | Said::Foreign(_) => Ok(self),
        }
    }
}
