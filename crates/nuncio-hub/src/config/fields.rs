//! The keys of tables, in the order in which the fields of their types are declared.

use std::fmt;

use serde::{
    de::{DeserializeOwned, Deserializer, Error, Visitor},
    forward_to_deserialize_any,
};

use super::{
    Admin, AgentCalls, AgentLimits, AgentPush, Calls, CardKey, Config, Connections, Cors, Extension,
    Identity, Issuer, Limits, Mailbox, Provider, Push, Rate, Room, Skill, Storage, Telemetry, TlsFiles,
    ToolServer, Trust,
    agent::{self, AuthTable, OAuth2Table},
    form::SecretFile,
};

/// The field names of `T`, as serde reads them.
pub(crate) fn of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // Always fails: the deserializer reads nothing.
    let _ = T::deserialize(FieldNames(&mut fields));
    fields
}

/// The keys of a table in the order of declaration: a schema has them in alphabetical order.
pub(crate) fn order(table: &str) -> Vec<&'static str> {
    let fields = match table {
        "Config" => of::<Config>(),
        "Admin" => of::<Admin>(),
        "Tls" => of::<TlsFiles>(),
        "CardKey" => of::<CardKey>(),
        "Data" => of::<Storage>(),
        "Connections" => of::<Connections>(),
        "Push" => of::<Push>(),
        "Cors" => of::<Cors>(),
        "Identity" => of::<Identity>(),
        "Issuer" => of::<Issuer>(),
        "Calls" => of::<Calls>(),
        "AgentCalls" => of::<AgentCalls>(),
        "Limits" => of::<Limits>(),
        "AgentLimits" => of::<AgentLimits>(),
        "Rate" => of::<Rate>(),
        "Telemetry" => of::<Telemetry>(),
        "AgentPush" => of::<AgentPush>(),
        "Skill" => of::<Skill>(),
        "Provider" => of::<Provider>(),
        "Extension" => of::<Extension>(),
        "Auth" => of::<AuthTable>(),
        "OAuth2" => of::<OAuth2Table>(),
        "Trust" => of::<Trust>(),
        "Mailbox" => of::<Mailbox>(),
        "ToolServer" => of::<ToolServer>(),
        "Room" => of::<Room>(),
        "SecretFile" => of::<SecretFile>(),
        "Agent" => return agent::order(),
        _ => &[],
    };
    fields.to_vec()
}

/// A deserializer that notes the field names of the struct it is asked for.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

/// The error of that deserializer.
#[derive(Debug)]
struct Nothing;

impl fmt::Display for Nothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing is read")
    }
}

impl std::error::Error for Nothing {}

impl Error for Nothing {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Nothing;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Nothing> {
        *self.0 = fields;
        Err(Nothing)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Nothing> {
        Err(Nothing)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
