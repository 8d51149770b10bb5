//! The matrix once more, through a hub: its callers speak one binding and version, its agent another, and the tasks
//! are the hub's or the agent's own. What callers see is what the bare runtime shows, but for what `nature` lists.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../matrix/scenarios.rs"]
#[macro_use]
mod scenarios;

#[path = "../matrix/lists.rs"]
#[expect(dead_code, reason = "one of them is not about a scenario")]
mod lists;
#[path = "../matrix/messages.rs"]
#[expect(dead_code, reason = "one of them is not about a scenario")]
mod messages;
#[path = "../matrix/refusals.rs"]
mod refusals;
#[path = "../matrix/streams.rs"]
mod streams;

mod grpc_frames;
mod instead;
mod nature;
mod notified;

use nuncio_tests::{transcript::Transcript, within, world::Way};

/// Plays a scenario on the bare runtime and on this way, and compares. Where it differs by nature, what is known to
/// happen there is played in place of it, and holds in full.
fn check(way: Way, name: &str, scenario: impl AsyncFn(Way) -> Transcript) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(within("the end of the scenario", async {
        if let Some(instead) = nature::instead_of(name, way) {
            return instead(way).await;
        }
        let expected = scenario(Way::BARE).await;
        let difference = scenario(way).await.difference(&expected, |object| nature::forget(way, object));
        assert_eq!(difference, None);
    }));
}

/// Instantiates scenarios over modes, the wires of callers and the wires of the agent.
macro_rules! matrix {
    // Webhooks are told by the hub, and have scenarios of their own in `notified`.
    (
        run $common:tt over_json $json:tt since_1_0 $newer:tt
        webhooks $webhooks:tt webhooks_since_1_0 $newer_webhooks:tt
    ) => {
        matrix!(@mode durable = Durable; [$common $json $newer]);
        matrix!(@mode proxy = Proxy; [$common $json $newer]);
    };
    (@mode $name:ident = $mode:ident; $scenarios:tt) => {
        mod $name {
            use nuncio_hub::config::Mode;
            use nuncio_protocol::{Binding, Version};
            use nuncio_tests::world::Way;
            const MODE: Mode = Mode::$mode;
            matrix!(@caller jsonrpc_1_0 = (JsonRpc, V1_0); $scenarios);
            matrix!(@caller rest_1_0 = (HttpJson, V1_0); $scenarios);
            matrix!(@caller grpc_1_0 = (Grpc, V1_0); $scenarios);
            matrix!(@caller jsonrpc_0_3 = (JsonRpc, V0_3); $scenarios);
            matrix!(@caller rest_0_3 = (HttpJson, V0_3); $scenarios);
            matrix!(@caller grpc_0_3 = (Grpc, V0_3); $scenarios);
        }
    };
    (@caller $name:ident = ($binding:ident, $version:ident); $scenarios:tt) => {
        mod $name {
            use super::{Binding, MODE, Version, Way};
            const CALLER: (Binding, Version) = (Binding::$binding, Version::$version);
            matrix!(@agent to_jsonrpc_1_0 = (JsonRpc, V1_0); $scenarios);
            matrix!(@agent to_rest_1_0 = (HttpJson, V1_0); $scenarios);
            matrix!(@agent to_grpc_1_0 = (Grpc, V1_0); $scenarios);
            matrix!(@agent to_jsonrpc_0_3 = (JsonRpc, V0_3); $scenarios);
            matrix!(@agent to_rest_0_3 = (HttpJson, V0_3); $scenarios);
            matrix!(@agent to_grpc_0_3 = (Grpc, V0_3); $scenarios);
        }
    };
    (@agent $name:ident = ($binding:ident, $version:ident); [$({$($file:ident :: $scenario:ident;)*})*]) => {
        mod $name {
            use super::{Binding, CALLER, MODE, Version, Way};
            const WAY: Way = Way::through(MODE, CALLER, (Binding::$binding, Version::$version));
            $($(
                #[test]
                fn $scenario() {
                    crate::check(WAY, stringify!($scenario), crate::$file::$scenario);
                }
            )*)*
        }
    };
}

scenarios!(matrix);
