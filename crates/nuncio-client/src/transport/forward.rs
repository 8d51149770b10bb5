//! One interface of an agent, for calls that are handed on as they came: what they say is not looked at.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, TE},
};
use http_body_util::{BodyExt as _, Limited};
use nuncio_protocol::{Binding, Error, ErrorKind, Result};
use url::Url;

use super::{
    endpoint::{Endpoint, http_url},
    rest::base_path,
};
use crate::{Candidate, Credentials, Egress, ForwardBody, choose::rest_form, failure::Failure};

/// One interface of an agent. Cheap to clone.
#[derive(Clone)]
pub struct Forward(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    candidate: Candidate,
    /// `https://host:port`.
    origin: String,
    /// The address of the interface; for HTTP+JSON what stands before every path.
    base: String,
    /// The query of the interface's own address.
    query: Option<String>,
    /// The whole address, where there is only one.
    uri: Option<Uri>,
}

/// A call as it is to go out.
#[derive(Debug)]
pub struct Handed<'a> {
    /// The verb.
    pub method: Method,
    /// Below the interface's address, still escaped; of gRPC the whole path.
    pub path: &'a str,
    /// The query, still escaped.
    pub query: Option<&'a str>,
    /// All that is said around the body, without credentials.
    pub headers: HeaderMap,
    /// The body; of gRPC the message in it.
    pub body: Bytes,
}

impl Forward {
    /// The interface of a card that came from `home`: credentials are for that origin.
    ///
    /// # Errors
    /// `InvalidAgentResponse` if the interface has no usable address.
    pub fn new(
        egress: &Egress,
        candidate: &Candidate,
        credentials: &Credentials,
        home: &Url,
    ) -> Result<Self> {
        let interface = &candidate.interface;
        let mut url = match candidate.binding {
            Binding::JsonRpc | Binding::HttpJson => http_url(interface)?,
            #[cfg(feature = "grpc")]
            Binding::Grpc => super::grpc::grpc_url(&interface.url, home)?,
            #[cfg(not(feature = "grpc"))]
            Binding::Grpc => {
                return Err(Error::new(ErrorKind::UnsupportedOperation, "no gRPC in this build"));
            }
        };
        url.set_fragment(None);
        let origin = url.origin().ascii_serialization();
        let mut base = url.path().to_owned();
        if candidate.binding == Binding::HttpJson {
            let form = rest_form(candidate.version);
            base = base_path(&url, form.paths.prefix);
            if let Some(tenant) = interface.tenant.as_ref().filter(|_| form.paths.tenants) {
                let mut below = url.clone();
                below.set_path(&base);
                // Escapes what is no part of a path.
                below
                    .path_segments_mut()
                    .map_err(|()| Error::internal("an address without a path"))?
                    .push(tenant);
                below.path().clone_into(&mut base);
            }
        }
        let uri = match candidate.binding {
            Binding::JsonRpc => Some(url.as_str().parse().map_err(Error::internal)?),
            Binding::HttpJson | Binding::Grpc => None,
        };
        let query = url.query().filter(|query| !query.is_empty()).map(str::to_owned);
        let endpoint = Endpoint::new(egress, url, credentials, home);
        let base = base.trim_end_matches('/').to_owned();
        Ok(Self(Arc::new(Inner { endpoint, candidate: candidate.clone(), origin, base, query, uri })))
    }

    /// The interface.
    #[must_use]
    pub fn candidate(&self) -> &Candidate {
        &self.0.candidate
    }

    /// Hands a call on and returns as soon as the head of the answer is there, whatever it says.
    ///
    /// # Errors
    /// `Unavailable` if there is no answer, `Unauthenticated` if our own credentials are refused.
    pub async fn send(&self, call: Handed<'_>) -> Result<Response<ForwardBody>> {
        let Inner { endpoint, .. } = &*self.0;
        let uri = self.uri(&call)?;
        let is_grpc = self.0.candidate.binding == Binding::Grpc;
        let Handed { method, mut headers, mut body, .. } = call;
        // Whoever calls with credentials of their own is told what becomes of them.
        let is_ours = !headers.contains_key(AUTHORIZATION);
        if is_grpc {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert(TE, HeaderValue::from_static("trailers"));
            body = frame(&body)?;
        }
        let exchange = || async {
            let mut headers = headers.clone();
            for (name, value) in endpoint.granted.headers().await? {
                if let Some(name) = name {
                    headers.insert(name, value);
                }
            }
            let mut request = Request::new(body.clone());
            *request.method_mut() = method.clone();
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = headers;
            let response = endpoint.egress.forward(&endpoint.url, request, is_grpc).await?;
            match response.status() {
                StatusCode::UNAUTHORIZED if is_ours => {
                    let error = Error::new(ErrorKind::Unauthenticated, "the agent refuses our credentials");
                    Err(Failure::answered(error))
                }
                _ => Ok(response),
            }
        };
        if endpoint.granted.has_tokens() {
            return Ok(endpoint.granted.renewing(exchange).await?);
        }
        Ok(exchange().await?)
    }

    /// Reads a whole answer.
    ///
    /// # Errors
    /// `Unavailable` if it breaks off, `InvalidAgentResponse` if it is too large.
    pub async fn collect(&self, body: ForwardBody) -> Result<Bytes> {
        let collected = Limited::new(body, self.0.endpoint.egress.max_body()).collect().await;
        collected.map(http_body_util::Collected::to_bytes).map_err(|error| match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(error) => {
                let why = "the answer of the agent is larger than allowed";
                Error::new(ErrorKind::InvalidAgentResponse, why).with_source(error)
            }
        })
    }

    /// Where a call goes.
    fn uri(&self, call: &Handed<'_>) -> Result<Uri> {
        let Inner { origin, base, query, uri, .. } = &*self.0;
        if let Some(uri) = uri {
            return Ok(uri.clone());
        }
        let mut text = String::with_capacity(origin.len() + base.len() + call.path.len() + 32);
        text.push_str(origin);
        if self.0.candidate.binding == Binding::HttpJson {
            text.push_str(base);
        }
        text.push_str(call.path);
        let queries = [query.as_deref(), call.query].into_iter().flatten().filter(|query| !query.is_empty());
        for (number, query) in queries.enumerate() {
            text.push(if number == 0 { '?' } else { '&' });
            text.push_str(query);
        }
        text.parse().map_err(Error::internal)
    }
}

/// A message in its frame, as gRPC sends it.
fn frame(message: &Bytes) -> Result<Bytes> {
    let length = u32::try_from(message.len()).map_err(Error::internal)?;
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(length);
    frame.put_slice(message);
    Ok(frame.freeze())
}

impl std::fmt::Debug for Forward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forward").field("candidate", &self.0.candidate).finish_non_exhaustive()
    }
}
