//! The login page: by the admin token, or by the code of `nuncio ui`.

use askama::Template;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::{HeaderValue, header};

use super::{
    BASE,
    form::Form,
    session::SESSION_LIFETIME,
    shell::{Area, Shell, THEME_COOKIE, Theme},
    visit::{Answer, Visit, render},
};
use crate::{
    admin::{caller::AdminCaller, problem::AdminProblem},
    trail::{Row, What},
};

#[derive(Template)]
#[template(path = "ui/login.html")]
struct LoginPage {
    shell: Shell,
    next: String,
    refused: Option<&'static str>,
}

/// The address of the login page that leads back to a page.
pub(super) fn address(next: &str) -> String {
    let query: String =
        url::form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
    format!("{BASE}/login?{query}")
}

/// Shows the form, or takes the code in the address.
pub(super) async fn page(visit: Visit) -> Answer {
    let next = next(&visit.query);
    let Some(code) = visit.query.get("code") else { return form(&visit, next, None) };
    if let Some(caller) = visit.state().sessions.redeem(code) {
        return begin(&visit, caller, &next);
    }
    note_refusal(&visit);
    form(&visit, next, Some("This code was used already, or its minute is over: run nuncio ui again."))
}

/// Takes the token.
pub(super) async fn sign_in(visit: Visit, fields: Form) -> Answer {
    let next = next(&fields);
    if let Some(caller) = visit.ui().caller(fields.get("admin_token").unwrap_or_default()) {
        return begin(&visit, caller, &next);
    }
    note_refusal(&visit);
    form(&visit, next, Some("This is not the token of this hub. A hub makes a new one each time it starts."))
}

/// Ends the session.
pub(super) async fn sign_out(visit: Visit) -> Answer {
    if let Some(session) = visit.session() {
        visit.state().sessions.end(session);
    }
    let gone = format!("{}=; Path={BASE}; Max-Age=0; HttpOnly; SameSite=Strict", visit.ui().cookie);
    with_cookie(Redirect::to(&format!("{BASE}/login")).into_response(), &gone)
}

/// Chooses the colours.
pub(super) async fn choose_theme(fields: Form) -> Answer {
    let theme = Theme::parse(fields.shown("theme")).word();
    let cookie = format!("{THEME_COOKIE}={theme}; Path={BASE}; Max-Age=31536000; HttpOnly; SameSite=Strict");
    with_cookie(Redirect::to(&next(&fields)).into_response(), &cookie)
}

fn begin(visit: &Visit, caller: AdminCaller, next: &str) -> Answer {
    let id = visit.state().sessions.begin(caller)?;
    // Without Secure: administration is on loopback only, where it speaks plain HTTP.
    let cookie = format!(
        "{}={id}; Path={BASE}; Max-Age={}; HttpOnly; SameSite=Strict",
        visit.ui().cookie,
        SESSION_LIFETIME.as_secs()
    );
    with_cookie(Redirect::to(next).into_response(), &cookie)
}

fn with_cookie(mut response: Response, cookie: &str) -> Answer {
    let cookie = HeaderValue::from_str(cookie).map_err(|_| AdminProblem::internal())?;
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}

fn form(visit: &Visit, next: String, refused: Option<&'static str>) -> Answer {
    let shell = visit.shell("Sign in", Area::None);
    let mut response = render(&LoginPage { shell, next, refused })?;
    if refused.is_some() {
        *response.status_mut() = http::StatusCode::UNAUTHORIZED;
    }
    Ok(response)
}

fn note_refusal(visit: &Visit) {
    let mut row = Row::of(What::CredentialsRefused);
    row.detail = Some("sign-in to the dashboard".to_owned());
    visit.state().identity.trail().note(row);
}

/// The page to go to: one of this dashboard, whatever the address says.
fn next(fields: &Form) -> String {
    let is_ours = |next: &&str| {
        let rest = next.strip_prefix(BASE);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
            && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    };
    fields.get("next").filter(is_ours).unwrap_or(BASE).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_the_dashboard_only() {
        for (given, expected) in [
            ("/ui/tasks?state=failed", "/ui/tasks?state=failed"),
            ("/ui?x", "/ui?x"),
            ("https://evil.example/ui", "/ui"),
            ("//evil.example/ui", "/ui"),
            ("/uix", "/ui"),
            ("/ui/\\evil", "/ui"),
            ("/ui/\r\nSet-Cookie: a=b", "/ui"),
            ("", "/ui"),
        ] {
            let text: String =
                url::form_urlencoded::Serializer::new(String::new()).append_pair("next", given).finish();
            assert_eq!(next(&Form::parse(text.as_bytes())), expected, "{given}");
        }
    }
}
