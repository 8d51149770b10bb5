//! Identifiers that the server makes.

/// A new identifier: unique, URL-safe, and ordered by time.
pub(crate) fn new_id<T: for<'a> From<&'a str>>() -> T {
    let mut buffer = uuid::Uuid::encode_buffer();
    T::from(uuid::Uuid::now_v7().hyphenated().encode_lower(&mut buffer))
}
