//! Forms: the written form of a setting in `nuncio.toml`, where its type does not define it.
//!
//! A form is used in `#[serde(with = "…")]` of a field. It reads the value, refuses a wrong format, and
//! provides the schema of the key, so that a key needs no second type. Two facts are known only to the reader
//! of a file, and a form asks for them by name ([`PLACED`], [`SECRET_FILE`]): the folder of the file that
//! contains a value, and the content of a file with a secret.

use std::{
    collections::BTreeMap,
    fmt,
    marker::PhantomData,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use http::{HeaderName, HeaderValue};
use nuncio_client::notification::WebhookSecret;
use nuncio_protocol::op::Op;
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
    ser::SerializeSeq as _,
};
use url::{Host, Url};

use super::{Secret, file::did_you_mean};

/// A tuple struct of this name is read as the folder that a path is relative to, and the value itself.
pub(super) const PLACED: &str = "nuncio::Placed";
/// A newtype struct of this name is read as the content of the file that the value names.
pub(super) const SECRET_FILE: &str = "nuncio::SecretFile";

/// The written form of a setting.
pub(crate) trait Form: JsonSchema {
    /// The setting.
    type Value;

    /// Reads the setting, or describes the expected format. The message contains nothing of the value.
    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self::Value, D::Error>;

    /// Writes a default into the schema.
    fn serialize<S: Serializer>(value: &Self::Value, serializer: S) -> Result<S::Ok, S::Error>;
}

/// Gives a form the schema of another type, inline.
macro_rules! schema_of {
    ([$($generics:tt)*] $form:ty, $schema:ty) => {
        impl<$($generics)*> schemars::JsonSchema for $form {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($form).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                generator.subschema_for::<$schema>()
            }
        }
    };
}

