//! Checks of the agent card.

mod members;
mod signature;
mod text;

use std::{collections::BTreeSet, net::IpAddr};

use nuncio_protocol::{AgentInterface, Binding, Version};
use url::{Host, Url};

use super::{Row, Run};
use crate::{
    audit::Reachability,
    card::FoundCard,
    observed::{Checked, Observed},
    survey::Survey,
};

pub(super) const CHECKS: &[Row] = &[
    ("card.found", Run::Card(found)),
    ("card.required", Run::Card(members::required)),
    ("card.interfaces", Run::Card(members::interfaces)),
    ("card.preference", Run::Agent(preference)),
    ("card.transport", Run::Agent(transport)),
    ("card.conflict", Run::Card(conflict)),
    ("card.modes", Run::Card(members::modes)),
    ("card.cache", Run::Card(cache)),
    ("card.etag", Run::Card(etag)),
    ("card.signature", Run::Card(signature::signature)),
    ("card.signature-type", Run::Card(signature::signature_type)),
    ("card.legacy", Run::Card(legacy)),
    ("card.https", Run::Card(https)),
    ("card.schemes", Run::Card(members::schemes)),
    ("card.skills", Run::Card(members::skills)),
    ("card.text", Run::Card(text::text)),
    ("card.union", Run::Card(union)),
];

fn found(found: &FoundCard) -> Checked {
    if found.is_legacy {
        return Err(Observed::broken("the card is only at the address of versions before 0.3")
            .seen(found.url.path())
            .expecting("/.well-known/agent-card.json")
            .on(&found.exchange));
    }
    Ok(Observed::met().on(&found.exchange))
}

/// The order itself is the agent's own; that the first interface answers can be seen.
fn preference(survey: &Survey<'_>) -> Checked {
    let mut listed = BTreeSet::new();
    for report in survey.reports {
        if !listed.insert((&report.id, &report.tenant)) {
            let why =
                format!("{} {} at {} is listed twice", report.id.binding, report.id.version, report.id.url);
            return Err(Observed::broken(why));
        }
    }
    let is_silent = |reachability| matches!(reachability, Reachability::Silent | Reachability::Wrong);
    let others_answer = survey.reports.iter().any(|report| report.reachability == Reachability::Answers);
    match survey.reports.first() {
        Some(first) if is_silent(first.reachability) && others_answer => {
            let why =
                format!("the first interface, {} {}, does not answer", first.id.binding, first.id.version);
            Err(Observed::broken(why).seen(first.id.url.clone()))
        }
        _ => Ok(Observed::met()),
    }
}

fn transport(survey: &Survey<'_>) -> Checked {
    let card = survey.card;
    if !card.is_v0_3() {
        return Ok(Observed::skip());
    }
    let Some(transport) = card.json["preferredTransport"].as_str() else {
        return Ok(Observed::info(
            "preferredTransport is absent: section 5.6.1 requires it, the schema makes it optional with the default JSONRPC",
        ));
    };
    let is_main = |version: &str, binding: &str, url: &str| {
        version == Version::V0_3.as_str()
            && binding.eq_ignore_ascii_case(transport)
            && card.json["url"] == url
    };
    let main =
        survey.reports.iter().find(|report| is_main(&report.id.version, &report.id.binding, &report.id.url));
    match main.map(|report| report.reachability) {
        Some(Reachability::Wrong | Reachability::Silent) => Err(Observed::broken(format!(
            "{transport} does not answer at {}",
            card.json["url"].as_str().unwrap_or_default()
        ))
        .seen(transport)),
        _ => Ok(Observed::met()),
    }
}

