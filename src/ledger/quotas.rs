//! Quotas' periods: opened at first use, once, with the included amount as their first entry.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Numeric, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::prepared::sql_query;
use super::schema::tenants;
use super::{
    BEGIN_BOOKING, BEGIN_LOOK_UP, Conflict, Ledger, LedgerError, instant, journal, number, period_terms,
    recurring,
};
use crate::domain::amount::{Decimals, Units};
use crate::domain::entry::{PostedLine, Posting};
use crate::domain::grant::{CapacityChange, capacity_over_time};
use crate::domain::ids::{MeterId, Partition, TenantId};
use crate::domain::movements::{Movement, grants};
use crate::domain::period::Window;
use crate::domain::plan::PeriodTerms;
use crate::domain::uuid_id;

/// A quota's capacity as it is sent to the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaCapacity {
    /// Rises with every change and from period to period; the gate ignores lower ones.
    pub version: u64,
    /// From which instant (unix ms, ascending) which absolute capacity holds.
    pub parts: Vec<(i64, Units)>,
    /// The stretches (from and until, unix ms) whose parts are only bounds, because a grant ends there.
    pub bounds_ms: Vec<(i64, i64)>,
    /// After this instant (unix ms) the gate has to ask again.
    pub until_ms: i64,
}

/// The most parts of a capacity that are sent together.
const PARTS_MAX: usize = 16;

impl QuotaCapacity {
    /// The capacity at this instant (unix ms); before the first part, that part's.
    pub fn at(&self, at_ms: i64) -> Option<Units> {
        let begun = self.parts.iter().take_while(|(from_ms, _)| *from_ms <= at_ms).last();
        begun.or(self.parts.as_slice().first()).map(|(_, units)| *units)
    }

    /// Whether the capacity at this instant (unix ms) is only a bound.
    pub fn is_bound_at(&self, at_ms: i64) -> bool {
        self.bounds_ms.iter().any(|(start_ms, end_ms)| (*start_ms..*end_ms).contains(&at_ms))
    }

    /// Ends before the first part that is too many: the gate then asks again.
    fn bounded(mut self) -> Self {
        if let Some((from_ms, _)) = self.parts.get(PARTS_MAX) {
            self.until_ms = *from_ms;
            self.parts.truncate(PARTS_MAX);
        }
        self
    }
}

/// A period of a quota as policy has it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaPeriod {
    /// The meter's decimals.
    pub decimals: Decimals,
    /// Its start and end (unix ms).
    pub period_ms: (i64, i64),
    /// What it opens with, if it is not open yet.
    pub terms: PeriodTerms,
    /// The version of the tenant that says so.
    pub tenant_version: u64,
}

/// A quota's period that is open now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedPeriod {
    /// Its capacity, and the next period's where that is open too.
    pub capacity: QuotaCapacity,
    /// Whether it was not open before.
    pub is_new: bool,
}

/// A quota's period about to be opened.
#[derive(Clone)]
pub(crate) struct Opening {
    pub(crate) partition: Partition,
    pub(crate) tenant: TenantId,
    pub(crate) meter: MeterId,
    pub(crate) decimals: Decimals,
    pub(crate) period_ms: (i64, i64),
    pub(crate) terms: PeriodTerms,
    pub(crate) tenant_version: u64,
    /// Whether it has not begun: then it follows policy until it does.
    pub(crate) is_ahead: bool,
}

impl Opening {
    /// The opening of this period of a tenant's meter.
    pub(crate) fn of(
        partition: Partition,
        tenant: &TenantId,
        meter: &MeterId,
        QuotaPeriod { decimals, period_ms, terms, tenant_version }: &QuotaPeriod,
    ) -> Self {
        Self {
            partition,
            tenant: tenant.clone(),
            meter: meter.clone(),
            decimals: *decimals,
            period_ms: *period_ms,
            terms: *terms,
            tenant_version: *tenant_version,
            is_ahead: false,
        }
    }
}

