//! The one packed form of a record, in Redis, in events and in the ledger.
//!
//! Layout (little-endian, no padding; [`crate::domain::codec`]):
//! ```text
//! record  = head lines body
//! head    = B layout(1 to 4)  B state  B line_count  B flags  I4 step  i8 epoch  i8 expires_at_ms  i8 born_at_ms
//!           i8 latest_expiry_ms  i8 last_sequence                                     (48 bytes, rewritten by scripts)
//! lines   = per line: i8 held  i8 consumed   [flags & 8: per line: i8 uncharged]  [flags & 16: i8 start_after_ms]
//!           [layout 3 or 4: I4 unmoved]                                             (rewritten by scripts)
//! body    = core places tail                                                   (packed once in Rust, never rewritten)
//! core    = c16 fingerprint  I2 core_length  Bc0 tenant
//!           per line: Bc0 meter  B decimals  B rules  I4 late_within_seconds
//! places  = B subject_count  per subject: c13 hash
//!           B counter_count  per counter
//!             layout 1: B scope  c8 field  i8 window_start_ms  B flags
//!                       [flags & 32: i8 window_end_ms  i8 capacity]  per line: B line  [flags & 16: i8 weight]
//!             layout 2: B scope  c8 field  B flags  B algorithm  [flags & 32: i8 capacity]
//!                       the algorithm's parameters  per line as above
//! tail    = B tail_layout(1)  B keyed  per subject: Bc0 kind  Bc0 id  Bc0 operation  i8 policy_version
//!           i8 period_start_ms  i8 period_end_ms  i8 hour_start_ms  I2 metadata_length  c metadata
//!           [I4 quotas  B 128]
//! ```
//!
//! The head's `flags` = 1 late + 4 degraded + 8 a `cap` left units uncharged, which follow the lines, + 16 the work had
//! to wait for a queue, and for how long, + 32 it corrects what was used, + 64 by taking back. (In old versions 2 said
//! the 8, without the units.) Only a record of layout 2 has the 16, and with it a place that older versions do not
//! read. `rules` = on_excess (0 record, 1 cap, 2 reject) + 4 × on_late (0 charge, 1 reject) + 8 where what was held is
//! an estimate + 16 where the meter is not booked; older versions, which estimate nothing, do not know the 8, and none
//! but a light record had such a line before there was the 16.
//! A counter's `scope` = its scope's index + 128 where it is a light counter of a booked reservation.
//! A counter's `flags` = number of lines (1 to 8), plus 16 when weights are given (else each is 1), plus 32 when the
//! capacity is given (a line is `cap`).
//!
//! In layout 1, every counter counts by the calendar, and none is a light one. Layout 2 is used only for other records,
//! so that an older version, which reads only layout 1, never meets it while the policy has only calendars.
//!
//! Layouts 3 and 4 are 1 and 2 with `unmoved`: a bit for each counter that the record names and did not move, from the
//! lowest on. They are used only where there is one, which takes a shadow limit that would have refused, or a counter
//! that was lost with the gate's memory.
//!
//! `quotas` has a bit for each counter that is a quota's, from the lowest on. Older versions do not read it, and their
//! records end with the metadata. A capacity of -2 means the quota's, read at the gate. A tombstone (consumed,
//! released) keeps only head, lines and core.

use super::*;
use crate::domain::algorithms::calendar;
use crate::domain::amount::Decimals;
use crate::domain::codec::{Reader, Write};
use crate::domain::ids::{SubjectId, SubjectKind};
use crate::domain::period::Window;

const LAYOUT: u8 = 1;
const LAYOUT_OF_ANY_ALGORITHM: u8 = 2;
/// How much higher the layout of a record is that says which counters were not moved.
const WITH_UNMOVED: u8 = 2;
const LAYOUT_UNMOVED: u8 = LAYOUT + WITH_UNMOVED;
const LAYOUT_MAX: u8 = LAYOUT_OF_ANY_ALGORITHM + WITH_UNMOVED;
const TAIL_LAYOUT: u8 = 1;
/// The last byte of a record that says which counters are quotas; metadata never ends with it.
const MARKED: u8 = 128;
/// The size of a record's head.
const HEAD_BYTES: usize = 48;
const FRONT_BYTES: usize = 16;
const WEIGHTED: u8 = 16;
const CAPPED: u8 = 32;
const ESTIMATED: u8 = 8;
const UNBOOKED: u8 = 16;
/// How much higher the scope of a light counter of a booked reservation is, in records and in calls.
pub(crate) const LIGHT_SCOPE: u8 = 128;
const QUOTA_CAPACITY: i64 = -2;
const LATE: u8 = 1;
const DEGRADED: u8 = 4;
const KEPT: u8 = 8;
const STARTS_LATER: u8 = 16;
const CORRECTED: u8 = 32;
const TAKES_BACK: u8 = 64;

