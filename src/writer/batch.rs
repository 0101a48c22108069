//! Decides what a batch of events does to the books: a pure function of the events and what is booked of their
//! reservations.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::carried;
use super::lives::{Meeting, meet};
use super::outbox::OutboxEntry;
use crate::domain::booking::{BookError, Booking, book, book_rise, is_bookable_instant};
use crate::domain::boundary::{decode_boundary, is_boundary};
use crate::domain::checkpoint::{Checkpoint, is_checkpoint};
use crate::domain::entry::Posting;
use crate::domain::event::{self, Change, Event};
use crate::domain::ids::{Epoch, OutboxId, Partition, ReservationId, TenantId};
use crate::domain::key_filter::NOTED_AGAIN_AFTER_MS;
use crate::domain::open_periods::OpenPeriods;
use crate::domain::reservation::{Record, ReservationState};
use crate::ledger::carried_holds::ReturnNote;
use crate::ledger::corrections::Corrections;
use crate::ledger::gaps;
use crate::ledger::quarantine::QuarantineEntry;
use crate::ledger::repeats::Repeat;
use crate::ledger::reservations::ReservationChange;
use crate::ledger::subjects::{SubjectNumbers, TenantSubject};
use crate::ledger::unwindings::TakenBack;

/// What was read of a partition's outbox, compared with its cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// These events are booked next.
    Next {
        /// In order.
        events: Vec<OutboxEntry>,
        /// The last event before and the first event after each gap.
        gaps: Vec<(OutboxId, OutboxId)>,
        /// Whether the tail of the cursor's epoch is abandoned, because it does not continue what was booked.
        gives_up: bool,
    },
    /// The entry at the cursor is missing or differs, and there is no newer epoch to go on with.
    Amnesia,
    /// An event of an epoch that this writer does not know as issued.
    UnknownEpoch(Epoch),
}

/// The hash that identifies the entry at the cursor.
pub fn event_hash(event: &[u8]) -> [u8; 32] {
    *blake3::hash(event).as_bytes()
}

/// An event's gate time (unix ms), also when the rest of it cannot be decoded; none when the books cannot store the
/// instant.
pub fn gate_time_ms(event: &[u8]) -> Option<i64> {
    event::gate_time_ms(event).filter(|ms| is_bookable_instant(*ms))
}

/// When what an event says happened, if the books can hold that instant.
pub(crate) fn happened_at_ms(event: &[u8]) -> Option<i64> {
    event::happened_at_ms(event).filter(|ms| is_bookable_instant(*ms))
}

/// Compares what was read, beginning with the entry at the cursor, with what was booked. `issued` is the partition's
/// epoch in the ledger.
pub fn follow(
    booked: OutboxId,
    booked_hash: Option<&[u8; 32]>,
    issued: Epoch,
    mut read: Vec<OutboxEntry>,
) -> Reading {
    let is_at_cursor = read.first().is_some_and(|(id, _)| *id == booked);
    let intact = match booked_hash {
        None => true,
        Some(hash) => is_at_cursor && read.first().is_some_and(|(_, event)| event_hash(event) == *hash),
    };
    if intact && is_at_cursor && booked_hash.is_some() {
        read.remove(0);
    }
    if !intact {
        if issued <= booked.epoch {
            return Reading::Amnesia;
        }
        // The old epoch's tail is not what was acknowledged: only the new epoch counts.
        read.retain(|(id, _)| id.epoch > booked.epoch);
    }
    if let Some((id, _)) = read.iter().find(|(id, _)| id.epoch > issued) {
        return Reading::UnknownEpoch(id.epoch);
    }
    let mut gaps = Vec::new();
    let mut last = booked;
    for (id, _) in &read {
        let expected = if id.epoch == last.epoch { last.sequence + 1 } else { 0 };
        if id.sequence != expected {
            gaps.push((last, *id));
        }
        last = *id;
    }
    Reading::Next { events: read, gaps, gives_up: !intact }
}

/// An event on its way into the books.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) partition: Partition,
    pub(crate) outbox_id: OutboxId,
    pub(crate) bytes: Vec<u8>,
    /// Its content, or why it cannot be decoded.
    pub(crate) event: Result<OutboxMessage, String>,
    /// Why the ledger refuses to book it, where it does.
    pub(crate) refused: Option<String>,
}

