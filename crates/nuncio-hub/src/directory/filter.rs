//! Query parameters of the list of agents: search, filters and paging.

use nuncio_protocol::AgentCard;
use url::form_urlencoded;

use super::{DirectoryEntry, search::SearchQuery};

/// Default number of agents per page.
const PAGE: usize = 100;
/// Maximum number of agents per page.
const MAX_PAGE_SIZE: usize = 1000;

/// Conditions on agents, combined by AND, and the page.
#[derive(Debug, Default)]
pub(super) struct Filter {
    query: Option<SearchQuery>,
    tags: Vec<String>,
    skill: Option<String>,
    input_mode: Option<String>,
    output_mode: Option<String>,
    extension: Option<String>,
    streaming: Option<bool>,
    push: Option<bool>,
    size: Option<usize>,
    skip: usize,
}

/// A page of agents.
pub(super) struct AgentPage {
    pub(super) entries: Vec<DirectoryEntry>,
    /// The number of matching agents on all pages.
    pub(super) total: usize,
    pub(super) next: Option<String>,
}

impl Filter {
    /// Parses the query string of a URL.
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let mut filter = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let number =
                || value.parse::<usize>().map_err(|_| format!("{name}: expected a number, got {value:?}"));
            let switch = || match &*value {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err(format!("{name}: expected true or false, got {value:?}")),
            };
            match &*name {
                "q" => filter.query = SearchQuery::new(&value),
                "tag" => filter.tags.push(value.into_owned()),
                "skill" => filter.skill = Some(value.into_owned()),
                "inputMode" => filter.input_mode = Some(value.into_owned()),
                "outputMode" => filter.output_mode = Some(value.into_owned()),
                "extension" => filter.extension = Some(value.into_owned()),
                "streaming" => filter.streaming = Some(switch()?),
                "pushNotifications" => filter.push = Some(switch()?),
                "pageSize" => filter.size = Some(number()?.clamp(1, MAX_PAGE_SIZE)),
                "pageToken" => filter.skip = number()?,
                _ => {
                    return Err(format!(
                        "unknown parameter {name}; expected one of q, tag, skill, inputMode, outputMode, extension, \
                         streaming, pushNotifications, pageSize, pageToken"
                    ));
                }
            }
        }
        Ok(filter)
    }

    /// The matching agents, best match first, then by name.
    pub(super) fn apply(&self, entries: Vec<DirectoryEntry>) -> AgentPage {
        let mut fit: Vec<_> = entries
            .into_iter()
            .filter(|entry| self.takes(&entry.card))
            .filter_map(|entry| match &self.query {
                Some(query) => Some((Some(query.rank(&entry.name, &entry.card)?), entry)),
                None => Some((None, entry)),
            })
            .collect();
        // The sort is stable: entries with the same rank stay in the order of their names.
        fit.sort_by_key(|(rank, _)| *rank);
        let (total, size) = (fit.len(), self.size.unwrap_or(PAGE));
        let entries: Vec<_> = fit.into_iter().skip(self.skip).take(size).map(|(_, entry)| entry).collect();
        let after = self.skip.saturating_add(entries.len());
        AgentPage { next: (after < total && !entries.is_empty()).then(|| after.to_string()), entries, total }
    }

    fn takes(&self, card: &AgentCard) -> bool {
        let any = |wanted: &Option<String>, has: &dyn Fn(&str) -> bool| wanted.as_deref().is_none_or(has);
        let tagged = |tag: &String| {
            card.skills.iter().flat_map(|skill| &skill.tags).any(|known| known.eq_ignore_ascii_case(tag))
        };
        self.tags.iter().all(tagged)
            && any(&self.skill, &|id| card.skills.iter().any(|skill| skill.id == id))
            && any(&self.input_mode, &|mode| {
                offers(&card.default_input_modes, card.skills.iter().map(|skill| &skill.input_modes), mode)
            })
            && any(&self.output_mode, &|mode| {
                offers(&card.default_output_modes, card.skills.iter().map(|skill| &skill.output_modes), mode)
            })
            && any(&self.extension, &|uri| card.extension(uri).is_some())
            && self.streaming.is_none_or(|is| card.capabilities.streaming.unwrap_or_default() == is)
            && self.push.is_none_or(|is| card.capabilities.push_notifications.unwrap_or_default() == is)
    }
}

fn offers<'a>(default: &'a [String], skills: impl Iterator<Item = &'a Vec<String>>, mode: &str) -> bool {
    default.iter().chain(skills.flatten()).any(|known| known == "*/*" || known.eq_ignore_ascii_case(mode))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nuncio_protocol::AgentSkill;

    use super::*;

    fn entry(name: &str, streams: bool, tags: &[&str]) -> DirectoryEntry {
        let mut card = AgentCard::new(name, "Does things.");
        card.capabilities.streaming = Some(streams);
        card.default_input_modes = vec!["text/plain".to_owned()];
        card.skills = vec![AgentSkill {
            id: format!("{name}-skill"),
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            output_modes: vec!["image/png".to_owned()],
            ..AgentSkill::default()
        }];
        DirectoryEntry {
            name: name.into(),
            url: format!("http://h/agents/{name}"),
            card: Arc::new(card),
            shows_upstream: false,
        }
    }

    fn entries() -> Vec<DirectoryEntry> {
        vec![entry("ann", true, &["Law", "tax"]), entry("bob", false, &["tax"]), entry("cat", true, &[])]
    }

    #[test]
    fn filters_combine() {
        for (query, expected) in [
            ("", "ann bob cat"),
            ("q=", "ann bob cat"),
            ("q=tax", "ann bob"),
            ("tag=tax", "ann bob"),
            ("tag=tax&tag=law", "ann"),
            ("streaming=true&q=things", "ann cat"),
            ("streaming=false", "bob"),
            ("pushNotifications=true", ""),
            ("skill=cat-skill", "cat"),
            ("inputMode=text/plain&outputMode=IMAGE/png", "ann bob cat"),
            ("inputMode=image/png", ""),
            ("extension=urn:x", ""),
            ("q=nothing", ""),
        ] {
            let page = Filter::parse(query).unwrap().apply(entries());
            let names: Vec<_> = page.entries.iter().map(|entry| &*entry.name).collect();
            assert_eq!(names.join(" "), expected, "{query}");
            assert_eq!((page.total, page.next), (names.len(), None), "{query}");
        }
    }

    #[test]
    fn pages_follow_each_other() {
        let (mut token, mut seen) = (String::from("0"), Vec::new());
        for _ in 0..3 {
            let page = Filter::parse(&format!("pageSize=1&pageToken={token}")).unwrap().apply(entries());
            assert_eq!((page.entries.len(), page.total), (1, 3));
            seen.push(page.entries[0].name.to_string());
            token = page.next.unwrap_or_default();
        }
        assert_eq!((seen.join(" "), token.as_str()), ("ann bob cat".to_owned(), ""));
        let beyond = Filter::parse("pageToken=7").unwrap().apply(entries());
        assert_eq!((beyond.entries.len(), beyond.total, beyond.next), (0, 3, None));
    }

    #[test]
    fn what_cannot_be_asked_is_told() {
        for (query, word) in [
            ("Q=tax", "expected one of q, tag"),
            ("streaming=yes", "true or false"),
            ("pageSize=many", "a number"),
            ("pageToken=-1", "a number"),
        ] {
            let error = Filter::parse(query).unwrap_err();
            assert!(error.contains(word), "{query}: {error}");
        }
    }
}
