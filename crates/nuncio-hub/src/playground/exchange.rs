//! The call of a trial: within the hub or over the network, and the reading of its answer, frame by frame.

use std::sync::Arc;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response, Version};
use http_body::Frame;
use http_body_util::BodyExt as _;
use nuncio_audit::exchange::{CallRequest, FrameReader, WholeAnswer, is_stream};
use nuncio_client::Egress;
use nuncio_protocol::{Caller, op::Op};
use url::Url;

use super::trial::{Direction, Trial};
use crate::routes::RouteTable;

/// Maximum size of the answer of a trial, and of all frames of a stream.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// The way to the agents.
#[derive(Clone)]
pub(super) struct Exchange(Arc<Ways>);

struct Ways {
    routes: Arc<RouteTable>,
    egress: Egress,
    base: Url,
    caller: Caller,
}

impl Exchange {
    /// `base` is the address of the hub as callers see it.
    pub(super) fn new(routes: Arc<RouteTable>, egress: Egress, base: Url, caller: Caller) -> Self {
        Self(Arc::new(Ways { routes, egress, base, caller }))
    }

    pub(super) fn base(&self) -> &Url {
        &self.0.base
    }

    pub(super) fn egress(&self) -> &Egress {
        &self.0.egress
    }

    /// Makes a call of a trial, and adds its frames.
    pub(super) async fn run(&self, trial: &Trial, op: Op, request: CallRequest) {
        let (request, response) = match self.open(trial, request).await {
            Ok(opened) => opened,
            Err(why) => return trial.fail(&why),
        };
        let is_stream = is_stream(&response);
        let (parts, body) = response.into_parts();
        if is_stream {
            trial.note(Direction::Received, &format!("HTTP {}, a stream of events", parts.status.as_u16()));
            stream(trial, op, &request, parts.headers, body).await;
            return;
        }
        match read(body).await {
            Ok((body, trailers)) => {
                let status = parts.status.as_u16();
                let answer = WholeAnswer { status, headers: parts.headers, body, trailers };
                trial.add(
                    Direction::Received,
                    &format!("HTTP {status}"),
                    trial.interface.judge(op, &request, answer),
                );
            }
            Err(why) => trial.fail(&why),
        }
    }

    /// Sends the request, which is the trial's next frame.
    async fn open(
        &self,
        trial: &Trial,
        request: CallRequest,
    ) -> Result<(CallRequest, Response<Body>), String> {
        let mut http = request.http()?;
        let Some(home) = &trial.home else {
            trial.sent(&request);
            let response = self.within_hub(http).await;
            return Ok((request, response));
        };
        let headers = trial.credentials.headers_for(&self.0.egress, request.url(), home).await;
        let (egress, secrets) = headers.map_err(|error| error.message().to_owned())?;
        let request = secrets.keys().fold(request, |request, name| request.with_secret(name));
        trial.sent(&request);
        http.headers_mut().extend(secrets);
        let response = egress.open(http, request.needs_http2()).await;
        let response = response.map_err(|error| error.message().to_owned())?;
        Ok((request, response.map(Body::new)))
    }

    /// Calls an agent of the hub, whose path is below that of the hub's address.
    async fn within_hub(&self, request: Request<Bytes>) -> Response<Body> {
        let is_grpc = nuncio_server::bind::is_grpc(request.headers());
        let mut request = request.map(Body::from);
        let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        let below = target.strip_prefix(self.0.base.path().trim_end_matches('/'));
        let below = below.filter(|below| below.starts_with('/')).unwrap_or("/");
        if let Ok(uri) = below.parse() {
            *request.uri_mut() = uri;
        }
        if is_grpc {
            *request.version_mut() = Version::HTTP_2;
        }
        self.0.routes.serve_as(self.0.caller.clone(), request).await
    }
}

async fn read(mut body: Body) -> Result<(Bytes, HeaderMap), String> {
    let (mut bytes, mut trailers) = (BytesMut::new(), HeaderMap::new());
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| format!("the answer broke off: {error}"))?.into_data() {
            Ok(data) if bytes.len() + data.len() > MAX_ANSWER_BYTES => {
                return Err(format!("the answer is larger than {MAX_ANSWER_BYTES} bytes, and was not read"));
            }
            Ok(data) => bytes.extend_from_slice(&data),
            Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
        }
    }
    Ok((bytes.freeze(), trailers))
}

/// Reads a stream to its end, and adds its events and the status at its end, which gRPC has.
async fn stream(trial: &Trial, op: Op, request: &CallRequest, headers: HeaderMap, mut body: Body) {
    let mut reader = FrameReader::new(&headers);
    let (mut size, mut events, mut trailers) = (0, Vec::new(), HeaderMap::new());
    while let Some(frame) = body.frame().await {
        let data = match frame.map(Frame::into_data) {
            Err(error) => return trial.fail(&format!("the stream broke off: {error}")),
            Ok(Err(frame)) => {
                trailers = frame.into_trailers().unwrap_or_default();
                continue;
            }
            Ok(Ok(data)) => data,
        };
        size += data.len();
        let read = reader.push(data, &mut events);
        for event in events.drain(..) {
            let label = event.id.as_deref().map_or_else(|| "event".to_owned(), |id| format!("event {id}"));
            trial.add(Direction::Received, &label, trial.interface.judge_event(&event));
        }
        if let Err(why) = read {
            return trial.fail(&format!("the stream cannot be read: {why}"));
        }
        if size > MAX_ANSWER_BYTES || trial.is_full() {
            return trial.fail("the stream is longer than a trial keeps, and was closed");
        }
    }
    let answer = WholeAnswer { status: 200, headers, body: Bytes::new(), trailers };
    match trial.interface.judge_end(op, request, answer) {
        Some(judged) => trial.add(Direction::Received, "end of the stream", judged),
        None => trial.note(Direction::Received, "end of the stream"),
    }
}
