//! Checks of the reachability of interfaces. `reach.answers` is made by the survey itself.

use futures_util::FutureExt as _;
use http::Method;
use nuncio_protocol::{ErrorKind, op::Op};

use super::{Row, Run};
use crate::{
    observed::{Checked, Observed},
    probe::Probe,
    wire::{GrpcAnswer, Request, frame},
};

pub(super) const CHECKS: &[Row] = &[
    ("reach.answers", Run::Reach),
    ("reach.tenant", Run::Probe(|p| tenant(p).boxed())),
    ("reach.tls", Run::Probe(|p| tls(p).boxed())),
    ("reach.reflection", Run::Probe(|p| reflection(p).boxed())),
];

/// `list_services` of a `ServerReflectionRequest`.
const LIST_SERVICES: &[u8] = &[0x3a, 0x00];
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

async fn tenant(p: &Probe<'_>) -> Checked {
    let Some(tenant) = &p.interface.tenant else { return Ok(Observed::skip()) };
    let answer = p.of_unknown(Op::GetTask).await?;
    let is_refused = answer
        .error()
        .is_some_and(|refusal| matches!(refusal.kind, ErrorKind::InvalidParams | ErrorKind::MethodNotFound));
    if is_refused {
        let why = format!("a call with the tenant {tenant} of the card is refused");
        return Err(Observed::broken(why).seen(answer.shown()).on(&answer.exchange));
    }
    Ok(Observed::met().on(&answer.exchange))
}

/// Connects with TLS 1.3 alone, and greets with TLS 1.1, which has to be refused.
async fn tls(p: &Probe<'_>) -> Checked {
    if p.interface.url.scheme() != "https" {
        return Ok(Observed::skip());
    }
    let offer = p.session.egress.tls_offer(&p.interface.url, p.session.timeout).await;
    Ok(match offer {
        Err(error) => Observed::no_setup(format!("the versions of TLS cannot be seen: {}", error.message())),
        Ok(offer) if !offer.has_1_3 => Observed::broken("TLS 1.3 is not offered"),
        Ok(offer) if offer.has_1_1 => Observed::broken("TLS 1.1 is accepted"),
        Ok(_) => Observed::met(),
    })
}

async fn reflection(p: &Probe<'_>) -> Checked {
    let mut url = p.interface.url.clone();
    url.set_path(REFLECTION);
    let mut request = Request::new(Method::POST, url)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .with_body(frame(LIST_SERVICES));
    request.http2 = true;
    let exchange = p.session.send(request).await;
    let answer = exchange.response.as_ref().ok().and_then(GrpcAnswer::read);
    Ok(match answer {
        Some(answer) if answer.code == 0 && !answer.messages.is_empty() => {
            Observed::info("the server offers reflection: tools can list its services without a proto file")
        }
        _ => Observed::skip(),
    })
}
