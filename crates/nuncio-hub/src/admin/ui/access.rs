//! API keys: created, rotated, revoked. A secret is shown on one page, once.

use askama::Template;
use axum::extract::Path;
use nuncio_protocol::Timestamp;

use super::{
    form::Form,
    session::Notice,
    shell::{Area, Shell, Theme},
    show,
    visit::{Answer, Visit, render},
};
use crate::{
    admin::{
        api::{
            CreateKey, DeleteKey, Key, KeyRotation, KeyWithSecret, ListKeys, NewKey, RevokeKey, RotateKey,
        },
        keys,
    },
    clock,
};

const PAGE: &str = "/ui/access";

/// A key as a row.
struct KeyRow {
    id: String,
    path: String,
    name: String,
    prefix: String,
    principal: String,
    /// `valid`, `expired` or `revoked`.
    state: &'static str,
    agents: String,
    operations: String,
    last_used: Option<String>,
    expires: Option<String>,
    created: String,
}

impl KeyRow {
    fn new(key: Key, now: Timestamp) -> Self {
        let state = if key.revoked.is_some() {
            "revoked"
        } else if key.expires.is_some_and(|expires| expires <= now) {
            "expired"
        } else {
            "valid"
        };
        let list =
            |names: Option<Vec<String>>| names.map_or_else(|| "all".to_owned(), |names| names.join(", "));
        Self {
            path: format!("{PAGE}/{}", show::segment(&key.id)),
            id: key.id,
            name: show::cell(&key.name),
            prefix: key.prefix,
            principal: show::cell(&key.principal),
            state,
            agents: show::cell(&list(key.agents)),
            operations: show::cell(&list(key.operations)),
            last_used: key.last_used.map(|used| used.to_string()),
            expires: key.expires.map(|expires| expires.to_string()),
            created: key.created.to_string(),
        }
    }
}

#[derive(Template)]
#[template(path = "ui/access.html")]
struct AccessPage {
    shell: Shell,
    keys: Vec<KeyRow>,
    is_volatile: bool,
}

pub(super) async fn page(visit: Visit) -> Answer {
    let shell = visit.shell("Access", Area::Access).with_route(&ListKeys {}, Some("key list".to_owned()))?;
    let keys = visit.call(keys::list, ListKeys {}).await?;
    let now = clock::now();
    render(&AccessPage {
        shell,
        is_volatile: keys.volatile,
        keys: keys.keys.into_iter().map(|key| KeyRow::new(key, now)).collect(),
    })
}

pub(super) async fn create(visit: Visit, form: Form) -> Answer {
    let key = NewKey {
        name: form.required("name")?.to_owned(),
        principal: form.text("principal"),
        agents: form.list("agents"),
        operations: form.list("operations"),
        expires: form.future("expires", clock::now())?,
        ..NewKey::default()
    };
    let created = visit.call(keys::create, CreateKey { key }).await?;
    with_secret(&visit, "created", created)
}

pub(super) async fn rotate(visit: Visit, Path(id): Path<String>) -> Answer {
    let rotated = visit.call(keys::rotate, RotateKey { id, rotation: KeyRotation::default() }).await?;
    with_secret(&visit, "rotated: its previous secret is valid for one more day", rotated)
}

fn with_secret(visit: &Visit, what: &str, key: KeyWithSecret) -> Answer {
    let text = format!("The key {} was {what}. Copy its secret now: it is not shown again.", key.key.name);
    visit.done_with(PAGE, Notice { text, secret: Some(key.secret) })
}

pub(super) async fn revoke(visit: Visit, Path(id): Path<String>) -> Answer {
    let key = visit.call(keys::revoke, RevokeKey { id }).await?;
    visit.done(PAGE, format!("The key {} is revoked.", key.name))
}

pub(super) async fn delete(visit: Visit, Path(id): Path<String>) -> Answer {
    visit.call(keys::delete, DeleteKey { id: id.clone() }).await?;
    visit.done(PAGE, format!("The record of the key {id} was deleted."))
}
