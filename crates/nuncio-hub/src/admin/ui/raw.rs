//! The answers of the API as JSON, in the session of the dashboard: reads only.

use axum::{extract::Request, response::IntoResponse as _};
use http::Uri;

use super::{
    BASE,
    visit::{Answer, Visit},
};
use crate::admin::problem::AdminProblem;

/// Serves `/ui/api/v1/…` as `/api/v1/…`. The content of tasks is on their pages alone, where asking for it leaves a
/// row in the trail.
pub(super) async fn page(visit: Visit, mut request: Request) -> Answer {
    if visit.query.get("content") == Some("true") || request.uri().path().contains("/parts/") {
        return Err(AdminProblem::forbidden(
            "content is not shown here: open the page of the task and choose \"Show content\", or \"Export\"",
        )
        .into());
    }
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let path = path.strip_prefix(BASE).and_then(|path| path.strip_prefix("/api")).unwrap_or_default();
    *request.uri_mut() = path.parse::<Uri>().map_err(|_| AdminProblem::invalid("the path is invalid"))?;
    let caller = visit.session().ok_or_else(AdminProblem::signed_out)?.caller();
    request.extensions_mut().insert(caller.clone());
    // A refusal is JSON as well.
    Ok(visit.ui().table.run(request).await.unwrap_or_else(|problem| problem.into_response()))
}
