//! The way into the dashboard: one-time codes.

use std::sync::Arc;

use super::{
    AdminState,
    api::{DashboardCode, OpenDashboard},
    caller::AdminCaller,
    endpoint::Reply,
    problem::AdminProblem,
    ui::{self, session::CODE_LIFETIME},
};

pub(super) async fn open(
    state: Arc<AdminState>,
    caller: AdminCaller,
    _: OpenDashboard,
) -> Result<Reply<DashboardCode>, AdminProblem> {
    let path = ui::address_of_code(&state.sessions.create_code(caller)?);
    Ok(Reply::new(DashboardCode { path, expires_in_seconds: CODE_LIFETIME.as_secs() }))
}
