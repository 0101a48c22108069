//! Monthly partitions of the entries, created ahead.

use std::collections::BTreeSet;
use std::sync::Mutex;

use chrono::{Datelike, Months, NaiveDate};
use diesel::select;
use diesel_async::RunQueryDsl;
use futures::FutureExt;

use super::functions::ensure_entries_month;
use super::{BEGIN, Ledger, LedgerError, instant};

const MONTHS_MAX: usize = 600;

/// Months that have a partition, so that no batch has to ask the database.
#[derive(Default)]
pub(super) struct KnownMonths(Mutex<BTreeSet<NaiveDate>>);

impl KnownMonths {
    fn missing(&self, months: BTreeSet<NaiveDate>) -> Vec<NaiveDate> {
        match self.0.lock() {
            Ok(known) => months.into_iter().filter(|month| !known.contains(month)).collect(),
            Err(_) => months.into_iter().collect(),
        }
    }

    fn add(&self, months: &[NaiveDate]) {
        if let Ok(mut known) = self.0.lock() {
            known.extend(months);
        }
    }

    fn forget(&self) {
        if let Ok(mut known) = self.0.lock() {
            known.clear();
        }
    }
}

impl Ledger {
    /// Creates the entries' partitions of all UTC months from that of `from_ms` to that of `to_ms` (unix ms), at most
    /// 600. Returns how many were missing.
    pub async fn ensure_month_partitions(&self, from_ms: i64, to_ms: i64) -> Result<usize, LedgerError> {
        let (first, last) = (month_of(from_ms)?, month_of(to_ms)?);
        let months = (0..u32::try_from(MONTHS_MAX).unwrap_or_default())
            .map_while(|count| first.checked_add_months(Months::new(count)))
            .take_while(|month| *month <= last)
            .collect();
        self.ensure_months(months).await
    }

    /// Creates the partitions of the months of these instants (unix ms).
    pub(crate) async fn ensure_months_of(
        &self,
        instants_ms: impl Iterator<Item = i64>,
    ) -> Result<usize, LedgerError> {
        let months = instants_ms.map(month_of).collect::<Result<BTreeSet<_>, _>>()?;
        self.ensure_months(months).await
    }

    /// Forgets the known months, because a partition that was known is gone: the database is asked again.
    pub(crate) fn forget_months(&self) {
        self.shared.months.forget();
    }

    async fn ensure_months(&self, months: BTreeSet<NaiveDate>) -> Result<usize, LedgerError> {
        let mut made = 0;
        for month in self.shared.months.missing(months) {
            let is_new: bool = self
                .transact(BEGIN, move |connection| {
                    let make = select(ensure_entries_month(month));
                    async move { Ok(make.get_result(connection).await?) }.boxed()
                })
                .await?;
            self.shared.months.add(&[month]);
            made += usize::from(is_new);
        }
        Ok(made)
    }
}

fn month_of(ms: i64) -> Result<NaiveDate, LedgerError> {
    let date = instant::from_ms(ms)?.date_naive();
    date.with_day(1).ok_or_else(|| LedgerError::Damaged(format!("{date} has no month")))
}
