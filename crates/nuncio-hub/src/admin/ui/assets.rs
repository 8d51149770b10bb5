//! The stylesheet and the script, in the binary.

use axum::response::{IntoResponse as _, Response};
use http::header;

/// A file in the binary. Its address has the hash of its content, so that browsers keep it for ever.
pub(super) struct Asset {
    pub(super) address: String,
    kind: &'static str,
    bytes: &'static [u8],
}

impl Asset {
    pub(super) fn style() -> Self {
        Self::new("nuncio.css", "text/css; charset=utf-8", include_bytes!("../../../templates/ui/nuncio.css"))
    }

    pub(super) fn script() -> Self {
        Self::new(
            "nuncio.js",
            "text/javascript; charset=utf-8",
            include_bytes!("../../../templates/ui/nuncio.js"),
        )
    }

    pub(super) fn icon() -> Self {
        Self::new("icon.svg", "image/svg+xml", include_bytes!("../../../templates/ui/icon.svg"))
    }

    fn new(name: &str, kind: &'static str, bytes: &'static [u8]) -> Self {
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
        let hash: String = hash.as_ref().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Self { address: format!("{}/assets/{name}?{hash}", super::BASE), kind, bytes }
    }

    pub(super) fn serve(&self) -> Response {
        let headers = [
            (header::CONTENT_TYPE, self.kind),
            (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        ];
        (headers, self.bytes).into_response()
    }
}
