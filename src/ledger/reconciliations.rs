//! Results of comparing the gate with the books: one row for each checkpoint.

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Interval, Record, SmallInt, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::columns::{Microseconds, Milliseconds, Small, Unsigned};
use super::functions::interval;
use super::prepared::sql_query;
use super::quarantine::open;
use super::schema::{quarantine, reconciliations};
use super::{BEGIN, Ledger, LedgerError, instant, number};
use crate::domain::amount::Decimals;
use crate::domain::checkpoint::{Checkpoint, CounterDescription, Difference, Figures, ReconciliationState};
use crate::domain::ids::{Epoch, MeterId, OutboxId, Partition, Subject, SubjectId, SubjectKind, TenantId};
use crate::domain::reservation::CounterField;

/// The state with this word.
fn read_state(word: &str) -> Result<ReconciliationState, LedgerError> {
    ReconciliationState::ALL
        .into_iter()
        .find(|state| state.as_str() == word)
        .ok_or_else(|| LedgerError::Damaged(format!("a reconciliation is {word:?}")))
}

/// A checkpoint compared with the books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciliation {
    /// Whose counters.
    pub tenant: TenantId,
    /// The checkpoint.
    pub checkpoint: Uuid,
    /// Its partition.
    pub partition: Partition,
    /// Its place in the outbox.
    pub place: OutboxId,
    /// When it was taken (gate time, unix ms).
    pub taken_at_ms: i64,
    /// When it was compared (the database's clock, unix µs); 0 until it is stored.
    pub judged_at_us: i64,
    /// How many counters were compared.
    pub counters: u64,
    /// Those that differ.
    pub differences: Vec<Difference>,
    /// Events of the tenant that waited in quarantine then.
    pub quarantined: u64,
    /// Calls of the tenant that were accepted while the gate was away and waited for it then.
    pub parked: u64,
    /// Gaps in the partition's outbox in that epoch.
    pub gaps: u64,
    /// Its result.
    pub state: ReconciliationState,
    /// Further facts; empty for none.
    pub detail: String,
    /// Whether the tenant's comparison before it found the same and was refused, so that this one is no news.
    pub is_known: bool,
}

impl Reconciliation {
    /// Whether the same counters differ by the same amounts, even if both sides have moved on.
    fn finds_the_same_as(&self, other: &Self) -> bool {
        let by_how_much = |found: &Self| -> Vec<_> {
            let counters = found.differences.iter().map(|difference| {
                let counter = &difference.counter;
                (counter.field.0, counter.subject.clone(), counter.window_ms, difference.delta())
            });
            counters.collect()
        };
        by_how_much(self) == by_how_much(other)
    }
}

/// What may explain a difference, as of a checkpoint's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DriftContext {
    pub(crate) quarantined: u64,
    pub(crate) parked: u64,
    pub(crate) gaps: u64,
    /// The gate counted an operation twice and may not have undone that when the checkpoint was taken.
    pub(crate) repeats_wait: bool,
    /// The policy or the tenant has changed since the counters were described.
    pub(crate) policy_changed: bool,
}

/// Which reconciliations to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReconciliationFilter {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Only those in this state.
    pub state: Option<ReconciliationState>,
    /// Only those that were judged at or after this instant (unix ms).
    pub from_ms: Option<i64>,
    /// Only those that were judged before it (unix ms).
    pub to_ms: Option<i64>,
}

/// A place in a list of reconciliations, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReconciliationCursor {
    /// When it was judged (unix µs).
    pub judged_at_us: i64,
    /// Which checkpoint.
    pub checkpoint: Uuid,
}

#[derive(QueryableByName)]
struct DriftContextRow {
    #[diesel(sql_type = BigInt)]
    quarantined: i64,
    #[diesel(sql_type = BigInt)]
    parked: i64,
    #[diesel(sql_type = BigInt)]
    gaps: i64,
    #[diesel(sql_type = Bool)]
    repeats_wait: bool,
    #[diesel(sql_type = Bool)]
    policy_changed: bool,
}

