//! Query strings, read as the types of the API.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::problem::AdminProblem;

/// Reads a query. Unknown parameters are refused: an ignored filter would show too much.
pub(super) fn read<Q: DeserializeOwned + JsonSchema>(query: &str) -> Result<Q, AdminProblem> {
    let schema = document::<Q>();
    let mut given = Map::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let Some(known) = schema["properties"].get(&*name) else {
            return Err(AdminProblem::invalid(format!("{name}: unknown parameter; {}", there_are(&schema))));
        };
        let value = value_of(known, &name, &value)?;
        // Each alone, so that the error names its parameter.
        serde_json::from_value::<Q>(json!({ &*name: value }))
            .map_err(|error| AdminProblem::invalid(format!("{name}: {error}")))?;
        if given.insert(name.to_string(), value).is_some() {
            return Err(AdminProblem::invalid(format!("{name}: given twice; give it once")));
        }
    }
    let given = if schema["properties"].is_object() { Value::Object(given) } else { Value::Null };
    serde_json::from_value(given).map_err(|error| AdminProblem::invalid(error.to_string()))
}

/// The schema of a query, without references.
fn document<Q: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Q>().to_value()
}

fn there_are(schema: &Value) -> String {
    let names: Vec<&str> =
        schema["properties"].as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
    match &names[..] {
        [] => "there are none here".to_owned(),
        [only] => format!("there is only {only}"),
        [others @ .., last] => format!("there are {} and {last}", others.join(", ")),
    }
}

/// The value that a text stands for, by the schema of its parameter.
fn value_of(known: &Value, name: &str, text: &str) -> Result<Value, AdminProblem> {
    let is = |kind: &str| {
        known["type"] == kind
            || known["type"].as_array().is_some_and(|kinds| kinds.iter().any(|one| one == kind))
    };
    if is("boolean") {
        return text
            .parse::<bool>()
            .map(Value::from)
            .map_err(|_| AdminProblem::invalid(format!("{name}: expected true or false")));
    }
    if !is("integer") {
        return Ok(text.into());
    }
    let bound = |bound: &str, default| known[bound].as_u64().unwrap_or(default);
    let (least, most) = (bound("minimum", 0), bound("maximum", u64::MAX));
    let number = text.parse::<u64>().ok().filter(|number| (least..=most).contains(number));
    number
        .map(Value::from)
        .ok_or_else(|| AdminProblem::invalid(format!("{name}: expected a number from {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Wanted {
        agent: Option<String>,
        state: Option<State>,
        content: Option<bool>,
        #[schemars(range(min = 1, max = 1000))]
        limit: Option<usize>,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum State {
        Pending,
        Dead,
    }

    #[test]
    fn what_is_asked_for() {
        let all = Wanted {
            agent: Some("a b".to_owned()),
            state: Some(State::Dead),
            content: Some(true),
            limit: Some(7),
        };
        assert_eq!(read::<Wanted>("agent=a%20b&state=dead&content=true&limit=7").unwrap(), all);
        assert_eq!(read::<Wanted>("").unwrap(), Wanted::default());
        read::<()>("").unwrap();
        for (query, expected) in [
            ("state=gone", "state: unknown variant `gone`, expected `pending` or `dead`"),
            ("limit=0", "limit: expected a number from 1 to 1000"),
            ("limit=1001", "limit: expected a number from 1 to 1000"),
            ("limit=x", "limit: expected a number"),
            ("content=yes", "content: expected true or false"),
            ("agent=a&agent=b", "agent: given twice"),
            ("agnet=a", "agnet: unknown parameter; there are agent, "),
        ] {
            let problem = format!("{:?}", read::<Wanted>(query).unwrap_err());
            assert!(problem.contains(expected), "{query}: {problem}");
        }
        let problem = format!("{:?}", read::<()>("a=b").unwrap_err());
        assert!(problem.contains("a: unknown parameter; there are none here"), "{problem}");
    }
}
