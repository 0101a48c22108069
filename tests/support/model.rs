//! A pure model of the gate on domain types: what the scripts must do, in the simplest form.

use std::collections::BTreeMap;

use tollgate::domain::algorithms::cell::{Cell, Loaded, Moment};
use tollgate::domain::algorithms::{LineHold, Parameters, calendar};
use tollgate::domain::amount::{UNITS_MAX, Units};
use tollgate::domain::period::Window;
use tollgate::domain::reservation::{LineUnits, OnExcess, OnLate, ReservationState};

/// A call's answer, as far as callers can distinguish it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Done: state, lines, expiry, whether late.
    Done(ReservationState, Vec<LineUnits>, i64, bool),
    /// The same as before: state and lines.
    Replayed(ReservationState, Vec<LineUnits>),
    /// Refused by these counters.
    Refused(Vec<usize>),
    /// The key was used for another request.
    KeyReused,
    /// Not known.
    Unknown,
    /// Resolved otherwise.
    AlreadyResolved,
    /// Expired.
    Expired,
    /// A total below the last one, at this line.
    AmountDecreased(usize),
    /// Above the hold of a meter that refuses excess, at this line.
    ExcessRejected(usize),
    /// Swept, and so many expired.
    Swept(usize),
    /// Nothing to answer.
    Nothing,
}

/// What is written to the outbox: its kind, the reservation, lines after.
pub type Told = (&'static str, u8, Vec<LineUnits>);

/// One line's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Above the hold.
    pub on_excess: OnExcess,
    /// After expiry.
    pub on_late: OnLate,
    /// For how long after expiry, in ms.
    pub late_within_ms: i64,
}

/// One counter: how it counts, its capacity and the weight of each line, 0 where the line does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// How it counts.
    pub parameters: Parameters,
    /// At most this much.
    pub capacity: i64,
    /// Per line.
    pub weights: Vec<i64>,
    /// Whether it counts as if it refused, and refuses nothing.
    pub is_shadow: bool,
    cell: Option<Cell>,
}

impl Counter {
    /// A counter that has counted nothing.
    pub fn new(parameters: Parameters, capacity: i64, weights: Vec<i64>) -> Self {
        Self { parameters, capacity, weights, is_shadow: false, cell: None }
    }

    /// By a window of the calendar that never ends.
    pub fn of_calendar(capacity: i64, weights: Vec<i64>) -> Self {
        let window = Window { start_ms: 0, end_ms: i64::MAX };
        Self::new(Parameters::Calendar(calendar::Parameters { window }), capacity, weights)
    }

    /// What it counts at this time.
    pub fn at(&self, now_ms: i64) -> Cell {
        self.for_new_work(now_ms).cell
    }

    /// What is stored of it, as it was when it moved last.
    pub fn stored(&self) -> Option<&Cell> {
        self.cell.as_ref()
    }

    /// How much fits at this time.
    pub fn room(&self, now_ms: i64) -> i64 {
        self.room_in(&self.at(now_ms))
    }

    /// How much of new work fits at this time.
    pub fn room_for_new_work(&self, now_ms: i64) -> i64 {
        self.parameters.room_for_new_work(&self.for_new_work(now_ms), self.capacity)
    }

    /// Whether so much of new work does not fit at this time.
    fn lacks_room(&self, amounts: &[i64], is_usage: bool, now_ms: i64) -> bool {
        let needs = self.parameters.need(self.weigh(amounts), is_usage);
        needs > 0 && needs > self.room_for_new_work(now_ms)
    }

    fn room_in(&self, cell: &Cell) -> i64 {
        self.parameters.room(cell.consumed, cell.reserved, self.capacity)
    }

    fn for_new_work(&self, now_ms: i64) -> Loaded {
        self.parameters.load(self.cell.as_ref(), Moment::new_work(now_ms))
    }

    /// What it counts of a reservation that was made then.
    fn of(&self, born_at_ms: i64, now_ms: i64) -> Loaded {
        self.parameters.load(self.cell.as_ref(), Moment::work_of(born_at_ms, now_ms))
    }