/// Whether a record with these flags takes back what was used.
pub(in crate::domain) fn takes_back_by(flags: u8) -> bool {
    flags & CORRECTED != 0 && flags & TAKES_BACK != 0
}

impl Body {
    /// The layout of a record with this body.
    fn layout(&self) -> u8 {
        let of_calendar = self.rest.as_ref().is_none_or(|rest| are_of_calendar(&rest.counters));
        if of_calendar { LAYOUT } else { LAYOUT_OF_ANY_ALGORITHM }
    }

    /// Packs a new record with this body, except what the script adds in between: returns the first 16 bytes of its
    /// head, and its lines with the body.
    pub fn encode_new(
        &self,
        state: ReservationState,
        epoch: Epoch,
        units: &[LineUnits],
    ) -> (Vec<u8>, Vec<u8>) {
        let head = Head {
            state,
            late: false,
            degraded: false,
            step: 1,
            epoch,
            expires_at_ms: 0,
            born_at_ms: 0,
            latest_expiry_ms: 0,
            last_sequence: 0,
            start_after_ms: 0,
            unmoved: 0,
            correction: None,
        };
        let mut front = head.encode(units);
        let mut rest = front.split_off(HEAD_BYTES);
        front.truncate(FRONT_BYTES);
        front[0] = self.layout();
        rest.extend_from_slice(&self.encode());
        (front, rest)
    }

    /// Packs the body for scripts, records and events. Lines, counters and subjects must be within their maxima.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(192);
        out.extend_from_slice(&self.fingerprint.0);
        out.put_2(0);
        out.put_text(self.tenant.as_str());
        for line in &self.lines {
            out.put_text(line.meter.as_str());
            out.put_byte(line.decimals.count());
            out.put_byte(rules(line));
            out.put_4(line.late_within_seconds);
        }
        let core_length = u16::try_from(out.len()).unwrap_or(u16::MAX);
        out[16..18].copy_from_slice(&core_length.to_le_bytes());
        if let Some(rest) = &self.rest {
            rest.encode(&mut out);
        }
        out
    }

    /// Decodes the body of a record of this layout with `line_count` lines; one that ends after its core is a
    /// tombstone.
    pub(in crate::domain) fn decode(
        bytes: &[u8],
        line_count: usize,
        layout: u8,
    ) -> Result<Self, Undecodable> {
        let mut reader = Reader::new(bytes);
        let fingerprint = Fingerprint(reader.array()?);
        let core_length = usize::from(reader.u16()?);
        let tenant = TenantId::parse(reader.text()?).map_err(|_| Undecodable("tenant"))?;
        let lines = (0..line_count).map(|_| decode_line(&mut reader)).collect::<Result<_, _>>()?;
        if reader.position() != core_length {
            return Err(Undecodable("core length"));
        }
        let rest =
            if reader.rest().is_empty() { None } else { Some(BodyDetails::decode(&mut reader, layout)?) };
        Ok(Self { fingerprint, tenant, lines, rest })
    }
}

fn rules(line: &LineRule) -> u8 {
    let excess = match line.on_excess {
        OnExcess::Record => 0,
        OnExcess::Cap => 1,
        OnExcess::Reject => 2,
    };
    let late = match line.on_late {
        OnLate::Charge => 0,
        OnLate::Reject => 4,
    };
    excess + late + if line.estimated { ESTIMATED } else { 0 } + if line.booked { 0 } else { UNBOOKED }
}

