//! Pages of rustdoc, and the lines that are made of them.

use super::{difference, page};

const STRUCT: &str = concat!(
    r#"<pre class="rust item-decl"><code>pub struct <a href="x">Retry</a> {"#,
    "\n",
    r#"    pub first: <a href="d">Duration</a>,"#,
    "\n",
    r#"    pub map: BTreeMap&lt;String, u8&gt;,"#,
    "\n<span>    /* private fields */</span>}</code></pre>",
    r#"<div id="implementations-list"><section class="impl"><h3 class="code-header">impl Retry</h3></section>"#,
    r#"<section id="method.new"><h4 class="code-header">pub fn <a>new</a>(first: u8) -&gt; Self</h4></section></div>"#,
    r#"<div id="trait-implementations-list"><section><h3 class="code-header">impl Clone for Retry</h3></section>"#,
    r#"<section><h4 class="code-header">fn clone(&amp;self) -&gt; Retry</h4></section></div>"#,
    r#"<h2 id="synthetic-implementations"><section><h3 class="code-header">impl Send for Retry</h3></section>"#,
);

#[test]
fn a_struct_has_lines_for_its_fields_methods_and_traits() {
    assert_eq!(
        page::lines("retry/struct.Retry.html", STRUCT),
        [
            "pub struct Retry",
            "Retry: pub first: Duration",
            "Retry: pub map: BTreeMap<String, u8>",
            "Retry: /* private fields */",
            "Retry: pub fn new(first: u8) -> Self",
            "impl Clone for Retry",
        ]
    );
}

#[test]
fn a_trait_has_a_line_for_each_method() {
    let html = r#"<pre class="rust item-decl"><code>pub trait Sink: Send {
        type Item;
        // Required method
        fn put&lt;T&gt;(&amp;self, item: T) -&gt; bool
           where T: Send, Self: Sized;
        // Provided method
        fn end(&amp;self) { ... }
    }</code></pre><h3 class="code-header">impl Sink for ()</h3>"#;
    assert_eq!(
        page::lines("trait.Sink.html", html),
        [
            "pub trait Sink: Send",
            "Sink: type Item",
            "Sink: fn put<T>(&self, item: T) -> bool where T: Send, Self: Sized",
            "Sink: fn end(&self) { ... }",
        ]
    );
}

#[test]
fn a_changed_signature_is_seen() {
    let old = "pub fn a(x: u8)\npub fn b()\n";
    assert_eq!(
        difference(old, "pub fn a(x: u16)\npub fn b()\n"),
        ["- pub fn a(x: u8)", "+ pub fn a(x: u16)"]
    );
    assert!(difference(old, old).is_empty());
}