    fn weigh(&self, amounts: &[i64]) -> i64 {
        self.weights.iter().zip(amounts).map(|(weight, amount)| weight * amount).sum()
    }

    /// What an open reservation of these lines holds.
    fn held(&self, lines: &[LineUnits]) -> i64 {
        let line = |(&weight, line): (&i64, &LineUnits)| LineHold {
            weight,
            held: line.held.get(),
            consumed: line.consumed.get(),
        };
        let lines: Vec<_> =
            self.weights.iter().zip(lines).filter(|(weight, _)| **weight > 0).map(line).collect();
        self.parameters.held(&lines)
    }

    /// Whether the ledger can restore it.
    pub fn is_restorable(&self) -> bool {
        self.parameters.window().is_some()
    }
}

/// A reservation's current state.
#[derive(Debug, Clone)]
pub struct Hold {
    /// Where it is.
    pub state: ReservationState,
    /// Whether it was charged after its expiry.
    pub late: bool,
    /// What is held and consumed, per line.
    pub lines: Vec<LineUnits>,
    /// When it expires, or did.
    pub expires_at_ms: i64,
    born_at_ms: i64,
    latest_expiry_ms: i64,
    meaning: u8,
    /// The shadow counters that did not count it.
    unmoved: Vec<bool>,
}

/// More than the sum of all holds of any sequence.
const MORE_THAN_IS_HELD: i64 = 1_000_000;

/// How a reserve treats what does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// All or nothing.
    All,
    /// What fits.
    Best,
    /// Consumed at once.
    Usage,
}

/// The model of one tenant's gate.
#[derive(Debug, Clone)]
pub struct Model {
    rules: Vec<Rule>,
    /// The counters.
    pub counters: Vec<Counter>,
    holds: BTreeMap<u8, Hold>,
    /// The events of the outbox.
    pub told: Vec<Told>,
    bucket_ms: i64,
}

fn units(value: i64) -> Units {
    Units::new(value).unwrap()
}

impl Model {
    /// A warm tenant that has used nothing.
    pub fn new(rules: Vec<Rule>, counters: Vec<Counter>, bucket_ms: i64) -> Self {
        Self { rules, counters, holds: BTreeMap::new(), told: Vec::new(), bucket_ms }
    }

    /// Reserves, or counts usage.
    #[allow(clippy::too_many_arguments, reason = "a call's own parts")]
    pub fn reserve(
        &mut self,
        now_ms: i64,
        id: u8,
        meaning: u8,
        mode: Mode,
        amounts: &[i64],
        ttl_ms: i64,
        max_life_ms: i64,
    ) -> Answer {
        if let Some(hold) = self.holds.get(&id) {
            if hold.meaning != meaning {
                return Answer::KeyReused;
            }
            return Answer::Replayed(hold.state, hold.lines.clone());
        }
        let usage = mode == Mode::Usage;
        let refuses = |counter: &Counter| !counter.is_shadow && counter.lacks_room(amounts, usage, now_ms);
        let refusing: Vec<usize> =
            (0..self.counters.len()).filter(|&at| refuses(&self.counters[at])).collect();
        let granted = if mode == Mode::Best { self.fit(now_ms, amounts) } else { amounts.to_vec() };
        if (mode != Mode::Best && !refusing.is_empty()) || granted.iter().all(|&amount| amount == 0) {
            return Answer::Refused(refusing);
        }
        let line = |&amount: &i64| {
            if usage {
                LineUnits::new(units(0), units(amount))
            } else {
                LineUnits::new(units(amount), units(0))
            }
        };
        let lines: Vec<LineUnits> = granted.iter().map(line).collect();
        let expires_at_ms = if usage { now_ms } else { now_ms + ttl_ms.min(max_life_ms) };
        let leaves_out = |counter: &Counter| counter.is_shadow && counter.lacks_room(&granted, usage, now_ms);
        let unmoved: Vec<bool> = self.counters.iter().map(leaves_out).collect();
        for (counter, _) in self.counters.iter_mut().zip(&unmoved).filter(|(_, unmoved)| !**unmoved) {
            let mut loaded = counter.for_new_work(now_ms);
            if usage {
                counter.parameters.charge(&mut loaded, counter.weigh(&granted));
            }
            counter.parameters.hold(&mut loaded, counter.held(&lines), expires_at_ms);
            counter.cell = Some(loaded.cell);
        }
        let state = if usage { ReservationState::Consumed } else { ReservationState::Reserved };
        let hold = Hold {
            state,
            late: false,
            meaning,
            lines: lines.clone(),
            expires_at_ms,
            born_at_ms: now_ms,
            latest_expiry_ms: now_ms + max_life_ms,
            unmoved,
        };
        self.holds.insert(id, hold);
        self.told.push((if usage { "usage" } else { "reserve" }, id, lines.clone()));
        Answer::Done(state, lines, expires_at_ms, false)
    }

