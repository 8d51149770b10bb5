//! Full-text search over cards, pure: every word of the query must be a prefix of a word of the card.
//!
//! A hub has tens of agents, seldom thousands, so the words are split at each query. An index would have to
//! follow every change of a card, for a gain too small to measure.

use std::cmp::Reverse;

use nuncio_protocol::AgentCard;

/// Weights of a word by its location in the card.
const NAME: u32 = 8;
const SKILL: u32 = 4;
const DESCRIPTION: u32 = 1;
/// The factor for a whole word instead of a prefix.
const WHOLE_WORD_FACTOR: u32 = 2;

/// The words of a query, in lower case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SearchQuery(Vec<String>);

impl SearchQuery {
    /// The words of this text; `None` without any.
    pub(super) fn new(text: &str) -> Option<Self> {
        let words: Vec<_> = words(text).collect();
        (!words.is_empty()).then_some(Self(words))
    }

    /// The rank of a card; `None` if a word of the query is not in it.
    pub(super) fn rank(&self, name: &str, card: &AgentCard) -> Option<Reverse<u32>> {
        let mut places =
            vec![(NAME, name), (NAME, card.name.as_str()), (DESCRIPTION, card.description.as_str())];
        places.extend(card.provider.iter().map(|provider| (DESCRIPTION, provider.organization.as_str())));
        for skill in &card.skills {
            places.extend([&skill.id, &skill.name].map(|text| (SKILL, text.as_str())));
            places.extend(skill.tags.iter().map(|tag| (SKILL, tag.as_str())));
            places.push((DESCRIPTION, skill.description.as_str()));
            places.extend(skill.examples.iter().map(|example| (DESCRIPTION, example.as_str())));
        }
        let mut best = vec![0; self.0.len()];
        for (weight, text) in places {
            for found in words(text) {
                for (wanted, best) in self.0.iter().zip(&mut best) {
                    if found.starts_with(wanted.as_str()) {
                        let whole = if found.len() == wanted.len() { WHOLE_WORD_FACTOR } else { 1 };
                        *best = u32::max(*best, weight * whole);
                    }
                }
            }
        }
        best.iter().all(|&best| best > 0).then(|| Reverse(best.iter().sum()))
    }
}

/// Splits a text into words of letters and digits, in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::AgentSkill;

    use super::*;

    fn card(name: &str, description: &str, tags: &[&str]) -> AgentCard {
        let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        let skill = AgentSkill { id: "s".to_owned(), tags, ..AgentSkill::default() };
        AgentCard { skills: vec![skill], ..AgentCard::new(name, description) }
    }

    #[test]
    fn what_fits_best_comes_first() {
        let cards = [
            card("Billing", "Sends invoices.", &["finance"]),
            card("Finance reports", "Reads the ledger, for billing too.", &[]),
            card("Wetter", "Sagt, ob es in Z\u{fc}rich regnet.", &["weather-now"]),
        ];
        for (query, expected) in [
            ("billing", vec!["Billing", "Finance reports"]),
            ("finance", vec!["Finance reports", "Billing"]),
            ("FIN", vec!["Finance reports", "Billing"]),
            ("invoice finance", vec!["Billing"]),
            ("z\u{dc}rich", vec!["Wetter"]),
            ("now", vec!["Wetter"]),
            ("ledgers", vec![]),
            ("edger", vec![]),
        ] {
            let query = SearchQuery::new(query).unwrap();
            let mut found: Vec<_> =
                cards.iter().filter_map(|card| Some((query.rank("x", card)?, card.name.as_str()))).collect();
            found.sort();
            let found: Vec<_> = found.into_iter().map(|(_, name)| name).collect();
            assert_eq!(found, expected, "{query:?}");
        }
        for none in ["", " ", "-,.", "\u{301}"] {
            assert_eq!(SearchQuery::new(none), None, "{none:?}");
        }
        assert!(
            SearchQuery::new("bil").unwrap().rank("billing-2", &AgentCard::new("x", "")).is_some(),
            "by its path"
        );
    }
}
