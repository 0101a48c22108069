//! One transaction: moves the cursors, books what the plan says, all or nothing.

use std::sync::Arc;

use diesel_async::AsyncPgConnection;
use futures::{FutureExt, try_join};

use super::batch::{
    Arrival, LedgerState, OutboxMessage, Plan, event_hash, gate_time_ms, happened_at_ms, plan, read_entry,
    subjects_of,
};
use super::carried::{raise_capacities, read_open_periods};
use super::fail_point::{FailPoint, FailPoints};
use super::judge::{CHECKPOINTS_MAX, judge};
use super::outbox::OutboxEntry;
use crate::domain::checkpoint::{Checkpoint, is_checkpoint};
use crate::domain::event::takes_back;
use crate::domain::ids::{OutboxId, Partition, ReservationId};
use crate::ledger::chain::{self, Chain, Heads};
use crate::ledger::corrections;
use crate::ledger::cursors::{self, Advanced, CursorMove};
use crate::ledger::cuts_to_make::{self, CutAhead};
use crate::ledger::{BEGIN_BOOKING, Conflict, Ledger, LedgerError, Reconciliation};
use crate::ledger::{
    carried_holds, cuts, gaps, journal, key_filters, losses, quarantine, reconciliations, repeats,
    reservations, unwindings,
};

/// The next events of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionEvents {
    /// Which partition.
    pub partition: Partition,
    /// The last event booked before these.
    pub booked: OutboxId,
    /// In order; not empty.
    pub events: Vec<OutboxEntry>,
    /// The last event before and the first event after each gap among them.
    pub gaps: Vec<(OutboxId, OutboxId)>,
}

impl PartitionEvents {
    /// The first `count` of the events.
    pub(super) fn first(&self, count: usize) -> Self {
        let mut first = self.clone();
        first.shorten(count);
        first
    }

    /// Drops what is booked by now.
    pub(super) fn go_on_after(&mut self, booked: OutboxId) {
        self.booked = booked;
        self.events.retain(|(id, _)| *id > booked);
        self.gaps.retain(|(_, found)| *found > booked);
    }

    /// Keeps the first `count` events and the gaps among them.
    pub fn shorten(&mut self, count: usize) {
        self.events.truncate(count);
        let last = self.events.last().map_or(self.booked, |(id, _)| *id);
        self.gaps.retain(|(_, found)| *found <= last);
    }

    /// Ends at the first event as of whose exact place the books are read: a checkpoint, or use that is taken back.
    /// Returns whether events were cut off.
    pub fn end_where_books_are_read(&mut self) -> bool {
        let place = self.events.iter().position(|(_, event)| is_checkpoint(event) || takes_back(event));
        let Some(count) = place.map(|place| place + 1).filter(|count| *count < self.events.len()) else {
            return false;
        };
        self.shorten(count);
        true
    }

    /// Ends before the first event, but for its own first one, before which one of these cuts is made. Returns whether
    /// events were cut off.
    fn end_before_cut(&mut self, cuts: &[CutAhead]) -> bool {
        let of_it = cuts.iter().filter(|cut| cut.partition == self.partition);
        let later: Vec<_> =
            of_it.filter(|cut| !self.events.first().is_some_and(|one| is_cut(cut, one))).collect();
        let place = (1..self.events.len()).find(|at| later.iter().any(|cut| is_cut(cut, &self.events[*at])));
        place.map(|count| self.shorten(count)).is_some()
    }

    /// Leaves the checkpoint at its end to a later transaction.
    fn end_before_checkpoint(&mut self) {
        self.shorten(self.events.len().saturating_sub(1));
    }

    fn ends_at_checkpoint(&self) -> bool {
        self.events.last().is_some_and(|(_, event)| is_checkpoint(event))
    }
}

/// Whether a cut is made before this event, or one before it. What is no event of the gate says nothing of the time.
fn is_cut(cut: &CutAhead, (place, bytes): &OutboxEntry) -> bool {
    let at_ms = gate_time_ms(bytes).filter(|at_ms| cut.is_before(*place, *at_ms));
    at_ms.is_some_and(|_| read_entry(*place, bytes).is_ok())
}

