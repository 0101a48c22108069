//! The caller's notes, stored as JSON: a number that would come back changed is refused.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::http::json::escaped;
use crate::operations::FieldError;

const KEYS_MAX: usize = 50;
pub(super) const BYTES_MAX: usize = 8 * 1024;

/// The notes as sent, with their faults.
#[derive(Debug, Clone, Default)]
pub(in crate::http) struct Metadata {
    notes: Map<String, Value>,
    /// Pointers to numbers that cannot be kept.
    inexact: Vec<String>,
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let notes = serde_json::from_str(text.get()).map_err(|_| D::Error::custom("must be an object"))?;
        let mut inexact = Vec::new();
        find_inexact(text.get(), "/metadata", &mut inexact);
        Ok(Self { notes, inexact })
    }
}

impl Metadata {
    /// The notes; every fault is noted.
    pub(super) fn checked(self, faults: &mut Vec<FieldError>) -> Map<String, Value> {
        if self.notes.len() > KEYS_MAX {
            faults.push(FieldError::new("/metadata", format!("must be at most {KEYS_MAX} keys")));
        }
        if serde_json::to_vec(&self.notes).is_ok_and(|bytes| bytes.len() > BYTES_MAX) {
            faults.push(FieldError::new("/metadata", format!("must be at most {BYTES_MAX} bytes")));
        }
        let message = "is a number with more digits than can be kept; send it as a string";
        faults.extend(self.inexact.into_iter().map(|pointer| FieldError::new(pointer, message)));
        self.notes
    }
}

/// Finds numbers that would come back changed. The text is well-formed and not deeply nested.
fn find_inexact(text: &str, pointer: &str, inexact: &mut Vec<String>) {
    match text.bytes().next() {
        Some(b'{') => {
            let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(text).unwrap_or_default();
            for (name, value) in members {
                find_inexact(value.get(), &format!("{pointer}/{}", escaped(&name)), inexact);
            }
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            for (index, value) in items.into_iter().enumerate() {
                find_inexact(value.get(), &format!("{pointer}/{index}"), inexact);
            }
        }
        Some(b'-' | b'0'..=b'9') => {
            let kept = serde_json::from_str::<Value>(text).map(|value| value.to_string()).unwrap_or_default();
            if decimal(&kept).is_none_or(|kept| decimal(text) != Some(kept)) {
                inexact.push(pointer.to_owned());
            }
        }
        _ => {}
    }
}

/// The value of a JSON number: its sign, its digits without leading and trailing zeros, and the power of ten of the
/// last digit.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (is_negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, power) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let moved = i64::try_from(digits.len() - significant.len()).ok()? - i64::try_from(fraction.len()).ok()?;
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return Some((false, String::new(), 0));
    }
    Some((is_negative, significant.to_owned(), power.parse::<i64>().ok()?.checked_add(moved)?))
}
