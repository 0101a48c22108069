//! Holds that were carried over when their period was closed, and what becomes of their parts that return.
//!
//! The writer reads no balance, so it notes what returns. The job that closes periods books it: how much of it is
//! available again depends on what the closed period had left.

use std::collections::{BTreeSet, HashMap};

use diesel::QueryableByName;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Numeric, SmallInt, Text, Timestamptz, Uuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::FutureExt;
use rust_decimal::Decimal;

use super::columns::Milliseconds;
use super::held_parts::{self, CarriedLeft, HeldFate, HeldPart, ReturningHolds};
use super::prepared::sql_query;
use super::quotas::PeriodKey;
use super::schema::{carried_holds, carried_returns};
use super::{BEGIN_BOOKING, Ledger, LedgerError, capacities, cursors, instant, journal, number};
use crate::domain::amount::Amount;
use crate::domain::entry::{PostedLine, Posting, RETURN_LEG};
use crate::domain::ids::{Epoch, MeterId, OutboxId, Partition, ReservationId, TenantId};
use crate::domain::movements::Movement;
use crate::domain::period::Window;
use crate::domain::rollover::{RolledIn, RolloverTerms, rolling};

/// How many returns one transaction books.
const RETURNS: i64 = 500;

/// A part of a hold that returned after its period was closed, as the writer notes it.
#[derive(Debug, Clone)]
pub(crate) struct ReturnNote {
    pub(crate) partition: Partition,
    pub(crate) place: OutboxId,
    pub(crate) line: u8,
    pub(crate) tenant: TenantId,
    pub(crate) meter: MeterId,
    /// Where it stands.
    pub(crate) period: Window,
    pub(crate) amount: Amount,
    pub(crate) reservation: ReservationId,
    pub(crate) step: u32,
    pub(crate) happened_at_ms: i64,
    pub(crate) operation: String,
    pub(crate) hour_start_ms: i64,
    pub(crate) subjects: Vec<i64>,
}

/// Notes what returned.
pub(crate) async fn note_returns(
    mut connection: &AsyncPgConnection,
    notes: &[ReturnNote],
) -> Result<(), LedgerError> {
    if notes.is_empty() {
        return Ok(());
    }
    let rows = notes.iter().map(|note| {
        Ok((
            carried_returns::partition.eq(number::of_partition(note.partition)),
            carried_returns::epoch.eq(number::signed(note.place.epoch.0)),
            carried_returns::sequence.eq(number::signed(note.place.sequence)),
            carried_returns::line.eq(i16::from(note.line)),
            carried_returns::tenant.eq(&note.tenant),
            carried_returns::meter.eq(&note.meter),
            carried_returns::period_start.eq(instant::from_ms(note.period.start_ms)?),
            carried_returns::period_end.eq(instant::from_ms(note.period.end_ms)?),
            carried_returns::amount.eq(note.amount.decimal()),
            carried_returns::reservation_id.eq(note.reservation.uuid()),
            carried_returns::step.eq(i64::from(note.step)),
            carried_returns::happened_at.eq(instant::from_ms(note.happened_at_ms)?),
            carried_returns::operation.eq(&note.operation),
            carried_returns::hour_at.eq(instant::from_ms(note.hour_start_ms)?),
            carried_returns::subjects.eq(&note.subjects),
        ))
    });
    let rows = rows.collect::<Result<Vec<_>, LedgerError>>()?;
    diesel::insert_into(carried_returns::table)
        .values(rows)
        .on_conflict_do_nothing()
        .execute(&mut connection)
        .await?;
    Ok(())
}

/// What a close carries over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) tenant: TenantId,
    pub(super) meter: MeterId,
    pub(super) start_ms: i64,
    pub(super) next_start_ms: i64,
    /// What went over.
    pub(super) held: Amount,
    /// Its part that had pushed the period over its quota.
    pub(super) charged: Decimal,
    pub(super) left: CarriedLeft,
}

