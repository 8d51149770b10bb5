//! An agent: its health and settings, its card beside the one that callers see, who may call it, and how.

use askama::Template;
use axum::extract::Path;
use serde_json::Value;

use super::{
    agents::{AgentRow, settings},
    form::Form,
    shell::{Area, Shell, Theme, quoted},
    show,
    tasks::TaskRow,
    visit::{Answer, Visit, render},
};
use crate::admin::{
    agents,
    api::{
        AgentDetails, ChangeAgent, Key, ListKeys, ListTasks, Paging, RefreshAgent, RemoveAgent, ShowAgent,
        TaskFilter,
    },
    keys,
    problem::AdminProblem,
    tasks,
};

/// Maximum length of a shown card.
const MAX_CARD_CHARS: usize = 128 * 1024;
/// Maximum number of lines of two cards that are compared; the comparison takes the product of both numbers.
const MAX_COMPARED_LINES: usize = 2000;
/// Number of tasks on a page.
const PAGE_SIZE: usize = 100;
/// Number of the latest tasks.
const LATEST: usize = 10;

/// The tabs of an agent's page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Overview,
    Card,
    Observed,
    Tasks,
    Access,
    Setup,
}

impl Tab {
    /// The tabs with the ends of their paths and their names.
    pub(super) const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Overview, "", "Overview"),
        (Self::Card, "/card", "Card"),
        (Self::Observed, "/observed", "Observed"),
        (Self::Tasks, "/tasks", "Tasks"),
        (Self::Access, "/access", "Access"),
        (Self::Setup, "/setup", "Setup"),
    ];
}

/// The frame of all tabs.
pub(super) struct Head {
    pub(super) agent: AgentRow,
    pub(super) tab: Tab,
}

pub(super) async fn head(
    visit: &Visit,
    name: &str,
    tab: Tab,
) -> Result<(Shell, Head, AgentDetails), AdminProblem> {
    let request = ShowAgent { name: name.to_owned() };
    let command = format!("agent show {}", quoted(name));
    let shell = visit
        .shell(format!("Agent {}", show::cell(name)), Area::Agents)
        .with_route(&request, Some(command))?;
    let details = visit.call(agents::show, request).await?;
    let agent = AgentRow::from(details.agent.clone());
    Ok((shell, Head { agent, tab }, details))
}

#[derive(Template)]
#[template(path = "ui/agent.html")]
struct AgentPage {
    shell: Shell,
    head: Head,
    rows: Vec<TaskRow>,
    is_remote: bool,
    is_changeable: bool,
    is_volatile: bool,
}

pub(super) async fn overview(visit: Visit, Path(name): Path<String>) -> Answer {
    let (shell, head, details) = head(&visit, &name, Tab::Overview).await?;
    let paging = Paging { limit: Some(LATEST), after: None };
    let filter = TaskFilter { agent: Some(name), paging, ..TaskFilter::default() };
    let latest = visit.call(tasks::list, ListTasks { filter }).await?;
    render(&AgentPage {
        shell,
        is_remote: details.agent.url.is_some(),
        is_changeable: head.agent.origin == "api",
        is_volatile: details.volatile,
        head,
        rows: latest.tasks.into_iter().map(TaskRow::from).collect(),
    })
}

#[derive(Template)]
#[template(path = "ui/agent_tasks.html")]
struct AgentTasksPage {
    shell: Shell,
    head: Head,
    rows: Vec<TaskRow>,
    next: Option<String>,
}

pub(super) async fn tasks_tab(visit: Visit, Path(name): Path<String>) -> Answer {
    let (_, head, _) = head(&visit, &name, Tab::Tasks).await?;
    let paging = Paging { limit: Some(PAGE_SIZE), after: visit.query.text("after") };
    let filter = TaskFilter { agent: Some(name.clone()), paging, ..TaskFilter::default() };
    let request = ListTasks { filter };
    let command = format!("task list --agent {}", quoted(&name));
    let shell = visit
        .shell(format!("Agent {}", show::cell(&name)), Area::Agents)
        .with_route(&request, Some(command))?;
    let page = visit.call(tasks::list, request).await?;
    let next = page.next.map(|next| visit.with(&[("after", Some(&next))]));
    render(&AgentTasksPage { shell, head, rows: page.tasks.into_iter().map(TaskRow::from).collect(), next })
}

