//! The document that describes the API (OpenAPI 3.1), made from the table that serves it.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};

use super::{
    answer::Failure,
    route::{Route, Shape},
};

/// A moment, as schemas have it.
pub(super) struct Time;

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// The document of these routes.
pub(super) fn document(routes: &[Route]) -> Value {
    // One for all that goes in and comes out: types of one name are told apart only within one.
    let mut generator = generator();
    let failure = generator.subschema_for::<Failure>();
    let mut paths = Map::new();
    for route in routes {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method.as_str().to_lowercase()] = operation(route, &mut generator, &failure);
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Administration of a Nuncio hub",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "For whoever runs the hub. The token is in the file that the hub names at its start.",
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

fn operation(route: &Route, generator: &mut SchemaGenerator, failure: &Schema) -> Value {
    let Shape { query, body, answer } = route.shape;
    let mut parameters: Vec<Value> =
        named(route.path).map(|name| parameter("path", name, &json!({ "type": "string" }))).collect();
    if let Some(query) = query {
        parameters.extend(queried(&query(&mut inline())));
    }
    if route.versioned {
        let seen = json!({ "type": "string", "description": "The ETag of what is changed, as it was seen." });
        parameters.push(json!({ "in": "header", "name": "If-Match", "required": false, "schema": seen }));
    }
    let done = match answer {
        Some(answer) => json!({ "description": "Done.", "content": content(&answer(generator)) }),
        None => json!({ "description": "Done; there is nothing to say about it." }),
    };
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "tags": [route.id.split('.').next()],
        "parameters": parameters,
        "responses": {
            route.status().as_str(): done,
            "default": { "description": "What is wrong, and what to do.", "content": content(failure) },
        },
    });
    if let Some(body) = body {
        operation["requestBody"] = json!({ "required": true, "content": content(&body(generator)) });
    }
    operation
}

/// Queries are flat.
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
