//! What every request passes before it is answered, in this order: it gets a name (`telemetry/request`), pages of other
//! sites are looked at (`cors`), and who calls is found (`identity`). Then it is the agent's, or a route's.
//!
//! Nearly all requests are calls of agents. Layers of a router would box each of them three times over; here they pass
//! as plain functions, and the request, which is large, stays in one place on its way.

use std::{convert::Infallible, sync::Arc, task::Context, task::Poll};

use axum::{
    Router,
    body::{Body, HttpBody},
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use http::{Method, header::CONTENT_LENGTH};

use crate::{
    cors::{Origins, cross_origin},
    fleet::Fleet,
    identity::{Identity, identify},
    router,
    telemetry::Requests,
};

/// Around all that is about agents: who may know of which.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) origins: Origins,
    pub(crate) identity: Arc<Identity>,
    pub(crate) fleet: Arc<Fleet>,
}

impl Guard {
    /// Goes on with a request that may pass.
    pub(crate) async fn pass<F: Future<Output = Response>>(
        &self,
        request: Box<Request>,
        next: impl FnOnce(Box<Request>) -> F,
    ) -> Response {
        let is_public = router::reads_public_card(&self.fleet, &request);
        // A browser asks without credentials, and has to be able to read that it needs some.
        cross_origin(&self.origins, request, |request| identify(&self.identity, request, is_public, next))
            .await
    }

    /// The same as a layer.
    pub(crate) async fn layer(State(this): State<Self>, request: Request, next: Next) -> Response {
        this.pass(Box::new(request), |request| next.run(*request)).await
    }
}

/// All that is served on the port of the hub.
#[derive(Clone)]
pub(crate) struct Front(Arc<Inner>);

struct Inner {
    requests: Requests,
    guard: Guard,
    routes: Router,
}

impl Front {
    /// `routes` is what is not a call of an agent by its name.
    pub(crate) fn new(requests: Requests, guard: Guard, routes: Router) -> Self {
        Self(Arc::new(Inner { requests, guard, routes }))
    }
}

impl Inner {
    async fn answer(&self, request: Box<Request>) -> Response {
        let next = async |request: Box<Request>| {
            if !router::is_call(&request) {
                let Ok(response) = tower::Service::call(&mut self.routes.clone(), *request).await;
                return response;
            }
            let is_head = request.method() == Method::HEAD;
            let response =
                self.guard.pass(request, |request| router::agent(&self.guard.fleet, request)).await;
            if is_head { without_body(response) } else { response }
        };
        self.requests.answer(request, next).await
    }
}

/// The head alone, with the length that the body would have (RFC 9110, 9.3.2).
fn without_body(mut response: Response) -> Response {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
    }
    response.map(|_| Body::empty())
}

impl<B> tower::Service<http::Request<B>> for Front
where
    B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let (this, request) = (Arc::clone(&self.0), Box::new(request.map(Body::new)));
        async move { Ok(this.answer(request).await) }.boxed()
    }
}
