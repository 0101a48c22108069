//! What comparing the gate with the books came to: one row a checkpoint.

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::sql_types::{self, BigInt, Bool, Integer, Jsonb, Nullable, SmallInt, Text, Timestamptz};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::statement::Kept;
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
    /// Gaps in the partition's outbox in that epoch.
    pub gaps: u64,
    /// What it came to.
    pub state: ReconciliationState,
    /// What is to be said besides; empty for nothing.
    pub detail: String,
    /// Whether the tenant's comparison before it found the same and was refused, so that this one is no news.
    pub is_known: bool,
}

impl Reconciliation {
    /// Whether the same counters differ by the same amounts, however far both sides have moved on.
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

/// What may explain a difference, as of the place of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Circumstances {
    pub(crate) quarantined: u64,
    pub(crate) gaps: u64,
    /// The gate counted an operation twice and may not have given it back when the checkpoint was taken.
    pub(crate) repeats_wait: bool,
    /// Policy or tenant have changed since the counters were named.
    pub(crate) policy_changed: bool,
}

/// Which reconciliations to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReconciliationFilter {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Only those in this state.
    pub state: Option<ReconciliationState>,
}

/// A place in a list of reconciliations, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReconciliationPlace {
    /// When it was judged (unix µs).
    pub judged_at_us: i64,
    /// Which checkpoint.
    pub checkpoint: Uuid,
}

#[derive(QueryableByName)]
struct CircumstancesRow {
    #[diesel(sql_type = BigInt)]
    quarantined: i64,
    #[diesel(sql_type = BigInt)]
    gaps: i64,
    #[diesel(sql_type = Bool)]
    repeats_wait: bool,
    #[diesel(sql_type = Bool)]
    policy_changed: bool,
}

/// What may explain that a counter of this checkpoint differs. The partition's cursor is locked by this transaction.
pub(crate) async fn circumstances(
    mut connection: &AsyncPgConnection,
    partition: Partition,
    checkpoint: &Checkpoint,
) -> Result<Circumstances, LedgerError> {
    let find = sql_query(
        "SELECT (SELECT count(*) FROM quarantine WHERE status = 'open' AND (tenant = $1 OR (tenant IS NULL AND partition = $2))) AS quarantined, \
             (SELECT count(*) FROM gaps WHERE partition = $2 AND found_epoch = $3) AS gaps, \
             EXISTS (SELECT FROM repeats WHERE tenant = $1 AND epoch = $3 AND sequence < $4 \
                     AND (undone_sequence IS NULL OR undone_sequence >= $4)) AS repeats_wait, \
             coalesce((SELECT t.version <> $5 FROM tenants t WHERE t.id = $1), true) \
                 OR EXISTS (SELECT FROM policy_history WHERE policy_version > $6 AND kind <> 'tenant') AS policy_changed",
    )
    .bind::<Text, _>(checkpoint.description.tenant.as_str())
    .bind::<SmallInt, _>(number::of_partition(partition))
    .bind::<BigInt, _>(number::signed(checkpoint.outbox_id.epoch.0))
    .bind::<BigInt, _>(number::signed(checkpoint.outbox_id.sequence))
    .bind::<BigInt, _>(number::signed(checkpoint.description.tenant_version))
    .bind::<BigInt, _>(number::signed(checkpoint.description.policy_version));
    let row: CircumstancesRow = Kept(find).get_result(&mut connection).await?;
    Ok(Circumstances {
        quarantined: number::unsigned(row.quarantined)?,
        gaps: number::unsigned(row.gaps)?,
        repeats_wait: row.repeats_wait,
        policy_changed: row.policy_changed,
    })
}

/// Stores what a comparison came to. Of clean ones, the tenant's latest is kept; one that finds what the refused one before
/// it found takes that one's row. Says whether it did.
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
    let forget = sql_query("DELETE FROM reconciliations WHERE tenant = $1 AND state = 'clean'")
        .bind::<Text, _>(judged.tenant.as_str());
    Kept(forget).execute(connection).await?;
    insert(connection, judged).await?;
    Ok(false)
}

async fn read_latest(
    connection: &mut AsyncPgConnection,
    tenant: &TenantId,
) -> Result<Option<Reconciliation>, LedgerError> {
    let query = format!(
        "SELECT {COLUMNS} FROM reconciliations WHERE tenant = $1 ORDER BY epoch DESC, sequence DESC LIMIT 1"
    );
    let rows: Vec<Row> = sql_query(query).bind::<Text, _>(tenant.as_str()).load(connection).await?;
    // One that does not read is not the same, and stays for whoever looks into it.
    Ok(rows.into_iter().next().and_then(|row| row.read().ok()))
}

