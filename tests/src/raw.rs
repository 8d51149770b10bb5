//! Plain HTTP, for what our own client would never send.

use reqwest::{
    Client,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use serde_json::Value;

use crate::within;

/// An HTTP client without manners.
#[derive(Clone, Debug)]
pub struct Raw {
    client: Client,
    url: String,
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The body as JSON; `null` if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The data of each server-sent event.
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data:"));
        data.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }

    /// A header as text; empty if it is absent.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl Raw {
    /// For this address.
    ///
    /// # Panics
    /// When the HTTP library refuses our settings.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        let client =
            Client::builder().no_proxy().redirect(Policy::none()).build().expect("the settings are good");
        Self { client, url: url.into() }
    }

    /// The same client for what is below its address.
    #[must_use]
    pub fn below(&self, path: &str) -> Self {
        Self { client: self.client.clone(), url: format!("{}{path}", self.url) }
    }

    /// Gets what is at a path.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let request = self.client.get(format!("{}{path}", self.url)).headers(map(headers));
        answer(request).await
    }

    /// Sends exactly this to a path: no content type but that of the headers.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn ask(
        &self,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Answer {
        let verb = verb.parse().expect("a verb");
        let request = self.client.request(verb, format!("{}{path}", self.url)).headers(map(headers));
        answer(request.body(body.into())).await
    }

    /// The same over a line that may be cut: `None` without a whole answer.
    ///
    /// # Panics
    /// When neither an answer comes nor its loss.
    pub async fn try_ask(
        &self,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Option<Answer> {
        let verb = verb.parse().expect("a verb");
        let request = self.client.request(verb, format!("{}{path}", self.url)).headers(map(headers));
        let response = within("an answer or its loss", request.body(body.into()).send()).await.ok()?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = within("the body or its loss", response.bytes()).await.ok()?;
        Some(Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Posts a body; JSON, unless the headers say otherwise.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn post(&self, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Answer {
        answer(self.posting(headers, body)).await
    }

    /// The same, before it is sent.
    pub fn posting(&self, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> reqwest::RequestBuilder {
        let mut all = map(headers);
        all.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        self.client.post(&self.url).headers(all).body(body.into())
    }
}

fn map(headers: &[(&str, &str)]) -> HeaderMap {
    let parsed = headers.iter().map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name of a header");
        (name, HeaderValue::from_str(value).expect("a value of a header"))
    });
    parsed.collect()
}

async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = within("the answer", request.send()).await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = within("the body", response.bytes()).await.unwrap();
    Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() }
}