/// A line of two cards: in both, or in one of them.
#[derive(Debug, PartialEq, Eq)]
struct DiffLine {
    /// `same`, `served` or `remote`.
    side: &'static str,
    text: String,
}

#[derive(Template)]
#[template(path = "ui/agent_card.html")]
struct CardPage {
    shell: Shell,
    head: Head,
    served: String,
    remote: Option<String>,
    diff: Vec<DiffLine>,
}

pub(super) async fn card(visit: Visit, Path(name): Path<String>) -> Answer {
    let (shell, head, details) = head(&visit, &name, Tab::Card).await?;
    let served = show::json(&details.card, MAX_CARD_CHARS);
    let remote = details.upstream_card.as_ref().map(|card| show::json(card, MAX_CARD_CHARS));
    let diff = remote.as_deref().map(|remote| diff(&lines(remote), &lines(&served))).unwrap_or_default();
    render(&CardPage { shell, head, served, remote, diff })
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().take(MAX_COMPARED_LINES).collect()
}

/// The lines of both, by their longest common subsequence.
fn diff(remote: &[&str], served: &[&str]) -> Vec<DiffLine> {
    let width = served.len() + 1;
    let mut common = vec![0u16; (remote.len() + 1) * width];
    for (row, one) in remote.iter().enumerate().rev() {
        for (column, other) in served.iter().enumerate().rev() {
            let at = row * width + column;
            common[at] = if one == other {
                common[at + width + 1] + 1
            } else {
                common[at + width].max(common[at + 1])
            };
        }
    }
    let (mut row, mut column, mut lines) = (0, 0, Vec::new());
    let mut push = |side, text: &str| lines.push(DiffLine { side, text: text.to_owned() });
    while row < remote.len() || column < served.len() {
        match (remote.get(row), served.get(column)) {
            (Some(one), Some(other)) if one == other => {
                push("same", one);
                row += 1;
                column += 1;
            }
            (Some(one), other)
                if other.is_none()
                    || common[(row + 1) * width + column] >= common[row * width + column + 1] =>
            {
                push("remote", one);
                row += 1;
            }
            (_, Some(other)) => {
                push("served", other);
                column += 1;
            }
            (_, None) => break,
        }
    }
    lines
}

/// A key with its right to call the agent.
struct KeyAccess {
    name: String,
    principal: String,
    may_call: bool,
    reason: &'static str,
}

#[derive(Template)]
#[template(path = "ui/agent_access.html")]
struct AccessPage {
    shell: Shell,
    head: Head,
    keys: Vec<KeyAccess>,
}

pub(super) async fn access(visit: Visit, Path(name): Path<String>) -> Answer {
    let (shell, head, _) = head(&visit, &name, Tab::Access).await?;
    let keys = visit.call(keys::list, ListKeys {}).await?.keys;
    let keys = keys.into_iter().map(|key| key_access(&key, &name)).collect();
    render(&AccessPage { shell, head, keys })
}

fn key_access(key: &Key, agent: &str) -> KeyAccess {
    let now = crate::clock::now();
    let (may_call, reason) = match &key.agents {
        _ if key.revoked.is_some() => (false, "the key is revoked"),
        _ if key.expires.is_some_and(|expires| expires <= now) => (false, "the key has expired"),
        None => (true, "the key may call all agents"),
        Some(agents) if agents.iter().any(|name| name == agent) => (true, "the key names this agent"),
        Some(_) => (false, "the key names other agents"),
    };
    KeyAccess { name: show::cell(&key.name), principal: show::cell(&key.principal), may_call, reason }
}

/// A way to call the agent, to copy.
struct Snippet {
    title: &'static str,
    id: &'static str,
    text: String,
}

#[derive(Template)]
#[template(path = "ui/agent_setup.html")]
struct SetupPage {
    shell: Shell,
    head: Head,
    snippets: Vec<Snippet>,
}

pub(super) async fn setup(visit: Visit, Path(name): Path<String>) -> Answer {
    let (shell, head, details) = head(&visit, &name, Tab::Setup).await?;
    let url = details.card["supportedInterfaces"][0]["url"].as_str().unwrap_or("URL").to_owned();
    let snippets = snippets(&url, &details.card);
    render(&SetupPage { shell, head, snippets })
}

