//! Errors of documents, field by field, and how a decoder's message becomes one.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::objects::Objects;

/// One error of one field, or a warning about it: where it is and how to correct it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[error("{pointer}: {message}")]
pub struct FieldError {
    /// A JSON pointer (RFC 6901) to the field; empty for the whole document.
    pub pointer: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl FieldError {
    /// An error at `pointer`.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }

    /// The same error in a larger document that has this one at `prefix`.
    pub fn under(mut self, prefix: &str) -> Self {
        self.pointer.insert_str(0, prefix);
        self
    }
}

/// `pointer` with one more step, escaped according to RFC 6901.
pub fn child(pointer: &str, step: &str) -> String {
    format!("{pointer}/{}", step.replace('~', "~0").replace('/', "~1"))
}

/// Reads a JSON value into a document, its objects by their names alone; the error points at the field that is wrong.
pub fn read_json<T: DeserializeOwned>(value: &serde_json::Value) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(Objects(value)).map_err(from_path_error)
}

/// Reads a TOML text into a document in the same way.
pub fn read_toml<T: DeserializeOwned>(text: &str) -> Result<T, FieldError> {
    let decoder = toml::Deserializer::parse(text).map_err(|e| FieldError::new("", words(&e).1))?;
    serde_path_to_error::deserialize(Objects(decoder)).map_err(from_path_error)
}

fn from_path_error<E: std::fmt::Display>(error: serde_path_to_error::Error<E>) -> FieldError {
    use serde_path_to_error::Segment;
    let pointer = error.path().iter().fold(String::new(), |pointer, segment| match segment {
        Segment::Seq { index } => child(&pointer, &index.to_string()),
        Segment::Map { key } => child(&pointer, key),
        Segment::Enum { variant } => child(&pointer, variant),
        Segment::Unknown => pointer,
    });
    let (field, message) = words(error.inner());
    let pointer = field.map_or_else(|| pointer.clone(), |field| child(&pointer, &field));
    FieldError::new(pointer, message)
}

/// The field that a decoder's message is about, where it names one, and its words on one line.
fn words(error: &dyn std::fmt::Display) -> (Option<String>, String) {
    let (text, mut about) = (error.to_string(), None);
    let mut lines = Vec::new();
    for line in text.trim().lines() {
        let (field, message) = field_and_message(line);
        about = about.or(field.map(str::to_owned));
        lines.push(in_plain_words(message));
    }
    (about, lines.join("; "))
}

/// The message of a decoder about a field of the object that it reads, in the form of [`field_and_message`].
pub(super) fn about(field: &str, message: impl std::fmt::Display) -> String {
    format!("`{field}`: {message}")
}

/// The field of an object that a decoder's message is about, where it names one, and the message alone. A decoder knows
/// the object's place only: what is missing has none of its own.
pub fn field_and_message(message: &str) -> (Option<&str>, &str) {
    let named = message.strip_prefix('`').and_then(|rest| rest.split_once("`: "));
    if let Some((field, message)) = named.filter(|(field, _)| is_field(field)) {
        return (Some(field), message);
    }
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    (missing.filter(|field| is_field(field)), message)
}

