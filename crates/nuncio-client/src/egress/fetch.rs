//! One request to an API that is not an agent, such as the administration of a hub.

use bytes::Bytes;
use http::{Request, Response};
use nuncio_protocol::{Error, ErrorKind, Result};
use url::Url;

use super::Egress;

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
}