/// Notes what closes carried over.
pub(super) async fn note(connection: &mut AsyncPgConnection, carried: &[Carried]) -> Result<(), LedgerError> {
    if carried.is_empty() {
        return Ok(());
    }
    let rows = carried.iter().map(|carried| {
        Ok((
            carried_holds::tenant.eq(&carried.tenant),
            carried_holds::meter.eq(&carried.meter),
            carried_holds::period_start.eq(instant::from_ms(carried.start_ms)?),
            carried_holds::next_start.eq(instant::from_ms(carried.next_start_ms)?),
            carried_holds::held.eq(carried.held.decimal()),
            carried_holds::charged.eq(carried.charged),
            // Versions that let nothing go on but a part of the included amount read these two.
            carried_holds::held_after.eq(carried.left.held_after()),
            carried_holds::held_of_included.eq(carried.left.held_of_rolling()),
            carried_holds::unused.eq(rolling(&carried.left.parts)),
            carried_holds::max_rollover.eq(carried.left.terms.max),
            carried_holds::min_rollover.eq(carried.left.terms.min),
            carried_holds::has_parts.eq(true),
            carried_holds::rolls_until.eq(carried
                .left
                .rolls_as
                .map(|rolls| instant::from_ms(rolls.ends_at_ms))
                .transpose()?),
            carried_holds::rolls_periods_left
                .eq(carried.left.rolls_as.map(|rolls| i16::from(rolls.periods_left))),
        ))
    });
    let rows = rows.collect::<Result<Vec<_>, LedgerError>>()?;
    diesel::insert_into(carried_holds::table).values(rows).execute(connection).await?;
    held_parts::note(connection, carried).await
}

#[derive(QueryableByName)]
struct Note {
    #[diesel(sql_type = BigInt)]
    epoch: i64,
    #[diesel(sql_type = BigInt)]
    sequence: i64,
    #[diesel(sql_type = SmallInt)]
    line: i16,
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    period_start: Milliseconds,
    #[diesel(sql_type = Timestamptz)]
    period_end: Milliseconds,
    #[diesel(sql_type = Numeric)]
    amount: Decimal,
    #[diesel(sql_type = Uuid)]
    reservation_id: uuid::Uuid,
    #[diesel(sql_type = BigInt)]
    step: i64,
    #[diesel(sql_type = Timestamptz)]
    happened_at: Milliseconds,
    #[diesel(sql_type = Text)]
    operation: String,
    #[diesel(sql_type = Timestamptz)]
    hour_at: Milliseconds,
    #[diesel(sql_type = Array<BigInt>)]
    subjects: Vec<i64>,
}

impl Note {
    fn key(&self) -> PeriodKey {
        (self.tenant.clone(), self.meter.clone(), self.period_start.0)
    }

    /// The entries that complete the reservation's step: those after the ones that the writer has booked of it.
    fn posting(self, holds: &mut ReturningHolds) -> Result<Posting, LedgerError> {
        let damaged = || LedgerError::Damaged(format!("a return of the reservation {}", self.reservation_id));
        let amount = Amount::from_decimal(self.amount).map_err(|_| damaged())?;
        let (epoch, sequence) = (number::unsigned(self.epoch)?, number::unsigned(self.sequence)?);
        let place = OutboxId { epoch: Epoch(epoch), sequence };
        let line = u8::try_from(self.line).map_err(|_| damaged())?;
        let period = Window { start_ms: self.period_start.0, end_ms: self.period_end.0 };
        // The lines before it stay as they are, and so keep their numbers.
        let mut moved = vec![Vec::new(); usize::from(line)];
        moved.push(holds.take(period, place, amount));
        let line = |movements| PostedLine {
            meter: self.meter.clone(),
            movements,
            first_leg: RETURN_LEG,
            begins_to_consume: false,
        };
        Ok(Posting {
            step: u32::try_from(self.step).map_err(|_| damaged())?,
            lines: moved.into_iter().map(line).collect(),
            tenant: self.tenant,
            operation_id: self.reservation_id,
            happened_at_ms: self.happened_at.0,
            operation: self.operation,
            hour_start_ms: self.hour_at.0,
            subjects: self.subjects,
        })
    }
}

/// The closed period from which holds came into another one.
#[derive(QueryableByName)]
struct Origin {
    #[diesel(sql_type = Text)]
    tenant: TenantId,
    #[diesel(sql_type = Text)]
    meter: MeterId,
    #[diesel(sql_type = Timestamptz)]
    next_start: Milliseconds,
    #[diesel(sql_type = Bool)]
    waits: bool,
    #[diesel(sql_type = Numeric)]
    charged: Decimal,
    #[diesel(sql_type = Numeric)]
    held_after: Decimal,
    #[diesel(sql_type = Numeric)]
    held_of_included: Decimal,
    #[diesel(sql_type = Numeric)]
    unused: Decimal,
    #[diesel(sql_type = Numeric)]
    max_rollover: Decimal,
    #[diesel(sql_type = Numeric)]
    min_rollover: Decimal,
    #[diesel(sql_type = Bool)]
    has_parts: bool,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    period_start: Option<Milliseconds>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    rolls_until: Option<Milliseconds>,
    #[diesel(sql_type = Nullable<SmallInt>)]
    rolls_periods_left: Option<i16>,
    #[diesel(sql_type = Numeric)]
    returned: Decimal,
}

