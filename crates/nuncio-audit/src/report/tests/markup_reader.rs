//! A strict reader of the HTML and XML that the reports write.

/// Elements without content in HTML.
const VOID: [&str; 1] = ["meta"];

/// Reads markup, and returns its elements in order.
///
/// # Panics
/// If an element is not closed in its order, or a character is there that must be escaped.
pub(super) fn elements(markup: &str) -> Vec<String> {
    let (mut open, mut all) = (Vec::<String>::new(), Vec::new());
    let mut rest = markup;
    while let Some(begin) = rest.find('<') {
        assert!(
            !rest[..begin].contains('>') || open.last().is_some_and(|name| name == "style"),
            "a raw >: {}",
            &rest[..begin]
        );
        let end = begin + rest[begin..].find('>').expect("a tag ends");
        let tag = &rest[begin + 1..end];
        rest = &rest[end + 1..];
        if tag.starts_with(['!', '?']) {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closed in order");
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap_or_default().to_owned();
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes of attributes: {tag}");
        if !tag.ends_with('/') && !VOID.contains(&name.as_str()) {
            open.push(name.clone());
        }
        all.push(name);
    }
    assert!(open.is_empty(), "not closed: {open:?}");
    all
}
