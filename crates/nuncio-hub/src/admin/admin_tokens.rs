//! Tokens for administration: created, listed, revoked.

use std::sync::Arc;

use super::{
    AdminState,
    api::{
        AdminToken, AdminTokenList, AdminTokenWithText, CreateAdminToken, ListAdminTokens, RevokeAdminToken,
    },
    caller::StoredToken,
    endpoint::Reply,
    problem::AdminProblem,
};

pub(super) async fn list(
    state: Arc<AdminState>,
    _: ListAdminTokens,
) -> Result<Reply<AdminTokenList>, AdminProblem> {
    let mut tokens: Vec<_> = state.tokens.all().into_iter().map(|(id, token)| shown(id, token)).collect();
    tokens.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Reply::new(AdminTokenList { tokens, volatile: state.is_volatile }))
}

pub(super) async fn create(
    state: Arc<AdminState>,
    request: CreateAdminToken,
) -> Result<Reply<AdminTokenWithText>, AdminProblem> {
    let (id, token, text) = state.tokens.create(request.token).await?;
    let subject = token.name.clone();
    let volatile = state.is_volatile;
    Ok(Reply::new(AdminTokenWithText { token: shown(id, token), text, volatile }).subject(subject))
}

pub(super) async fn revoke(
    state: Arc<AdminState>,
    request: RevokeAdminToken,
) -> Result<Reply<()>, AdminProblem> {
    let name = state.tokens.revoke(&request.id).await?;
    Ok(Reply::new(()).subject(name))
}

fn shown(id: String, token: StoredToken) -> AdminToken {
    let StoredToken { name, role, created, .. } = token;
    AdminToken { id, name, role, created }
}
