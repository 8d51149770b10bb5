//! The compatibility table of the documentation, made from the rows of the tests.

use std::fmt::Write as _;

use nuncio_hub::config::Mode;
use nuncio_protocol::{Binding, Version};
use nuncio_tests::hub::root;

use crate::{clients, quirks::skipped, sdk::Sdk, servers};

/// The file, below the root of the repository.
const FILE: &str = "docs/compatibility.md";

/// The variable that makes the test write the file instead of comparing it.
const REWRITE: &str = "NUNCIO_REWRITE";

/// A row of a table: an SDK and the wire that its peer speaks.
struct Line {
    sdk: &'static Sdk,
    wire: (Version, Binding),
    direct: bool,
    durable: bool,
    proxy: bool,
    /// Numbers of the exceptions.
    exceptions: Vec<usize>,
}

/// The exceptions of a table, numbered from 1 in the order in which they occur.
#[derive(Default)]
struct Exceptions(Vec<&'static str>);

impl Exceptions {
    fn number(&mut self, reason: &'static str) -> usize {
        let known = self.0.iter().position(|known| *known == reason);
        known.unwrap_or_else(|| {
            self.0.push(reason);
            self.0.len() - 1
        }) + 1
    }
}

/// The line of this SDK and wire, which is new if there is none.
fn line<'a>(lines: &'a mut Vec<Line>, sdk: &'static Sdk, wire: (Version, Binding)) -> &'a mut Line {
    let known = lines.iter().position(|line| line.sdk == sdk && line.wire == wire).unwrap_or_else(|| {
        lines.push(Line { sdk, wire, direct: false, durable: false, proxy: false, exceptions: Vec::new() });
        lines.len() - 1
    });
    &mut lines[known]
}

impl Line {
    fn add(&mut self, mode: Option<Mode>, exceptions: impl Iterator<Item = usize>) {
        match mode {
            None => self.direct = true,
            Some(Mode::Durable) => self.durable = true,
            Some(Mode::Proxy) => self.proxy = true,
        }
        self.exceptions.extend(exceptions);
        self.exceptions.sort_unstable();
        self.exceptions.dedup();
    }
}

fn client_lines() -> (Vec<Line>, Exceptions) {
    let (mut lines, mut exceptions) = (Vec::new(), Exceptions::default());
    for row in clients::ROWS {
        let skipped = skipped(row.version, row.binding).iter().map(|reason| exceptions.number(reason));
        line(&mut lines, &row.sdk, (row.version, row.binding)).add(row.way.mode(), skipped);
    }
    (lines, exceptions)
}

fn client_table() -> String {
    let (lines, exceptions) = client_lines();
    render("client", Sdk::client_version, &lines, &exceptions)
}

fn server_table() -> String {
    let (mut lines, mut exceptions) = (Vec::new(), Exceptions::default());
    for row in servers::ROWS {
        let quirks = row.quirks.iter().map(|quirk| exceptions.number(quirk.reason()));
        line(&mut lines, &row.sdk, row.wire()).add(row.way.mode(), quirks);
    }
    render("server", Sdk::server_version, &lines, &exceptions)
}

fn render(side: &str, version_of: fn(&Sdk) -> String, lines: &[Line], exceptions: &Exceptions) -> String {
    let mut text = format!(
        "| {side} | SDK | protocol | binding | direct | durable hub | proxy | exceptions |\n\
         |:--|:--|:--|:--|:--|:--|:--|:--|\n"
    );
    let cell = |is_run| if is_run { "yes" } else { "not run" };
    for line in lines {
        let (version, binding) = line.wire;
        let numbers: Vec<_> = line.exceptions.iter().map(ToString::to_string).collect();
        writeln!(
            text,
            "| {} | {} | {version} | {} | {} | {} | {} | {} |",
            line.sdk.language,
            version_of(line.sdk),
            binding_name(binding),
            cell(line.direct),
            cell(line.durable),
            cell(line.proxy),
            numbers.join(", "),
        )
        .unwrap();
    }
    text.push('\n');
    for (index, reason) in exceptions.0.iter().enumerate() {
        writeln!(text, "{}. {reason}.", index + 1).unwrap();
    }
    text
}

const fn binding_name(binding: Binding) -> &'static str {
    match binding {
        Binding::JsonRpc => "JSON-RPC",
        Binding::HttpJson => "HTTP+JSON",
        Binding::Grpc => "gRPC",
    }
}

fn page() -> String {
    format!(
        "# Compatibility\n\n\
         The official A2A SDKs that every test run meets, by version, binding and mode of the hub. `yes` stands for a \
         test of this combination, which every run needs to pass: the peers and their checks are described in \
         `tests/peers/README.md`. This page is made from \
         the rows of these tests (`tests/tests/interop`) and compared with them in every run; to write it again: \
         `{REWRITE}=1 cargo test --workspace --test interop compatibility`.\n\n\
         The checks are: cards, sending, streaming, reading, listing without a page size, which error it is, refused \
         streams, cancel, follow-ups, text, data and files by bytes and by URL, subscribing, questions and answers, \
         bare messages, and webhooks from both sides.\n\n\
         Exceptions are known differences of an SDK; those within a check are listed in `tests/peers/README.md`.\n\n\
         ## Official clients, Nuncio as the agent\n\n\
         *Direct* is an agent that Nuncio runs itself. Behind a *durable* hub the agent speaks another version or \
         binding than the client. Behind a *proxy* it speaks the same or another one.\n\n\
         {}\n\
         ## Official servers, Nuncio as the client\n\n\
         The wire is that of the server. Behind a hub the caller speaks the same or another one.\n\n\
         {}",
        client_table(),
        server_table()
    )
}

/// The page shows the tests as they are.
#[test]
fn the_compatibility_table_is_up_to_date() {
    let (path, page) = (root().join(FILE), page());
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&path, page).unwrap();
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "{FILE} is not up to date: run {REWRITE}=1 cargo test --workspace --test interop compatibility"
    );
}

/// Every client is met in every way on every wire that it has.
#[test]
fn no_client_is_left_out() {
    for line in client_lines().0 {
        assert!(line.direct && line.durable && line.proxy, "{:?} {:?}", line.sdk, line.wire);
    }
}
