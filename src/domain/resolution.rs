//! Judges a consume or release without the gate, by the same rules as its scripts, while the gate is away. The counters
//! are unknown here, so a `cap` line is charged at most its hold until the gate decides.

use super::amount::{Amount, Decimals, InvalidAmount, Units};
use super::ids::MeterId;
use super::rejection::Rejection;
use super::reservation::{LineRule, LineUnits, OnExcess, OnLate, Record, ReservationState};

/// Totals for the reservation so far, as the caller names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Totals {
    /// None named: for a consume max(held, consumed so far), for a release nothing used.
    Default,
    /// One amount for the single line.
    Single(Amount),
    /// Amounts by meter, each at most once; for a meter not named, the call defines the total.
    ByMeter(Vec<(MeterId, Amount)>),
}

/// A reservation as far as it is known without the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationView {
    /// Its record.
    pub record: Record,
}

/// The verdict on a call.
#[allow(clippy::large_enum_variant, reason = "made once a call and taken apart at once")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It changes the reservation to this.
    Changed(ReservationView),
    /// It had its effect before, or changes nothing.
    Replayed,
    /// The call is rejected.
    Rejected(Rejection),
    /// The reservation may have expired, which would decide the call: only the gate knows.
    Undecided,
}

/// The totals of all lines, or the first fault in order of precedence.
type Read = Result<Vec<Units>, Rejection>;

impl ReservationView {
    /// A consume of these totals at `now_ms`.
    pub fn consume(&self, totals: &Totals, is_final: bool, now_ms: i64) -> Verdict {
        let state = self.record.head.state;
        let read = self.consume_totals(totals, is_final);
        let repeats =
            state == ReservationState::Consumed || (state != ReservationState::Released && !is_final);
        if repeats && read.as_ref().is_ok_and(|totals| self.same_totals(totals)) {
            return Verdict::Replayed;
        }
        self.settle(read, ReservationState::Consumed, is_final, true, now_ms)
    }

    /// A release with these totals used at `now_ms`. On an expired reservation, used units are a late consume.
    pub fn release(&self, incurred: &Totals, now_ms: i64) -> Verdict {
        let state = self.record.head.state;
        let late = state == ReservationState::Expired;
        let named = !matches!(incurred, Totals::Default);
        let read = self.read(incurred, |line, _| self.record.units[line].consumed);
        let repeats_late = state == ReservationState::Consumed && self.record.head.late && named;
        let same = || read.as_ref().is_ok_and(|totals| self.same_totals(totals));
        if (state == ReservationState::Released || repeats_late) && same() {
            return Verdict::Replayed;
        }
        if late && !named {
            return Verdict::Rejected(Rejection::Expired);
        }
        if read.as_ref().is_ok_and(|totals| self.expiry_would_decide(totals, now_ms)) {
            return Verdict::Undecided;
        }
        let after = if late { ReservationState::Consumed } else { ReservationState::Released };
        self.settle(read, after, true, late, now_ms)
    }

    /// The totals of a consume with every line named, as they were judged: the gate may have other figures when it gets
    /// the call.
    /// A `cap` line keeps what was asked for.
    pub fn stated(&self, totals: &Totals, is_final: bool) -> Totals {
        match self.consume_totals(totals, is_final) {
            Ok(units) => {
                let lines = self.record.body.lines.iter().zip(units);
                Totals::ByMeter(
                    lines.map(|(rule, units)| (rule.meter.clone(), units.to_amount(rule.decimals))).collect(),
                )
            }
            Err(_) => totals.clone(),
        }
    }

    fn consume_totals(&self, totals: &Totals, is_final: bool) -> Read {
        self.read(totals, |line, named| {
            let units = self.record.units[line];
            if named && !is_final { units.consumed } else { units.held.max(units.consumed) }
        })
    }

    /// Whether an expiry, before the gate gets the call, could change how the totals of a release are charged. An open
    /// reservation is charged whatever was used; an expired one takes it as a late consume.
    fn expiry_would_decide(&self, totals: &[Units], now_ms: i64) -> bool {
        if self.record.head.state != ReservationState::Reserved {
            return false;
        }
        let mut lines = self.record.body.lines.iter().zip(&self.record.units).zip(totals);
        let is_above = lines.clone().any(|((_, units), total)| *total > units.consumed);
        let is_late = now_ms >= self.record.head.expires_at_ms && self.late_rejected(now_ms);
        let is_excess = |((rule, units), total): ((&LineRule, &LineUnits), &Units)| {
            rule.on_excess != OnExcess::Record && *total > units.held.max(units.consumed)
        };
        (is_above && is_late) || lines.any(is_excess)
    }

    /// Makes the checks in the scripts' order, then the change.
    fn settle(
        &self,
        read: Read,
        after: ReservationState,
        resolves: bool,
        charges: bool,
        now_ms: i64,
    ) -> Verdict {
        // The sweep may have expired it already; a total that would be rejected late must not be accepted here.
        let head = &self.record.head;
        let may_be_late = head.state == ReservationState::Reserved && now_ms >= head.expires_at_ms;
        if charges && may_be_late && self.late_rejected(now_ms) {
            return Verdict::Undecided;
        }
        match self.checked(read, charges, now_ms) {
            Ok(totals) => self.changed(totals, after, resolves, charges),
            Err(rejection) => Verdict::Rejected(rejection),
        }
    }

