//! Checks of the members of the card, per version.

use std::collections::BTreeSet;

use nuncio_protocol::Version;
use serde_json::Value;

use crate::{
    card::FoundCard,
    observed::{Checked, Observed},
};

/// The required members of each version, and their kinds.
const V1_0: &[(&str, MemberKind)] = &[
    ("name", MemberKind::Text),
    ("description", MemberKind::Text),
    ("version", MemberKind::Text),
    ("supportedInterfaces", MemberKind::List),
    ("capabilities", MemberKind::Object),
    ("defaultInputModes", MemberKind::List),
    ("defaultOutputModes", MemberKind::List),
    ("skills", MemberKind::AnyList),
];
const V0_3: &[(&str, MemberKind)] = &[
    ("protocolVersion", MemberKind::Text),
    ("name", MemberKind::Text),
    ("description", MemberKind::Text),
    ("url", MemberKind::Text),
    ("version", MemberKind::Text),
    ("capabilities", MemberKind::Object),
    ("defaultInputModes", MemberKind::List),
    ("defaultOutputModes", MemberKind::List),
    ("skills", MemberKind::AnyList),
];

/// The kind of a member.
#[derive(Clone, Copy)]
enum MemberKind {
    /// A string that is not empty.
    Text,
    /// A list with an element.
    List,
    /// A list, which may be empty.
    AnyList,
    Object,
}

impl MemberKind {
    fn holds(self, value: &Value) -> bool {
        match self {
            Self::Text => value.as_str().is_some_and(|text| !text.is_empty()),
            Self::List => value.as_array().is_some_and(|list| !list.is_empty()),
            Self::AnyList => value.is_array(),
            Self::Object => value.is_object(),
        }
    }
}

