//! A counter: what one limit or quota counts for one scope. The same type is used from policy to the scripts'
//! arguments.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::algorithms::{AlgorithmName, Definition, Parameters, anomaly, calendar};
use super::amount::{Decimals, Units};
use super::counted_meter::CountedMeter;
use super::factor::Factor;
use super::ids::{LimitId, MeterId, OperationId};
use super::limit::{Class, Kind, Limit, Span};
use super::limited::Limited;
use super::load::LoadLevel;
use super::on_gate_failure::OnGateFailure;
use super::period::{Window, WindowKind};
use super::plan::QuotaMode;
use super::policy::Level;
use super::policy::intervals::OperationInterval;
use super::punishment::Punishment;
use super::reservation::{CounterField, CounterRef, PlaceCapacity};

/// The share of a quota's capacity from which answers carry a warning, in percent.
const QUOTA_NEAR_PERCENT: i64 = 80;

/// What one limit or quota counts for the tenant, or for one subject, at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Its scope: 0 is the tenant, n the n-th subject of the request.
    pub scope_index: u8,
    /// Of a booked reservation: whether it is a light counter, because it counts only lines that are not booked.
    pub is_light: bool,
    /// Its field in the scope's state hash.
    pub field: CounterField,
    /// What it does when its capacity is reached: its limit's, overrides included.
    pub kind: Kind,
    /// Whether its count survives the loss of the gate's memory.
    pub class: Class,
    /// The lines of the request that it counts, each with the units counted for one unit of the line.
    pub lines: Vec<(u8, i64)>,
    /// A limit's capacity, overrides included; what a quota includes in each period.
    pub capacity: Units,
    /// By how much the load scales the capacity for new work.
    pub load: LoadLevel,
    /// The parameters by which it counts now.
    pub parameters: Parameters,
    /// When it was created (unix ms): a window that began later started at zero.
    pub since_ms: i64,
    /// Its meter; of a budget, the meter of its first line.
    pub meter: MeterId,
    /// Its meter's decimals, or the budget's own.
    pub decimals: Decimals,
    /// Of a budget: every meter that it counts, sorted. None where it counts its meter alone.
    pub budgeted: Option<Arc<[CountedMeter]>>,
    /// The limit or quota that it belongs to.
    pub source: Source,
}

/// The limit or quota that a counter belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A limit: the definition in force, and where its capacity comes from. The definition's own capacity may not be
    /// the one that applies.
    Limit(Arc<Limit>, Level),
    /// The plan's quota of the meter. The ledger keeps its capacity and restores it to the gate.
    Quota(QuotaMode),
    /// The least time between calls of an operation.
    Interval(OperationInterval),
    /// How often a subject of this limit calls, and where the limit comes from.
    Anomaly(LimitId, Level),
}

impl Source {
    /// The word of what it is, in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Limit(..) => "limit",
            Self::Quota(_) => "quota",
            Self::Interval(_) => "interval",
            Self::Anomaly(..) => "anomaly",
        }
    }
}

/// The units that these amounts need of a counter with these lines and weights; where that overflows, more than any
/// counter has room for.
pub fn need(lines: &[(u8, i64)], amounts: &[Units]) -> i64 {
    let of_line = |&(line, weight): &(u8, i64)| {
        amounts.get(usize::from(line)).map_or(0, |amount| weight.saturating_mul(amount.get()))
    };
    lines.iter().map(of_line).fold(0, i64::saturating_add)
}

/// The least units that any part of these amounts needs of a counter with these lines and weights.
pub fn least_need(lines: &[(u8, i64)], amounts: &[Units]) -> i64 {
    let is_asked = |line: u8| amounts.get(usize::from(line)).is_some_and(|amount| *amount > Units::ZERO);
    lines.iter().filter(|(line, _)| is_asked(*line)).map(|(_, weight)| *weight).min().unwrap_or_default()
}

impl Counter {
    /// Whether it is a quota's.
    pub fn is_quota(&self) -> bool {
        matches!(self.source, Source::Quota(_))
    }

    /// What happens when the quota is used up; none for a limit.
    pub fn quota_mode(&self) -> Option<QuotaMode> {
        match self.source {
            Source::Quota(mode) => Some(mode),
            Source::Limit(..) | Source::Interval(_) | Source::Anomaly(..) => None,
        }
    }

