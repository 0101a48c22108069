//! What leaves the busy tables, in bounded chunks: old reservations to their archive, old runs and leases for good.

use diesel::sql_query;
use diesel::sql_types::{BigInt, Timestamptz};
use diesel_async::RunQueryDsl;
use futures::FutureExt;

use super::{BEGIN, Ledger, LedgerError, instant, number};

/// One with an event in quarantine stays: that event has yet to find its row.
const ARCHIVE: &str = "WITH old AS ( \
        SELECT r.partition, r.id, r.tenant FROM reservations r \
        WHERE r.resolved_at < $1 AND r.state <> 'reserved' \
          AND NOT EXISTS (SELECT FROM quarantine q WHERE q.reservation_id = r.id AND q.status = 'open') \
        LIMIT $2 FOR UPDATE SKIP LOCKED), \
    moved AS (DELETE FROM reservations r USING old o \
        WHERE r.partition = o.partition AND r.id = o.id AND r.tenant = o.tenant RETURNING r.*) \
    INSERT INTO reservations_archive SELECT m.*, now() FROM moved m";

const DROP_RUNS: &str = "DELETE FROM job_runs WHERE (job, scheduled_for) IN ( \
        SELECT job, scheduled_for FROM job_runs WHERE finished_at < clock_timestamp() - $1 * interval '1 day' LIMIT $2)";

/// Renewed leases are seconds long: one that ended an hour ago has no owner any more.
const DROP_LEASES: &str = "DELETE FROM leases WHERE expires_at < clock_timestamp() - interval '1 hour'";

impl Ledger {
    /// Moves at most `limit` reservations that were resolved before this instant (unix ms) to the archive. Answers how many.
    pub async fn archive_reservations(&self, before_ms: i64, limit: usize) -> Result<usize, LedgerError> {
        let before = instant::from_ms(before_ms)?;
        self.transact(BEGIN, move |connection| {
            async move {
                let archive =
                    sql_query(ARCHIVE).bind::<Timestamptz, _>(before).bind::<BigInt, _>(number::limit(limit));
                Ok(archive.execute(connection).await?)
            }
            .boxed()
        })
        .await
    }

    /// Drops at most `limit` runs of jobs that ended longer ago than this. Answers how many.
    pub async fn drop_job_runs(&self, days: i64, limit: usize) -> Result<usize, LedgerError> {
        self.transact(BEGIN, move |connection| {
            async move {
                let drop =
                    sql_query(DROP_RUNS).bind::<BigInt, _>(days).bind::<BigInt, _>(number::limit(limit));
                Ok(drop.execute(connection).await?)
            }
            .boxed()
        })
        .await
    }

    /// Drops leases that ended long ago. Answers how many.
    pub async fn drop_leases(&self) -> Result<usize, LedgerError> {
        self.transact(BEGIN, move |connection| {
            async move { Ok(sql_query(DROP_LEASES).execute(connection).await?) }.boxed()
        })
        .await
    }
}
