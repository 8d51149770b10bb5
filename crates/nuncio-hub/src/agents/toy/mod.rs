//! The smallest kind, for tests only. It shows the two things that a kind needs outside of its own folder:
//! a variant of `config::AgentKind` and a line in the table of kinds.

mod tests;

use anyhow::Result;
use async_trait::async_trait;
use axum::response::IntoResponse as _;
use futures_util::FutureExt as _;
use http::Method;
use nuncio_server::{Emitter, ExecContext, Executor, Runtime};

use super::{AgentFactory, Kind, KindRoute, Prepared, kind::RuntimeSpec};
use crate::{config, target::RouteAccess};

/// Settings of a toy agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Toy {
    /// The answer to every message.
    pub word: String,
    /// Fixed for the lifetime of a runtime.
    pub mark: u32,
}

#[async_trait]
impl Kind for Toy {
    fn name() -> &'static str {
        "toy"
    }

    fn routes() -> Vec<KindRoute> {
        let handler = |call: super::RouteCall| {
            let word = call.agent.map(|agent| format!("a toy called {}", agent.name()).into_response());
            std::future::ready(word).boxed()
        };
        vec![KindRoute { method: Method::GET, path: "toy/{part}", access: RouteAccess::Caller, handler }]
    }

    async fn prepare(&self, desired: &config::Agent, factory: &AgentFactory) -> Result<Prepared> {
        anyhow::ensure!(!self.word.is_empty(), "a toy needs a word");
        let card = super::card(&factory.urls, &desired.name);
        let builder = Runtime::builder(card, Says(self.word.clone()));
        Ok(Prepared { example: "play", ..Prepared::durable(RuntimeSpec::new(builder)) })
    }

    fn runtime_key(&self) -> String {
        format!("toy {}", self.mark)
    }
}

struct Says(String);

#[async_trait]
impl Executor for Says {
    async fn execute(&self, _: ExecContext, out: Emitter) -> nuncio_protocol::Result<()> {
        out.message(vec![self.0.as_str().into()]).await
    }
}