/// What may explain a drift at this checkpoint. This transaction has locked the partition's cursor.
pub(crate) async fn circumstances(
    mut connection: &AsyncPgConnection,
    partition: Partition,
    checkpoint: &Checkpoint,
) -> Result<DriftContext, LedgerError> {
    let find = sql_query(include_str!("sql/circumstances.sql"))
        .bind::<Text, _>(checkpoint.description.tenant.as_str())
        .bind::<SmallInt, _>(partition)
        .bind::<BigInt, _>(checkpoint.outbox_id.epoch)
        .bind::<BigInt, _>(number::signed(checkpoint.outbox_id.sequence))
        .bind::<BigInt, _>(number::signed(checkpoint.description.tenant_version))
        .bind::<BigInt, _>(number::signed(checkpoint.description.policy_version));
    let row: DriftContextRow = find.get_result(&mut connection).await?;
    Ok(DriftContext {
        quarantined: number::unsigned(row.quarantined)?,
        parked: number::unsigned(row.parked)?,
        gaps: number::unsigned(row.gaps)?,
        repeats_wait: row.repeats_wait,
        policy_changed: row.policy_changed,
    })
}

/// Stores the result of a comparison. Only the tenant's latest clean one is kept, and one that finds the same as the
/// refused one before it replaces that row. Returns whether it did.
pub(crate) async fn add(
    connection: &mut AsyncPgConnection,
    judged: &Reconciliation,
) -> Result<bool, LedgerError> {
    if judged.state != ReconciliationState::Clean
        && let Some(before) = read_latest(connection, &judged.tenant).await?
        && before.state == ReconciliationState::Refused
        && before.checkpoint != judged.checkpoint
        && before.finds_the_same_as(judged)
    {
        remove(connection, &before).await?;
        insert(connection, judged).await?;
        return Ok(true);
    }
    let clean = reconciliations::table
        .filter(reconciliations::tenant.eq(&judged.tenant))
        .filter(reconciliations::state.eq(ReconciliationState::Clean.as_str()));
    diesel::delete(clean).execute(connection).await?;
    insert(connection, judged).await?;
    Ok(false)
}

async fn read_latest(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
) -> Result<Option<Reconciliation>, LedgerError> {
    let latest: Option<Row> = reconciliations::table
        .select(Row::as_select())
        .filter(reconciliations::tenant.eq(tenant))
        .order((reconciliations::epoch.desc(), reconciliations::sequence.desc()))
        .first(connection)
        .await
        .optional()?;
    // A row that cannot be decoded counts as different and stays, so that someone can look into it.
    Ok(latest.and_then(|row| row.read().ok()))
}

async fn remove(connection: &mut AsyncPgConnection, known: &Reconciliation) -> Result<(), LedgerError> {
    let row = reconciliations::table.find((&known.tenant, known.checkpoint));
    diesel::delete(row).execute(connection).await?;
    Ok(())
}

async fn insert(connection: &mut AsyncPgConnection, judged: &Reconciliation) -> Result<(), LedgerError> {
    let differences: Vec<StoredDifference> = judged.differences.iter().map(StoredDifference::of).collect();
    let differences =
        serde_json::to_value(differences).map_err(|error| LedgerError::Damaged(error.to_string()))?;
    let values = (
        reconciliations::tenant.eq(&judged.tenant),
        reconciliations::checkpoint_id.eq(judged.checkpoint),
        reconciliations::partition.eq(judged.partition),
        reconciliations::epoch.eq(judged.place.epoch),
        reconciliations::sequence.eq(number::signed(judged.place.sequence)),
        reconciliations::taken_at.eq(instant::from_ms(judged.taken_at_ms)?),
        reconciliations::counters.eq(i32::try_from(judged.counters).unwrap_or(i32::MAX)),
        reconciliations::differences.eq(differences),
        reconciliations::quarantined.eq(number::signed(judged.quarantined)),
        reconciliations::parked.eq(number::signed(judged.parked)),
        reconciliations::gaps.eq(number::signed(judged.gaps)),
        reconciliations::state.eq(judged.state.as_str()),
        reconciliations::detail.eq(&judged.detail),
    );
    let insert = diesel::insert_into(reconciliations::table).values(values).on_conflict_do_nothing();
    insert.execute(connection).await?;
    Ok(())
}