/// Declares a form for values that stand as a number or a text in a file: one function reads the value, another
/// writes it.
macro_rules! form {
    ($(#[doc = $doc:literal])+ $form:ident: $written:ty => $value:ty, $read:expr, $write:expr) => {
        $(#[doc = $doc])+
        pub(crate) struct $form;

        crate::config::form::schema_of!([] $form, $written);

        impl crate::config::form::Form for $form {
            type Value = $value;

            fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<$value, D::Error> {
                let read: fn($written) -> Result<$value, String> = $read;
                let written = <$written as serde::Deserialize>::deserialize(deserializer)?;
                read(written).map_err(<D::Error as serde::de::Error>::custom)
            }

            fn serialize<S: serde::Serializer>(value: &$value, serializer: S) -> Result<S::Ok, S::Error> {
                let write: fn(&$value) -> $written = $write;
                serde::Serialize::serialize(&write(value), serializer)
            }
        }
    };
}

form! {
    /// Whole seconds.
    Seconds: u64 => Duration, |seconds| Ok(Duration::from_secs(seconds)), Duration::as_secs
}

form! {
    /// Whole milliseconds.
    Millis: u64 => Duration,
    |millis| Ok(Duration::from_millis(millis)),
    |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

form! {
    /// Whole seconds; 0 for no limit.
    SecondsOrNever: u64 => Option<Duration>,
    |seconds| Ok((seconds > 0).then(|| Duration::from_secs(seconds))),
    |limit| limit.map(|limit| limit.as_secs()).unwrap_or_default()
}

form! {
    /// Seconds with a fraction, more than 0.
    Fraction: f64 => Duration,
    |seconds| match Duration::try_from_secs_f64(seconds) {
        Ok(interval) if !interval.is_zero() => Ok(interval),
        _ => Err("expected more than 0".to_owned()),
    },
    Duration::as_secs_f64
}

form! {
    /// Whole hours.
    Hours: u32 => Duration,
    |hours| Ok(Duration::from_secs(u64::from(hours) * 3600)),
    |hours| u32::try_from(hours.as_secs() / 3600).unwrap_or(u32::MAX)
}

form! {
    /// A number; 0 for no limit.
    NumberOrNone: usize => Option<usize>, |number| Ok((number > 0).then_some(number)), |limit| limit.unwrap_or_default()
}

form! {
    /// An IP address and a port.
    Address: String => SocketAddr, |text| address(&text, "127.0.0.1:2602"), ToString::to_string
}

form! {
    /// An IP address and a port, or `off`.
    AddressOrOff: String => Option<SocketAddr>,
    |text| if text == "off" { Ok(None) } else { address(&text, "127.0.0.1:2603, or off").map(Some) },
    |address| address.map_or_else(|| "off".to_owned(), |address| address.to_string())
}

form! {
    /// An HTTP address. Credentials have keys of their own.
    HttpUrl: String => Url, |text| http_url(&text), ToString::to_string
}

form! {
    /// An address to which paths can be appended.
    BaseUrl: String => Url,
    |text| Url::parse(&text).ok().filter(is_base).ok_or_else(|| BASE_URL.to_owned()),
    ToString::to_string
}

form! {
    /// An issuer of tokens, exactly as its tokens contain it.
    IssuerUrl: String => String,
    |text| {
        http_url(&text)?;
        // A principal is ISSUER#NAME: with a # in its name, one issuer could forge principals of another.
        let is_whole = !text.contains('#');
        is_whole.then_some(text).ok_or_else(|| "expected the address of an issuer, without #".to_owned())
    },
    String::clone
}

form! {
    /// A name or an address without a port.
    HostText: String => Host,
    // In a URL, an IPv6 address has brackets; here it has none.
    |text| text.parse().map(Host::Ipv6).or_else(|_| Host::parse(&text)).map_err(|_| {
        "expected a name such as agents.example.com, without a port".to_owned()
    }),
    ToString::to_string
}

form! {
    /// An operation of the protocol.
    OpName: String => Op,
    |text| Op::from_name(&text).ok_or_else(|| {
        let known: Vec<_> = Op::TABLE.iter().map(|row| row.name).collect();
        format!("is not an operation; expected one of {}{}", known.join(", "), did_you_mean(&text, &known))
    }),
    |op| op.name().to_owned()
}

form! {
    /// A secret in the format of Standard Webhooks.
    SigningSecret: Secret => Secret, signing_secret, Secret::clone
}

/// Reads and writes a type as a text, by `FromStr` and `Display`.
macro_rules! text {
    ($type:ty) => {
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string" })
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

/// The message for an address to which no path can be appended.
pub(super) const BASE_URL: &str =
    "expected an address such as https://agents.example.com, without credentials and without a query";

/// True for an address to which paths can be appended.
pub(super) fn is_base(url: &Url) -> bool {
    is_plain(url) && url.query().is_none() && url.fragment().is_none()
}

fn is_plain(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none()
}

pub(super) fn http_url(text: &str) -> Result<Url, String> {
    Url::parse(text)
        .ok()
        .filter(is_plain)
        .ok_or_else(|| "expected an address such as https://example.com, without credentials".to_owned())
}

fn address(text: &str, example: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("expected an IP address and a port, such as {example}"))
}

pub(super) fn header(name: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "is not a header name; expected one such as X-Api-Key".to_owned())
}

fn signing_secret(secret: Secret) -> Result<Secret, String> {
    secret.reveal().parse::<WebhookSecret>().map(|_| secret).map_err(|wrong| wrong.to_string())
}

/// The word in the file for an enum of another crate, by `#[serde(remote = "…")]`.
macro_rules! word {
    ($word:ty => $value:ty) => {
        impl crate::config::form::Form for $word {
            type Value = $value;

            fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<$value, D::Error> {
                <$word>::deserialize(deserializer)
            }

            fn serialize<S: serde::Serializer>(value: &$value, serializer: S) -> Result<S::Ok, S::Error> {
                <$word>::serialize(value, serializer)
            }
        }
    };
}

pub(super) use {form, schema_of, text, word};

/// A value that may be absent.
pub(crate) struct Opt<F>(PhantomData<F>);

schema_of!([F: Form] Opt<F>, F);

impl<F: Form> Form for Opt<F> {
    type Value = Option<F::Value>;

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self::Value, D::Error> {
        F::deserialize(deserializer).map(Some)
    }

    fn serialize<S: Serializer>(value: &Self::Value, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => F::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }
}

/// Several values.
pub(crate) struct ValueList<F>(PhantomData<F>);

schema_of!([F: Form] ValueList<F>, Vec<F>);

impl<F: Form> Form for ValueList<F> {
    type Value = Vec<F::Value>;

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self::Value, D::Error> {
        let items = Vec::<ListedValue<F>>::deserialize(deserializer)?;
        Ok(items.into_iter().map(|item| item.0).collect())
    }

    fn serialize<S: Serializer>(value: &Self::Value, serializer: S) -> Result<S::Ok, S::Error> {
        struct Written<'a, F: Form>(&'a F::Value);

        impl<F: Form> Serialize for Written<'_, F> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                F::serialize(self.0, serializer)
            }
        }

        let mut items = serializer.serialize_seq(Some(value.len()))?;
        for item in value {
            items.serialize_element(&Written::<F>(item))?;
        }
        items.end()
    }
}

