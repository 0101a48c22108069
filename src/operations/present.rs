//! From what the gate answers to what the API shows: one function for each shape, used by every verb.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use jiff::Timestamp;

use super::answers::*;
use crate::domain::amount::{Decimals, Units};
use crate::domain::counter::Counter;
use crate::domain::ids::{ReservationId, Subject};
use crate::domain::limit::Class;
use crate::domain::reservation::{BodyRest, Record, ReservationState};
use crate::gate::CounterReading;

/// An instant as the API writes it: RFC 3339 in UTC. Beyond the calendar's end it stays at the end.
pub(super) fn instant(unix_ms: i64) -> String {
    Timestamp::from_millisecond(unix_ms).unwrap_or(Timestamp::MAX).to_string()
}

/// Units as the API writes them.
pub(super) fn amount(units: Units, decimals: Decimals) -> String {
    units.to_amount(decimals).to_string()
}

/// Units of a counter that may be damaged, as the API writes amounts.
pub(super) fn signed_amount(units: i64, decimals: Decimals) -> String {
    rust_decimal::Decimal::new(units, u32::from(decimals.count())).normalize().to_string()
}

/// Whole seconds until `end_ms`, rounded up, at least 0.
pub(super) fn seconds_until(end_ms: i64, now_ms: i64) -> i64 {
    (end_ms - now_ms).max(0).div_euclid(1000) + i64::from((end_ms - now_ms).max(0) % 1000 != 0)
}

/// A counter's capacity: a limit's from policy, a quota's as the gate has it.
pub(super) fn capacity(counter: &Counter, reading: &CounterReading) -> Units {
    match counter.is_quota() {
        true => reading.room.and_then(|room| capacity_of(reading, room)).unwrap_or(counter.capacity),
        false => counter.capacity,
    }
}

fn capacity_of(reading: &CounterReading, room: i64) -> Option<Units> {
    Units::new(room + reading.consumed.get() + reading.reserved.get())
}

/// What of a counter's capacity is left.
pub(super) fn remaining(counter: &Counter, reading: &CounterReading) -> Units {
    let left =
        || capacity(counter, reading).saturating_sub(reading.consumed).saturating_sub(reading.reserved);
    reading.room.map_or_else(left, |room| Units::new(room.max(0)).unwrap_or_default())
}

/// When a counter forgets what it counts (unix ms).
pub(super) fn resets_at_ms(counter: &Counter, reading: &CounterReading, now_ms: i64) -> i64 {
    let of_calendar = counter.window().map(|window| window.end_ms);
    of_calendar.or(reading.resets_at_ms).unwrap_or_else(|| counter.parameters.ends_at_ms(now_ms))
}

/// A limit or quota as an answer shows it, with the gate's reading of its counter.
pub(super) fn limit<T: Borrow<Subject>>(
    counter: &Counter,
    subjects: &[T],
    reading: &CounterReading,
    now_ms: i64,
) -> LimitAnswer {
    let write = |units| amount(units, counter.decimals);
    let capacity = capacity(counter, reading);
    let remaining = remaining(counter, reading);
    let subject = counter.subject(subjects).map(T::borrow);
    let resets_at_ms = resets_at_ms(counter, reading, now_ms);
    let span = counter.span();
    let window_seconds = counter.window().map(|window| (window.end_ms - window.start_ms) / 1000);
    let whole = 10_i64.pow(u32::from(counter.decimals.count()));
    LimitAnswer {
        id: counter.name(),
        meter: counter.meter.to_string(),
        scope: if subject.is_some() { "subject" } else { "tenant" }.into(),
        subject: subject.map(subject_answer),
        algorithm: counter.algorithm().into(),
        window: span.word().map(str::to_owned),
        window_seconds: span.seconds(),
        capacity: write(capacity),
        consumed: write(reading.consumed),
        reserved: write(reading.reserved),
        remaining: write(remaining),
        resets_at: instant(resets_at_ms),
        kind: "hard".into(),
        class: if counter.class == Class::Rate { "rate" } else { "quota" }.into(),
        level: counter.level().as_str().into(),
        header: LimitHeader {
            quota: capacity.get() / whole,
            remaining: remaining.get() / whole,
            window_seconds: window_seconds.or(span.seconds().map(i64::from)).unwrap_or_default(),
            reset_seconds: seconds_until(resets_at_ms, now_ms),
        },
    }
}

/// A warning when a counter has come near its capacity.
pub(super) fn near_limit(
    counter: &Counter,
    reading: &CounterReading,
    answer: &LimitAnswer,
) -> Option<WarningAnswer> {
    let used = i128::from(reading.consumed.get()) + i128::from(reading.reserved.get());
    let near =
        used * 100 >= i128::from(capacity(counter, reading).get()) * i128::from(counter.near_percent());
    (near && used > 0).then(|| WarningAnswer {
        code: "near_limit".into(),
        limit: Some(answer.id.clone()),
        detail: format!("{} of {} are left until {}", answer.remaining, answer.capacity, answer.resets_at),
    })
}

