//! One request as it is: to an API that is not an agent, such as the administration of a hub, or to an agent
//! whose answers are inspected before they are decoded.

use bytes::Bytes;
use http::{Request, Response};
use nuncio_protocol::{Error, ErrorKind, Result};
use url::Url;

use super::{Egress, ForwardBody, Wire};

impl Egress {
    /// Sends a request and reads the whole answer. Any status is an answer.
    ///
    /// # Errors
    /// `InvalidParams` if the URL is invalid, `Unavailable` without an answer.
    pub async fn fetch(&self, request: Request<Bytes>) -> Result<Response<Bytes>> {
        let (parts, body) = request.into_parts();
        let url = Url::parse(&parts.uri.to_string())
            .map_err(|_| Error::new(ErrorKind::InvalidParams, "expected a whole address"))?;
        let mut answer = self.send(parts.method, &url, parts.headers, body).await?;
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = answer.status();
        std::mem::swap(response.headers_mut(), answer.headers_mut());
        *response.body_mut() = self.read(answer).await?;
        Ok(response)
    }

    /// Sends a request and returns as soon as the headers of the answer have arrived, with the body as a
    /// stream of frames and trailers. Any status is an answer. With `http2` the request is sent over HTTP/2
    /// only, as gRPC needs it.
    ///
    /// # Errors
    /// `InvalidParams` if the URL is invalid, `Unavailable` without an answer, `PermissionDenied` if the
    /// policy does not allow the address.
    pub async fn open(&self, request: Request<Bytes>, http2: bool) -> Result<Response<ForwardBody>> {
        let url = Url::parse(&request.uri().to_string())
            .map_err(|_| Error::new(ErrorKind::InvalidParams, "expected a whole address"))?;
        let wire = if http2 { Wire::Http2 } else { Wire::Best };
        Ok(self.forward(&url, Box::new(request), wire).await?)
    }
}
