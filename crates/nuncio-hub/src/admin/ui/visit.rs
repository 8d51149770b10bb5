//! A request for a page: its session, its address, and the way to an answer.

use std::sync::Arc;

use askama::Template;
use axum::{
    extract::{FromRequestParts, Request},
    response::{Html, IntoResponse, Redirect, Response},
};
use http::{HeaderMap, StatusCode, header, request::Parts};

use super::{
    Ui,
    form::Form,
    guard::LIVE_HEADER,
    session::{Notice, Session},
    shell::{Area, Shell, Theme},
};
use crate::admin::{
    AdminState,
    api::{Role, Route, What},
    endpoint::{self, Reply},
    problem::AdminProblem,
};

/// A request for a page, with its session if it has one.
#[derive(Clone)]
pub(super) struct Visit {
    ui: Arc<Ui>,
    session: Option<Arc<Session>>,
    /// The parameters of the address.
    pub(super) query: Form,
    path: String,
    query_text: String,
    theme: Theme,
    /// The script asks, to refresh parts of a page.
    is_live: bool,
}

/// A refusal by a handler, of which the guard makes a page.
#[derive(Clone)]
pub(super) struct Refused(pub(super) Arc<AdminProblem>);

/// The answer of a handler.
pub(super) type Answer = Result<Response, Refused>;

impl From<AdminProblem> for Refused {
    fn from(problem: AdminProblem) -> Self {
        Self(Arc::new(problem))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

#[derive(Template)]
#[template(path = "ui/error.html")]
struct ErrorPage<'a> {
    shell: Shell,
    message: &'a str,
    status: u16,
    is_signed_in: bool,
}

impl Visit {
    pub(super) fn new(ui: Arc<Ui>, request: &Request) -> Self {
        let uri = request.uri();
        Self {
            ui,
            session: None,
            query: Form::parse(uri.query().unwrap_or_default().as_bytes()),
            path: uri.path().to_owned(),
            query_text: uri.query().unwrap_or_default().to_owned(),
            theme: Theme::of(request.headers()),
            is_live: request.headers().contains_key(LIVE_HEADER),
        }
    }

    pub(super) fn sign_in(&mut self, session: Arc<Session>) {
        self.session = Some(session);
    }

    pub(super) fn ui(&self) -> &Arc<Ui> {
        &self.ui
    }

    pub(super) fn state(&self) -> &Arc<AdminState> {
        &self.ui.state
    }

    pub(super) fn session(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    /// Runs a handler of the API, with the row that its route leaves in the trail.
    pub(super) async fn call<R, F>(
        &self,
        handler: impl FnOnce(Arc<AdminState>, R) -> F,
        request: R,
    ) -> Result<R::Answer, AdminProblem>
    where
        R: Route,
        F: Future<Output = Result<Reply<R::Answer>, AdminProblem>>,
    {
        let session = self.session().ok_or_else(AdminProblem::signed_out)?;
        endpoint::call(self.state(), session.caller(), handler, request).await
    }

    /// Refuses a viewer, for what is made of several calls of handlers.
    pub(super) fn require_operator(&self) -> Result<(), AdminProblem> {
        match self.session().ok_or_else(AdminProblem::signed_out)?.caller().role {
            Role::Viewer => Err(AdminProblem::viewer()),
            Role::Operator => Ok(()),
        }
    }

    /// Leaves a row in the trail for something that only operators may do.
    pub(super) fn note(&self, what: What, subject: &str) -> Result<(), AdminProblem> {
        let caller = self.session().ok_or_else(AdminProblem::signed_out)?.caller();
        match caller.role {
            Role::Viewer => Err(AdminProblem::viewer()),
            Role::Operator => {
                self.state().note(what, subject.to_owned(), None, caller.name.as_deref());
                Ok(())
            }
        }
    }

    /// The frame of a page with this title.
    pub(super) fn shell(&self, title: impl Into<String>, area: Area) -> Shell {
        let session = self.session.as_deref();
        Shell {
            title: title.into(),
            area,
            theme: self.theme,
            form_token: session.map(|session| session.form_token().to_owned()).unwrap_or_default(),
            is_signed_in: session.is_some(),
            is_operator: session.is_some_and(|session| session.caller().role == Role::Operator),
            // A refresh must not take what the next page is to show.
            notice: session.filter(|_| !self.is_live).and_then(Session::take_notice),
            here: self.here(),
            source: None,
            admin: self.ui.address(),
            style: self.ui.style.address.clone(),
            script: self.ui.script.address.clone(),
            icon: self.ui.icon.address.clone(),
        }
    }

    fn here(&self) -> String {
        match self.query_text.as_str() {
            "" => self.path.clone(),
            query => format!("{}?{query}", self.path),
        }
    }

    /// The address of this page with other values of some parameters; `None` removes one.
    pub(super) fn with(&self, changes: &[(&str, Option<&str>)]) -> String {
        let mut pairs = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in url::form_urlencoded::parse(self.query_text.as_bytes()) {
            if !value.is_empty() && !changes.iter().any(|(changed, _)| *changed == name) {
                pairs.append_pair(&name, &value);
            }
        }
        for (name, value) in changes {
            if let Some(value) = value {
                pairs.append_pair(name, value);
            }
        }
        match pairs.finish() {
            query if query.is_empty() => self.path.clone(),
            query => format!("{}?{query}", self.path),
        }
    }

    /// Returns to a page, which shows what was done.
    pub(super) fn done(&self, page: &str, text: impl Into<String>) -> Answer {
        self.done_with(page, Notice { text: text.into(), secret: None })
    }

    pub(super) fn done_with(&self, page: &str, notice: Notice) -> Answer {
        if let Some(session) = self.session() {
            session.set_notice(notice);
        }
        Ok(Redirect::to(page).into_response())
    }

    /// The page of a refusal.
    pub(super) fn refuse(&self, problem: &AdminProblem) -> Response {
        let page = ErrorPage {
            shell: self.shell(problem.title(), Area::None),
            message: problem.message(),
            status: problem.code().as_u16(),
            is_signed_in: self.session.is_some(),
        };
        let mut response = render(&page).unwrap_or_else(IntoResponse::into_response);
        *response.status_mut() = problem.code();
        response
    }
}

/// A page as HTML.
pub(super) fn render(page: &impl Template) -> Answer {
    let text = page.render().map_err(|error| {
        tracing::error!(%error, "a page of the dashboard could not be rendered");
        AdminProblem::internal()
    })?;
    Ok(Html(text).into_response())
}

/// The value of a cookie.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(given, _)| *given == name).map(|(_, value)| value)
}

impl<S: Sync> FromRequestParts<S> for Visit {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        // The guard has put it there.
        parts.extensions.get::<Self>().cloned().ok_or_else(|| AdminProblem::internal().into())
    }
}

impl<S: Sync> FromRequestParts<S> for Form {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| AdminProblem::internal().into())
    }
}
