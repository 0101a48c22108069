//! What leaves the busy tables, in bounded chunks. Old reservations move to their archive; old runs, comparisons,
//! repeats and leases are deleted.

use chrono::{DateTime, TimeDelta, Utc};
use diesel::prelude::*;
use diesel::query_builder::SqlQuery;
use diesel::sql_query;
use diesel::sql_types::{self, BigInt, Bool, Text, Timestamptz};
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use uuid::Uuid;

use super::functions::{clock_timestamp, earlier};
use super::schema::leases;
use super::{BEGIN, Ledger, LedgerError, instant, number};

/// How many tenants one query looks at.
const TENANTS_PAGE: usize = 500;

/// Leases that are renewed last seconds: one that ended this long ago has no owner any more.
const OWNED_NO_MORE: TimeDelta = TimeDelta::hours(1);

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
    resolved_at: DateTime<Utc>,
    #[diesel(sql_type = sql_types::Uuid)]
    id: Uuid,
}

impl Ledger {
    /// Moves the reservations that were resolved before this instant (unix ms) to the archive, tenant by tenant, at
    /// most `chunk` in one transaction. Returns how many.
    ///
    /// Errors: a tenant's could not be moved; those of the tenants after it were all the same.
    pub async fn archive_reservations(
        &self,
        before_ms: i64,
        expired_before_ms: i64,
        chunk: usize,
    ) -> Result<usize, LedgerError> {
        let (before, expired_before) = (instant::from_ms(before_ms)?, instant::from_ms(expired_before_ms)?);
        let (mut archived, mut after, mut failure) = (0, String::new(), None);
        loop {
            let page = self.tenants_behind(&after, before).await?;
            for TenantRow { tenant, .. } in page.iter().filter(|tenant| tenant.is_old) {
                match self.archive_tenant(tenant, before, expired_before, chunk).await {
                    Ok(count) => archived += count,
                    Err(error) if error.is_transient() && !error.is_statement_timeout() => return Err(error),
                    Err(error) => {
                        tracing::warn!(tenant, %error, "a tenant's old reservations were not archived");
                        failure.get_or_insert(error);
                    }
                }
            }
            match page.into_iter().next_back() {
                Some(last) => after = last.tenant,
                None => return failure.map_or(Ok(archived), Err),
            }
        }
    }

    async fn tenants_behind(
        &self,
        after: &str,
        before: DateTime<Utc>,
    ) -> Result<Vec<TenantRow>, LedgerError> {
        self.load(|| {
            sql_query(include_str!("sql/tenants_with_old_reservations.sql"))
                .bind::<Text, _>(after)
                .bind::<Timestamptz, _>(before)
                .bind::<BigInt, _>(number::limit(TENANTS_PAGE))
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
            let query = sql_query(include_str!("sql/archive_reservations.sql"))
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
            after = (last.resolved_at, last.id);
        }
    }

    /// Drops runs of jobs that ended longer ago than this, at most `chunk` in one transaction. Returns how many.
    pub async fn drop_job_runs(&self, days: i64, chunk: usize) -> Result<usize, LedgerError> {
        self.drop_in_chunks(|| sql_query(include_str!("sql/drop_job_runs.sql")), chunk, Some(days)).await
    }

    /// Drops comparisons that were settled and judged longer ago than this, at most `chunk` in one transaction. Returns
    /// how many.
    pub async fn drop_reconciliations(&self, days: i64, chunk: usize) -> Result<usize, LedgerError> {
        self.drop_in_chunks(|| sql_query(include_str!("sql/drop_reconciliations.sql")), chunk, Some(days))
            .await
    }

    /// Drops notices of quotas that were raised longer ago than this, at most `chunk` in one transaction. Returns how
    /// many.
    pub async fn drop_quota_notices(&self, days: i64, chunk: usize) -> Result<usize, LedgerError> {
        self.drop_in_chunks(|| sql_query(include_str!("sql/drop_quota_notices.sql")), chunk, Some(days)).await
    }

    /// Drops gaps of epochs that are over that were noticed longer ago than this, at most `chunk` in one transaction.
    /// Returns how many.
    pub async fn drop_gaps(&self, days: i64, chunk: usize) -> Result<usize, LedgerError> {
        self.drop_in_chunks(|| sql_query(include_str!("sql/drop_gaps.sql")), chunk, Some(days)).await
    }

    /// Drops losses that were noticed longer ago than this, at most `chunk` in one transaction. Returns how many.
    pub async fn drop_losses(&self, days: i64, chunk: usize) -> Result<usize, LedgerError> {
        self.drop_in_chunks(|| sql_query(include_str!("sql/drop_losses.sql")), chunk, Some(days)).await
    }

    /// Drops events of the quarantine that were booked or discarded longer ago than this, at most `chunk` in one
    /// transaction. Returns how many.
    pub async fn drop_quarantine(&self, days: i64, chunk: usize) -> Result<usize, LedgerError> {
        self.drop_in_chunks(|| sql_query(include_str!("sql/drop_quarantine.sql")), chunk, Some(days)).await
    }

    /// Drops undone repeats of epochs that are over, at most `chunk` in one transaction. Returns how many.
    pub async fn drop_repeats(&self, chunk: usize) -> Result<usize, LedgerError> {
        self.drop_in_chunks(|| sql_query(include_str!("sql/drop_repeats.sql")), chunk, None).await
    }

    /// Drops comparisons with suppliers' bills that were begun longer ago than this, with what they found, at most
    /// `chunk` rows in one transaction. Returns how many rows.
    pub async fn drop_bills(&self, days: i64, chunk: usize) -> Result<usize, LedgerError> {
        let findings = || sql_query(include_str!("sql/drop_supplier_matches.sql"));
        let dropped = self.drop_in_chunks(findings, chunk, Some(days)).await?;
        let bills = || sql_query(include_str!("sql/drop_supplier_bills.sql"));
        Ok(dropped + self.drop_in_chunks(bills, chunk, Some(days)).await?)
    }

    async fn drop_in_chunks(
        &self,
        drop: fn() -> SqlQuery,
        chunk: usize,
        days: Option<i64>,
    ) -> Result<usize, LedgerError> {
        let mut dropped = 0;
        loop {
            let count = self
                .transact(BEGIN, move |connection| {
                    async move {
                        let drop = drop().bind::<BigInt, _>(number::limit(chunk));
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

    /// Drops leases that ended long ago. Returns how many.
    pub async fn drop_leases(&self) -> Result<usize, LedgerError> {
        let long_ago = earlier(clock_timestamp(), OWNED_NO_MORE);
        self.execute(diesel::delete(leases::table.filter(leases::expires_at.lt(long_ago)))).await
    }
}
