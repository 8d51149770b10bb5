//! Decodes the bytes of `google.protobuf.Value` and `Struct` to JSON text, with the checks and the nesting
//! limit of prost.
//!
//! Protobuf allows repeated fields: the last value wins, and messages of the same kind are merged. So text
//! that was already written may be replaced or continued.
//!
//! A protobuf number is a double. It is decoded as the integer that it most likely was, so that a 5 is not
//! returned to the sender as 5.0.

use std::io::Write as _;

use bytes::{Buf, BufMut};
use prost::{
    DecodeError, Message,
    encoding::{self, DecodeContext, WireType},
};
use serde_json::Number;

use super::write::MAX_INTEGER;
use crate::{Json, pb::convert::Mismatch};

/// JSON text that is being written.
#[derive(Clone, Debug, Default, PartialEq)]
struct Draft {
    json: Vec<u8>,
    /// The first number that JSON cannot express, with the known part of its path.
    mismatch: Option<Mismatch>,
}

impl Draft {
    fn finish(mut self) -> Result<Json, Mismatch> {
        match self.mismatch.take() {
            Some(mismatch) => Err(mismatch),
            None => Ok(self.into_json()),
        }
    }

    fn into_json(self) -> Json {
        // Unreachable: only valid UTF-8 is written.
        Json::written(String::from_utf8(self.json).unwrap_or_default())
    }

    fn string(&mut self, text: &str) {
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.json, text);
    }

    fn number(&mut self, double: f64) {
        let integral = double.fract() == 0.0 && double.abs() <= MAX_INTEGER as f64;
        // Minus zero is not an integer.
        let number = if integral && !(double == 0.0 && double.is_sign_negative()) {
            Some(Number::from(double as i64))
        } else {
            Number::from_f64(double)
        };
        match number {
            Some(number) => {
                let _ = write!(self.json, "{number}");
            }
            None => {
                self.json.extend_from_slice(b"null");
                let why = || Mismatch::new(format!("expected a finite number, got {double}"));
                self.mismatch.get_or_insert_with(why);
            }
        }
    }

    /// Adds a step to the path of a mismatch found since, and keeps the one found before.
    fn leave(&mut self, before: Option<Mismatch>, step: impl FnOnce(Mismatch) -> Mismatch) {
        let found = self.mismatch.take().map(step);
        self.mismatch = before.or(found);
    }
}

/// The kind of a value, as far as it was decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum DecodedKind {
    #[default]
    Unset,
    Scalar,
    /// With this number of elements.
    List(usize),
    Object,
}

/// A separate `Value`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ValueRead {
    draft: Draft,
    kind: DecodedKind,
}

impl ValueRead {
    pub(super) fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        ValueAt { draft: &mut self.draft, start: 0, kind: &mut self.kind }
            .merge_field(tag, wire_type, buf, ctx)
    }

    pub(super) fn finish(mut self) -> Result<Json, Mismatch> {
        close(&mut self.draft, self.kind);
        self.draft.finish()
    }

    pub(super) fn into_json(mut self) -> Json {
        close(&mut self.draft, self.kind);
        self.draft.into_json()
    }
}

/// A separate `Struct`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StructRead {
    draft: Draft,
}

impl StructRead {
    pub(super) fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        if self.draft.json.is_empty() {
            self.draft.json.push(b'{');
        }
        Fields { draft: &mut self.draft }.merge_field(tag, wire_type, buf, ctx)
    }

    pub(super) fn finish(self) -> Result<Json, Mismatch> {
        self.closed().finish()
    }

    pub(super) fn into_json(self) -> Json {
        self.closed().into_json()
    }

    fn closed(mut self) -> Draft {
        self.draft.json.extend_from_slice(if self.draft.json.is_empty() { b"{}" } else { b"}" });
        self.draft
    }
}

/// Closes the value at the end of the draft. A value without content is invalid in protobuf, and can only
/// mean null.
fn close(draft: &mut Draft, kind: DecodedKind) {
    draft.json.extend_from_slice(match kind {
        DecodedKind::Unset => b"null",
        DecodedKind::Scalar => b"",
        DecodedKind::List(_) => b"]",
        DecodedKind::Object => b"}",
    });
}

/// These messages are only decoded.
macro_rules! read_only {
    () => {
        fn encode_raw(&self, _: &mut impl BufMut) {}

        fn encoded_len(&self) -> usize {
            0
        }

        fn clear(&mut self) {}
    };
}

/// Adds the field to the error of malformed bytes, as prost does for its own messages.
fn in_field(message: &'static str, field: &'static str) -> impl Fn(DecodeError) -> DecodeError {
    move |mut error| {
        error.push(message, field);
        error
    }
}

/// A `Value` that is written to the draft from `start` on, and left open: a list or an object may continue.
struct ValueAt<'a> {
    draft: &'a mut Draft,
    start: usize,
    kind: &'a mut DecodedKind,
}

