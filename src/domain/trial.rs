//! What a tenant's recorded decisions would have been under other limits: they are decided again, one after the other,
//! by the algorithms' own transitions.
//!
//! What the record does not know is filled in: a hold ends at its expiry to the millisecond; work that was refused when
//! it was recorded, and is admitted here, is used in full at once; a consume names the totals that were recorded.

mod counters;
mod holds;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::amount::{Amount, Units};
use super::counter::{Counter, least_need, need};
use super::decision::{DecidedCall, DecidedLimit, DecidedSubject, Decision};
use super::ids::{MeterId, Subject, SubjectId, SubjectKind};
use super::meter::WithoutLimit;
use super::period::{Calendars, Window};
use super::policy::{Policy, Resolved, TenantPolicy};
use super::reservation::{LineUnits, ReservationState};
use counters::{Counters, Moved, Place};
use holds::{Hold, Holds};

/// How a decision turns out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was to be decided: a dry run, a call that nothing refuses, or one under a ban.
    Unasked,
    /// Admitted.
    Admitted,
    /// Refused by these limits, each once.
    Refused(BTreeSet<String>),
    /// The proposed policy cannot decide it: it lacks the meter, or falls under too many limits.
    Undecidable,
}

/// A tenant's policies.
#[derive(Debug)]
pub struct Terms {
    /// The policy in force: counters that it shares may have counted something before the record began.
    pub before: TenantPolicy,
    /// The one that is tried.
    pub then: TenantPolicy,
    /// All definitions of the one that is tried.
    pub policy: Arc<Policy>,
    /// Where the tenant's windows begin.
    pub calendars: Calendars,
    /// Those subjects that the policies name.
    pub subjects: HashMap<DecidedSubject, Subject>,
    /// Whether meters with `without_limit = "config"` are denied to tenants without limit or quota.
    pub denies_without_limit: bool,
}

/// A trial of one tenant's decisions.
#[derive(Debug)]
pub struct Trial {
    terms: Terms,
    counters: Counters,
    holds: Holds,
    /// By how much the included units of quotas differ.
    quotas: HashMap<MeterId, i64>,
    /// The first decision (unix ms): what was counted earlier is known only from what the limits showed.
    begins_at_ms: Option<i64>,
}

/// A call to be decided.
struct Ask<'a> {
    decision: &'a Decision,
    scopes: Vec<String>,
    subjects: Vec<Subject>,
    units: Vec<Units>,
    at_ms: i64,
}

