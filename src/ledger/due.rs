//! How much is due of what jobs do.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Timestamptz};

use super::prepared::sql_query;
use super::schema::due_cuts;
use super::{Ledger, LedgerError, instant, number};

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    periods: i64,
}

impl Ledger {
    /// How many periods ended by `ended_by_ms` (unix ms) and are not closed.
    pub async fn count_periods_to_close(&self, ended_by_ms: i64) -> Result<u64, LedgerError> {
        let ended_by = instant::from_ms(ended_by_ms)?;
        let query =
            || sql_query(include_str!("sql/count_periods_to_close.sql")).bind::<Timestamptz, _>(ended_by);
        let found: Option<Count> = self.first(query).await?;
        number::unsigned(found.map(|count| count.periods).unwrap_or_default())
    }

    /// How many grants have ended by `now_ms` (unix ms) and are not cut yet.
    pub async fn count_ends_to_cut(&self, now_ms: i64) -> Result<u64, LedgerError> {
        let now = instant::from_ms(now_ms)?;
        let query = || due_cuts::table.filter(due_cuts::is_end).filter(due_cuts::due_at.le(now)).count();
        let found: Option<i64> = self.first(query).await?;
        number::unsigned(found.unwrap_or_default())
    }
}
