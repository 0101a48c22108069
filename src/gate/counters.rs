//! Packs counters for the scripts.

use crate::domain::algorithms::Parameters;
use crate::domain::amount::Units;
use crate::domain::codec::Write;
use crate::domain::counter::{Counter, need};
use crate::domain::limit::{Class, Kind, Limit};
use crate::domain::parked::CounterLife;
use crate::domain::punishment::Punishment;
use crate::domain::reservation::{CounterField, CounterRef, LIGHT_SCOPE, LINES_MAX};

use super::conduct::pack_punishment;

const QUOTA_CAPACITY: i64 = -2;
const WEIGHTED: u8 = 16;
const RATE: u8 = 32;
const SHADOW: u8 = 64;
const PUNISHED: u8 = 128;

/// What a script needs of one counter.
#[derive(Clone, Copy)]
pub(super) struct Count<'a> {
    scope_index: u8,
    is_light: bool,
    field: CounterField,
    parameters: Parameters,
    lines: &'a [(u8, i64)],
    class: Class,
    is_shadow: bool,
    punished: Option<(&'a Limit, &'a Punishment)>,
    since_ms: i64,
    capacity: i64,
}

impl<'a> Count<'a> {
    /// A counter that a call may move.
    pub(super) fn of(counter: &'a Counter) -> Self {
        Self {
            scope_index: counter.scope_index,
            is_light: counter.is_light,
            field: counter.field,
            parameters: counter.parameters,
            lines: &counter.lines,
            class: counter.class,
            is_shadow: counter.kind == Kind::Shadow,
            punished: counter.limit().zip(counter.punishment()),
            since_ms: counter.since_ms,
            capacity: if counter.is_quota() { QUOTA_CAPACITY } else { counter.counts_up_to().get() },
        }
    }

    /// A counter that is only read: no line moves it.
    pub(super) fn read(counter: &'a Counter) -> Self {
        Self { punished: None, ..Self::read_with_conduct(counter) }
    }

    /// The same with what its limit remembers of whom it counts.
    pub(super) fn read_with_conduct(counter: &'a Counter) -> Self {
        Self { lines: &[(0, 1)], ..Self::of(counter) }
    }

    /// The same among the keys of another call: 0 is the tenant's, 1 a subject's.
    pub(super) fn in_scope(self, scope_index: u8) -> Self {
        Self { scope_index, is_light: false, ..self }
    }

    /// The same without its capacity.
    pub(super) fn without_capacity(self) -> Self {
        Self { capacity: 0, ..self }
    }

    /// A counter of an admission that no capacity can refuse any more.
    pub(super) fn at(place: &'a CounterRef, life: &CounterLife) -> Self {
        Self {
            scope_index: place.scope_index,
            is_light: place.is_light,
            field: place.field,
            parameters: place.parameters,
            lines: &place.lines,
            class: if life.starts_fresh { Class::Rate } else { Class::Quota },
            is_shadow: false,
            punished: None,
            since_ms: life.since_ms,
            capacity: 0,
        }
    }
}

/// Checks what scripts assume of their counters.
pub(super) fn check_counters(
    counters: &[Count<'_>],
    subject_count: usize,
    line_count: usize,
) -> Result<(), &'static str> {
    let mut seen = Vec::with_capacity(counters.len());
    for counter in counters {
        if usize::from(counter.scope_index) > subject_count {
            return Err("a counter's subject is not among those named");
        }
        let is_wrong = |&(line, weight): &(u8, i64)| usize::from(line) >= line_count || weight < 1;
        if counter.lines.len() > LINES_MAX || counter.lines.iter().any(is_wrong) {
            return Err("a counter's lines or weights are out of bounds");
        }
        if seen.contains(&(counter.scope_index, counter.field)) {
            return Err("a counter is named twice");
        }
        seen.push((counter.scope_index, counter.field));
    }
    Ok(())
}

/// Layout, each part for all counters before the next part begins:
/// ```text
/// B counters  B quotas  B counters of subjects
/// per counter: B scope_index, + 128 for a light counter of a booked call
/// per counter: c8 field; then per quota: c9 `q` and its field
/// per counter: i8 capacity (-2: the quota's)  i8 need  B algorithm  its parameters
/// per counter: i8 since  B flags  [its punishment]  per line: B line [i8 weight]
/// ```
/// `need` is the units that the amounts of the lines need of the counter; flags = lines + 16 weighted + 32 rate + 64
/// shadow + 128 punished. [`pack_punishment`] has the layout of a punishment.
pub(super) fn pack_counters(counters: &[Count<'_>], amounts: &[Units], out: &mut Vec<u8>) {
    let quotas = || counters.iter().filter(|counter| counter.capacity == QUOTA_CAPACITY);
    let of_subjects = counters.iter().filter(|counter| counter.scope_index > 0).count();
    for number in [counters.len(), quotas().count(), of_subjects] {
        out.put_byte(u8::try_from(number).unwrap_or(u8::MAX));
    }
    let light = |counter: &Count<'_>| if counter.is_light { LIGHT_SCOPE } else { 0 };
    out.extend(counters.iter().map(|counter| counter.scope_index | light(counter)));
    for counter in counters {
        out.extend_from_slice(&counter.field.0);
    }
    for quota in quotas() {
        out.put_byte(b'q');
        out.extend_from_slice(&quota.field.0);
    }
    for counter in counters {
        out.put_8(counter.capacity);
        out.put_8(need(counter.lines, amounts));
        out.put_byte(counter.parameters.code());
        counter.parameters.encode(out);
    }
    for counter in counters {
        let weighted = counter.lines.iter().any(|(_, weight)| *weight != 1);
        let lines = u8::try_from(counter.lines.len()).unwrap_or(u8::MAX);
        let flags = [
            (weighted, WEIGHTED),
            (counter.class == Class::Rate, RATE),
            (counter.is_shadow, SHADOW),
            (counter.punished.is_some(), PUNISHED),
        ];
        let flags = flags.iter().map(|(is_set, flag)| if *is_set { *flag } else { 0 });
        out.put_8(counter.since_ms);
        out.put_byte(lines | flags.sum::<u8>());
        if let Some((limit, punishment)) = counter.punished {
            pack_punishment(limit, punishment, out);
        }
        for (line, weight) in counter.lines {
            out.put_byte(*line);
            if weighted {
                out.put_8(*weight);
            }
        }
    }
}