/// What a transaction did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// How far each partition is booked now, and the hash of that event.
    pub booked: Vec<(Partition, OutboxId, [u8; 32])>,
    /// How many events were booked, now or before.
    pub events: usize,
    /// How many entries were written.
    pub entries: usize,
    /// Which events went to quarantine, and why.
    pub quarantined: Vec<(Partition, OutboxId, String)>,
    /// How many events repeated an operation that was booked already.
    pub repeats: usize,
    /// The result of comparing the gate with the books, for each checkpoint.
    pub judged: Vec<Reconciliation>,
    /// Whether a grant begins or ends among the events: those from there on were left to the next transaction.
    pub ended_at_cut: bool,
}

impl Applied {
    /// Adds what a later transaction did.
    pub(super) fn add(&mut self, later: Self) {
        let is_later = |partition| later.booked.iter().any(|(booked, ..)| *booked == partition);
        self.booked.retain(|(partition, ..)| !is_later(*partition));
        self.booked.extend(later.booked);
        self.events += later.events;
        self.entries += later.entries;
        self.quarantined.extend(later.quarantined);
        self.repeats += later.repeats;
        self.judged.extend(later.judged);
        self.ended_at_cut |= later.ended_at_cut;
    }
}

/// Ends each part where the books are read first, or before it once one transaction has its share of checkpoints.
fn bound_checkpoints(parts: &mut Vec<PartitionEvents>) {
    let mut room = CHECKPOINTS_MAX;
    for part in &mut *parts {
        part.end_where_books_are_read();
        match (part.ends_at_checkpoint(), room) {
            (false, _) => {}
            (true, 0) => part.end_before_checkpoint(),
            (true, _) => room -= 1,
        }
    }
    parts.retain(|part| !part.events.is_empty());
}

/// Books the events of these partitions in one transaction, all or nothing. Each partition ends at its first checkpoint
/// or use that is taken back, and where a grant begins or ends among its events; the number of checkpoints is bounded.
///
/// Errors: [`Conflict::CursorMoved`] when another writer was faster; transient errors, after which a retry is safe
/// whether or not the transaction was committed.
pub async fn apply(
    ledger: &Ledger,
    parts: Vec<PartitionEvents>,
    fail_points: &Arc<FailPoints>,
) -> Result<Applied, LedgerError> {
    apply_or_quarantine(ledger, parts, None, fail_points).await
}

/// As [`apply`]; where it is said why the ledger refuses these events, they go to quarantine.
pub(super) async fn apply_or_quarantine(
    ledger: &Ledger,
    mut parts: Vec<PartitionEvents>,
    refused: Option<String>,
    fail_points: &Arc<FailPoints>,
) -> Result<Applied, LedgerError> {
    parts.sort_by_key(|part| part.partition);
    bound_checkpoints(&mut parts);
    if parts.is_empty() {
        return Ok(Applied::default());
    }
    let instants = parts.iter().flat_map(|part| &part.events).filter_map(|(_, bytes)| happened_at_ms(bytes));
    ledger.ensure_months_of(instants).await?;
    let result = run(ledger, parts, refused, fail_points.clone()).await;
    if result.is_err() {
        // A missing month may be the cause: of statements sent together, the reported error can be that of a later one.
        ledger.forget_months();
    }
    result
}

async fn run(
    ledger: &Ledger,
    parts: Vec<PartitionEvents>,
    refused: Option<String>,
    fail_points: Arc<FailPoints>,
) -> Result<Applied, LedgerError> {
    let here = ledger.clone();
    ledger
        .transact(BEGIN_BOOKING, move |connection| {
            async move {
                let applied = book_parts(&here, connection, parts, refused).await?;
                let killed = |_| LedgerError::Unavailable("killed before the commit".into());
                fail_points.check(FailPoint::BeforeCommit).map_err(killed)?;
                Ok(applied)
            }
            .boxed()
        })
        .await
}

