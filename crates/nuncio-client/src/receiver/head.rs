//! The headers of a notification, except those of proofs.

use http::{HeaderMap, header::CONTENT_TYPE};
use nuncio_protocol::Version;

use super::Rejected;
use crate::{http_headers::media_type, notification};

/// Maximum length of a delivery id, in bytes.
const MAX_ID: usize = 256;

/// The relevant headers of a notification.
pub(super) struct NotificationHead<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) attempt: Option<u32>,
    pub(super) timestamp: Option<i64>,
    pub(super) version: Option<Version>,
}

impl<'a> NotificationHead<'a> {
    pub(super) fn read(headers: &'a HeaderMap) -> Result<Self, Rejected> {
        // A missing type is refused as well: any web page can post that, and text, but not JSON.
        let media_type = media_type(headers);
        if !["application/a2a+json", "application/json"]
            .iter()
            .any(|ours| ours.eq_ignore_ascii_case(media_type))
        {
            let is_absent = !headers.contains_key(CONTENT_TYPE);
            return Err(Rejected::MediaType { is_absent });
        }
        let id = text(headers, notification::ID)?.filter(|id| !id.is_empty());
        if id.is_some_and(|id| id.len() > MAX_ID) {
            return Err(Rejected::Invalid(format!("{} is longer than {MAX_ID} bytes", notification::ID)));
        }
        let version = text(headers, notification::VERSION)?.filter(|version| !version.is_empty());
        let version = version.map(|version| {
            Version::parse(version)
                .ok_or_else(|| Rejected::Invalid("the version is not supported".to_owned()))
        });
        Ok(Self {
            id,
            attempt: number(headers, notification::ATTEMPT)?,
            timestamp: number(headers, notification::TIMESTAMP)?,
            version: version.transpose()?,
        })
    }
}

/// The header as text. A repeated header is refused: readers of the first and of the last value would
/// disagree about the signed value.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Rejected> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Rejected::Invalid(format!("{name} comes twice")));
    }
    value.to_str().map(Some).map_err(|_| Rejected::Invalid(format!("{name} is no text")))
}

fn number<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Result<Option<T>, Rejected> {
    let value = text(headers, name)?.map(|text| text.trim().parse());
    value.transpose().map_err(|_| Rejected::Invalid(format!("{name} is no number")))
}
