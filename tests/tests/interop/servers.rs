//! Our client against their servers.

use nuncio_client::Client;
use nuncio_protocol::{Binding, FileBytes, Version};
use nuncio_tests::{
    between::{Between, upstream},
    peer::Peer,
};

use crate::{
    checks::all_checks,
    quirks::Quirk::{
        self, CancelsTwice, FinishedIsInvalid, NoCreate, NoDelete, NoFileNames, NoList, NoNull, RawFiles,
        VagueErrors,
    },
    sdk::{
        GO_1, GO_03, JAVASCRIPT_1, JAVASCRIPT_03, PYTHON_1, PYTHON_03, RUST_1, Sdk,
        Way::{self, Direct},
        durable, proxy,
    },
};

/// A server, the wire that our client uses, and the way to the server: the wire behind a hub is that of the hub.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) sdk: Sdk,
    pub(crate) version: Version,
    pub(crate) binding: Binding,
    pub(crate) way: Way,
    /// True for a server of 1.0 that answers 0.3 as well.
    beside: bool,
    pub(crate) quirks: &'static [Quirk],
}

impl Row {
    /// The wire of the server: the one that the hub speaks to it, or our client without a hub.
    pub(crate) const fn wire(&self) -> (Version, Binding) {
        match self.way {
            Direct => (self.version, self.binding),
            Way::Through(relation) => (relation.version, relation.binding),
        }
    }
}

async fn check(row: &Row) {
    let (version, binding) = row.wire();
    let args = if row.beside { &["--v03"] } else { row.sdk.args(version) };
    let files = if row.quirks.contains(&RawFiles) { FileBytes::Raw } else { FileBytes::default() };
    let peer = Peer::start(&row.sdk.server(), args).await;
    match row.way {
        Direct => {
            let builder = Client::builder().version(version).binding(binding).file_bytes(files);
            let client = builder.connect(&peer.url).await.unwrap();
            let used = &client.candidates()[0];
            assert_eq!((used.version, used.binding), (version, binding));
            all_checks(&client, row.quirks).await;
        }
        Way::Through(relation) => {
            let mut agent = upstream(&peer.url, relation);
            agent.file_bytes = files;
            let hub = Between::before(agent, true).await;
            let client = hub.client(row.binding, row.version, Some("alice")).await;
            all_checks(&client, row.quirks).await;
        }
    }
}

macro_rules! servers {
    ($($name:ident: $sdk:ident $version:ident $binding:ident, $way:expr, $beside:literal, $quirks:expr;)+) => {
        /// All rows of the table, each with its test below.
        pub(crate) const ROWS: &[Row] = {
            use Binding::{Grpc, HttpJson, JsonRpc};
            use Version::{V0_3, V1_0};
            &[$(Row {
                sdk: $sdk,
                version: $version,
                binding: $binding,
                way: $way,
                beside: $beside,
                quirks: $quirks,
            }),+]
        };

        #[derive(Clone, Copy)]
        #[expect(non_camel_case_types, reason = "the names of the tests")]
        enum Index { $($name),+ }

        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                check(&ROWS[Index::$name as usize]).await;
            }
        )+
    };
}

