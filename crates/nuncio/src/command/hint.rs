//! Commands to paste: with the name of this program and the options that are needed again.

use std::net::SocketAddr;

use nuncio_protocol::TaskId;

use crate::args::{DEFAULT_ADMIN, Target};

/// The name of this program as it was called, so that a pasted command works.
pub(super) fn program() -> String {
    std::env::args().next().map_or_else(|| "nuncio".to_owned(), |name| quoted(&name))
}

/// The option that commands need to reach this admin API; empty for the default address.
pub(super) fn admin_option(address: SocketAddr) -> String {
    let url = format!("http://{address}");
    if url == DEFAULT_ADMIN { String::new() } else { format!(" --admin {url}") }
}

impl Target {
    /// A command that answers the task.
    pub(super) fn answer_command(&self, id: &TaskId) -> String {
        self.again("send", &format!("\"…\" --task {}", quoted(id.as_str())))
    }

    /// A command that lists tasks, to find one of unknown id.
    pub(super) fn list_command(&self) -> String {
        self.again("task list", "")
    }

    /// A command that streams updates, where there are no webhooks.
    pub(super) fn stream_command(&self) -> String {
        self.again("send", "\"…\" --stream")
    }

    /// A command that watches the task after this event.
    pub(super) fn watch_command(&self, id: &TaskId, after: Option<u64>) -> String {
        let after = after.map(|seq| format!(" --after {seq}")).unwrap_or_default();
        self.again("task watch", &format!("{}{after}", quoted(id.as_str())))
    }

    fn again(&self, command: &str, rest: &str) -> String {
        let mut words = vec![program(), command.to_owned(), quoted(&self.url)];
        if !rest.is_empty() {
            words.push(rest.to_owned());
        }
        words.extend(self.options());
        words.join(" ")
    }

    /// The options of the connection, without secrets.
    fn options(&self) -> Vec<String> {
        let (connection, identity) = (&self.connection, &self.connection.identity);
        let mut words = Vec::new();
        let mut option = |name: &str, value: &str| words.extend([name.to_owned(), quoted(value)]);
        if let Some(version) = connection.a2a_version {
            option("--a2a-version", version.as_str());
        }
        if let Some(binding) = connection.binding {
            option("--binding", binding.as_str());
        }
        for header in &connection.headers {
            let name = header.split(':').next().unwrap_or_default().trim();
            option("-H", &format!("{name}: …"));
        }
        for uri in &connection.extensions {
            option("--extension", uri);
        }
        for path in &connection.authorities {
            option("--ca", &path.to_string_lossy());
        }
        for (name, path) in [("--client-cert", &identity.client_cert), ("--client-key", &identity.client_key)]
        {
            if let Some(path) = path {
                option(name, &path.to_string_lossy());
            }
        }
        for (name, value) in [
            ("--oauth-token-url", &identity.oauth_token_url),
            ("--oauth-client-id", &identity.oauth_client_id),
            ("--oauth-audience", &identity.oauth_audience),
        ] {
            if let Some(value) = value {
                option(name, value);
            }
        }
        for scope in &identity.oauth_scope {
            option("--oauth-scope", scope);
        }
        words
    }
}

/// Quotes a word for a shell.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@%+,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    fn target(options: &[&str]) -> Target {
        let args = ["nuncio", "send", "http://localhost:1/a?b=c", "hello"].iter().chain(options);
        match Args::parse_from(args).command {
            Command::Send(send) => send.target,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_that_are_needed_again_are_told_and_secrets_are_not() {
        let id = TaskId::from("t 1");
        let check = |options: &[&str], expected: &str| {
            let command = target(options).watch_command(&id, Some(7));
            let expected =
                format!("{} task watch 'http://localhost:1/a?b=c' 't 1' --after 7{expected}", program());
            assert_eq!(command, expected);
        };
        check(&[], "");
        check(&["--timeout", "3", "--ca", "my ca.pem"], " --ca 'my ca.pem'");
        check(&["-H", "X-Key: s3cret"], " -H 'X-Key: …'");
        check(
            &["--a2a-version", "1.0", "--binding", "rest", "--extension", "https://x.example/1"],
            " --a2a-version 1.0 --binding HTTP+JSON --extension https://x.example/1",
        );
        check(&["--client-key", "k", "--client-cert", "c"], " --client-cert c --client-key k");
        assert!(target(&[]).answer_command(&id).ends_with("/a?b=c' \"…\" --task 't 1'"));
        assert!(target(&[]).list_command().ends_with(" task list 'http://localhost:1/a?b=c'"));
    }

    #[test]
    fn another_admin_address_is_told() {
        for (address, expected) in [
            ("127.0.0.1:2603", ""),
            ("127.0.0.1:2703", " --admin http://127.0.0.1:2703"),
            ("[::1]:2603", " --admin http://[::1]:2603"),
        ] {
            assert_eq!(admin_option(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn words_as_a_shell_reads_them() {
        for (text, expected) in
            [("a-b_c.pem", "a-b_c.pem"), ("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("$x", "'$x'")]
        {
            assert_eq!(quoted(text), expected);
        }
    }
}
