//! One interface of an agent for sealed calls, which are forwarded without being decoded.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, TE},
};
use http_body::Body;
use nuncio_protocol::{Binding, Error, ErrorKind, FileBytes, Result};
use url::Url;

use super::{address::Address, endpoint::Endpoint, interface_url, rest::base_path};
use crate::{Candidate, Credentials, Egress, ForwardBody, choose::rest_form, egress::Wire, failure::Failure};

/// One interface of an agent. Cheap to clone.
#[derive(Clone)]
pub struct Forward(Arc<ForwardInner>);

struct ForwardInner {
    endpoint: Endpoint,
    candidate: Candidate,
    address: Address,
}

/// An outgoing sealed call.
#[derive(Debug)]
pub struct Handed<'a> {
    /// The HTTP method.
    pub method: Method,
    /// The path below the interface's URL, escaped; for gRPC the whole path.
    pub path: &'a str,
    /// The query, escaped.
    pub query: Option<&'a str>,
    /// All headers except credentials.
    pub headers: HeaderMap,
    /// The body; for gRPC the message in it.
    pub body: Bytes,
}

impl Forward {
    /// The interface of a card that came from `home`; credentials are bound to that origin.
    ///
    /// # Errors
    /// `InvalidAgentResponse` if the interface has no valid URL.
    pub fn new(
        egress: &Egress,
        candidate: &Candidate,
        credentials: &Credentials,
        home: &Url,
    ) -> Result<Self> {
        let interface = &candidate.interface;
        let mut url = interface_url(interface, candidate.binding, home)?;
        url.set_fragment(None);
        let mut below = url.clone();
        match candidate.binding {
            Binding::JsonRpc => {}
            Binding::HttpJson => {
                let form = rest_form(candidate.version, FileBytes::default());
                below.set_path(&base_path(&url, form.paths.prefix));
                if let Some(tenant) = interface.tenant.as_ref().filter(|_| form.paths.tenants) {
                    // Escapes characters that are not allowed in a path.
                    below
                        .path_segments_mut()
                        .map_err(|()| Error::internal("an address without a path"))?
                        .pop_if_empty()
                        .push(tenant);
                }
            }
            // The path is that of the operation.
            Binding::Grpc => below.set_path(""),
        }
        let address = Address::new(&below)?;
        let endpoint = Endpoint::new(egress, url, credentials, home);
        Ok(Self(Arc::new(ForwardInner { endpoint, candidate: candidate.clone(), address })))
    }

    /// The interface.
    #[must_use]
    pub fn candidate(&self) -> &Candidate {
        &self.0.candidate
    }

    /// Forwards a call and returns as soon as the headers of the answer have arrived, with any status.
    ///
    /// # Errors
    /// `Unavailable` if there is no answer, `Unauthenticated` if our own credentials are refused.
    pub async fn send(&self, call: Handed<'_>) -> Result<Response<ForwardBody>> {
        let ForwardInner { endpoint, address, candidate } = &*self.0;
        let (uri, wire) = match candidate.binding {
            Binding::JsonRpc => (address.whole(), Wire::Http1),
            Binding::HttpJson => (address.below(call.path, call.query)?, Wire::Http1),
            Binding::Grpc => (address.below(call.path, call.query)?, Wire::Http2),
        };
        // A caller with its own credentials gets the agent's refusal itself.
        let is_ours = !call.headers.contains_key(AUTHORIZATION);
        let mut request = Box::new(Request::new(call.body));
        *request.method_mut() = call.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = call.headers;
        if candidate.binding == Binding::Grpc {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
            *request.body_mut() = frame(request.body())?;
        }
        let exchange = async |mut request: Box<Request<Bytes>>| {
            for (name, value) in endpoint.granted.headers().await? {
                if let Some(name) = name {
                    request.headers_mut().insert(name, value);
                }
            }
            let response = endpoint.egress.forward(&endpoint.url, request, wire).await?;
            match response.status() {
                StatusCode::UNAUTHORIZED if is_ours => {
                    let error = Error::new(ErrorKind::Unauthenticated, "the agent refuses our credentials");
                    Err(Failure::answered(error))
                }
                _ => Ok(response),
            }
        };
        if endpoint.granted.has_tokens() {
            return Ok(Box::pin(endpoint.granted.renewing(|| exchange(request.clone()))).await?);
        }
        Ok(exchange(request).await?)
    }

    /// Reads a complete answer.
    ///
    /// # Errors
    /// `Unavailable` if the connection breaks, `InvalidAgentResponse` if the answer is too large.
    pub async fn collect(&self, body: impl Body<Data = Bytes, Error = Error>) -> Result<Bytes> {
        Ok(self.0.endpoint.egress.collect(&self.0.endpoint.url, body).await?)
    }
}

/// Adds the gRPC frame header to a message.
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