    fn fit(&self, now_ms: i64, amounts: &[i64]) -> Vec<i64> {
        let mut granted: Vec<i64> = Vec::new();
        for (line, &asked) in amounts.iter().enumerate() {
            let mut most = asked;
            let hard = self.counters.iter().filter(|counter| !counter.is_shadow);
            for counter in hard.filter(|counter| counter.weights[line] > 0) {
                let room = counter.parameters.most(counter.room_for_new_work(now_ms));
                let room = room.saturating_sub(counter.weigh(&granted));
                most = most.min(room.div_euclid(counter.weights[line]));
            }
            granted.push(most.max(0));
        }
        granted
    }

    /// Consumes these totals; none means the larger of held and consumed.
    pub fn consume(&mut self, now_ms: i64, id: u8, totals: Option<&[i64]>, is_final: bool) -> Answer {
        let Some(hold) = self.holds.get(&id).cloned() else { return Answer::Unknown };
        let default: Vec<i64> = hold.lines.iter().map(|line| line.held.max(line.consumed).get()).collect();
        let totals = totals.map_or(default, <[i64]>::to_vec);
        let late = hold.state == ReservationState::Expired;
        let repeats = repeats(&hold, &totals);
        let is_open = matches!(hold.state, ReservationState::Reserved | ReservationState::Expired);
        if repeats && (hold.state == ReservationState::Consumed || (is_open && !is_final)) {
            return Answer::Replayed(hold.state, hold.lines);
        }
        match hold.state {
            ReservationState::Consumed | ReservationState::Released => return Answer::AlreadyResolved,
            ReservationState::Expired if self.rejects_late(&hold, now_ms) => return Answer::Expired,
            _ => {}
        }
        if let Some(refusal) = self.check(&hold, &totals) {
            return refusal;
        }
        let (totals, uncharged) = self.cap(now_ms, &hold, totals);
        let state = if is_final { ReservationState::Consumed } else { hold.state };
        self.settle(now_ms, "consume", id, state, late, &totals, uncharged)
    }

    /// Releases with this much incurred per line; none means nothing beyond what is consumed.
    pub fn release(&mut self, now_ms: i64, id: u8, incurred: Option<&[i64]>) -> Answer {
        let Some(hold) = self.holds.get(&id).cloned() else { return Answer::Unknown };
        let default: Vec<i64> = hold.lines.iter().map(|line| line.consumed.get()).collect();
        let totals = incurred.map_or(default, <[i64]>::to_vec);
        match hold.state {
            ReservationState::Released | ReservationState::Consumed => {
                let may_repeat =
                    hold.state == ReservationState::Released || (hold.late && incurred.is_some());
                let again = may_repeat && repeats(&hold, &totals);
                return if again {
                    Answer::Replayed(hold.state, hold.lines)
                } else {
                    Answer::AlreadyResolved
                };
            }
            ReservationState::Expired if incurred.is_none() || self.rejects_late(&hold, now_ms) => {
                return Answer::Expired;
            }
            ReservationState::Expired => {
                if let Some(refusal) = self.check(&hold, &totals) {
                    return refusal;
                }
                let (totals, uncharged) = self.cap(now_ms, &hold, totals);
                return self.settle(
                    now_ms,
                    "consume",
                    id,
                    ReservationState::Consumed,
                    true,
                    &totals,
                    uncharged,
                );
            }
            ReservationState::Reserved => {}
        }
        if let Some(line) = decreased(&hold, &totals) {
            return Answer::AmountDecreased(line);
        }
        self.settle(now_ms, "release", id, ReservationState::Released, false, &totals, vec![0; totals.len()])
    }

