//! Checks of the signatures of the card.

use nuncio_client::{VerifyError, verify_card};

use crate::{
    card::FoundCard,
    observed::{Checked, Observed},
};

pub(super) fn signature(found: &FoundCard) -> Checked {
    if found.objects("signatures").next().is_none() {
        return Ok(Observed::skip());
    }
    for (number, header) in found.protected().iter().enumerate() {
        if let Some(name) = ["alg", "typ", "kid"].iter().find(|name| !header[**name].is_string()) {
            return Err(Observed::broken(format!(
                "the protected header of signatures[{number}] has no {name}"
            ))
            .seen(header.to_string())
            .expecting("alg, typ and kid")
            .on(&found.exchange));
        }
    }
    let Some(keys) = &found.keys else {
        return Ok(Observed::info(
            "the signatures are complete; without a jku of the agent's own they were not verified",
        ));
    };
    match verify_card(&found.json, keys) {
        Ok(_) => Ok(Observed::met()),
        Err(VerifyError::DoesNotHold(kid)) => {
            Err(Observed::broken(format!("the signature by {kid} does not hold")).on(&found.exchange))
        }
        Err(error) => Ok(Observed::info(error.to_string())),
    }
}

pub(super) fn signature_type(found: &FoundCard) -> Checked {
    let headers = found.protected();
    let Some(other) = headers.iter().find(|header| header["typ"].as_str().is_some_and(|kind| kind != "JOSE"))
    else {
        return Ok(if headers.is_empty() { Observed::skip() } else { Observed::met() });
    };
    Err(Observed::broken("typ of a signature is not JOSE").seen(other["typ"].to_string()).expecting("JOSE"))
}
