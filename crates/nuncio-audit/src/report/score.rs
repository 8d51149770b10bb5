//! The score of an audit: MUST weighs 3 and SHOULD 1, over the checks that were seen.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Area, AuditResult, Finding, Grounds, Level, Unseen, Verdict};

/// Points of a requirement that is met.
const MUST_WEIGHT: u32 = 3;
/// Points of a recommendation that is met.
const SHOULD_WEIGHT: u32 = 1;

/// The lowest score of each grade; a lower score is F.
const THRESHOLDS: [(u8, Grade); 4] = [(80, Grade::A), (65, Grade::B), (50, Grade::C), (35, Grade::D)];

/// The score of an audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Score {
    /// The grade after all caps; absent without a card, or if no check was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grade: Option<Grade>,
    /// All categories together.
    pub overall: Tally,
    /// The categories that have findings, in the order of the catalogue.
    pub categories: Vec<CategoryScore>,
    /// The facts that limit the grade, the strongest first.
    pub caps: Vec<Cap>,
}

/// The score of one category.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CategoryScore {
    /// The category.
    pub area: Area,
    /// The title of the category.
    pub title: String,
    /// Its points and counts.
    #[serde(flatten)]
    pub tally: Tally,
}

/// Points and counts of a set of findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Percent of the possible points, rounded down; absent if nothing was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<u8>,
    /// Percent of the applicable checks that were seen, rounded down; absent if none applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<u8>,
    /// Points of the demands that are met.
    pub points: u32,
    /// Points of the demands that were seen.
    pub possible: u32,
    /// Findings with the verdict pass.
    pub pass: u32,
    /// Findings with the verdict loose.
    pub loose: u32,
    /// Findings with the verdict fail.
    pub fail: u32,
    /// Findings with the verdict info.
    pub info: u32,
    /// Findings with the verdict unseen.
    pub unseen: u32,
}

/// A grade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Grade {
    /// Below 35.
    F,
    /// From 35.
    D,
    /// From 50.
    C,
    /// From 65.
    B,
    /// From 80.
    A,
}

/// A limit of the grade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cap {
    /// The best grade that is left; absent if there is no grade at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Grade>,
    /// The fact behind the limit.
    pub reason: String,
}

impl Grade {
    /// The grade of a score.
    #[must_use]
    pub fn of(score: u8) -> Self {
        THRESHOLDS.iter().find(|(least, _)| score >= *least).map_or(Self::F, |(_, grade)| *grade)
    }

    /// The letter.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::F => "F",
        }
    }
}

impl Score {
    /// The grade as a letter, or a dash if there is none.
    #[must_use]
    pub fn letter(&self) -> &'static str {
        self.grade.map_or("–", Grade::as_str)
    }
}

/// The score of a result.
#[must_use]
pub fn score(result: &AuditResult) -> Score {
    let overall = Tally::of(result.findings.iter());
    let caps = caps(&result.grounds, overall.fail);
    Score { grade: grade(overall.score, &caps), overall, categories: categories(result), caps }
}

fn categories(result: &AuditResult) -> Vec<CategoryScore> {
    let of_area = |area: Area| {
        let tally = Tally::of(result.findings.iter().filter(|finding| finding.area == area));
        CategoryScore { area, title: area.title().to_owned(), tally }
    };
    Area::ALL.iter().map(|area| of_area(*area)).filter(|category| category.tally.count() > 0).collect()
}

fn grade(score: Option<u8>, caps: &[Cap]) -> Option<Grade> {
    let uncapped = Grade::of(score?);
    caps.iter().try_fold(uncapped, |grade, cap| Some(grade.min(cap.at_most?)))
}

/// The limits that follow from the facts, the strongest first.
fn caps(grounds: &Grounds, failed: u32) -> Vec<Cap> {
    let cap = |at_most, reason: &str| Cap { at_most, reason: reason.to_owned() };
    let mut caps = Vec::new();
    if grounds.no_card {
        caps.push(cap(None, "there is no agent card"));
    }
    if grounds.auth_not_enforced {
        caps.push(cap(Some(Grade::F), "the card declares authentication that the agent does not enforce"));
    }
    if grounds.foreign_tasks_visible {
        caps.push(cap(Some(Grade::F), "a caller sees tasks of another caller"));
    }
    if !grounds.silent_interfaces.is_empty() {
        caps.push(cap(Some(Grade::D), "an interface on the card does not answer"));
    }
    if failed > 0 {
        caps.push(cap(Some(Grade::B), "a requirement (MUST) is not met"));
    }
    caps
}

impl Tally {
    fn of<'a>(findings: impl Iterator<Item = &'a Finding>) -> Self {
        let mut tally = Self::default();
        let (mut seen, mut applicable) = (0, 0);
        for finding in findings {
            tally.count_verdict(finding.verdict);
            let weight = weight(finding.level);
            let is_seen = finding.is_seen() && weight > 0;
            seen += u32::from(is_seen);
            applicable += u32::from(is_seen || is_missed(finding));
            if is_seen {
                tally.possible += weight;
                tally.points += if finding.verdict == Verdict::Pass { weight } else { 0 };
            }
        }
        tally.score = percent(tally.points, tally.possible);
        tally.coverage = percent(seen, applicable);
        tally
    }

    fn count_verdict(&mut self, verdict: Verdict) {
        let count = match verdict {
            Verdict::Pass => &mut self.pass,
            Verdict::Loose => &mut self.loose,
            Verdict::Fail => &mut self.fail,
            Verdict::Info => &mut self.info,
            Verdict::Unseen => &mut self.unseen,
        };
        *count += 1;
    }

    /// The number of findings.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.pass + self.loose + self.fail + self.info + self.unseen
    }
}

/// True for a demand that applies to the agent and was not seen. A check of something that the card does not
/// declare does not apply.
fn is_missed(finding: &Finding) -> bool {
    finding.verdict == Verdict::Unseen
        && finding.unseen != Some(Unseen::Undeclared)
        && weight(finding.level) > 0
}

fn weight(level: Level) -> u32 {
    match level {
        Level::Must => MUST_WEIGHT,
        Level::Should => SHOULD_WEIGHT,
        Level::May => 0,
    }
}

/// Percent, rounded down, so that 100 means all and no grade is better than the number beside it.
fn percent(part: u32, whole: u32) -> Option<u8> {
    let percent = u64::from(part) * 100 / u64::from(std::num::NonZeroU32::new(whole)?.get());
    u8::try_from(percent).ok()
}
