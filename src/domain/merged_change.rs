//! Merges a reservation's parked calls into one. Totals are for the reservation so far, so the largest include the
//! others.

use super::amount::Amount;
use super::ids::MeterId;
use super::parked::ParkedCall;
use super::reservation::Record;
use super::resolution::{Totals, covers};

/// The kind of call that parked calls merge into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergedKind {
    /// A consume that does not resolve.
    Part,
    /// A consume that resolves.
    Final,
    /// A release.
    Release,
}

/// The merged call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedChange {
    /// Its kind.
    pub kind: MergedKind,
    /// The largest total of each line.
    pub totals: Totals,
    /// When the last of these totals was taken (gate time, unix ms): a release that adds nothing to them may come after
    /// the expiry.
    pub taken_at_ms: i64,
    /// The meters that the resolving call itself names: the gate must not have consumed more of these.
    named: Vec<MeterId>,
}

impl MergedChange {
    /// Merges consumes and releases, in order and each with its time. None without calls, or when several calls do not
    /// name their meters.
    pub fn of(calls: &[(&ParkedCall, i64)]) -> Option<Self> {
        let (first, rest) = calls.split_first()?;
        let mut merged = Self::one(first.0, first.1)?;
        if rest.is_empty() {
            return Some(merged);
        }
        let mut totals = by_meter(&merged)?;
        for (call, taken_at_ms) in rest {
            let next = Self::one(call, *taken_at_ms)?;
            if raise(&mut totals, by_meter(&next)?) {
                merged.taken_at_ms = next.taken_at_ms;
            }
            (merged.kind, merged.named) = (next.kind, next.named);
        }
        merged.totals = if totals.is_empty() { Totals::Default } else { Totals::ByMeter(totals) };
        Some(merged)
    }

    fn one(call: &ParkedCall, taken_at_ms: i64) -> Option<Self> {
        let (kind, totals) = match call {
            ParkedCall::Admit { .. } => return None,
            ParkedCall::Consume { totals, is_final: false } => (MergedKind::Part, totals),
            ParkedCall::Consume { totals, is_final: true } => (MergedKind::Final, totals),
            ParkedCall::Release { incurred } => (MergedKind::Release, incurred),
        };
        let named = match totals {
            Totals::ByMeter(named) if kind != MergedKind::Part => {
                named.iter().map(|(meter, _)| meter.clone()).collect()
            }
            _ => Vec::new(),
        };
        Some(Self { kind, totals: totals.clone(), taken_at_ms, named })
    }

    /// Whether `record` already has everything although the gate rejected the call: a larger total includes a partial
    /// one, and an expiry gave back what a release would have.
    pub fn is_in(&self, record: &Record, has_expired: bool) -> bool {
        match self.kind {
            MergedKind::Part => covers(record, &self.totals),
            MergedKind::Final => false,
            MergedKind::Release if has_expired => covers(record, &self.totals),
            // The reservation expired, and what was consumed is charged as a late consume.
            MergedKind::Release => record.head.late && self.totals == Totals::Default,
        }
    }

    /// The same call with what `record` has consumed already in lines that the resolving call does not name. None when
    /// that changes nothing, or when the record has consumed more than a line that the call names.
    pub fn raised_to(&self, record: &Record) -> Option<Self> {
        let Totals::ByMeter(totals) = &self.totals else { return None };
        let mut raised = totals.clone();
        for (meter, total) in &mut raised {
            let line = record.body.lines.iter().position(|rule| rule.meter == *meter)?;
            let consumed = record.units.get(line)?.consumed.to_amount(record.body.lines.get(line)?.decimals);
            if consumed > *total && self.named.contains(meter) {
                return None;
            }
            *total = consumed.max(*total);
        }
        let has_risen = raised != *totals;
        has_risen.then(|| Self { totals: Totals::ByMeter(raised), ..self.clone() })
    }
}

fn by_meter(merged: &MergedChange) -> Option<Vec<(MeterId, Amount)>> {
    match (&merged.totals, merged.kind) {
        (Totals::ByMeter(named), _) => Some(named.clone()),
        (Totals::Default, MergedKind::Release) => Some(Vec::new()),
        _ => None,
    }
}

/// Raises totals to those of a later call; returns whether any rose.
fn raise(totals: &mut Vec<(MeterId, Amount)>, later: Vec<(MeterId, Amount)>) -> bool {
    let mut has_risen = false;
    for (meter, amount) in later {
        match totals.iter_mut().find(|(known, _)| *known == meter) {
            Some((_, total)) if *total >= amount => {}
            Some((_, total)) => {
                *total = amount;
                has_risen = true;
            }
            None => {
                totals.push((meter, amount));
                has_risen = true;
            }
        }
    }
    has_risen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(lines: &[(&str, &str)]) -> Totals {
        let line =
            |(meter, amount): &(&str, &str)| (MeterId::parse(meter).unwrap(), Amount::parse(amount).unwrap());
        Totals::ByMeter(lines.iter().map(line).collect())
    }

    fn consume(lines: &[(&str, &str)], is_final: bool) -> ParkedCall {
        ParkedCall::Consume { totals: totals(lines), is_final }
    }

    fn merged(calls: &[(&ParkedCall, i64)]) -> (MergedKind, Totals, i64) {
        let merged = MergedChange::of(calls).unwrap();
        (merged.kind, merged.totals, merged.taken_at_ms)
    }

    #[test]
    fn what_waits_of_a_reservation_comes_to_one_call_with_the_largest_totals() {
        let part = consume(&[("a", "5"), ("b", "0")], false);
        let more = consume(&[("a", "6"), ("b", "2")], false);
        let all = consume(&[("a", "8"), ("b", "2")], true);
        assert_eq!(
            merged(&[(&part, 1), (&more, 2)]),
            (MergedKind::Part, totals(&[("a", "6"), ("b", "2")]), 2)
        );
        assert_eq!(
            merged(&[(&part, 1), (&more, 2), (&all, 3)]),
            (MergedKind::Final, totals(&[("a", "8"), ("b", "2")]), 3)
        );
        let release = ParkedCall::Release { incurred: Totals::Default };
        assert_eq!(
            merged(&[(&part, 1), (&release, 9)]),
            (MergedKind::Release, totals(&[("a", "5"), ("b", "0")]), 1),
            "it adds nothing, so that its time decides nothing"
        );
        let incurred = ParkedCall::Release { incurred: totals(&[("b", "1")]) };
        assert_eq!(
            merged(&[(&part, 1), (&incurred, 9)]),
            (MergedKind::Release, totals(&[("a", "5"), ("b", "1")]), 9)
        );
        assert_eq!(merged(&[(&release, 9)]), (MergedKind::Release, Totals::Default, 9));
        assert_eq!(MergedChange::of(&[]), None);
    }

    #[test]
    fn a_call_by_itself_is_told_as_it_was_named_and_several_must_name_their_meters() {
        let single = Totals::Single(Amount::parse("7").unwrap());
        let call = ParkedCall::Consume { totals: single.clone(), is_final: true };
        assert_eq!(merged(&[(&call, 4)]), (MergedKind::Final, single, 4));
        assert_eq!(MergedChange::of(&[(&call, 4), (&call, 5)]), None);
    }
}