    /// Moves the expiry.
    pub fn extend(&mut self, now_ms: i64, id: u8, ttl_ms: i64) -> Answer {
        let Some(hold) = self.holds.get_mut(&id) else { return Answer::Unknown };
        match hold.state {
            ReservationState::Expired => return Answer::Expired,
            ReservationState::Reserved => {}
            _ => return Answer::AlreadyResolved,
        }
        let expires_at_ms = (now_ms + ttl_ms).min(hold.latest_expiry_ms);
        if expires_at_ms <= hold.expires_at_ms {
            return Answer::Replayed(hold.state, hold.lines.clone());
        }
        hold.expires_at_ms = expires_at_ms;
        let lines = hold.lines.clone();
        self.told.push(("extend", id, lines.clone()));
        Answer::Done(ReservationState::Reserved, lines, expires_at_ms, false)
    }

    /// Sweeps all buckets that are over at this time. Returns those that expired.
    pub fn sweep(&mut self, now_ms: i64) -> Vec<u8> {
        let swept = now_ms.div_euclid(self.bucket_ms);
        let is_due = |hold: &Hold| {
            let bucket = (hold.expires_at_ms + self.bucket_ms - 1).div_euclid(self.bucket_ms);
            hold.state == ReservationState::Reserved && bucket <= swept
        };
        let due: Vec<u8> = self.holds.iter().filter(|(_, hold)| is_due(hold)).map(|(id, _)| *id).collect();
        for id in &due {
            let lines = self.holds[id].lines.clone();
            let totals: Vec<i64> = lines.iter().map(|line| line.consumed.get()).collect();
            let uncharged = lines.iter().map(|line| line.uncharged.get()).collect();
            self.settle(now_ms, "expire", *id, ReservationState::Expired, false, &totals, uncharged);
        }
        due
    }

    /// The gate loses its memory and is restored from the ledger.
    pub fn lose_memory(&mut self) {
        for counter in self.counters.iter_mut().filter(|counter| !counter.parameters.holds_survive()) {
            counter.cell = None;
        }
    }

    /// Every reservation, by its id.
    pub fn holds(&self) -> impl Iterator<Item = (u8, &Hold)> {
        self.holds.iter().map(|(id, hold)| (*id, hold))
    }

    /// A reservation, if there is one of this id.
    pub fn hold(&self, id: u8) -> Option<&Hold> {
        self.holds.get(&id)
    }

    /// How consumes and releases are decided while the gate is away: no counter is known, so a cap charges at most the
    /// hold, as if every counter were full.
    pub fn without_counters(&self) -> Self {
        let full = |line| {
            let weights = (0..self.rules.len()).map(|at| i64::from(at == line)).collect();
            let mut counter = Counter::of_calendar(0, weights);
            counter.cell = Some(Cell { reserved: MORE_THAN_IS_HELD, ..Cell::default() });
            counter
        };
        Self { counters: (0..self.rules.len()).map(full).collect(), ..self.clone() }
    }