impl Origin {
    /// The period whose close carried the holds.
    fn closed(&self) -> Option<PeriodKey> {
        Some((self.tenant.clone(), self.meter.clone(), self.period_start.as_ref()?.0))
    }

    /// What of it may return, in burn order: versions that let nothing go on but a part of the included amount have
    /// noted three sums.
    fn held(&self, parts: Vec<HeldPart>) -> ReturningHolds {
        let of_sums = || {
            vec![
                HeldPart::of(self.held_of_included, HeldFate::Rolls),
                HeldPart::of(self.held_after, HeldFate::Lapses),
            ]
        };
        let rolls_as =
            self.rolls_until.as_ref().zip(self.rolls_periods_left).map(|(until, periods_left)| RolledIn {
                amount: Decimal::ZERO,
                ends_at_ms: until.0,
                periods_left: u8::try_from(periods_left).unwrap_or_default(),
            });
        ReturningHolds {
            charged: self.charged,
            parts: if self.has_parts { parts } else { of_sums() },
            unused: self.unused,
            terms: RolloverTerms { max: self.max_rollover, min: self.min_rollover, reroll: false },
            rolls_as,
            returned: self.returned,
            kept: Vec::new(),
            ended: HashMap::new(),
        }
    }
}

impl Ledger {
    /// Partitions in which something returned of carried holds that is not booked.
    pub async fn partitions_with_returns(&self) -> Result<Vec<Partition>, LedgerError> {
        let query = || carried_returns::table.select(carried_returns::partition).distinct();
        self.load(query).await
    }

    /// Books what returned of carried holds in a partition, as far as their periods are closed; `now_ms` is the
    /// service's time. Returns how many returns it has booked, none once nothing is left to do.
    pub async fn book_carried_returns(
        &self,
        partition: Partition,
        now_ms: i64,
    ) -> Result<usize, LedgerError> {
        self.transact(BEGIN_BOOKING, move |connection| {
            async move {
                cursors::lock(connection, &[partition]).await?;
                let notes = sql_query(include_str!("sql/returns_of_partition.sql"))
                    .bind::<SmallInt, _>(number::of_partition(partition))
                    .bind::<BigInt, _>(RETURNS);
                let notes: Vec<Note> = notes.load(connection).await?;
                book(connection, partition, notes, now_ms).await
            }
            .boxed()
        })
        .await
    }

    /// The quotas of which something returned in a partition that is not booked.
    pub async fn quotas_with_returns(
        &self,
        partition: Partition,
    ) -> Result<Vec<(TenantId, MeterId)>, LedgerError> {
        let query = || {
            carried_returns::table
                .filter(carried_returns::partition.eq(number::of_partition(partition)))
                .select((carried_returns::tenant, carried_returns::meter))
                .distinct()
        };
        self.load(query).await
    }

    /// Books what returned of carried holds of this quota, if anything did: what is left of its amounts is known then.
    pub async fn book_returns_of(
        &self,
        partition: Partition,
        tenant: &TenantId,
        meter: &MeterId,
        now_ms: i64,
    ) -> Result<(), LedgerError> {
        let returned = || {
            carried_returns::table
                .filter(carried_returns::tenant.eq(tenant))
                .filter(carried_returns::meter.eq(meter))
                .select(carried_returns::period_start)
                .distinct()
        };
        let starts: Vec<Milliseconds> = self.load(returned).await?;
        if starts.is_empty() {
            return Ok(());
        }
        let key = |start: Milliseconds| (tenant.clone(), meter.clone(), start.0);
        let periods: Vec<PeriodKey> = starts.into_iter().map(key).collect();
        self.transact(BEGIN_BOOKING, move |connection| {
            async move {
                cursors::lock(connection, &[partition]).await?;
                book_in(connection, partition, &periods, now_ms).await
            }
            .boxed()
        })
        .await
    }
}