fn subject_answer(subject: &Subject) -> SubjectAnswer {
    SubjectAnswer { kind: subject.kind.to_string(), id: subject.id.to_string() }
}

/// The subjects of a reservation by kind.
pub(super) fn subjects_by_kind<'a>(
    subjects: impl IntoIterator<Item = &'a Subject>,
) -> BTreeMap<String, String> {
    subjects.into_iter().map(|subject| (subject.kind.to_string(), subject.id.to_string())).collect()
}

/// A name for a decision that leaves nothing behind by which it could be named again.
pub(super) fn decision_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// The name of the decision that was a reservation's change of this step: the same for whoever asks again.
pub(super) fn decision_of(id: ReservationId, step: u32) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(id.as_bytes());
    hasher.update(&step.to_le_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    uuid::Builder::from_custom_bytes(short).into_uuid().to_string()
}

/// What only one answer knows of a reservation.
#[derive(Default)]
pub(super) struct Circumstances {
    /// Whether this answers a repeat.
    pub(super) replayed: bool,
    /// Whether the gate is away, so that this is what the ledger knows.
    pub(super) degraded: bool,
    /// `ledger` once the books have it.
    pub(super) ack_ledger: bool,
    /// The limits it moved.
    pub(super) limits: Vec<LimitAnswer>,
    /// Near limits.
    pub(super) warnings: Vec<WarningAnswer>,
    /// When it was resolved, where that is known.
    pub(super) resolved_at_ms: Option<i64>,
}

/// A reservation as consume, release, extend, usage and GET answer it.
pub(super) fn reservation(id: ReservationId, record: &Record, told: Circumstances) -> ReservationAnswer {
    let state = record.head.state;
    let rest = record.body.rest.as_ref();
    let takes_more = match state {
        ReservationState::Reserved => true,
        ReservationState::Expired => record.head.late,
        ReservationState::Consumed | ReservationState::Released => false,
    };
    let mut warnings = told.warnings;
    warnings.extend(flags(record));
    ReservationAnswer {
        id: id.to_string(),
        tenant: record.body.tenant.to_string(),
        status: state.as_str().into(),
        is_final: !takes_more,
        late: record.head.late,
        replayed: told.replayed,
        degraded: told.degraded || record.head.degraded,
        ack: if told.ack_ledger { "ledger" } else { "gate" }.into(),
        decision_id: decision_of(id, record.head.step),
        lines: lines(record),
        created_at: instant(record.head.born_at_ms),
        resolved_at: told.resolved_at_ms.map(instant),
        expires_at: instant(record.head.expires_at_ms),
        limits: told.limits,
        warnings,
        operation: rest.and_then(|rest| rest.operation.as_ref()).map(ToString::to_string),
        subjects: rest.map(|rest| subjects_by_kind(rest.subjects.iter().map(|(subject, _)| subject))),
        metadata: rest.and_then(metadata),
    }
}

fn metadata(rest: &BodyRest) -> Option<serde_json::Value> {
    if rest.metadata.is_empty() { None } else { serde_json::from_str(&rest.metadata).ok() }
}

fn lines(record: &Record) -> Vec<ConsumedLineAnswer> {
    let resolved = record.head.state != ReservationState::Reserved;
    let all = record.body.lines.iter().zip(&record.units);
    all.map(|(line, units)| {
        let write = |units| amount(units, line.decimals);
        let returned = if resolved { units.outstanding() } else { Units::ZERO };
        ConsumedLineAnswer {
            meter: line.meter.to_string(),
            reserved: write(units.held),
            consumed: write(units.consumed),
            returned: write(returned),
            excess: write(if units.held == Units::ZERO && !record.head.late && record.head.step == 1 {
                Units::ZERO
            } else {
                units.excess()
            }),
            uncharged: (units.uncharged > Units::ZERO).then(|| write(units.uncharged)),
        }
    })
    .collect()
}

fn flags(record: &Record) -> Vec<WarningAnswer> {
    let mut warnings = Vec::new();
    if record.head.late {
        warnings.push(WarningAnswer {
            code: "late".into(),
            limit: None,
            detail: format!(
                "the reservation had expired at {}; what was used is charged once",
                instant(record.head.expires_at_ms)
            ),
        });
    }
    for (line, units) in record.body.lines.iter().zip(&record.units) {
        if units.held > Units::ZERO && units.excess() > Units::ZERO {
            warnings.push(WarningAnswer {
                code: "excess".into(),
                limit: None,
                detail: format!(
                    "{} of {} were consumed above the hold of {}",
                    amount(units.excess(), line.decimals),
                    line.meter,
                    amount(units.held, line.decimals)
                ),
            });
        }
    }
    warnings
}