fn decode_line(reader: &mut Reader<'_>) -> Result<LineRule, Undecodable> {
    let meter = MeterId::parse(reader.text()?).map_err(|_| Undecodable("meter"))?;
    let decimals = Decimals::new(reader.u8()?).ok_or(Undecodable("decimals"))?;
    let rules = reader.u8()?;
    let on_excess = match rules & 3 {
        0 => OnExcess::Record,
        1 => OnExcess::Cap,
        2 => OnExcess::Reject,
        _ => return Err(Undecodable("on_excess")),
    };
    let on_late = if rules & 4 == 0 { OnLate::Charge } else { OnLate::Reject };
    let late_within_seconds = reader.u32()?;
    let (estimated, booked) = (rules & ESTIMATED != 0, rules & UNBOOKED == 0);
    Ok(LineRule { meter, decimals, on_excess, on_late, late_within_seconds, estimated, booked })
}

impl BodyDetails {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_byte(u8::try_from(self.subjects.len()).unwrap_or(u8::MAX));
        for (_, hash) in &self.subjects {
            out.extend_from_slice(&hash.0);
        }
        encode_places(&self.counters, out);
        out.put_byte(TAIL_LAYOUT);
        out.put_byte(u8::from(self.keyed));
        for (subject, _) in &self.subjects {
            out.put_text(subject.kind.as_str());
            out.put_text(subject.id.as_str());
        }
        out.put_text(self.operation.as_ref().map_or("", OperationId::as_str));
        out.put_8(i64::try_from(self.policy_version).unwrap_or(i64::MAX));
        out.put_8(self.period_ms.0);
        out.put_8(self.period_ms.1);
        out.put_8(self.hour_start_ms);
        out.put_2(u16::try_from(self.metadata.len()).unwrap_or(u16::MAX));
        out.extend_from_slice(self.metadata.as_bytes());
        self.encode_marks(out);
    }

    /// Packs which counters are quotas, if that is known for all.
    fn encode_marks(&self, out: &mut Vec<u8>) {
        let bit = |(number, counter): (usize, &CounterRef)| Some(u32::from(counter.is_quota?) << number);
        let bits: Option<Vec<u32>> = self.counters.iter().take(COUNTERS_MAX).enumerate().map(bit).collect();
        if let Some(bits) = bits {
            out.put_4(bits.into_iter().sum());
            out.put_byte(MARKED);
        }
    }

    fn decode_marks(&mut self, reader: &mut Reader<'_>) -> Result<(), Undecodable> {
        if reader.rest().is_empty() {
            return Ok(());
        }
        let marks = reader.u32()?;
        if reader.u8()? != MARKED || !reader.rest().is_empty() {
            return Err(Undecodable("marks of quotas"));
        }
        for (number, counter) in self.counters.iter_mut().take(COUNTERS_MAX).enumerate() {
            counter.is_quota = Some(marks >> number & 1 == 1);
        }
        Ok(())
    }

    fn decode(reader: &mut Reader<'_>, layout: u8) -> Result<Self, Undecodable> {
        let subject_count = reader.u8()?;
        let hashes: Vec<_> =
            (0..subject_count).map(|_| reader.array().map(SubjectHash)).collect::<Result<_, _>>()?;
        let counters = decode_places(reader, layout)?;
        if reader.u8()? != TAIL_LAYOUT {
            return Err(Undecodable("tail layout"));
        }
        let keyed = reader.u8()? == 1;
        let subjects = hashes
            .into_iter()
            .map(|hash| Ok((decode_subject(reader)?, hash)))
            .collect::<Result<_, Undecodable>>()?;
        let operation = match reader.text()? {
            "" => None,
            name => Some(OperationId::parse(name).map_err(|_| Undecodable("operation"))?),
        };
        let policy_version = reader.u64()?;
        let period_ms = (reader.i64()?, reader.i64()?);
        let hour_start_ms = reader.i64()?;
        let length = usize::from(reader.u16()?);
        let metadata =
            std::str::from_utf8(reader.bytes(length)?).map_err(|_| Undecodable("metadata"))?.to_owned();
        let mut details =
            Self { subjects, counters, keyed, operation, policy_version, period_ms, hour_start_ms, metadata };
        details.decode_marks(reader)?;
        Ok(details)
    }
}

fn decode_subject(reader: &mut Reader<'_>) -> Result<Subject, Undecodable> {
    let kind = SubjectKind::parse(reader.text()?).map_err(|_| Undecodable("subject kind"))?;
    let id = SubjectId::parse(reader.text()?).map_err(|_| Undecodable("subject id"))?;
    Ok(Subject { kind, id })
}

