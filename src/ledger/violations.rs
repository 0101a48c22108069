//! Refused calls that limits with a punishment have counted, by minute.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{self, Array, BigInt, Nullable, Text, Timestamptz};
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use uuid::Uuid;

use super::prepared::sql_query;
use super::{BEGIN, Ledger, LedgerError, instant, number};
use crate::domain::ids::{LimitId, TenantId};

/// The end of the years that the database prints: 10000-01-01 (unix ms), exclusive.
const END_MS: i64 = 253_402_300_799_999;

/// The violations of whom a limit counts, in one minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinuteOfViolations {
    /// The minute's start (unix ms).
    pub minute_ms: i64,
    /// Of which tenant.
    pub tenant: TenantId,
    /// Of which limit.
    pub limit: LimitId,
    /// Whom it counts: a subject's kind and hash; none for the tenant.
    pub subject: Option<(String, String)>,
    /// Refused calls that it has counted.
    pub violations: u64,
    /// How many of them have placed a ban.
    pub bans: u64,
    /// Calls that were refused because of such a ban.
    pub under_ban: u64,
}

/// Which violations to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ViolationFilter {
    /// Only of this tenant.
    pub tenant: Option<TenantId>,
    /// Only of this limit.
    pub limit: Option<LimitId>,
    /// Only of the subject of this kind and hash.
    pub subject: Option<(String, String)>,
    /// Only minutes that begin then or later (unix ms).
    pub from_ms: Option<i64>,
    /// Only minutes that begin before (unix ms).
    pub to_ms: Option<i64>,
}

/// A place in the list of violations: minute (unix ms), tenant, limit, kind and hash of the subject.
pub type ViolationCursor = (i64, String, String, String, String);

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Timestamptz)]
    minute: DateTime<Utc>,
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    limit_id: String,
    #[diesel(sql_type = Text)]
    subject_kind: String,
    #[diesel(sql_type = Text)]
    subject_hash: String,
    #[diesel(sql_type = BigInt)]
    counted: i64,
    #[diesel(sql_type = BigInt)]
    bans: i64,
    #[diesel(sql_type = BigInt)]
    under_ban: i64,
}

impl Ledger {
    /// Stores these minutes, each under an id of its own. One that is stored already gets the larger figures, so that
    /// the same call again changes nothing.
    pub async fn add_violations(&self, minutes: &[(Uuid, MinuteOfViolations)]) -> Result<(), LedgerError> {
        let of = |part: fn(&MinuteOfViolations) -> &str| -> Vec<String> {
            minutes.iter().map(|(_, minute)| part(minute).to_owned()).collect()
        };
        let sums = |part: fn(&MinuteOfViolations) -> u64| -> Vec<i64> {
            minutes.iter().map(|(_, minute)| number::signed(part(minute))).collect()
        };
        let begins = instant::all_from_ms(minutes.iter().map(|(_, minute)| minute.minute_ms))?;
        let subject = |minute: &MinuteOfViolations| minute.subject.clone().unwrap_or_default();
        let (kinds, hashes): (Vec<_>, Vec<_>) = minutes.iter().map(|(_, minute)| subject(minute)).unzip();
        let query = sql_query(include_str!("sql/add_violations.sql"))
            .bind::<Array<sql_types::Uuid>, _>(minutes.iter().map(|(id, _)| *id).collect::<Vec<_>>())
            .bind::<Array<Timestamptz>, _>(begins)
            .bind::<Array<Text>, _>(of(|minute| minute.tenant.as_str()))
            .bind::<Array<Text>, _>(of(|minute| minute.limit.as_str()))
            .bind::<Array<Text>, _>(kinds)
            .bind::<Array<Text>, _>(hashes)
            .bind::<Array<BigInt>, _>(sums(|minute| minute.violations))
            .bind::<Array<BigInt>, _>(sums(|minute| minute.bans))
            .bind::<Array<BigInt>, _>(sums(|minute| minute.under_ban));
        self.transact(BEGIN, move |connection| {
            async move { Ok(query.execute(connection).await.map(drop)?) }.boxed()
        })
        .await
    }

    /// Minutes of violations over all instances, newest first, at most `limit`, after `after`.
    pub async fn violations(
        &self,
        filter: &ViolationFilter,
        after: Option<&ViolationCursor>,
        limit: usize,
    ) -> Result<Vec<MinuteOfViolations>, LedgerError> {
        let from = instant::from_ms(filter.from_ms.unwrap_or_default().max(0))?;
        let to = instant::from_ms(filter.to_ms.unwrap_or(END_MS).max(0))?;
        let place = after.cloned().unwrap_or_default();
        let after = match after {
            Some((minute_ms, ..)) => Some(instant::from_ms(*minute_ms)?),
            None => None,
        };
        let (kind, hash) = filter.subject.clone().unzip();
        let query = || {
            sql_query(include_str!("sql/violations.sql"))
                .bind::<Nullable<Text>, _>(filter.tenant.as_ref().map(TenantId::as_str))
                .bind::<Nullable<Text>, _>(filter.limit.as_ref().map(LimitId::as_str))
                .bind::<Nullable<Text>, _>(kind.clone())
                .bind::<Nullable<Text>, _>(hash.clone())
                .bind::<Timestamptz, _>(from)
                .bind::<Timestamptz, _>(to)
                .bind::<Nullable<Timestamptz>, _>(after)
                .bind::<Text, _>(place.1.clone())
                .bind::<Text, _>(place.2.clone())
                .bind::<Text, _>(place.3.clone())
                .bind::<Text, _>(place.4.clone())
                .bind::<BigInt, _>(number::limit(limit))
        };
        self.load::<Row, _>(query).await?.into_iter().map(MinuteOfViolations::try_from).collect()
    }

    /// Drops the minutes before this instant (unix ms), at most `chunk` in one transaction. Returns how many.
    pub async fn drop_violations(&self, before_ms: i64, chunk: usize) -> Result<usize, LedgerError> {
        let before = instant::from_ms(before_ms)?;
        let mut dropped = 0;
        loop {
            let count = self
                .transact(BEGIN, move |connection| {
                    async move {
                        let drop = sql_query(include_str!("sql/drop_violations.sql"))
                            .bind::<BigInt, _>(number::limit(chunk))
                            .bind::<Timestamptz, _>(before);
                        Ok(drop.execute(connection).await?)
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
}

impl TryFrom<Row> for MinuteOfViolations {
    type Error = LedgerError;

    fn try_from(row: Row) -> Result<Self, LedgerError> {
        let Row { minute, tenant, limit_id, subject_kind, subject_hash, counted, bans, under_ban } = row;
        Ok(Self {
            minute_ms: minute.timestamp_millis(),
            tenant,
            limit: LimitId::parse(&limit_id)
                .map_err(|error| LedgerError::Damaged(format!("{limit_id:?}: {error}")))?,
            subject: (!subject_kind.is_empty()).then_some((subject_kind, subject_hash)),
            violations: number::unsigned(counted)?,
            bans: number::unsigned(bans)?,
            under_ban: number::unsigned(under_ban)?,
        })
    }
}
