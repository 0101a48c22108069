//! Idempotency keys: from the `Idempotency-Key` header, bare or quoted, or from the body.

use actix_web::http::header::{HeaderMap, HeaderName};

use super::problem::Problem;
use crate::domain::ids::IdempotencyKey;

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The call's key, from the header or the body; given twice they must agree.
pub(super) fn key_of(
    headers: &HeaderMap,
    in_body: Option<IdempotencyKey>,
) -> Result<Option<IdempotencyKey>, Problem> {
    match (from_header(headers)?, in_body) {
        (Some(header), Some(body)) if header != body => Err(Problem::invalid(
            "The Idempotency-Key header and the idempotency_key field differ; send one of them.",
        )),
        (header, body) => Ok(header.or(body)),
    }
}

fn from_header(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Problem> {
    let mut values = headers.get_all(HEADER);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::invalid("The Idempotency-Key header comes twice; send it once."));
    }
    let malformed =
        || Problem::invalid("The Idempotency-Key header must be 1 to 255 printable ASCII characters.");
    let text = value.to_str().map_err(|_| malformed())?.trim();
    let text = unquoted(text).ok_or_else(malformed)?;
    IdempotencyKey::parse(&text).map(Some).map_err(|_| malformed())
}

/// The text of a quoted string (RFC 9651), or the text itself if it is bare; none if a quote is left open.
fn unquoted(text: &str) -> Option<String> {
    let Some(rest) = text.strip_prefix('"') else { return Some(text.to_owned()) };
    let mut plain = String::with_capacity(rest.len());
    let mut characters = rest.chars();
    loop {
        match characters.next()? {
            '"' => return characters.next().is_none().then_some(plain),
            '\\' => plain.push(characters.next().filter(|c| matches!(c, '"' | '\\'))?),
            character => plain.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;
    use rstest::rstest;

    use super::*;

    fn headers(text: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.append(HEADER, HeaderValue::from_str(text).unwrap());
        headers
    }

    #[rstest]
    #[case("job-1", "job-1")]
    #[case("\"job-1\"", "job-1")]
    #[case("\"a \\\"b\\\" \\\\\"", "a \"b\" \\")]
    #[case("a\"b", "a\"b")]
    fn a_key_may_be_bare_or_quoted(#[case] text: &str, #[case] key: &str) {
        assert_eq!(key_of(&headers(text), None).unwrap().unwrap().as_str(), key);
    }

    #[rstest]
    #[case("\"open")]
    #[case("\"a\"b")]
    #[case("\"\"")]
    #[case("")]
    #[case("\"a\\n\"")]
    fn a_broken_key_is_400(#[case] text: &str) {
        assert_eq!(key_of(&headers(text), None).unwrap_err().code(), "invalid_request");
    }

    #[test]
    fn a_key_of_more_than_255_characters_is_400() {
        assert!(key_of(&headers(&"k".repeat(255)), None).is_ok());
        assert!(key_of(&headers(&"k".repeat(256)), None).is_err());
    }

    #[test]
    fn header_and_body_must_agree() {
        let body = |text| Some(IdempotencyKey::parse(text).unwrap());
        assert!(key_of(&headers("a"), body("a")).unwrap().is_some());
        assert_eq!(key_of(&headers("a"), body("b")).unwrap_err().code(), "invalid_request");
        assert_eq!(key_of(&HeaderMap::new(), body("b")).unwrap(), body("b"));
        assert_eq!(key_of(&HeaderMap::new(), None).unwrap(), None);
        let mut twice = headers("a");
        twice.append(HEADER, HeaderValue::from_static("a"));
        assert!(key_of(&twice, None).is_err());
    }
}
