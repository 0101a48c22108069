//! A counter: what one limit or quota counts for one scope, from policy to the wire.

use std::sync::Arc;

use super::algorithms::{Parameters, calendar};
use super::amount::{Decimals, Units};
use super::ids::{MeterId, OperationId};
use super::limit::{Class, Limit, OnGateFailure, Span};
use super::period::{Window, WindowKind};
use super::policy::Level;
use super::reservation::{CounterField, CounterRef, PlaceCapacity};

/// From which share of a quota's capacity on answers carry a warning, in percent.
const QUOTA_NEAR_PERCENT: i64 = 80;

/// What one limit or quota counts for the tenant, or for one subject, at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Whose use it counts: 0 is the tenant's, n the n-th subject's of the request.
    pub scope_index: u8,
    /// Its field in the scope's state hash.
    pub field: CounterField,
    /// Whether its count survives the loss of the gate's memory.
    pub class: Class,
    /// The lines of the request that it counts, each with the units that it counts for one unit of the line.
    pub lines: Vec<(u8, i64)>,
    /// A limit's capacity, overrides included; what a quota includes in each period.
    pub capacity: Units,
    /// How it counts now.
    pub parameters: Parameters,
    /// When it was created (unix ms): a window that began later started at zero.
    pub since_ms: i64,
    /// What it counts.
    pub meter: MeterId,
    /// Its meter's decimals.
    pub decimals: Decimals,
    /// What it was made for.
    pub source: Source,
}

/// What a counter was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A limit: the definition that won, and where its capacity comes from. The definition's own capacity is not what counts.
    Limit(Arc<Limit>, Level),
    /// The plan's quota of the meter. Its capacity is the ledger's, which the gate is told.
    Quota,
}

impl Counter {
    /// Whether it is a quota's.
    pub fn is_quota(&self) -> bool {
        matches!(self.source, Source::Quota)
    }

    /// The limit that it counts for; none for a quota.
    pub fn limit(&self) -> Option<&Limit> {
        match &self.source {
            Source::Limit(limit, _) => Some(limit),
            Source::Quota => None,
        }
    }

    /// Its name in answers and reports: the limit's id, or `quota:` and the meter.
    pub fn name(&self) -> String {
        self.limit().map_or_else(|| format!("quota:{}", self.meter), |limit| limit.id.to_string())
    }

    /// Where its capacity comes from.
    pub fn level(&self) -> Level {
        match &self.source {
            Source::Limit(_, level) => *level,
            Source::Quota => Level::Plan,
        }
    }

    /// The operations whose use it counts; none for all.
    pub fn operations(&self) -> Option<&Vec<OperationId>> {
        self.limit().and_then(|limit| limit.operations.as_ref())
    }

    /// Over which stretch of time it counts.
    pub fn span(&self) -> Span {
        self.limit().map_or(Span::Calendar(WindowKind::Period), |limit| limit.algorithm.span())
    }

    /// The word of its algorithm.
    pub fn algorithm(&self) -> &'static str {
        self.limit().map_or("calendar", |limit| limit.algorithm.name().as_str())
    }

    /// From which share of the capacity on answers carry a warning, in percent.
    pub fn near_percent(&self) -> i64 {
        self.limit().map_or(QUOTA_NEAR_PERCENT, |limit| i64::from(limit.near_percent.get()))
    }

    /// What a refusal says besides.
    pub fn message(&self) -> Option<&str> {
        self.limit().and_then(|limit| limit.message.as_deref())
    }

    /// Whether work under it may be admitted without being measured.
    pub fn allows_without_gate(&self) -> bool {
        self.limit().is_some_and(|limit| limit.on_gate_failure == OnGateFailure::Allow)
    }

    /// The index of the request's subject whose use it counts; none for the whole tenant's.
    pub fn subject_index(&self) -> Option<usize> {
        usize::from(self.scope_index).checked_sub(1)
    }

    /// The request's subject whose use it counts; none for the whole tenant's.
    pub fn subject<'a, T>(&self, subjects: &'a [T]) -> Option<&'a T> {
        subjects.get(self.subject_index()?)
    }

    /// The first line that it counts.
    pub fn line(&self) -> usize {
        self.lines.first().map_or(0, |(line, _)| usize::from(*line))
    }

    /// The calendar's window that it counts in; none where no calendar cuts it.
    pub fn window(&self) -> Option<Window> {
        self.parameters.window()
    }

    /// The window of a counter that the ledger can tell: none for one of class rate.
    pub fn booked_window(&self) -> Option<Window> {
        self.window().filter(|_| self.class == Class::Quota)
    }

    /// When all that is counted at `at_ms` has left it, at the latest (unix ms).
    pub fn ends_at_ms(&self, at_ms: i64) -> i64 {
        self.parameters.ends_at_ms(at_ms, self.capacity.get())
    }

    /// When it forgets what it counts (unix ms); `told_ms` is what the gate says of it.
    pub fn resets_at_ms(&self, told_ms: Option<i64>, now_ms: i64) -> i64 {
        let of_calendar = self.window().map(|window| window.end_ms);
        of_calendar.or(told_ms).unwrap_or_else(|| self.ends_at_ms(now_ms))
    }

    /// Whether the window that the gate tells of is over, where it counts by windows.
    pub fn is_over(&self, told_ms: Option<i64>, now_ms: i64) -> bool {
        self.parameters.has_windows() && self.resets_at_ms(told_ms, now_ms) <= now_ms
    }

    /// Whether the ledger can tell it and it was created inside the window it counts in.
    pub fn is_new(&self) -> bool {
        self.booked_window().is_some_and(|window| self.since_ms > window.start_ms)
    }

    /// Where a reservation under it is counted. `is_capped`: one of its lines is cut at what is left.
    pub fn place(&self, is_capped: bool) -> CounterRef {
        // A record says a calendar window's end only where a line is cut by it.
        let parameters = match self.window() {
            Some(window) if !is_capped => {
                let window = Window { end_ms: window.start_ms, ..window };
                Parameters::Calendar(calendar::Parameters { window })
            }
            _ => self.parameters,
        };
        let capacity =
            if self.is_quota() { PlaceCapacity::Quota } else { PlaceCapacity::Limit(self.capacity) };
        CounterRef {
            scope_index: self.scope_index,
            field: self.field,
            parameters,
            cap: is_capped.then_some(capacity),
            lines: self.lines.clone(),
            is_quota: Some(self.is_quota()),
        }
    }

    /// Whether a reservation was counted here: of the calendar in the window of now, else in whatever window there was.
    pub fn is_at(&self, place: &CounterRef) -> bool {
        let starts = |window: Option<Window>| window.map(|window| window.start_ms);
        (self.scope_index, self.field) == (place.scope_index, place.field)
            && starts(self.window()) == starts(place.parameters.window())
    }
}
