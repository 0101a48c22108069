//! A tenant's open reservations; where a record cannot be decoded, what its entries say.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use diesel::QueryableByName;
use diesel::sql_types::{self, Array, BigInt, Binary, Nullable, Numeric, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use rust_decimal::Decimal;

use super::prepared::sql_query;
use super::{LedgerError, instant, number};
use crate::domain::amount::{Decimals, Units};
use crate::domain::holds::BookedHold;
use crate::domain::ids::{MeterId, OperationId, ReservationId, Subject, SubjectId, SubjectKind, TenantId};
use crate::domain::reservation::Record;

/// Open reservations.
#[derive(Debug, Default)]
pub(crate) struct OpenHolds {
    /// Those whose records can be decoded.
    pub(crate) whole: Vec<(ReservationId, Record)>,
    /// The others.
    pub(crate) torn: Vec<TornHold>,
}

/// An open reservation whose record cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornHold {
    /// Its reservation.
    pub id: ReservationId,
    /// Why the record cannot be decoded.
    pub reason: String,
    /// What its row and its entries still say.
    pub hold: BookedHold,
}

/// The decimals of each meter asked about.
pub(crate) type MeterDecimals<'a> = HashMap<&'a MeterId, Decimals>;

#[derive(QueryableByName)]
struct OpenRow {
    #[diesel(sql_type = sql_types::Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Binary)]
    record: Vec<u8>,
}

impl OpenRow {
    fn read(self) -> Result<(ReservationId, Record), LedgerError> {
        let id = ReservationId::from_bytes(self.id.into_bytes());
        let record = Record::decode(&self.record);
        Ok((id, record.map_err(|error| LedgerError::Damaged(format!("reservation {id}: {error}")))?))
    }
}

/// All of a tenant's open holds, or only those that name one of these subjects.
pub(crate) async fn read(
    connection: &AsyncPgConnection,
    tenant: &TenantId,
    subjects: Option<&[Subject]>,
    decimals: &MeterDecimals<'_>,
) -> Result<OpenHolds, LedgerError> {
    let rows = match subjects {
        None => read_all(connection, tenant).await?,
        Some(subjects) => read_of(connection, tenant, subjects).await?,
    };
    let (mut holds, mut damaged) = (OpenHolds::default(), Vec::new());
    for row in rows {
        let id = ReservationId::from_bytes(row.id.into_bytes());
        match Record::decode(&row.record) {
            Ok(record) => holds.whole.push((id, record)),
            Err(error) => damaged.push((id, error.to_string())),
        }
    }
    holds.torn = read_torn(connection, tenant, damaged, decimals).await?;
    Ok(holds)
}

async fn read_all(
    mut connection: &AsyncPgConnection,
    tenant: &TenantId,
) -> Result<Vec<OpenRow>, LedgerError> {
    let find = sql_query(include_str!("sql/open_holds.sql")).bind::<Text, _>(tenant);
    Ok(find.load(&mut connection).await?)
}

