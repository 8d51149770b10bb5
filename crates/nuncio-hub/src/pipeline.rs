//! The steps of every request: assign its id (`telemetry/request`), read its target (`routes`), judge pages
//! of other sites (`cors`), authenticate the caller (`identity`), and answer it by its route.
//!
//! Nearly all requests are calls to agents. Layers of a router would box each of them three times; here the
//! steps are plain functions, and the request, which is large, is never moved.

use std::{convert::Infallible, sync::Arc, task::Context, task::Poll};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    response::Response,
};
use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use http::{HeaderMap, Uri};

use crate::{
    cors::{Origins, cross_origin},
    identity::{Authenticator, identify},
    routes::RouteTable,
    target::RouteAccess,
    telemetry::Requests,
};

/// The service of the public listener.
#[derive(Clone)]
pub(crate) struct Pipeline(Arc<Stations>);

/// The steps, in their order.
pub(crate) struct Stations {
    pub(crate) requests: Requests,
    pub(crate) origins: Origins,
    pub(crate) identity: Arc<Authenticator>,
    pub(crate) routes: Arc<RouteTable>,
}

impl Pipeline {
    pub(crate) fn new(stations: Stations) -> Self {
        Self(Arc::new(stations))
    }
}

impl Stations {
    async fn answer(&self, request: Box<Request>) -> Response {
        self.requests.answer(request, |request| self.pass(request)).await
    }

    async fn pass(&self, request: Box<Request>) -> Response {
        let (origins, routes) = (&self.origins, &self.routes);
        let target = routes.find(&request);
        match target.access {
            RouteAccess::Anyone | RouteAccess::Capability => {
                Box::pin(routes.serve(target, None, request)).await
            }
            RouteAccess::Protocol => {
                let next = |request| routes.serve(target, None, request);
                Box::pin(cross_origin(origins, target, request, next)).await
            }
            RouteAccess::Caller => {
                let public = routes.public_card(target, &request);
                let is_public = public.is_some();
                // Cross-origin first: a browser sends a preflight request without credentials, and its page
                // must be able to read that credentials are missing.
                cross_origin(origins, target, request, |request| {
                    let judge = |uri: &Uri, headers: &HeaderMap| routes.judge(target, uri, headers);
                    identify(&self.identity, target, is_public, judge, request, |request| {
                        routes.serve(target, public, request)
                    })
                })
                .await
            }
        }
    }
}

impl<B> tower::Service<http::Request<B>> for Pipeline
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
