//! CloudEvents 1.0 as they are sent: structured, batch or binary. Reads attributes and data, and names what is wrong.

use std::collections::BTreeMap;

use actix_web::http::header::{self, HeaderMap};
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::{self, escaped};
use super::problem::{Code, Problem};
use crate::domain::instant::Instant;
use crate::operations::FieldError;

/// What the names of headers begin with that carry attributes.
const PREFIX: &str = "ce-";
const NO_EVENT: &str = "The body must be a CloudEvent in JSON: send `Content-Type: application/cloudevents+json` or \
                        `application/cloudevents-batch+json`, or `application/json` with the headers ce-specversion, \
                        ce-id, ce-source and ce-type.";

/// Where data stands that is no JSON.
const BASE64: &str = "/data_base64";

/// How a request carries events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentMode {
    /// The body is one event.
    Structured,
    /// The body is a list of events.
    Batch,
    /// The headers have the attributes, and the body is the data.
    Binary,
}

impl ContentMode {
    /// The mode by the content type. Attributes in headers go with JSON also where it has no type.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let unread = || Problem::new(Code::UnsupportedMediaType, NO_EVENT);
        let mut values = headers.get_all(header::CONTENT_TYPE);
        let has_attributes = headers.keys().any(|name| name.as_str().starts_with(PREFIX));
        let essence = match (values.next(), values.next()) {
            (None, _) if has_attributes => return Ok(Self::Binary),
            (Some(value), None) => essence(value.to_str().map_err(|_| unread())?),
            _ => return Err(unread()),
        };
        match essence.as_str() {
            "application/cloudevents+json" => Ok(Self::Structured),
            "application/cloudevents-batch+json" => Ok(Self::Batch),
            other if other.starts_with("application/cloudevents") => Err(unread()),
            other if is_json(other) && has_attributes => Ok(Self::Binary),
            _ => Err(unread()),
        }
    }
}

/// A media type without its parameters.
fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_json(essence: &str) -> bool {
    let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype);
    subtype == "json" || subtype.ends_with("+json")
}

/// How many wrong attributes of one event are named.
const FAULTS_MAX: usize = 20;

/// The longest id and source, in bytes: answers repeat them, and so do batches of a thousand.
const ID_BYTES_MAX: usize = 1_024;

/// An event as it came.
#[derive(Debug, Default)]
pub(super) struct SentEvent<'a> {
    attributes: BTreeMap<String, Value>,
    /// A JSON text.
    data: Option<&'a str>,
    /// What could not be read.
    unread: Vec<FieldError>,
    is_object: bool,
}

/// What an event says, whose attributes are valid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CloudEvent<'a> {
    pub(super) id: String,
    pub(super) source: String,
    pub(super) kind: String,
    /// When it happened (unix ms).
    pub(super) time_ms: Option<i64>,
    /// A JSON text.
    pub(super) data: &'a str,
}

impl<'a> SentEvent<'a> {
    /// From a JSON text; one that is no object has no attributes.
    pub(super) fn structured(text: &'a str) -> Self {
        let members: BTreeMap<String, &RawValue> = match serde_json::from_str(text) {
            Ok(members) => members,
            Err(_) => return Self::default(),
        };
        let mut sent = Self { is_object: true, ..Self::default() };
        for (name, value) in members {
            match name.as_str() {
                "data" => sent.data = Some(value.get()),
                "data_base64" => {
                    let message = "is not read: send a JSON object in `data`";
                    sent.unread.push(FieldError::new(BASE64, message));
                }
                _ => {
                    let value = serde_json::from_str(value.get()).unwrap_or_default();
                    sent.attributes.insert(name, value);
                }
            }
        }
        sent
    }