// The wire of a row is that of our client. Through a durable hub all that is the hub's own is as usual: webhooks, a
// second cancel, messages to finished tasks. Go and Rust peers are cheap to start, so that they are met on every wire in
// every way; of the others some are.
servers! {
    python_1_0_json_rpc: PYTHON_1 V1_0 JsonRpc, Direct, false, &[];
    python_1_0_rest: PYTHON_1 V1_0 HttpJson, Direct, false, &[];
    python_1_0_grpc: PYTHON_1 V1_0 Grpc, Direct, false, &[];
    python_1_0_json_rpc_durable: PYTHON_1 V0_3 Grpc, durable(V1_0, JsonRpc), false, &[];
    python_1_0_grpc_proxy: PYTHON_1 V1_0 HttpJson, proxy(V1_0, Grpc), false, &[];
    python_1_0_beside_0_3_json_rpc: PYTHON_1 V1_0 JsonRpc, Direct, true, &[];
    python_1_0_beside_0_3_rest: PYTHON_1 V1_0 HttpJson, Direct, true, &[];
    python_1_0_beside_0_3_grpc: PYTHON_1 V1_0 Grpc, Direct, true, &[];
    python_1_0_speaking_0_3_json_rpc: PYTHON_1 V0_3 JsonRpc, Direct, false, &[];
    python_1_0_speaking_0_3_rest: PYTHON_1 V0_3 HttpJson, Direct, false, &[NoDelete];
    python_1_0_speaking_0_3_grpc: PYTHON_1 V0_3 Grpc, Direct, false, &[];
    python_1_0_speaking_0_3_json_rpc_durable: PYTHON_1 V1_0 HttpJson, durable(V0_3, JsonRpc), false, &[];
    python_1_0_speaking_0_3_json_rpc_proxy: PYTHON_1 V0_3 Grpc, proxy(V0_3, JsonRpc), false, &[];
    python_0_3_json_rpc: PYTHON_03 V0_3 JsonRpc, Direct, false, &[];
    python_0_3_rest: PYTHON_03 V0_3 HttpJson, Direct, false, &[NoList, NoDelete];
    python_0_3_grpc: PYTHON_03 V0_3 Grpc, Direct, false, &[NoList, NoDelete];
    python_0_3_json_rpc_durable: PYTHON_03 V1_0 Grpc, durable(V0_3, JsonRpc), false, &[];
    python_0_3_json_rpc_relay: PYTHON_03 V0_3 JsonRpc, proxy(V0_3, JsonRpc), false, &[];
    javascript_1_0_json_rpc: JAVASCRIPT_1 V1_0 JsonRpc, Direct, false, &[CancelsTwice];
    javascript_1_0_rest: JAVASCRIPT_1 V1_0 HttpJson, Direct, false, &[CancelsTwice];
    javascript_1_0_grpc: JAVASCRIPT_1 V1_0 Grpc, Direct, false, &[CancelsTwice];
    javascript_1_0_rest_durable: JAVASCRIPT_1 V0_3 JsonRpc, durable(V1_0, HttpJson), false, &[];
    javascript_1_0_json_rpc_proxy: JAVASCRIPT_1 V1_0 Grpc, proxy(V1_0, JsonRpc), false, &[CancelsTwice];
    javascript_1_0_beside_0_3_json_rpc: JAVASCRIPT_1 V1_0 JsonRpc, Direct, true, &[CancelsTwice];
    javascript_1_0_beside_0_3_rest: JAVASCRIPT_1 V1_0 HttpJson, Direct, true, &[CancelsTwice];
    javascript_1_0_beside_0_3_grpc: JAVASCRIPT_1 V1_0 Grpc, Direct, true, &[CancelsTwice];
    javascript_1_0_speaking_0_3_json_rpc: JAVASCRIPT_1 V0_3 JsonRpc, Direct, false, &[CancelsTwice];
    javascript_1_0_speaking_0_3_rest: JAVASCRIPT_1 V0_3 HttpJson, Direct, false, &[CancelsTwice, NoFileNames, RawFiles, NoCreate];
    javascript_1_0_speaking_0_3_grpc: JAVASCRIPT_1 V0_3 Grpc, Direct, false, &[CancelsTwice, NoFileNames, RawFiles];
    javascript_1_0_speaking_0_3_grpc_durable: JAVASCRIPT_1 V1_0 JsonRpc, durable(V0_3, Grpc), false, &[NoFileNames, RawFiles];
    javascript_1_0_speaking_0_3_json_rpc_proxy: JAVASCRIPT_1 V0_3 HttpJson, proxy(V0_3, JsonRpc), false, &[CancelsTwice];
    javascript_0_3_json_rpc: JAVASCRIPT_03 V0_3 JsonRpc, Direct, false, &[];
    javascript_0_3_rest: JAVASCRIPT_03 V0_3 HttpJson, Direct, false, &[NoFileNames, RawFiles];
    javascript_0_3_grpc: JAVASCRIPT_03 V0_3 Grpc, Direct, false, &[VagueErrors, NoFileNames, RawFiles, NoNull];
    javascript_0_3_rest_durable: JAVASCRIPT_03 V0_3 HttpJson, durable(V0_3, HttpJson), false, &[NoFileNames, RawFiles];
    javascript_0_3_rest_proxy: JAVASCRIPT_03 V0_3 JsonRpc, proxy(V0_3, HttpJson), false, &[NoFileNames, RawFiles];
    go_1_0_json_rpc: GO_1 V1_0 JsonRpc, Direct, false, &[CancelsTwice, FinishedIsInvalid];
    go_1_0_beside_0_3_json_rpc: GO_1 V1_0 JsonRpc, Direct, true, &[CancelsTwice, FinishedIsInvalid];
    go_1_0_json_rpc_durable: GO_1 V0_3 Grpc, durable(V1_0, JsonRpc), false, &[];
    go_1_0_json_rpc_relay: GO_1 V1_0 JsonRpc, proxy(V1_0, JsonRpc), false, &[CancelsTwice, FinishedIsInvalid];
    go_1_0_json_rpc_proxy: GO_1 V1_0 Grpc, proxy(V1_0, JsonRpc), false, &[CancelsTwice, FinishedIsInvalid];
    go_1_0_rest: GO_1 V1_0 HttpJson, Direct, false, &[CancelsTwice, FinishedIsInvalid];
    go_1_0_beside_0_3_rest: GO_1 V1_0 HttpJson, Direct, true, &[CancelsTwice, FinishedIsInvalid];
    go_1_0_rest_durable: GO_1 V0_3 JsonRpc, durable(V1_0, HttpJson), false, &[];
    go_1_0_rest_relay: GO_1 V1_0 HttpJson, proxy(V1_0, HttpJson), false, &[CancelsTwice, FinishedIsInvalid];
    go_1_0_rest_proxy: GO_1 V1_0 JsonRpc, proxy(V1_0, HttpJson), false, &[CancelsTwice, FinishedIsInvalid];
    go_1_0_grpc: GO_1 V1_0 Grpc, Direct, false, &[CancelsTwice, FinishedIsInvalid];
    go_1_0_beside_0_3_grpc: GO_1 V1_0 Grpc, Direct, true, &[CancelsTwice, FinishedIsInvalid];
    go_1_0_grpc_durable: GO_1 V0_3 HttpJson, durable(V1_0, Grpc), false, &[];
    go_1_0_grpc_relay: GO_1 V1_0 Grpc, proxy(V1_0, Grpc), false, &[CancelsTwice, FinishedIsInvalid];
    go_1_0_grpc_proxy: GO_1 V1_0 HttpJson, proxy(V1_0, Grpc), false, &[CancelsTwice, FinishedIsInvalid];
    go_1_0_speaking_0_3_json_rpc: GO_1 V0_3 JsonRpc, Direct, false, &[CancelsTwice];
    go_1_0_speaking_0_3_json_rpc_durable: GO_1 V1_0 HttpJson, durable(V0_3, JsonRpc), false, &[];
    go_1_0_speaking_0_3_json_rpc_relay: GO_1 V0_3 JsonRpc, proxy(V0_3, JsonRpc), false, &[CancelsTwice];
    go_1_0_speaking_0_3_json_rpc_proxy: GO_1 V0_3 HttpJson, proxy(V0_3, JsonRpc), false, &[CancelsTwice];
    go_1_0_speaking_0_3_rest: GO_1 V0_3 HttpJson, Direct, false, &[CancelsTwice];
    go_1_0_speaking_0_3_rest_durable: GO_1 V1_0 Grpc, durable(V0_3, HttpJson), false, &[];
    go_1_0_speaking_0_3_rest_relay: GO_1 V0_3 HttpJson, proxy(V0_3, HttpJson), false, &[CancelsTwice];
    go_1_0_speaking_0_3_rest_proxy: GO_1 V0_3 Grpc, proxy(V0_3, HttpJson), false, &[CancelsTwice];
    go_1_0_speaking_0_3_grpc: GO_1 V0_3 Grpc, Direct, false, &[CancelsTwice];
    go_1_0_speaking_0_3_grpc_durable: GO_1 V1_0 JsonRpc, durable(V0_3, Grpc), false, &[];
    go_1_0_speaking_0_3_grpc_relay: GO_1 V0_3 Grpc, proxy(V0_3, Grpc), false, &[CancelsTwice];
    go_1_0_speaking_0_3_grpc_proxy: GO_1 V0_3 JsonRpc, proxy(V0_3, Grpc), false, &[CancelsTwice];
    go_0_3_json_rpc: GO_03 V0_3 JsonRpc, Direct, false, &[CancelsTwice];
    go_0_3_json_rpc_durable: GO_03 V1_0 Grpc, durable(V0_3, JsonRpc), false, &[];
    go_0_3_json_rpc_relay: GO_03 V0_3 JsonRpc, proxy(V0_3, JsonRpc), false, &[CancelsTwice];
    go_0_3_json_rpc_proxy: GO_03 V0_3 Grpc, proxy(V0_3, JsonRpc), false, &[CancelsTwice];
    go_0_3_grpc: GO_03 V0_3 Grpc, Direct, false, &[CancelsTwice];
    go_0_3_grpc_durable: GO_03 V1_0 HttpJson, durable(V0_3, Grpc), false, &[];
    go_0_3_grpc_relay: GO_03 V0_3 Grpc, proxy(V0_3, Grpc), false, &[CancelsTwice];
    go_0_3_grpc_proxy: GO_03 V0_3 HttpJson, proxy(V0_3, Grpc), false, &[CancelsTwice];
    rust_1_0_json_rpc: RUST_1 V1_0 JsonRpc, Direct, false, &[CancelsTwice];
    rust_1_0_json_rpc_durable: RUST_1 V0_3 HttpJson, durable(V1_0, JsonRpc), false, &[];
    rust_1_0_json_rpc_relay: RUST_1 V1_0 JsonRpc, proxy(V1_0, JsonRpc), false, &[CancelsTwice];
    rust_1_0_json_rpc_proxy: RUST_1 V1_0 HttpJson, proxy(V1_0, JsonRpc), false, &[CancelsTwice];
    rust_1_0_rest: RUST_1 V1_0 HttpJson, Direct, false, &[CancelsTwice];
    rust_1_0_rest_durable: RUST_1 V0_3 Grpc, durable(V1_0, HttpJson), false, &[];
    rust_1_0_rest_relay: RUST_1 V1_0 HttpJson, proxy(V1_0, HttpJson), false, &[CancelsTwice];
    rust_1_0_rest_proxy: RUST_1 V1_0 Grpc, proxy(V1_0, HttpJson), false, &[CancelsTwice];
    rust_1_0_grpc: RUST_1 V1_0 Grpc, Direct, false, &[CancelsTwice];
    rust_1_0_grpc_durable: RUST_1 V0_3 JsonRpc, durable(V1_0, Grpc), false, &[];
    rust_1_0_grpc_relay: RUST_1 V1_0 Grpc, proxy(V1_0, Grpc), false, &[CancelsTwice];
    rust_1_0_grpc_proxy: RUST_1 V1_0 JsonRpc, proxy(V1_0, Grpc), false, &[CancelsTwice];
}

/// Without a wish we take the first interface of the card that we speak (REQ-179).
#[tokio::test(flavor = "multi_thread")]
async fn the_newest_version_is_taken_without_asking() {
    for (sdk, args, version) in [
        (JAVASCRIPT_1, &["--v03"][..], Version::V1_0),
        (JAVASCRIPT_03, &[], Version::V0_3),
        (GO_1, &["--v03"], Version::V1_0),
        (GO_03, &[], Version::V0_3),
    ] {
        let peer = Peer::start(&sdk.server(), args).await;
        assert_eq!(Client::connect(&peer.url).await.unwrap().version(), version, "{sdk:?}");
    }
}