    /// The limit that it belongs to; none for a quota.
    pub fn limit(&self) -> Option<&Limit> {
        match &self.source {
            Source::Limit(limit, _) => Some(limit),
            Source::Quota(_) | Source::Interval(_) | Source::Anomaly(..) => None,
        }
    }

    /// Whether it counts all tenants together.
    pub fn is_global(&self) -> bool {
        self.limit().is_some_and(Limit::is_global)
    }

    /// The meters and weights of a budget; none for a counter of one meter.
    pub fn budget(&self) -> Option<&BTreeMap<MeterId, Factor>> {
        match &self.limit()?.limited {
            Limited::Budget { meters, .. } => Some(meters),
            Limited::Meter(_) => None,
        }
    }

    /// Every meter that it counts, also those that no line of the request has.
    pub fn counted_meters(&self) -> Vec<CountedMeter> {
        CountedMeter::all(self.budgeted.as_deref(), &self.meter, self.decimals)
    }

    /// Its name in answers and reports: the limit's id, `quota:` and the meter, `interval:` and the operation, or
    /// `anomaly:` and the limit's id.
    pub fn name(&self) -> String {
        match &self.source {
            Source::Limit(limit, _) => limit.id.to_string(),
            Source::Quota(_) => format!("quota:{}", self.meter),
            Source::Interval(of) => format!("interval:{}", of.operation),
            Source::Anomaly(limit, _) => format!("anomaly:{limit}"),
        }
    }

    /// Whether it is the least time between calls of an operation.
    pub fn is_interval(&self) -> bool {
        matches!(self.source, Source::Interval(_))
    }

    /// Whether it is how often a subject calls.
    pub fn is_anomaly(&self) -> bool {
        self.anomaly_of().is_some()
    }

    /// The limit whose subjects' calls it times; none for another counter.
    pub fn anomaly_of(&self) -> Option<&LimitId> {
        match &self.source {
            Source::Anomaly(limit, _) => Some(limit),
            Source::Limit(..) | Source::Quota(_) | Source::Interval(_) => None,
        }
    }

    /// Where its capacity comes from.
    pub fn level(&self) -> Level {
        match &self.source {
            Source::Limit(_, level) | Source::Anomaly(_, level) => *level,
            Source::Quota(_) => Level::Plan,
            Source::Interval(_) => Level::Default,
        }
    }

    /// The operations whose use its limit counts; none for all.
    pub fn operations(&self) -> Option<&Vec<OperationId>> {
        self.limit().and_then(|limit| limit.operations.as_ref())
    }

    /// The stretch of time over which it counts.
    pub fn span(&self) -> Span {
        match &self.source {
            Source::Limit(limit, _) => limit.algorithm.span(),
            Source::Quota(_) => Span::Calendar(WindowKind::Period),
            Source::Interval(of) => of.interval.span(),
            Source::Anomaly(..) => anomaly::SPAN,
        }
    }