    /// From headers and a JSON text.
    pub(super) fn binary(headers: &HeaderMap, text: &'a str) -> Self {
        let mut sent = Self { data: Some(text), is_object: true, ..Self::default() };
        for name in headers.keys() {
            let Some(attribute) = name.as_str().strip_prefix(PREFIX) else { continue };
            let mut values = headers.get_all(name);
            let value = match (values.next(), values.next()) {
                (Some(value), None) => decoded(value.as_bytes()).ok_or("must be percent-encoded UTF-8"),
                _ => Err("its header comes twice"),
            };
            let value = match attribute {
                "data" | "datacontenttype" => {
                    Err("has no header of its own: it is the body or its Content-Type")
                }
                _ => value,
            };
            match value {
                Ok(value) => {
                    sent.attributes.insert(attribute.to_owned(), Value::String(value));
                }
                Err(message) => sent.unread.push(FieldError::new(pointer(attribute), message)),
            }
        }
        sent
    }

    /// The id, as far as there is one.
    pub(super) fn id(&self) -> Option<&str> {
        self.attributes.get("id").and_then(Value::as_str)
    }

    /// Checks the attributes; names every one that is wrong. Extensions are checked and left out.
    pub(super) fn read(self) -> Result<CloudEvent<'a>, Problem> {
        let faults = self.faults();
        if !faults.is_empty() {
            return Err(Problem::fields(faults));
        }
        let text = |name| self.text(name).unwrap_or_default().to_owned();
        let time_ms = self.text("time").and_then(time_ms);
        let data = self.data.unwrap_or_default();
        Ok(CloudEvent { id: text("id"), source: text("source"), kind: text("type"), time_ms, data })
    }

    /// Everything that is wrong but its data.
    fn faults(&self) -> Vec<FieldError> {
        if !self.is_object {
            return vec![FieldError::new("", "must be an object")];
        }
        let mut faults = self.unread.clone();
        let wrong = self.attributes.iter().filter_map(|(name, value)| {
            let message = check_attribute(name, value).err()?;
            Some(FieldError::new(pointer(name), message))
        });
        faults.extend(wrong.take(FAULTS_MAX));
        for name in ["specversion", "id", "source", "type"] {
            let is_named = faults.iter().any(|fault| fault.pointer == pointer(name));
            if self.text(name).is_none() && !is_named {
                faults.push(FieldError::new(pointer(name), "is required"));
            }
        }
        if self.data.is_none() && !faults.iter().any(|fault| fault.pointer == BASE64) {
            faults.push(FieldError::new("/data", "is required"));
        }
        faults
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).and_then(Value::as_str)
    }
}

fn pointer(name: &str) -> String {
    format!("/{}", escaped(name))
}

/// One attribute by the rules of CloudEvents; null is as good as absent.
fn check_attribute(name: &str, value: &Value) -> Result<(), &'static str> {
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
        return Err("is no attribute: names are lower-case letters and digits");
    }
    if value.is_null() {
        return Ok(());
    }
    let is_own = matches!(
        name,
        "specversion" | "id" | "source" | "type" | "datacontenttype" | "dataschema" | "subject" | "time"
    );
    let text = match value {
        Value::String(text) => text.as_str(),
        Value::Bool(_) if !is_own => return Ok(()),
        Value::Number(number) if !is_own => {
            let is_integer = number.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
            return if is_integer {
                Ok(())
            } else {
                Err("must be an integer of 32 bits, a text or a boolean")
            };
        }
        _ if is_own => return Err("must be a text"),
        _ => return Err("must be an integer of 32 bits, a text or a boolean"),
    };
    if text.chars().any(char::is_control) {
        return Err("must have no control characters");
    }
    if is_own && text.is_empty() {
        return Err("must not be empty");
    }
    match name {
        "id" | "source" if text.len() > ID_BYTES_MAX => Err("must be at most 1024 bytes"),
        "specversion" if text != "1.0" => Err("must be 1.0"),
        "source" | "dataschema" if !is_uri_reference(text) => Err("must be a URI reference (RFC 3986)"),
        "datacontenttype" if !is_json(&essence(text)) => Err("must be JSON, such as application/json"),
        "time" if time_ms(text).is_none() => Err("must be an RFC 3339 time such as 2027-01-01T00:00:00Z"),
        _ => Ok(()),
    }
}

