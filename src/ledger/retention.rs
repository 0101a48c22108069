//! What leaves the busy tables, in bounded chunks: old reservations to their archive; old runs, comparisons, repeats and
//! leases for good.

use chrono::{DateTime, Utc};
use diesel::sql_types::{self, BigInt, Bool, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use uuid::Uuid;

use super::{BEGIN, Ledger, LedgerError, instant, number};

/// How many tenants are looked at in one query.
const TENANTS_PAGE: usize = 500;

/// From one tenant to the next, each a look into the index of the newest reservations.
const TENANTS: &str = "WITH RECURSIVE t AS ( \
        (SELECT tenant FROM reservations WHERE tenant > $1 ORDER BY tenant LIMIT 1) UNION ALL \
        SELECT (SELECT r.tenant FROM reservations r WHERE r.tenant > t.tenant ORDER BY r.tenant LIMIT 1) \
        FROM t WHERE t.tenant IS NOT NULL) \
    SELECT p.tenant, EXISTS (SELECT FROM reservations r WHERE r.tenant = p.tenant AND r.born_at < $2) AS is_old \
    FROM (SELECT tenant FROM t WHERE tenant IS NOT NULL LIMIT $3) p ORDER BY p.tenant";

/// A tenant's oldest first, from a place on: by the index that lists them, so that no index serves retention alone and a
/// run goes through what is old once. One with an event in quarantine stays: that event has yet to find its row.
const ARCHIVE: &str = "WITH old AS ( \
        SELECT r.partition, r.id, r.tenant FROM reservations r \
        WHERE r.tenant = $1 AND r.born_at < $2 AND (r.born_at, r.id) > ($3, $4) AND r.resolved_at < $2 AND r.state <> 'reserved' \
          AND (r.state <> 'expired' OR r.resolved_at < $6) \
          AND NOT EXISTS (SELECT FROM quarantine q WHERE q.reservation_id = r.id AND q.status = 'open') \
        ORDER BY r.born_at, r.id LIMIT $5 FOR UPDATE SKIP LOCKED), \
    moved AS (DELETE FROM reservations r USING old o \
        WHERE r.partition = o.partition AND r.id = o.id AND r.tenant = o.tenant RETURNING r.*), \
    added AS (INSERT INTO reservations_archive SELECT m.*, now() FROM moved m RETURNING born_at, id) \
    SELECT count(*) OVER () AS moved, born_at, id FROM added ORDER BY born_at DESC, id DESC LIMIT 1";

const DROP_RUNS: &str = "DELETE FROM job_runs WHERE (job, scheduled_for) IN ( \
        SELECT job, scheduled_for FROM job_runs WHERE finished_at < clock_timestamp() - $2 * interval '1 day' LIMIT $1)";

/// Of clean comparisons the writer keeps each tenant's latest; a drift waits for its repair.
const DROP_RECONCILIATIONS: &str = "DELETE FROM reconciliations WHERE (tenant, checkpoint_id) IN ( \
        SELECT tenant, checkpoint_id FROM reconciliations WHERE state IN ('repaired', 'refused') \
            AND judged_at < clock_timestamp() - $2 * interval '1 day' ORDER BY judged_at LIMIT $1)";

/// Whose epoch the cursor has left: no checkpoint asks about them any more.
const DROP_REPEATS: &str = "DELETE FROM repeats WHERE (partition, epoch, sequence) IN ( \
        SELECT r.partition, r.epoch, r.sequence FROM cursors c JOIN repeats r ON r.partition = c.partition AND r.epoch < c.epoch \
        WHERE r.undone_at IS NOT NULL LIMIT $1)";

/// Renewed leases are seconds long: one that ended an hour ago has no owner any more.
const DROP_LEASES: &str = "DELETE FROM leases WHERE expires_at < clock_timestamp() - interval '1 hour'";

#[derive(QueryableByName)]
struct TenantRow {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Bool)]
    is_old: bool,
}

#[derive(QueryableByName)]
struct MovedRow {
    #[diesel(sql_type = BigInt)]
    moved: i64,
    #[diesel(sql_type = Timestamptz)]
    born_at: DateTime<Utc>,
    #[diesel(sql_type = sql_types::Uuid)]
    id: Uuid,
}