    /// The word of its algorithm.
    pub fn algorithm(&self) -> &'static str {
        let name = match &self.source {
            Source::Limit(limit, _) => limit.algorithm.name(),
            Source::Quota(_) => AlgorithmName::Calendar,
            Source::Interval(_) => AlgorithmName::Interval,
            Source::Anomaly(..) => AlgorithmName::Anomaly,
        };
        name.as_str()
    }

    /// The share of the capacity from which answers carry a warning, in percent.
    pub fn near_percent(&self) -> i64 {
        self.limit().map_or(QUOTA_NEAR_PERCENT, |limit| i64::from(limit.near_percent.get()))
    }

    /// An extra sentence for refusals.
    pub fn message(&self) -> Option<&str> {
        self.limit().and_then(|limit| limit.message.as_deref())
    }

    /// What its limit does to those whom it refuses again and again; none where it does nothing, or refuses nothing.
    pub fn punishment(&self) -> Option<&Punishment> {
        self.limit().filter(|_| self.kind.refuses())?.punishment.as_ref()
    }

    /// How work under it is treated while the gate does not answer: a hard quota denies, what refuses nothing allows.
    pub fn without_gate(&self) -> OnGateFailure {
        if !self.kind.refuses() || self.is_interval() || self.is_anomaly() {
            return OnGateFailure::Allow;
        }
        self.limit().map_or(OnGateFailure::Deny, |limit| limit.on_gate_failure)
    }

    /// Whether instances have shares of it, for work that comes while the gate does not answer.
    pub fn is_shared(&self) -> bool {
        self.without_gate() == OnGateFailure::Local
    }

    /// How much of it each instance admits in an emergency.
    pub fn emergency_capacity(&self) -> Units {
        let capacity = self.limit().and_then(|limit| limit.emergency_capacity).unwrap_or_default();
        capacity.floor_units(self.decimals)
    }

    /// Its capacity for new work, as the load scales it.
    pub fn scaled_capacity(&self) -> Units {
        self.load.scale(self.capacity)
    }

    /// Whether only the load stands in the way of so much.
    pub fn fits_without_load(&self, need: Units) -> bool {
        self.scaled_capacity() < need && need <= self.capacity
    }

    /// Above how much it refuses new work: its capacity, or what no counter goes beyond.
    pub fn refuses_above(&self) -> Units {
        if self.kind.refuses() { self.scaled_capacity() } else { Units::MAX }
    }

    /// Up to how much it counts new work: its capacity, or what no counter goes beyond.
    pub fn counts_up_to(&self) -> Units {
        if self.kind.is_bounded() { self.scaled_capacity() } else { Units::MAX }
    }

    /// The index of the request's subject that it counts; none for the whole tenant.
    pub fn subject_index(&self) -> Option<usize> {
        usize::from(self.scope_index).checked_sub(1)
    }

    /// The request's subject that it counts; none for the whole tenant.
    pub fn subject<'a, T>(&self, subjects: &'a [T]) -> Option<&'a T> {
        subjects.get(self.subject_index()?)
    }

    /// The first line that it counts.
    pub fn line(&self) -> usize {
        self.lines.first().map_or(0, |(line, _)| usize::from(*line))
    }

    /// Its calendar window; none where it does not count by the calendar.
    pub fn window(&self) -> Option<Window> {
        self.parameters.window()
    }

    /// The window of a counter that the ledger can restore; none for one of class rate.
    pub fn booked_window(&self) -> Option<Window> {
        self.window().filter(|_| self.class == Class::Quota)
    }

    /// The latest time at which all that is counted at `at_ms` has left it (unix ms).
    pub fn ends_at_ms(&self, at_ms: i64) -> i64 {
        self.parameters.ends_at_ms(at_ms, self.capacity.get())
    }

    /// When it forgets what it counts (unix ms); `told_ms` is the gate's value.
    pub fn resets_at_ms(&self, told_ms: Option<i64>, now_ms: i64) -> i64 {
        let of_calendar = self.window().map(|window| window.end_ms);
        of_calendar.or(told_ms).unwrap_or_else(|| self.ends_at_ms(now_ms))
    }

    /// Whether the window that ends at `told_ms`, the gate's value, is over; false for a counter without windows.
    pub fn is_over(&self, told_ms: Option<i64>, now_ms: i64) -> bool {
        self.parameters.has_windows() && self.resets_at_ms(told_ms, now_ms) <= now_ms
    }

    /// Whether the ledger can restore it and it was created inside its current window.
    pub fn is_new(&self) -> bool {
        self.booked_window().is_some_and(|window| self.since_ms > window.start_ms)
    }

    /// How a record refers to it. `is_capped`: one of its lines is cut to what is left.
    pub fn place(&self, is_capped: bool) -> CounterRef {
        // A record has a calendar window's end only where a line is cut by it.
        let parameters = match self.window() {
            Some(window) if !is_capped => {
                let window = Window { end_ms: window.start_ms, ..window };
                Parameters::Calendar(calendar::Parameters { window })
            }
            _ => self.parameters,
        };
        // The load holds new work back; what work that was admitted may use, it does not cut.
        let without_load = if self.kind.refuses() { self.capacity } else { Units::MAX };
        let capacity =
            if self.is_quota() { PlaceCapacity::Quota } else { PlaceCapacity::Limit(without_load) };
        CounterRef {
            scope_index: self.scope_index,
            is_light: self.is_light,
            field: self.field,
            parameters,
            cap: is_capped.then_some(capacity),
            lines: self.lines.clone(),
            is_quota: Some(self.is_quota()),
        }
    }

    /// Whether a record's counter is this one: by the calendar only in the current window, otherwise in any.
    pub fn is_at(&self, place: &CounterRef) -> bool {
        let starts = |window: Option<Window>| window.map(|window| window.start_ms);
        (self.scope_index, self.field) == (place.scope_index, place.field)
            && starts(self.window()) == starts(place.parameters.window())
    }
}