impl Trial {
    /// A trial in which nothing is counted yet.
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            counters: Counters::default(),
            holds: Holds::default(),
            quotas: HashMap::new(),
            begins_at_ms: None,
        }
    }

    /// Decides the next decision again. They must come in the order in which they were made.
    pub fn decide(&mut self, decision: &Decision) -> Outcome {
        self.begins_at_ms.get_or_insert(decision.at_ms);
        self.expire(decision.at_ms);
        // Bans, of admins and of limits that punish, are not tried: nobody knows how callers would have behaved.
        if decision.is_dry_run || decision.is_under_ban() {
            return Outcome::Unasked;
        }
        match decision.call {
            DecidedCall::Reserve | DecidedCall::Usage | DecidedCall::Check => self.admit(decision),
            DecidedCall::Consume | DecidedCall::Release => self.resolve(decision),
            DecidedCall::Extend => self.extend(decision),
            DecidedCall::Event => self.record(decision),
        }
    }

    fn admit(&mut self, decision: &Decision) -> Outcome {
        let Some(ask) = self.ask(decision, decision.at_ms) else { return Outcome::Undecidable };
        let Some(resolved) = self.resolved(&ask, false) else { return Outcome::Undecidable };
        let denied = self.denied(decision, &resolved);
        if !denied.is_empty() {
            return Outcome::Refused(denied);
        }
        let is_usage = decision.call != DecidedCall::Reserve;
        self.know(&ask, &resolved);
        let may_be_less = decision.lines.iter().any(|line| line.granted.is_some());
        let mut refusing = BTreeSet::new();
        for counter in resolved.counters.iter().filter(|counter| counter.kind.refuses()) {
            let of_lines = if may_be_less { least_need } else { need };
            let of_lines = of_lines(&counter.lines, &ask.units);
            let needs = counter.parameters.need(of_lines, is_usage);
            if needs > 0 && needs > self.room(counter, &ask) {
                refusing.insert(counter.name());
            }
        }
        let by_all = self.refused_for_all_tenants(decision);
        let granted = if may_be_less { self.fit(&ask, &resolved) } else { ask.units.clone() };
        let is_nothing = granted.iter().all(|units| *units == Units::ZERO) || !by_all.is_empty();
        refusing.extend(by_all);
        if is_nothing || (!may_be_less && !refusing.is_empty()) {
            return Outcome::Refused(refusing);
        }
        let line = |units: &Units| match is_usage {
            true => LineUnits::new(Units::ZERO, *units),
            false => LineUnits::new(*units, Units::ZERO),
        };
        let lines: Vec<LineUnits> = granted.iter().map(line).collect();
        let moved = self.take(&ask, &resolved, &lines, is_usage);
        if !is_usage {
            self.hold(decision, moved, lines);
        }
        Outcome::Admitted
    }

    /// The limits over all tenants that refused it and are still there: what the others used is not tried again.
    fn refused_for_all_tenants(&self, decision: &Decision) -> BTreeSet<String> {
        let limits = &self.terms.policy.definitions().limits;
        let still_refuses = |limit: &&DecidedLimit| {
            let now = limits.get(limit.id.as_str());
            limit.refused && now.is_some_and(|now| now.is_global() && now.kind.refuses())
        };
        decision.limits.iter().filter(still_refuses).map(|limit| limit.id.clone()).collect()
    }

    /// Counts an admission. Returns the counters that it moved.
    fn take(
        &mut self,
        ask: &Ask<'_>,
        resolved: &Resolved,
        lines: &[LineUnits],
        is_usage: bool,
    ) -> Vec<Moved> {
        let granted: Vec<Units> = lines.iter().map(|line| line.held.max(line.consumed)).collect();
        let ends_at_ms = ask.decision.reservation.map_or(ask.at_ms, |made| made.expires_at_ms);
        let mut moved = Vec::new();
        for counter in &resolved.counters {
            // A shadow limit leaves out what it would refuse.
            if self.lacks_room(counter, ask, &granted, is_usage) {
                continue;
            }
            let each = Moved::of(counter, ask.place(counter));
            let mut loaded = self.counters.load_for_new_work(&each.place, &each.parameters, ask.at_ms);
            if is_usage {
                each.parameters.charge(&mut loaded, need(&counter.lines, &granted));
            }
            each.parameters.hold(&mut loaded, each.held(lines), ends_at_ms);
            let until_ms = each.parameters.ends_at_ms(ask.at_ms, counter.capacity.get());
            self.counters.store(each.place.clone(), loaded.cell, until_ms, ask.at_ms);
            moved.push(each);
        }
        moved
    }

    fn hold(&mut self, decision: &Decision, moved: Vec<Moved>, lines: Vec<LineUnits>) {
        let totals: Vec<Units> = lines.iter().map(|line| line.held).collect();
        let meters = decision.lines.iter().map(|line| line.meter.clone()).collect();
        let granted = decision.lines.iter().filter_map(|line| Some((line.meter.clone(), line.granted?)));
        let in_units = |(meter, granted): (MeterId, Amount)| {
            let decimals = self.terms.policy.definitions().decimals(&meter).unwrap_or_default();
            (meter, granted.floor_units(decimals))
        };
        let hold = Hold {
            state: ReservationState::Reserved,
            born_at_ms: decision.at_ms,
            expires_at_ms: decision.reservation.map_or(decision.at_ms, |made| made.expires_at_ms),
            meters,
            lines,
            moved,
            granted_then: granted.map(in_units).collect(),
        };
        match decision.reservation {
            Some(made) => self.holds.insert(made.id, hold),
            None => {
                self.settle(hold, ReservationState::Consumed, &totals, decision.at_ms);
            }
        }
    }

    /// Applies a consume or release of a reservation that was admitted here too.
    fn resolve(&mut self, decision: &Decision) -> Outcome {
        let Some(made) = decision.reservation else { return Outcome::Unasked };
        let Some(hold) = self.holds.remove(made.id) else { return Outcome::Unasked };
        let total = |(meter, line): (&MeterId, &LineUnits)| {
            let named = decision.lines.iter().find(|named| named.meter == *meter);
            let decimals = self.terms.policy.definitions().decimals(meter).unwrap_or_default();
            let units = named.map_or(line.consumed, |named| named.amount.floor_units(decimals));
            // Who used all that was granted uses all that is granted here.
            if hold.granted_then.get(meter) == Some(&units) { line.held } else { units }
        };
        let totals: Vec<Units> = hold.meters.iter().zip(&hold.lines).map(total).collect();
        let hold = self.settle(hold, made.state, &totals, decision.at_ms);
        if matches!(made.state, ReservationState::Reserved | ReservationState::Expired) {
            self.holds.insert(made.id, hold);
        }
        Outcome::Unasked
    }

    fn extend(&mut self, decision: &Decision) -> Outcome {
        if let Some(made) = decision.reservation
            && let Some(hold) = self.holds.remove(made.id)
        {
            self.holds.insert(made.id, Hold { expires_at_ms: made.expires_at_ms, ..hold });
        }
        Outcome::Unasked
    }

    /// Counts work that was done, in the windows in which it was done while they last.
    fn record(&mut self, decision: &Decision) -> Outcome {
        let happened_at_ms = decision.reservation.map_or(decision.at_ms, |made| made.expires_at_ms);
        let Some(ask) = self.ask(decision, happened_at_ms) else { return Outcome::Unasked };
        let Some(mut resolved) = self.resolved(&ask, true) else { return Outcome::Unasked };
        let begins_at_ms = self.begins_at_ms.unwrap_or(decision.at_ms);
        // What a window had counted before the record is shown by the first decision, this work included.
        let counts = |counter: &Counter| {
            let is_known = self.counters.has(&ask.place(counter));
            let is_current = |window: Window| {
                decision.at_ms < window.end_ms && (is_known || window.start_ms >= begins_at_ms)
            };
            counter.window().is_some_and(is_current)
        };
        resolved.counters.retain(counts);
        for counter in &resolved.counters {
            let each = Moved::of(counter, ask.place(counter));
            let mut loaded = self.counters.load_for_new_work(&each.place, &each.parameters, ask.at_ms);
            each.parameters.charge(&mut loaded, need(&counter.lines, &ask.units));
            let until_ms = each.parameters.ends_at_ms(ask.at_ms, counter.capacity.get());
            self.counters.store(each.place, loaded.cell, until_ms, decision.at_ms);
        }
        Outcome::Unasked
    }

    fn expire(&mut self, now_ms: i64) {
        while let Some((id, hold)) = self.holds.next_due(now_ms) {
            let totals: Vec<Units> = hold.lines.iter().map(|line| line.consumed).collect();
            let at_ms = hold.expires_at_ms;
            let hold = self.settle(hold, ReservationState::Expired, &totals, at_ms);
            self.holds.insert(id, hold);
        }
    }

    /// Moves a reservation's totals and state.
    fn settle(&mut self, before: Hold, state: ReservationState, totals: &[Units], now_ms: i64) -> Hold {
        let mut after = before;
        let (was_open, lines) = (after.state == ReservationState::Reserved, after.lines.clone());
        after.state = state;
        for (line, total) in after.lines.iter_mut().zip(totals) {
            line.consumed = *total;
        }
        for each in &after.moved {
            let mut loaded =
                self.counters.load_work_of(&each.place, &each.parameters, after.born_at_ms, now_ms);
            if !loaded.is_current {
                continue;
            }
            let held = |is_open: bool, lines: &[LineUnits]| if is_open { each.held(lines) } else { 0 };
            let freed = held(was_open, &lines) - held(state == ReservationState::Reserved, &after.lines);
            let used = each.consumed(&after.lines) - each.consumed(&lines);
            let settled = used.min(freed);
            each.parameters.settle(&mut loaded, settled);
            each.parameters.charge(&mut loaded, used - settled);
            each.parameters.give_back(&mut loaded, freed - settled);
            self.counters.change(&each.place, loaded.cell);
        }
        after
    }

    /// What a decision asked for; none where the proposed policy lacks a meter.
    fn ask<'a>(&self, decision: &'a Decision, at_ms: i64) -> Option<Ask<'a>> {
        let definitions = self.terms.policy.definitions();
        let units = decision
            .lines
            .iter()
            .map(|line| definitions.decimals(&line.meter).map(|decimals| line.amount.floor_units(decimals)));
        let units = units.collect::<Option<Vec<_>>>()?;
        let subjects =
            decision.subjects.iter().map(|named| self.subject(named)).collect::<Option<Vec<_>>>()?;
        let scopes = decision.subjects.iter().map(|named| format!("{} {}", named.kind, named.hash)).collect();
        Some(Ask { decision, scopes, subjects, units, at_ms })
    }

    /// The subject of this name: one of the policy's, or one that stands for it.
    fn subject(&self, named: &DecidedSubject) -> Option<Subject> {
        let stand_in = || {
            let (kind, id) = (SubjectKind::parse(&named.kind).ok()?, SubjectId::parse(&named.hash).ok()?);
            Some(Subject { kind, id })
        };
        self.terms.subjects.get(named).cloned().or_else(stand_in)
    }

    fn resolved(&self, ask: &Ask<'_>, is_done: bool) -> Option<Resolved> {
        let operation = ask.decision.operation.as_ref().filter(|_| !is_done);
        let resolved = ask.resolve(&self.terms.then, &self.terms.calendars)?;
        let resolved = if is_done { resolved } else { resolved.with_anomalies(operation).ok()? };
        let operation = operation.and_then(|id| self.terms.policy.operation(id));
        let Some(interval) = operation.and_then(|operation| operation.interval()) else {
            return Some(resolved);
        };
        let meters = ask.decision.lines.iter().map(|line| &line.meter);
        resolved.with_interval(&interval, meters, ask.subjects.len()).ok()
    }

    /// The meters that no limit covers and that are denied then.
    fn denied(&self, decision: &Decision, resolved: &Resolved) -> BTreeSet<String> {
        let uncovered = resolved.without.iter().filter_map(|line| decision.lines.get(*line));
        let is_denied = |meter: &&MeterId| {
            let without = self.terms.policy.meter(meter).map(|meter| meter.without_limit);
            match without {
                Some(WithoutLimit::Deny) => true,
                Some(WithoutLimit::Config) => self.terms.denies_without_limit,
                Some(WithoutLimit::Unlimited) | None => false,
            }
        };
        let meters = uncovered.map(|line| &line.meter).filter(is_denied);
        meters.map(|meter| format!("without_limit:{meter}")).collect()
    }

    fn lacks_room(&self, counter: &Counter, ask: &Ask<'_>, units: &[Units], is_usage: bool) -> bool {
        let needs = counter.parameters.need(need(&counter.lines, units), is_usage);
        needs > 0 && needs > self.room(counter, ask)
    }

    fn room(&self, counter: &Counter, ask: &Ask<'_>) -> i64 {
        let loaded = self.counters.load_for_new_work(&ask.place(counter), &counter.parameters, ask.at_ms);
        let capacity = match (counter.is_quota(), counter.counts_up_to()) {
            (true, included) => self.quota(counter, ask.decision).unwrap_or(included.get()),
            (false, capacity) => capacity.get(),
        };
        counters::room(&counter.parameters, &loaded, capacity)
    }

    /// What a quota has in the books: what was shown then, and by how much the proposed policy includes more.
    fn quota(&self, counter: &Counter, decision: &Decision) -> Option<i64> {
        let shown = shown(decision, counter, None)?.capacity.floor_units(counter.decimals);
        let more = self.quotas.get(&counter.meter).copied().unwrap_or_default();
        Some(shown.get().saturating_add(more).max(0))
    }

    /// What fits of each line.
    fn fit(&self, ask: &Ask<'_>, resolved: &Resolved) -> Vec<Units> {
        let mut granted: Vec<Units> = Vec::new();
        for (line, asked) in ask.units.iter().enumerate() {
            let mut most = asked.get();
            for counter in resolved.counters.iter().filter(|counter| counter.kind.refuses()) {
                let weight = counter.lines.iter().find(|(of, _)| usize::from(*of) == line);
                let Some((_, weight)) = weight else { continue };
                let room = counter.parameters.most(self.room(counter, ask));
                let room = room.saturating_sub(need(&counter.lines, &granted));
                most = most.min(room.div_euclid(*weight));
            }
            granted.push(Units::new(most.max(0)).unwrap_or_default());
        }
        granted
    }

    /// Starts counters of the calendar with what they had counted before the record, as far as the limits showed it.
    fn know(&mut self, ask: &Ask<'_>, resolved: &Resolved) {
        let mut before: Option<Resolved> = None;
        for counter in &resolved.counters {
            let place = ask.place(counter);
            let is_known = self.counters.has(&place)
                && (!counter.is_quota() || self.quotas.contains_key(&counter.meter));
            let Some(window) = counter.window().filter(|_| !is_known) else { continue };
            let begins_at_ms = self.begins_at_ms.unwrap_or(ask.at_ms);
            let before = before.get_or_insert_with(|| {
                ask.resolve(&self.terms.before, &self.terms.calendars).unwrap_or_default()
            });
            let is_it = |was: &&Counter| {
                (was.name(), was.scope_index) == (counter.name(), counter.scope_index)
                    && was.window() == Some(window)
                    && was.budget() == counter.budget()
            };
            let Some(was) = before.counters.iter().find(is_it) else { continue };
            if counter.is_quota() {
                let more = counter.capacity.get().saturating_sub(was.capacity.get());
                self.quotas.insert(counter.meter.clone(), more);
            }
            if self.counters.has(&place) {
                continue;
            }
            let kind = counter.subject(&ask.decision.subjects).map(|subject| subject.kind.as_str());
            let shown = shown(ask.decision, counter, kind).filter(|_| window.start_ms < begins_at_ms);
            let counted = shown.map_or(0, |shown| counted_before(shown, counter, ask.decision.is_admitted));
            let mut loaded = self.counters.load_for_new_work(&place, &counter.parameters, ask.at_ms);
            counter.parameters.charge(&mut loaded, counted);
            self.counters.store(place, loaded.cell, window.end_ms, ask.at_ms);
        }
    }
}

