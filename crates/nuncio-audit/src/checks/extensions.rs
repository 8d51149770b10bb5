//! Checks of extensions.

use futures_util::FutureExt as _;
use nuncio_protocol::{ErrorKind, op::Op};

use super::{Row, Run};
use crate::{
    observed::{Checked, Observed},
    probe::{Probe, UNKNOWN, on_task, refused_with},
};

pub(super) const CHECKS: &[Row] = &[
    ("extensions.required", Run::Probe(|p| required(p).boxed())),
    ("extensions.unknown", Run::Probe(|p| unknown(p).boxed())),
    ("extensions.echoed", Run::Probe(|p| echoed(p).boxed())),
];

/// An extension that nobody has.
const UNKNOWN_EXTENSION: &str = "https://nuncio.invalid/extensions/audit/v1";

async fn required(p: &Probe<'_>) -> Checked {
    if p.interface.extensions.is_empty() {
        return Ok(Observed::skip());
    }
    let request = p.request(on_task(Op::GetTask, UNKNOWN))?.without(p.interface.extensions_header());
    refused_with(&p.ask(Op::GetTask, request).await?, &[ErrorKind::ExtensionSupportRequired])
}

async fn unknown(p: &Probe<'_>) -> Checked {
    let usual = p.of_unknown(Op::GetTask).await?;
    let listed = p.interface.extensions.iter().map(String::as_str).chain([UNKNOWN_EXTENSION]);
    let listed = listed.collect::<Vec<_>>().join(",");
    let request = p.request(on_task(Op::GetTask, UNKNOWN))?.header(p.interface.extensions_header(), &listed);
    let answer = p.ask(Op::GetTask, request).await?;
    let kind = |answer: &crate::answer::Answer| answer.error().map(|refusal| refusal.kind);
    if kind(&answer) == kind(&usual) {
        return Ok(Observed::met().on(&answer.exchange));
    }
    Err(Observed::broken("a call that lists an unknown extension is answered differently")
        .seen(answer.shown())
        .expecting(usual.shown())
        .on(&answer.exchange))
}

async fn echoed(p: &Probe<'_>) -> Checked {
    let Some(extension) = p.card.capabilities.extensions.first() else { return Ok(Observed::skip()) };
    let header = p.interface.extensions_header();
    let listed = p.interface.extensions.iter().chain([&extension.uri]).cloned().collect::<Vec<_>>().join(",");
    let request = p.request(on_task(Op::GetTask, UNKNOWN))?.header(header, &listed);
    let answer = p.ask(Op::GetTask, request).await?;
    let Ok(response) = &answer.exchange.response else { return Ok(Observed::skip()) };
    let named: Vec<_> = response.header(header).unwrap_or_default().split(',').map(str::trim).collect();
    let is_listed = |uri: &&str| uri.is_empty() || listed.split(',').any(|known| known == *uri);
    Ok(if let Some(other) = named.iter().find(|uri| !is_listed(uri)) {
        Observed::broken(format!("the answer names {other}, which the call did not list"))
    } else if named.contains(&extension.uri.as_str()) {
        Observed::met()
    } else {
        Observed::info(format!(
            "{} is not named: it was not activated by this call, or not told",
            extension.uri
        ))
    }
    .on(&answer.exchange))
}