struct ListedValue<F: Form>(F::Value);

impl<'de, F: Form> Deserialize<'de> for ListedValue<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        F::deserialize(deserializer).map(ListedValue)
    }
}

/// A value, and the folder of the file that contains it.
pub(super) fn placed<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<(PathBuf, T), D::Error> {
    struct PlacedVisitor<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for PlacedVisitor<T> {
        type Value = (PathBuf, T);

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a folder and a value")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
            let missing = || A::Error::custom("the folder of a value is not known");
            let folder: String = parts.next_element()?.ok_or_else(missing)?;
            Ok((folder.into(), parts.next_element()?.ok_or_else(missing)?))
        }
    }

    deserializer.deserialize_tuple_struct(PLACED, 2, PlacedVisitor(PhantomData))
}

/// A path, relative to the file that contains it.
pub(crate) struct FilePath;

schema_of!([] FilePath, String);

impl Form for FilePath {
    type Value = PathBuf;

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        let (folder, path): (_, String) = placed(deserializer)?;
        Ok(folder.join(path))
    }

    fn serialize<S: Serializer>(value: &PathBuf, serializer: S) -> Result<S::Ok, S::Error> {
        Path::serialize(value, serializer)
    }
}

/// The secret in a file.
pub(crate) struct FileSecret;

schema_of!([] FileSecret, String);

impl Form for FileSecret {
    type Value = Secret;

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        struct Content;

        impl Visitor<'_> for Content {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a secret")
            }

            fn visit_str<E>(self, text: &str) -> Result<Secret, E> {
                Ok(Secret::new(text))
            }
        }

        deserializer.deserialize_newtype_struct(SECRET_FILE, Content)
    }

    fn serialize<S: Serializer>(value: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }
}

/// A secret in the format of Standard Webhooks, in a file.
pub(crate) struct SigningSecretFile;

schema_of!([] SigningSecretFile, String);

impl Form for SigningSecretFile {
    type Value = Secret;

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        signing_secret(FileSecret::deserialize(deserializer)?).map_err(D::Error::custom)
    }

    fn serialize<S: Serializer>(value: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }
}

/// A secret, written here or in a file.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum SecretText {
    /// Written here; better as `${NAME}`.
    Here(Secret),
    /// In a file.
    There(SecretFile),
}

/// The file that holds a secret.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretFile {
    /// The file; a line break at its end does not belong to the secret.
    #[serde(with = "FileSecret")]
    pub(crate) file: Secret,
}

impl SecretText {
    pub(super) fn into_secret(self) -> Secret {
        match self {
            Self::Here(secret) | Self::There(SecretFile { file: secret }) => secret,
        }
    }
}

/// Not derived as untagged: buffered values do not know their file.
impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = SecretText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or { file = … }")
            }

            fn visit_str<E>(self, text: &str) -> Result<SecretText, E> {
                Ok(SecretText::Here(Secret::new(text)))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SecretText, A::Error> {
                SecretFile::deserialize(MapAccessDeserializer::new(map)).map(SecretText::There)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// Headers with secret values.
pub(crate) struct Headers;

schema_of!([] Headers, BTreeMap<String, SecretText>);

impl Form for Headers {
    type Value = Vec<(HeaderName, Secret)>;

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self::Value, D::Error> {
        struct EntriesVisitor;

        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Vec<(HeaderName, Secret)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of headers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut headers = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    headers.push(map.next_value_seed(HeaderOf(&name))?);
                }
                Ok(headers)
            }
        }

        /// Checks the name together with the value, so that the message names the entry.
        struct HeaderOf<'a>(&'a str);

        impl<'de> DeserializeSeed<'de> for HeaderOf<'_> {
            type Value = (HeaderName, Secret);

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
                let name = header(self.0).map_err(D::Error::custom)?;
                let secret = SecretText::deserialize(deserializer)?.into_secret();
                if HeaderValue::from_str(secret.reveal()).is_err() {
                    let text = "not a valid header value; expected one line of plain characters";
                    return Err(D::Error::custom(text));
                }
                Ok((name, secret))
            }
        }

        deserializer.deserialize_map(EntriesVisitor)
    }

    fn serialize<S: Serializer>(value: &Self::Value, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(value.iter().map(|(name, secret)| (name.as_str(), secret)))
    }
}
