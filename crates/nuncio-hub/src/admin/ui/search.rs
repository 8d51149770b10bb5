//! The search field: leads to the agent, the task, the delivery or the key of a name or id.

use axum::response::{IntoResponse as _, Redirect};

use super::{
    BASE, show,
    visit::{Answer, Visit},
};
use crate::admin::{
    agents,
    api::{ShowAgent, ShowDelivery, ShowTask, TimelineOptions},
    deliveries, tasks,
};

pub(super) async fn page(visit: Visit) -> Answer {
    let Some(text) = visit.query.text("q") else { return Ok(Redirect::to(BASE).into_response()) };
    let name = show::segment(&text);
    let is_agent = visit.call(agents::show, ShowAgent { name: text.clone() }).await.is_ok();
    let options = TimelineOptions { limit: Some(1), ..TimelineOptions::default() };
    let address = if is_agent {
        format!("{BASE}/agents/{name}")
    } else if visit.call(tasks::show, ShowTask { id: text.clone(), options }).await.is_ok() {
        format!("{BASE}/tasks/{name}")
    } else if visit.call(deliveries::show, ShowDelivery { id: text.clone() }).await.is_ok() {
        format!("{BASE}/deliveries/{name}")
    } else {
        let query: String =
            url::form_urlencoded::Serializer::new(String::new()).append_pair("id", &text).finish();
        format!("{BASE}/tasks?{query}")
    };
    Ok(Redirect::to(&address).into_response())
}