/// The content of an outbox entry.
#[derive(Debug, Clone)]
pub(crate) enum OutboxMessage {
    /// What happened to a reservation.
    Event(Box<Event>),
    /// A snapshot of a tenant's counters; it books nothing.
    Checkpoint(Box<Checkpoint>),
    /// An event before which cuts may be due; it books nothing.
    Boundary,
}

/// Decodes an outbox entry, or returns why it cannot.
pub(crate) fn read_entry(outbox_id: OutboxId, bytes: &[u8]) -> Result<OutboxMessage, String> {
    if is_boundary(bytes) {
        let at_ms = decode_boundary(bytes).map_err(|error| error.to_string())?;
        let is_bookable = is_bookable_instant(at_ms);
        return if is_bookable { Ok(OutboxMessage::Boundary) } else { Err(BookError::Instant.to_string()) };
    }
    if !is_checkpoint(bytes) {
        let event = Event::decode(outbox_id, bytes).map_err(|error| error.to_string())?;
        return Ok(OutboxMessage::Event(Box::new(event)));
    }
    let checkpoint = Checkpoint::decode(outbox_id, bytes).map_err(|error| error.to_string())?;
    let instants = checkpoint.description.counters.iter().map(|counter| counter.window_ms);
    let instants = instants.flat_map(|(start_ms, end_ms)| [start_ms, end_ms]);
    if instants.chain([checkpoint.gate_time_ms]).all(is_bookable_instant) {
        Ok(OutboxMessage::Checkpoint(Box::new(checkpoint)))
    } else {
        Err(BookError::Instant.to_string())
    }
}

impl Arrival {
    pub(crate) fn new(partition: Partition, (outbox_id, bytes): OutboxEntry) -> Self {
        let event = read_entry(outbox_id, &bytes);
        Self { partition, outbox_id, bytes, event, refused: None }
    }

    /// The record with which a reservation begins.
    pub(super) fn begun(&self) -> Option<&Record> {
        match &self.event {
            Ok(OutboxMessage::Event(event)) => begun(event),
            _ => None,
        }
    }

    /// The reservation, also when the rest of the event cannot be decoded.
    pub(crate) fn reservation(&self) -> Option<ReservationId> {
        match &self.event {
            Ok(OutboxMessage::Event(event)) => Some(event.reservation),
            Ok(OutboxMessage::Checkpoint(_) | OutboxMessage::Boundary) => None,
            Err(_) if is_checkpoint(&self.bytes) || is_boundary(&self.bytes) => None,
            Err(_) => self.bytes.get(10..26)?.try_into().ok().map(ReservationId::from_bytes),
        }
    }
}

fn begun(event: &Event) -> Option<&Record> {
    match &event.change {
        Change::Reserve(record) | Change::Usage(record) => Some(record),
        _ => None,
    }
}

/// What is booked of a batch's reservations.
#[derive(Debug, Default)]
pub(crate) struct LedgerState {
    pub(crate) records: HashMap<ReservationId, Record>,
    /// When each resolved one was last resolved (gate time, unix ms).
    pub(crate) resolved_at_ms: HashMap<ReservationId, i64>,
    /// How long after that a key still means the same job.
    pub(crate) horizon_ms: i64,
    /// Reservations with an event in quarantine.
    pub(crate) waiting: HashSet<ReservationId>,
    /// Reservations whose row cannot be decoded.
    pub(crate) damaged: HashSet<ReservationId>,
    pub(crate) subjects: SubjectNumbers,
    /// Which periods are closed, for reservations of periods that have ended.
    pub(crate) open: OpenPeriods,
}

/// The subjects that the batch's entries will name. Those that share slots are named in none.
pub(crate) fn subjects_of(
    arrivals: &[Arrival],
    records: &HashMap<ReservationId, Record>,
) -> BTreeSet<TenantSubject> {
    let new = arrivals.iter().filter_map(Arrival::begun);
    new.chain(records.values()).flat_map(subjects_of_record).collect()
}