async fn remove(connection: &mut AsyncPgConnection, known: &Reconciliation) -> Result<(), LedgerError> {
    sql_query("DELETE FROM reconciliations WHERE tenant = $1 AND checkpoint_id = $2")
        .bind::<Text, _>(known.tenant.as_str())
        .bind::<sql_types::Uuid, _>(known.checkpoint)
        .execute(connection)
        .await?;
    Ok(())
}

async fn insert(connection: &mut AsyncPgConnection, judged: &Reconciliation) -> Result<(), LedgerError> {
    let differences: Vec<StoredDifference> = judged.differences.iter().map(StoredDifference::of).collect();
    let differences =
        serde_json::to_value(differences).map_err(|error| LedgerError::Damaged(error.to_string()))?;
    let insert = sql_query(
        "INSERT INTO reconciliations (tenant, checkpoint_id, partition, epoch, sequence, taken_at, counters, differences, \
             quarantined, gaps, state, detail) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING",
    )
    .bind::<Text, _>(judged.tenant.as_str())
    .bind::<sql_types::Uuid, _>(judged.checkpoint)
    .bind::<SmallInt, _>(number::of_partition(judged.partition))
    .bind::<BigInt, _>(number::signed(judged.place.epoch.0))
    .bind::<BigInt, _>(number::signed(judged.place.sequence))
    .bind::<Timestamptz, _>(instant::from_ms(judged.taken_at_ms)?)
    .bind::<Integer, _>(i32::try_from(judged.counters).unwrap_or(i32::MAX))
    .bind::<Jsonb, _>(differences)
    .bind::<BigInt, _>(number::signed(judged.quarantined))
    .bind::<BigInt, _>(number::signed(judged.gaps))
    .bind::<Text, _>(judged.state.as_str())
    .bind::<Text, _>(judged.detail.as_str());
    Kept(insert).execute(connection).await?;
    Ok(())
}

/// A difference as the table keeps it.
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
                operations: None,
                is_new: false,
                window_ms: self.window_ms,
            },
            gate: figures(self.gate),
            books: figures(self.books),
        })
    }
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = sql_types::Uuid)]
    checkpoint_id: Uuid,
    #[diesel(sql_type = SmallInt)]
    partition: i16,
    #[diesel(sql_type = BigInt)]
    epoch: i64,
    #[diesel(sql_type = BigInt)]
    sequence: i64,
    #[diesel(sql_type = Timestamptz)]
    taken_at: DateTime<Utc>,
    #[diesel(sql_type = Timestamptz)]
    judged_at: DateTime<Utc>,
    #[diesel(sql_type = Integer)]
    counters: i32,
    #[diesel(sql_type = Jsonb)]
    differences: serde_json::Value,
    #[diesel(sql_type = BigInt)]
    quarantined: i64,
    #[diesel(sql_type = BigInt)]
    gaps: i64,
    #[diesel(sql_type = Text)]
    state: String,
    #[diesel(sql_type = Text)]
    detail: String,
}

const COLUMNS: &str = "tenant, checkpoint_id, partition, epoch, sequence, taken_at, judged_at, counters, differences, quarantined, \
                       gaps, state, detail";

impl Row {
    fn read(self) -> Result<Reconciliation, LedgerError> {
        let damaged =
            || LedgerError::Damaged(format!("the differences of checkpoint {}", self.checkpoint_id));
        let stored: Vec<StoredDifference> =
            serde_json::from_value(self.differences.clone()).map_err(|_| damaged())?;
        let differences =
            stored.into_iter().map(|one| one.read().ok_or_else(damaged)).collect::<Result<_, _>>()?;
        let sequence = number::unsigned(self.sequence)?;
        Ok(Reconciliation {
            tenant: number::tenant(&self.tenant)?,
            checkpoint: self.checkpoint_id,
            partition: number::partition(self.partition)?,
            place: OutboxId { epoch: Epoch(number::unsigned(self.epoch)?), sequence },
            taken_at_ms: self.taken_at.timestamp_millis(),
            judged_at_us: self.judged_at.timestamp_micros(),
            counters: number::small(self.counters)?,
            differences,
            quarantined: number::unsigned(self.quarantined)?,
            gaps: number::unsigned(self.gaps)?,
            state: read_state(&self.state)?,
            detail: self.detail,
            is_known: false,
        })
    }
}

#[derive(QueryableByName)]
struct CountRow {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

impl Ledger {
    /// Takes drifts in hand for `duration`, oldest first, at most `limit`: no other instance gets them meanwhile.
    pub async fn claim_drifts(
        &self,
        limit: usize,
        duration: Duration,
    ) -> Result<Vec<Reconciliation>, LedgerError> {
        let duration_ms = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let query = format!(
            "UPDATE reconciliations SET claimed_until = clock_timestamp() + $2 * interval '1 millisecond' \
             WHERE (tenant, checkpoint_id) IN (SELECT tenant, checkpoint_id FROM reconciliations \
                 WHERE state = 'drift' AND (claimed_until IS NULL OR claimed_until <= clock_timestamp()) \
                 ORDER BY judged_at LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING {COLUMNS}"
        );
        let rows = self
            .transact(BEGIN, move |connection| {
                async move {
                    let query = sql_query(query)
                        .bind::<BigInt, _>(number::limit(limit))
                        .bind::<BigInt, _>(duration_ms);
                    Ok(query.load::<Row>(connection).await?)
                }
                .boxed()
            })
            .await?;
        rows.into_iter().map(Row::read).collect()
    }