impl Ask<'_> {
    fn place(&self, counter: &Counter) -> Place {
        let scope = counter.subject(&self.scopes).cloned().unwrap_or_default();
        Place { scope, field: counter.field }
    }

    fn resolve(&self, policy: &TenantPolicy, calendars: &Calendars) -> Option<Resolved> {
        let meters = self.decision.lines.iter().map(|line| &line.meter);
        let operation = self.decision.operation.as_ref();
        let windows = calendars.windows(self.at_ms);
        policy.resolve(meters, &self.subjects, operation, self.at_ms, &windows).ok()
    }
}

/// What the limit of a counter showed when the decision was made.
fn shown<'a>(decision: &'a Decision, counter: &Counter, kind: Option<&str>) -> Option<&'a DecidedLimit> {
    let name = counter.name();
    decision.limits.iter().find(|limit| limit.id == name && limit.subject_kind.as_deref() == kind)
}

/// What a limit had counted before the decision.
fn counted_before(shown: &DecidedLimit, counter: &Counter, is_admitted: bool) -> i64 {
    let units = |amount: Amount| amount.floor_units(counter.decimals).get();
    let [consumed, reserved] = [shown.consumed, shown.reserved].map(Option::unwrap_or_default);
    let with_this = units(consumed).saturating_add(units(reserved));
    if is_admitted { with_this.saturating_sub(units(shown.need)).max(0) } else { with_this }
}
