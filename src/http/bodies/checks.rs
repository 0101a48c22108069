//! Checks of fields, alone and together; every fault is named by its field.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{LineBodies, LineBody};
use crate::domain::amount::Amount;
use crate::domain::ids::{MeterId, OperationId, Subject, SubjectId, SubjectKind};
use crate::domain::lines::{Lines, WorkLines};
use crate::domain::meter::{HoldSeconds, TTL_SECONDS_MAX};
use crate::domain::reservation::SUBJECTS_MAX;
use crate::domain::resolution::Totals;
use crate::http::json::{Object, escaped};
use crate::http::problem::Problem;
use crate::operations::FieldError;
use crate::operations::requests::Work;

const ATTRIBUTES_MAX: usize = 50;
const TEXT_CHARACTERS_MAX: usize = 255;
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// The three ways of naming the work; a call uses exactly one.
pub(super) struct WorkForms {
    pub(super) operation: Option<OperationId>,
    pub(super) attributes: Option<Map<String, Value>>,
    pub(super) lines: LineBodies,
    pub(super) meter: Option<MeterId>,
    pub(super) amount: Option<Amount>,
}

impl WorkForms {
    /// The work; nothing if a fault was noted.
    pub(super) fn work(self, faults: &mut Vec<FieldError>) -> Option<Work> {
        let by_line = self.meter.is_some() || self.amount.is_some();
        if by_line && self.lines.is_some() {
            faults
                .push(FieldError::new("/lines", "name the amounts once: `lines`, or `meter` with `amount`"));
        }
        if self.attributes.is_some() && (by_line || self.lines.is_some()) {
            faults.push(FieldError::new(
                "/attributes",
                "belong to an operation that is costed, not to amounts",
            ));
        }
        match (self.lines, self.meter, self.amount) {
            (Some(lines), ..) => {
                let lines = WorkLines::parse(amounts(lines)).map_err(|wrong| faults.extend(wrong)).ok()?;
                Some(Work::Lines { lines, operation: self.operation })
            }
            (None, Some(meter), Some(amount)) => {
                let lines = WorkLines::parse(vec![(meter, amount)]).map_err(|wrong| {
                    faults.extend(wrong.into_iter().map(|error| FieldError::new("/amount", error.message)));
                });
                Some(Work::Lines { lines: lines.ok()?, operation: self.operation })
            }
            (None, Some(_), None) => missing(faults, "/amount", "is required with `meter`"),
            (None, None, Some(_)) => missing(faults, "/meter", "is required with `amount`"),
            (None, None, None) => {
                let attributes = self.attributes.unwrap_or_default();
                check_attributes(&attributes, faults);
                let Some(operation) = self.operation else {
                    return missing(
                        faults,
                        "/operation",
                        "name the work: `operation`, `lines`, or `meter` with `amount`",
                    );
                };
                Some(Work::Operation { operation, attributes })
            }
        }
    }
}

fn missing(faults: &mut Vec<FieldError>, pointer: &str, message: &str) -> Option<Work> {
    faults.push(FieldError::new(pointer, message));
    None
}

/// A problem of one field.
pub(super) fn wrong(pointer: &str, message: &str) -> Problem {
    Problem::fields(vec![FieldError::new(pointer, message)])
}

/// The value, unless there are faults.
pub(super) fn sound<T>(value: T, faults: Vec<FieldError>) -> Result<T, Problem> {
    if faults.is_empty() { Ok(value) } else { Err(Problem::fields(faults)) }
}

/// Totals by meter; none where a fault was noted.
pub(super) fn checked_totals(lines: Vec<Object<LineBody>>, faults: &mut Vec<FieldError>) -> Totals {
    let lines = Lines::parse(amounts(lines)).map_err(|wrong| faults.extend(wrong));
    lines.map_or(Totals::Default, |lines| Totals::ByMeter(lines.into_inner()))
}

fn amounts(lines: Vec<Object<LineBody>>) -> Vec<(MeterId, Amount)> {
    lines.into_iter().map(|Object(line)| (line.meter, line.amount)).collect()
}

/// The subjects, named in one way.
pub(super) fn checked_subjects(
    subject: Option<SubjectId>,
    subjects: Option<BTreeMap<SubjectKind, SubjectId>>,
    faults: &mut Vec<FieldError>,
) -> Vec<Subject> {
    match (subject, subjects) {
        (Some(_), Some(_)) => {
            faults.push(FieldError::new("/subject", "name the subjects once: `subject` or `subjects`"));
            Vec::new()
        }
        (Some(id), None) => vec![Subject { kind: SubjectKind::user(), id }],
        (None, Some(subjects)) if subjects.len() > SUBJECTS_MAX => {
            faults.push(FieldError::new("/subjects", format!("must be at most {SUBJECTS_MAX} subjects")));
            Vec::new()
        }
        (None, subjects) => {
            subjects.unwrap_or_default().into_iter().map(|(kind, id)| Subject { kind, id }).collect()
        }
    }
}

/// Attributes feed exact cost rules: no fractions as JSON numbers, no nesting.
pub(super) fn check_attributes(attributes: &Map<String, Value>, faults: &mut Vec<FieldError>) {
    if attributes.len() > ATTRIBUTES_MAX {
        faults.push(FieldError::new("/attributes", format!("must be at most {ATTRIBUTES_MAX} attributes")));
    }
    for (name, value) in attributes {
        let message = match value {
            Value::Bool(_) | Value::String(_) => continue,
            Value::Number(number) if number.as_u64().is_some_and(|n| n <= INTEGER_MAX) => continue,
            Value::Number(number) if number.as_i64().is_some_and(|n| n < 0) => "must not be negative",
            Value::Number(_) => "must be an integer below 2^53, or a decimal string",
            _ => "must be a number, a boolean or a text",
        };
        faults.push(FieldError::new(format!("/attributes/{}", escaped(name)), message));
    }
}

/// A short text of one line.
pub(super) fn check_text(text: Option<&str>, pointer: &str, faults: &mut Vec<FieldError>) {
    let is_fine = |text: &str| {
        (1..=TEXT_CHARACTERS_MAX).contains(&text.chars().count()) && !text.chars().any(char::is_control)
    };
    if text.is_some_and(|text| !is_fine(text)) {
        let message = format!("must be 1 to {TEXT_CHARACTERS_MAX} characters without control characters");
        faults.push(FieldError::new(pointer, message));
    }
}

/// A life in seconds, if it is given; the error says which numbers are allowed.
pub(super) fn ttl_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let Some(given) = Option::<Value>::deserialize(deserializer)? else { return Ok(None) };
    let wrong = || D::Error::custom(format!("must be a whole number from 1 to {TTL_SECONDS_MAX}"));
    given.as_u64().map(|seconds| Some(u32::try_from(seconds).unwrap_or(u32::MAX))).ok_or_else(wrong)
}

/// How long a hold is asked to live; nothing if a fault was noted.
pub(super) fn checked_ttl(seconds: Option<u32>, faults: &mut Vec<FieldError>) -> Option<HoldSeconds> {
    HoldSeconds::new(seconds?).map_err(|message| faults.push(FieldError::new("/ttl_seconds", message))).ok()
}