fn subjects_of_record(record: &Record) -> impl Iterator<Item = TenantSubject> + '_ {
    let named = record.body.rest.iter().flat_map(|rest| &rest.subjects);
    let named = named.filter(|(subject, _)| !subject.kind.shares_slots());
    named.map(|(subject, _)| (record.body.tenant.clone(), subject.clone()))
}

/// Everything that one transaction writes.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) postings: BTreeMap<Partition, Vec<Posting>>,
    pub(crate) reservations: Vec<ReservationChange>,
    /// Lives that go to the archive before the next life of the same id is written, in order.
    pub(crate) ended: Vec<EndedLife>,
    /// The keyed operations to note for the key filters, new or resolved again.
    pub(crate) keys: Vec<ReservationId>,
    pub(crate) refused: Vec<QuarantineEntry>,
    pub(crate) repeats: Vec<Repeat>,
    pub(crate) gaps: Vec<gaps::Found>,
    /// What returned of holds that were carried over.
    pub(crate) returned: Vec<ReturnNote>,
    /// What was consumed for closed periods.
    pub(crate) corrections: Corrections,
    /// What corrections of open periods take back: the last event of its partition.
    pub(crate) taken_back: Vec<TakenBack>,
}

/// A life that goes to the archive before its horizon, with its change planned in the same transaction.
#[derive(Debug)]
pub(crate) struct EndedLife {
    pub(crate) id: ReservationId,
    pub(crate) planned: Option<ReservationChange>,
}

impl Plan {
    /// The instants whose months need a partition.
    pub(crate) fn instants_ms(&self) -> impl Iterator<Item = i64> + '_ {
        self.postings.values().flatten().map(|posting| posting.happened_at_ms)
    }
}

/// Decides what the arrivals, in order, do to the books.
pub(crate) fn plan(arrivals: Vec<Arrival>, known: LedgerState) -> Plan {
    let mut planner = Planner { known, plan: Plan::default(), changed: HashMap::new() };
    for arrival in arrivals {
        planner.take(arrival);
    }
    planner.plan
}

struct Planner {
    known: LedgerState,
    plan: Plan,
    /// Index of a reservation's change in the plan.
    changed: HashMap<ReservationId, usize>,
}

enum Disposition {
    Bookable(Box<Booking>),
    /// A new life: the booked one goes to the archive first.
    NewLife(Box<Booking>),
    /// Booked already, for this tenant.
    Repeat(TenantId),
}

impl Planner {
    fn take(&mut self, mut arrival: Arrival) {
        if let Some(reason) = arrival.refused.take() {
            return self.refuse(arrival, reason);
        }
        let taken = match &arrival.event {
            Ok(OutboxMessage::Event(event)) => self.take_event(&arrival, event),
            Ok(OutboxMessage::Checkpoint(_) | OutboxMessage::Boundary) => return,
            Err(reason) => Err(reason.clone()),
        };
        if let Err(reason) = taken {
            self.refuse(arrival, reason);
        }
    }

    fn take_event(&mut self, arrival: &Arrival, event: &Event) -> Result<(), String> {
        match self.judge(arrival, event)? {
            Disposition::Bookable(booking) => self.write(arrival.partition, event, *booking, false)?,
            Disposition::NewLife(booking) => {
                let id = event.reservation;
                let planned = self.changed.get(&id).and_then(|index| self.plan.reservations.get(*index));
                let ended = EndedLife { id, planned: planned.cloned() };
                self.write(arrival.partition, event, *booking, true)?;
                self.plan.ended.push(ended);
            }
            Disposition::Repeat(tenant) => self.plan.repeats.push(Repeat {
                partition: arrival.partition,
                outbox_id: arrival.outbox_id,
                reservation: event.reservation,
                tenant,
                begins: begun(event).is_some(),
                event: arrival.bytes.clone(),
            }),
        }
        Ok(())
    }

    /// The reservation as booked after the plan so far.
    fn booked(&self, id: ReservationId) -> Option<&Record> {
        let planned = self.changed.get(&id).and_then(|index| self.plan.reservations.get(*index));
        planned.map(|change| &change.record).or_else(|| self.known.records.get(&id))
    }

