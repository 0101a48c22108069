//! This instance's shares of counters: taken while the gate answers, used up while it does not.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;

use super::{Outage, Stranded};
use crate::clock::Clock;
use crate::domain::counter::Counter;
use crate::domain::emergency::CounterPlace;
use crate::domain::ids::{Epoch, TenantId};
use crate::domain::share::{Share, ShareTotals};
use crate::gate::{GateError, LeaseCall, LeaseOutcome};
use crate::telemetry::labels::Script;

/// The most counters of which this instance has shares. Of one more it gets none.
const SHARES_MAX: usize = 1_000;
/// How often shares are renewed.
pub const SHARE_BEAT: Duration = Duration::from_secs(2);
/// A share of a counter that nothing has come under for so long goes back.
const IDLE: Duration = Duration::from_secs(30);
/// How old the definition of a counter may be with which its share is renewed.
const SEEN_WITHIN: Duration = Duration::from_millis(500);
const AT_ONCE: usize = 8;

/// Shares, by counter.
#[derive(Default)]
pub(super) struct Shares(Mutex<HashMap<CounterPlace, Held>>);

struct Held {
    share: Share,
    counter: Counter,
    is_light: bool,
    /// When work came under the counter last.
    seen_at: Instant,
    /// Whether work was refused that shares stood in the way of.
    is_in_the_way: bool,
    /// Held while it is renewed.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// So much of a share was used, in the window of this mark.
pub(super) type Used = (CounterPlace, i64, i64);

impl Held {
    fn left(&self, counter: &Counter, epoch: Option<Epoch>, now_ms: i64) -> i64 {
        self.share.left(epoch, counter.window().map(|window| window.start_ms), now_ms)
    }

    /// What is reported of it at `now_ms`.
    fn totals(&mut self, settles: bool, stops: bool, now_ms: i64) -> ShareTotals {
        if stops || self.seen_at.elapsed() >= IDLE {
            self.share.give_up();
        }
        self.share.totals(settles, now_ms)
    }

    /// Whether parked calls, once they are redelivered, are counted in the counter anyway.
    fn is_counted_later(&self) -> bool {
        !self.is_light && self.counter.parameters.holds_survive()
    }
}

impl Shares {
    fn lock(&self) -> MutexGuard<'_, HashMap<CounterPlace, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses all of these shares, or none; `epoch` is the gate's.
    pub(super) fn take(
        &self,
        asks: &[(CounterPlace, &Counter, i64)],
        epoch: Option<Epoch>,
        now_ms: i64,
    ) -> Option<Vec<Used>> {
        if asks.is_empty() {
            return Some(Vec::new());
        }
        let mut shares = self.lock();
        let has_room = |(place, counter, need): &(CounterPlace, &Counter, i64)| {
            shares.get(place).is_some_and(|held| *need <= held.left(counter, epoch, now_ms))
        };
        if !asks.iter().all(has_room) {
            return None;
        }
        let mut used = Vec::with_capacity(asks.len());
        for (place, _, need) in asks {
            if let Some(held) = shares.get_mut(place) {
                used.push((place.clone(), *need, held.share.take(*need)));
            }
        }
        Some(used)
    }

    /// Puts back what came to nothing.
    pub(super) fn put_back(&self, used: &[Used]) {
        if used.is_empty() {
            return;
        }
        let mut shares = self.lock();
        for (place, units, mark_ms) in used {
            if let Some(held) = shares.get_mut(place) {
                held.share.put_back(*units, *mark_ms);
            }
        }
    }
}

/// Whether a refusal by these counters may be due to shares.
pub(in crate::operations) fn shares_refuse(counters: &[Counter], refusing: &[(usize, Option<i64>)]) -> bool {
    let mut refusing = refusing.iter().filter_map(|(number, _)| counters.get(*number));
    refusing.any(Counter::is_shared)
}

impl Outage {
    /// Notes the counters of work of which this instance wants shares.
    pub(in crate::operations) fn want_shares(
        &self,
        work: Stranded<'_>,
        counters: &[Counter],
        is_light: bool,
    ) {
        for counter in counters.iter().filter(|counter| counter.is_shared()) {
            let place = work.place(counter);
            let (now, mut shares) = (Clock::monotonic(), self.shares.lock());
            let has_room = shares.len() < SHARES_MAX;
            match shares.entry(place) {
                Entry::Occupied(mut held) => {
                    let held = held.get_mut();
                    if now.saturating_duration_since(held.seen_at) >= SEEN_WITHIN {
                        held.seen_at = now;
                        held.counter = counter.clone();
                    }
                }
                Entry::Vacant(free) if has_room => {
                    free.insert(Held {
                        share: Share::default(),
                        counter: counter.clone(),
                        is_light,
                        seen_at: now,
                        is_in_the_way: false,
                        turn: Arc::default(),
                    });
                }
                Entry::Vacant(_) => {}
            }
        }
    }