/// Several transports may share a URL; but the list has to have the one that the card prefers there.
fn conflict(found: &FoundCard) -> Checked {
    if !found.is_v0_3() {
        return Ok(Observed::skip());
    }
    let preferred = found.json["preferredTransport"].as_str().unwrap_or(Binding::JsonRpc.as_str());
    let at_main: Vec<_> = found
        .objects("additionalInterfaces")
        .filter(|interface| interface["url"] == found.json["url"])
        .filter_map(|interface| interface["transport"].as_str())
        .collect();
    if at_main.is_empty() || at_main.contains(&preferred) {
        return Ok(Observed::met());
    }
    let why = format!(
        "url has the transport {preferred}, and additionalInterfaces lists it as {}",
        at_main.join(", ")
    );
    Err(Observed::broken(why).seen(at_main.join(", ")).expecting(preferred).on(&found.exchange))
}

fn cache(found: &FoundCard) -> Checked {
    if !found.is_v1_0() {
        return Ok(Observed::skip());
    }
    let header = |name| found.response().and_then(|response| response.header(name)).map(str::to_owned);
    let control = header("cache-control").unwrap_or_default();
    let mut missing = Vec::new();
    if !control.contains("max-age") {
        missing.push("Cache-Control with max-age");
    }
    if header("etag").is_none() {
        missing.push("ETag");
    }
    if missing.is_empty() {
        return Ok(Observed::met().on(&found.exchange));
    }
    Err(Observed::broken(format!("the card has no {}", missing.join(" and no ")))
        .expecting("Cache-Control: max-age=300 and ETag: \"…\"")
        .on(&found.exchange))
}

fn etag(found: &FoundCard) -> Checked {
    if !found.is_v1_0() {
        return Ok(Observed::skip());
    }
    let Some(exchange) = &found.revalidated else { return Ok(Observed::no_setup("the card has no ETag")) };
    let response = exchange.response.as_ref().map_err(Observed::silent)?;
    if response.status == 304 {
        return Ok(Observed::met().on(exchange));
    }
    Err(Observed::broken("a request with the current ETag gets the whole card")
        .seen(format!("HTTP {}", response.status))
        .expecting("HTTP 304")
        .on(exchange))
}

fn legacy(found: &FoundCard) -> Checked {
    if found.is_given || found.is_legacy || !found.has_legacy {
        return Ok(Observed::skip());
    }
    Ok(Observed::info("the card is also at /.well-known/agent.json, where clients before 0.3 look for it"))
}

/// Plain HTTP is a failure on public addresses only: it is usual on the machine of a developer.
fn https(found: &FoundCard) -> Checked {
    let plain = |interface: &&AgentInterface| scheme(interface, &found.url) == "http";
    let listed = found.card.supported_interfaces.iter();
    let plain: Vec<_> = listed.filter(plain).map(|interface| interface.url.as_str()).collect();
    let Some(first) = plain.first() else { return Ok(Observed::met()) };
    let public = plain.iter().find(|url| !is_private(url));
    Ok(match public {
        Some(url) => {
            Observed::broken("an interface at a public address uses plain HTTP").seen(*url).expecting("https")
        }
        None => {
            Observed::info(format!("{first} uses plain HTTP, at a private address: use TLS in production"))
        }
    })
}

fn scheme<'a>(interface: &'a AgentInterface, home: &'a Url) -> &'a str {
    let (scheme, _) = interface.url.split_once("://").unwrap_or((home.scheme(), ""));
    match scheme {
        "grpc" => "http",
        "grpcs" => "https",
        other => other,
    }
}

fn is_private(url: &str) -> bool {
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    match Url::parse(&url).ok().as_ref().and_then(Url::host) {
        Some(Host::Domain(name)) => {
            name == "localhost"
                || !name.contains('.')
                || name.ends_with(".localhost")
                || name.ends_with(".internal")
        }
        Some(Host::Ipv4(address)) => is_private_address(address.into()),
        Some(Host::Ipv6(address)) => is_private_address(address.into()),
        None => false,
    }
}

fn is_private_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

fn union(found: &FoundCard) -> Checked {
    if !found.is_v1_0() || !found.is_v0_3() {
        return Ok(Observed::skip());
    }
    Ok(Observed::info(
        "the card has the members of 1.0 and of 0.3: one reading is that a card has one version, another that clients \
         ignore unknown members, so that one document serves both",
    ))
}
