//! Versions of policy objects: `ETag` on the way out, `If-Match` on the way in.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::{HttpResponse, HttpResponseBuilder};
use serde_json::Value;

use super::answer::json;
use super::problem::Problem;
use crate::operations::answers::StoredDefinition;
use crate::operations::requests::Precondition;

/// What `If-Match` asks for: the version of one strong tag as an `ETag` gave it, or with `*` any.
pub(super) fn if_match(headers: &HeaderMap) -> Result<Precondition, Problem> {
    let mut values = headers.get_all(header::IF_MATCH);
    let Some(value) = values.next() else { return Ok(Precondition::Nothing) };
    let text = value.to_str().unwrap_or_default().trim();
    let version = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .filter(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok());
    match (text, version, values.next()) {
        ("*", _, None) => Ok(Precondition::Present),
        (_, Some(version), None) => Ok(Precondition::Version(version)),
        _ => Err(Problem::invalid("If-Match must be * or one ETag as an answer gave it, such as \"7\".")),
    }
}

/// The precondition of a PUT: the version that `If-Match` names, or with `If-None-Match: *` that no object exists.
pub(super) fn precondition(headers: &HeaderMap) -> Result<Precondition, Problem> {
    let matching = if_match(headers)?;
    let mut values = headers.get_all(header::IF_NONE_MATCH);
    match (values.next(), values.next(), matching) {
        (None, _, matching) => Ok(matching),
        (Some(value), None, Precondition::Nothing) if value == "*" => Ok(Precondition::Absent),
        (Some(_), _, Precondition::Nothing) => {
            Err(Problem::invalid("If-None-Match must be *, which makes an object only where there is none."))
        }
        (Some(_), _, _) => Err(Problem::invalid("Send either If-Match or If-None-Match.")),
    }
}

/// The precondition of a DELETE: the version that `If-Match` names.
pub(super) fn deletion(headers: &HeaderMap) -> Result<Precondition, Problem> {
    no_if_none_match(headers)?;
    if_match(headers)
}

/// Refuses preconditions on a call that has none.
pub(super) fn no_precondition(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::IF_MATCH) {
        return Err(Problem::invalid("If-Match is not served for this call; leave it out."));
    }
    no_if_none_match(headers)
}

/// Refuses `If-None-Match` on a call that needs an existing object.
pub(super) fn no_if_none_match(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::IF_NONE_MATCH) {
        return Err(Problem::invalid("If-None-Match is not served for this call; leave it out."));
    }
    Ok(())
}

/// An object with its `version` and `ETag`: 201 if it is new, otherwise 200.
pub(super) fn versioned(answer: StoredDefinition) -> Result<HttpResponse, Problem> {
    let status = if answer.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut definition = answer.definition;
    if let Value::Object(fields) = &mut definition {
        fields.insert("version".to_owned(), Value::from(answer.version));
    }
    let mut response = json(HttpResponseBuilder::new(status), &definition)?;
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", answer.version)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_is_a_star_or_one_strong_tag() {
        let with = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_MATCH, HeaderValue::from_str(text).unwrap());
            if_match(&headers)
        };
        assert_eq!(with("\"7\"").unwrap(), Precondition::Version(7));
        assert_eq!(with("*").unwrap(), Precondition::Present);
        assert_eq!(if_match(&HeaderMap::new()).unwrap(), Precondition::Nothing);
        for bad in
            ["7", "W/\"7\"", "*, \"7\"", "\"\"", "\"+7\"", "\"7\", \"8\"", "\"99999999999999999999999\"", ""]
        {
            assert_eq!(with(bad).unwrap_err().code(), "invalid_request", "{bad}");
        }
    }
    #[test]
    fn if_none_match_is_a_star_alone() {
        let with = |pairs: &[(header::HeaderName, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name.clone(), HeaderValue::from_static(value));
            }
            precondition(&headers)
        };
        assert_eq!(with(&[]).unwrap(), Precondition::Nothing);
        assert_eq!(with(&[(header::IF_MATCH, "\"7\"")]).unwrap(), Precondition::Version(7));
        assert_eq!(with(&[(header::IF_NONE_MATCH, "*")]).unwrap(), Precondition::Absent);
        for bad in [
            &[(header::IF_NONE_MATCH, "\"7\"")][..],
            &[(header::IF_NONE_MATCH, "*"), (header::IF_NONE_MATCH, "*")],
            &[(header::IF_NONE_MATCH, "*"), (header::IF_MATCH, "\"7\"")],
        ] {
            assert_eq!(with(bad).unwrap_err().code(), "invalid_request", "{bad:?}");
        }
    }
}