/// A difference as the table keeps it. A budget's names the first of its meters, and has the budget's decimals.
#[derive(Debug, Serialize, Deserialize)]
struct StoredDifference {
    counter: String,
    field: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<(String, String)>,
    meter: String,
    decimals: u8,
    window_ms: (i64, i64),
    gate: (i64, i64),
    books: (i64, i64),
}

impl StoredDifference {
    fn of(difference: &Difference) -> Self {
        let Difference { counter, gate, books } = difference;
        let subject = counter.subject.as_ref();
        Self {
            counter: counter.name.clone(),
            field: counter.field.as_str().to_owned(),
            subject: subject.map(|subject| (subject.kind.to_string(), subject.id.to_string())),
            meter: counter.meter.to_string(),
            decimals: counter.decimals.count(),
            window_ms: counter.window_ms,
            gate: (gate.consumed, gate.reserved),
            books: (books.consumed, books.reserved),
        }
    }

    fn read(self) -> Option<Difference> {
        let subject = match self.subject {
            None => None,
            Some((kind, id)) => {
                Some(Subject { kind: SubjectKind::parse(&kind).ok()?, id: SubjectId::parse(&id).ok()? })
            }
        };
        let figures = |(consumed, reserved)| Figures { consumed, reserved };
        Some(Difference {
            counter: CounterDescription {
                is_quota: self.counter.starts_with("quota:"),
                name: self.counter,
                field: CounterField(self.field.as_bytes().try_into().ok()?),
                subject,
                meter: MeterId::parse(&self.meter).ok()?,
                decimals: Decimals::new(self.decimals)?,
                budgeted: None,
                operations: None,
                is_new: false,
                window_ms: self.window_ms,
            },
            gate: figures(self.gate),
            books: figures(self.books),
        })
    }
}

#[derive(Queryable, QueryableByName, Selectable)]
#[diesel(table_name = reconciliations)]
struct Row {
    tenant: TenantId,
    checkpoint_id: Uuid,
    partition: Partition,
    #[diesel(embed)]
    place: Place,
    #[diesel(column_name = taken_at, deserialize_as = Milliseconds)]
    taken_at_ms: i64,
    #[diesel(column_name = judged_at, deserialize_as = Microseconds)]
    judged_at_us: i64,
    #[diesel(deserialize_as = Small)]
    counters: u32,
    differences: serde_json::Value,
    #[diesel(deserialize_as = Unsigned)]
    quarantined: u64,
    #[diesel(deserialize_as = Unsigned)]
    parked: u64,
    #[diesel(deserialize_as = Unsigned)]
    gaps: u64,
    state: String,
    detail: String,
}

#[derive(Queryable, QueryableByName, Selectable)]
#[diesel(table_name = reconciliations)]
struct Place {
    epoch: Epoch,
    #[diesel(deserialize_as = Unsigned)]
    sequence: u64,
}

impl Row {
    fn read(self) -> Result<Reconciliation, LedgerError> {
        let damaged =
            || LedgerError::Damaged(format!("the differences of checkpoint {}", self.checkpoint_id));
        let stored: Vec<StoredDifference> =
            serde_json::from_value(self.differences.clone()).map_err(|_| damaged())?;
        let differences =
            stored.into_iter().map(|one| one.read().ok_or_else(damaged)).collect::<Result<_, _>>()?;
        let Place { epoch, sequence } = self.place;
        Ok(Reconciliation {
            tenant: self.tenant,
            checkpoint: self.checkpoint_id,
            partition: self.partition,
            place: OutboxId { epoch, sequence },
            taken_at_ms: self.taken_at_ms,
            judged_at_us: self.judged_at_us,
            counters: self.counters.into(),
            differences,
            quarantined: self.quarantined,
            parked: self.parked,
            gaps: self.gaps,
            state: read_state(&self.state)?,
            detail: self.detail,
            is_known: false,
        })
    }
}