impl ValueAt<'_> {
    /// Replaces the value by one of this kind.
    fn begin(&mut self, kind: DecodedKind) {
        self.draft.json.truncate(self.start);
        *self.kind = kind;
        match kind {
            DecodedKind::List(_) => self.draft.json.push(b'['),
            DecodedKind::Object => self.draft.json.push(b'{'),
            DecodedKind::Unset | DecodedKind::Scalar => {}
        }
    }
}

impl Message for ValueAt<'_> {
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => {
                let mut number = 0;
                encoding::int32::merge(wire_type, &mut number, buf, ctx)?;
                self.begin(DecodedKind::Scalar);
                self.draft.json.extend_from_slice(b"null");
            }
            2 => {
                let mut double = 0.0;
                encoding::double::merge(wire_type, &mut double, buf, ctx)?;
                self.begin(DecodedKind::Scalar);
                self.draft.number(double);
            }
            3 => {
                let mut text = String::new();
                encoding::string::merge(wire_type, &mut text, buf, ctx)?;
                self.begin(DecodedKind::Scalar);
                self.draft.string(&text);
            }
            4 => {
                let mut truth = false;
                encoding::bool::merge(wire_type, &mut truth, buf, ctx)?;
                self.begin(DecodedKind::Scalar);
                self.draft.json.extend_from_slice(if truth { b"true" } else { b"false" });
            }
            5 => {
                if *self.kind != DecodedKind::Object {
                    self.begin(DecodedKind::Object);
                }
                encoding::message::merge(wire_type, &mut Fields { draft: self.draft }, buf, ctx)?;
            }
            6 => {
                if !matches!(self.kind, DecodedKind::List(_)) {
                    self.begin(DecodedKind::List(0));
                }
                if let DecodedKind::List(count) = self.kind {
                    encoding::message::merge(
                        wire_type,
                        &mut ListRead { draft: self.draft, count },
                        buf,
                        ctx,
                    )?;
                }
            }
            _ => encoding::skip_field(wire_type, tag, buf, ctx)?,
        }
        Ok(())
    }

    read_only!();
}

/// An open `ListValue`.
struct ListRead<'a> {
    draft: &'a mut Draft,
    count: &'a mut usize,
}

impl Message for ListRead<'_> {
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        if tag != 1 {
            return encoding::skip_field(wire_type, tag, buf, ctx);
        }
        if *self.count > 0 {
            self.draft.json.push(b',');
        }
        let index = *self.count;
        *self.count += 1;
        let before = self.draft.mismatch.take();
        let (start, mut kind) = (self.draft.json.len(), DecodedKind::Unset);
        let mut value = ValueAt { draft: self.draft, start, kind: &mut kind };
        encoding::message::merge(wire_type, &mut value, buf, ctx).map_err(in_field("ListValue", "values"))?;
        close(self.draft, kind);
        self.draft.leave(before, |mismatch| mismatch.inside_index(index));
        Ok(())
    }

    read_only!();
}

/// An open `Struct`.
struct Fields<'a> {
    draft: &'a mut Draft,
}

impl Message for Fields<'_> {
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        if tag != 1 {
            return encoding::skip_field(wire_type, tag, buf, ctx);
        }
        if self.draft.json.last() != Some(&b'{') {
            self.draft.json.push(b',');
        }
        let before = self.draft.mismatch.take();
        let start = self.draft.json.len();
        let mut entry = Entry {
            draft: self.draft,
            start,
            key: String::new(),
            value: None,
            is_late: false,
            kind: DecodedKind::Unset,
        };
        encoding::message::merge(wire_type, &mut entry, buf, ctx).map_err(in_field("Struct", "fields"))?;
        let key = entry.finish();
        self.draft.leave(before, |mismatch| mismatch.inside_key(&key));
        Ok(())
    }

    read_only!();
}

/// An entry of a `Struct`: a member.
struct Entry<'a> {
    draft: &'a mut Draft,
    /// The beginning of the member.
    start: usize,
    key: String,
    /// The beginning of its value, if there is one already.
    value: Option<usize>,
    /// The key came after the value.
    is_late: bool,
    kind: DecodedKind,
}

impl Entry<'_> {
    fn write_key(&mut self) -> usize {
        self.draft.string(&self.key);
        self.draft.json.push(b':');
        self.draft.json.len()
    }

    /// Completes the member and returns its key.
    fn finish(mut self) -> String {
        match self.value {
            None => {
                self.write_key();
            }
            Some(value) if self.is_late => {
                let text = self.draft.json.split_off(value);
                self.draft.json.truncate(self.start);
                self.write_key();
                self.draft.json.extend_from_slice(&text);
            }
            Some(_) => {}
        }
        close(self.draft, self.kind);
        self.key
    }
}

impl Message for Entry<'_> {
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => {
                self.is_late = self.value.is_some();
                encoding::string::merge(wire_type, &mut self.key, buf, ctx)
            }
            2 => {
                let start = match self.value {
                    Some(start) => start,
                    None => self.write_key(),
                };
                self.value = Some(start);
                let mut value = ValueAt { draft: self.draft, start, kind: &mut self.kind };
                encoding::message::merge(wire_type, &mut value, buf, ctx)
            }
            _ => encoding::skip_field(wire_type, tag, buf, ctx),
        }
    }

    read_only!();
}