/// What became of periods that were to be opened.
pub(crate) struct Opened {
    /// How many were not open yet.
    pub(crate) new: usize,
    /// A tenant that has changed since its periods were prepared, which are not opened, and the version that it has.
    moved: Option<(TenantId, u64)>,
}

impl Opened {
    /// Refuses what was prepared by older versions of tenants.
    pub(crate) fn check(self) -> Result<(), LedgerError> {
        match self.moved {
            Some((tenant, found)) => Err(LedgerError::Conflict(Conflict::TenantMoved { tenant, found })),
            None => Ok(()),
        }
    }
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    meter: String,
    #[diesel(sql_type = Timestamptz)]
    period_start: DateTime<Utc>,
    #[diesel(sql_type = Timestamptz)]
    period_end: DateTime<Utc>,
    #[diesel(sql_type = SmallInt)]
    decimals: i16,
    #[diesel(sql_type = Numeric)]
    capacity: Decimal,
    #[diesel(sql_type = BigInt)]
    version: i64,
}

impl Row {
    fn decimals(&self) -> Result<Decimals, LedgerError> {
        let decimals = u8::try_from(self.decimals).ok().and_then(Decimals::new);
        decimals.ok_or_else(|| LedgerError::Damaged(format!("the decimals of {}", self.meter)))
    }

    fn period_ms(&self) -> (i64, i64) {
        (self.period_start.timestamp_millis(), self.period_end.timestamp_millis())
    }

    fn read(&self, changes: &[CapacityChange]) -> Result<QuotaCapacity, LedgerError> {
        let (start_ms, until_ms) = self.period_ms();
        let over = capacity_over_time(start_ms, self.capacity, changes, self.decimals()?);
        let bounds_ms = over.bound_from_ms.map(|from_ms| (from_ms, until_ms)).into_iter().collect();
        Ok(QuotaCapacity { version: number::unsigned(self.version)?, parts: over.parts, bounds_ms, until_ms })
    }
}

/// What the books do not have yet of grants that begin or end, by tenant, meter and the period start (unix ms).
type Changes = HashMap<(String, String, i64), Vec<CapacityChange>>;

#[derive(QueryableByName)]
struct Change {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = Text)]
    meter: String,
    #[diesel(sql_type = Timestamptz)]
    period_start: DateTime<Utc>,
    #[diesel(sql_type = Timestamptz)]
    changes_at: DateTime<Utc>,
    #[diesel(sql_type = Numeric)]
    rise: Decimal,
    #[diesel(sql_type = Bool)]
    is_end: bool,
}

/// Reads which grants begin or end in these periods: tenant, meter, start and end (unix ms).
async fn read_changes(
    mut connection: &AsyncPgConnection,
    periods: &[(&str, &str, i64, i64)],
) -> Result<Changes, LedgerError> {
    if periods.is_empty() {
        return Ok(Changes::new());
    }
    let find = sql_query(include_str!("sql/capacity_changes.sql"))
        .bind::<Array<Text>, _>(periods.iter().map(|(tenant, ..)| *tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(periods.iter().map(|(_, meter, ..)| *meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(
            periods.iter().map(|(_, _, start_ms, _)| *start_ms),
        )?)
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(periods.iter().map(|(.., end_ms)| *end_ms))?);
    let rows: Vec<Change> = find.load(&mut connection).await?;
    let mut changes = Changes::new();
    for row in rows {
        let key = (row.tenant, row.meter, row.period_start.timestamp_millis());
        let at_ms = row.changes_at.timestamp_millis();
        let change = CapacityChange { at_ms, rise: row.rise, is_end: row.is_end };
        changes.entry(key).or_default().push(change);
    }
    Ok(changes)
}

/// The changes of one period.
fn changes_of<'a>(changes: &'a Changes, tenant: &str, meter: &str, start_ms: i64) -> &'a [CapacityChange] {
    changes.get(&(tenant.to_owned(), meter.to_owned(), start_ms)).map_or(&[], Vec::as_slice)
}

