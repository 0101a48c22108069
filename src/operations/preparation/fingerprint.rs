//! The fingerprint: a hash of what a request asks for. It distinguishes a repeat from another request under the same
//! key.

use serde_json::Value;

use crate::domain::fingerprint::{Fingerprint, Life};
use crate::domain::meter::HoldSeconds;
use crate::operations::requests::{Mode, ReserveRequest, Work};

/// Hashes everything in the request that changes what is done, and the lifetime of the hold. `default_seconds` is the
/// lifetime of a hold that names none, where it is known.
/// Field order, white space, `2` against `"2.0"`, values made by the service and defaults do not count.
pub(in crate::operations) fn fingerprint(
    call: &str,
    request: &ReserveRequest,
    default_seconds: Option<u32>,
) -> Fingerprint {
    let mut hasher = FingerprintHasher(blake3::Hasher::new());
    hasher.text(call);
    hasher.text(request.tenant.as_str());
    let mut subjects: Vec<_> = request.subjects.iter().collect();
    subjects.sort();
    hasher.count(subjects.len());
    for subject in subjects {
        hasher.text(subject.kind.as_str());
        hasher.text(subject.id.as_str());
    }
    hasher.work(&request.work);
    hasher.text(match request.mode {
        Mode::AllOrNothing => "all_or_nothing",
        Mode::BestEffort => "best_effort",
    });
    hasher.text(request.payload_fingerprint.as_deref().unwrap_or_default());
    hasher.object(request.metadata.as_ref());
    if let Some(happened_at_ms) = request.happened_at_ms {
        hasher.text(&happened_at_ms.to_string());
    }
    let named = request.ttl.map(HoldSeconds::get);
    let life = Life {
        seconds: named.or(default_seconds).unwrap_or_default(),
        is_named: named.is_some(),
        is_default: named.is_none_or(|named| Some(named) == default_seconds),
    };
    Fingerprint::new(hasher.0.finalize().as_bytes(), life)
}

/// Whether an attribute means the same as one that is left out: it is 0 or false.
fn is_default(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

struct FingerprintHasher(blake3::Hasher);

impl FingerprintHasher {
    /// Each text is preceded by its length, so that two requests never give the same bytes.
    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.update(text.as_bytes());
    }

    fn count(&mut self, count: usize) {
        self.0.update(&u64::try_from(count).unwrap_or(u64::MAX).to_le_bytes());
    }

    fn work(&mut self, work: &Work) {
        match work {
            Work::Operation { operation, attributes } => {
                self.text("operation");
                self.text(operation.as_str());
                let said = attributes.iter().filter(|(_, value)| !is_default(value));
                self.fields(said.map(|(name, value)| (name.as_str(), value)).collect());
            }
            Work::Lines { lines, operation } => {
                self.text("lines");
                self.text(operation.as_ref().map_or("", |operation| operation.as_str()));
                let mut lines: Vec<_> = lines.iter().collect();
                lines.sort();
                self.count(lines.len());
                for (meter, amount) in lines {
                    self.text(meter.as_str());
                    self.text(&amount.to_string());
                }
            }
        }
    }

    fn object(&mut self, object: Option<&serde_json::Map<String, Value>>) {
        let Some(object) = object else { return self.count(0) };
        self.fields(object.iter().map(|(name, value)| (name.as_str(), value)).collect());
    }

    fn fields(&mut self, mut fields: Vec<(&str, &Value)>) {
        fields.sort_by_key(|(name, _)| *name);
        self.count(fields.len());
        for (name, value) in fields {
            self.text(name);
            self.value(value);
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Object(object) => {
                self.text("object");
                self.object(Some(object));
            }
            Value::Array(items) => {
                self.text("array");
                self.count(items.len());
                items.iter().for_each(|item| self.value(item));
            }
            Value::String(text) => self.text(text),
            Value::Number(number) => self.text(&number.to_string()),
            Value::Bool(flag) => self.text(if *flag { "true" } else { "false" }),
            Value::Null => self.text("null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::amount::Amount;
    use crate::domain::ids::{MeterId, TenantId};
    use crate::domain::lines::WorkLines;

    fn request(lines: &[(&str, &str)]) -> ReserveRequest {
        ReserveRequest {
            tenant: TenantId::parse("acme").unwrap(),
            subjects: Vec::new(),
            work: Work::Lines {
                lines: WorkLines::parse(
                    lines
                        .iter()
                        .map(|(meter, amount)| {
                            (MeterId::parse(meter).unwrap(), Amount::parse(amount).unwrap())
                        })
                        .collect(),
                )
                .unwrap(),
                operation: None,
            },
            ttl: None,
            mode: Mode::AllOrNothing,
            dry_run: false,
            payload_fingerprint: None,
            metadata: None,
            key: None,
            happened_at_ms: None,
            sees_all_tenants: false,
        }
    }

    fn of(request: &ReserveRequest) -> Fingerprint {
        fingerprint("reserve", request, Some(60))
    }

    #[test]
    fn the_same_meaning_has_one_fingerprint_whatever_its_bytes() {
        let one = request(&[("a", "2"), ("b", "1")]);
        let two = request(&[("b", "1.0"), ("a", "2.00")]);
        assert_eq!(of(&one), of(&two));
    }

    #[test]
    fn another_meaning_has_another_fingerprint() {
        let base = of(&request(&[("a", "2")]));
        assert!(!fingerprint("usage", &request(&[("a", "2")]), None).repeats(&base));
        assert!(!of(&request(&[("a", "3")])).repeats(&base));
        assert!(!of(&request(&[("a2", "2")])).repeats(&base));
        let at = |ms| of(&ReserveRequest { happened_at_ms: Some(ms), ..request(&[("a", "2")]) });
        assert!(!at(7).repeats(&base) && !at(7).repeats(&at(8)) && at(7).repeats(&at(7)));
        let mut with_ttl = request(&[("a", "2")]);
        with_ttl.ttl = HoldSeconds::new(30).ok();
        assert!(!of(&with_ttl).repeats(&base));
        with_ttl.ttl = HoldSeconds::new(60).ok();
        assert!(of(&with_ttl).repeats(&base));
    }

    #[test]
    fn an_attribute_of_nothing_is_as_good_as_left_out() {
        let costed = |attributes: Value| {
            let Value::Object(attributes) = attributes else { panic!("an object") };
            let operation = crate::domain::ids::OperationId::parse("ocr").unwrap();
            of(&ReserveRequest { work: Work::Operation { operation, attributes }, ..request(&[("a", "1")]) })
        };
        let base = costed(serde_json::json!({ "pages": 3 }));
        assert_eq!(base, costed(serde_json::json!({ "pages": 3, "fast": false, "images": 0 })));
        assert_ne!(base, costed(serde_json::json!({ "pages": 3, "fast": true })));
        assert_ne!(base, costed(serde_json::json!({ "pages": 3, "tier": "" })));
    }
}
