//! The hubs of the store.

use std::sync::Arc;

use super::{
    AdminState,
    api::{HubInfo, HubList, ListHubs},
    endpoint::Reply,
    problem::AdminProblem,
};
use crate::hubs::{HubRecord, SeenHub};

pub(super) async fn list(state: Arc<AdminState>, _: ListHubs) -> Result<Reply<HubList>, AdminProblem> {
    let hubs = state.hubs.all().await?.into_iter().map(|SeenHub { record, seen, is_this }| {
        let HubRecord { url, listen, version, started } = record;
        HubInfo { url, listen, version, started, seen, this: is_this }
    });
    Ok(Reply::new(HubList { hubs: hubs.collect() }))
}
