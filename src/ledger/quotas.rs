//! Quotas' periods: opened at first use, once, with the included amount as their first entry.

use chrono::{DateTime, Utc};
use diesel::sql_types::{Array, BigInt, Bool, Numeric, SmallInt, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::balances::{self, BalanceChanges};
use super::chain::{self, Batch, Chain};
use super::{BEGIN, Ledger, LedgerError, entries, instant, number};
use crate::domain::amount::{Decimals, Units};
use crate::domain::entry::{Account, Entry, EntryClass, EntryFlags, Movement};
use crate::domain::ids::{MeterId, Partition, TenantId};

/// A quota's capacity as the gate is told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaCapacity {
    /// Rises with every change and from period to period; the gate ignores lower ones.
    pub version: u64,
    /// From when (unix ms) which absolute capacity holds.
    pub parts: Vec<(i64, Units)>,
    /// Past this instant (unix ms) the gate has to ask again.
    pub until_ms: i64,
}

/// A quota's period about to be opened.
struct Opening {
    partition: Partition,
    tenant: TenantId,
    meter: MeterId,
    decimals: Decimals,
    period_ms: (i64, i64),
    included: Units,
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
    included: Decimal,
    #[diesel(sql_type = BigInt)]
    version: i64,
}

impl Row {
    fn read(&self) -> Result<QuotaCapacity, LedgerError> {
        let decimals = u8::try_from(self.decimals).ok().and_then(Decimals::new);
        let decimals =
            decimals.ok_or_else(|| LedgerError::Damaged(format!("the decimals of {}", self.meter)))?;
        let included = number::units(self.included, decimals)?;
        Ok(QuotaCapacity {
            version: number::unsigned(self.version)?,
            parts: vec![(self.period_start.timestamp_millis(), included)],
            until_ms: self.period_end.timestamp_millis(),
        })
    }
}

const COLUMNS: &str =
    "SELECT q.meter, q.period_start, q.period_end, q.decimals, q.included, q.version FROM quota_periods q";

/// The capacities of a tenant's quotas by meter and period's start; those that are not open are left out.
pub(crate) async fn read_open(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
    wanted: &[(&MeterId, i64)],
) -> Result<Vec<((MeterId, i64), QuotaCapacity)>, LedgerError> {
    let query = format!(
        "{COLUMNS} JOIN unnest($2::text[], $3::timestamptz[]) AS w(meter, period_start) USING (meter, period_start) \
         WHERE q.tenant = $1"
    );
    let rows: Vec<Row> = sql_query(query)
        .bind::<Text, _>(tenant.as_str())
        .bind::<Array<Text>, _>(wanted.iter().map(|(meter, _)| meter.as_str()).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(wanted.iter().map(|(_, start_ms)| *start_ms))?)
        .load(connection)
        .await?;
    rows.into_iter()
        .map(|row| {
            let meter = MeterId::parse(&row.meter).map_err(|_| LedgerError::Damaged(row.meter.clone()))?;
            Ok(((meter, row.period_start.timestamp_millis()), row.read()?))
        })
        .collect()
}

impl Ledger {
    /// Opens a meter's quota for a tenant's period (start and end, unix ms) with its included amount, unless it is open:
    /// then the amount it was opened with stands. Returns its capacity.
    pub async fn open_quota_period(
        &self,
        tenant: &TenantId,
        meter: &MeterId,
        decimals: Decimals,
        period_ms: (i64, i64),
        included: Units,
    ) -> Result<QuotaCapacity, LedgerError> {
        let partition = self.partition_of(tenant).await?;
        self.ensure_months_of([period_ms.0].into_iter()).await?;
        let (tenant, meter) = (tenant.clone(), meter.clone());
        let opening = Opening { partition, tenant, meter, decimals, period_ms, included };
        self.transact(BEGIN, move |connection| async move { open(connection, opening).await }.boxed()).await
    }
}

