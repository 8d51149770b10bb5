//! The dashboard: pages about the hub for a browser, below `/ui` on the admin listener.
//!
//! Reading order: `guard` decides who may ask, `session` and `login` begin and end sessions, `visit` is a request
//! for a page and the way to its answer, `shell` the frame of every page, `show` and `form` write and read values,
//! `assets` has the stylesheet and the script; then a file per page, each with a template of the same name in
//! `templates/ui/`.
//!
//! **Invariants:** pages have no data that the API does not have: they call the handlers of the API, with the rows
//! that these leave in the trail. What agents and callers say is text, and nothing on a page runs but `nuncio.js`.
//! The content of tasks is shown only after a row in the trail says so.

mod access;
mod agent;
mod agents;
mod assets;
mod chart;
mod config;
mod context;
mod deliveries;
mod delivery;
mod form;
mod guard;
mod login;
mod mailbox;
mod mailboxes;
mod multipart;
mod observed;
mod overview;
mod playground;
mod raw;
mod room;
mod rooms;
mod search;
pub(crate) mod session;
mod shell;
mod show;
mod system;
mod task;
mod tasks;
mod timeline;
mod trail;
mod visit;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::State,
    middleware,
    response::Redirect,
    routing::{get, post},
};
use http::{HeaderMap, Uri};

use self::{
    assets::Asset,
    session::Session,
    visit::{Answer, cookie},
};
use super::{AdminState, caller::AdminCaller, problem::AdminProblem, table::EndpointTable, token::Token};

/// The path of the dashboard.
const BASE: &str = "/ui";

/// The parts of the hub that pages work on.
struct Ui {
    state: Arc<AdminState>,
    table: Arc<EndpointTable>,
    token: Token,
    listens: SocketAddr,
    /// The name of the session's cookie. It has the port, because cookies of all ports of a host are one set.
    cookie: String,
    style: Asset,
    script: Asset,
    icon: Asset,
}

impl Ui {
    fn session(&self, headers: &HeaderMap) -> Option<Arc<Session>> {
        self.state.sessions.find(cookie(headers, &self.cookie)?)
    }

    /// The operator or viewer with this token.
    fn caller(&self, given: &str) -> Option<AdminCaller> {
        self.state.tokens.caller(&self.token, given)
    }

    /// The address of the admin API.
    fn address(&self) -> String {
        format!("http://{}", self.listens)
    }
}

/// The address that signs a browser in by a one-time code.
pub(super) fn address_of_code(code: &str) -> String {
    format!("{BASE}/login?code={code}")
}

/// The dashboard, and the way there from the root.
pub(super) fn router(
    state: Arc<AdminState>,
    table: Arc<EndpointTable>,
    token: Token,
    listens: SocketAddr,
) -> Router {
    let cookie = format!("nuncio_session_{}", listens.port());
    let (style, script, icon) = (Asset::style(), Asset::script(), Asset::icon());
    let ui = Arc::new(Ui { state, table, token, listens, cookie, style, script, icon });
    let pages = Router::new()
        .route("/ui", get(overview::page))
        .route("/ui/tasks", get(tasks::page))
        .route("/ui/tasks/{id}", get(task::page))
        .route("/ui/tasks/{id}/cancel", post(task::cancel))
        .route("/ui/tasks/{id}/content", post(task::show_content))
        .route("/ui/tasks/{id}/export", post(task::export))
        .route("/ui/tasks/{id}/notify", post(task::notify))
        .route("/ui/tasks/{id}/artifacts/{artifact}/{number}", get(task::download))
        .route("/ui/contexts/{id}", get(context::page))
        .route("/ui/agents", get(agents::page).post(agents::add))
        .route("/ui/agents/{name}", get(agent::overview))
        .route("/ui/agents/{name}/card", get(agent::card))
        .route("/ui/agents/{name}/observed", get(observed::page))
        .route("/ui/agents/{name}/audit", post(observed::audit))
        .route("/ui/agents/{name}/report", get(observed::report))
        .route("/ui/agents/{name}/tasks", get(agent::tasks_tab))
        .route("/ui/agents/{name}/access", get(agent::access))
        .route("/ui/agents/{name}/setup", get(agent::setup))
        .route("/ui/agents/{name}/refresh", post(agent::refresh))
        .route("/ui/agents/{name}/settings", post(agent::change))
        .route("/ui/agents/{name}/remove", post(agent::remove))
        .route("/ui/deliveries", get(deliveries::page))
        .route("/ui/deliveries/redrive", post(deliveries::redrive))
        .route("/ui/deliveries/pause", post(deliveries::pause))
        .route("/ui/deliveries/resume", post(deliveries::resume))
        .route("/ui/deliveries/{id}", get(delivery::page))
        .route("/ui/deliveries/{id}/replay", post(delivery::replay))
        .route("/ui/access", get(access::page).post(access::create))
        .route("/ui/access/callers/{decision}", post(access::decide))
        .route("/ui/access/{id}/rotate", post(access::rotate))
        .route("/ui/access/{id}/revoke", post(access::revoke))
        .route("/ui/access/{id}/delete", post(access::delete))
        .route("/ui/mailboxes", get(mailboxes::page))
        .route("/ui/mailboxes/{name}", get(mailbox::page))
        .route("/ui/mailboxes/{name}/take-over", post(mailbox::take_over))
        .route("/ui/mailboxes/{name}/retry", post(mailbox::retry))
        .route("/ui/mailboxes/{name}/rotate", post(mailbox::rotate))
        .route("/ui/rooms", get(rooms::page))
        .route("/ui/rooms/{name}", get(room::page))
        .route("/ui/rooms/{name}/content", post(room::show_content))
        .route("/ui/rooms/{name}/reset", post(room::reset))
        .route("/ui/try", get(playground::page).post(playground::send))
        .route("/ui/try/{id}/cancel", post(playground::cancel))
        .route("/ui/trail", get(trail::page))
        .route("/ui/config", get(config::page))
        .route("/ui/config/reload", post(config::reload))
        .route("/ui/system", get(system::page))
        .route("/ui/system/diagnostics", get(system::diagnostics))
        .route("/ui/search", get(search::page))
        .route("/ui/api/{*path}", get(raw::page))
        .route("/ui/theme", post(login::choose_theme))
        .route("/ui/logout", post(login::sign_out))
        .route("/ui/", get(|| async { Redirect::to(BASE) }))
        .route("/ui/{*path}", get(nothing).post(nothing))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&ui), guard::with_session));
    let login = Router::new()
        .route("/ui/login", get(login::page).post(login::sign_in))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&ui), guard::without_session));
    let assets = Router::new()
        .route("/ui/assets/nuncio.css", get(|State(ui): State<Arc<Ui>>| async move { ui.style.serve() }))
        .route("/ui/assets/icon.svg", get(|State(ui): State<Arc<Ui>>| async move { ui.icon.serve() }))
        .route("/ui/assets/nuncio.js", get(|State(ui): State<Arc<Ui>>| async move { ui.script.serve() }));
    pages
        .merge(login)
        .merge(assets)
        .with_state(ui)
        .route("/", get(|| async { Redirect::to(BASE) }))
        .layer(middleware::from_fn(guard::with_headers))
}

async fn nothing(uri: Uri) -> Answer {
    let path = show::cell(uri.path());
    Err(AdminProblem::not_found(format!("there is no page {path}; the navigation lists all pages")).into())
}
