//! Lists that are returned in pages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::route::Route;

/// The default size of a page.
pub const DEFAULT_PAGE_SIZE: usize = 50;
/// The maximum size of a page.
pub const MAX_PAGE_SIZE: usize = 1000;

/// The page of a list that a request asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Paging {
    /// Maximum number of items on the page; 50 by default.
    #[schemars(range(min = 1, max = MAX_PAGE_SIZE))]
    pub limit: Option<usize>,
    /// The `next` of the previous page; absent for the first page.
    pub after: Option<String>,
}

impl Paging {
    /// Maximum number of items on the page.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(DEFAULT_PAGE_SIZE)
    }
}

/// A route that answers one page of a list.
pub trait ListRoute: Route {
    type Item: Serialize;

    /// The paging parameters of the request.
    fn paging(&mut self) -> &mut Paging;

    /// The items of an answer.
    fn page(answer: Self::Answer) -> Page<Self::Item>;
}

/// One page of a list.
#[derive(Debug)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// [`Paging::after`] of the next page; `None` on the last.
    pub next: Option<String>,
}
