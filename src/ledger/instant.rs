//! Converts instants: unix milliseconds in the program, `timestamptz` in the tables.

use chrono::{DateTime, Utc};

use super::LedgerError;

/// The instant as the database takes it; only years that it can print are allowed.
pub(crate) fn from_ms(ms: i64) -> Result<DateTime<Utc>, LedgerError> {
    DateTime::from_timestamp_millis(ms)
        .filter(|_| crate::domain::booking::is_bookable_instant(ms))
        .ok_or_else(|| LedgerError::Refused(format!("{ms} is not an instant of the years 1970 to 9999")))
}

/// Converts all of them, in order.
pub(crate) fn all_from_ms(ms: impl IntoIterator<Item = i64>) -> Result<Vec<DateTime<Utc>>, LedgerError> {
    ms.into_iter().map(from_ms).collect()
}