/// Whether layout 1 can represent all of these.
fn are_of_calendar(counters: &[CounterRef]) -> bool {
    counters.iter().all(|counter| counter.parameters.window().is_some() && !counter.is_light)
}

fn encode_places(counters: &[CounterRef], out: &mut Vec<u8>) {
    let of_calendar = are_of_calendar(counters);
    out.put_byte(u8::try_from(counters.len()).unwrap_or(u8::MAX));
    for counter in counters {
        let weighted = counter.lines.iter().any(|(_, weight)| *weight != 1);
        let lines = u8::try_from(counter.lines.len()).unwrap_or(15);
        let flags =
            lines | if weighted { WEIGHTED } else { 0 } | if counter.cap.is_some() { CAPPED } else { 0 };
        let capacity = counter.cap.map(|capacity| match capacity {
            PlaceCapacity::Limit(units) => units.get(),
            PlaceCapacity::Quota => QUOTA_CAPACITY,
        });
        out.put_byte(counter.scope_index | if counter.is_light { LIGHT_SCOPE } else { 0 });
        out.extend_from_slice(&counter.field.0);
        match counter.parameters.window().filter(|_| of_calendar) {
            Some(window) => {
                out.put_8(window.start_ms);
                out.put_byte(flags);
                if let Some(capacity) = capacity {
                    out.put_8(window.end_ms);
                    out.put_8(capacity);
                }
            }
            None => {
                out.put_byte(flags);
                out.put_byte(counter.parameters.code());
                capacity.into_iter().for_each(|capacity| out.put_8(capacity));
                counter.parameters.encode(out);
            }
        }
        for (line, weight) in &counter.lines {
            out.put_byte(*line);
            if weighted {
                out.put_8(*weight);
            }
        }
    }
}

fn decode_places(reader: &mut Reader<'_>, layout: u8) -> Result<Vec<CounterRef>, Undecodable> {
    let count = reader.u8()?;
    (0..count).map(|_| decode_place(reader, layout)).collect()
}

fn decode_place(reader: &mut Reader<'_>, layout: u8) -> Result<CounterRef, Undecodable> {
    let scope = reader.u8()?;
    let (scope_index, is_light) = (scope & !LIGHT_SCOPE, scope & LIGHT_SCOPE != 0);
    let field = CounterField(reader.array()?);
    let (flags, parameters, cap) = match layout {
        LAYOUT | LAYOUT_UNMOVED => {
            let start_ms = reader.i64()?;
            let flags = reader.u8()?;
            let is_capped = flags & CAPPED != 0;
            let end_ms = if is_capped { reader.i64()? } else { start_ms };
            let cap = is_capped.then(|| decode_capacity(reader)).transpose()?;
            let window = Window { start_ms, end_ms };
            (flags, Parameters::Calendar(calendar::Parameters { window }), cap)
        }
        _ => {
            let flags = reader.u8()?;
            let code = reader.u8()?;
            let cap = (flags & CAPPED != 0).then(|| decode_capacity(reader)).transpose()?;
            (flags, Parameters::decode(code, reader)?, cap)
        }
    };
    let mut lines = Vec::with_capacity(usize::from(flags & 15));
    for _ in 0..flags & 15 {
        let line = reader.u8()?;
        lines.push((line, if flags & WEIGHTED == 0 { 1 } else { reader.i64()? }));
    }
    Ok(CounterRef { scope_index, is_light, field, parameters, cap, lines, is_quota: None })
}

fn decode_capacity(reader: &mut Reader<'_>) -> Result<PlaceCapacity, Undecodable> {
    match reader.i64()? {
        QUOTA_CAPACITY => Ok(PlaceCapacity::Quota),
        units => Units::new(units).map(PlaceCapacity::Limit).ok_or(Undecodable("capacity")),
    }
}