fn is_field(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Names of Rust's types in decoders' messages, and the words for callers.
const PLAIN_WORDS: [(&str, &str); 11] = [
    ("value", "one of the words that this field takes, as a text"),
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number, zero or more"),
    ("usize", "a whole number, zero or more"),
    ("i32", "a whole number from -2147483648 to 2147483647"),
    ("i64", "a whole number"),
    ("f64", "a number"),
    ("a sequence", "a list"),
    ("a map", "an object"),
];

/// A decoder's message without names of Rust's types.
pub fn in_plain_words(message: &str) -> String {
    let Some((before, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let plain = PLAIN_WORDS.iter().find(|(name, _)| *name == expected).map(|(_, words)| *words);
    let plain = plain.or_else(|| expected.starts_with("struct ").then_some("an object"));
    plain.map_or_else(|| message.to_owned(), |plain| format!("{before}expected {plain}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[serde(rename = "count")]
        _count: u8,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(rename = "inner")]
        _inner: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(try_from = "Inner")]
    struct Odd;

    impl TryFrom<Inner> for Odd {
        type Error = String;
        fn try_from(inner: Inner) -> Result<Self, String> {
            if inner._count % 2 == 1 { Ok(Self) } else { Err(about("count", "must be odd")) }
        }
    }

    #[test]
    fn a_message_that_names_its_field_is_pointed_at() {
        let value = serde_json::json!([{ "count": 1 }, { "count": 2 }]);
        let error = read_json::<Vec<Odd>>(&value).unwrap_err();
        assert_eq!(error, FieldError::new("/1/count", "must be odd"));
        let error = read_json::<Outer>(&serde_json::json!({ "inner": [{}] })).unwrap_err();
        assert_eq!(error, FieldError::new("/inner/0/count", "missing field `count`"));
        let error = read_toml::<std::collections::BTreeMap<String, Odd>>("a = { count = 2 }").unwrap_err();
        assert_eq!(error.pointer, "/a/count");
        assert!(error.message.ends_with("must be odd"), "{error}");
        for other in ["unknown field `a`, expected `b`", "`a b`: c", "``: c", "`a` is given twice", ""] {
            assert_eq!(field_and_message(other), (None, other));
        }
    }

    #[test]
    fn a_wrong_field_is_pointed_at() {
        let value = serde_json::json!({ "inner": [{ "count": 1 }, { "count": "x" }] });
        assert_eq!(read_json::<Outer>(&value).unwrap_err().pointer, "/inner/1/count");
        let error = read_toml::<Outer>("[[inner]]\ncount = 1\n[[inner]]\ncount = 900\n").unwrap_err();
        assert_eq!(error.pointer, "/inner/1/count");
        assert!(read_toml::<Outer>("inner = [").unwrap_err().pointer.is_empty());
    }

    #[test]
    fn an_array_in_the_place_of_an_object_is_pointed_at() {
        let value = serde_json::json!({ "inner": [{ "count": 1 }, [1]] });
        let error = read_json::<Outer>(&value).unwrap_err();
        assert_eq!(error, FieldError::new("/inner/1", "invalid type: sequence, expected an object"));
        let error = read_toml::<Outer>("inner = [{ count = 1 }, [1]]").unwrap_err();
        assert_eq!(error.pointer, "/inner/1");
        assert!(error.message.ends_with("invalid type: sequence, expected an object"), "{error}");
    }

    #[rstest::rstest]
    #[case(serde_json::json!({ "inner": [{ "count": -1 }] }), "integer `-1`, expected a whole number from 0 to 255")]
    #[case(serde_json::json!({ "inner": [{ "count": "x" }] }), "string \"x\", expected a whole number from 0 to 255")]
    #[case(serde_json::json!({ "inner": [true] }), "boolean `true`, expected an object")]
    #[case(serde_json::json!({ "inner": 1 }), "integer `1`, expected a list")]
    fn no_type_of_rust_is_named(#[case] value: serde_json::Value, #[case] words: &str) {
        let error = read_json::<Outer>(&value).unwrap_err();
        assert!(error.message.ends_with(words), "{error}");
    }

    #[test]
    fn an_unknown_field_is_named() {
        let value = serde_json::json!({ "inner": [], "a/b": 1 });
        let error = read_json::<Outer>(&value).unwrap_err();
        assert!(error.message.contains("a/b"), "{error}");
    }

    #[test]
    fn a_pointer_escapes_what_it_must() {
        assert_eq!(child("/x", "a/b~c"), "/x/a~1b~0c");
        assert_eq!(FieldError::new("/id", "is taken").under("/plans/0").to_string(), "/plans/0/id: is taken");
    }
}
