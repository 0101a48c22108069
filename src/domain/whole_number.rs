//! Small whole numbers from outside: the error names the permitted range.

use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// Reads a whole number in `bounds`; the error names them.
pub(super) fn whole_number<'de, D: Deserializer<'de>>(
    deserializer: D,
    bounds: RangeInclusive<u8>,
) -> Result<u8, D::Error> {
    deserializer.deserialize_u8(Within(bounds))
}

struct Within(RangeInclusive<u8>);

impl Visitor<'_> for Within {
    type Value = u8;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {} to {}", self.0.start(), self.0.end())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u8, E> {
        let within = u8::try_from(value).ok().filter(|number| self.0.contains(number));
        within.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<u8, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(value), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::domain::amount::Decimals;
    use crate::domain::field_error::{read_json, read_toml};
    use crate::domain::limit::Percent;
    use crate::domain::period::AnchorDay;

    #[test]
    fn what_is_none_of_the_numbers_is_told_all_of_them() {
        for wrong in
            [json!(null), json!(7), json!(300), json!(-1), json!(2.0), json!("2"), json!(1_u64 << 40)]
        {
            let message = read_json::<Decimals>(&wrong).unwrap_err().message;
            assert!(message.ends_with("expected a whole number from 0 to 6"), "{message}");
        }
        assert_eq!(read_json(&json!(6)), Ok(Decimals::new(6).unwrap()));
        let message = read_json::<Percent>(&json!(101)).unwrap_err().message;
        assert!(message.ends_with("from 0 to 100"), "{message}");
        for wrong in [0, 32] {
            let message = read_json::<AnchorDay>(&json!(wrong)).unwrap_err().message;
            assert!(message.ends_with("from 1 to 31"), "{message}");
        }
    }

    #[test]
    fn in_a_file_the_same() {
        #[derive(Debug, serde::Deserialize)]
        struct File {
            decimals: Decimals,
        }
        assert_eq!(read_toml::<File>("decimals = 2").unwrap().decimals.count(), 2);
        let error = read_toml::<File>("decimals = -3").unwrap_err();
        assert_eq!(error.pointer, "/decimals");
        assert!(error.message.ends_with("expected a whole number from 0 to 6"), "{error}");
    }
}
