//! `nuncio push …`: the webhooks of a task, and the one that is sent with a message.

use std::{
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use nuncio_protocol::{
    A2aService, AuthenticationInfo, CallContext, DeleteTaskPushNotificationConfigRequest, Error, ErrorKind,
    GetTaskPushNotificationConfigRequest, ListTaskPushNotificationConfigsRequest, TaskId,
    TaskPushNotificationConfig,
};
use url::Url;

use super::target::setting;
use crate::{
    args::{Hidden, PushCommand, Target, Webhook},
    exit,
    output::{self, Format},
};

/// The variable with the token of a webhook, if there is no option.
const TOKEN: &str = "NUNCIO_PUSH_TOKEN";
/// The variable with the credentials for a webhook, if there is no file.
const CREDENTIALS: &str = "NUNCIO_PUSH_CREDENTIALS";
/// The default authentication scheme.
const BEARER: &str = "Bearer";
/// The default timeout of calls to the agent.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) async fn run(command: PushCommand, format: Format) -> Result<ExitCode> {
    match command {
        PushCommand::Create { target, task, webhook } => {
            // Options are checked before the agent is called.
            let config = webhook.config(&task.clone().into())?;
            let (service, cx) = connect(&target).await?;
            let created = service.create_task_push_notification_config(&cx, config).await;
            show(&created.map_err(|error| no_push(error, &target, &task))?, format)?;
        }
        PushCommand::Get { target, task, id } => {
            let (service, cx) = connect(&target).await?;
            let (task_id, id) = (task.clone().into(), id.into());
            let req = GetTaskPushNotificationConfigRequest { task_id, id, tenant: None };
            let found = service.get_task_push_notification_config(&cx, req).await;
            show(&found.map_err(|error| no_push(error, &target, &task))?, format)?;
        }
        PushCommand::List { target, task } => list(&target, &task, format).await?,
        PushCommand::Delete { target, task, id } => {
            let (service, cx) = connect(&target).await?;
            let (task_id, id) = (task.clone().into(), id.into());
            let req = DeleteTaskPushNotificationConfigRequest { task_id, id, tenant: None };
            let deleted = service.delete_task_push_notification_config(&cx, req).await;
            deleted.map_err(|error| no_push(error, &target, &task))?;
            if format == Format::Human {
                output::note(&format!("deleted; the webhook receives no more updates of task {task}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(target: &Target, task: &str, format: Format) -> Result<()> {
    let (service, cx) = connect(target).await?;
    let mut req = ListTaskPushNotificationConfigsRequest { task_id: task.into(), ..Default::default() };
    let mut shown = 0_usize;
    loop {
        let page = service.list_task_push_notification_configs(&cx, req.clone()).await;
        let page = page.map_err(|error| no_push(error, target, task))?;
        shown += page.configs.len();
        for config in &page.configs {
            show(config, format)?;
        }
        if page.next_page_token.is_empty() {
            break;
        }
        if req.page_token.as_ref() == Some(&page.next_page_token) {
            let message = "the agent returns the same page of its list again and again";
            return Err(Error::new(ErrorKind::InvalidAgentResponse, message).into());
        }
        req.page_token = Some(page.next_page_token);
    }
    if format == Format::Human {
        output::note(&format!("{shown} webhook{} of task {task}", if shown == 1 { "" } else { "s" }));
    }
    Ok(())
}

/// The agent, and one deadline for all calls of a command.
async fn connect(target: &Target) -> Result<(Arc<dyn A2aService>, CallContext)> {
    let client = target.connect().await?;
    let timeout = target.connection.timeout.unwrap_or(TIMEOUT);
    Ok((client.service(), CallContext { deadline: Some(Instant::now() + timeout), ..client.context() }))
}

/// Adds a hint to the error of an agent without push notifications.
fn no_push(error: Error, target: &Target, task: &str) -> anyhow::Error {
    if error.kind() != ErrorKind::PushNotificationNotSupported {
        return error.into();
    }
    let watch = target.watch_command(&task.into(), None);
    exit::hinted(error, format!("this agent does not support webhooks; watch the task instead: {watch}"))
}

/// Prints a webhook without its secrets, even if the agent returned them.
fn show(config: &TaskPushNotificationConfig, format: Format) -> Result<()> {
    let mut config = config.clone();
    let has_token = config.token.take().is_some();
    let scheme = config.authentication.as_mut().map(|authentication| {
        authentication.credentials = None;
        authentication.scheme.clone()
    });
    if format == Format::Json {
        return output::json(&config);
    }
    let id = config.id.as_ref().map_or("-", |id| id.as_str());
    let mut line = format!("{id}  {}", without_secrets(&config.url));
    if let Some(scheme) = scheme {
        line.push_str(&format!("  with {scheme} credentials"));
    }
    if has_token {
        line.push_str("  with a token");
    }
    output::row(&line)
}

/// A URL without user, password, query and fragment, which may hold secrets.
fn without_secrets(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return "(not a URL)".to_owned() };
    url.set_query(None);
    url.set_fragment(None);
    // Both fail only for addresses that cannot have a user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

impl Webhook {
    fn config(&self, task: &TaskId) -> Result<TaskPushNotificationConfig> {
        let mut config = config("--url", &self.url, self.token.as_ref())?;
        config.id = self.id.clone().map(Into::into);
        config.task_id = Some(task.clone());
        let credentials = match &self.auth_credentials_file {
            Some(file) => Some(credentials(file)?),
            None => setting(CREDENTIALS),
        };
        config.authentication = match (&self.auth_scheme, credentials) {
            (None, None) => None,
            (Some(scheme), None) => {
                return Err(exit::usage(format!(
                    "--auth-scheme {scheme}: no credentials; name a file by --auth-credentials-file, or set the \
                     environment variable {CREDENTIALS}"
                )));
            }
            (scheme, credentials) => Some(AuthenticationInfo {
                scheme: scheme.clone().unwrap_or_else(|| BEARER.to_owned()),
                credentials,
            }),
        };
        Ok(config)
    }
}

/// A webhook without an id, for any task.
pub(super) fn config(
    option: &str,
    url: &Hidden,
    token: Option<&Hidden>,
) -> Result<TaskPushNotificationConfig> {
    let url = url.reveal();
    // The message does not show the URL: it may hold a secret.
    let is_address = Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    if !is_address {
        return Err(exit::usage(format!("{option}: expected a URL such as https://receiver.example/hook")));
    }
    let token = token.map(|token| token.reveal().to_owned()).or_else(|| setting(TOKEN));
    Ok(TaskPushNotificationConfig { url: url.to_owned(), token, ..TaskPushNotificationConfig::default() })
}

/// The one line of the file.
fn credentials(file: &Path) -> Result<String> {
    let wrong = |why: String| exit::usage(format!("--auth-credentials-file {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() || text.contains(['\r', '\n']) {
        return Err(wrong("expected one line with the credentials, and nothing else".to_owned()));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_secrets() {
        for (text, expected) in [
            ("https://u:s3cret@receiver.example/hook?key=s3cret#s3cret", "https://receiver.example/hook"),
            ("http://127.0.0.1:9000/", "http://127.0.0.1:9000/"),
            ("s3cret", "(not a URL)"),
        ] {
            assert_eq!(without_secrets(text), expected);
        }
    }
}
