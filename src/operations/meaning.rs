//! What a request means, whatever its bytes: the fingerprint that tells a repeat from another request under the same key.

use serde_json::Value;

use super::requests::{Mode, ReserveRequest, Work};

/// The first 16 bytes of a hash over everything in the request that changes what is done.
/// Field order, white space, `2` against `"2.0"` and values made by the service do not count.
pub(super) fn fingerprint(call: &str, request: &ReserveRequest) -> [u8; 16] {
    let mut hasher = Meaning(blake3::Hasher::new());
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
    hasher.text(&request.ttl_seconds.map(|ttl| ttl.to_string()).unwrap_or_default());
    hasher.text(match request.mode {
        Mode::AllOrNothing => "all_or_nothing",
        Mode::BestEffort => "best_effort",
    });
    hasher.text(request.payload_fingerprint.as_deref().unwrap_or_default());
    hasher.object(request.metadata.as_ref());
    let mut short = [0; 16];
    short.copy_from_slice(&hasher.0.finalize().as_bytes()[..16]);
    short
}

struct Meaning(blake3::Hasher);

impl Meaning {
    /// Lengths stand before texts, so that no two requests run together into one.
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
                self.object(Some(attributes));
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
        let mut fields: Vec<_> = object.iter().collect();
        fields.sort_by_key(|(name, _)| name.as_str());
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

    fn request(lines: &[(&str, &str)]) -> ReserveRequest {
        ReserveRequest {
            tenant: TenantId::parse("acme").unwrap(),
            subjects: Vec::new(),
            work: Work::Lines {
                lines: lines
                    .iter()
                    .map(|(meter, amount)| (MeterId::parse(meter).unwrap(), Amount::parse(amount).unwrap()))
                    .collect(),
                operation: None,
            },
            ttl_seconds: None,
            mode: Mode::AllOrNothing,
            dry_run: false,
            payload_fingerprint: None,
            metadata: None,
            key: None,
        }
    }

    #[test]
    fn the_same_meaning_has_one_fingerprint_whatever_its_bytes() {
        let one = request(&[("a", "2"), ("b", "1")]);
        let two = request(&[("b", "1.0"), ("a", "2.00")]);
        assert_eq!(fingerprint("reserve", &one), fingerprint("reserve", &two));
    }

    #[test]
    fn another_meaning_has_another_fingerprint() {
        let base = fingerprint("reserve", &request(&[("a", "2")]));
        assert_ne!(base, fingerprint("usage", &request(&[("a", "2")])));
        assert_ne!(base, fingerprint("reserve", &request(&[("a", "3")])));
        assert_ne!(base, fingerprint("reserve", &request(&[("a2", "2")])));
        let mut with_ttl = request(&[("a", "2")]);
        with_ttl.ttl_seconds = Some(60);
        assert_ne!(base, fingerprint("reserve", &with_ttl));
    }
}