/// RFC 3339 also takes a small `t` and `z`.
fn time_ms(text: &str) -> Option<i64> {
    Instant::ms_within(&text.to_ascii_uppercase())
}

/// Whether it has the characters of a URI reference, with hexadecimal digits behind each percent sign.
fn is_uri_reference(text: &str) -> bool {
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(b);
    let mut parts = text.split('%');
    let first = parts.next().unwrap_or_default();
    let is_escape = |part: &str| part.len() >= 2 && part.bytes().take(2).all(|b| b.is_ascii_hexdigit());
    first.bytes().chain(text.bytes()).all(|b| allowed(&b)) && parts.all(is_escape)
}

/// A header's value: out of its quotes, then percent-decoded once.
fn decoded(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.is_ascii())?.trim();
    let plain = unquoted(text)?;
    let mut bytes = Vec::with_capacity(plain.len());
    let mut rest = plain.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte == b'%' {
            let (digits, behind) = rest.split_at_checked(2)?;
            let digits =
                std::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(*byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The text of a quoted string (RFC 9110), or the text itself if it is bare.
fn unquoted(text: &str) -> Option<String> {
    let Some(inner) = text.strip_prefix('"') else { return Some(text.to_owned()) };
    let mut plain = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    loop {
        match characters.next()? {
            '"' => return characters.next().is_none().then_some(plain),
            '\\' => plain.push(characters.next()?),
            character => plain.push(character),
        }
    }
}

/// The events of a batch, each a JSON text.
pub(super) fn batch(text: &str) -> Result<Vec<&RawValue>, Problem> {
    serde_json::from_str(text)
        .map_err(|_| Problem::fields(vec![FieldError::new("", "must be a list of events")]))
}

/// The data as `T`, an object without unknown fields; pointers of errors start at the event.
pub(super) fn typed_data<'a, T: serde::Deserialize<'a>>(data: &'a str) -> Result<T, Problem> {
    json::typed(data).map_err(|problem| problem.map_pointers(|pointer| Some(format!("/data{pointer}"))))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    /// The pointers of what is wrong in an event.
    fn faults(event: Value) -> Vec<String> {
        let text = event.to_string();
        match SentEvent::structured(&text).read() {
            Ok(_) => Vec::new(),
            Err(problem) => {
                let document: Value = serde_json::from_slice(&problem.to_json("r")).unwrap();
                let errors = document["errors"].as_array().unwrap().iter();
                errors.map(|error| error["pointer"].as_str().unwrap().to_owned()).collect()
            }
        }
    }

    fn event() -> Value {
        json!({ "specversion": "1.0", "id": "1", "source": "/ocr", "type": "submit", "data": {} })
    }

    fn with(name: &str, value: Value) -> Value {
        let mut event = event();
        event[name] = value;
        event
    }

    #[rstest]
    #[case::structured("application/cloudevents+json; charset=UTF-8", false, Some(ContentMode::Structured))]
    #[case::batch("Application/CloudEvents-Batch+JSON", false, Some(ContentMode::Batch))]
    #[case::binary("application/json", true, Some(ContentMode::Binary))]
    #[case::binary_of_a_schema("application/vnd.ocr+json", true, Some(ContentMode::Binary))]
    #[case::no_event("application/json", false, None)]
    #[case::another_format("application/cloudevents+xml", true, None)]
    #[case::no_json("text/plain", true, None)]
    fn the_content_type_says_how_events_are_carried(
        #[case] content_type: &str,
        #[case] has_headers: bool,
        #[case] expected: Option<ContentMode>,
    ) {
        let mut given = headers(&[("content-type", content_type)]);
        if has_headers {
            given.append(HeaderName::from_static("ce-id"), HeaderValue::from_static("1"));
        }
        assert_eq!(ContentMode::of(&given).ok(), expected);
    }

    #[test]
    fn attributes_that_are_wrong_are_named() {
        assert!(faults(event()).is_empty());
        assert_eq!(faults(json!([])), [""]);
        assert_eq!(faults(json!({})), ["/specversion", "/id", "/source", "/type", "/data"]);
        for (name, value) in [
            ("specversion", json!("0.3")),
            ("specversion", json!(1.0)),
            ("id", json!("")),
            ("id", json!(7)),
            ("id", json!(null)),
            ("source", json!("a b")),
            ("source", json!("%7")),
            ("source", json!("straße")),
            ("type", json!("a\u{7}")),
            ("time", json!("yesterday")),
            ("time", json!("2026-01-01")),
            ("datacontenttype", json!("text/plain")),
            ("dataschema", json!(" ")),
            ("subject", json!("")),
            ("Extension", json!("x")),
            ("my_extension", json!("x")),
            ("extension", json!(1.5)),
            ("extension", json!(3_000_000_000_i64)),
            ("extension", json!({ "a": 1 })),
            ("data_base64", json!("e30=")),
        ] {
            assert_eq!(faults(with(name, value.clone())), [format!("/{name}")], "{name}: {value}");
        }
    }

    #[test]
    fn extensions_and_what_is_null_are_left_out() {
        for (name, value) in [
            ("traceparent", json!("00-1")),
            ("sampled", json!(true)),
            ("level7", json!(-7)),
            ("time", json!(null)),
            ("time", json!("2026-01-01t00:00:00.123456+01:00")),
            ("subject", json!("page 7")),
            ("datacontenttype", json!("application/json; charset=utf-8")),
            ("source", json!("urn:uuid:6e8bc430?x=%C3%A9#y")),
        ] {
            assert!(faults(with(name, value.clone())).is_empty(), "{name}: {value}");
        }
    }

    #[rstest]
    #[case("job-1", Some("job-1"))]
    #[case("Euro%20%E2%82%AC%20%F0%9F%98%80", Some("Euro € 😀"))]
    #[case("%2525", Some("%25"))]
    #[case("\"a \\\"b\\\" \\\\ %41\"", Some("a \"b\" \\ A"))]
    #[case("%7", None)]
    #[case("%+7", None)]
    #[case("%ff", None)]
    #[case("\"open", None)]
    fn a_header_is_decoded_once(#[case] value: &str, #[case] expected: Option<&str>) {
        assert_eq!(decoded(value.as_bytes()).as_deref(), expected);
    }

    #[test]
    fn a_binary_event_reads_as_the_structured_one() {
        let given = headers(&[
            ("ce-specversion", "1.0"),
            ("ce-id", "%31"),
            ("ce-source", "/ocr"),
            ("ce-type", "submit"),
            ("ce-time", "2026-01-01T00:00:00Z"),
            ("ce-traceparent", "00-1"),
        ]);
        let structured = with("time", json!("2026-01-01T00:00:00Z")).to_string();
        let expected = SentEvent::structured(&structured).read().unwrap();
        assert_eq!(SentEvent::binary(&given, "{}").read().unwrap(), expected);
    }

    #[test]
    fn a_header_that_comes_twice_or_is_another_ones_is_named() {
        for name in ["ce-id", "ce-datacontenttype", "ce-data"] {
            let given = headers(&[
                ("ce-specversion", "1.0"),
                ("ce-id", "1"),
                ("ce-source", "/ocr"),
                ("ce-type", "submit"),
                (name, "2"),
            ]);
            let problem = SentEvent::binary(&given, "{}").read().unwrap_err();
            let pointer = name.replace("ce-", "/");
            assert!(problem.to_string().contains(&pointer), "{problem}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_header_and_any_event_are_read_or_named(
            text in "\\PC{0,40}",
            bytes in proptest::collection::vec(0_u8.., 0..40),
        ) {
            let _ = decoded(&bytes);
            let event = with(&text, json!(text)).to_string();
            let _ = SentEvent::structured(&event).read();
            let _ = SentEvent::structured(&text).read();
        }
    }
}
