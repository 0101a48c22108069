//! Completes answers from a tombstone, the gate's short record of a resolved reservation: the ledger's row has the rest
//! of it, and the gate the current counters.

use std::time::Duration;

use super::Calls;
use crate::domain::counter::Counter;
use crate::domain::ids::{ReservationId, Subject};
use crate::domain::policy::Resolved;
use crate::domain::reservation::{BodyDetails, CounterRef, Record};
use crate::gate::CounterReading;
use crate::ledger::ReservationRow;
use crate::operations::answers::Reservation;
use crate::operations::limit_status::{LimitStatus, limit_statuses};
use crate::operations::policy_store::TenantEntry;

/// How long a call waits for the ledger only to complete its answer.
const ROW_WITHIN: Duration = Duration::from_millis(200);

impl Calls {
    /// Completes a tombstone and adds the limits that it moved, as they are now. Where the ledger is not in time, the
    /// answer goes out without.
    pub(super) async fn recalled(&self, id: ReservationId, record: Record) -> Reservation {
        let Some(row) = self.row_in_time(id, &record).await else { return Reservation::new(id, record) };
        let resolved_at_ms = row.resolved_at_ms.filter(|_| row.step == record.head.step);
        let whole = Record { body: row.record.body, ..record };
        let limits = self.limits_of_now(&whole).await.unwrap_or_default();
        Reservation { limits, resolved_at_ms, ..Reservation::new(id, whole) }
    }

    /// The ledger's row of the reservation, if it answers in time.
    pub(super) async fn row_in_time(&self, id: ReservationId, record: &Record) -> Option<ReservationRow> {
        let row = tokio::time::timeout(ROW_WITHIN, self.core.ledger.reservation(id)).await.ok()?.ok()?;
        row.filter(|row| {
            row.tenant == record.body.tenant && row.record.head.born_at_ms == record.head.born_at_ms
        })
    }

    async fn limits_of_now(&self, record: &Record) -> Option<Vec<LimitStatus>> {
        let rest = record.body.rest.as_ref()?;
        let entry = self.core.policy.tenant(&record.body.tenant).await.ok()?;
        let now_ms = self.core.gate_now_ms();
        let mut resolved = moved_by(&entry, record, rest, now_ms)?.under(self.core.load.level());
        resolved.counters.retain(|counter| rest.counters.iter().any(|place| counter.is_at(place)));
        let peeked = self.memory.peek(&entry, &resolved, &rest.subjects).await.ok()?;
        Some(limit_statuses(resolved, &subjects_of(rest), &peeked.readings, now_ms))
    }

    /// The limits that a reservation moved, under the current policy; windows that have ended are left out.
    pub(super) async fn moved_limits(
        &self,
        record: &Record,
        readings: &[(CounterRef, CounterReading)],
        now_ms: i64,
    ) -> Vec<LimitStatus> {
        let (Some(rest), Ok(entry)) = (&record.body.rest, self.core.policy.tenant(&record.body.tenant).await)
        else {
            return Vec::new();
        };
        let Some(resolved) = moved_by(&entry, record, rest, now_ms) else { return Vec::new() };
        let mut resolved = resolved.under(self.core.load.level());
        let reading = |counter: &Counter| {
            let found = readings.iter().find(|(place, reading)| {
                (place.scope_index, place.field) == (counter.scope_index, counter.field)
                    && reading.current
                    && !counter.is_over(reading.resets_at_ms, now_ms)
            });
            found.map(|(_, reading)| *reading)
        };
        let all: Vec<_> = resolved.counters.iter().filter_map(reading).collect();
        resolved.counters.retain(|counter| reading(counter).is_some());
        limit_statuses(resolved, &subjects_of(rest), &all, now_ms)
    }
}

/// The counters of the reservation's lines under the current policy.
fn moved_by(entry: &TenantEntry, record: &Record, rest: &BodyDetails, now_ms: i64) -> Option<Resolved> {
    let meters = record.body.lines.iter().map(|line| &line.meter);
    let windows = entry.windows(now_ms);
    entry.policy.resolve(meters, &subjects_of(rest), rest.operation.as_ref(), now_ms, &windows).ok()
}

fn subjects_of(rest: &BodyDetails) -> Vec<Subject> {
    rest.subjects.iter().map(|(subject, _)| subject.clone()).collect()
}
