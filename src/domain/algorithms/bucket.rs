//! Shared by buckets: a level that sinks steadily, to the millisecond, in whole numbers.

use crate::domain::amount::{Amount, Decimals, UNITS_MAX, Units};
use crate::domain::codec::{Reader, Undecodable, Write};
use crate::domain::field_error::FieldError;

use super::SpanSeconds;

/// The longest that a full bucket may take to drain.
const FULL_MS_MAX: i64 = 10 * 365 * 86_400_000;

/// How fast a bucket drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Drain {
    /// Units that drain in each `per_ms`.
    pub units: i64,
    /// The time in which they do, in ms.
    pub per_ms: i64,
}

impl Drain {
    /// The drain of this amount of a meter in this span; [`errors`] says what is wrong with it.
    pub(super) fn of(amount: Amount, per: SpanSeconds, decimals: Decimals) -> Self {
        let units = amount.to_units(decimals).map_or(1, Units::get).max(1);
        Self { units, per_ms: per.ms() }
    }

    /// Level and fraction after `elapsed_ms`. The level is `level − fraction ÷ per_ms` units.
    pub(super) fn after(self, level: i64, fraction: i64, elapsed_ms: i64) -> (i64, i64) {
        let drained = self.units.saturating_mul(elapsed_ms / self.per_ms);
        if drained > level {
            return (0, 0);
        }
        let parts = self.units * (elapsed_ms % self.per_ms) + fraction;
        let left = level - drained - parts / self.per_ms;
        if left > 0 { (left, parts % self.per_ms) } else { (0, 0) }
    }

    /// How long until this many units have drained, at most [`UNITS_MAX`].
    pub(super) fn wait_ms(self, units: i64, fraction: i64) -> i64 {
        let parts = (units % self.units) * self.per_ms - fraction;
        let rest_ms = parts.div_euclid(self.units) + i64::from(parts.rem_euclid(self.units) > 0);
        (units / self.units).saturating_mul(self.per_ms).saturating_add(rest_ms).min(UNITS_MAX)
    }

    /// The largest capacity of a bucket that drains so.
    pub(super) fn capacity_max(self) -> i64 {
        let within_bounds = UNITS_MAX.saturating_sub(self.units).saturating_sub(1);
        let in_time = i128::from(FULL_MS_MAX) * i128::from(self.units) / i128::from(self.per_ms);
        i64::try_from(in_time).unwrap_or(UNITS_MAX).min(within_bounds).max(0)
    }

    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.put_8(self.units);
        out.put_8(self.per_ms);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Undecodable> {
        let drain = Self { units: reader.i64()?, per_ms: reader.i64()? };
        if drain.units < 1 || drain.per_ms < 1 || drain.units.checked_mul(drain.per_ms).is_none() {
            return Err(Undecodable("how fast a bucket drains"));
        }
        Ok(drain)
    }
}

/// What is wrong with a bucket of this capacity that drains by `amount`, the limit's field `name`.
pub(super) fn errors(
    name: &str,
    amount: Amount,
    per: SpanSeconds,
    capacity: Amount,
    decimals: Decimals,
) -> Vec<FieldError> {
    let error = |message: String| vec![FieldError::new(format!("/{name}"), message)];
    let units = match amount.to_units(decimals) {
        Ok(units) => units.get(),
        Err(wrong) => return error(wrong.to_string()),
    };
    if units == 0 {
        return error("must be more than 0".into());
    }
    let Ok(capacity) = capacity.to_units(decimals).map(Units::get) else { return Vec::new() };
    let is_beyond = |number: Option<i64>| number.is_none_or(|number| number >= UNITS_MAX);
    if is_beyond(units.checked_mul(per.ms())) {
        return error(format!(
            "is too large for `per_seconds`: the meter's smallest units in it, times its milliseconds, must stay below {UNITS_MAX}"
        ));
    }
    if is_beyond(units.checked_add(capacity)) {
        return error(format!(
            "is too large: with `capacity` it must stay below {UNITS_MAX} of the meter's smallest units"
        ));
    }
    if (Drain { units, per_ms: per.ms() }).wait_ms(capacity, 0) > FULL_MS_MAX {
        return error("is too slow: it must make up for the whole `capacity` within ten years".into());
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drains() -> impl Strategy<Value = Drain> {
        let per_ms = prop_oneof![Just(1000), 1..40_i64, Just(i64::from(SpanSeconds::MAX) * 1000)];
        let units = prop_oneof![1..20_i64, 1..250_000_i64];
        (units, per_ms).prop_map(|(units, per_ms)| Drain { units, per_ms })
    }

    proptest! {
        #[test]
        fn a_bucket_drains_alike_however_often_it_is_looked_at(
            drain in drains(), level in 0..10_000_000_i64, parts in proptest::collection::vec(0..5_000_i64, 1..20),
        ) {
            let at_once = drain.after(level, 0, parts.iter().sum());
            let in_parts = parts.iter().fold((level, 0), |(level, fraction), part| drain.after(level, fraction, *part));
            prop_assert_eq!(at_once, in_parts);
        }

        #[test]
        fn after_its_wait_so_many_units_have_drained_and_not_a_millisecond_earlier(
            drain in drains(), before_ms in 0..5_000_i64, level in 1..10_000_000_i64, percent in 0..=100_i64,
        ) {
            let (level, fraction) = drain.after(level, 0, before_ms);
            let units = level * percent / 100;
            let wait_ms = drain.wait_ms(units, fraction);
            prop_assume!(wait_ms < UNITS_MAX);
            prop_assert!(level - drain.after(level, fraction, wait_ms).0 >= units);
            if wait_ms > 0 {
                prop_assert!(level - drain.after(level, fraction, wait_ms - 1).0 < units);
            }
        }
    }
}
