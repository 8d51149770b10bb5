//! Paths with names in braces: filled in by clients, parsed by the hub.
//!
//! A name is a whole segment, except for the verb that may follow it: `/keys/{id}`, `/keys/{id}:rotate`.

use url::form_urlencoded;

/// The path of a pattern with these names.
pub(super) fn fill(pattern: &str, names: &[&str]) -> String {
    let mut names = names.iter();
    let mut path = String::new();
    let mut rest = pattern;
    while let Some((before, (_, after))) =
        rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    {
        path.push_str(before);
        path.push_str(&escape(names.next().copied().unwrap_or_default()));
        rest = after;
    }
    path + rest
}

/// The names in a path that matches a pattern; `None` if it does not match.
pub(in crate::admin) fn names(pattern: &str, path: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let (mut expected, mut given) = (pattern.split('/'), path.split('/'));
    loop {
        match (expected.next(), given.next()) {
            (None, None) => return Some(names),
            (Some(expected), Some(given)) => {
                match expected.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
                    None if expected == given => {}
                    Some((_, verb)) => {
                        let name = given.strip_suffix(verb).filter(|name| !name.is_empty())?;
                        names.push(unescape(name));
                    }
                    None => return None,
                }
            }
            _ => return None,
        }
    }
}

/// True if a pattern and a path are about the same resource, with any verb.
pub(in crate::admin) fn is_near(pattern: &str, path: &str) -> bool {
    names(without_verb(pattern), without_verb(path)).is_some()
}

fn without_verb(path: &str) -> &str {
    let last = path.rfind('/').map_or(0, |at| at + 1);
    path[last..].rfind(':').map_or(path, |colon| &path[..last + colon])
}

fn escape(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

fn unescape(segment: &str) -> String {
    // These characters have a meaning in a query and none in a path.
    let text = format!("={}", segment.replace('+', "%2B").replace('&', "%26"));
    form_urlencoded::parse(text.as_bytes()).next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_paths() {
        for (pattern, path, expected) in [
            ("", "", Some(vec![])),
            ("/agents", "/agents", Some(vec![])),
            ("/agents", "/agents/", None),
            ("/agents", "/agents/a", None),
            ("/agents/{name}", "/agents/a", Some(vec!["a"])),
            ("/agents/{name}", "/agents/", None),
            ("/agents/{name}", "/agents/a/b", None),
            ("/agents/{name}", "/agents/a%2Fb", Some(vec!["a/b"])),
            ("/tasks/{id}", "/tasks/a+b%20c&d%2525", Some(vec!["a+b c&d%25"])),
            ("/agents/{name}:refresh", "/agents/a:refresh", Some(vec!["a"])),
            ("/agents/{name}:refresh", "/agents/:refresh", None),
            ("/agents/{name}:refresh", "/agents/a", None),
            ("/tasks/{id}:cancel", "/tasks/x%3Acancel:cancel", Some(vec!["x:cancel"])),
            ("/agents/{name}/health", "/agents/a/health", Some(vec!["a"])),
            ("/config:reload", "/config:reload", Some(vec![])),
        ] {
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(names(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_name_that_is_filled_in_is_read_back() {
        for pattern in ["/agents/{name}", "/agents/{name}/health", "/tasks/{id}:cancel"] {
            for name in ["a", "a b", "a/b", "a+b&c=d", "x:cancel", "100%", "%2F", "Grüße", "?#"] {
                let path = fill(pattern, &[name]);
                assert_eq!(names(pattern, &path), Some(vec![name.to_owned()]), "{path}");
            }
        }
        assert_eq!(fill("/agents", &[]), "/agents");
    }
}
