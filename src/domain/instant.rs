//! Instants: RFC 3339 on the way in, RFC 3339 in UTC on the way out, unix milliseconds inside.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

/// An instant with millisecond precision, in the years 0 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct Instant(Timestamp);

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InstantVisitor;
        impl Visitor<'_> for InstantVisitor {
            type Value = Instant;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 time such as \"2027-01-01T00:00:00Z\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Instant, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(InstantVisitor)
    }
}

/// Why a text is not an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidInstant {
    /// Not RFC 3339 with an offset.
    #[error("must be an RFC 3339 time such as 2027-01-01T00:00:00Z")]
    Malformed,
    /// Finer than a millisecond.
    #[error("must not be finer than a millisecond")]
    TooPrecise,
}

impl Instant {
    /// The instant at `unix_ms`, if it is in the years 0 to 9999.
    pub fn from_ms(unix_ms: i64) -> Option<Self> {
        Timestamp::from_millisecond(unix_ms).ok().filter(|t| *t >= EARLIEST).map(Self)
    }

    /// The unix milliseconds of an RFC 3339 time; finer digits are cut off.
    pub fn ms_within(text: &str) -> Option<i64> {
        let timestamp: Timestamp = text.parse().ok().filter(|_| has_rfc3339_shape(text))?;
        Some(timestamp.as_millisecond())
    }

    /// The same as a timestamp of the time library.
    pub fn timestamp(self) -> Timestamp {
        self.0
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub fn ms(self) -> i64 {
        self.0.as_millisecond()
    }
}

/// Formats an instant in documents' form, RFC 3339 in UTC. Beyond the calendar's end it is the end.
pub fn rfc3339(unix_ms: i64) -> String {
    Timestamp::from_millisecond(unix_ms).unwrap_or(Timestamp::MAX).to_string()
}

/// Year 0 in UTC: RFC 3339 has no earlier year.
const EARLIEST: Timestamp = Timestamp::constant(-62_167_219_200, 0);

impl FromStr for Instant {
    type Err = InvalidInstant;
    fn from_str(text: &str) -> Result<Self, InvalidInstant> {
        if !has_rfc3339_shape(text) {
            return Err(InvalidInstant::Malformed);
        }
        let instant: Timestamp = text.parse().map_err(|_| InvalidInstant::Malformed)?;
        if instant < EARLIEST {
            return Err(InvalidInstant::Malformed);
        }
        if instant.subsec_nanosecond() % 1_000_000 != 0 {
            return Err(InvalidInstant::TooPrecise);
        }
        Ok(Self(instant))
    }
}

/// Checks the shape first: the parser below also accepts looser forms (a space, a missing part, a bracketed zone).
fn has_rfc3339_shape(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shape = b"0000-00-00T00:00:00";
    if bytes.len() < shape.len() + 1 || bytes.len() > 40 {
        return false;
    }
    let (head, tail) = bytes.split_at(shape.len());
    let fits = |byte: &u8, model: &u8| if *model == b'0' { byte.is_ascii_digit() } else { byte == model };
    if !head.iter().zip(shape).all(|(byte, model)| fits(byte, model)) {
        return false;
    }
    let digits =
        tail.strip_prefix(b".").map_or(0, |rest| rest.iter().take_while(|b| b.is_ascii_digit()).count());
    let offset = match (tail.first(), digits) {
        (Some(b'.'), 1..=9) => &tail[digits + 1..],
        (Some(b'.'), _) => return false,
        _ => tail,
    };
    match offset {
        b"Z" => true,
        [sign, rest @ ..] => {
            rest.len() == 5 && b"+-".contains(sign) && rest.iter().zip(b"00:00").all(|(b, m)| fits(b, m))
        }
        [] => false,
    }
}

impl From<Instant> for String {
    fn from(instant: Instant) -> String {
        instant.to_string()
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_read_and_utc_is_written() {
        let instant: Instant = "2027-01-01T01:00:00.250+01:00".parse().unwrap();
        assert_eq!(instant.to_string(), "2027-01-01T00:00:00.25Z");
        assert_eq!(Instant::from_ms(instant.ms()), Some(instant));
    }

    #[test]
    fn looser_forms_are_refused() {
        for bad in [
            "",
            "2027-01-01",
            "2027-01-01T00:00:00",
            "2027-01-01 00:00:00Z",
            "2027-01-01T00:00Z",
            "2027-01-01T00:00:00z[UTC]",
            "2027-13-01T00:00:00Z",
            "-002027-01-01T00:00:00Z",
            "2027-01-01T00:00:00.Z",
            "2027-01-01T00:00:00+1",
            "1767225600",
            "2027-01-01T25:00:00Z",
            "2027-01-01T00:00:00é",
        ] {
            assert_eq!(bad.parse::<Instant>(), Err(InvalidInstant::Malformed), "{bad:?}");
        }
        assert_eq!("2027-01-01T00:00:00.0001Z".parse::<Instant>(), Err(InvalidInstant::TooPrecise));
        assert_eq!(Instant::from_ms(i64::MAX), None);
    }
}