    fn checked(&self, read: Read, charges: bool, now_ms: i64) -> Read {
        match self.record.head.state {
            ReservationState::Consumed | ReservationState::Released => {
                return Err(Rejection::AlreadyResolved);
            }
            ReservationState::Expired if self.late_rejected(now_ms) => return Err(Rejection::Expired),
            _ => {}
        }
        let totals = read?;
        for (line, (total, units)) in totals.iter().zip(&self.record.units).enumerate() {
            if *total < units.consumed {
                return Err(Rejection::AmountDecreased(line));
            }
        }
        let lines = self.record.body.lines.iter().zip(&self.record.units).zip(&totals).enumerate();
        for (line, ((rule, units), total)) in lines {
            let most = units.held.max(units.consumed);
            if charges && rule.on_excess == OnExcess::Reject && *total > most {
                return Err(Rejection::ExcessRejected(line));
            }
        }
        Ok(totals)
    }

    fn changed(
        &self,
        mut totals: Vec<Units>,
        after: ReservationState,
        resolves: bool,
        charges: bool,
    ) -> Verdict {
        let uncharged = if charges { self.cap(&mut totals) } else { vec![Units::ZERO; totals.len()] };
        let mut record = self.record.clone();
        record.head.late = record.head.state == ReservationState::Expired;
        record.head.step = record.head.step.saturating_add(1);
        record.head.degraded = true;
        if resolves {
            record.head.state = after;
        }
        for ((units, total), uncharged) in record.units.iter_mut().zip(totals).zip(uncharged) {
            (units.consumed, units.uncharged) = (total, uncharged);
        }
        Verdict::Changed(Self { record })
    }

    /// Cuts `cap` lines to their hold: only the gate knows how much more there is room for. Returns what is cut off
    /// each line.
    fn cap(&self, totals: &mut [Units]) -> Vec<Units> {
        let lines = self.record.body.lines.iter().zip(&self.record.units).zip(totals.iter_mut());
        let kept = lines.map(|((rule, units), total)| {
            let most = if rule.on_excess == OnExcess::Cap { units.held.max(units.consumed) } else { *total };
            let kept = total.saturating_sub(most);
            *total = (*total).min(most);
            kept
        });
        kept.collect()
    }

    /// Whether the totals are those that were consumed last.
    fn same_totals(&self, totals: &[Units]) -> bool {
        self.record.units.iter().zip(totals).all(|(units, total)| units.is_total(*total))
    }

    fn late_rejected(&self, now_ms: i64) -> bool {
        let expires_at_ms = self.record.head.expires_at_ms;
        self.record.body.lines.iter().any(|rule| {
            let until_ms = expires_at_ms.saturating_add(i64::from(rule.late_within_seconds) * 1000);
            (rule.on_late == OnLate::Reject && now_ms >= expires_at_ms) || now_ms > until_ms
        })
    }

    /// Reads the totals; a line not named gets `fallback(line, whether any was named)`.
    fn read(&self, totals: &Totals, fallback: impl Fn(usize, bool) -> Units) -> Read {
        let lines = &self.record.body.lines;
        let named: Vec<(Result<usize, Rejection>, Amount)> = match totals {
            Totals::Default => Vec::new(),
            Totals::Single(amount) => {
                vec![(if lines.len() == 1 { Ok(0) } else { Err(Rejection::AmountNeedsOneLine) }, *amount)]
            }
            Totals::ByMeter(named) => {
                let line = |meter: &MeterId| lines.iter().position(|rule| rule.meter == *meter);
                let find =
                    |meter: &MeterId| line(meter).ok_or_else(|| Rejection::MeterNotReserved(meter.clone()));
                named.iter().map(|(meter, amount)| (find(meter), *amount)).collect()
            }
        };
        let mut read: Vec<Option<Units>> = vec![None; lines.len()];
        let mut fault: Option<Rejection> = None;
        for (line, amount) in named {
            let units = line.and_then(|line| Ok((line, to_units(amount, lines[line].decimals, line)?)));
            match units {
                Ok((line, units)) => read[line] = Some(units),
                Err(found) if fault.as_ref().is_none_or(|fault| found.precedes(fault)) => fault = Some(found),
                Err(_) => {}
            }
        }
        if let Some(rejection) = fault {
            return Err(rejection);
        }
        let named = !matches!(totals, Totals::Default);
        let line = |(line, units): (usize, Option<Units>)| units.unwrap_or_else(|| fallback(line, named));
        Ok(read.into_iter().enumerate().map(line).collect())
    }
}

fn to_units(amount: Amount, decimals: Decimals, line: usize) -> Result<Units, Rejection> {
    amount.to_units(decimals).map_err(|error| match error {
        InvalidAmount::TooPrecise(_) => Rejection::TooPrecise(line),
        _ => Rejection::TooLarge(line),
    })
}

/// Whether `record` has consumed at least these totals in every line they name, so that nothing of them is missing.
pub fn covers(record: &Record, totals: &Totals) -> bool {
    let standing = ReservationView { record: record.clone() };
    let enough = |(total, units): (&Units, &LineUnits)| *total <= units.consumed;
    standing
        .read(totals, |line, _| record.units[line].consumed)
        .is_ok_and(|totals| totals.iter().zip(&record.units).all(enough))
}

#[cfg(test)]
mod tests;
