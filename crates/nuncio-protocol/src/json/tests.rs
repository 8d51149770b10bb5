//! JSON text is checked as a tree of values would be, compared by meaning, and read member by member.

use serde_json::json;

use super::{
    check::{describe, split_place},
    *,
};
use crate::Metadata;

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// Text is refused if and only if a tree of values would be, with the same message.
#[test]
fn text_is_refused_where_a_tree_is() {
    let mut texts: Vec<String> = (check::MAX_DEPTH - 2..check::MAX_DEPTH + 3).map(nested).collect();
    texts.extend(
        [
            "null",
            "true",
            "-0",
            "-0.0",
            "0.1",
            "1e5",
            "18446744073709551616",
            "1e400",
            "[-1e999]",
            r#"{"n":1e309}"#,
            r#""é\u00e9\n\/""#,
            r#""\ud83d\ude00""#,
            r#""\ud800""#,
            r#"["\udc00"]"#,
            r#"{"\ud800":1}"#,
            r#""\ud83dx""#,
            r#"{"a":1,"a":2}"#,
            " [ 1 , 2 ] ",
            "{\"a\": \"b c\",\n\"d\":\t1}\r\n",
        ]
        .map(str::to_owned),
    );
    for text in texts {
        let (tree, json) = (serde_json::from_str::<Value>(&text), text.parse::<Json>());
        match (tree, json) {
            (Ok(tree), Ok(json)) => assert_eq!(json, tree, "{text}"),
            (Err(tree), Err(json)) => {
                let (tree, json) = (describe(&tree), describe(&json));
                assert_eq!(split_place(&json).map_or(&*json, |(_, why)| why), tree, "{text}");
            }
            (tree, json) => panic!("{text}: {tree:?}, but {json:?}"),
        }
    }
}

#[test]
fn text_that_is_no_json_is_refused() {
    for text in ["", "[1,]", "{1:2}", "01", "nul", "\"a\nb\"", "[1] x"] {
        assert!(serde_json::from_str::<Value>(text).is_err() && text.parse::<Json>().is_err(), "{text}");
    }
}

