//! Strict JSON: the first pass refuses malformed text (400), the second reads types and names wrong fields (422).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_path_to_error::Segment;

use super::problem::Problem;
use crate::domain::field_error::{field_and_message, in_plain_words};
use crate::operations::FieldError;

/// How deep objects and arrays may be nested.
const DEPTH_MAX: usize = 16;

/// Messages quote what was sent; longer messages are cut.
const MESSAGE_MAX: usize = 300;

/// A JSON object read as `T`: structs alone would also accept an array of their fields.
#[derive(Debug, Clone, Default)]
pub(super) struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// A field that may be null, which means the same as leaving it out.
pub(super) fn or_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The text of a well-formed JSON document: UTF-8, no duplicate keys, no NUL, at most sixteen levels deep.
pub(super) fn well_formed(bytes: &[u8]) -> Result<&str, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|_| Problem::invalid("The body is not UTF-8."))?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Scan { depth: 0 }.deserialize(&mut deserializer).and_then(|()| deserializer.end()).map_err(|error| {
        Problem::invalid(format!("The body is not valid JSON: {}.", cut(error.to_string())))
    })?;
    Ok(text)
}

/// Reads a well-formed object, or a part of a document, as `T`. Errors name a wrong type, value or unknown field by its
/// JSON pointer from there.
pub(super) fn typed<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Problem> {
    // Tracking the path costs as much as reading: only a wrong body is read again with it.
    if let Ok(Object(value)) = serde_json::from_str(text) {
        return Ok(value);
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut deserializer)
        .map(|Object(value)| value)
        .map_err(|error| Problem::fields(vec![field_error(&error)]))
}

fn field_error(error: &serde_path_to_error::Error<serde_json::Error>) -> FieldError {
    let mut pointer = String::new();
    for segment in error.path().iter() {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } => pointer.push_str(&format!("/{}", escaped(key))),
            Segment::Enum { variant } => pointer.push_str(&format!("/{}", escaped(variant))),
            Segment::Unknown => {}
        }
    }
    let text = error.inner().to_string();
    let message = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    let (field, message) = field_and_message(message);
    if let Some(field) = field {
        pointer.push_str(&format!("/{field}"));
    }
    FieldError::new(cut(pointer), cut(in_plain_words(message)))
}

/// A key as a JSON pointer writes it (RFC 6901).
pub(super) fn escaped(key: &str) -> Cow<'_, str> {
    if key.contains(['~', '/']) {
        Cow::Owned(key.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(key)
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MESSAGE_MAX {
        let end = (0..=MESSAGE_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Walks a document without storing it.
#[derive(Clone, Copy)]
struct Scan {
    depth: usize,
}

impl Scan {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth >= DEPTH_MAX {
            return Err(E::custom(format_args!("it is nested deeper than {DEPTH_MAX} levels")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

fn without_nul<E: serde::de::Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') { Err(E::custom("a string contains U+0000")) } else { Ok(()) }
}

impl<'de> DeserializeSeed<'de> for Scan {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Scan {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        without_nul(text)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        while items.next_element_seed(inner)?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        let mut seen = BTreeSet::new();
        while let Some(key) = members.next_key_seed(Key)? {
            without_nul(&key)?;
            members.next_value_seed(inner)?;
            if let Some(duplicate) = seen.replace(key) {
                return Err(A::Error::custom(format_args!("the field `{duplicate}` comes twice")));
            }
        }
        Ok(())
    }
}

/// A member's name, borrowed if it has no escapes.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }
    fn visit_str<E>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::StatusCode;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its reading is tested")]
    struct Sample {
        name: Option<String>,
        count: Option<u32>,
        parts: Option<Vec<Object<Part>>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its reading is tested")]
    struct Part {
        size: u8,
    }

    fn error(json: &str) -> (StatusCode, String) {
        let problem = well_formed(json.as_bytes()).and_then(typed::<Sample>).expect_err(json);
        let document: serde_json::Value = serde_json::from_slice(&problem.to_json("r")).unwrap();
        (problem.status(), document["errors"][0]["pointer"].as_str().unwrap_or("-").to_owned())
    }

    #[test]
    fn what_is_malformed_is_400() {
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let deep_member = format!("{{\"name\":{}1{}}}", "[".repeat(16), "]".repeat(16));
        for json in [
            "",
            "{",
            "nonsense",
            "{\"count\":NaN}",
            "{\"count\":1e999}",
            "{\"count\":Infinity}",
            "{'name':1}",
            "{\"name\":\"a\",\"name\":\"b\"}",
            "{\"parts\":[{\"size\":1,\"size\":2}]}",
            "{\"n\\u0061me\":1,\"name\":1}",
            "{\"name\":\"a\\u0000b\"}",
            "{\"a\\u0000\":1}",
            "{\"name\":\"\\ud800\"}",
            "{} {}",
            "{\"count\":01}",
            &deep,
            &deep_member,
            &"[".repeat(100_000),
        ] {
            assert_eq!(error(json).0, StatusCode::BAD_REQUEST, "{}", &json[..json.len().min(40)]);
        }
        assert!(well_formed(b"{\"name\":\"\xff\"}").is_err());
        let sixteen = format!("{}{}", "[".repeat(16), "]".repeat(16));
        assert!(well_formed(sixteen.as_bytes()).is_ok());
    }

    #[test]
    fn what_is_well_formed_and_wrong_is_422_and_named() {
        for (json, pointer) in [
            ("{\"count\":\"1\"}", "/count"),
            ("{\"count\":-1}", "/count"),
            ("{\"count\":1.5}", "/count"),
            ("{\"colour\":1}", "/colour"),
            ("{\"a/b~c\":1}", "/a~1b~0c"),
            ("{\"parts\":[{\"size\":1},{\"size\":256}]}", "/parts/1/size"),
            ("{\"parts\":[{\"length\":1}]}", "/parts/0/length"),
            ("{\"parts\":[{}]}", "/parts/0/size"),
            ("{\"parts\":[[1]]}", "/parts/0"),
            ("{\"parts\":{}}", "/parts"),
            ("[]", ""),
            ("[\"name\",1,null]", ""),
            ("null", ""),
            ("\"text\"", ""),
            ("3", ""),
        ] {
            assert_eq!(error(json), (StatusCode::UNPROCESSABLE_ENTITY, pointer.to_owned()), "{json}");
        }
    }

    #[test]
    fn long_input_is_not_repeated_in_full() {
        let json = format!("{{\"count\":\"{}\"}}", "é".repeat(20_000));
        let problem = typed::<Sample>(&json).unwrap_err();
        assert!(problem.to_json("r").len() < 2_000);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            if let Ok(text) = well_formed(&bytes) {
                let _ = typed::<Sample>(text);
            }
        }

        #[test]
        fn any_json_like_text_is_read_or_refused(text in "[\\[\\]{}\",:0-9eE+.\\-a-z\\\\u ]{0,80}") {
            if let Ok(text) = well_formed(text.as_bytes()) {
                let _ = typed::<Sample>(text);
            }
        }
    }
}
