//! This instance's shares of counters: taken while the gate answers, used up while it does not.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;

use super::{Outage, Stranded};
use crate::clock::Clock;
use crate::domain::amount::Units;
use crate::domain::by_counter::ByCounter;
use crate::domain::counter::{Counter, least_need, need};
use crate::domain::emergency::CounterPlace;
use crate::domain::ids::{Epoch, TenantId};
use crate::domain::punishment::Deed;
use crate::domain::share::{Share, ShareTotals};
use crate::gate::{CounterReading, GateError, LeaseCall, LeaseOutcome};
use crate::telemetry::labels::Script;

/// The most counters, of all tenants, of which this instance has shares. Of one more it gets none.
const SHARES_MAX: usize = 1_000;
/// How often shares are renewed.
pub const SHARE_BEAT: Duration = Duration::from_secs(2);
/// A share of a counter that nothing has come under for so long goes back.
const IDLE: Duration = Duration::from_secs(30);
/// How old the definition of a counter may be with which its share is renewed.
const SEEN_WITHIN: Duration = Duration::from_millis(500);
const AT_ONCE: usize = 8;
/// How long renewals wait for a look whether parked calls wait.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// Shares, by counter.
pub(super) struct Shares(Mutex<ByCounter<Held>>);

impl Default for Shares {
    fn default() -> Self {
        Self(Mutex::new(ByCounter::new(SHARES_MAX)))
    }
}

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
        let began_ms = counter.window().map(|window| window.start_ms);
        self.share.left(epoch, began_ms, counter.refuses_above().get(), now_ms)
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
    fn lock(&self) -> MutexGuard<'_, ByCounter<Held>> {
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
                if held.is_counted_later() {
                    held.share.await_parking(*need);
                }
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

/// What was used of shares by a call that is being parked. Until this goes, it is not reported to the gate.
#[must_use]
pub(super) struct Unparked<'a> {
    shares: &'a Shares,
    used: Vec<Used>,
}

impl Shares {
    /// The call that used this is being parked.
    pub(super) fn being_parked(&self, used: &[Used]) -> Unparked<'_> {
        Unparked { shares: self, used: used.to_vec() }
    }
}

impl Unparked<'_> {
    /// The call may be parked: what it used stays held, and unreported, until the window ends.
    pub(super) fn stays(mut self) {
        self.used.clear();
    }
}

impl Drop for Unparked<'_> {
    fn drop(&mut self) {
        if self.used.is_empty() {
            return;
        }
        let mut shares = self.shares.lock();
        for (place, units, mark_ms) in &self.used {
            if let Some(held) = shares.get_mut(place) {
                held.share.parked(*units, *mark_ms);
            }
        }
    }
}

/// A refusal by the gate, of these amounts or of any part of them.
#[derive(Clone, Copy)]
pub(in crate::operations) struct Refused<'a> {
    /// What the work falls under.
    pub(in crate::operations) counters: &'a [Counter],
    /// The counters as they are.
    pub(in crate::operations) readings: &'a [CounterReading],
    /// The numbers of those that refuse.
    pub(in crate::operations) refusing: &'a [(usize, Option<i64>)],
    /// Whether a part is enough.
    pub(in crate::operations) any_part: bool,
}

impl Refused<'_> {
    /// Whether it may be due to shares alone: nobody else's are to suffer from work that would not fit without them.
    pub(in crate::operations) fn may_fit_without_shares(&self, amounts: &[Units]) -> bool {
        let fits = |number: usize| {
            let (counter, reading) = (self.counters.get(number)?, self.readings.get(number)?);
            let needs = match self.any_part {
                true => least_need(&counter.lines, amounts),
                false => need(&counter.lines, amounts),
            };
            let is_banned = reading.conduct.deed == Deed::UnderBan;
            let left = counter.refuses_above().get().saturating_sub(reading.consumed.get());
            Some(counter.is_shared() && !is_banned && needs <= left)
        };
        !self.refusing.is_empty() && self.refusing.iter().all(|(number, _)| fits(*number) == Some(true))
    }
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
            if let Some(held) = shares.get_mut(&place) {
                if now.saturating_duration_since(held.seen_at) >= SEEN_WITHIN {
                    held.seen_at = now;
                    held.counter = counter.clone();
                }
            } else if shares.has_room_for(place.tenant.as_ref()) {
                let held = Held {
                    share: Share::default(),
                    counter: counter.clone(),
                    is_light: is_light || counter.is_light,
                    seen_at: now,
                    is_in_the_way: false,
                    turn: Arc::default(),
                };
                shares.insert(place, held);
            }
        }
    }

    /// Gives back shares that stand in the way of refused work, and has other instances do so too. Returns whether
    /// there were any, so that the work may fit now.
    pub(in crate::operations) async fn recall_shares(
        &self,
        work: Stranded<'_>,
        refused: Refused<'_>,
    ) -> bool {
        let mut recalled = Vec::new();
        if !refused.may_fit_without_shares(work.amounts) {
            return false;
        }
        for counter in refused.refusing.iter().filter_map(|(number, _)| refused.counters.get(*number)) {
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
        self.look_for_parked_use().await;
        let places: Vec<_> = self.shares.lock().iter().map(|(place, _)| place.clone()).collect();
        let places = futures::stream::iter(&places);
        places.for_each_concurrent(AT_ONCE, |place| self.renew_share(place, stops)).await;
    }

    /// Looks whether parked calls still wait that used shares. A renewal goes by what is known then: it must be in
    /// time, however much of a tenant is to be redelivered.
    async fn look_for_parked_use(&self) {
        let is_used = |held: &Held| held.is_counted_later() && held.share.is_used();
        let tenants: BTreeSet<_> = {
            let shares = self.shares.lock();
            let used = shares.iter().filter(|(_, held)| is_used(held));
            used.filter_map(|(place, _)| place.tenant.clone()).collect()
        };
        let looks = futures::stream::iter(&tenants).for_each_concurrent(AT_ONCE, |tenant| async move {
            if let Err(error) = self.look_at_parked(tenant).await {
                tracing::debug!(%tenant, %error, "it is not known whether parked calls wait");
            }
        });
        if tokio::time::timeout(LOOK_WITHIN, looks).await.is_err() {
            tracing::debug!("it is not known yet whether parked calls wait");
        }
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
                totals: held.totals(self.settles(tenant, held), stops, now_ms),
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
    /// gate has them, so that it counts at any time and never twice. Asked while the shares are locked: a call that is
    /// parked by then is noted.
    fn settles(&self, tenant: &TenantId, held: &Held) -> bool {
        let partition = self.core.gate.partition_of(tenant);
        !held.is_counted_later() || self.parking.noted(partition, tenant).is_none()
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
