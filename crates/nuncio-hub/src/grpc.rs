//! gRPC on the hub's port: agents by tenant, health, and reflection.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::routing::{MethodRouter, any_service};
use nuncio_protocol::pb::DESCRIPTOR_SET;
use nuncio_server::bind::{BindOptions, Directory, Grpc};
use tonic_health::{ServingStatus, server::HealthReporter};
use tonic_reflection::server::Builder;

/// The gRPC health service of the port.
#[derive(Clone, Debug)]
pub(crate) struct GrpcHealth(HealthReporter);

impl GrpcHealth {
    /// Sets whether the port serves calls.
    pub(crate) async fn set(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in services() {
            self.0.set_service_status(service, status).await;
        }
    }

    /// Ends the streams of watchers.
    pub(crate) async fn close(mut self) {
        for service in services() {
            self.0.clear_service_status(service).await;
        }
    }
}

/// The names with a health status: the port as a whole, and each service.
fn services() -> impl Iterator<Item = &'static str> {
    std::iter::once("").chain(Grpc::services())
}

type Routes = Vec<(String, MethodRouter)>;

/// The gRPC routes: calls to agents, and the protocol's own services (health, reflection), which name no
/// agent.
pub(crate) async fn routes(
    directory: Arc<dyn Directory>,
    options: BindOptions,
) -> Result<(Routes, Routes, GrpcHealth)> {
    let (health, health_server) = tonic_health::server::health_reporter();
    let health = GrpcHealth(health);
    health.set(true).await;
    let reflection = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Tools use either version of reflection.
    let v1 = reflection().build_v1().context("the descriptors are broken")?;
    let v1alpha = reflection().build_v1alpha().context("the descriptors are broken")?;
    let protocol = vec![
        ("/grpc.health.v1.Health/{rpc}".to_owned(), any_service(health_server)),
        ("/grpc.reflection.v1.ServerReflection/{rpc}".to_owned(), any_service(v1)),
        ("/grpc.reflection.v1alpha.ServerReflection/{rpc}".to_owned(), any_service(v1alpha)),
    ];
    Ok((Grpc::shared(directory, options).routes(), protocol, health))
}