async fn book_parts(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    mut parts: Vec<PartitionEvents>,
    refused: Option<String>,
) -> Result<Applied, LedgerError> {
    let moves: Vec<CursorMove> = parts.iter().filter_map(cursor_move).collect();
    let chains: Vec<Chain> = parts.iter().map(|part| Chain::Outbox(part.partition)).collect();
    // First: reads of these partitions must see what the former transaction left, and a writer that comes second ends
    // here.
    let advancing = cursors::advance(connection, &moves);
    let (Advanced { booked_at, erasures }, are_due) = try_join!(advancing, are_cuts_due(connection, &parts))?;
    ledger.heed_erasures(erasures);
    let cuts = if are_due { cuts_among(connection, &parts).await? } else { Vec::new() };
    let ended_at_cut = end_before_cuts(connection, &mut parts, &cuts).await?;
    make_cuts(connection, &parts, &cuts).await?;
    let moves: Vec<CursorMove> = parts.iter().filter_map(cursor_move).collect();
    losses::add_ends(connection, &parts.iter().flat_map(epoch_ends).collect::<Vec<_>>()).await?;
    let mut gaps = Vec::new();
    let mut arrivals = Vec::new();
    for part in parts {
        gaps.extend(part.gaps.iter().map(|(after, found)| (part.partition, *after, *found)));
        let arrival = |event| Arrival { refused: refused.clone(), ..Arrival::new(part.partition, event) };
        arrivals.extend(part.events.into_iter().map(arrival));
    }
    let count = arrivals.len();
    let checkpoints = checkpoints(&arrivals);
    let heads = chain::heads(connection, &chains);
    let (heads, known) = try_join!(heads, read_known(ledger, connection, &arrivals))?;
    let known = number_subjects(ledger, connection, &arrivals, known).await?;
    let known = read_open_periods(ledger, connection, &arrivals, known).await?;
    let mut plan = plan(arrivals, known);
    plan.gaps = gaps;
    raise_capacities(connection, &plan).await?;
    let booked = moves.iter().map(|step| (step.partition, step.to, step.event_hash)).collect();
    let mut applied = Applied {
        booked,
        events: count - plan.refused.len(),
        quarantined: plan.refused.iter().map(|r| (r.partition, r.outbox_id, r.reason.clone())).collect(),
        repeats: plan.repeats.len(),
        ended_at_cut,
        ..Applied::default()
    };
    applied.entries = write(connection, plan, &heads, booked_at).await?;
    for (partition, checkpoint) in &checkpoints {
        let mut judged = judge(ledger, connection, *partition, checkpoint).await?;
        judged.is_known = reconciliations::add(connection, &judged).await?;
        applied.judged.push(judged);
    }
    Ok(applied)
}

/// The last booked events of the epochs that these events end.
fn epoch_ends(part: &PartitionEvents) -> Vec<losses::Place> {
    let booked = std::iter::once(part.booked).chain(part.events.iter().map(|(id, _)| *id));
    let places: Vec<OutboxId> = booked.collect();
    let leaves = |pair: &&[OutboxId]| pair[0].epoch < pair[1].epoch && pair[0] != OutboxId::default();
    places.windows(2).filter(leaves).map(|pair| (part.partition, pair[0])).collect()
}

/// The checkpoints, each the last event of its partition's part.
fn checkpoints(arrivals: &[Arrival]) -> Vec<(Partition, Checkpoint)> {
    let found = arrivals.iter().filter_map(|arrival| match &arrival.event {
        Ok(OutboxMessage::Checkpoint(checkpoint)) => Some((arrival.partition, checkpoint.as_ref().clone())),
        _ => None,
    });
    found.collect()
}

/// The latest time of these events (gate time, unix ms).
fn latest_ms(parts: &[PartitionEvents]) -> Option<i64> {
    parts.iter().flat_map(|part| &part.events).filter_map(|(_, bytes)| gate_time_ms(bytes)).max()
}

/// Whether a cut may be due before or among these events.
async fn are_cuts_due(
    connection: &AsyncPgConnection,
    parts: &[PartitionEvents],
) -> Result<bool, LedgerError> {
    match latest_ms(parts) {
        Some(latest_ms) => cuts_to_make::are_due(connection, latest_ms).await,
        None => Ok(false),
    }
}

/// The cuts that are due before or among these events.
async fn cuts_among(
    connection: &AsyncPgConnection,
    parts: &[PartitionEvents],
) -> Result<Vec<CutAhead>, LedgerError> {
    let Some(latest_ms) = latest_ms(parts) else { return Ok(Vec::new()) };
    let from: Vec<_> =
        parts.iter().filter_map(|part| Some((part.partition, part.events.first()?.0))).collect();
    cuts_to_make::ahead(connection, &from, latest_ms).await
}

