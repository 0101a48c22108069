//! How often each key has called for something to be destroyed in its current minute, over all instances.

use chrono::{DateTime, TimeDelta, Utc};
use diesel::dsl::case_when;
use diesel::prelude::*;
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use serde_json::json;

use super::functions::{earlier, transaction_timestamp};
use super::schema::destructive_calls;
use super::{BEGIN, Ledger, LedgerError, audit};

/// How long calls are counted together, from the first of them on.
const MINUTE: TimeDelta = TimeDelta::minutes(1);

impl Ledger {
    /// Counts one more such call of a key. Returns how long (ms) the key has to wait if it has made more than
    /// `calls_max` in this minute. The first call of a minute that has to wait is in the audit log, under what it
    /// `asked` for; those after it are only counted, so that a flood of them leaves one line a minute there.
    pub async fn count_destructive_call(
        &self,
        key: &str,
        calls_max: u32,
        asked: &str,
    ) -> Result<Option<i64>, LedgerError> {
        let (key, asked) = (key.to_owned(), asked.to_owned());
        self.transact(BEGIN, move |connection| {
            async move {
                use destructive_calls::{calls, key_id, since};
                let goes_on = || since.gt(earlier(transaction_timestamp(), MINUTE));
                let one_more = (key_id.eq(&key), since.eq(transaction_timestamp()), calls.eq(1));
                let counted = diesel::insert_into(destructive_calls::table)
                    .values(one_more)
                    .on_conflict(key_id)
                    .do_update()
                    .set((
                        since.eq(case_when(goes_on(), since).otherwise(excluded(since))),
                        calls.eq(case_when(goes_on(), calls + 1).otherwise(1)),
                    ))
                    .returning((since, calls, transaction_timestamp()));
                let (began, count, now): (DateTime<Utc>, i64, DateTime<Utc>) =
                    counted.get_result(connection).await?;
                let calls_max = i64::from(calls_max);
                if count == calls_max + 1 {
                    let detail = json!({ "call": asked, "calls_per_minute": calls_max });
                    audit::note(connection, &key, "refuse", "destructive_call", detail).await?;
                }
                let wait_ms = (began + MINUTE - now).num_milliseconds().max(1);
                Ok((count > calls_max).then_some(wait_ms))
            }
            .boxed()
        })
        .await
    }
}