/// The capacities of a tenant's quotas, by meter and period's start; quotas that are not open are left out.
pub(crate) async fn read_open(
    mut connection: &AsyncPgConnection,
    tenant: &TenantId,
    wanted: &[(&MeterId, i64)],
) -> Result<Vec<((MeterId, i64), QuotaCapacity)>, LedgerError> {
    let find = sql_query(include_str!("sql/open_quotas.sql"))
        .bind::<Text, _>(tenant.as_str())
        .bind::<Array<Text>, _>(wanted.iter().map(|(meter, _)| meter.as_str()).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(wanted.iter().map(|(_, start_ms)| *start_ms))?);
    let rows: Vec<Row> = find.load(&mut connection).await?;
    let periods =
        rows.iter().map(|row| (tenant.as_str(), row.meter.as_str(), row.period_ms().0, row.period_ms().1));
    let changes = read_changes(connection, &periods.collect::<Vec<_>>()).await?;
    rows.into_iter()
        .map(|row| {
            let meter = MeterId::parse(&row.meter).map_err(|_| LedgerError::Damaged(row.meter.clone()))?;
            let start_ms = row.period_ms().0;
            let changes = changes_of(&changes, tenant.as_str(), &row.meter, start_ms);
            Ok(((meter, start_ms), row.read(changes)?.bounded()))
        })
        .collect()
}

impl Ledger {
    /// Opens this period of a tenant's quota. If it is open already, the terms it was opened with stay.
    ///
    /// Errors: [`Conflict::TenantMoved`] where it is not open and the tenant has another version by now.
    pub async fn open_quota_period(
        &self,
        tenant: &TenantId,
        meter: &MeterId,
        period: &QuotaPeriod,
    ) -> Result<OpenedPeriod, LedgerError> {
        let partition = self.partition_of(tenant).await?;
        self.ensure_months_of([period.period_ms.0].into_iter()).await?;
        let opening = Opening::of(partition, tenant, meter, period);
        self.transact(BEGIN_BOOKING, move |connection| async move { open(connection, opening).await }.boxed())
            .await
    }

    /// The capacity of a quota's period that starts at `start_ms`, with the next one's where that is open too; none
    /// where it is not open. All of it as of one instant: the figures of one version.
    pub async fn quota_capacity(
        &self,
        tenant: &TenantId,
        meter: &MeterId,
        start_ms: i64,
    ) -> Result<Option<QuotaCapacity>, LedgerError> {
        let found = self.quota_capacities(vec![(tenant.clone(), meter.clone(), start_ms)]).await?;
        Ok(found.into_values().next())
    }

    /// [`Self::quota_capacity`] of several periods, each by its tenant, meter and start (unix ms).
    pub async fn quota_capacities(
        &self,
        wanted: Vec<PeriodKey>,
    ) -> Result<HashMap<PeriodKey, QuotaCapacity>, LedgerError> {
        let read = self.transact(BEGIN_LOOK_UP, move |connection| {
            async move { read_with_next(connection, &wanted).await }.boxed()
        });
        Ok(read.await?.into_iter().collect())
    }
}

async fn open(connection: &mut AsyncPgConnection, opening: Opening) -> Result<OpenedPeriod, LedgerError> {
    let opened = open_all(connection, opening.partition, std::slice::from_ref(&opening)).await?;
    let wanted = [(opening.tenant, opening.meter, opening.period_ms.0)];
    let open = read_with_next(connection, &wanted).await?;
    if let Some((_, capacity)) = open.into_iter().next() {
        return Ok(OpenedPeriod { capacity, is_new: opened.new > 0 });
    }
    opened.check()?;
    Err(LedgerError::Damaged("a quota's period that was just opened is gone".into()))
}

