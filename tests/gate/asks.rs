//! What tests ask of the gate, in short words: lines, counters, amounts.

use std::sync::Arc;

use tollgate::domain::algorithms::{Parameters, calendar};
use tollgate::domain::amount::{Amount, Decimals, Units};
use tollgate::domain::counter::{Counter, Source};
use tollgate::domain::ids::{MeterId, Subject, SubjectId, SubjectKind};
use tollgate::domain::limit::{Class, Kind};
use tollgate::domain::load::LoadLevel;
use tollgate::domain::period::Window;
use tollgate::domain::plan::QuotaMode;
use tollgate::domain::policy::Level;
use tollgate::domain::reservation::{CounterField, OnExcess, OnLate};
use tollgate::gate::{ReserveMode, Totals};

use super::world::{START_MS, TTL_MS, WINDOW};

/// Units of this number.
pub fn units(value: i64) -> Units {
    Units::new(value).unwrap()
}

/// A list of units.
pub fn all_units(values: &[i64]) -> Vec<Units> {
    values.iter().map(|&value| units(value)).collect()
}

/// A counter's field.
pub fn field(name: &[u8; 8]) -> CounterField {
    CounterField(*name)
}

/// One line of a request.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its meter.
    pub meter: &'static str,
    /// What is asked for.
    pub amount: i64,
    /// The meter's rules.
    pub rule: (u8, OnExcess, OnLate, u32),
}

/// A line of a whole-number meter with default rules.
pub fn line(meter: &'static str, amount: i64) -> Line {
    Line { meter, amount, rule: (0, OnExcess::Record, OnLate::Charge, 604_800) }
}

/// What a reserve asks for.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The idempotency key.
    pub key: String,
    /// Whether the caller gave it.
    pub keyed: bool,
    /// Its meaning, for the fingerprint.
    pub meaning: u8,
    /// How to treat what does not fit.
    pub mode: ReserveMode,
    /// The lines.
    pub lines: Vec<Line>,
    /// The counters.
    pub checks: Vec<Counter>,
    /// The subjects.
    pub subjects: Vec<Subject>,
    /// The hold's length.
    pub ttl_ms: i64,
    /// The longest life.
    pub max_life_ms: i64,
    /// In which times the windows are current.
    pub valid: (i64, i64),
    /// Whether a filter knows its key.
    pub may_be_known: bool,
    /// Whether the ledger was asked.
    pub ledger_asked: bool,
    /// Whether the record is a former version's, which does not say which counters are quotas.
    pub is_former: bool,
    /// The clock.
    pub now_ms: i64,
}

/// An ask for these lines under these counters.
pub fn ask(key: &str, lines: Vec<Line>, checks: Vec<Counter>) -> Ask {
    Ask {
        key: key.into(),
        keyed: true,
        meaning: 1,
        mode: ReserveMode::AllOrNothing,
        lines,
        checks,
        subjects: Vec::new(),
        ttl_ms: TTL_MS,
        max_life_ms: 600_000,
        valid: WINDOW,
        may_be_known: false,
        ledger_asked: false,
        is_former: false,
        now_ms: START_MS,
    }
}

/// So many pages under the day's limit of 100.
pub fn pages(key: &str, amount: i64) -> Ask {
    ask(key, vec![line("ocr.page", amount)], vec![day(100)])
}

impl Ask {
    /// Under these counters instead.
    pub fn under(self, checks: impl IntoIterator<Item = Counter>) -> Self {
        Self { checks: checks.into_iter().collect(), ..self }
    }

    /// For this subject.
    pub fn of(self, subject: &Subject) -> Self {
        Self { subjects: vec![subject.clone()], ..self }
    }

    /// At this time.
    pub fn at(self, now_ms: i64) -> Self {
        Self { now_ms, ..self }
    }

    /// In this mode.
    pub fn by(self, mode: ReserveMode) -> Self {
        Self { mode, ..self }
    }

    /// For so long.
    pub fn lasting(self, ttl_ms: i64) -> Self {
        Self { ttl_ms, ..self }
    }

    /// With another meaning under the same key.
    pub fn with_meaning(self, meaning: u8) -> Self {
        Self { meaning, ..self }
    }

    /// With these rules of its first line's meter.
    pub fn ruled(mut self, on_excess: OnExcess, on_late: OnLate) -> Self {
        self.lines[0].rule = (0, on_excess, on_late, 100);
        self
    }
}

/// A limit of the tenant over the first line.
pub fn limit(name: &[u8; 8], capacity: i64) -> Counter {
    let definition = serde_json::json!({ "id": "limit", "meter": "page", "window": "day", "capacity": "1" });
    Counter {
        scope_index: 0,
        is_light: false,
        field: field(name),
        kind: Kind::Hard,
        class: Class::Rate,
        lines: vec![(0, 1)],
        capacity: units(capacity),
        load: LoadLevel::Full,
        parameters: in_window(WINDOW.0, WINDOW.1),
        since_ms: 0,
        meter: MeterId::parse("page").unwrap(),
        decimals: Decimals::default(),
        budgeted: None,
        source: Source::Limit(Arc::new(serde_json::from_value(definition).unwrap()), Level::Tenant),
    }
}

/// By this window of the calendar.
pub fn in_window(start_ms: i64, end_ms: i64) -> Parameters {
    Parameters::Calendar(calendar::Parameters { window: Window { start_ms, end_ms } })
}

/// The limit of a day.
pub fn day(capacity: i64) -> Counter {
    limit(b"day-----", capacity)
}

/// A quota, whose capacity is restored to the gate.
pub fn quota(name: &[u8; 8]) -> Counter {
    Counter { source: Source::Quota(QuotaMode::default()), ..limit(name, 0) }
}

/// As a counter that, where it is missing, is not simply zero.
pub fn kept(counter: Counter) -> Counter {
    Counter { class: Class::Quota, ..counter }
}

/// As a counter of this subject of the call, counted from 1.
pub fn of_subject(scope_index: u8, counter: Counter) -> Counter {
    Counter { scope_index, ..counter }
}

/// As a counter that counts each line by its weight.
pub fn weighted(weights: &[i64], counter: Counter) -> Counter {
    let lines = (0..).zip(weights.iter().copied()).filter(|(_, weight)| *weight > 0).collect();
    Counter { lines, ..counter }
}

/// As a counter of the window that begins then.
pub fn from_ms(start_ms: i64, counter: Counter) -> Counter {
    Counter { parameters: in_window(start_ms, WINDOW.1), ..counter }
}

/// A subject of kind user.
pub fn user(id: &str) -> Subject {
    Subject { kind: SubjectKind::parse("user").unwrap(), id: SubjectId::parse(id).unwrap() }
}

/// One amount for the single line.
pub fn total(text: &str) -> Totals {
    Totals::Single(Amount::parse(text).unwrap())
}

/// Amounts by meter.
pub fn totals(named: &[(&str, &str)]) -> Totals {
    let one = |(meter, text): &(&str, &str)| (MeterId::parse(meter).unwrap(), Amount::parse(text).unwrap());
    Totals::ByMeter(named.iter().map(one).collect())
}
