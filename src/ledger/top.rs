//! Who used the most of a meter: sums of hourly usage, the largest first.

use chrono::{DateTime, Utc};
use diesel::sql_types::{BigInt, Bool, Nullable, Numeric, Text, Timestamptz};
use diesel::{QueryableByName, select};
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use rust_decimal::Decimal;

use super::functions::transaction_timestamp;
use super::prepared::sql_query;
use super::{Ledger, LedgerError, instant, number};
use crate::domain::ids::{MeterId, Subject, SubjectId, SubjectKind, TenantId};
use crate::domain::usage::Consumer;

/// Which usage to rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopQuery {
    /// Of this meter: amounts of different meters cannot be compared.
    pub meter: MeterId,
    /// Only this tenant's; none for all.
    pub tenant: Option<TenantId>,
    /// Who is ranked.
    pub by: Consumer,
    /// From the hours that start at or after this instant (unix ms).
    pub from_ms: i64,
    /// To the hours that start before it (unix ms).
    pub to_ms: i64,
    /// Behind this place; none from the first.
    pub after: Option<TopCursor>,
    /// At most this many.
    pub limit: usize,
}

/// A place in a ranking: it stays one while others use more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopCursor {
    /// How much the consumer used.
    pub consumed: Decimal,
    /// Its names, joined as the ledger orders them.
    pub names: String,
}

/// What a consumer used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    /// Its place in the ranking.
    pub place: TopCursor,
    /// From 1, the largest; of equal ones the first by name.
    pub rank: u64,
    /// The tenant, if tenants or subjects are ranked.
    pub tenant: Option<TenantId>,
    /// The plan, if plans are ranked; empty for a tenant that is gone.
    pub plan: Option<String>,
    /// The operation, if operations are ranked; empty for none.
    pub operation: Option<String>,
    /// The subject, if subjects are ranked.
    pub subject: Option<Subject>,
    /// How much.
    pub consumed: Decimal,
    /// How many operations consumed.
    pub count: u64,
    /// Corrections of closed periods. They are not in `consumed`, and not ranked by.
    pub corrections: Decimal,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    rank: i64,
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Text)]
    plan: String,
    #[diesel(sql_type = Text)]
    operation: String,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Text)]
    subject: String,
    #[diesel(sql_type = Text)]
    names: String,
    #[diesel(sql_type = Numeric)]
    consumed: Decimal,
    #[diesel(sql_type = BigInt)]
    count: i64,
    #[diesel(sql_type = Numeric)]
    corrections: Decimal,
}

impl Row {
    fn read(self, by: Consumer) -> Result<Ranked, LedgerError> {
        let damaged = |_| LedgerError::Damaged("the subject of a row of usage".into());
        let subject = || -> Result<Subject, LedgerError> {
            let kind = SubjectKind::parse(&self.kind).map_err(damaged)?;
            Ok(Subject { kind, id: SubjectId::parse(&self.subject).map_err(damaged)? })
        };
        Ok(Ranked {
            place: TopCursor { consumed: self.consumed, names: self.names.clone() },
            rank: number::unsigned(self.rank)?,
            tenant: by.has_tenant().then(|| number::tenant(&self.tenant)).transpose()?,
            plan: (by == Consumer::Plan).then(|| self.plan.clone()),
            operation: (by == Consumer::Operation).then(|| self.operation.clone()),
            subject: (by == Consumer::Subject).then(subject).transpose()?,
            consumed: self.consumed,
            count: number::unsigned(self.count)?,
            corrections: self.corrections,
        })
    }
}

impl Ledger {
    /// Who used the most, and when that was read (the database's clock, unix ms).
    pub async fn top_usage(&self, query: &TopQuery) -> Result<(Vec<Ranked>, i64), LedgerError> {
        let (from, to) = (instant::from_ms(query.from_ms)?, instant::from_ms(query.to_ms)?);
        let (rows, now) = self
            .read(|connection| {
                let question = sql_query(include_str!("sql/top_usage.sql"))
                    .bind::<Timestamptz, _>(from)
                    .bind::<Timestamptz, _>(to)
                    .bind::<Text, _>(query.meter.to_string())
                    .bind::<Nullable<Text>, _>(query.tenant.as_ref().map(ToString::to_string))
                    .bind::<Nullable<Numeric>, _>(query.after.as_ref().map(|after| after.consumed))
                    .bind::<Bool, _>(query.by.has_tenant())
                    .bind::<Bool, _>(query.by == Consumer::Plan)
                    .bind::<Bool, _>(query.by == Consumer::Operation)
                    .bind::<Bool, _>(query.by == Consumer::Subject)
                    .bind::<BigInt, _>(number::limit(query.limit))
                    .bind::<Nullable<Text>, _>(query.after.as_ref().map(|after| after.names.clone()));
                async move {
                    let now: DateTime<Utc> = select(transaction_timestamp()).get_result(connection).await?;
                    Ok((question.load::<Row>(connection).await?, now))
                }
                .boxed()
            })
            .await?;
        let ranked = rows.into_iter().map(|row| row.read(query.by)).collect::<Result<_, _>>()?;
        Ok((ranked, now.timestamp_millis()))
    }
}