/// Reads the index of subjects, so that the tenant's other holds cost nothing.
async fn read_of(
    mut connection: &AsyncPgConnection,
    tenant: &TenantId,
    subjects: &[Subject],
) -> Result<Vec<OpenRow>, LedgerError> {
    let find = sql_query(include_str!("sql/open_holds_of_subjects.sql"))
        .bind::<Text, _>(tenant.as_str())
        .bind::<Array<Text>, _>(subjects.iter().map(|subject| subject.kind.as_str()).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(subjects.iter().map(|subject| subject.id.as_str()).collect::<Vec<_>>());
    Ok(find.load(&mut connection).await?)
}

#[derive(QueryableByName)]
struct TornRow {
    #[diesel(sql_type = sql_types::Uuid)]
    id: uuid::Uuid,
    #[diesel(sql_type = Text)]
    operation: String,
    #[diesel(sql_type = Timestamptz)]
    born_at: DateTime<Utc>,
    #[diesel(sql_type = Timestamptz)]
    expires_at: DateTime<Utc>,
    #[diesel(sql_type = Array<Text>)]
    kinds: Vec<String>,
    #[diesel(sql_type = Array<Text>)]
    names: Vec<String>,
    #[diesel(sql_type = Nullable<Text>)]
    meter: Option<String>,
    #[diesel(sql_type = Nullable<Numeric>)]
    held: Option<Decimal>,
}

impl TornRow {
    /// The units that it holds on one meter: a debit of the account raises them, a credit lowers them.
    fn held(&self, decimals: &MeterDecimals<'_>) -> Result<Option<(MeterId, Units)>, LedgerError> {
        let Some((meter, held)) = self.meter.as_deref().zip(self.held) else { return Ok(None) };
        let Ok(meter) = MeterId::parse(meter) else { return Ok(None) };
        let Some(decimals) = decimals.get(&meter) else { return Ok(None) };
        Ok(Some((meter, number::units(held.max(Decimal::ZERO), *decimals)?)))
    }

    fn hold(&self) -> BookedHold {
        let named = self.kinds.iter().zip(&self.names).filter_map(|(kind, id)| {
            Some(Subject { kind: SubjectKind::parse(kind).ok()?, id: SubjectId::parse(id).ok()? })
        });
        BookedHold {
            held: Vec::new(),
            operation: OperationId::parse(&self.operation).ok(),
            subjects: named.collect(),
            born_at_ms: self.born_at.timestamp_millis(),
            expires_at_ms: self.expires_at.timestamp_millis(),
        }
    }
}

async fn read_torn(
    mut connection: &AsyncPgConnection,
    tenant: &TenantId,
    damaged: Vec<(ReservationId, String)>,
    decimals: &MeterDecimals<'_>,
) -> Result<Vec<TornHold>, LedgerError> {
    let [(first, _), ..] = damaged.as_slice() else { return Ok(Vec::new()) };
    let find = sql_query(include_str!("sql/torn_holds.sql"))
        .bind::<SmallInt, _>(number::of_partition(first.partition()))
        .bind::<Text, _>(tenant.as_str())
        .bind::<Array<sql_types::Uuid>, _>(damaged.iter().map(|(id, _)| id.uuid()).collect::<Vec<_>>());
    let rows: Vec<TornRow> = find.load(&mut connection).await?;
    let mut holds: BTreeMap<uuid::Uuid, BookedHold> = BTreeMap::new();
    for row in rows {
        let hold = holds.entry(row.id).or_insert_with(|| row.hold());
        hold.held.extend(row.held(decimals)?);
    }
    let torn = damaged.into_iter().filter_map(|(id, reason)| {
        let hold = holds.remove(&id.uuid())?;
        Some(TornHold { id, reason, hold })
    });
    Ok(torn.collect())
}

/// The next open holds of a tenant, or of some of its subjects, by expiry, after `after` (its expiry in unix ms), at
/// most `limit`.
pub(crate) async fn read_open_page(
    mut connection: &AsyncPgConnection,
    tenant: &TenantId,
    subjects: Option<&[&Subject]>,
    after: Option<(i64, ReservationId)>,
    limit: usize,
) -> Result<Vec<(ReservationId, Record)>, LedgerError> {
    let (after_at, after_id) =
        after.map(|(ms, id)| Ok::<_, LedgerError>((instant::from_ms(ms)?, id.uuid()))).transpose()?.unzip();
    let texts = |part: fn(&Subject) -> &str| {
        subjects.map(|all| all.iter().map(|subject| part(subject)).collect::<Vec<_>>())
    };
    let find = sql_query(include_str!("sql/open_holds_page.sql"))
        .bind::<Text, _>(tenant.as_str())
        .bind::<Nullable<Timestamptz>, _>(after_at)
        .bind::<Nullable<sql_types::Uuid>, _>(after_id)
        .bind::<Nullable<Array<Text>>, _>(texts(|subject| subject.kind.as_str()))
        .bind::<Nullable<Array<Text>>, _>(texts(|subject| subject.id.as_str()))
        .bind::<BigInt, _>(number::limit(limit));
    let rows: Vec<OpenRow> = find.load(&mut connection).await?;
    rows.into_iter().map(OpenRow::read).collect()
}
