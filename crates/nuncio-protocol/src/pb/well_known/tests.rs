//! The second opinion is the tree of values that prost has for these messages.

use prost_types::{ListValue, value::Kind};
use serde_json::json;

use super::*;

fn tree(json: &serde_json::Value) -> prost_types::Value {
    let kind = match json {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(truth) => Kind::BoolValue(*truth),
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap()),
        serde_json::Value::String(text) => Kind::StringValue(text.clone()),
        serde_json::Value::Array(values) => {
            Kind::ListValue(ListValue { values: values.iter().map(tree).collect() })
        }
        serde_json::Value::Object(members) => Kind::StructValue(prost_types::Struct {
            fields: members.iter().map(|(name, value)| (name.clone(), tree(value))).collect(),
        }),
    };
    prost_types::Value { kind: Some(kind) }
}

fn read(bytes: &[u8]) -> Result<Json, Mismatch> {
    Json::from_pb(Value::decode(bytes).unwrap())
}

#[test]
fn bytes_are_those_of_a_tree_both_ways() {
    for json in [
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(-5),
        json!(1.5),
        json!(-0.0),
        json!(1_u64 << 53),
        json!(1e300),
        json!(""),
        json!("a\"b\\\n\u{0}é😀"),
        json!([]),
        json!({}),
        json!([null, [], {}, [[1]], "x"]),
        json!({ "": 1, "a": { "b": [1, { "c": null }] }, "z\n": "" }),
        json!((0..200).collect::<Vec<_>>()),
        json!({ "long": "x".repeat(20_000), "longer": ["y".repeat(300), "z"] }),
    ] {
        let bytes = tree(&json).encode_to_vec();
        let ours: Value = Json::from(json.clone()).to_pb().unwrap();
        assert_eq!(ours.encode_to_vec(), bytes, "{json}");
        assert_eq!(read(&bytes).unwrap(), json);
        assert_eq!(Value::decode(&*bytes).unwrap().encode_to_vec(), bytes, "read and written again");
        if let Some(members) = json.as_object() {
            let ours: Struct = Metadata::from(members.clone()).to_pb().unwrap();
            let Some(Kind::StructValue(theirs)) = tree(&json).kind else { panic!("a struct") };
            assert_eq!(ours.encode_to_vec(), theirs.encode_to_vec());
            let again = Metadata::from_pb(Struct::decode(&*theirs.encode_to_vec()).unwrap()).unwrap();
            assert_eq!(again.to_json(), json);
        }
    }
}