fn snippets(url: &str, card: &Value) -> Vec<Snippet> {
    let interface = |binding: &str| {
        let interfaces = card["supportedInterfaces"].as_array().into_iter().flatten();
        let mut urls = interfaces.filter(|interface| interface["protocolBinding"] == binding);
        urls.find_map(|interface| interface["url"].as_str()).unwrap_or(url).to_owned()
    };
    let rest = interface("HTTP+JSON");
    let body = r#"{"message":{"messageId":"1","role":"ROLE_USER","parts":[{"text":"hello"}]}}"#;
    vec![
        Snippet {
            title: "Command line",
            id: "snippet-cli",
            text: format!("nuncio send {} hello --key \"$NUNCIO_KEY\"", quoted(url)),
        },
        Snippet {
            title: "curl",
            id: "snippet-curl",
            text: format!(
                "curl {} \\\n  -H 'A2A-Version: 1.0' -H 'Content-Type: application/a2a+json' \\\n  -H \"Authorization: Bearer \
                 $NUNCIO_KEY\" \\\n  -d '{body}'",
                quoted(&format!("{}/message:send", rest.trim_end_matches('/')))
            ),
        },
        Snippet {
            title: "Python (a2a-sdk)",
            id: "snippet-python",
            text: format!(
                "from a2a.client import create_client\nfrom a2a.helpers import new_text_message\nfrom a2a.types import Role, \
                 SendMessageRequest\n\nclient = await create_client({})\nmessage = new_text_message(\"hello\", \
                 role=Role.ROLE_USER)\nasync for event in client.send_message(SendMessageRequest(message=message)):\n    \
                 print(event)",
                Value::from(url)
            ),
        },
        Snippet {
            title: "JavaScript (@a2a-js/sdk)",
            id: "snippet-javascript",
            text: format!(
                "import {{ ClientFactory }} from \"@a2a-js/sdk/client\";\n\nconst client = await new \
                 ClientFactory().createFromUrl({});\nconst answer = await client.sendMessage({body});\nconsole.log(answer);",
                Value::from(url)
            ),
        },
        Snippet {
            title: "Rust (nuncio-client)",
            id: "snippet-rust",
            text: format!(
                "let agent = nuncio_client::Client::connect({}).await?;\nlet answer = \
                 agent.send_text(\"hello\").await?;\nprintln!(\"{{answer:?}}\");",
                Value::from(url)
            ),
        },
    ]
}

fn path(name: &str) -> String {
    format!("/ui/agents/{}", show::segment(name))
}

pub(super) async fn refresh(visit: Visit, Path(name): Path<String>) -> Answer {
    visit.call(agents::refresh, RefreshAgent { name: name.clone() }).await?;
    visit.done(&path(&name), "The card was fetched.")
}

pub(super) async fn change(visit: Visit, Path(name): Path<String>, form: Form) -> Answer {
    let settings = settings(form.required("settings")?)?;
    visit.call(agents::change, ChangeAgent { name: name.clone(), settings, version: None }).await?;
    visit.done(&path(&name), "The settings were changed.")
}

pub(super) async fn remove(visit: Visit, Path(name): Path<String>, form: Form) -> Answer {
    if form.get("confirm") != Some(&*name) {
        return Err(AdminProblem::invalid(format!("type {name} into the field to remove the agent")).into());
    }
    visit.call(agents::remove, RemoveAgent { name: name.clone(), version: None }).await?;
    visit.done("/ui/agents", format!("The agent {name} was removed; its tasks are kept."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cards_are_compared_by_lines() {
        let sides = |remote: &[&str], served: &[&str]| {
            let lines = diff(remote, served);
            lines.iter().map(|line| format!("{} {}", line.side, line.text)).collect::<Vec<_>>()
        };
        assert_eq!(
            sides(&["{", "a", "b", "}"], &["{", "b", "c", "}"]),
            ["same {", "remote a", "same b", "served c", "same }"]
        );
        assert_eq!(sides(&[], &["x"]), ["served x"]);
        assert_eq!(sides(&["x"], &[]), ["remote x"]);
    }
}