    /// Notes what became of a drift; one that is settled stays as it is. Says whether this settled it.
    pub async fn settle_drift(
        &self,
        drift: &Reconciliation,
        state: ReconciliationState,
        detail: &str,
    ) -> Result<bool, LedgerError> {
        let (tenant, checkpoint, detail) = (drift.tenant.clone(), drift.checkpoint, detail.to_owned());
        self.transact(BEGIN, move |connection| {
            async move {
                let settled = sql_query(
                    "UPDATE reconciliations SET state = $3, detail = $4, claimed_until = NULL \
                     WHERE tenant = $1 AND checkpoint_id = $2 AND state = 'drift'",
                )
                .bind::<Text, _>(tenant.as_str())
                .bind::<sql_types::Uuid, _>(checkpoint)
                .bind::<Text, _>(state.as_str())
                .bind::<Text, _>(detail)
                .execute(connection)
                .await?;
                Ok(settled == 1)
            }
            .boxed()
        })
        .await
    }

    /// What a checkpoint came to, once the writer has met it; of one that a later one replaced, the next there is.
    pub async fn reconciliation(
        &self,
        tenant: &TenantId,
        checkpoint: Uuid,
        place: OutboxId,
    ) -> Result<Option<Reconciliation>, LedgerError> {
        let query = format!(
            "SELECT {COLUMNS} FROM reconciliations WHERE tenant = $1 \
             AND (checkpoint_id = $2 OR (epoch, sequence) > ($3, $4)) \
             ORDER BY checkpoint_id = $2 DESC, epoch, sequence LIMIT 1"
        );
        let rows = self
            .read(|connection| {
                let query = sql_query(query.as_str())
                    .bind::<Text, _>(tenant.to_string())
                    .bind::<sql_types::Uuid, _>(checkpoint)
                    .bind::<BigInt, _>(number::signed(place.epoch.0))
                    .bind::<BigInt, _>(number::signed(place.sequence));
                async move { Ok(query.load::<Row>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().next().map(Row::read).transpose()
    }

    /// Reconciliations, newest first, at most `limit`, from behind `after`.
    pub async fn reconciliations(
        &self,
        filter: &ReconciliationFilter,
        after: Option<ReconciliationPlace>,
        limit: usize,
    ) -> Result<Vec<Reconciliation>, LedgerError> {
        let query = format!(
            "SELECT {COLUMNS} FROM reconciliations WHERE ($1 IS NULL OR tenant = $1) AND ($2 IS NULL OR state = $2) \
             AND ($3 IS NULL OR (judged_at, checkpoint_id) < ($3, $4)) ORDER BY judged_at DESC, checkpoint_id DESC LIMIT $5"
        );
        let damaged = || LedgerError::Refused("the place lies outside what the ledger can hold".into());
        let place_at = after
            .map(|place| DateTime::from_timestamp_micros(place.judged_at_us).ok_or_else(damaged))
            .transpose()?;
        let rows = self
            .read(|connection| {
                let query = sql_query(query.as_str())
                    .bind::<Nullable<Text>, _>(filter.tenant.as_ref().map(ToString::to_string))
                    .bind::<Nullable<Text>, _>(filter.state.map(ReconciliationState::as_str))
                    .bind::<Nullable<Timestamptz>, _>(place_at)
                    .bind::<Nullable<sql_types::Uuid>, _>(after.map(|place| place.checkpoint))
                    .bind::<BigInt, _>(number::limit(limit));
                async move { Ok(query.load::<Row>(connection).await?) }.boxed()
            })
            .await?;
        rows.into_iter().map(Row::read).collect()
    }

    /// How many events wait in quarantine that are, or may be, the tenant's.
    pub async fn count_quarantined_of(
        &self,
        partition: Partition,
        tenant: &TenantId,
    ) -> Result<u64, LedgerError> {
        let query = "SELECT count(*) AS count FROM quarantine WHERE status = 'open' \
                     AND (tenant = $1 OR (tenant IS NULL AND partition = $2))";
        let row = self
            .read(|connection| {
                let query = sql_query(query)
                    .bind::<Text, _>(tenant.to_string())
                    .bind::<SmallInt, _>(number::of_partition(partition));
                async move { Ok(query.get_result::<CountRow>(connection).await?) }.boxed()
            })
            .await?;
        number::unsigned(row.count)
    }
}
