//! Which tenants may have parked calls that wait, as far as this instance knows, and who may redeliver them now.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::Outage;
use crate::clock::Clock;
use crate::domain::ids::{Epoch, Partition, ReservationId, TenantId};
use crate::ledger::{Ledger, LedgerError};
use crate::operations::error::{Answer, OperationError};

/// How long the ledger's count of waiting calls is used before it is read again; calls parked here meanwhile are added.
const COUNT_FOR: Duration = Duration::from_secs(1);
/// How many calls are being parked at once: more than are parked while a caller waits for its answer.
const BEING_PARKED_MAX: u64 = 1_000;
/// Of the places for parked calls, those that admissions leave to what ends work that is done: one of so many.
const LEFT_TO_RESOLVES: u64 = 4;
/// With so many being parked, the ledger is not asked about calls that are refused anyway.
const BUSY: usize = 250;
/// How long the ledger counts as caught up: the gate forgets nothing so soon that it knew then.
const CAUGHT_UP_FOR: Duration = Duration::from_secs(1);
/// How many callers wait for a partition's redelivery at once; further ones are asked to repeat their call.
const CALLERS_MAX: usize = 100;

/// What this instance knows about parked calls. It may list too many tenants: a look corrects that.
#[derive(Default)]
pub(in crate::operations) struct Parking {
    known: Mutex<PendingTenants>,
    /// How many tenants are listed, so that without any a call takes no lock.
    tenants: AtomicUsize,
    turns: Mutex<HashMap<Partition, Arc<Turn>>>,
    room: Mutex<Room>,
    /// Who has it reads how many calls wait.
    counting: tokio::sync::Mutex<()>,
    /// What of each tenant's waiting calls could not be delivered.
    passed_over: Mutex<HashMap<TenantId, PassedOver>>,
}

/// What could not be delivered to the gate. It has no meaning in another epoch.
#[derive(Default)]
struct PassedOver {
    epoch: Option<Epoch>,
    /// Reservations whose calls cannot be delivered now.
    reservations: HashMap<ReservationId, Tried>,
    /// The tenant's note as of which only those reservations had waiting calls.
    rests_since: Option<u64>,
    /// When the first of them can be delivered, as far as that is known (gate time, unix ms).
    due_ms: Option<i64>,
}

/// When the calls of a reservation were last tried, and from when on they can be delivered, if that is known (gate
/// time, unix ms).
struct Tried {
    at: Instant,
    due_ms: Option<i64>,
}

impl Tried {
    fn is_due(&self, now_ms: i64) -> bool {
        self.due_ms.is_some_and(|due_ms| due_ms <= now_ms)
    }
}

impl PassedOver {
    fn in_epoch(&mut self, epoch: Option<Epoch>) -> &mut Self {
        if self.epoch != epoch {
            *self = Self { epoch, ..Self::default() };
        }
        self
    }
}

/// Whose turn it is to redeliver calls of a partition.
pub(in crate::operations) struct Turn {
    /// Who has it redelivers.
    pub(in crate::operations) taken: tokio::sync::Mutex<()>,
    callers: Semaphore,
    /// The epoch in which the ledger has caught up with the gate, and when.
    caught_up: Mutex<Option<(Epoch, Instant)>>,
}

impl Default for Turn {
    fn default() -> Self {
        let callers = Semaphore::new(CALLERS_MAX);
        Self { taken: tokio::sync::Mutex::default(), callers, caught_up: Mutex::default() }
    }
}

impl Turn {
    /// A place among the callers that wait; none where so many wait that another would not be answered in time.
    pub(in crate::operations) fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.callers.try_acquire().ok()
    }

    /// Whether the ledger has caught up with the gate in this epoch, just before.
    pub(super) fn has_caught_up(&self, epoch: Option<Epoch>) -> bool {
        let caught_up = *lock(&self.caught_up);
        caught_up.is_some_and(|(of, at)| Some(of) == epoch && at.elapsed() < CAUGHT_UP_FOR)
    }

    /// Notes that the ledger has caught up with the gate in this epoch.
    pub(super) fn note_caught_up(&self, epoch: Option<Epoch>) {
        *lock(&self.caught_up) = epoch.map(|epoch| (epoch, Clock::monotonic()));
    }
}

