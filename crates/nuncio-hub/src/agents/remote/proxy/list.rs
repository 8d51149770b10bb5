//! Lists the caller's tasks: filters the agent's list page by page.

use nuncio_protocol::{
    CallContext, ListTasksRequest, ListTasksResponse, Result,
    op::{Call, Reply},
};

use super::{Interfaces, Proxy, unexpected};

/// Maximum number of the agent's pages per page of ours. A page may be short if most tasks belong to
/// others.
const PAGES: usize = 16;

/// The default page size (spec 3.1.4).
const PAGE: i32 = 50;

impl Proxy {
    /// A page of the caller's tasks. Its token is the agent's own. `totalSize` is exact if the whole list
    /// was read; otherwise it is the number of tasks that the caller owns, without regard to the filters.
    pub(super) async fn list(
        &self,
        interfaces: &Interfaces,
        cx: &CallContext,
        mut req: ListTasksRequest,
    ) -> Result<ListTasksResponse> {
        let Some(owners) = self.owners() else { return self.page(interfaces, cx, req).await };
        let wanted = usize::try_from(req.page_size.unwrap_or(PAGE)).unwrap_or_default();
        let is_first = req.page_token.is_none();
        let mut answer: Option<ListTasksResponse> = None;
        for _ in 0..PAGES {
            let found = answer.as_ref().map_or(0, |answer| answer.tasks.len());
            if answer.is_some() {
                req.page_size = i32::try_from(wanted - found).ok();
            }
            let mut page = self.page(interfaces, cx, req.clone()).await?;
            let mut own = Vec::with_capacity(page.tasks.len());
            for task in std::mem::take(&mut page.tasks) {
                if owners.owns(&cx.caller, &task.id).await? {
                    own.push(task);
                }
            }
            let whole = answer.get_or_insert_with(|| ListTasksResponse { tasks: Vec::new(), ..page.clone() });
            whole.tasks.extend(own);
            whole.next_page_token.clone_from(&page.next_page_token);
            if page.next_page_token.is_empty() || whole.tasks.len() >= wanted {
                break;
            }
            req.page_token = Some(page.next_page_token);
        }
        let mut answer = answer.unwrap_or_default();
        let total = if is_first && answer.next_page_token.is_empty() {
            answer.tasks.len()
        } else {
            owners.count(&cx.caller).await?
        };
        answer.total_size = i32::try_from(total).unwrap_or(i32::MAX);
        Ok(answer)
    }

    async fn page(
        &self,
        interfaces: &Interfaces,
        cx: &CallContext,
        req: ListTasksRequest,
    ) -> Result<ListTasksResponse> {
        match self.ask(interfaces, cx, Call::ListTasks(Box::new(req))).await? {
            Reply::Tasks(page) => Ok(page),
            _ => Err(unexpected("ListTasks")),
        }
    }
}
