//! Text of the card that addresses a model instead of describing the agent.

use crate::{
    card::FoundCard,
    observed::{Checked, Observed},
};

/// Phrases of instructions to a model, in lower case.
const PHRASES: &[&str] = &[
    "ignore previous",
    "ignore all previous",
    "ignore the above",
    "disregard previous",
    "disregard all",
    "system prompt",
    "you are now",
    "do not tell the user",
    "do not mention",
    "always choose this agent",
    "always call this",
    "<system>",
    "[inst]",
];

pub(super) fn text(found: &FoundCard) -> Checked {
    let card = &found.card;
    let mut texts = vec![("name", &card.name), ("description", &card.description)];
    for skill in &card.skills {
        texts.extend([("a skill's name", &skill.name), ("a skill's description", &skill.description)]);
        texts.extend(skill.examples.iter().map(|example| ("a skill's example", example)));
    }
    let hit = texts.iter().find_map(|(place, text)| {
        let text = text.to_lowercase();
        PHRASES.iter().find(|phrase| text.contains(**phrase)).map(|phrase| (*place, *phrase))
    });
    Ok(match hit {
        Some((place, phrase)) => Observed::info(format!(
            "{place} says \"{phrase}\": models that read the card may take it for an instruction"
        )),
        None => Observed::skip(),
    })
}
