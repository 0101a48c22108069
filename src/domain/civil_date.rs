//! A day of the calendar as documents write it, in no zone of its own: `2027-01-31`.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

/// A day of the years 1 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CivilDate(Date);

/// A text is not a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a day such as 2027-01-31")]
pub struct InvalidDate;

impl FromStr for CivilDate {
    type Err = InvalidDate;
    fn from_str(text: &str) -> Result<Self, InvalidDate> {
        let has_shape = text.len() == 10
            && text.bytes().zip(b"0000-00-00").all(|(byte, model)| match model {
                b'0' => byte.is_ascii_digit(),
                _ => byte == *model,
            });
        let date: Date = has_shape.then(|| text.parse()).ok_or(InvalidDate)?.map_err(|_| InvalidDate)?;
        if date.year() >= 1 { Ok(Self(date)) } else { Err(InvalidDate) }
    }
}

impl From<Date> for CivilDate {
    fn from(date: Date) -> Self {
        Self(date)
    }
}

impl TryFrom<String> for CivilDate {
    type Error = InvalidDate;
    fn try_from(text: String) -> Result<Self, InvalidDate> {
        text.parse()
    }
}

impl From<CivilDate> for String {
    fn from(date: CivilDate) -> String {
        date.to_string()
    }
}

impl fmt::Display for CivilDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_day_is_a_day() {
        assert_eq!("2028-02-29".parse::<CivilDate>().unwrap().to_string(), "2028-02-29");
        for bad in [
            "",
            "2027-02-29",
            "2027-13-01",
            "2027-1-1",
            "20270101",
            "2027-01-01T00:00:00",
            "0000-01-01",
            " 2027-01-01",
            "+027-01-01",
            "２027-01-01",
        ] {
            assert_eq!(bad.parse::<CivilDate>(), Err(InvalidDate), "{bad}");
        }
    }
}