/// Ends each part before the first event before which one of these cuts is made, and takes its cursor back to there.
/// Returns whether any has ended so.
async fn end_before_cuts(
    connection: &AsyncPgConnection,
    parts: &mut [PartitionEvents],
    cuts: &[CutAhead],
) -> Result<bool, LedgerError> {
    let mut back = Vec::new();
    for part in parts {
        let from = part.events.last().map_or(part.booked, |(id, _)| *id);
        if part.end_before_cut(cuts) {
            back.extend(cursor_move(part).map(|step| CursorMove { from, ..step }));
        }
    }
    if back.is_empty() {
        return Ok(false);
    }
    cursors::advance(connection, &back).await?;
    Ok(true)
}

/// Makes those of these cuts that are made before the first event of a part: all before it is booked, and nothing else.
async fn make_cuts(
    connection: &mut AsyncPgConnection,
    parts: &[PartitionEvents],
    cuts: &[CutAhead],
) -> Result<(), LedgerError> {
    for part in parts {
        let Some(first) = part.events.first() else { continue };
        let is_due = cuts.iter().any(|cut| cut.partition == part.partition && is_cut(cut, first));
        if let Some(at_ms) = gate_time_ms(&first.1).filter(|_| is_due) {
            cuts::make(connection, part.partition, first.0, at_ms).await?;
        }
    }
    Ok(())
}

fn cursor_move(part: &PartitionEvents) -> Option<CursorMove> {
    let ((first, _), (to, event)) = (part.events.first()?, part.events.last()?);
    let (partition, from) = (part.partition, part.booked);
    Some(CursorMove { partition, from, first: *first, to: *to, event_hash: event_hash(event) })
}

/// Reads what is booked of the arrivals' reservations, without the subjects. The partitions' cursors are locked.
pub(super) async fn read_known(
    ledger: &Ledger,
    connection: &AsyncPgConnection,
    arrivals: &[Arrival],
) -> Result<LedgerState, LedgerError> {
    let mut ids: Vec<ReservationId> = arrivals.iter().filter_map(Arrival::reservation).collect();
    ids.sort_unstable();
    ids.dedup();
    let reading = reservations::read_records(connection, &ids);
    let (rows, waiting) = try_join!(reading, quarantine::waiting(connection, &ids))?;
    let waiting = waiting.into_iter().collect();
    let mut known = LedgerState { waiting, horizon_ms: ledger.horizon_ms(), ..LedgerState::default() };
    for row in rows {
        if let Ok(record) = row.record {
            known.records.insert(row.id, record);
            known.resolved_at_ms.extend(row.resolved_at_ms.map(|at_ms| (row.id, at_ms)));
        } else {
            known.damaged.insert(row.id);
        }
    }
    Ok(known)
}

/// Adds the row numbers of the subjects that these arrivals name.
pub(super) async fn number_subjects(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    arrivals: &[Arrival],
    known: LedgerState,
) -> Result<LedgerState, LedgerError> {
    let subjects = ledger.number_subjects(connection, subjects_of(arrivals, &known.records)).await?;
    Ok(LedgerState { subjects, ..known })
}

/// Writes a plan, table by table, and returns its number of entries. The number of statements is constant, and they are
/// sent together: none needs another's result, but for use that is taken back.
pub(super) async fn write(
    connection: &AsyncPgConnection,
    plan: Plan,
    heads: &Heads,
    booked_at: chrono::DateTime<chrono::Utc>,
) -> Result<usize, LedgerError> {
    let chained = |(partition, postings)| (Chain::Outbox(partition), postings);
    let postings = plan.postings.into_iter().map(chained).collect();
    for life in &plan.ended {
        reservations::write_many(connection, life.planned.as_slice()).await?;
        reservations::archive(connection, life.id).await?;
    }
    let ((), entries, ..) = try_join!(
        reservations::write_many(connection, &plan.reservations),
        journal::post(connection, postings, heads, booked_at),
        quarantine::add(connection, &plan.refused),
        gaps::add(connection, &plan.gaps),
        repeats::add(connection, &plan.repeats),
        key_filters::add(connection, &plan.keys),
        carried_holds::note_returns(connection, &plan.returned),
        corrections::add(connection, &plan.corrections),
    )?;
    // Reads the balances that were just written.
    unwindings::add(connection, &plan.taken_back).await?;
    Ok(entries)
}

