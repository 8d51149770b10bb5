//! A writer of HTML and XML. Text and attributes are escaped here and nowhere else.

/// A document that is being written.
#[derive(Debug, Default)]
pub(super) struct Markup {
    out: String,
    /// The elements that are open.
    open: Vec<&'static str>,
}

/// Attributes of an element.
pub(super) type Attributes<'a> = [(&'static str, &'a str)];

impl Markup {
    /// Begins a document with its first line.
    pub(super) fn new(prologue: &'static str) -> Self {
        Self { out: format!("{prologue}\n"), open: Vec::new() }
    }

    /// Opens an element.
    pub(super) fn open(&mut self, name: &'static str, attributes: &Attributes<'_>) {
        self.tag(name, attributes, ">");
        self.open.push(name);
    }

    /// Closes the innermost element.
    pub(super) fn close(&mut self) {
        if let Some(name) = self.open.pop() {
            self.raw("</");
            self.raw(name);
            self.raw(">");
        }
    }

    /// Writes an element around its content.
    pub(super) fn nest(
        &mut self,
        name: &'static str,
        attributes: &Attributes<'_>,
        content: impl FnOnce(&mut Self),
    ) {
        self.open(name, attributes);
        content(self);
        self.close();
    }

    /// Writes an element that has text only.
    pub(super) fn element(&mut self, name: &'static str, attributes: &Attributes<'_>, text: &str) {
        self.nest(name, attributes, |markup| markup.text(text));
    }

    /// Writes an element without content, which HTML reads as one without an end.
    pub(super) fn empty(&mut self, name: &'static str, attributes: &Attributes<'_>) {
        self.tag(name, attributes, "/>");
    }

    /// Writes text, escaped.
    pub(super) fn text(&mut self, text: &str) {
        escape(text, &mut self.out);
    }

    /// Begins a new line of the file.
    pub(super) fn line(&mut self) {
        self.raw("\n");
    }

    /// Writes markup of our own.
    pub(super) fn raw(&mut self, markup: &'static str) {
        self.out.push_str(markup);
    }

    /// Closes all elements and ends the document.
    pub(super) fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.out.push('\n');
        self.out
    }

    fn tag(&mut self, name: &'static str, attributes: &Attributes<'_>, end: &'static str) {
        self.raw("<");
        self.raw(name);
        for (name, value) in attributes.iter().filter(|attribute| **attribute != ("class", "")) {
            self.raw(" ");
            self.raw(name);
            self.raw("=\"");
            escape(value, &mut self.out);
            self.raw("\"");
        }
        self.raw(end);
    }
}

/// Appends text with the characters of markup as references. Characters that XML does not allow become
/// U+FFFD; those that `text` knows as hidden were made escapes before.
fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(character),
            other if is_invalid(other) => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
}

/// True for characters that XML 1.0 does not allow, or discourages.
fn is_invalid(character: char) -> bool {
    character.is_control()
        || (u32::from(character) & 0xfffe) == 0xfffe
        || matches!(character, '\u{fdd0}'..='\u{fdef}')
}