#[derive(Default)]
struct PendingTenants {
    /// By tenant, when it was last noted.
    partitions: HashMap<Partition, HashMap<TenantId, u64>>,
    notes: u64,
}

#[derive(Default)]
struct Room {
    counted_at: Option<Instant>,
    waiting: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Parking {
    /// Notes that the tenant may have calls that wait.
    pub(in crate::operations) fn note(&self, partition: Partition, tenant: &TenantId) {
        let mut known = lock(&self.known);
        known.notes += 1;
        let note = known.notes;
        if known.partitions.entry(partition).or_default().insert(tenant.clone(), note).is_none() {
            self.tenants.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// When the tenant was last noted; none when it has no calls that wait.
    pub(in crate::operations) fn noted(&self, partition: Partition, tenant: &TenantId) -> Option<u64> {
        if self.tenants.load(Ordering::Acquire) == 0 {
            return None;
        }
        lock(&self.known).partitions.get(&partition)?.get(tenant).copied()
    }

    /// Whether a tenant of the partition may have calls that wait.
    pub(in crate::operations) fn touches(&self, partition: Partition) -> bool {
        self.tenants.load(Ordering::Acquire) > 0 && lock(&self.known).partitions.contains_key(&partition)
    }

    /// Forgets a tenant: nothing noted up to `note` waits any more.
    pub(super) fn forget(&self, partition: Partition, tenant: &TenantId, note: u64) {
        let mut known = lock(&self.known);
        let Some(tenants) = known.partitions.get_mut(&partition) else { return };
        if tenants.get(tenant) == Some(&note) {
            tenants.remove(tenant);
            self.tenants.fetch_sub(1, Ordering::AcqRel);
            if tenants.is_empty() {
                known.partitions.remove(&partition);
            }
            lock(&self.passed_over).remove(tenant);
        }
    }

    /// Notes that the calls of a reservation cannot be delivered to the gate now, in this epoch; they can from `due_ms`
    /// on, if that is known.
    pub(in crate::operations) fn pass_over(
        &self,
        tenant: &TenantId,
        epoch: Option<Epoch>,
        id: ReservationId,
        due_ms: Option<i64>,
    ) {
        let mut tenants = lock(&self.passed_over);
        let passed_over = tenants.entry(tenant.clone()).or_default().in_epoch(epoch);
        passed_over.reservations.insert(id, Tried { at: Clock::monotonic(), due_ms });
    }

    /// The reservations of a tenant that could not be delivered, tried within this time, in this epoch, and are not due
    /// at `now_ms`.
    pub(in crate::operations) fn passed_over(
        &self,
        tenant: &TenantId,
        epoch: Option<Epoch>,
        within: Duration,
        now_ms: i64,
    ) -> Vec<ReservationId> {
        let tenants = lock(&self.passed_over);
        let Some(passed_over) = tenants.get(tenant).filter(|passed_over| passed_over.epoch == epoch) else {
            return Vec::new();
        };
        // What has a time of its own is not tried before it.
        let lately =
            |tried: &Tried| !tried.is_due(now_ms) && (tried.due_ms.is_some() || tried.at.elapsed() < within);
        let passed_over = passed_over.reservations.iter().filter(|(_, tried)| lately(tried));
        passed_over.map(|(id, _)| *id).collect()
    }

    /// Notes that of what was noted of a tenant up to `note`, only the undeliverable calls of this epoch waited at
    /// `now_ms`.
    pub(in crate::operations) fn rest(
        &self,
        tenant: &TenantId,
        epoch: Option<Epoch>,
        note: u64,
        now_ms: i64,
    ) {
        let mut tenants = lock(&self.passed_over);
        let passed_over = tenants.entry(tenant.clone()).or_default().in_epoch(epoch);
        // The gate has got those that were due.
        passed_over.reservations.retain(|_, tried| !tried.is_due(now_ms));
        passed_over.due_ms = passed_over.reservations.values().filter_map(|tried| tried.due_ms).min();
        passed_over.rests_since = Some(note);
    }

    /// Whether of what was noted of a tenant up to `note`, only the undeliverable calls of this epoch wait at `now_ms`.
    pub(in crate::operations) fn rests(
        &self,
        tenant: &TenantId,
        epoch: Option<Epoch>,
        note: u64,
        now_ms: i64,
    ) -> bool {
        let tenants = lock(&self.passed_over);
        tenants.get(tenant).is_some_and(|passed_over| {
            passed_over.epoch == epoch
                && passed_over.rests_since == Some(note)
                && passed_over.due_ms.is_none_or(|due_ms| now_ms < due_ms)
        })
    }

    /// Every tenant that may have calls that wait.
    pub(in crate::operations) fn all(&self) -> Vec<(Partition, TenantId)> {
        let known = lock(&self.known);
        let of = |(partition, tenants): (&Partition, &HashMap<TenantId, u64>)| {
            tenants.keys().map(|tenant| (*partition, tenant.clone())).collect::<Vec<_>>()
        };
        known.partitions.iter().flat_map(of).collect()
    }

    /// The turn in which this instance redelivers calls of the partition.
    pub(in crate::operations) fn turn(&self, partition: Partition) -> Arc<Turn> {
        lock(&self.turns).entry(partition).or_default().clone()
    }

    fn count_is_old(&self) -> bool {
        lock(&self.room).counted_at.is_none_or(|counted_at| counted_at.elapsed() >= COUNT_FOR)
    }

    /// Takes a place for one more call.
    fn take_place(&self, most: u64) -> Answer<()> {
        let mut room = lock(&self.room);
        if room.waiting >= most {
            return Err(OperationError::Overloaded);
        }
        room.waiting += 1;
        Ok(())
    }

    fn counted(&self, waiting: u64) {
        *lock(&self.room) = Room { counted_at: Some(Clock::monotonic()), waiting };
    }
}

/// What a parked call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parks {
    /// It admits work. That leaves some places free, so that what is done already can still be consumed.
    Admission,
    /// It consumes or releases.
    Resolve,
}

impl Parks {
    fn places_of(self, most: u64) -> u64 {
        if self == Self::Admission { most - most / LEFT_TO_RESOLVES } else { most }
    }
}

impl Outage {
    /// Takes a place for one more parked call.
    ///
    /// Errors: `Overloaded` when the most that may wait do so, or so many are being parked that another would not be
    /// answered in time.
    pub(super) async fn room_to_park(&self, parks: Parks) -> Answer<()> {
        if as_count(self.core.ledger.calls_to_park()) >= parks.places_of(BEING_PARKED_MAX) {
            return Err(OperationError::Overloaded);
        }
        // One caller reads the count; the others go by the last one meanwhile.
        if self.parking.count_is_old()
            && let Ok(_counting) = self.parking.counting.try_lock()
        {
            let counts = self.core.ledger.count_parked().await.map_err(both_away)?;
            self.parking.counted(counts.waiting);
        }
        self.parking.take_place(parks.places_of(self.parked_calls_max))
    }
}

fn as_count(calls: usize) -> u64 {
    u64::try_from(calls).unwrap_or(u64::MAX)
}

/// Whether so many calls are being parked that those which can be repeated should be.
pub(super) fn is_busy(ledger: &Ledger) -> bool {
    ledger.calls_to_park() >= BUSY
}

/// The error when the gate is away and the ledger cannot store the call either.
pub(super) fn both_away(error: LedgerError) -> OperationError {
    if error.is_transient() {
        OperationError::GateUnavailable(format!("it is away, and the ledger cannot keep the call: {error}"))
    } else {
        error.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_callers_wait_for_a_redelivery_and_no_more() {
        let turn = Turn::default();
        let waiting: Vec<_> = (0..CALLERS_MAX).map(|_| turn.place().unwrap()).collect();
        assert!(turn.place().is_none());
        drop(waiting);
        assert!(turn.place().is_some());
    }

    #[test]
    fn admissions_leave_a_quarter_of_the_places_to_what_ends_work() {
        let (parking, admissions) = (Parking::default(), Parks::Admission.places_of(8));
        for _ in 0..6 {
            parking.take_place(admissions).unwrap();
        }
        assert!(matches!(parking.take_place(admissions), Err(OperationError::Overloaded)));
        for _ in 0..2 {
            parking.take_place(Parks::Resolve.places_of(8)).unwrap();
        }
        assert!(parking.take_place(Parks::Resolve.places_of(8)).is_err());
        assert_eq!(Parks::Admission.places_of(1), 1);
    }

    #[test]
    fn what_was_noted_while_looking_is_not_forgotten() {
        let parking = Parking::default();
        let tenant = TenantId::parse("acme").unwrap();
        let partition = Partition::of(&tenant, 4);
        assert!(!parking.touches(partition));
        parking.note(partition, &tenant);
        let looked_at = parking.noted(partition, &tenant).unwrap();
        parking.note(partition, &tenant);
        parking.forget(partition, &tenant, looked_at);
        assert!(parking.touches(partition));
        parking.forget(partition, &tenant, parking.noted(partition, &tenant).unwrap());
        assert_eq!((parking.touches(partition), parking.all()), (false, Vec::new()));
    }

    #[test]
    fn what_is_passed_over_rests_until_another_call_is_noted_or_an_epoch_begins() {
        let parking = Parking::default();
        let tenant = TenantId::parse("acme").unwrap();
        let (partition, id) = (Partition::of(&tenant, 4), ReservationId::from_bytes([7; 16]));
        let [first, second] = [Some(Epoch(1)), Some(Epoch(2))];
        parking.note(partition, &tenant);
        let note = parking.noted(partition, &tenant).unwrap();
        parking.pass_over(&tenant, first, id, None);
        parking.rest(&tenant, first, note, 0);
        assert!(parking.rests(&tenant, first, note, i64::MAX) && !parking.rests(&tenant, second, note, 0));
        assert_eq!(parking.passed_over(&tenant, first, Duration::MAX, i64::MAX), [id]);
        assert!(parking.passed_over(&tenant, first, Duration::ZERO, 0).is_empty());
        assert!(parking.passed_over(&tenant, second, Duration::MAX, 0).is_empty());
        parking.note(partition, &tenant);
        let next = parking.noted(partition, &tenant).unwrap();
        assert!(!parking.rests(&tenant, first, next, 0));
        parking.forget(partition, &tenant, next);
        assert!(parking.passed_over(&tenant, first, Duration::MAX, 0).is_empty());
        assert!(lock(&parking.passed_over).is_empty(), "nothing is kept of a tenant of which nothing waits");
    }

    #[test]
    fn what_is_passed_over_until_an_instant_rests_until_then() {
        let parking = Parking::default();
        let tenant = TenantId::parse("acme").unwrap();
        let (partition, epoch) = (Partition::of(&tenant, 4), Some(Epoch(1)));
        let [first, second, torn] = [1, 2, 3].map(|number| ReservationId::from_bytes([number; 16]));
        parking.note(partition, &tenant);
        let note = parking.noted(partition, &tenant).unwrap();
        for (id, due_ms) in [(first, Some(100)), (second, Some(200)), (torn, None)] {
            parking.pass_over(&tenant, epoch, id, due_ms);
        }
        let passed_over = |now_ms| {
            let mut ids = parking.passed_over(&tenant, epoch, Duration::MAX, now_ms);
            ids.sort_unstable();
            ids
        };
        parking.rest(&tenant, epoch, note, 0);
        let tried_before = parking.passed_over(&tenant, epoch, Duration::ZERO, 99).len();
        assert_eq!(tried_before, 2, "what has a time of its own is not tried before it");
        assert_eq!(
            (parking.rests(&tenant, epoch, note, 99), passed_over(99)),
            (true, vec![first, second, torn])
        );
        assert_eq!((parking.rests(&tenant, epoch, note, 100), passed_over(100)), (false, vec![second, torn]));
        parking.rest(&tenant, epoch, note, 99);
        assert!(!parking.rests(&tenant, epoch, note, 100), "it came due after the look");
        parking.rest(&tenant, epoch, note, 100);
        assert!(parking.rests(&tenant, epoch, note, 199) && !parking.rests(&tenant, epoch, note, 200));
        parking.rest(&tenant, epoch, note, 200);
        assert_eq!((parking.rests(&tenant, epoch, note, i64::MAX), passed_over(0)), (true, vec![torn]));
    }
}
