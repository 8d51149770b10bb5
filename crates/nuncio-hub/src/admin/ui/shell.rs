//! The frame of every page: title, navigation, theme, notice, and where its data comes from.

use http::HeaderMap;

use super::{session::Notice, visit::cookie};
use crate::admin::{api::Route, problem::AdminProblem};

/// The cookie with the chosen theme.
pub(super) const THEME_COOKIE: &str = "nuncio_theme";

/// The frame of a page.
pub(super) struct Shell {
    pub(super) title: String,
    pub(super) area: Area,
    pub(super) theme: Theme,
    pub(super) form_token: String,
    pub(super) is_signed_in: bool,
    /// The session is of an operator, not of a viewer.
    pub(super) is_operator: bool,
    pub(super) notice: Option<Notice>,
    /// The address of the page, to return to.
    pub(super) here: String,
    pub(super) source: Option<Source>,
    /// The address of the admin API, for commands to copy.
    pub(super) admin: String,
    pub(super) style: String,
    pub(super) script: String,
    pub(super) icon: String,
}

/// The other ways to the data of a page.
pub(super) struct Source {
    /// The same data as JSON, in this session.
    pub(super) json: String,
    pub(super) curl: String,
    /// The command of the terminal, if there is one.
    pub(super) command: Option<String>,
}

impl Shell {
    /// Adds the route that has the data of this page, and the command that prints it.
    pub(super) fn with_route<R: Route>(
        mut self,
        request: &R,
        command: Option<String>,
    ) -> Result<Self, AdminProblem> {
        let query = request.query_string().map_err(|_| AdminProblem::internal())?;
        let mut path = request.path();
        if !query.is_empty() {
            path = format!("{path}?{query}");
        }
        let command = command.map(|command| format!("nuncio {command} --admin {}", self.admin));
        self.source = Some(Source {
            json: format!("{}/api/v1{path}", super::BASE),
            curl: format!(
                "curl -H \"Authorization: Bearer $NUNCIO_ADMIN_TOKEN\" {}",
                quoted(&format!("{}/api/v1{path}", self.admin))
            ),
            command,
        });
        Ok(self)
    }
}

/// A word of a POSIX shell.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:@=,%".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The part of the navigation that a page belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Area {
    None,
    Overview,
    Tasks,
    Agents,
    Try,
    Mailboxes,
    Rooms,
    Deliveries,
    Access,
    Trail,
    Config,
    System,
}

impl Area {
    /// The entries of the navigation: the area, its path and its name.
    pub(super) const ALL: [(Self, &'static str, &'static str); 11] = [
        (Self::Overview, "/ui", "Overview"),
        (Self::Tasks, "/ui/tasks", "Tasks"),
        (Self::Agents, "/ui/agents", "Agents"),
        (Self::Try, "/ui/try", "Try"),
        (Self::Mailboxes, "/ui/mailboxes", "Mailboxes"),
        (Self::Rooms, "/ui/rooms", "Rooms"),
        (Self::Deliveries, "/ui/deliveries", "Deliveries"),
        (Self::Access, "/ui/access", "Access"),
        (Self::Trail, "/ui/trail", "Trail"),
        (Self::Config, "/ui/config", "Configuration"),
        (Self::System, "/ui/system", "System"),
    ];
}

/// The colours of the dashboard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Theme {
    /// The browser's preference.
    Auto,
    Light,
    Dark,
}

impl Theme {
    pub(super) const ALL: [Self; 3] = [Self::Auto, Self::Light, Self::Dark];

    pub(super) fn of(headers: &HeaderMap) -> Self {
        cookie(headers, THEME_COOKIE).map_or(Self::Auto, Self::parse)
    }

    pub(super) fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|theme| theme.word() == text).unwrap_or(Self::Auto)
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell_are_quoted() {
        for (text, expected) in [
            ("http://127.0.0.1:2603/api/v1/tasks", "http://127.0.0.1:2603/api/v1/tasks"),
            ("a b", "'a b'"),
            ("a?b&c", "'a?b&c'"),
            ("$(reboot)", "'$(reboot)'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn an_unknown_theme_is_the_browsers() {
        assert_eq!(Theme::parse("dark"), Theme::Dark);
        assert_eq!(Theme::parse("\"><script>"), Theme::Auto);
    }
}
