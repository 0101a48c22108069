//! Notices of quotas: thresholds that booked usage has reached, and forecasts that all is used before the period ends.
//! They end with their period.

use chrono::{DateTime, Utc};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz};
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use rust_decimal::Decimal;

use super::columns::{Milliseconds, MillisecondsIfAny};
use super::prepared::sql_query;
use super::schema::quota_notices;
use super::{BEGIN, Ledger, LedgerError, instant, number};
use crate::domain::ids::{MeterId, TenantId};

/// What a run has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoticeChanges {
    /// Notices that were not raised before.
    pub raised: u64,
    /// Notices that hold no longer, or whose period has ended.
    pub resolved: u64,
}

/// A notice of a quota.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = quota_notices, check_for_backend(Pg))]
pub struct QuotaNotice {
    /// Its meter.
    pub meter: MeterId,
    /// The start of its period (unix ms).
    #[diesel(deserialize_as = Milliseconds)]
    pub period_start: i64,
    /// The end of its period (unix ms).
    #[diesel(deserialize_as = Milliseconds)]
    pub period_end: i64,
    /// The threshold; 0 for a forecast.
    pub percent: i16,
    /// What was consumed when it was raised.
    pub consumed: Decimal,
    /// Of how much.
    pub allowance: Decimal,
    /// When all is used up, as it was forecast (unix ms).
    #[diesel(deserialize_as = MillisecondsIfAny)]
    pub runs_out_at: Option<i64>,
    /// When it was raised (unix ms).
    #[diesel(deserialize_as = Milliseconds)]
    pub raised_at: i64,
    /// When it was found to hold no longer, or its period to have ended (unix ms).
    #[diesel(deserialize_as = MillisecondsIfAny)]
    pub resolved_at: Option<i64>,
}

impl QuotaNotice {
    /// Whether it was raised when its period had ended: it is over since then.
    pub fn is_late(&self) -> bool {
        self.raised_at >= self.period_end
    }
}

/// Which notices of a tenant to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeFilter {
    /// Its tenant.
    pub tenant: TenantId,
    /// Only of this meter.
    pub meter: Option<MeterId>,
    /// Only those that are resolved, or only those that are not.
    pub is_resolved: Option<bool>,
}

/// A place in a list of notices: when it was raised (unix ms), its meter, its threshold and the start of its period
/// (unix ms).
pub type NoticeCursor = (i64, MeterId, i16, i64);

#[derive(QueryableByName)]
struct Done {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: DateTime<Utc>,
    #[diesel(sql_type = BigInt)]
    raised: i64,
    #[diesel(sql_type = BigInt)]
    resolved: i64,
}

impl Ledger {
    /// Raises the notices that are due at `now_ms` (unix ms), each once, and resolves those that hold no longer or
    /// whose period has ended; `chunk` quotas in one transaction. A period that has ended is looked at until it is
    /// closed. A run may end anywhere, and runs at once raise nothing twice.
    pub async fn raise_quota_notices(&self, now_ms: i64, chunk: usize) -> Result<NoticeChanges, LedgerError> {
        let now = instant::from_ms(now_ms)?;
        let (mut done, mut after) = (NoticeChanges::default(), None::<(TenantId, MeterId, DateTime<Utc>)>);
        loop {
            let from = after.take();
            let page = self.transact(BEGIN, move |connection| {
                async move {
                    let raise = sql_query(include_str!("sql/raise_quota_notices.sql"))
                        .bind::<Timestamptz, _>(now)
                        .bind::<Nullable<Text>, _>(from.as_ref().map(|(tenant, _, _)| tenant.as_str()))
                        .bind::<Nullable<Text>, _>(from.as_ref().map(|(_, meter, _)| meter.as_str()))
                        .bind::<Nullable<Timestamptz>, _>(from.as_ref().map(|(_, _, start)| *start))
                        .bind::<BigInt, _>(number::limit(chunk));
                    Ok(raise.get_result::<Done>(connection).await.optional()?)
                }
                .boxed()
            });
            let Some(page) = page.await? else { return Ok(done) };
            done.raised += number::unsigned(page.raised)?;
            done.resolved += number::unsigned(page.resolved)?;
            after = Some((page.tenant, page.meter, page.period_start));
        }
    }

    /// Notices of a tenant's quotas, newest first, at most `limit`, after `after`.
    pub async fn quota_notices(
        &self,
        filter: &NoticeFilter,
        after: Option<&NoticeCursor>,
        limit: usize,
    ) -> Result<Vec<QuotaNotice>, LedgerError> {
        let after = match after {
            Some((raised_at_ms, meter, percent, start_ms)) => {
                let [raised_at, start] = [instant::from_ms(*raised_at_ms)?, instant::from_ms(*start_ms)?];
                Some((raised_at, meter, *percent, start))
            }
            None => None,
        };
        let query = || {
            use quota_notices::{meter, percent, period_start, raised_at, resolved_at, tenant};
            let mut found = quota_notices::table.filter(tenant.eq(&filter.tenant)).into_boxed();
            if let Some(of_meter) = &filter.meter {
                found = found.filter(meter.eq(of_meter));
            }
            match filter.is_resolved {
                Some(true) => found = found.filter(resolved_at.is_not_null()),
                Some(false) => found = found.filter(resolved_at.is_null()),
                None => {}
            }
            if let Some((at, of_meter, of_percent, start)) = after {
                // One run raises the same threshold of two periods, where the earlier one is not closed.
                let earlier = percent.lt(of_percent).or(percent.eq(of_percent).and(period_start.lt(start)));
                let lower = meter.lt(of_meter).or(meter.eq(of_meter).and(earlier));
                found = found.filter(raised_at.le(at)).filter(raised_at.lt(at).or(lower));
            }
            found
                .order((raised_at.desc(), meter.desc(), percent.desc(), period_start.desc()))
                .limit(number::limit(limit))
                .select(QuotaNotice::as_select())
        };
        self.load(query).await
    }
}
