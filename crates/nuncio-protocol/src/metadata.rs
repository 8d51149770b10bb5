//! Free-form data beside the members of the protocol.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error as _};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    Json,
    json::{AtDepth, Members, is_equal, object},
};

/// The metadata key for the leftover of a message or a part: members that an older version of the protocol
/// cannot express.
pub const LEFTOVER: &str = "https://nuncio.dev/a2a/leftover/v1";

/// Free-form data: a JSON object, as its text. Empty and absent are the same.
///
/// Extensions store their data in it, under their URI. Reading a member does not parse the others; writing
/// one rewrites the whole text, so set several members at once ([`FromIterator`], [`Extend`]). A clone
/// shares the text. Equality is by meaning, as with [`Json`].
///
/// ```
/// use nuncio_protocol::Metadata;
/// use serde_json::json;
///
/// const COST: &str = "https://extensions.example/cost/v1";
///
/// let mut metadata = Metadata::from_iter([("trace", "7f3a")]);
/// metadata.insert(COST, json!({ "cents": 12 }));
/// assert_eq!(metadata.get(COST).unwrap(), json!({ "cents": 12 }));
/// assert_eq!(metadata.get("trace").unwrap().get::<String>()?, "7f3a");
///
/// let keys: Vec<_> = metadata.keys().collect();
/// assert_eq!(keys, ["trace", COST]);
/// metadata.remove(COST);
/// assert_eq!(serde_json::to_string(&metadata)?, r#"{"trace":"7f3a"}"#);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Default)]
pub struct Metadata {
    /// An object with at least one member.
    object: Option<Json>,
}

impl Metadata {
    /// Empty metadata.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The members of any value that serializes to a JSON object.
    ///
    /// # Errors
    /// The value cannot be serialized, or is not an object.
    pub fn from_serialize(value: &(impl Serialize + ?Sized)) -> serde_json::Result<Self> {
        let json = Json::from_serialize(value)?;
        if json.is_object() {
            Ok(Self::from_object(json))
        } else {
            Err(serde_json::Error::custom("expected an object"))
        }
    }

    /// From an object.
    pub(crate) fn from_object(object: Json) -> Self {
        Self { object: Some(object).filter(|object| object.as_str() != "{}") }
    }

    /// Returns a JSON object.
    #[must_use]
    pub fn to_json(&self) -> Json {
        self.object.clone().unwrap_or_else(|| Json::written("{}".to_owned()))
    }

    /// The text of the object.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.object.as_ref().map_or("{}", Json::as_str)
    }

    /// True if there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.object.is_none()
    }

    /// The value of a member. Of a repeated name, the last one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Json> {
        self.raw(key).map(Json::part)
    }

    /// True if the member exists.
    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.iter().any(|(name, _)| name == key)
    }

    fn raw(&self, key: &str) -> Option<&RawValue> {
        self.iter().filter(|(name, _)| name == key).last().map(|(_, value)| value)
    }

    /// Sets a member.
    pub fn insert(&mut self, key: impl AsRef<str>, value: impl Into<Json>) {
        self.extend([(key, value)]);
    }

    /// Removes a member.
    pub fn remove(&mut self, key: &str) -> Option<Json> {
        let removed = self.get(key)?;
        *self = Self::write(self.iter().filter(|(name, _)| name != key));
        Some(removed)
    }

    /// Sets all members of `other`.
    pub fn merge(&mut self, other: &Self) {
        if self.is_empty() {
            self.clone_from(other);
        } else if !other.is_empty() {
            *self = self.with(other.iter().map(|(name, value)| (name, Some(value.get()))).collect());
        }
    }

    /// The members in their original order, each with its value as text.
    #[must_use]
    pub fn iter(&self) -> Members<'_> {
        Members::of(self.as_str())
    }

    /// The names of the members.
    pub fn keys(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.iter().map(|(name, _)| name)
    }

    /// The members that `other` does not have, or has with another value.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let other: BTreeMap<_, _> = other.iter().collect();
        let is_new = |name: &str, value: &RawValue| {
            other.get(name).is_none_or(|old| !is_equal(old.get(), value.get()))
        };
        Self::write(self.iter().filter(|(name, value)| is_new(name, value)))
    }

    /// Returns metadata with these members set. Existing members keep their position.
    fn with(&self, mut new: BTreeMap<Cow<'_, str>, Option<&str>>) -> Self {
        let mut text = String::new();
        for (name, value) in self {
            match new.get_mut(&*name) {
                None => write_member(&mut text, &name, value.get()),
                Some(value) => {
                    value.take().into_iter().for_each(|value| write_member(&mut text, &name, value))
                }
            }
        }
        for (name, value) in new {
            value.into_iter().for_each(|value| write_member(&mut text, &name, value));
        }
        Self::finish(text)
    }

    fn write<'a>(members: impl Iterator<Item = (Cow<'a, str>, &'a RawValue)>) -> Self {
        let mut text = String::new();
        for (name, value) in members {
            write_member(&mut text, &name, value.get());
        }
        Self::finish(text)
    }

    /// Completes the text of [`write_member`].
    fn finish(mut text: String) -> Self {
        if text.is_empty() {
            return Self::new();
        }
        text.push('}');
        Self { object: Some(Json::written(text)) }
    }
}

/// Appends a member to an object that is not closed yet.
fn write_member(text: &mut String, name: &str, value: &str) {
    text.push(if text.is_empty() { '{' } else { ',' });
    text.push_str(Json::from(name).as_str());
    text.push(':');
    text.push_str(value);
}

/// Sets several members.
impl<K: AsRef<str>, V: Into<Json>> Extend<(K, V)> for Metadata {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, members: I) {
        let new: BTreeMap<String, Json> =
            members.into_iter().map(|(key, value)| (key.as_ref().to_owned(), value.into())).collect();
        let new = new.iter().map(|(name, value)| (Cow::from(name), Some(value.as_str())));
        *self = self.with(new.collect());
    }
}

impl<K: AsRef<str>, V: Into<Json>> FromIterator<(K, V)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(members: I) -> Self {
        let mut metadata = Self::new();
        metadata.extend(members);
        metadata
    }
}

impl From<Map<String, Value>> for Metadata {
    fn from(members: Map<String, Value>) -> Self {
        Self::from_object(Json::from(members))
    }
}

impl<'a> IntoIterator for &'a Metadata {
    type Item = (Cow<'a, str>, &'a RawValue);
    type IntoIter = Members<'a>;

    fn into_iter(self) -> Members<'a> {
        self.iter()
    }
}

impl PartialEq<Value> for Metadata {
    fn eq(&self, other: &Value) -> bool {
        is_equal(self.as_str(), &other.to_string())
    }
}

/// Writes the text.
impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl<'de, const OUTER: usize> Deserialize<'de> for AtDepth<OUTER, Metadata> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object::<D, OUTER>(deserializer).map(|object| Self(Metadata::from_object(object)))
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        AtDepth::<0, Self>::deserialize(deserializer).map(|AtDepth(metadata)| metadata)
    }
}

/// Decodes metadata inside `OUTER` objects and lists; `null` means none.
pub(crate) fn metadata<'de, D, const OUTER: usize>(deserializer: D) -> Result<Metadata, D::Error>
where
    D: Deserializer<'de>,
{
    let metadata = Option::<AtDepth<OUTER, Metadata>>::deserialize(deserializer)?;
    Ok(metadata.map(|AtDepth(metadata)| metadata).unwrap_or_default())
}
