//! What a restore of a cold tenant needs: one snapshot of its books.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Numeric, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::{FutureExt, try_join};
use rust_decimal::Decimal;

use super::open_holds::{self, MeterDecimals, OpenHolds, TornHold};
use super::prepared::sql_query;
use super::{BEGIN_LOOK_UP, Ledger, LedgerError, QuotaCapacity, cursors, instant, number, quotas};
use crate::domain::amount::{Decimals, Units};
use crate::domain::counted_meter::CountedMeter;
use crate::domain::ids::{
    MeterId, OperationId, OutboxId, Partition, ReservationId, Subject, SubjectId, SubjectKind, TenantId,
};
use crate::domain::reservation::Record;

/// A counter whose figure is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterAsk {
    /// What it counts.
    pub meters: Vec<CountedMeter>,
    /// The subject it counts for; none for the whole tenant.
    pub subject: Option<Subject>,
    /// The operations it counts; none for all.
    pub operations: Option<Vec<OperationId>>,
    /// Its window's start (unix ms).
    pub window_start_ms: i64,
    /// Its window's end (unix ms).
    pub window_end_ms: i64,
}

/// What is asked about a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestoreAsk {
    /// Counters, by window.
    pub counters: Vec<CounterAsk>,
    /// Quotas: the meter, its decimals and the period's start (unix ms).
    pub quotas: Vec<(MeterId, Decimals, i64)>,
    /// Whether the open reservations are wanted.
    pub with_open: bool,
    /// Only the open reservations that name one of these subjects; none for all.
    pub open_of: Option<Vec<Subject>>,
    /// Whether the names of all subjects are wanted: at most this many.
    pub subjects_max: Option<usize>,
    /// The last operation is looked for from this instant on (unix ms).
    pub latest_since_ms: i64,
}

/// What the books say about one quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaState {
    /// Its capacity; none when its period has not been opened.
    pub capacity: Option<QuotaCapacity>,
    /// What is consumed of it.
    pub consumed: Units,
}

/// What the books say about a tenant, as of one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSnapshot {
    /// The last event of its partition that is in these figures.
    pub cursor: OutboxId,
    /// Its open reservations whose records can be decoded.
    pub open: Vec<(ReservationId, Record)>,
    /// Its other open reservations.
    pub torn: Vec<TornHold>,
    /// Consumed units of each counter asked for, in order, in units of the counter (weights applied), at most
    /// [`Units::MAX`].
    pub counters: Vec<Units>,
    /// Each quota asked for, in order.
    pub quotas: Vec<QuotaState>,
    /// Its subjects; none where they were not asked for, or are too many.
    pub subjects: Option<Vec<Subject>>,
    /// When its last operation since the instant asked for was made or resolved (unix ms): no key was taken later.
    pub latest_at_ms: Option<i64>,
}

impl Ledger {
    /// Reads what a restore of a tenant needs, in one snapshot.
    pub async fn read_tenant(
        &self,
        partition: Partition,
        tenant: &TenantId,
        ask: &RestoreAsk,
    ) -> Result<TenantSnapshot, LedgerError> {
        let (tenant, ask) = (tenant.clone(), ask.clone());
        self.transact(BEGIN_LOOK_UP, move |connection| {
            async move {
                let cursor = cursors::read(connection, partition).await?;
                let reading = read_figures(connection, &tenant, &ask);
                let latest = read_latest(connection, partition, &tenant, ask.latest_since_ms);
                let naming = read_subjects(connection, &tenant, ask.subjects_max);
                let (figures, latest_at_ms, subjects) = try_join!(reading, latest, naming)?;
                let BookFigures { open: OpenHolds { whole: open, torn }, counters, quotas } = figures;
                Ok(TenantSnapshot { cursor, open, torn, counters, quotas, subjects, latest_at_ms })
            }
            .boxed()
        })
        .await
    }
}

/// What the books say about a tenant, in the order asked for.
pub(crate) struct BookFigures {
    pub(crate) open: OpenHolds,
    pub(crate) counters: Vec<Units>,
    pub(crate) quotas: Vec<QuotaState>,
}