    /// Whether a life begins so long after the booked one was resolved that its key means another job.
    fn is_past_horizon(&self, event: &Event) -> bool {
        let planned =
            self.changed.get(&event.reservation).and_then(|index| self.plan.reservations.get(*index));
        let resolved_at_ms = match planned {
            Some(change) => change.resolved_at_ms,
            None => self.known.resolved_at_ms.get(&event.reservation).copied(),
        };
        let since_ms = |at_ms: i64| event.head().born_at_ms.saturating_sub(at_ms);
        resolved_at_ms.is_some_and(|at_ms| since_ms(at_ms) > self.known.horizon_ms)
    }

    fn judge(&self, arrival: &Arrival, event: &Event) -> Result<Disposition, String> {
        if self.known.waiting.contains(&event.reservation) {
            return Err("an earlier event of this reservation waits in quarantine".into());
        }
        if self.known.damaged.contains(&event.reservation) {
            return Err("the row of this reservation cannot be decoded".into());
        }
        if event.reservation.partition() != arrival.partition {
            return Err("the reservation belongs to another partition".into());
        }
        let before = self.booked(event.reservation);
        let is_past = self.is_past_horizon(event);
        let meeting = before.map_or(Ok(Meeting::Next), |before| meet(event, before, is_past))?;
        let booking = match (meeting, before) {
            (Meeting::Booked, Some(before)) => {
                return Ok(Disposition::Repeat(before.body.tenant.clone()));
            }
            (Meeting::NewLife, _) => {
                let booking = book(event, None, &self.known.open).map_err(|error| error.to_string())?;
                return Ok(Disposition::NewLife(Box::new(booking)));
            }
            (Meeting::Rise, Some(before)) => book_rise(event, before, &self.known.open),
            (_, before) => book(event, before, &self.known.open),
        };
        Ok(Disposition::Bookable(Box::new(booking.map_err(|error| error.to_string())?)))
    }

    /// `is_another_life`: the booked life of this id goes to the archive first.
    fn write(
        &mut self,
        partition: Partition,
        event: &Event,
        booking: Booking,
        is_another_life: bool,
    ) -> Result<(), String> {
        let subjects = self.numbers(&booking.after).ok_or("a subject has no number")?;
        let Booking { lines, returned, corrections, after } = booking;
        let posting = Posting::of_event(event, &after, lines, subjects.clone());
        let posting = posting.map_err(|error| error.to_string())?;
        let note = |part| carried::return_note(partition, event, &posting, part);
        self.plan.returned.extend(returned.into_iter().map(note));
        corrections.into_iter().for_each(|part| self.plan.corrections.add(&posting.tenant, part));
        if matches!(&event.change, Change::Usage(record) if record.head.takes_back()) {
            self.plan.taken_back.extend(TakenBack::of(partition, &posting));
        }
        self.plan.postings.entry(partition).or_default().push(posting);
        self.change(event, after, subjects, is_another_life);
        Ok(())
    }

    fn numbers(&self, record: &Record) -> Option<Vec<i64>> {
        subjects_of_record(record).map(|subject| self.known.subjects.get(&subject).copied()).collect()
    }

    /// One row per reservation and transaction, however many of its events are in the batch.
    fn change(&mut self, event: &Event, record: Record, subjects: Vec<i64>, is_another_life: bool) {
        let is_keyed = record.body.rest.as_ref().is_some_and(|rest| rest.keyed);
        let resolved = record.head.state != ReservationState::Reserved;
        let age_ms = event.gate_time_ms.saturating_sub(record.head.born_at_ms);
        if is_keyed && (begun(event).is_some() || (resolved && age_ms > NOTED_AGAIN_AFTER_MS)) {
            self.plan.keys.push(event.reservation);
        }
        let planned = self.changed.get(&event.reservation).and_then(|at| self.plan.reservations.get(*at));
        let known = self.known.records.get(&event.reservation).map(|record| record.head.state);
        let booked = planned.map_or(known, |planned| planned.booked);
        let change = ReservationChange {
            id: event.reservation,
            booked: booked.filter(|_| !is_another_life),
            record,
            subjects,
            resolved_at_ms: resolved.then_some(event.gate_time_ms),
        };
        match self.changed.get(&event.reservation) {
            Some(index) => self.plan.reservations[*index] = change,
            None => {
                self.changed.insert(event.reservation, self.plan.reservations.len());
                self.plan.reservations.push(change);
            }
        }
    }

