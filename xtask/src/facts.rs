//! Compares the proto files with the published protocol, as written down in `proto/facts_*.txt`.
//!
//! The facts were taken from the published protocol and the proto files were written by hand,
//! so a slip in one is not repeated in the other. Numbers and types are checked, and so is presence:
//! an `optional` too few compiles, works, and breaks the signature of an agent card.

use std::collections::BTreeSet;
use std::fs;

use protox::Compiler;
use protox::prost_reflect::{DescriptorPool, FieldDescriptor, FileDescriptor, Kind, MethodDescriptor};

use crate::{codegen, root};

#[test]
fn v1_proto_says_what_the_protocol_says() {
    check("a2a_v1.proto", "facts_v1.txt");
}

#[test]
fn v03_proto_says_what_the_protocol_says() {
    check("a2a_v03.proto", "facts_v03.txt");
}

#[test]
fn only_well_known_types_are_imported() {
    let compiler = compile();
    let ours = ["a2a_v1.proto", "a2a_v03.proto"];
    let imported: BTreeSet<String> = compiler
        .descriptor_pool()
        .files()
        .map(|file| file.name().to_owned())
        .filter(|name| !ours.contains(&name.as_str()))
        .collect();

    let expected = ["empty", "struct", "timestamp"].map(|name| format!("google/protobuf/{name}.proto"));
    assert_eq!(imported, BTreeSet::from(expected));
}

fn compile() -> Compiler {
    codegen::compile(&root().unwrap()).unwrap()
}

fn check(proto: &str, facts: &str) {
    let compiler = compile();
    let pool = compiler.descriptor_pool();
    let file = pool.get_file_by_name(proto).unwrap();
    let found = describe(&pool, &file);
    let written = read(facts);

    let missing: Vec<&String> = written.difference(&found).collect();
    let unknown: Vec<&String> = found.difference(&written).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "{proto} lacks: {missing:#?}\n{proto} has, but {facts} does not: {unknown:#?}"
    );
}

fn read(facts: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().unwrap().join("proto").join(facts)).unwrap();
    let mut lines = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        assert!(lines.insert(line.to_owned()), "{facts} says this twice: {line}");
    }
    lines
}

/// Everything a file defines, one line each, in the form of the fact files.
fn describe(pool: &DescriptorPool, file: &FileDescriptor) -> BTreeSet<String> {
    // Nested definitions are listed too: a type in the wrong place has another name on the wire.
    let messages: Vec<_> = pool
        .all_messages()
        .filter(|message| message.parent_file() == *file && !message.is_map_entry())
        .collect();
    let enums: Vec<_> = pool.all_enums().filter(|it| it.parent_file() == *file).collect();
    let rpcs: Vec<_> = file.services().flat_map(|service| service.methods().collect::<Vec<_>>()).collect();

    let mut lines = BTreeSet::from([
        format!("package {}", file.package_name()),
        format!("count messages {}", messages.len()),
        format!("count enums {}", enums.len()),
        format!("count rpcs {}", rpcs.len()),
    ]);
    lines.extend(file.services().map(|service| format!("service {}", service.name())));
    lines.extend(rpcs.iter().map(describe_rpc));
    for it in &enums {
        let name = local(it.full_name(), it.package_name());
        lines.extend(it.values().map(|value| format!("{name}.{} = {}", value.name(), value.number())));
    }
    for message in &messages {
        let name = local(message.full_name(), message.package_name());
        if message.fields().len() == 0 {
            lines.insert(format!("{name} is empty"));
        }
        lines.extend(message.fields().map(|field| format!("{name}.{}", describe_field(&field))));
    }
    lines
}

fn describe_rpc(rpc: &MethodDescriptor) -> String {
    let package = rpc.parent_file().package_name().to_owned();
    let stream = |streams: bool| if streams { "stream " } else { "" };
    format!(
        "rpc {}({}{}) returns ({}{})",
        rpc.name(),
        stream(rpc.is_client_streaming()),
        local(rpc.input().full_name(), &package),
        stream(rpc.is_server_streaming()),
        local(rpc.output().full_name(), &package),
    )
}

fn describe_field(field: &FieldDescriptor) -> String {
    // The compiler turns `optional` into a oneof of one, which is not a oneof of the protocol.
    let optional = field.field_descriptor_proto().proto3_optional();
    let label = if field.is_list() {
        "repeated "
    } else if optional {
        "optional "
    } else {
        ""
    };
    let mut line = format!("{} = {} {label}{}", field.name(), field.number(), describe_type(field));
    if let Some(oneof) = field.containing_oneof().filter(|_| !optional) {
        line += &format!(" in {}", oneof.name());
    }
    if field.json_name() != lower_camel_case(field.name()) {
        line += &format!(" as {}", field.json_name());
    }
    line
}

fn describe_type(field: &FieldDescriptor) -> String {
    let package = field.parent_file().package_name().to_owned();
    let name = |kind: Kind| local(&format!("{kind:?}"), &package).to_owned();
    match field.kind() {
        Kind::Message(entry) if entry.is_map_entry() => {
            let key = name(entry.map_entry_key_field().kind());
            let value = name(entry.map_entry_value_field().kind());
            format!("map<{key}, {value}>")
        }
        kind => name(kind),
    }
}

/// The name as it is written inside its own package.
fn local<'a>(full_name: &'a str, package: &str) -> &'a str {
    full_name.strip_prefix(package).and_then(|rest| rest.strip_prefix('.')).unwrap_or(full_name)
}

/// The JSON name that protobuf gives to a field that names none.
fn lower_camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}