impl Head {
    /// Packs the head for a record of these lines.
    pub fn encode(&self, units: &[LineUnits]) -> Vec<u8> {
        let mut out = Vec::with_capacity(48 + 16 * units.len());
        out.put_byte(LAYOUT);
        out.put_byte(self.state.code());
        out.put_byte(u8::try_from(units.len()).unwrap_or(u8::MAX));
        let kept = units.iter().any(|line| line.uncharged > Units::ZERO);
        let starts_later = self.start_after_ms > 0;
        let flags = [
            (self.late, LATE),
            (self.degraded, DEGRADED),
            (kept, KEPT),
            (starts_later, STARTS_LATER),
            (self.correction.is_some(), CORRECTED),
            (self.takes_back(), TAKES_BACK),
        ];
        out.put_byte(flags.iter().map(|(is_set, flag)| if *is_set { *flag } else { 0 }).sum());
        out.put_4(self.step);
        out.put_8(i64::try_from(self.epoch.0).unwrap_or(i64::MAX));
        out.put_8(self.expires_at_ms);
        out.put_8(self.born_at_ms);
        out.put_8(self.latest_expiry_ms);
        out.put_8(i64::try_from(self.last_sequence).unwrap_or(i64::MAX));
        for line in units {
            out.put_8(line.held.get());
            out.put_8(line.consumed.get());
        }
        if kept {
            units.iter().for_each(|line| out.put_8(line.uncharged.get()));
        }
        if starts_later {
            out.put_8(self.start_after_ms);
        }
        if self.unmoved > 0 {
            out[0] += WITH_UNMOVED;
            out.put_4(self.unmoved);
        }
        out
    }

    /// Decodes head and lines from the front of the reader.
    pub fn decode(reader: &mut Reader<'_>) -> Result<(Self, Vec<LineUnits>), Undecodable> {
        let layout = read_layout(reader.u8()?)?;
        let state = ReservationState::from_code(reader.u8()?)?;
        let line_count = usize::from(reader.u8()?);
        if !(1..=LINES_MAX).contains(&line_count) {
            return Err(Undecodable("line count"));
        }
        let flags = reader.u8()?;
        let mut head = Self {
            state,
            late: flags & LATE != 0,
            degraded: flags & DEGRADED != 0,
            step: reader.u32()?,
            epoch: Epoch(reader.u64()?),
            expires_at_ms: reader.i64()?,
            born_at_ms: reader.i64()?,
            latest_expiry_ms: reader.i64()?,
            last_sequence: reader.u64()?,
            start_after_ms: 0,
            unmoved: 0,
            correction: match flags & (CORRECTED | TAKES_BACK) {
                0 => None,
                CORRECTED => Some(Correction::More),
                _ => Some(Correction::Less),
            },
        };
        let mut units = Vec::with_capacity(line_count);
        for _ in 0..line_count {
            units.push(LineUnits::new(next_units(reader)?, next_units(reader)?));
        }
        if flags & KEPT != 0 {
            decode_uncharged(reader, &mut units)?;
        }
        if flags & STARTS_LATER != 0 {
            head.start_after_ms = reader.i64()?;
        }
        if layout > WITH_UNMOVED {
            head.unmoved = reader.u32()?;
        }
        Ok((head, units))
    }
}

fn read_layout(layout: u8) -> Result<u8, Undecodable> {
    match layout {
        LAYOUT..=LAYOUT_MAX => Ok(layout),
        _ => Err(Undecodable("record layout")),
    }
}

/// The layout of a packed record.
pub(in crate::domain) fn layout_of(bytes: &[u8]) -> Result<u8, Undecodable> {
    read_layout(*bytes.first().ok_or(Undecodable("too short"))?)
}

/// Decodes the uncharged units of each line.
pub(in crate::domain) fn decode_uncharged(
    reader: &mut Reader<'_>,
    units: &mut [LineUnits],
) -> Result<(), Undecodable> {
    for line in units {
        line.uncharged = next_units(reader)?;
    }
    Ok(())
}

fn next_units(reader: &mut Reader<'_>) -> Result<Units, Undecodable> {
    Units::new(reader.i64()?).ok_or(Undecodable("units"))
}

impl Record {
    /// Packs the whole record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.head.encode(&self.units);
        out[0] = self.body.layout() + if self.head.unmoved > 0 { WITH_UNMOVED } else { 0 };
        out.extend_from_slice(&self.body.encode());
        out
    }

    /// Decodes a whole record or a tombstone.
    pub fn decode(bytes: &[u8]) -> Result<Self, Undecodable> {
        let mut reader = Reader::new(bytes);
        let layout = layout_of(bytes)?;
        let (head, units) = Head::decode(&mut reader)?;
        let body = Body::decode(reader.rest(), units.len(), layout)?;
        Ok(Self { head, units, body })
    }
}

#[cfg(test)]
mod tests;