/// Whether another writer was faster.
pub(super) fn was_overtaken(error: &LedgerError) -> bool {
    matches!(error, LedgerError::Conflict(Conflict::CursorMoved(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u16, kinds: &[u8]) -> PartitionEvents {
        let event = |(sequence, kind): (u64, &u8)| {
            (OutboxId { epoch: crate::domain::ids::Epoch(1), sequence }, vec![1, *kind])
        };
        PartitionEvents {
            partition: Partition::new(number).unwrap(),
            booked: OutboxId::default(),
            events: (0..).zip(kinds).map(event).collect(),
            gaps: Vec::new(),
        }
    }

    #[test]
    fn a_transaction_judges_a_bounded_number_of_checkpoints_and_leaves_the_rest_to_later_ones() {
        let mut parts: Vec<_> = (0..6).map(|number| part(number, &[1, 7, 1, 7])).collect();
        parts.extend([part(6, &[7, 1]), part(7, &[1, 1, 1])]);
        bound_checkpoints(&mut parts);
        let left: Vec<_> = parts.iter().map(|part| (part.partition.number(), part.events.len())).collect();
        assert_eq!(left, [(0, 2), (1, 2), (2, 2), (3, 2), (4, 1), (5, 1), (7, 3)]);
        assert_eq!(parts.iter().filter(|part| part.ends_at_checkpoint()).count(), CHECKPOINTS_MAX);
    }

    #[test]
    fn a_part_ends_at_use_that_is_taken_back() {
        let usage = |flags: u8| [&[1, 2][..], &[0; 25], &[1, 2, 1, flags]].concat();
        let ends = |flags: &[u8]| {
            let mut part = part(3, &[1, 1, 1, 1]);
            for (event, flags) in part.events.iter_mut().zip(flags) {
                event.1 = usage(*flags);
            }
            (part.end_where_books_are_read(), part.events.len())
        };
        assert_eq!(ends(&[0, 96, 0]), (true, 2));
        assert_eq!(ends(&[32, 64, 4, 0]), (false, 4), "more use, and what is no correction");
        assert_eq!(ends(&[0, 0, 0, 96 + 4]), (false, 4), "it ends there anyway");
    }

    #[test]
    fn a_part_ends_before_the_first_event_before_which_a_cut_is_made_and_goes_on_behind_one_that_is() {
        let boundary = |at_ms: i64| [&[1, 8][..], &at_ms.to_le_bytes(), &[0; 17]].concat();
        let place = |sequence| OutboxId { epoch: crate::domain::ids::Epoch(1), sequence };
        let ends = |times: &[i64], cuts: &[(i64, u64)]| {
            let mut part = part(3, &[]);
            part.events = (1..).zip(times).map(|(at, time)| (place(at), boundary(*time))).collect();
            let cut = |(due_at, after): &(i64, u64)| CutAhead {
                partition: part.partition,
                due_at_ms: *due_at,
                after: place(*after),
            };
            let cuts: Vec<_> = cuts.iter().map(cut).collect();
            (part.end_before_cut(&cuts), part.events.len())
        };
        assert_eq!(ends(&[5, 9, 10, 11], &[(10, 0)]), (true, 2), "an event of that instant is behind it");
        assert_eq!(ends(&[10, 9, 11], &[(10, 0)]), (false, 3), "it is made before the first one");
        assert_eq!(ends(&[10, 12, 20], &[(10, 0), (12, 0)]), (true, 1));
        assert_eq!(ends(&[5, 9], &[(10, 0)]), (false, 2));
        assert_eq!(ends(&[5, 6, 7], &[(0, 2)]), (true, 2), "after a place");
        assert_eq!(ends(&[5, 6, 7], &[(7, 1)]), (true, 2), "after a place and from an instant on");
        let mut other = part(4, &[]);
        other.events = vec![
            (place(1), boundary(5)),
            (place(2), [&[9, 1][..], &99_i64.to_le_bytes(), &[0; 17]].concat()),
        ];
        let cut = CutAhead { partition: other.partition, due_at_ms: 10, after: place(0) };
        assert!(!other.end_before_cut(&[cut]), "what is no event has no time");
    }
}