/// Opens periods of one partition's tenants that are not open yet, unless their tenants have changed since they were
/// prepared.
pub(crate) async fn open_all(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    openings: &[Opening],
) -> Result<Opened, LedgerError> {
    let versions = lock_tenants(connection, openings).await?;
    let version_of = |opening: &Opening| versions.get(&opening.tenant).copied();
    let (current, moved): (Vec<_>, Vec<_>) =
        openings.iter().cloned().partition(|opening| version_of(opening) == Some(opening.tenant_version));
    let moved = moved.as_slice().first().map(|opening| {
        let found = version_of(opening).unwrap_or(opening.tenant_version.saturating_add(1));
        (opening.tenant.clone(), found)
    });
    let new = period_terms::open(connection, &current).await?;
    let row_of =
        |opening: &Opening| new.iter().find(|row| row.tenant == opening.tenant && row.meter == opening.meter);
    let as_opened = |opening: &Opening| {
        let row = row_of(opening)?;
        let period_ms = (opening.period_ms.0, row.period_end.0);
        Some((Opening { period_ms, ..opening.clone() }, row.step.unsigned_abs()))
    };
    let (opened, steps): (Vec<_>, Vec<_>) = current.iter().filter_map(as_opened).unzip();
    let postings = opened.iter().zip(steps).map(|(opening, step)| {
        let period = Window { start_ms: opening.period_ms.0, end_ms: opening.period_ms.1 };
        let included = opening.terms.included.to_amount(opening.decimals);
        posting(opening, step, grants::grant(period, included))
    });
    journal::post_beside_outbox(connection, partition, postings.collect()).await?;
    recurring::give(connection, partition, &opened).await?;
    Ok(Opened { new: new.len(), moved })
}

/// Opening a period and changing a tenant's calendar exclude each other. So the change sees every period opened by the
/// older calendar, and later ones end where the new calendar says. Other changes need not wait: a change of plan is
/// carried out under a lock of the tenant once it is written, and so sees every period that an older version opened.
/// Returns the versions.
async fn lock_tenants(
    connection: &mut AsyncPgConnection,
    openings: &[Opening],
) -> Result<HashMap<TenantId, u64>, LedgerError> {
    let named = tenants::id.eq_any(openings.iter().map(|opening| &opening.tenant));
    let found = tenants::table.select((tenants::id, tenants::version)).filter(named);
    let rows: Vec<(TenantId, i64)> = found.order(tenants::id).for_key_share().load(connection).await?;
    rows.into_iter().map(|(tenant, version)| Ok((tenant, number::unsigned(version)?))).collect()
}

/// A tenant's meter and the start of a period of it (unix ms).
pub(crate) type PeriodKey = (TenantId, MeterId, i64);

#[derive(QueryableByName)]
struct WithNext {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(embed)]
    current: Row,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    next_end: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Numeric>)]
    next_capacity: Option<Decimal>,
    #[diesel(sql_type = Nullable<BigInt>)]
    next_version: Option<i64>,
}

