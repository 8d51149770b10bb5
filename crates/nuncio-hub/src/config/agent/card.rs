//! Keys for the card of an agent: skills, provider, extensions.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use url::Url;

use crate::config::form::{Form, HttpUrl};

/// A skill on the card of an agent.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    /// Unique among the skills of the agent.
    #[schemars(example = &"invoices")]
    pub id: String,
    /// For people.
    #[schemars(example = "Find invoices")]
    pub name: String,
    /// For people, and for programs that look for an agent.
    #[schemars(example = "Finds invoices by customer, number or date")]
    pub description: String,
    /// Words by which it is found in the directory, besides those of the agent.
    #[serde(default)]
    #[schemars(example = ["invoices"])]
    pub tags: Vec<String>,
    /// Example messages.
    #[serde(default)]
    #[schemars(example = ["Show the open invoices of ACME"])]
    pub examples: Vec<String>,
    /// Media types that it accepts; by default those of the agent.
    #[serde(default)]
    #[schemars(example = ["text/plain", "application/json"])]
    pub input_modes: Vec<String>,
    /// Media types that it produces; by default those of the agent.
    #[serde(default)]
    #[schemars(example = ["application/json"])]
    pub output_modes: Vec<String>,
    /// The JSON Schema of its data, on the card below the extension https://nuncio.dev/a2a/skill-schemas/v1.
    #[serde(default)]
    #[schemars(example = json!({ "type": "object", "required": ["customer"] }))]
    pub input_schema: Map<String, Json>,
}

/// The organization that runs an agent.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// Its name.
    #[schemars(example = &"ACME")]
    pub organization: String,
    /// Its web site.
    #[serde(with = "HttpUrl")]
    #[schemars(example = "https://acme.example/")]
    pub url: Url,
}

/// An extension of the protocol on the card of an agent.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Extension {
    /// Names it, version included.
    #[schemars(example = "https://acme.example/a2a/currency/v1")]
    pub uri: String,
    /// For people.
    #[serde(default)]
    #[schemars(example = "Amounts are in this currency")]
    pub description: String,
    /// Callers must declare it. Calls without it are refused where the hub keeps the tasks.
    #[serde(default)]
    pub required: bool,
    /// Settings that the extension defines.
    #[serde(default)]
    #[schemars(example = json!({ "currency": "EUR" }))]
    pub params: Map<String, Json>,
}