#[test]
fn an_error_names_the_place() {
    for (text, place) in
        [(r#"{"a":[0,{"b":1e400}]}"#, "a[1].b"), (r#"[["\ud800"]]"#, "[0][0]"), (r#"{"a: b":1e400}"#, "a: b")]
    {
        let error = text.parse::<Json>().unwrap_err().to_string();
        assert_eq!(split_place(&error).map(|(place, _)| place), Some(place), "{text}: {error}");
    }
    assert_eq!("1e400".parse::<Json>().unwrap_err().to_string(), "number out of range");
}

#[test]
fn text_is_kept_as_it_was_written_but_in_one_line() {
    for (text, kept) in [
        (r#"{"b":1.50,"a":100000000000000000000000}"#, r#"{"b":1.50,"a":100000000000000000000000}"#),
        (r#"0.0011099999999999999"#, r#"0.0011099999999999999"#),
        ("{ \"b\" : [ 1 ,\n\t2 ] ,\r\n\"a \\\" \\\\\": \" x \" }", r#"{"b":[1,2],"a \" \\":" x "}"#),
        (r#""\u0041\/ b""#, r#""\u0041\/ b""#),
        (" null ", "null"),
    ] {
        let json: Json = text.parse().unwrap();
        assert_eq!(json.as_str(), kept);
        assert_eq!(serde_json::to_string(&json).unwrap(), kept);
        assert_eq!(serde_json::from_slice::<Json>(text.as_bytes()).unwrap().as_str(), kept);
        assert_eq!(serde_json::from_reader::<_, Json>(text.as_bytes()).unwrap().as_str(), kept);
        assert_eq!(serde_json::to_value(&json).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }
}

#[test]
fn texts_are_equal_where_trees_are() {
    let texts = [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "0.0",
        "-0.0",
        "1",
        "1.0",
        "1e0",
        "10e-1",
        r#""a""#,
        r#""\u0061""#,
        r#""b""#,
        "[]",
        "[1]",
        "[1.0]",
        "[1,2]",
        "[[1],{}]",
        "[[1],{\"a\":[]}]",
        "{}",
        r#"{"a":1,"b":2}"#,
        r#"{"b":2,"a":1}"#,
        r#"{"\u0061":1,"b":2}"#,
        r#"{"a":0,"a":1,"b":2}"#,
        r#"{"a":1}"#,
        r#"{"a":{"x":1,"y":[true]}}"#,
        r#"{"a":{"y":[true],"x":1}}"#,
        r#"{"a":{"y":[false],"x":1}}"#,
    ];
    for (one, other) in texts.iter().flat_map(|one| texts.iter().map(move |other| (one, other))) {
        let tree = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let json = |text: &str| text.parse::<Json>().unwrap();
        assert_eq!(json(one) == json(other), tree(one) == tree(other), "{one} {other}");
        assert_eq!(json(one) == tree(other), tree(one) == tree(other), "{one} {other}");
    }
}

#[test]
fn whatever_makes_a_value_makes_json() {
    assert_eq!(Json::from("a"), json!("a"));
    assert_eq!(Json::from(7), json!(7));
    assert_eq!(Json::from(vec![true, false]), json!([true, false]));
    assert_eq!(Json::from(json!({ "a": null })), json!({ "a": null }));
    assert_eq!(Json::default(), Value::Null);
    #[derive(Serialize)]
    struct Own {
        n: f64,
        inner: Option<Json>,
    }
    let own = Own { n: 0.5, inner: Some(r#"{"x":1.00}"#.parse().unwrap()) };
    assert_eq!(Json::from_serialize(&own).unwrap().as_str(), r#"{"n":0.5,"inner":{"x":1.00}}"#);
    assert!(Json::from_serialize(&std::collections::BTreeMap::from([((), 1)])).is_err());
}

#[test]
fn metadata_is_an_object_or_nothing() {
    for (text, why) in [
        ("[]", "invalid type: sequence, expected a map"),
        (r#""x""#, "invalid type: string \"x\", expected a map"),
        ("5", "invalid type: integer `5`, expected a map"),
        ("null", "invalid type: null, expected a map"),
    ] {
        let error = serde_json::from_str::<Metadata>(text).unwrap_err();
        assert_eq!(describe(&error), why);
    }
    for empty in ["{}", " { } "] {
        let metadata: Metadata = serde_json::from_str(empty).unwrap();
        assert!(metadata.is_empty());
        assert_eq!(metadata, Metadata::new());
        assert_eq!(serde_json::to_string(&metadata).unwrap(), "{}");
    }
}

#[test]
fn members_of_metadata() {
    let text = r#"{"a":1,"b\"":{"c":[1,2]},"":"{,:}","a":2,"é":null}"#;
    let mut metadata: Metadata = serde_json::from_str(text).unwrap();
    assert_eq!(metadata.as_str(), text);
    let seen: Vec<_> =
        metadata.iter().map(|(name, value)| (name.into_owned(), value.get().to_owned())).collect();
    let expected = [("a", "1"), ("b\"", r#"{"c":[1,2]}"#), ("", r#""{,:}""#), ("a", "2"), ("é", "null")];
    assert_eq!(seen, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));

    assert_eq!(metadata.get("a").unwrap(), json!(2), "the last one counts");
    assert_eq!(metadata.get("é").unwrap(), Value::Null);
    assert!(metadata.get("c").is_none() && !metadata.contains_key("c") && metadata.contains_key(""));

    metadata.insert("a", json!([3]));
    assert_eq!(metadata.as_str(), r#"{"a":[3],"b\"":{"c":[1,2]},"":"{,:}","é":null}"#);
    assert_eq!(metadata.remove("b\"").unwrap(), json!({ "c": [1, 2] }));
    assert!(metadata.remove("b\"").is_none());
    metadata.extend([("x", 1), ("", 2)]);
    assert_eq!(metadata.as_str(), r#"{"a":[3],"":2,"é":null,"x":1}"#);
    metadata.merge(&Metadata::from_iter([("a", "new"), ("y", "new")]));
    assert_eq!(metadata.as_str(), r#"{"a":"new","":2,"é":null,"x":1,"y":"new"}"#);
    for key in ["é", "", "x", "a", "y"] {
        metadata.remove(key).unwrap();
    }
    assert!(metadata.is_empty());
}

#[test]
fn what_is_new_in_metadata() {
    let known =
        Metadata::from(json!({ "a": 1, "b": { "x": 1, "y": 2 }, "gone": 0 }).as_object().unwrap().clone());
    let seen: Metadata = serde_json::from_str(r#"{"b":{"y":2,"x":1},"a":2,"c":[]}"#).unwrap();
    assert_eq!(seen.difference(&known).as_str(), r#"{"a":2,"c":[]}"#);
    assert!(seen.difference(&seen).is_empty());
    assert_eq!(seen.difference(&Metadata::new()), seen);
}
