//! Problem documents of the service, put into words with what to do next.

use serde::Deserialize;

use super::failure::{Exit, Failure};
use crate::domain::field_error::FieldError;

#[derive(Debug, Default, Deserialize)]
struct Problem {
    #[serde(default)]
    code: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    request_id: String,
    #[serde(default)]
    errors: Vec<FieldProblem>,
}

#[derive(Debug, Deserialize)]
struct FieldProblem {
    #[serde(default)]
    pointer: String,
    #[serde(default)]
    message: String,
}

/// What an answer outside 2xx means for a command about `what` (a path or an object's name).
pub(super) fn failure(what: &str, status: u16, body: &[u8]) -> Failure {
    let problem: Problem = serde_json::from_slice(body).unwrap_or_default();
    let exit = if status == 503 { Exit::Unreachable } else { Exit::Failure };
    let failure = Failure::new(message(what, status, &problem)).exit(exit);
    match remedy(status, &problem.code) {
        Some(remedy) => failure.remedy(remedy),
        None => failure,
    }
}

/// The fields that a problem document names.
pub(super) fn field_errors(body: &[u8]) -> Vec<FieldError> {
    let problem: Problem = serde_json::from_slice(body).unwrap_or_default();
    let detail = problem.detail;
    let named: Vec<_> =
        problem.errors.into_iter().map(|error| FieldError::new(error.pointer, error.message)).collect();
    if named.is_empty() { vec![FieldError::new("", detail)] } else { named }
}

fn message(what: &str, status: u16, problem: &Problem) -> String {
    let words = [&problem.detail, &problem.title].into_iter().find(|text| !text.is_empty());
    let words = words.map_or("the service gave no reason", String::as_str);
    let code = if problem.code.is_empty() { String::new() } else { format!(" {}", problem.code) };
    let mut text = format!("{what}: {words} ({status}{code})");
    for error in &problem.errors {
        let field = if error.pointer.is_empty() { "the whole body" } else { &error.pointer };
        text.push_str(&format!("\n  {field}: {}", error.message));
    }
    if status >= 500 && !problem.request_id.is_empty() {
        text.push_str(&format!("\n  request {}", problem.request_id));
    }
    text
}

fn remedy(status: u16, code: &str) -> Option<&'static str> {
    match (status, code) {
        (401, _) => Some("pass a valid key with --key, TOLLGATE_KEY or TOLLGATE_ADMIN_KEY"),
        (403, _) => Some("use a key with a role that may do this; for policy and keys that is admin"),
        (404, "") => Some("check --url: this does not look like a Tollgate service"),
        (409, "in_use") => Some("set archived = true on it instead of deleting it"),
        (412, _) => Some("somebody changed it meanwhile: look at `tollgate policy diff` and apply again"),
        (429, _) => Some("wait and try again"),
        (503, _) => Some("try again in a moment; `tollgate status` says what is missing"),
        (500.., _) => Some("the service's log has the cause under this request"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_the_fields_and_what_to_do() {
        let body = br#"{"type":"/problems/validation_failed","title":"Not valid","status":422,"code":"validation_failed",
            "detail":"the body is not valid","errors":[{"pointer":"/capacity","message":"must not be negative"}]}"#;
        let text = failure("limits ocr-day", 422, body).to_string();
        assert_eq!(
            text,
            "error: limits ocr-day: the body is not valid (422 validation_failed)\n  /capacity: must not be negative"
        );
        let missing_key = failure("GET /v1/admin/keys", 401, b"");
        assert!(missing_key.to_string().contains("next: pass a valid key"), "{missing_key}");
        assert_eq!(failure("x", 503, b"{}").exit, Exit::Unreachable);
        assert!(failure("x", 404, b"<html>").to_string().contains("check --url"));
    }
}
