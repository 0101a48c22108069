//! Counters as the scripts are told of them.

use crate::domain::algorithms::Parameters;
use crate::domain::codec::Write;
use crate::domain::counter::Counter;
use crate::domain::limit::Class;
use crate::domain::parked::CounterLife;
use crate::domain::reservation::{CounterField, CounterRef, LINES_MAX};

const QUOTA_CAPACITY: i64 = -2;
const WEIGHTED: u8 = 16;
const RATE: u8 = 32;

/// What a script has to know of one counter.
#[derive(Clone, Copy)]
pub(super) struct Count<'a> {
    scope_index: u8,
    field: CounterField,
    parameters: Parameters,
    lines: &'a [(u8, i64)],
    class: Class,
    since_ms: i64,
    capacity: i64,
}

impl<'a> Count<'a> {
    /// A counter that a call is measured against.
    pub(super) fn of(counter: &'a Counter) -> Self {
        Self {
            scope_index: counter.scope_index,
            field: counter.field,
            parameters: counter.parameters,
            lines: &counter.lines,
            class: counter.class,
            since_ms: counter.since_ms,
            capacity: if counter.is_quota() { QUOTA_CAPACITY } else { counter.capacity.get() },
        }
    }

    /// A counter that is only read: no line moves it.
    pub(super) fn read(counter: &'a Counter) -> Self {
        Self { lines: &[(0, 1)], ..Self::of(counter) }
    }

    /// The same where its capacity plays no part.
    pub(super) fn without_capacity(self) -> Self {
        Self { capacity: 0, ..self }
    }

    /// A place of an admission that no capacity refuses any more.
    pub(super) fn at(place: &'a CounterRef, life: &CounterLife) -> Self {
        Self {
            scope_index: place.scope_index,
            field: place.field,
            parameters: place.parameters,
            lines: &place.lines,
            class: if life.starts_fresh { Class::Rate } else { Class::Quota },
            since_ms: life.since_ms,
            capacity: 0,
        }
    }
}

/// What scripts take for granted of the counters they are given.
pub(super) fn check_counters<'a>(
    counters: impl Iterator<Item = Count<'a>>,
    subject_count: usize,
    line_count: usize,
) -> Result<(), &'static str> {
    let mut seen = Vec::with_capacity(32);
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

/// Layout: `B count`, then per counter `B scope_index  c8 field  i8 since  i8 capacity  B flags  B algorithm`, the algorithm's
/// parameters, and per line `B line  [i8 weight]`. A capacity of -2 is the quota's, which stands under `q` and the field;
/// flags = lines + 16 weighted + 32 rate.
pub(super) fn pack_counters<'a>(counters: impl ExactSizeIterator<Item = Count<'a>>, out: &mut Vec<u8>) {
    out.put_byte(u8::try_from(counters.len()).unwrap_or(u8::MAX));
    for counter in counters {
        let weighted = counter.lines.iter().any(|(_, weight)| *weight != 1);
        let lines = u8::try_from(counter.lines.len()).unwrap_or(u8::MAX);
        let is_rate = counter.class == Class::Rate;
        out.put_byte(counter.scope_index);
        out.extend_from_slice(&counter.field.0);
        out.put_8(counter.since_ms);
        out.put_8(counter.capacity);
        out.put_byte(lines | if weighted { WEIGHTED } else { 0 } | if is_rate { RATE } else { 0 });
        out.put_byte(counter.parameters.code());
        counter.parameters.encode(out);
        for (line, weight) in counter.lines {
            out.put_byte(*line);
            if weighted {
                out.put_8(*weight);
            }
        }
    }
}