pub(super) fn required(found: &FoundCard) -> Checked {
    let lacks = |members: &[(&'static str, MemberKind)]| -> Vec<&'static str> {
        members.iter().filter(|(name, kind)| !kind.holds(&found.json[*name])).map(|(name, _)| *name).collect()
    };
    for (version, applies, members) in
        [(Version::V1_0, found.is_v1_0(), V1_0), (Version::V0_3, found.is_v0_3(), V0_3)]
    {
        let missing = if applies { lacks(members) } else { Vec::new() };
        if !missing.is_empty() {
            return Err(Observed::broken(format!(
                "the card has no valid {} for {version}",
                missing.join(", ")
            ))
            .seen(
                missing
                    .iter()
                    .map(|name| format!("{name}: {}", found.json[*name]))
                    .collect::<Vec<_>>()
                    .join(", "),
            )
            .expecting("every required member, and none empty")
            .on(&found.exchange));
        }
    }
    Ok(Observed::met().on(&found.exchange))
}

pub(super) fn interfaces(found: &FoundCard) -> Checked {
    let lists: [(&str, &[&str]); 2] = [
        ("supportedInterfaces", &["url", "protocolBinding", "protocolVersion"]),
        ("additionalInterfaces", &["url", "transport"]),
    ];
    for (list, members) in lists {
        for (number, interface) in found.objects(list).enumerate() {
            if let Some(name) = members.iter().find(|name| !MemberKind::Text.holds(&interface[**name])) {
                return Err(Observed::broken(format!("{list}[{number}] has no {name}"))
                    .seen(interface.to_string())
                    .expecting(members.join(", "))
                    .on(&found.exchange));
            }
        }
    }
    Ok(Observed::met())
}

pub(super) fn modes(found: &FoundCard) -> Checked {
    let skills = found.card.skills.iter();
    let of_skills = skills.flat_map(|skill| skill.input_modes.iter().chain(&skill.output_modes));
    let all = found.card.default_input_modes.iter().chain(&found.card.default_output_modes).chain(of_skills);
    let is_media_type = |mode: &&String| {
        let essence = mode.split(';').next().unwrap_or_default().trim();
        essence
            .split_once('/')
            .is_some_and(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/'))
    };
    let wrong: BTreeSet<_> = all.filter(|mode| !is_media_type(mode)).map(String::as_str).collect();
    if wrong.is_empty() {
        return Ok(Observed::met());
    }
    let wrong: Vec<_> = wrong.into_iter().collect();
    Err(Observed::broken(format!("not a media type: {}", wrong.join(", ")))
        .seen(wrong.join(", "))
        .expecting("type/subtype, such as text/plain")
        .on(&found.exchange))
}

/// The kinds of security schemes in 1.0 and in 0.3, with their required members.
const SCHEMES: &[(&str, &str, &[&str], &[&str])] = &[
    ("apiKeySecurityScheme", "apiKey", &["location", "name"], &["in", "name"]),
    ("httpAuthSecurityScheme", "http", &["scheme"], &["scheme"]),
    ("oauth2SecurityScheme", "oauth2", &["flows"], &["flows"]),
    ("openIdConnectSecurityScheme", "openIdConnect", &["openIdConnectUrl"], &["openIdConnectUrl"]),
    ("mtlsSecurityScheme", "mutualTLS", &[], &[]),
];

pub(super) fn schemes(found: &FoundCard) -> Checked {
    let declared = found.json["securitySchemes"].as_object();
    for (name, scheme) in declared.into_iter().flatten() {
        if let Some(why) = wrong_scheme(found, scheme) {
            return Err(Observed::broken(format!("the security scheme {name} {why}"))
                .seen(scheme.to_string())
                .on(&found.exchange));
        }
    }
    let of_skills = found.card.skills.iter().flat_map(|skill| &skill.security_requirements);
    for requirement in found.card.security_requirements.iter().chain(of_skills) {
        for name in requirement.schemes.keys() {
            if !declared.is_some_and(|declared| declared.contains_key(name)) {
                let why = format!("a requirement names the scheme {name}, which is not in securitySchemes");
                return Err(Observed::broken(why).seen(name.clone()).on(&found.exchange));
            }
        }
    }
    Ok(Observed::met())
}

/// The mistake of a scheme, if it has one.
fn wrong_scheme(found: &FoundCard, scheme: &Value) -> Option<String> {
    if found.is_v1_0() {
        let mut kinds = SCHEMES.iter().filter(|row| scheme[row.0].is_object());
        let Some(row) = kinds.next() else { return Some("has none of the five kinds of 1.0".to_owned()) };
        if kinds.next().is_some() {
            return Some("has two kinds".to_owned());
        }
        return missing(&scheme[row.0], row.2);
    }
    let row = SCHEMES.iter().find(|row| scheme["type"] == row.1);
    row.map_or_else(|| Some("has no type of 0.3".to_owned()), |row| missing(scheme, row.3))
}

fn missing(scheme: &Value, members: &[&str]) -> Option<String> {
    let missing = members.iter().find(|name| scheme[**name].is_null());
    missing.map(|name| format!("has no {name}"))
}

pub(super) fn skills(found: &FoundCard) -> Checked {
    let mut ids = BTreeSet::new();
    let mut without_tags = Vec::new();
    for (number, skill) in found.objects("skills").enumerate() {
        let broken = |why: String| Err(Observed::broken(why).seen(skill.to_string()).on(&found.exchange));
        if let Some(name) =
            ["id", "name", "description"].iter().find(|name| !MemberKind::Text.holds(&skill[**name]))
        {
            return broken(format!("skills[{number}] has no {name}"));
        }
        if !skill["tags"].is_array() {
            return broken(format!("skills[{number}] has no tags"));
        }
        if skill["tags"].as_array().is_some_and(Vec::is_empty) {
            without_tags.push(skill["id"].as_str().unwrap_or_default());
        }
        if !ids.insert(skill["id"].as_str().unwrap_or_default()) {
            return broken(format!("skills[{number}] has the id of another skill"));
        }
    }
    Ok(if ids.is_empty() {
        Observed::info(
            "the card has no skills: section 5.7 asks for one, an example of section 8.4.1 has none",
        )
    } else if without_tags.is_empty() {
        Observed::met()
    } else {
        Observed::info(format!("skills without tags: {}: section 5.7 asks for one", without_tags.join(", ")))
    })
}