    fn refuse(&mut self, arrival: Arrival, reason: String) {
        let reservation = arrival.reservation();
        let tenant = reservation.and_then(|id| self.tenant_of(id, &arrival));
        self.known.waiting.extend(reservation);
        self.plan.keys.extend(reservation);
        self.plan.refused.push(QuarantineEntry {
            partition: arrival.partition,
            outbox_id: arrival.outbox_id,
            reservation,
            tenant,
            event: arrival.bytes,
            reason,
        });
    }

    fn tenant_of(&self, id: ReservationId, arrival: &Arrival) -> Option<TenantId> {
        let record = arrival.begun().or_else(|| self.booked(id));
        record.map(|record| record.body.tenant.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> OutboxId {
        text.parse().unwrap()
    }

    fn read(ids: &[&str]) -> Vec<OutboxEntry> {
        ids.iter().map(|id| (at(id), id.as_bytes().to_vec())).collect()
    }

    fn next(ids: &[&str], gaps: &[(&str, &str)]) -> Reading {
        let gaps = gaps.iter().map(|(after, found)| (at(after), at(found))).collect();
        Reading::Next { events: read(ids), gaps, gives_up: false }
    }

    fn next_after_giving_up(ids: &[&str]) -> Reading {
        Reading::Next { events: read(ids), gaps: vec![], gives_up: true }
    }

    #[rstest::rstest]
    #[case::nothing_yet("0-0", 1, &[], next(&[], &[]))]
    #[case::the_first("0-0", 1, &["1-0", "1-1"], next(&["1-0", "1-1"], &[]))]
    #[case::the_first_are_missing("0-0", 1, &["1-2"], next(&["1-2"], &[("0-0", "1-2")]))]
    #[case::nothing_new("1-4", 1, &["1-4"], next(&[], &[]))]
    #[case::the_next("1-4", 1, &["1-4", "1-5"], next(&["1-5"], &[]))]
    #[case::a_gap("1-4", 1, &["1-4", "1-5", "1-8"], next(&["1-5", "1-8"], &[("1-5", "1-8")]))]
    #[case::the_next_epoch("1-4", 2, &["1-4", "1-5", "2-0"], next(&["1-5", "2-0"], &[]))]
    #[case::an_epoch_without_events("1-4", 3, &["1-4", "3-0"], next(&["3-0"], &[]))]
    #[case::a_new_epoch_from_its_middle("1-4", 2, &["1-4", "2-3"], next(&["2-3"], &[("1-4", "2-3")]))]
    #[case::emptied("1-4", 1, &[], Reading::Amnesia)]
    #[case::gone_back("1-4", 1, &["1-5"], Reading::Amnesia)]
    #[case::emptied_under_a_new_epoch("1-4", 2, &["2-0", "2-1"], next_after_giving_up(&["2-0", "2-1"]))]
    #[case::the_old_epoch_cannot_be_trusted("1-4", 2, &["1-5", "1-6", "2-0"], next_after_giving_up(&["2-0"]))]
    #[case::the_new_epoch_has_no_event_yet("1-4", 2, &["1-5"], next_after_giving_up(&[]))]
    #[case::an_epoch_that_nobody_issued("1-4", 1, &["1-4", "2-0"], Reading::UnknownEpoch(Epoch(2)))]
    fn what_was_read_is_held_against_the_cursor(
        #[case] booked: &str,
        #[case] issued: u64,
        #[case] ids: &[&str],
        #[case] expected: Reading,
    ) {
        let hash = (booked != "0-0").then(|| event_hash(booked.as_bytes()));
        assert_eq!(follow(at(booked), hash.as_ref(), Epoch(issued), read(ids)), expected);
    }

    #[test]
    fn another_event_at_the_cursor_is_lost_memory_even_under_the_same_number() {
        let hash = event_hash(b"what was booked");
        assert_eq!(follow(at("1-4"), Some(&hash), Epoch(1), read(&["1-4", "1-5"])), Reading::Amnesia);
    }
}