/// Books what returned in these periods before they are closed. The partition's cursor is locked.
pub(super) async fn book_in(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    periods: &[PeriodKey],
    now_ms: i64,
) -> Result<(), LedgerError> {
    let starts = instant::all_from_ms(periods.iter().map(|(.., start_ms)| *start_ms))?;
    let find = sql_query(include_str!("sql/returns_in.sql"))
        .bind::<Array<Text>, _>(periods.iter().map(|(tenant, ..)| tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(periods.iter().map(|(_, meter, _)| meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts);
    let notes: Vec<Note> = find.load(connection).await?;
    book(connection, partition, notes, now_ms).await.map(drop)
}

async fn book(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    notes: Vec<Note>,
    now_ms: i64,
) -> Result<usize, LedgerError> {
    if notes.is_empty() {
        return Ok(0);
    }
    let keys: BTreeSet<PeriodKey> = notes.iter().map(Note::key).collect();
    let origins = origins(connection, &keys).await?;
    let tenants: BTreeSet<_> = notes.iter().map(|note| note.tenant.clone()).collect();
    capacities::lock_tenants(connection, tenants.iter()).await?;
    let mut parts = held_parts::read(connection, origins.values().filter_map(Origin::closed)).await?;
    let ended = held_parts::ends(connection, &parts).await?;
    let mut holds: HashMap<PeriodKey, ReturningHolds> = HashMap::new();
    for (key, origin) in origins.into_iter().filter(|(_, origin)| !origin.waits) {
        let parts = origin.closed().and_then(|closed| parts.remove(&closed)).unwrap_or_default();
        holds.insert(key, ReturningHolds { ended: ended.clone(), ..origin.held(parts) });
    }
    let (mut postings, mut booked) = (Vec::new(), Vec::new());
    for note in notes {
        let Some(of_period) = holds.get_mut(&note.key()) else { continue };
        booked.push((note.epoch, note.sequence, note.line));
        postings.push(note.posting(of_period)?);
    }
    if booked.is_empty() {
        return Ok(0);
    }
    sql_query(include_str!("sql/drop_returns.sql"))
        .bind::<SmallInt, _>(number::of_partition(partition))
        .bind::<Array<BigInt>, _>(booked.iter().map(|(epoch, ..)| *epoch).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(booked.iter().map(|(_, sequence, _)| *sequence).collect::<Vec<_>>())
        .bind::<Array<SmallInt>, _>(booked.iter().map(|(.., line)| *line).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    keep(connection, &holds).await?;
    held_parts::give_back(connection, &holds).await?;
    let quotas: BTreeSet<_> = postings.iter().flat_map(changed_capacities).collect();
    capacities::raise_all_versions(connection, &quotas.into_iter().collect::<Vec<_>>(), now_ms).await?;
    let count = booked.len();
    journal::post_beside_outbox(connection, partition, postings).await?;
    Ok(count)
}

/// The quotas whose capacity a posting changes.
pub(crate) fn changed_capacities(posting: &Posting) -> impl Iterator<Item = (&TenantId, &MeterId)> {
    let changes = |line: &&PostedLine| line.movements.iter().any(Movement::changes_capacity);
    posting.lines.iter().filter(changes).map(|line| (&posting.tenant, &line.meter))
}

/// Where the holds came from that stand in these periods.
async fn origins(
    connection: &mut AsyncPgConnection,
    keys: &BTreeSet<PeriodKey>,
) -> Result<HashMap<PeriodKey, Origin>, LedgerError> {
    let find = sql_query(include_str!("sql/carried_origins.sql"))
        .bind::<Array<Text>, _>(keys.iter().map(|(tenant, ..)| tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(keys.iter().map(|(_, meter, _)| meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(instant::all_from_ms(keys.iter().map(|(.., start_ms)| *start_ms))?);
    let rows: Vec<Origin> = find.load(connection).await?;
    let key = |origin: &Origin| (origin.tenant.clone(), origin.meter.clone(), origin.next_start.0);
    Ok(rows.into_iter().map(|origin| (key(&origin), origin)).collect())
}

/// What the holds are set against that were carried into these periods and of which so much is still open, in burn
/// order. All that has returned of them is booked.
pub(super) async fn still_set(
    connection: &mut AsyncPgConnection,
    open: &HashMap<PeriodKey, Decimal>,
) -> Result<HashMap<PeriodKey, Vec<HeldPart>>, LedgerError> {
    if open.is_empty() {
        return Ok(HashMap::new());
    }
    let origins = origins(connection, &open.keys().cloned().collect()).await?;
    let mut parts = held_parts::read(connection, origins.values().filter_map(Origin::closed)).await?;
    let still = |(key, origin): (PeriodKey, Origin)| {
        let parts = origin.closed().and_then(|closed| parts.remove(&closed)).unwrap_or_default();
        let open = open.get(&key).copied().unwrap_or_default();
        let still = origin.held(parts).still_set(open);
        (key, still)
    };
    Ok(origins.into_iter().map(still).collect())
}

/// Notes how much has returned.
async fn keep(
    connection: &mut AsyncPgConnection,
    holds: &HashMap<PeriodKey, ReturningHolds>,
) -> Result<(), LedgerError> {
    let starts = instant::all_from_ms(holds.keys().map(|(.., start_ms)| *start_ms))?;
    sql_query(include_str!("sql/note_returned.sql"))
        .bind::<Array<Text>, _>(holds.keys().map(|(tenant, ..)| tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(holds.keys().map(|(_, meter, _)| meter).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(starts)
        .bind::<Array<Numeric>, _>(holds.values().map(|holds| holds.returned).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}