/// Reads what the books say: the one place, for restores and comparisons alike.
pub(crate) async fn read_figures(
    connection: &AsyncPgConnection,
    tenant: &TenantId,
    ask: &RestoreAsk,
) -> Result<BookFigures, LedgerError> {
    let decimals = decimals_of(ask);
    let open = async {
        if ask.with_open {
            open_holds::read(connection, tenant, ask.open_of.as_deref(), &decimals).await
        } else {
            Ok(OpenHolds::default())
        }
    };
    let counters = read_counters(connection, tenant, &ask.counters);
    let (open, counters, quotas) = try_join!(open, counters, read_quotas(connection, tenant, &ask.quotas))?;
    Ok(BookFigures { open, counters, quotas })
}

fn decimals_of(ask: &RestoreAsk) -> MeterDecimals<'_> {
    let of_counters = ask.counters.iter().flat_map(|counter| &counter.meters);
    let of_counters = of_counters.map(|counted| (&counted.meter, counted.decimals));
    of_counters.chain(ask.quotas.iter().map(|(meter, decimals, _)| (meter, *decimals))).collect()
}

async fn read_subjects(
    mut connection: &AsyncPgConnection,
    tenant: &TenantId,
    most: Option<usize>,
) -> Result<Option<Vec<Subject>>, LedgerError> {
    let Some(most) = most else { return Ok(None) };
    let find = sql_query(include_str!("sql/subjects_of_tenant.sql"))
        .bind::<Text, _>(tenant.as_str())
        .bind::<BigInt, _>(number::limit(most.saturating_add(1)));
    let rows: Vec<SubjectRow> = find.load(&mut connection).await?;
    if rows.len() > most {
        return Ok(None);
    }
    Ok(Some(rows.into_iter().map(|row| Subject { kind: row.kind, id: row.id }).collect()))
}

#[derive(QueryableByName)]
struct SubjectRow {
    #[diesel(sql_type = Text)]
    kind: SubjectKind,
    #[diesel(sql_type = Text)]
    id: SubjectId,
}

#[derive(QueryableByName)]
struct CounterRow {
    #[diesel(sql_type = Integer)]
    counter: i32,
    #[diesel(sql_type = Integer)]
    place: i32,
    #[diesel(sql_type = Numeric)]
    consumed: Decimal,
}