/// Fields may come in any order, several times, or not at all.
#[test]
fn what_is_merged_is_what_prost_merges() {
    let bytes = |json: serde_json::Value| tree(&json).encode_to_vec();
    let entry = |pieces: &[&[u8]]| {
        let entry = pieces.concat();
        let fields = [&[0x0a, u8::try_from(entry.len()).unwrap()], &*entry].concat();
        [&[0x2a, u8::try_from(fields.len()).unwrap()], &*fields].concat()
    };
    let (key, other): (&[u8], &[u8]) = (b"\x0a\x01k", b"\x0a\x01o");
    let (one, list): (&[u8], &[u8]) = (b"\x12\x02\x20\x01", b"\x12\x06\x32\x04\x0a\x02\x20\x01");
    for (case, expected) in [
        (vec![], "null"),
        ([bytes(json!(1)), bytes(json!("x"))].concat(), r#""x""#),
        ([bytes(json!([1, [2]])), bytes(json!([3]))].concat(), "[1,[2],3]"),
        ([bytes(json!([])), bytes(json!([3]))].concat(), "[3]"),
        ([bytes(json!([1])), bytes(json!(true)), bytes(json!([3]))].concat(), "[3]"),
        ([bytes(json!({ "a": 1 })), bytes(json!({ "b": 2 }))].concat(), r#"{"a":1,"b":2}"#),
        ([bytes(json!({})), bytes(json!({ "b": 2 }))].concat(), r#"{"b":2}"#),
        // Of a list: a value that holds nothing.
        (b"\x32\x04\x0a\x00\x0a\x00".to_vec(), "[null,null]"),
        (entry(&[]), r#"{"":null}"#),
        (entry(&[key]), r#"{"k":null}"#),
        (entry(&[one]), r#"{"":true}"#),
        (entry(&[one, key]), r#"{"k":true}"#),
        (entry(&[other, one, key]), r#"{"k":true}"#),
        (entry(&[list, key, list]), r#"{"k":[true,true]}"#),
        (entry(&[key, list, one]), r#"{"k":true}"#),
        // A field that nobody knows.
        ([b"\x3a\x01x".to_vec(), bytes(json!(7))].concat(), "7"),
    ] {
        assert_eq!(read(&case).unwrap().as_str(), expected, "{case:x?}");
        let theirs = prost_types::Value::decode(&*case).unwrap();
        let again = prost_types::Value::decode(&*Value::decode(&*case).unwrap().encode_to_vec()).unwrap();
        if theirs.kind.is_some() && !expected.contains("null") {
            assert_eq!(again, theirs, "{case:x?}");
        }
    }
    // Two structs one after the other, as a number is added to the metadata of an event.
    let [one, two] = [("a", 1), ("b", 2)].map(|member| {
        let pb: Struct = Metadata::from_iter([member]).to_pb().unwrap();
        pb.encode_to_vec()
    });
    let both = Struct::decode(&*[one, two].concat()).unwrap();
    assert_eq!(Metadata::from_pb(both).unwrap().as_str(), r#"{"a":1,"b":2}"#);
}

#[test]
fn what_cannot_be_said_is_named_by_its_path() {
    let nan = |value: f64| prost_types::Value { kind: Some(Kind::NumberValue(value)) };
    let list = |values| prost_types::Value { kind: Some(Kind::ListValue(ListValue { values })) };
    let object = |name: &str, value| {
        let fields = [(name.to_owned(), value)].into();
        prost_types::Value { kind: Some(Kind::StructValue(prost_types::Struct { fields })) }
    };
    for (value, path, why) in [
        (nan(f64::NAN), "", "expected a finite number, got NaN"),
        (
            list(vec![tree(&json!(1)), nan(f64::INFINITY), nan(f64::NAN)]),
            "[1]",
            "expected a finite number, got inf",
        ),
        (
            object("a_b", list(vec![object("c", nan(f64::NAN))])),
            "a_b[0].c",
            "expected a finite number, got NaN",
        ),
    ] {
        let mismatch = read(&value.encode_to_vec()).unwrap_err();
        assert_eq!(mismatch.parts(), (path, why));
    }
    let too_large = Json::from(json!({ "a": [0, { "b": u64::MAX }] }));
    let mismatch = Convert::<Value>::to_pb(&too_large).unwrap_err();
    let why = "protobuf cannot carry the integer 18446744073709551615 without loss";
    assert_eq!(mismatch.parts(), ("a[1].b", why));
}

#[test]
fn bytes_that_are_malformed_are_refused() {
    for bytes in [
        b"\x1a\x02\xff\xfe".as_slice(),
        b"\x32\x04\x0a\x02",
        b"\x11\x00",
        b"\x0b",
        b"\x20",
        b"\x2a\x05\x0a\x03\x0a\x01\xff",
        b"\x2d\x00\x00\x00\x00",
    ] {
        assert!(prost_types::Value::decode(bytes).is_err(), "{bytes:x?}");
        assert!(Value::decode(bytes).is_err(), "{bytes:x?}");
    }
    // As deep as prost itself goes, and no deeper.
    for depth in 40..60 {
        let mut json = json!(1);
        for _ in 0..depth {
            json = json!([json]);
        }
        let bytes = tree(&json).encode_to_vec();
        assert_eq!(Value::decode(&*bytes).is_ok(), prost_types::Value::decode(&*bytes).is_ok(), "{depth}");
    }
}