async fn open(connection: &mut AsyncPgConnection, opening: Opening) -> Result<QuotaCapacity, LedgerError> {
    let is_new = insert(connection, &opening).await?;
    if is_new && opening.included > Units::ZERO {
        grant(connection, &opening).await?;
    }
    let wanted = [(&opening.meter, opening.period_ms.0)];
    let open = read_open(connection, &opening.tenant, &wanted).await?;
    let capacity = open.into_iter().next().map(|(_, capacity)| capacity);
    capacity.ok_or_else(|| LedgerError::Damaged("a quota's period that was just opened is gone".into()))
}

/// Its first version is the period's start in seconds: a later period's is higher, in whatever order and however near to
/// each other two periods are opened.
async fn insert(connection: &mut AsyncPgConnection, opening: &Opening) -> Result<bool, LedgerError> {
    let inserted = sql_query(
        "INSERT INTO quota_periods (tenant, meter, period_start, period_end, decimals, included, version) \
         VALUES ($1, $2, $3, $4, $5, $6, greatest(extract(epoch FROM $3)::bigint, 1)) ON CONFLICT DO NOTHING",
    )
    .bind::<Text, _>(opening.tenant.as_str())
    .bind::<Text, _>(opening.meter.as_str())
    .bind::<Timestamptz, _>(instant::from_ms(opening.period_ms.0)?)
    .bind::<Timestamptz, _>(instant::from_ms(opening.period_ms.1)?)
    .bind::<SmallInt, _>(i16::from(opening.decimals.count()))
    .bind::<Numeric, _>(opening.included.to_amount(opening.decimals).decimal())
    .execute(connection)
    .await?;
    Ok(inserted == 1)
}

#[derive(QueryableByName)]
struct Locked {
    #[diesel(sql_type = Bool)]
    #[allow(dead_code, reason = "the lock is what was asked for")]
    locked: bool,
    #[diesel(sql_type = Timestamptz)]
    now: DateTime<Utc>,
}

/// The lock that serialises a partition's chain of transactions outside the outbox.
const CHAIN_LOCK: &str = "SELECT pg_advisory_xact_lock(hashtext('tollgate other chain'), $1::integer) IS NOT NULL AS locked, now() AS now";

async fn grant(connection: &mut AsyncPgConnection, opening: &Opening) -> Result<(), LedgerError> {
    let chain = Chain::Other(opening.partition);
    let locked: Locked =
        sql_query(CHAIN_LOCK).bind::<SmallInt, _>(chain.number()).get_result(connection).await?;
    let heads = chain::heads(connection, &[chain]).await?;
    let entry = opening_entry(opening);
    let mut changes = BalanceChanges::default();
    changes.add(&opening.tenant, opening.period_ms, &entry.movement);
    let head = heads.into_iter().next().ok_or_else(|| LedgerError::Damaged("a chain has no head".into()))?;
    let mut batches = [Batch { chain, head, rows: vec![entry] }];
    chain::append(connection, &mut batches, locked.now).await?;
    entries::insert(connection, &batches, locked.now).await?;
    balances::add(connection, &changes).await
}

/// granted → available, happening when the period starts, so that the books never depend on when it was first used.
fn opening_entry(opening: &Opening) -> Entry {
    let movement = Movement {
        line: 0,
        leg: 0,
        meter: opening.meter.clone(),
        credit: Account::Granted,
        debit: Account::Available,
        amount: opening.included.to_amount(opening.decimals),
        class: EntryClass::Grant,
        flags: EntryFlags::default(),
    };
    Entry {
        tenant: opening.tenant.clone(),
        operation_id: operation_id(opening),
        step: 1,
        movement,
        period_start_ms: opening.period_ms.0,
        happened_at_ms: opening.period_ms.0,
        operation: String::new(),
        hour_start_ms: opening.period_ms.0,
        subjects: Vec::new(),
    }
}

/// A function of what is opened: the same opening is the same operation.
fn operation_id(opening: &Opening) -> uuid::Uuid {
    let mut hasher = blake3::Hasher::new_derive_key("tollgate quota period v1");
    for part in [opening.tenant.as_str(), opening.meter.as_str()] {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    }
    hasher.update(&opening.period_ms.0.to_le_bytes());
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}