    fn rejects_late(&self, hold: &Hold, now_ms: i64) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.on_late == OnLate::Reject || now_ms > hold.expires_at_ms + rule.late_within_ms)
    }

    fn check(&self, hold: &Hold, totals: &[i64]) -> Option<Answer> {
        if let Some(line) = decreased(hold, totals) {
            return Some(Answer::AmountDecreased(line));
        }
        let above = |line: &usize| {
            let most = hold.lines[*line].held.max(hold.lines[*line].consumed).get();
            self.rules[*line].on_excess == OnExcess::Reject && totals[*line] > most
        };
        (0..totals.len()).find(above).map(Answer::ExcessRejected)
    }

    /// What `cap` lets through, and what it keeps uncharged.
    fn cap(&self, now_ms: i64, hold: &Hold, mut totals: Vec<i64>) -> (Vec<i64>, Vec<i64>) {
        let asked = totals.clone();
        let open = hold.state == ReservationState::Reserved;
        let free = |line: usize| {
            let LineUnits { held, consumed, .. } = hold.lines[line];
            if open { held.max(consumed).get() } else { consumed.get() }
        };
        for line in 0..totals.len() {
            if self.rules[line].on_excess != OnExcess::Cap {
                continue;
            }
            let hard = self.counters.iter().filter(|counter| !counter.is_shadow);
            for counter in hard.filter(|counter| counter.weights[line] > 0) {
                let loaded = counter.of(hold.born_at_ms, now_ms);
                if !counter.parameters.is_open(&loaded, now_ms) {
                    continue;
                }
                let before = (0..line).map(|at| counter.weights[at] * (totals[at] - free(at)).max(0));
                let left = counter.room_in(&loaded.cell);
                let room = left - before.sum::<i64>();
                let more = room.div_euclid(counter.weights[line]).max(0);
                let most = hold.lines[line].held.get().max(free(line) + more);
                totals[line] = totals[line].min(most);
            }
        }
        let uncharged = asked.iter().zip(&totals).map(|(asked, total)| asked - total).collect();
        (totals, uncharged)
    }

    #[allow(clippy::too_many_arguments, reason = "a change's own parts")]
    fn settle(
        &mut self,
        now_ms: i64,
        kind: &'static str,
        id: u8,
        state: ReservationState,
        late: bool,
        totals: &[i64],
        uncharged: Vec<i64>,
    ) -> Answer {
        let before = self.holds[&id].clone();
        let mut after = before.clone();
        after.state = state;
        after.late = late;
        for ((line, &total), uncharged) in after.lines.iter_mut().zip(totals).zip(uncharged) {
            (line.consumed, line.uncharged) = (units(total), units(uncharged));
        }
        for (counter, _) in self.counters.iter_mut().zip(&before.unmoved).filter(|(_, unmoved)| !**unmoved) {
            let mut loaded = counter.of(before.born_at_ms, now_ms);
            if !loaded.is_current {
                continue;
            }
            let held = |hold: &Hold| {
                let is_open = hold.state == ReservationState::Reserved;
                if is_open { counter.held(&hold.lines) } else { 0 }
            };
            let freed = held(&before) - held(&after);
            let moved = |line: usize| totals[line] - before.lines[line].consumed.get();
            let used: i64 = (0..totals.len()).map(|line| counter.weights[line] * moved(line)).sum();
            let (parameters, settled) = (counter.parameters, used.min(freed));
            parameters.settle(&mut loaded, settled);
            parameters.charge(&mut loaded, used - settled);
            parameters.give_back(&mut loaded, freed - settled);
            let mut cell = loaded.cell;
            // Made at the very time at which the memory was lost, it may have been lost with it.
            if cell.reserved < 0 && !counter.is_restorable() {
                (cell.reserved, cell.next_end) = (0, 0);
            }
            assert!(cell.reserved >= 0 && cell.consumed <= UNITS_MAX, "{counter:?}");
            counter.cell = Some(cell);
        }
        self.told.push((kind, id, after.lines.clone()));
        let answer = Answer::Done(state, after.lines.clone(), after.expires_at_ms, late);
        self.holds.insert(id, after);
        answer
    }
}

/// Whether the totals are those that were consumed last: what was charged, or what was asked for.
fn repeats(hold: &Hold, totals: &[i64]) -> bool {
    hold.lines.iter().zip(totals).all(|(line, &total)| {
        let consumed = line.consumed.get();
        total == consumed || total == consumed + line.uncharged.get()
    })
}

/// The first line whose total is below what is consumed.
fn decreased(hold: &Hold, totals: &[i64]) -> Option<usize> {
    (0..totals.len()).find(|&line| totals[line] < hold.lines[line].consumed.get())
}
