//! Checks of the list of tasks.

use std::collections::BTreeSet;

use futures_util::FutureExt as _;
use nuncio_protocol::{
    Binding, ErrorKind, ListTasksRequest, ListTasksResponse,
    op::{Call, Op},
};
use serde_json::{Value, json};

use super::{Row, Run};
use crate::{
    answer::{Answer, Typed},
    observed::{Checked, Observed},
    probe::{Probe, on_task, refused_with},
};

pub(super) const CHECKS: &[Row] = &[
    ("list.shape", Run::List(|p| shape(p).boxed())),
    ("list.size", Run::List(|p| size(p).boxed())),
    ("list.token", Run::List(|p| token(p).boxed())),
    ("list.status", Run::List(|p| status(p).boxed())),
    ("list.artifacts", Run::List(|p| artifacts(p).boxed())),
    ("list.order", Run::List(|p| order(p).boxed())),
    ("list.walk", Run::List(|p| walk(p).boxed())),
];

/// The size of pages of a walk, and the maximum number of them.
const PAGE: i32 = 2;
const MAX_PAGES: usize = 20;

fn list(request: ListTasksRequest) -> Call {
    Call::ListTasks(Box::new(request))
}

fn page(answer: &Answer) -> Option<&ListTasksResponse> {
    match answer.success()?.typed.as_ref().ok()? {
        Typed::Tasks(page) => Some(page),
        _ => None,
    }
}

/// A list of an agent that lists tasks.
async fn listed(p: &Probe<'_>, request: ListTasksRequest) -> Result<Answer, Observed> {
    let answer = p.call(list(request)).await?;
    if page(&answer).is_none() {
        return Err(Observed::no_setup(format!("the agent does not list tasks: {}", answer.shown())));
    }
    Ok(answer)
}

async fn shape(p: &Probe<'_>) -> Checked {
    let answer = p.call(list(ListTasksRequest::default())).await?;
    let Some(success) = answer.success() else {
        return Err(Observed::broken(format!("ListTasks is refused: {}", answer.shown()))
            .seen(answer.shown())
            .on(&answer.exchange));
    };
    let raw = &success.raw;
    let is_number = |name: &str| raw[name].as_i64().is_some();
    let missing = [
        ("tasks", raw["tasks"].is_array()),
        ("nextPageToken", raw["nextPageToken"].is_string()),
        ("pageSize", is_number("pageSize")),
        ("totalSize", is_number("totalSize")),
    ];
    let missing: Vec<_> = missing.iter().filter(|(_, is_there)| !is_there).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return Ok(Observed::met().on(&answer.exchange));
    }
    let members = raw.as_object().map(|members| members.keys().cloned().collect::<Vec<_>>().join(", "));
    Err(Observed::broken(format!("the list has no valid {}", missing.join(", ")))
        .seen(members.unwrap_or_else(|| raw.to_string()))
        .expecting(r#"{"tasks":[…],"nextPageToken":"","pageSize":50,"totalSize":0}"#)
        .on(&answer.exchange))
}

async fn size(p: &Probe<'_>) -> Checked {
    listed(p, ListTasksRequest::default()).await?;
    for size in [-1, 101] {
        let answer = p.call(list(ListTasksRequest { page_size: Some(size), ..Default::default() })).await?;
        refused_with(&answer, &[ErrorKind::InvalidParams])?;
    }
    Ok(Observed::met())
}

async fn token(p: &Probe<'_>) -> Checked {
    listed(p, ListTasksRequest::default()).await?;
    let token = Some("nuncio-audit-invalid".to_owned());
    let answer = p.call(list(ListTasksRequest { page_token: token, ..Default::default() })).await?;
    refused_with(&answer, &[ErrorKind::InvalidParams])
}

async fn status(p: &Probe<'_>) -> Checked {
    listed(p, ListTasksRequest::default()).await?;
    let mut request = p.request(on_task(Op::ListTasks, ""))?;
    if p.interface.binding == Binding::HttpJson {
        request.url.set_query(Some("status=TASK_STATE_NUNCIO"));
    } else {
        let mut body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        body["params"]["status"] = json!("TASK_STATE_NUNCIO");
        request = request.with_body(body.to_string());
    }
    refused_with(&p.ask(Op::ListTasks, request).await?, &[ErrorKind::InvalidParams])
}

async fn artifacts(p: &Probe<'_>) -> Checked {
    let answer = listed(p, ListTasksRequest::default()).await?;
    let tasks =
        answer.success().and_then(|success| success.raw["tasks"].as_array()).cloned().unwrap_or_default();
    if tasks.is_empty() {
        return Ok(Observed::no_setup("there is no task to list; --send makes one"));
    }
    if let Some(task) = tasks.iter().find(|task| task.get("artifacts").is_some()) {
        let seen = task["artifacts"].to_string();
        return Err(Observed::broken("a listed task has artifacts, which were not asked for")
            .seen(crate::wire::shortened(&seen))
            .expecting("no member artifacts")
            .on(&answer.exchange));
    }
    Ok(Observed::met().on(&answer.exchange))
}

async fn order(p: &Probe<'_>) -> Checked {
    let answer = listed(p, ListTasksRequest::default()).await?;
    let tasks = page(&answer).map(|page| page.tasks.as_slice()).unwrap_or_default();
    let times: Vec<_> = tasks.iter().filter_map(|task| task.status.timestamp).collect();
    if times.len() < 2 {
        return Ok(Observed::no_setup("fewer than two tasks with a timestamp are listed"));
    }
    match times.windows(2).find(|pair| pair[0] < pair[1]) {
        None => Ok(Observed::met().on(&answer.exchange)),
        Some(pair) => Err(Observed::broken("an older task is listed before a newer one")
            .seen(format!("{} before {}", pair[0], pair[1]))
            .expecting("newest first")
            .on(&answer.exchange)),
    }
}

async fn walk(p: &Probe<'_>) -> Checked {
    let (mut ids, mut count, mut token) = (BTreeSet::new(), 0, None);
    for _ in 0..MAX_PAGES {
        let request = ListTasksRequest { page_size: Some(PAGE), page_token: token, ..Default::default() };
        let answer = listed(p, request).await?;
        let Some(page) = page(&answer) else { return Ok(Observed::skip()) };
        let broken = |why: &str| Err(Observed::broken(why).on(&answer.exchange));
        for task in &page.tasks {
            count += 1;
            if !ids.insert(task.id.clone()) {
                return broken("a task is on two pages");
            }
        }
        if page.tasks.len() > PAGE as usize {
            return broken("a page has more tasks than pageSize");
        }
        let total = usize::try_from(page.total_size).unwrap_or_default();
        match &page.next_page_token {
            last if last.is_empty() && total < count => {
                return broken("totalSize is less than the number of tasks");
            }
            last if last.is_empty() && total > count => {
                return broken("pages have fewer tasks than totalSize says");
            }
            last if last.is_empty() && count < 2 => {
                return Ok(Observed::no_setup("fewer than two tasks are listed; --send makes some"));
            }
            last if last.is_empty() => return Ok(Observed::met()),
            next => token = Some(next.clone()),
        }
    }
    Ok(Observed::info(format!("the first {MAX_PAGES} pages have no repeats; the rest was not read")))
}
