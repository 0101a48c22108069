//! What limits say of work while the gate is away, and what this instance has let through since.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::amount::Units;
use crate::domain::counter::{Counter, need};
use crate::domain::emergency::{Caps, CounterPlace, EmergencyAsk};
use crate::domain::ids::TenantId;
use crate::domain::on_gate_failure::OnGateFailure;
use crate::domain::reservation::SubjectHash;
use crate::telemetry::labels::Fallback;

use super::Outage;
use super::shares::{Unparked, Used};

/// Work that comes while the gate is away.
#[derive(Clone, Copy)]
pub(in crate::operations) struct Stranded<'a> {
    /// Whose it is.
    pub(in crate::operations) tenant: &'a TenantId,
    /// Its subjects' hashes, in the order in which its counters name them.
    pub(in crate::operations) subjects: &'a [SubjectHash],
    /// Per line, how much.
    pub(in crate::operations) amounts: &'a [Units],
}

/// What was counted of work that was let through, to be put back if it fails.
#[must_use]
#[derive(Debug, Default)]
pub(in crate::operations) struct LetThrough {
    under_caps: Vec<(CounterPlace, i64, i64)>,
    of_shares: Vec<Used>,
}

/// What this instance lets through in emergencies.
#[derive(Default)]
pub(super) struct Fallbacks(Mutex<Caps>);

impl Fallbacks {
    fn lock(&self) -> MutexGuard<'_, Caps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stranded<'_> {
    /// One of its counters, among those of all tenants.
    pub(in crate::operations) fn place(&self, counter: &Counter) -> CounterPlace {
        CounterPlace {
            tenant: (!counter.is_global()).then(|| self.tenant.clone()),
            subject: counter.subject(self.subjects).copied(),
            field: counter.field,
        }
    }
}

impl Outage {
    /// Whether work under these counters may go on without the gate, all of it or nothing: a limit that denies comes
    /// before the caps of emergencies, these before shares, and shares before what is allowed unmeasured. What is let
    /// through is counted under its caps and shares. By an untrusted clock, or one that stood still while the host was
    /// suspended, it would count in a wrong window, and a share would be used after its end.
    ///
    /// Errors: what denied it.
    pub(in crate::operations) fn let_through<'a>(
        &self,
        work: Stranded<'_>,
        counters: impl Iterator<Item = &'a Counter>,
        now_ms: i64,
    ) -> Result<LetThrough, Fallback> {
        if !self.core.gate.knows_time(self.core.wall_clock.now_ms()) {
            return Err(Fallback::Deny);
        }
        let (mut strictest, mut capped, mut shared) = (OnGateFailure::Allow, Vec::new(), Vec::new());
        for counter in counters {
            let policy = counter.without_gate();
            strictest = strictest.min(policy);
            match policy {
                OnGateFailure::Emergency => {
                    capped.push(EmergencyAsk::new(work.place(counter), counter, work.amounts, now_ms));
                }
                OnGateFailure::Local => {
                    shared.push((work.place(counter), counter, need(&counter.lines, work.amounts)));
                }
                OnGateFailure::Deny | OnGateFailure::Allow => {}
            }
        }
        let let_through = match strictest {
            OnGateFailure::Deny => Err(Fallback::Deny),
            _ => self.count(&capped, &shared, now_ms),
        };
        self.core.metrics.fell_back(match (&let_through, strictest) {
            (Err(refused), _) => *refused,
            (Ok(_), OnGateFailure::Emergency) => Fallback::Emergency,
            (Ok(_), OnGateFailure::Local) => Fallback::Local,
            (Ok(_), _) => Fallback::Allow,
        });
        let_through
    }

    /// Counts work under its caps and shares, or says which of them have no room for it.
    fn count(
        &self,
        capped: &[EmergencyAsk],
        shared: &[(CounterPlace, &Counter, i64)],
        now_ms: i64,
    ) -> Result<LetThrough, Fallback> {
        let under_caps = self.fallbacks.take(capped, now_ms).ok_or(Fallback::EmergencyUsedUp)?;
        let mut let_through = LetThrough { under_caps, of_shares: Vec::new() };
        let tenant = shared.first().and_then(|(place, ..)| place.tenant.as_ref());
        let epoch = tenant.and_then(|tenant| self.core.gate.epoch(self.core.gate.partition_of(tenant)));
        // Shares are counted at the gate. Where its memory may be lost, others may get the same units again.
        let epoch = epoch.filter(|_| !self.memory.check.is_in_doubt());
        match self.shares.take(shared, epoch, now_ms) {
            Some(used) => {
                let_through.of_shares = used;
                Ok(let_through)
            }
            None => {
                self.put_back(let_through);
                Err(Fallback::LocalUsedUp)
            }
        }
    }

    /// The call that used this is being parked, until what this returns goes.
    pub(super) fn being_parked(&self, let_through: &LetThrough) -> Unparked<'_> {
        self.shares.being_parked(&let_through.of_shares)
    }

    /// Puts back what was counted of work that came to nothing.
    pub(in crate::operations) fn put_back(&self, let_through: LetThrough) {
        self.shares.put_back(&let_through.of_shares);
        self.fallbacks.put_back(&let_through.under_caps);
    }
}

impl Fallbacks {
    /// Counts what is asked, all of it or nothing: place, units and end of each.
    fn take(&self, asks: &[EmergencyAsk], now_ms: i64) -> Option<Vec<(CounterPlace, i64, i64)>> {
        if asks.is_empty() {
            return Some(Vec::new());
        }
        let mut caps = self.lock();
        if !asks.iter().all(|ask| caps.has_room(ask, now_ms)) {
            return None;
        }
        let admitted = asks.iter().map(|ask| (ask.place.clone(), ask.need, caps.admit(ask, now_ms)));
        Some(admitted.collect())
    }

    fn put_back(&self, admitted: &[(CounterPlace, i64, i64)]) {
        if admitted.is_empty() {
            return;
        }
        let mut caps = self.lock();
        for (place, units, ends_at_ms) in admitted {
            caps.put_back(place, *units, *ends_at_ms);
        }
    }
}