    /// Gives back shares that stand in the way of refused work, and has other instances do so too. Returns whether
    /// there were any, so that the work may fit now. `refusing` are the numbers of the counters that refuse it.
    pub(in crate::operations) async fn recall_shares(
        &self,
        work: Stranded<'_>,
        counters: &[Counter],
        refusing: &[(usize, Option<i64>)],
    ) -> bool {
        let mut recalled = Vec::new();
        for counter in refusing.iter().filter_map(|(number, _)| counters.get(*number)) {
            let place = work.place(counter);
            if let Some(held) = self.shares.lock().get_mut(&place) {
                held.is_in_the_way = true;
                if held.share.give_up() {
                    recalled.push(place);
                }
            }
        }
        for place in &recalled {
            self.renew_share(place, false).await;
        }
        !recalled.is_empty()
    }

    /// Renews this instance's shares, takes those that are new, and gives back those that nobody needs.
    pub async fn renew_shares(&self) {
        self.renew_each(false).await;
    }

    /// Gives all shares back: this instance stops.
    pub async fn give_shares_back(&self) {
        self.renew_each(true).await;
    }

    async fn renew_each(&self, stops: bool) {
        let places: Vec<_> = self.shares.lock().keys().cloned().collect();
        let places = futures::stream::iter(&places);
        places.for_each_concurrent(AT_ONCE, |place| self.renew_share(place, stops)).await;
    }

    async fn renew_share(&self, place: &CounterPlace, stops: bool) {
        let Some(turn) = self.shares.lock().get(place).map(|held| held.turn.clone()) else { return };
        // One after the other, and each no longer than it may run: so no earlier one takes back what a later one gave.
        let _turn = turn.lock().await;
        match self.lease(place, stops).await {
            Ok(true) => {
                let _ = self.lease(place, stops).await;
            }
            Ok(false) => {}
            Err(error) => tracing::debug!(tenant = ?place.tenant, %error, "a share could not be renewed"),
        }
    }

    /// Renews a share once. Returns whether the gate is to hear of it again: the instance counts on less of it than the
    /// gate holds, or it goes and the gate need not remember what is settled.
    async fn lease(&self, place: &CounterPlace, stops: bool) -> Result<bool, GateError> {
        let now_ms = self.core.gate_now_ms();
        let asked = match (&place.tenant, self.shares.lock().get_mut(place)) {
            (Some(tenant), Some(held)) => Asked {
                tenant: tenant.clone(),
                counter: held.counter.clone(),
                is_light: held.is_light,
                wants: !stops && !held.is_in_the_way && held.seen_at.elapsed() < IDLE,
                recalls: std::mem::take(&mut held.is_in_the_way),
                charges: !held.is_counted_later(),
                totals: held.totals(settles, stops, now_ms),
            },
            _ => return Ok(false),
        };
        let partition = self.core.gate.partition_of(&asked.tenant);
        let epoch = self.core.gate.epoch(partition).ok_or(GateError::NoEpoch(partition))?;
        let call = LeaseCall {
            partition,
            tenant: &asked.tenant,
            subject: place.subject,
            counter: &asked.counter,
            is_light: asked.is_light,
            instance: self.core.instance.short(),
            totals: asked.totals,
            wants: asked.wants,
            charges: asked.charges,
            recalls: asked.recalls,
            beat_ms: i64::try_from(SHARE_BEAT.as_millis()).unwrap_or(i64::MAX),
            now_ms: self.core.script_now(),
        };
        let outcome = self.core.timed(Script::Lease, self.core.gate.lease(&call)).await?;
        let mut shares = self.shares.lock();
        let Some(held) = shares.get_mut(place) else { return Ok(false) };
        let is_over = match outcome {
            LeaseOutcome::Leased(lease) => {
                held.share.renew(epoch, lease);
                let is_settled_now = !asked.wants && lease.settled > asked.totals.settled;
                if lease.may_keep < lease.granted || is_settled_now {
                    return Ok(true);
                }
                held.share.is_done()
            }
            LeaseOutcome::StaleWindow | LeaseOutcome::Cold => {
                held.share.give_up();
                true
            }
        };
        if is_over && !asked.wants && !asked.recalls {
            shares.remove(place);
        }
        Ok(false)
    }

    /// Whether what was used of a share is reported. What parked calls of the tenant count anyway is reported once the
    /// gate has them, so that it counts at any time and never twice.
    async fn settles(&self, place: &CounterPlace) -> bool {
        let is_counted_later = |held: &Held| held.is_counted_later() && held.share.is_used();
        let (Some(tenant), true) =
            (&place.tenant, self.shares.lock().get(place).is_some_and(is_counted_later))
        else {
            return true;
        };
        let partition = self.core.gate.partition_of(tenant);
        let delivered = self.parked_first(tenant).await;
        matches!(delivered, Ok(None)) && self.parking.noted(partition, tenant).is_none()
    }
}

/// What a renewal says.
struct Asked {
    tenant: TenantId,
    counter: Counter,
    is_light: bool,
    wants: bool,
    recalls: bool,
    charges: bool,
    totals: ShareTotals,
}