/// The capacities of these periods, where they are open, each with the next period's if that is open too: with both,
/// the gate need not ask when the one turns into the other.
pub(crate) async fn read_with_next(
    connection: &mut AsyncPgConnection,
    wanted: &[PeriodKey],
) -> Result<Vec<(PeriodKey, QuotaCapacity)>, LedgerError> {
    let find = sql_query(include_str!("sql/quotas_with_next.sql"))
        .bind::<Array<Text>, _>(wanted.iter().map(|(tenant, ..)| tenant.as_str()).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(wanted.iter().map(|(_, meter, _)| meter.as_str()).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(wanted.iter().map(|(.., start_ms)| *start_ms))?);
    let rows: Vec<WithNext> = find.load(connection).await?;
    let periods: Vec<_> = rows.iter().flat_map(WithNext::periods).collect();
    let changes = read_changes(connection, &periods).await?;
    rows.iter().map(|row| row.read(&changes)).collect()
}

impl WithNext {
    /// Both periods, as far as they are open.
    fn periods(&self) -> impl Iterator<Item = (&str, &str, i64, i64)> {
        let (start_ms, end_ms) = self.current.period_ms();
        let next = self.next_end.map(|next_end| (end_ms, next_end.timestamp_millis()));
        [Some((start_ms, end_ms)), next]
            .into_iter()
            .flatten()
            .map(|(start_ms, end_ms)| (self.tenant.as_str(), self.current.meter.as_str(), start_ms, end_ms))
    }

    fn read(&self, changes: &Changes) -> Result<(PeriodKey, QuotaCapacity), LedgerError> {
        let (start_ms, end_ms) = self.current.period_ms();
        let meter = &self.current.meter;
        let mut capacity = self.current.read(changes_of(changes, &self.tenant, meter, start_ms))?;
        if let (Some(end), Some(next), Some(version)) = (self.next_end, self.next_capacity, self.next_version)
        {
            let changes = changes_of(changes, &self.tenant, meter, end_ms);
            let over = capacity_over_time(end_ms, next, changes, self.current.decimals()?);
            capacity.until_ms = end.timestamp_millis();
            capacity.parts.extend(over.parts);
            capacity.bounds_ms.extend(over.bound_from_ms.map(|from_ms| (from_ms, capacity.until_ms)));
            capacity.version = number::unsigned(version)?;
        }
        let meter = MeterId::parse(meter).map_err(|_| LedgerError::Damaged(meter.clone()))?;
        Ok(((number::tenant(&self.tenant)?, meter, start_ms), capacity.bounded()))
    }
}

/// Books what the opening of a period does at its start, so that the books do not depend on when it was first used.
pub(crate) fn posting(opening: &Opening, step: u32, movements: Vec<Movement>) -> Posting {
    let start_ms = opening.period_ms.0;
    let line = PostedLine { meter: opening.meter.clone(), movements, first_leg: 0, begins_to_consume: false };
    Posting {
        tenant: opening.tenant.clone(),
        operation_id: operation_id(&opening.tenant, &opening.meter, start_ms),
        step,
        happened_at_ms: start_ms,
        operation: String::new(),
        hour_start_ms: start_ms,
        subjects: Vec::new(),
        lines: vec![line],
    }
}

/// The id is a hash of what is opened: the same opening is the same operation.
pub(crate) fn operation_id(tenant: &TenantId, meter: &MeterId, start_ms: i64) -> uuid::Uuid {
    let mut hasher = blake3::Hasher::new_derive_key("tollgate quota period v1");
    for part in [tenant.as_str(), meter.as_str()] {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    }
    hasher.update(&start_ms.to_le_bytes());
    uuid_id::of_hash(&hasher)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "b1c64a33f3a5d166f2412bad826a0574c12868c2ec4387f64cbb396507b1c823";

    #[test]
    fn an_opening_is_the_same_operation_as_ever() {
        let opening = Opening {
            partition: Partition::new(3).unwrap(),
            tenant: TenantId::parse("acme").unwrap(),
            meter: MeterId::parse("ocr.page").unwrap(),
            decimals: Decimals::new(2).unwrap(),
            period_ms: (1_000, 9_000),
            terms: PeriodTerms { included: Units::new(250).unwrap(), ..PeriodTerms::default() },
            tenant_version: 1,
            is_ahead: false,
        };
        let movements = grants::grant(
            Window { start_ms: 1_000, end_ms: 9_000 },
            opening.terms.included.to_amount(opening.decimals),
        );
        let entry = posting(&opening, 1, movements).entries().unwrap().remove(0);
        let mut hash = super::super::chain::BatchHash::begin(
            1,
            1,
            &[0; 32],
            DateTime::from_timestamp_micros(5).unwrap(),
        );
        hash.row(&entry);
        assert_eq!(entry.operation_id.to_string(), "5727af9f-859c-8f89-baf4-92bc5705039f");
        assert_eq!(blake3::Hash::from(hash.finish()).to_hex().as_str(), HASH);
    }
}
