//! Damages: what was passed over because it cannot be read, until it is met no more.

use chrono::{DateTime, Utc};
use diesel::sql_types::{BigInt, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::RunQueryDsl;
use futures::FutureExt;

use super::{BEGIN, Ledger, LedgerError};

/// The longest text kept of an item or a reason.
const TEXT_MAX: usize = 500;

const NOTE: &str = "INSERT INTO damages AS d (work, item, reason) VALUES ($1, $2, $3) \
    ON CONFLICT (work, item) DO UPDATE SET reason = excluded.reason, times = d.times + 1, last_at = now()";

/// What is damaged is met again every few minutes: what was not met for a quarter of an hour is mended.
const READ: &str = "SELECT work, item, reason, first_at FROM damages WHERE last_at > now() - interval '15 minutes' \
    ORDER BY last_at DESC, work, item LIMIT 1000";

const DROP: &str = "DELETE FROM damages WHERE last_at < now() - $1 * interval '1 day'";

/// Something that was passed over lately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// What was to be done with it.
    pub work: String,
    /// What it is.
    pub item: String,
    /// What reading it came to.
    pub reason: String,
    /// When it was first met (the database's clock, unix ms).
    pub first_at_ms: i64,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    work: String,
    #[diesel(sql_type = Text)]
    item: String,
    #[diesel(sql_type = Text)]
    reason: String,
    #[diesel(sql_type = Timestamptz)]
    first_at: DateTime<Utc>,
}

impl Ledger {
    /// Notes that something was passed over.
    pub async fn note_damage(&self, work: &'static str, item: &str, reason: &str) -> Result<(), LedgerError> {
        let [item, reason] = [item, reason].map(|text| text.chars().take(TEXT_MAX).collect::<String>());
        self.transact(BEGIN, move |connection| {
            let note = sql_query(NOTE).bind::<Text, _>(work).bind::<Text, _>(item).bind::<Text, _>(reason);
            async move { Ok(note.execute(connection).await.map(drop)?) }.boxed()
        })
        .await
    }

    /// What was passed over lately, the latest first, at most a thousand.
    pub async fn damages(&self) -> Result<Vec<Damage>, LedgerError> {
        let rows: Vec<Row> = self
            .read(|connection| async move { Ok(sql_query(READ).load(connection).await?) }.boxed())
            .await?;
        let damage = |row: Row| Damage {
            work: row.work,
            item: row.item,
            reason: row.reason,
            first_at_ms: row.first_at.timestamp_millis(),
        };
        Ok(rows.into_iter().map(damage).collect())
    }

    /// Drops what was last met so many days ago. Answers how many.
    pub async fn drop_damages(&self, days: i64) -> Result<usize, LedgerError> {
        self.transact(BEGIN, move |connection| {
            async move { Ok(sql_query(DROP).bind::<BigInt, _>(days).execute(connection).await?) }.boxed()
        })
        .await
    }
}