impl Ledger {
    /// Moves the reservations that were resolved before this instant (unix ms) to the archive, tenant by tenant, at most
    /// `chunk` in one transaction. Answers how many.
    pub async fn archive_reservations(
        &self,
        before_ms: i64,
        expired_before_ms: i64,
        chunk: usize,
    ) -> Result<usize, LedgerError> {
        let (before, expired_before) = (instant::from_ms(before_ms)?, instant::from_ms(expired_before_ms)?);
        let (mut archived, mut after) = (0, String::new());
        loop {
            let page = self.tenants_behind(&after, before).await?;
            for tenant in page.iter().filter(|tenant| tenant.is_old) {
                archived += self.archive_tenant(&tenant.tenant, before, expired_before, chunk).await?;
            }
            match page.into_iter().next_back() {
                Some(last) => after = last.tenant,
                None => return Ok(archived),
            }
        }
    }

    async fn tenants_behind(
        &self,
        after: &str,
        before: DateTime<Utc>,
    ) -> Result<Vec<TenantRow>, LedgerError> {
        self.read(|connection| {
            let query = sql_query(TENANTS)
                .bind::<Text, _>(after.to_owned())
                .bind::<Timestamptz, _>(before)
                .bind::<BigInt, _>(number::limit(TENANTS_PAGE));
            async move { Ok(query.load(connection).await?) }.boxed()
        })
        .await
    }

    async fn archive_tenant(
        &self,
        tenant: &str,
        before: DateTime<Utc>,
        expired_before: DateTime<Utc>,
        chunk: usize,
    ) -> Result<usize, LedgerError> {
        let (mut archived, mut after) = (0, (DateTime::UNIX_EPOCH, Uuid::nil()));
        loop {
            let query = sql_query(ARCHIVE)
                .bind::<Text, _>(tenant.to_owned())
                .bind::<Timestamptz, _>(before)
                .bind::<Timestamptz, _>(after.0)
                .bind::<sql_types::Uuid, _>(after.1)
                .bind::<BigInt, _>(number::limit(chunk))
                .bind::<Timestamptz, _>(expired_before);
            let moved: Vec<MovedRow> = self
                .transact(BEGIN, move |connection| async move { Ok(query.load(connection).await?) }.boxed())
                .await?;
            let Some(last) = moved.into_iter().next() else { return Ok(archived) };
            archived += usize::try_from(last.moved).unwrap_or_default();
            after = (last.born_at, last.id);
        }
    }

    /// Drops runs of jobs that ended longer ago than this, at most `chunk` in one transaction. Answers how many.
    pub async fn drop_job_runs(&self, days: i64, chunk: usize) -> Result<usize, LedgerError> {
        self.drop_in_chunks(DROP_RUNS, chunk, Some(days)).await
    }

    /// Drops comparisons that were settled and judged longer ago than this, at most `chunk` in one transaction. Answers how
    /// many.
    pub async fn drop_reconciliations(&self, days: i64, chunk: usize) -> Result<usize, LedgerError> {
        self.drop_in_chunks(DROP_RECONCILIATIONS, chunk, Some(days)).await
    }

    /// Drops repeats that are done with, of epochs that are over, at most `chunk` in one transaction. Answers how many.
    pub async fn drop_repeats(&self, chunk: usize) -> Result<usize, LedgerError> {
        self.drop_in_chunks(DROP_REPEATS, chunk, None).await
    }

    async fn drop_in_chunks(
        &self,
        query: &'static str,
        chunk: usize,
        days: Option<i64>,
    ) -> Result<usize, LedgerError> {
        let mut dropped = 0;
        loop {
            let count = self
                .transact(BEGIN, move |connection| {
                    async move {
                        let drop = sql_query(query).bind::<BigInt, _>(number::limit(chunk));
                        Ok(match days {
                            Some(days) => drop.bind::<BigInt, _>(days).execute(connection).await?,
                            None => drop.execute(connection).await?,
                        })
                    }
                    .boxed()
                })
                .await?;
            dropped += count;
            if count < chunk {
                return Ok(dropped);
            }
        }
    }

    /// Drops leases that ended long ago. Answers how many.
    pub async fn drop_leases(&self) -> Result<usize, LedgerError> {
        self.transact(BEGIN, move |connection| {
            async move { Ok(sql_query(DROP_LEASES).execute(connection).await?) }.boxed()
        })
        .await
    }
}
