//! One page of rustdoc as lines of a listing: tags are dropped, white space is folded.

/// The item pages that the index of a crate links to.
pub(super) fn links(index: &str) -> Vec<String> {
    let list = index.split_once("id=\"main-content\"").map_or("", |(_, list)| list);
    let targets = list.split("href=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    targets
        .map(|(page, _)| page.to_owned())
        .filter(|page| page.ends_with(".html") && !page.starts_with(".."))
        .collect()
}

/// The lines of a page: the declaration of its item, its methods and constants, the traits that it implements. On the
/// page of a module: what it exports of other crates.
pub(super) fn lines(path: &str, html: &str) -> Vec<String> {
    let file = path.rsplit('/').next().unwrap_or(path);
    if file == "index.html" {
        let exports = blocks(html, "<code>pub use ", "</code>");
        return exports.iter().map(|export| format!("pub use {}", text(export))).collect();
    }
    let name = file.split('.').nth(1).unwrap_or(file);
    let mut lines: Vec<String> = blocks(html, "item-decl\"><code>", "</code></pre>")
        .iter()
        .flat_map(|item| declaration(name, item))
        .collect();
    // The page of a trait declares all of it; implementors are listed at their own pages.
    if file.starts_with("trait.") {
        return lines;
    }
    let own = section(html, "id=\"implementations-list\"");
    lines.extend(
        headers(own)
            .into_iter()
            .filter(|header| !header.starts_with("impl"))
            .map(|header| format!("{name}: {header}")),
    );
    let traits = section(html, "id=\"trait-implementations-list\"");
    lines.extend(headers(traits).into_iter().filter(|header| header.starts_with("impl")));
    lines
}

/// The lines of a declaration: a struct, an enum or a trait has one for its head and one for each member.
fn declaration(name: &str, item: &str) -> Vec<String> {
    let text = text(item);
    let Some((head, members)) = text.split_once('{').filter(|_| text.ends_with('}')) else {
        return vec![text];
    };
    let members = members.trim_end_matches('}');
    let mut lines = vec![head.trim().to_owned()];
    lines.extend(
        split(members, if head.contains("trait ") { ';' } else { ',' })
            .iter()
            .map(|member| format!("{name}: {member}")),
    );
    lines
}

/// The members of a body, which end with this character or a block outside of all brackets.
fn split(members: &str, end: char) -> Vec<String> {
    let (mut depth, mut lines, mut line) = (0_i32, Vec::new(), String::new());
    let mut before = ' ';
    for c in members.chars() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            // Of an arrow.
            '>' if before == '-' || before == '=' => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            _ => {}
        }
        before = c;
        let ends = depth == 0 && (c == end || c == '}');
        if !ends || c == '}' {
            line.push(c);
        }
        if ends {
            lines.push(std::mem::take(&mut line).trim().to_owned());
        }
    }
    lines.push(line.trim().to_owned());
    lines.retain(|line| !line.is_empty());
    lines
}

/// The signatures in a part of a page.
fn headers(html: &str) -> Vec<String> {
    blocks(html, "class=\"code-header\">", "</section>")
        .iter()
        .filter_map(|header| header.split("</h").next())
        .map(text)
        .collect()
}

/// The part of a page from this mark to the next list of implementations.
fn section<'a>(html: &'a str, mark: &str) -> &'a str {
    let Some((_, part)) = html.split_once(mark) else { return "" };
    let ends =
        ["implementations-list\"", "id=\"synthetic-implementations\"", "id=\"blanket-implementations\""];
    let end = ends.iter().filter_map(|end| part.find(end)).min().unwrap_or(part.len());
    &part[..end]
}

/// The texts between two marks.
fn blocks<'a>(html: &'a str, begin: &str, end: &str) -> Vec<&'a str> {
    html.split(begin).skip(1).map(|rest| rest.split(end).next().unwrap_or(rest)).collect()
}

/// The text of a piece of HTML, on one line.
fn text(html: &str) -> String {
    let (mut text, mut rest) = (String::new(), html);
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        rest = tag.split_once('>').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")];
    let text = entities.iter().fold(text, |text, (entity, c)| text.replace(entity, c));
    // Comments are rustdoc's own headings; line breaks and the commas before them depend on the width only.
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let folded = code.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    folded.replace("( ", "(").replace(", )", ")").replace(", >", ">").replace("]pub", "] pub")
}
