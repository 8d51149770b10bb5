//! The canonical text of a JSON value (RFC 8785) and of an agent card (spec 8.4.1), over which signatures
//! are made.

use serde_json::Value;

use crate::{
    AgentCard, Error, ErrorKind, Result,
    json::{decode, join},
};

/// Larger integers are not all exact as doubles, and RFC 8785 writes doubles.
const MAX_INTEGER: u64 = 1 << 53;

/// A value in canonical form: sorted members, no white space, numbers in the ECMAScript format.
///
/// # Errors
/// `InvalidParams` with the path of an integer beyond ±2^53, which has no exact form.
pub fn canonical_json(value: &Value) -> Result<Vec<u8>> {
    if let Some((path, integer)) = inexact(value) {
        let why = format!("{integer} is beyond 2^53 and has no canonical form; write it as a string");
        return Err(Error::invalid_field(path, why));
    }
    serde_json_canonicalizer::to_vec(value).map_err(Error::internal)
}

/// The v1.0 members of a card without its signatures, in canonical form. Unset members are left out, except
/// REQUIRED ones; members that v1.0 does not know are left out as well.
///
/// # Errors
/// `InvalidParams` if it is not a card, or contains an integer without an exact form.
pub fn canonical_card(card: &Value) -> Result<Vec<u8>> {
    // Decoding and encoding our own type applies the presence rules.
    let mut card: AgentCard = decode(ErrorKind::InvalidParams, &card.to_string())?;
    card.signatures.clear();
    canonical_json(&serde_json::to_value(&card).map_err(Error::internal)?)
}

/// The first integer that is not exact as a double, and its path.
fn inexact(value: &Value) -> Option<(String, String)> {
    match value {
        Value::Number(number) => {
            let size = number.as_i64().map(i64::unsigned_abs).or_else(|| number.as_u64())?;
            (size > MAX_INTEGER).then(|| (String::new(), number.to_string()))
        }
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
            let (path, integer) = inexact(item)?;
            Some((join(&format!("[{index}]"), &path), integer))
        }),
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            let (path, integer) = inexact(member)?;
            Some((join(name, &path), integer))
        }),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn canonical(json: &str) -> String {
        let value: Value = serde_json::from_str(json).unwrap();
        String::from_utf8(canonical_json(&value).unwrap()).unwrap()
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 8785, 3.2.2 to 3.2.4
        assert_eq!(
            canonical(
                r#"{
                    "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
                    "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
                    "literals": [null, true, false]
                }"#
            ),
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#
        );
        // 3.2.3: sorted by UTF-16 code units, not by code points
        assert_eq!(
            canonical(
                r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
                    "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control",
                    "\u00f6":"Latin Small Letter O With Diaeresis"}"#
            ),
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\
             \"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\
             \"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}"
        );
    }

    #[test]
    fn numbers_of_the_rfc() {
        // RFC 8785, appendix B
        for (input, output) in [
            ("-0.0", "0"),
            ("5e-324", "5e-324"),
            ("-5e-324", "-5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("9007199254740992", "9007199254740992"),
            ("-9007199254740992", "-9007199254740992"),
            ("295147905179352830000.0", "295147905179352830000"),
            ("9.999999999999997e22", "9.999999999999997e+22"),
            ("1e21", "1e+21"),
            ("9.999999999999997e-7", "9.999999999999997e-7"),
            ("0.000001", "0.000001"),
            ("333333333.3333332", "333333333.3333332"),
            ("0.0000033333333333333333", "0.0000033333333333333333"),
        ] {
            assert_eq!(canonical(input), output, "{input}");
        }
    }

    #[test]
    fn integers_without_an_exact_form_are_named() {
        let value = json!({"a": [{"b": 1}, {"c": 9_007_199_254_740_993_u64}]});
        let error = canonical_json(&value).unwrap_err();
        assert!(error.message().contains("a[1].c: 9007199254740993 is beyond 2^53"), "{error}");
        assert!(canonical_json(&json!(-9_007_199_254_740_993_i64)).is_err());
        assert!(canonical_json(&json!(u64::MAX)).is_err());
        assert!(canonical_json(&json!(i64::MIN)).is_err());
    }

    #[test]
    fn presence_rules_of_a_card() {
        // Spec 8.4.1, its example with the REQUIRED members that it leaves to the reader: `description`,
        // `skills` and the two explicit `false` stay, the empty `extensions` go.
        let card = json!({
            "name": "Example Agent",
            "description": "",
            "capabilities": { "streaming": false, "pushNotifications": false, "extensions": [] },
            "skills": [],
            "signatures": [{ "protected": "x", "signature": "y" }],
        });
        assert_eq!(
            String::from_utf8(canonical_card(&card).unwrap()).unwrap(),
            r#"{"capabilities":{"pushNotifications":false,"streaming":false},"defaultInputModes":[],"defaultOutputModes":[],"description":"","name":"Example Agent","skills":[],"supportedInterfaces":[],"version":""}"#
        );
    }

    #[test]
    fn what_v1_does_not_know_does_not_count() {
        let plain = json!({
            "name": "n", "description": "d", "version": "1", "skills": [],
            "capabilities": { "extensions": [{ "uri": "https://e.example/1", "params": { "empty": "", "n": 1.0 } }] },
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "supportedInterfaces": [{ "url": "https://a.example", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
        });
        let mut union = plain.clone();
        union["url"] = json!("https://a.example");
        union["protocolVersion"] = json!("0.3.0");
        union["supportedInterfaces"][0]["tenant"] = json!("");
        union["capabilities"]["extensions"][0]["required"] = json!(false);
        assert_eq!(canonical_card(&union).unwrap(), canonical_card(&plain).unwrap());
        let text = String::from_utf8(canonical_card(&plain).unwrap()).unwrap();
        assert!(
            text.contains(r#""params":{"empty":"","n":1}"#),
            "defaults inside of a Struct are data: {text}"
        );
    }
}
