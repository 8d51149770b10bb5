//! The OpenAPI 3.1 document, generated from the table that serves the API.

use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    api::ErrorBody,
    endpoint::{Endpoint, Schemas},
};

/// Describes these endpoints.
pub(super) fn document(endpoints: &[Endpoint]) -> Value {
    // One generator for requests and answers: only within one are types of the same name distinguished.
    let mut generator = generator();
    let refusal = generator.subschema_for::<ErrorBody>();
    let mut paths = Map::new();
    for endpoint in endpoints {
        let methods = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        methods[endpoint.method.as_str().to_lowercase()] = operation(endpoint, &mut generator, &refusal);
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Administration of a Nuncio hub",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "For the operator of the hub. The token is in the file that the hub names when it starts.",
        },
        "servers": [{ "url": "/api/v1" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
        .into_generator()
}

fn operation(endpoint: &Endpoint, generator: &mut SchemaGenerator, refusal: &Schema) -> Value {
    let Schemas { query, body, answer } = endpoint.schemas;
    let mut parameters: Vec<Value> =
        named(endpoint.path).map(|name| parameter("path", name, &json!({ "type": "string" }))).collect();
    if let Some(query) = query {
        parameters.extend(queried(&query(&mut inline())));
    }
    if endpoint.versioned {
        let seen = json!({ "type": "string", "description": "The ETag of the version to change; any version by default." });
        parameters.push(json!({ "in": "header", "name": "If-Match", "required": false, "schema": seen }));
    }
    let done = match answer {
        Some(item) if endpoint.is_stream => json!({
            "description": "Server-sent events; the data of each is one document.",
            "content": { "text/event-stream": { "schema": item(generator) } },
        }),
        Some(answer) => json!({ "description": "Done.", "content": content(&answer(generator)) }),
        None => json!({ "description": "Done, without a body." }),
    };
    let mut operation = json!({
        "operationId": endpoint.id,
        "summary": endpoint.summary,
        "tags": [endpoint.id.split('.').next()],
        "parameters": parameters,
        "responses": {
            endpoint.status.as_str(): done,
            "default": { "description": "The request was refused; the body has the reason.", "content": content(refusal) },
        },
    });
    if let Some(body) = body {
        operation["requestBody"] = json!({ "required": true, "content": content(&body(generator)) });
    }
    operation
}

/// A generator without references: queries are flat.
fn inline() -> SchemaGenerator {
    SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true).into_generator()
}

fn named(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
}

fn queried(schema: &Schema) -> Vec<Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(|(name, schema)| parameter("query", name, schema)).collect()
}

fn parameter(place: &str, name: &str, schema: &Value) -> Value {
    json!({ "in": place, "name": name, "required": place == "path", "schema": schema })
}

fn content(schema: &Schema) -> Value {
    json!({ "application/json": { "schema": schema } })
}