impl Ledger {
    /// Claims drifts for `duration`, oldest first, at most `limit`: no other instance gets them meanwhile.
    pub async fn claim_drifts(
        &self,
        limit: usize,
        duration: Duration,
    ) -> Result<Vec<Reconciliation>, LedgerError> {
        let rows: Vec<Row> = self
            .transact(BEGIN, move |connection| {
                let claim = sql_query(include_str!("sql/claim_drifts.sql"))
                    .bind::<BigInt, _>(number::limit(limit))
                    .bind::<Interval, _>(interval(duration));
                async move { Ok(claim.load(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(Row::read).collect()
    }

    /// Records how a drift was settled; one that is settled already stays as it is. Returns whether this call settled
    /// it.
    pub async fn settle_drift(
        &self,
        drift: &Reconciliation,
        state: ReconciliationState,
        detail: &str,
    ) -> Result<bool, LedgerError> {
        let drift = reconciliations::table.find((drift.tenant.clone(), drift.checkpoint));
        let settle = diesel::update(drift.filter(reconciliations::state.eq("drift"))).set((
            reconciliations::state.eq(state.as_str()),
            reconciliations::detail.eq(detail.to_owned()),
            reconciliations::claimed_until.eq(None::<DateTime<Utc>>),
        ));
        Ok(self.execute(settle).await? == 1)
    }

    /// The result of a checkpoint, once the writer has judged it. Where a later one has replaced its row, the next
    /// there is.
    pub async fn reconciliation(
        &self,
        tenant: &TenantId,
        checkpoint: Uuid,
        place: OutboxId,
    ) -> Result<Option<Reconciliation>, LedgerError> {
        let is_it = reconciliations::checkpoint_id.eq(checkpoint);
        let order = (reconciliations::epoch, reconciliations::sequence);
        let behind = (number::signed(place.epoch.0), number::signed(place.sequence));
        let query = || {
            reconciliations::table
                .select(Row::as_select())
                .filter(reconciliations::tenant.eq(tenant))
                .filter(is_it.or(order.into_sql::<Record<_>>().gt(behind)))
                .order((is_it.desc(), order))
                .limit(1)
        };
        self.first(query).await?.map(Row::read).transpose()
    }

    /// Reconciliations, newest first, at most `limit`, after `after`.
    pub async fn reconciliations(
        &self,
        filter: &ReconciliationFilter,
        after: Option<ReconciliationCursor>,
        limit: usize,
    ) -> Result<Vec<Reconciliation>, LedgerError> {
        let damaged = || LedgerError::Refused("the place lies outside what the ledger can hold".into());
        let after = after
            .map(|place| {
                let judged_at = DateTime::from_timestamp_micros(place.judged_at_us).ok_or_else(damaged)?;
                Ok::<_, LedgerError>((judged_at, place.checkpoint))
            })
            .transpose()?;
        let from = filter.from_ms.map(instant::from_ms).transpose()?;
        let to = filter.to_ms.map(instant::from_ms).transpose()?;
        let place = (reconciliations::judged_at, reconciliations::checkpoint_id);
        let query = || {
            let mut found = reconciliations::table.select(Row::as_select()).into_boxed();
            if let Some(tenant) = &filter.tenant {
                found = found.filter(reconciliations::tenant.eq(tenant));
            }
            if let Some(state) = filter.state {
                found = found.filter(reconciliations::state.eq(state.as_str()));
            }
            if let Some(from) = from {
                found = found.filter(reconciliations::judged_at.ge(from));
            }
            if let Some(to) = to {
                found = found.filter(reconciliations::judged_at.lt(to));
            }
            if let Some(after) = after {
                found = found.filter(place.into_sql::<Record<_>>().lt(after));
            }
            found.order((place.0.desc(), place.1.desc())).limit(number::limit(limit))
        };
        self.load(query).await?.into_iter().map(Row::read).collect()
    }

    /// How many events in quarantine are, or may be, the tenant's.
    pub async fn count_quarantined_of(
        &self,
        partition: Partition,
        tenant: &TenantId,
    ) -> Result<u64, LedgerError> {
        let nobodys = quarantine::tenant.is_null().and(quarantine::partition.eq(partition));
        let query = || {
            quarantine::table
                .filter(quarantine::status.eq(open()))
                .filter(quarantine::tenant.eq(tenant).or(nobodys))
                .count()
        };
        number::unsigned(self.first(query).await?.unwrap_or_default())
    }
}
