//! Which tenants may have parked calls that wait, as far as this instance knows, and who may redeliver them now.

use std::collections::{BTreeSet, HashMap};
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
const BEING_PARKED_MAX: usize = 1_000;
/// With so many being parked, the ledger is not asked about calls that are refused anyway.
const BUSY: usize = 250;
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
    /// How far the delivery of each tenant's waiting calls is.
    delivered: Mutex<HashMap<TenantId, Delivered>>,
}

/// What was delivered to the gate and what could not be. Neither has a meaning in another epoch.
#[derive(Default)]
struct Delivered {
    epoch: Option<Epoch>,
    /// The calls that the gate has.
    numbers: BTreeSet<i64>,
    /// Reservations whose calls cannot be delivered now, and when that was last tried.
    passed_over: HashMap<ReservationId, Instant>,
    /// The tenant's note as of which only those reservations had waiting calls.
    rests_since: Option<u64>,
}

impl Delivered {
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
}

impl Default for Turn {
    fn default() -> Self {
        Self { taken: tokio::sync::Mutex::default(), callers: Semaphore::new(CALLERS_MAX) }
    }
}

impl Turn {
    /// A place among the callers that wait; none where so many wait that another would not be answered in time.
    pub(in crate::operations) fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.callers.try_acquire().ok()
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
            let mut all = lock(&self.delivered);
            if let Some(delivered) = all.get_mut(tenant) {
                delivered.passed_over.clear();
                if delivered.numbers.is_empty() {
                    all.remove(tenant);
                }
            }
        }
    }

    /// Notes that the calls of a reservation cannot be delivered to the gate now, in this epoch.
    pub(in crate::operations) fn pass_over(
        &self,
        tenant: &TenantId,
        epoch: Option<Epoch>,
        id: ReservationId,
    ) {
        let mut delivered = lock(&self.delivered);
        let delivered = delivered.entry(tenant.clone()).or_default().in_epoch(epoch);
        delivered.passed_over.insert(id, Clock::monotonic());
    }

    /// The reservations of a tenant that could not be delivered, tried within this time, in this epoch.
    pub(in crate::operations) fn passed_over(
        &self,
        tenant: &TenantId,
        epoch: Option<Epoch>,
        within: Duration,
    ) -> Vec<ReservationId> {
        let delivered = lock(&self.delivered);
        let Some(delivered) = delivered.get(tenant).filter(|delivered| delivered.epoch == epoch) else {
            return Vec::new();
        };
        let passed_over = delivered.passed_over.iter().filter(|(_, at)| at.elapsed() < within);
        passed_over.map(|(id, _)| *id).collect()
    }

    /// Notes that of what was noted of a tenant up to `note`, only the undeliverable calls of this epoch wait.
    pub(in crate::operations) fn rest(&self, tenant: &TenantId, epoch: Option<Epoch>, note: u64) {
        let mut delivered = lock(&self.delivered);
        delivered.entry(tenant.clone()).or_default().in_epoch(epoch).rests_since = Some(note);
    }

    /// Whether of what was noted of a tenant up to `note`, only the undeliverable calls of this epoch wait.
    pub(in crate::operations) fn rests(&self, tenant: &TenantId, epoch: Option<Epoch>, note: u64) -> bool {
        let delivered = lock(&self.delivered);
        delivered
            .get(tenant)
            .is_some_and(|delivered| delivered.epoch == epoch && delivered.rests_since == Some(note))
    }

    /// Notes calls of a tenant that the gate has in this epoch, until they are settled.
    pub(super) fn note_delivered(&self, tenant: &TenantId, epoch: Option<Epoch>, numbers: Vec<i64>) {
        let mut delivered = lock(&self.delivered);
        delivered.entry(tenant.clone()).or_default().in_epoch(epoch).numbers.extend(numbers);
    }

    /// The calls of a tenant that the gate has in this epoch and that are not settled.
    pub(in crate::operations) fn delivered(&self, tenant: &TenantId, epoch: Option<Epoch>) -> Vec<i64> {
        let delivered = lock(&self.delivered);
        let delivered = delivered.get(tenant).filter(|delivered| delivered.epoch == epoch);
        delivered.map(|delivered| delivered.numbers.iter().copied().collect()).unwrap_or_default()
    }

    /// Forgets these calls: they are settled.
    pub(in crate::operations) fn settled(&self, tenant: &TenantId, numbers: &[i64]) {
        let mut tenants = lock(&self.delivered);
        let Some(delivered) = tenants.get_mut(tenant) else { return };
        for number in numbers {
            delivered.numbers.remove(number);
        }
        if delivered.numbers.is_empty() && delivered.passed_over.is_empty() {
            tenants.remove(tenant);
        }
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

impl Outage {
    /// Takes a place for one more parked call.
    ///
    /// Errors: `Overloaded` when the most that may wait do so, or so many are being parked that another would not be
    /// answered in time.
    pub(super) async fn room_to_park(&self) -> Answer<()> {
        if self.core.ledger.calls_to_park() >= BEING_PARKED_MAX {
            return Err(OperationError::Overloaded);
        }
        // One caller reads the count; the others go by the last one meanwhile.
        if self.parking.count_is_old()
            && let Ok(_counting) = self.parking.counting.try_lock()
        {
            let counts = self.core.ledger.count_parked().await.map_err(both_away)?;
            self.parking.counted(counts.waiting);
        }
        self.parking.take_place(self.parked_calls_max)
    }
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
        parking.pass_over(&tenant, first, id);
        parking.rest(&tenant, first, note);
        assert!(parking.rests(&tenant, first, note) && !parking.rests(&tenant, second, note));
        assert_eq!(parking.passed_over(&tenant, first, Duration::MAX), [id]);
        assert!(parking.passed_over(&tenant, first, Duration::ZERO).is_empty());
        assert!(parking.passed_over(&tenant, second, Duration::MAX).is_empty());
        parking.note(partition, &tenant);
        let next = parking.noted(partition, &tenant).unwrap();
        assert!(!parking.rests(&tenant, first, next));
        parking.forget(partition, &tenant, next);
        assert!(parking.passed_over(&tenant, first, Duration::MAX).is_empty());
        assert!(lock(&parking.delivered).is_empty(), "nothing is kept of a tenant of which nothing waits");
    }

    #[test]
    fn what_the_gate_was_told_counts_in_that_epoch_until_it_is_settled() {
        let parking = Parking::default();
        let tenant = TenantId::parse("acme").unwrap();
        let [first, second] = [Some(Epoch(1)), Some(Epoch(2))];
        parking.note_delivered(&tenant, first, vec![3, 1]);
        parking.note_delivered(&tenant, first, vec![2]);
        assert_eq!(parking.delivered(&tenant, first), [1, 2, 3]);
        assert!(parking.delivered(&tenant, second).is_empty());
        parking.settled(&tenant, &[1, 3]);
        assert_eq!(parking.delivered(&tenant, first), [2]);
        parking.note_delivered(&tenant, second, vec![7]);
        assert!(parking.delivered(&tenant, first).is_empty());
        parking.settled(&tenant, &[7]);
        assert!(parking.delivered(&tenant, second).is_empty());
    }
}