/// One statement for all counters: it asks once for each counter's meter.
async fn read_counters(
    mut connection: &AsyncPgConnection,
    tenant: &TenantId,
    asks: &[CounterAsk],
) -> Result<Vec<Units>, LedgerError> {
    if asks.is_empty() {
        return Ok(Vec::new());
    }
    let questions: Vec<(usize, usize, &CounterAsk)> = asks
        .iter()
        .enumerate()
        .flat_map(|(i, ask)| (0..ask.meters.len()).map(move |place| (i, place, ask)))
        .collect();
    let index = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
    let operations = |ask: &CounterAsk| ask.operations.as_ref().map(|list| super::entries::literal(list));
    let find = sql_query(include_str!("sql/consumed_by_counters.sql"))
        .bind::<Text, _>(tenant.as_str())
        .bind::<Array<Integer>, _>(questions.iter().map(|(i, _, _)| index(*i)).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(questions.iter().map(|(_, place, _)| index(*place)).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(
            questions.iter().map(|(_, place, ask)| ask.meters[*place].meter.as_str()).collect::<Vec<_>>(),
        )
        .bind::<Array<Nullable<Text>>, _>(
            questions
                .iter()
                .map(|(.., ask)| ask.subject.as_ref().map(|s| s.kind.as_str()))
                .collect::<Vec<_>>(),
        )
        .bind::<Array<Nullable<Text>>, _>(
            questions.iter().map(|(.., ask)| ask.subject.as_ref().map(|s| s.id.as_str())).collect::<Vec<_>>(),
        )
        .bind::<Array<Nullable<Text>>, _>(
            questions.iter().map(|(.., ask)| operations(ask)).collect::<Vec<_>>(),
        )
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(
            questions.iter().map(|(.., ask)| ask.window_start_ms),
        )?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(
            questions.iter().map(|(.., ask)| ask.window_end_ms),
        )?);
    let rows: Vec<CounterRow> = find.load(&mut connection).await?;
    let mut sums = vec![Units::ZERO; asks.len()];
    for row in rows {
        let (counter, place): (usize, usize) = (number::small(row.counter)?, number::small(row.place)?);
        let counted = &asks[counter].meters[place];
        let consumed = number::summed_units(row.consumed, counted.decimals)?;
        sums[counter] = weighted(sums[counter], consumed, counted.factor);
    }
    Ok(sums)
}

/// The sum with so much more, at most the largest amount.
fn weighted(sum: Units, consumed: Units, factor: i64) -> Units {
    let total = consumed.get().checked_mul(factor).and_then(|product| product.checked_add(sum.get()));
    total.and_then(Units::new).unwrap_or(Units::MAX)
}

#[derive(QueryableByName)]
struct ConsumedRow {
    #[diesel(sql_type = Text)]
    meter: String,
    #[diesel(sql_type = Timestamptz)]
    period_start: DateTime<Utc>,
    #[diesel(sql_type = Numeric)]
    consumed: Decimal,
}

async fn read_quotas(
    connection: &AsyncPgConnection,
    tenant: &TenantId,
    asks: &[(MeterId, Decimals, i64)],
) -> Result<Vec<QuotaState>, LedgerError> {
    if asks.is_empty() {
        return Ok(Vec::new());
    }
    let wanted: Vec<_> = asks.iter().map(|(meter, _, start_ms)| (meter, *start_ms)).collect();
    let reading = quotas::read_open(connection, tenant, &wanted);
    let (open, rows) = try_join!(reading, read_consumed(connection, tenant, &wanted))?;
    let open: HashMap<_, _> = open.into_iter().collect();
    let consumed: HashMap<(String, i64), Decimal> = rows
        .into_iter()
        .map(|row| ((row.meter, row.period_start.timestamp_millis()), row.consumed))
        .collect();
    asks.iter()
        .map(|(meter, decimals, start_ms)| {
            let used = consumed.get(&(meter.to_string(), *start_ms)).copied().unwrap_or_default();
            let capacity = open.get(&(meter.clone(), *start_ms)).cloned();
            Ok(QuotaState { capacity, consumed: number::summed_units(used, *decimals)? })
        })
        .collect()
}

async fn read_consumed(
    mut connection: &AsyncPgConnection,
    tenant: &TenantId,
    wanted: &[(&MeterId, i64)],
) -> Result<Vec<ConsumedRow>, LedgerError> {
    let find = sql_query(include_str!("sql/consumed_by_quotas.sql"))
        .bind::<Text, _>(tenant.as_str())
        .bind::<Array<Text>, _>(wanted.iter().map(|(meter, _)| meter.as_str()).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(wanted.iter().map(|(_, start_ms)| *start_ms))?);
    Ok(find.load(&mut connection).await?)
}

#[derive(QueryableByName)]
struct LatestRow {
    #[diesel(sql_type = Timestamptz)]
    latest_at: DateTime<Utc>,
}

/// Reads one entry of each index, whether the operation was keyed or not. Looking for the last keyed one would read all
/// reservations of a tenant without keys.
async fn read_latest(
    mut connection: &AsyncPgConnection,
    partition: Partition,
    tenant: &TenantId,
    since_ms: i64,
) -> Result<Option<i64>, LedgerError> {
    let find = sql_query(include_str!("sql/latest_operation.sql"))
        .bind::<Text, _>(tenant.as_str())
        .bind::<Timestamptz, _>(instant::from_ms(since_ms)?)
        .bind::<SmallInt, _>(number::of_partition(partition));
    let rows: Vec<LatestRow> = find.load(&mut connection).await?;
    Ok(rows.as_slice().first().map(|row| row.latest_at.timestamp_millis()))
}
