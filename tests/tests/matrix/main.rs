//! The matrix: each scenario is written once, and gives the same observations on the bare runtime and over
//! every wire, errors included (invariant 11; REQ-006, REQ-007). That a task has gone down to 0.3 and up
//! again on its way cannot be seen.
//!
//! A scenario runs in a world of its own: an agent that plays scripts, and callers. It asserts what the
//! specification or the product demands, and notes all it sees; what it noted is then compared with what
//! the bare runtime shows with its tasks in memory. If a scenario fails under `bare`, it is not the wire; if
//! it fails under one store only, it is that store.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[macro_use]
mod scenarios;

mod lists;
mod messages;
mod refusals;
mod streams;
mod webhooks;

use nuncio_tests::{transcript::Transcript, world::Way};

async fn check(way: Way, scenario: impl AsyncFn(Way) -> Transcript) {
    let expected = scenario(Way::BARE).await;
    // On the bare runtime this shows that the scenario itself is repeatable.
    let got = scenario(way).await;
    got.assert_same_as(&expected);
}

/// Instantiates scenarios over the stores and the ways to reach an agent. 0.3 lacks an operation, and only that one
/// (REQ-206).
macro_rules! matrix {
    (
        run $common:tt over_json $json:tt since_1_0 $newer:tt
        webhooks $webhooks:tt webhooks_since_1_0 $newer_webhooks:tt
    ) => {
        matrix!(@data memory = Memory; [$common $webhooks] [$json] [$newer $newer_webhooks]);
        matrix!(@data sqlite = Sqlite; [$common $webhooks] [$json] [$newer $newer_webhooks]);
        matrix!(@data postgres = Postgres; [$common $webhooks] [$json] [$newer $newer_webhooks]);
    };
    (@data $name:ident = $data:ident; $common:tt $json:tt $newer:tt) => {
        mod $name {
            use nuncio_protocol::{Binding, Version};
            use nuncio_tests::{
                data::Data,
                world::{By, Way},
            };
            const DATA: Data = Data::$data;
            matrix!(@on bare = Way::BARE; $common $json $newer);
            matrix!(@wire jsonrpc = JsonRpc; $common $json $newer);
            matrix!(@wire rest = HttpJson; $common $json $newer);
            matrix!(@wire grpc = Grpc; $common [] $newer);
        }
    };
    (@wire $name:ident = $binding:ident; $common:tt $json:tt $newer:tt) => {
        mod $name {
            use super::{Binding, By, DATA, Version, Way};
            matrix!(@on v1_0 = Way::wire(Binding::$binding, Version::V1_0, By::Direct); $common $json $newer);
            matrix!(@on client_1_0 = Way::wire(Binding::$binding, Version::V1_0, By::Client); $common $json $newer);
            matrix!(@on v0_3 = Way::wire(Binding::$binding, Version::V0_3, By::Direct); $common $json []);
            matrix!(@on client_0_3 = Way::wire(Binding::$binding, Version::V0_3, By::Client); $common $json []);
        }
    };
    (@on $name:ident = $way:expr; $([$({$($file:ident :: $scenario:ident;)*})*])+) => {
        mod $name {
            #[allow(unused_imports, reason = "the bare way names fewer")]
            use super::{Binding, By, DATA, Version, Way};
            $($($(
                #[tokio::test(flavor = "multi_thread")]
                async fn $scenario() {
                    crate::check($way.on(DATA), crate::$file::$scenario).await;
                }
            )*)*)+
        }
    };
}

scenarios!(matrix);

/// REQ-206: there is no such method in 0.3, and our client does not invent one.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_cannot_be_asked_for_in_0_3() {
    lists::is_refused_in_0_3().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn protobuf_refuses_what_it_cannot_carry() {
    messages::large_integers_are_refused_by_protobuf().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_id_0_3_calls_a_webhook_by_its_task() {
    webhooks::without_an_id_0_3_calls_it_by_its_task().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_webhook_is_told_in_the_version_that_made_it() {
    webhooks::each_webhook_is_told_in_the_version_that_made_it().await;
}
