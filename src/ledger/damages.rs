//! Damages: items that work skips because they cannot be read. A damage counts as mended when no job meets it any more.

use chrono::TimeDelta;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::upsert::excluded;

use super::columns::Milliseconds;
use super::functions::{earlier, transaction_timestamp};
use super::schema::damages;
use super::{Ledger, LedgerError};

/// The longest text stored of an item or a reason.
const TEXT_MAX: usize = 500;

/// Jobs meet a damage every few minutes, so one that was not met for this long is mended.
const MENDED_AFTER: TimeDelta = TimeDelta::minutes(15);

/// An item that was skipped lately.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = damages, check_for_backend(Pg))]
pub struct Damage {
    /// The work that skipped it.
    pub work: String,
    /// The item.
    pub item: String,
    /// Why it cannot be read.
    pub reason: String,
    /// When it was first met (the database's clock, unix ms).
    #[diesel(column_name = first_at, deserialize_as = Milliseconds)]
    pub first_at_ms: i64,
}

impl Ledger {
    /// Records that an item was skipped.
    pub async fn note_damage(&self, work: &'static str, item: &str, reason: &str) -> Result<(), LedgerError> {
        let [item, reason] = [item, reason].map(|text| text.chars().take(TEXT_MAX).collect::<String>());
        let note = diesel::insert_into(damages::table)
            .values((damages::work.eq(work), damages::item.eq(item), damages::reason.eq(reason)))
            .on_conflict((damages::work, damages::item))
            .do_update()
            .set((
                damages::reason.eq(excluded(damages::reason)),
                damages::times.eq(damages::times + 1),
                damages::last_at.eq(transaction_timestamp()),
            ));
        self.execute(note).await.map(drop)
    }

    /// What was skipped lately, the latest first, at most a thousand.
    pub async fn damages(&self) -> Result<Vec<Damage>, LedgerError> {
        let query = || {
            damages::table
                .select(Damage::as_select())
                .filter(damages::last_at.gt(earlier(transaction_timestamp(), MENDED_AFTER)))
                .order((damages::last_at.desc(), damages::work, damages::item))
                .limit(1_000)
        };
        self.load(query).await
    }

    /// Drops what was last met this many days ago. Returns how many.
    pub async fn drop_damages(&self, days: i64) -> Result<usize, LedgerError> {
        let since = earlier(transaction_timestamp(), TimeDelta::days(days));
        self.execute(diesel::delete(damages::table.filter(damages::last_at.lt(since)))).await
    }
}
