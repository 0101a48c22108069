//! Reservations whose period has ended: which periods may be closed by the time of their events, what of their holds
//! returns, and which quotas the gate needs a new capacity of.

use std::collections::{BTreeSet, HashMap};

use diesel_async::AsyncPgConnection;

use super::batch::{Arrival, LedgerState, OutboxMessage, Plan};
use crate::domain::booking::CarriedReturn;
use crate::domain::entry::Posting;
use crate::domain::event::Event;
use crate::domain::ids::{MeterId, Partition, ReservationId, TenantId};
use crate::domain::reservation::Record;
use crate::ledger::carried_holds::{ReturnNote, changed_capacities};
use crate::ledger::{Ledger, LedgerError, capacities, jobs, notices, open_periods};

/// Adds which periods are closed, where an event came after the end of its reservation's period. Seldom asks the
/// ledger.
pub(super) async fn read_open_periods(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    arrivals: &[Arrival],
    known: LedgerState,
) -> Result<LedgerState, LedgerError> {
    let ended = ended_periods(arrivals, &known.records);
    add_open_periods(ledger, connection, ended, known).await
}

/// Adds which periods of all these arrivals are closed: they are booked later than the gate's time says, so that their
/// periods may have been closed or billed meanwhile.
pub(super) async fn read_all_open_periods(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    arrivals: &[Arrival],
    known: LedgerState,
) -> Result<LedgerState, LedgerError> {
    let all = arrivals.iter().filter_map(Arrival::begun).chain(known.records.values());
    let all = all.flat_map(periods_of).collect();
    add_open_periods(ledger, connection, all, known).await
}

async fn add_open_periods(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    ended: BTreeSet<(TenantId, MeterId, i64)>,
    known: LedgerState,
) -> Result<LedgerState, LedgerError> {
    if ended.is_empty() {
        return Ok(known);
    }
    let open = open_periods::read(connection, &ended, Some(ledger.close_grace_ms())).await?;
    Ok(LedgerState { open, ..known })
}

/// The periods of the batch's reservations that had ended by their events' gate times, by tenant, meter and start.
fn ended_periods(
    arrivals: &[Arrival],
    records: &HashMap<ReservationId, Record>,
) -> BTreeSet<(TenantId, MeterId, i64)> {
    let all = arrivals.iter().filter_map(Arrival::begun).chain(records.values());
    let first_end_ms = all.filter_map(|record| record.body.rest.as_ref()).map(|rest| rest.period_ms.1).min();
    if first_end_ms.is_none_or(|end_ms| latest_ms(arrivals) < end_ms) {
        return BTreeSet::new();
    }
    let mut begun: HashMap<ReservationId, Vec<&Record>> = HashMap::new();
    for arrival in arrivals {
        if let (Some(id), Some(record)) = (arrival.reservation(), arrival.begun()) {
            begun.entry(id).or_default().push(record);
        }
    }
    let mut ended = BTreeSet::new();
    for arrival in arrivals {
        let Ok(OutboxMessage::Event(event)) = &arrival.event else { continue };
        let lives = begun.get(&event.reservation).into_iter().flatten().copied();
        for record in lives.chain(records.get(&event.reservation)) {
            let has_ended = |end_ms: i64| event.gate_time_ms >= end_ms;
            if record.body.rest.as_ref().is_some_and(|rest| has_ended(rest.period_ms.1)) {
                ended.extend(periods_of(record));
            }
        }
    }
    ended
}

/// The periods of a reservation's lines, by tenant, meter and start.
fn periods_of(record: &Record) -> impl Iterator<Item = (TenantId, MeterId, i64)> {
    let start_ms = record.body.rest.as_ref().map(|rest| rest.period_ms.0);
    let lines = record.body.booked_lines();
    lines.filter_map(move |(_, line)| Some((record.body.tenant.clone(), line.meter.clone(), start_ms?)))
}

/// The latest gate time of these events (unix ms).
fn latest_ms(arrivals: &[Arrival]) -> i64 {
    let times = arrivals.iter().filter_map(|arrival| match &arrival.event {
        Ok(OutboxMessage::Event(event)) => Some(event.gate_time_ms),
        _ => None,
    });
    times.max().unwrap_or(i64::MIN)
}

/// What the job that closes periods has to book of an event.
pub(super) fn return_note(
    partition: Partition,
    event: &Event,
    posting: &Posting,
    part: CarriedReturn,
) -> ReturnNote {
    ReturnNote {
        partition,
        place: event.outbox_id,
        line: part.line,
        tenant: posting.tenant.clone(),
        meter: part.meter,
        period: part.period,
        amount: part.amount,
        reservation: event.reservation,
        step: posting.step,
        happened_at_ms: posting.happened_at_ms,
        operation: posting.operation.clone(),
        hour_start_ms: posting.hour_start_ms,
        subjects: posting.subjects.clone(),
    }
}

/// Raises the versions of capacities that the plan changes beside what the gate counted, and has them sent to it.
/// Comes before the plan is written: every transaction that changes a capacity locks the tenant first.
pub(super) async fn raise_capacities(
    connection: &mut AsyncPgConnection,
    plan: &Plan,
) -> Result<(), LedgerError> {
    let postings = || plan.postings.values().flatten();
    let quotas: BTreeSet<_> = postings().flat_map(changed_capacities).collect();
    let movements = postings().flat_map(|posting| &posting.lines).flat_map(|line| &line.movements);
    let changed = movements.filter(|movement| movement.changes_capacity());
    let Some(from_ms) = changed.map(|movement| movement.period().start_ms).min() else { return Ok(()) };
    capacities::lock_tenants(connection, quotas.iter().map(|(tenant, _)| *tenant)).await?;
    let quotas: Vec<_> = quotas.into_iter().collect();
    capacities::raise_all_versions(connection, &quotas, from_ms).await?;
    jobs::ring(connection, jobs::GRANTS).await?;
    notices::tell(connection, "job", jobs::GRANTS, 0).await
}
