//! `nuncio healthcheck`: exit code 0 or 1, as containers expect.

use std::{net::SocketAddr, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::Request;
use nuncio_client::Egress;
use url::Url;

use super::target::setting;
use crate::{args::Healthcheck, exit, output::Format};

/// The default address of a hub.
const DEFAULT_LISTEN: &str = "127.0.0.1:2602";

pub(super) async fn run(check: Healthcheck, format: Format) -> ExitCode {
    match ask(&check).await {
        Ok(()) => ExitCode::from(exit::OK),
        Err(error) => exit::report_with(&error, exit::OTHER, format),
    }
}

async fn ask(check: &Healthcheck) -> Result<()> {
    let base = match &check.url {
        Some(url) => url.clone(),
        None => local(&setting("NUNCIO_LISTEN").unwrap_or_else(|| DEFAULT_LISTEN.to_owned()))?,
    };
    let url = below(&base, if check.ready { "readyz" } else { "healthz" });
    let egress = Egress::operator()?;
    let asking = egress.fetch(Request::get(url.as_str()).body(Bytes::new())?);
    let Ok(answer) = tokio::time::timeout(check.timeout, asking).await else {
        bail!("{url} did not answer within {} seconds", check.timeout.as_secs_f32());
    };
    let answer = answer?;
    if !answer.status().is_success() {
        let why = String::from_utf8_lossy(answer.body());
        bail!("{url} answers {}: {}", answer.status().as_u16(), why.lines().next().unwrap_or_default());
    }
    Ok(())
}

/// The URL of a listener on this machine.
fn local(listen: &str) -> Result<Url> {
    let mut address: SocketAddr = listen.parse().with_context(|| {
        format!("NUNCIO_LISTEN {listen}: expected an IP address and a port, such as 127.0.0.1:2602")
    })?;
    match address {
        SocketAddr::V4(_) if address.ip().is_unspecified() => address.set_ip([127, 0, 0, 1].into()),
        SocketAddr::V6(_) if address.ip().is_unspecified() => address.set_ip([0, 0, 0, 0, 0, 0, 0, 1].into()),
        _ => {}
    }
    Ok(Url::parse(&format!("http://{address}"))?)
}

fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_listens_everywhere_is_asked_here() {
        for (listen, expected) in [
            ("127.0.0.1:2602", "http://127.0.0.1:2602/healthz"),
            ("0.0.0.0:80", "http://127.0.0.1/healthz"),
            ("[::]:2602", "http://[::1]:2602/healthz"),
            ("192.0.2.1:1", "http://192.0.2.1:1/healthz"),
        ] {
            assert_eq!(below(&local(listen).unwrap(), "healthz").as_str(), expected);
        }
        assert!(local("localhost:2602").is_err());
        let behind = Url::parse("https://hub.example/behind/").unwrap();
        assert_eq!(below(&behind, "readyz").as_str(), "https://hub.example/behind/readyz");
    }
}
