//! Walks that match by amount and time. Each holds what is within the tolerance of the current item, and no more.

use std::collections::VecDeque;

use rust_decimal::Decimal;

use super::finding::{Group, Unmatchable};
use super::passes::{Found, Pass};
use super::waiting::Waiting;
use super::{Item, Tolerance};

/// How many items may wait for a counterpart at once.
const HELD_MAX: usize = 50_000;

/// How many amounts of items that wait are looked at together.
const BLOCK: usize = 256;

/// How many items are looked at together for sums. Among more than these, sums say nothing.
const CLUSTER_MAX: usize = 100;

fn hold(held: &mut VecDeque<Item>, item: Item) -> Result<(), Unmatchable> {
    if held.len() >= HELD_MAX {
        return Err(Unmatchable::TooMany);
    }
    held.push_back(item);
    Ok(())
}

/// The item that waits longest, if it is such a one.
fn take_first(held: &mut VecDeque<Item>, is_such: impl Fn(&Item) -> bool) -> Option<Item> {
    held.front().is_some_and(is_such).then(|| held.pop_front()).flatten()
}

fn pair(one: Item, other: Item, tolerance: &Tolerance, found: &mut Found) -> Result<(), Unmatchable> {
    found.settle(Group::of([one, other])?, tolerance);
    Ok(())
}

/// Whether an item that waits can have this one as its counterpart, or a later one of the walk.
fn can_wait(held: &Item, item: &Item, tolerance: &Tolerance) -> bool {
    held.scope == item.scope
        && held.amount == item.amount
        && item.at_ms.abs_diff(held.at_ms) <= tolerance.ms().unsigned_abs()
}

/// Finds the uses before the span that can have no row of their amount unless a use in the span goes without. It goes
/// from late to early, so the uses in the span choose first, each the latest row that waits.
pub(super) struct SpareEdges {
    tolerance: Tolerance,
    from_ms: i64,
    /// Of one scope, amount and side, the latest first.
    held: VecDeque<Item>,
}

impl SpareEdges {
    pub(super) fn new(tolerance: Tolerance, from_ms: i64) -> Self {
        Self { tolerance, from_ms, held: VecDeque::new() }
    }
}

impl Pass for SpareEdges {
    fn take(&mut self, item: Item, found: &mut Found) -> Result<(), Unmatchable> {
        let is_after_span = item.is_edge() && item.at_ms >= self.from_ms;
        if is_after_span || item.amount.is_zero() {
            return Ok(());
        }
        while let Some(over) = take_first(&mut self.held, |held| !can_wait(held, &item, &self.tolerance)) {
            found.left.extend(Some(over).filter(Item::is_edge));
        }
        match take_first(&mut self.held, |held| held.is_use() != item.is_use()) {
            Some(_) => Ok(()),
            None => hold(&mut self.held, item),
        }
    }

    fn finish(&mut self, found: &mut Found) -> Result<(), Unmatchable> {
        found.left.extend(self.held.drain(..).filter(Item::is_edge));
        Ok(())
    }
}

/// Pairs uses and rows of one amount, each with the earliest that waits. Of points on a line with one tolerance, that
/// makes as many pairs as can be made: no other rule would leave less over. A row that falls to a use near the span is
/// left over with it: a use in the span whose amount is only near may still need it.
pub(super) struct EqualAmounts {
    tolerance: Tolerance,
    /// Of one scope, amount and side, in time.
    held: VecDeque<Item>,
}

impl EqualAmounts {
    pub(super) fn new(tolerance: Tolerance) -> Self {
        Self { tolerance, held: VecDeque::new() }
    }
}

impl Pass for EqualAmounts {
    fn take(&mut self, item: Item, found: &mut Found) -> Result<(), Unmatchable> {
        if item.amount.is_zero() {
            found.settle(Some(Group::new(item)?), &self.tolerance);
            return Ok(());
        }
        while let Some(over) = take_first(&mut self.held, |held| !can_wait(held, &item, &self.tolerance)) {
            found.left.push(over);
        }
        match take_first(&mut self.held, |held| held.is_use() != item.is_use()) {
            Some(counterpart) if counterpart.is_edge() || item.is_edge() => {
                found.left.extend([counterpart, item]);
                Ok(())
            }
            Some(counterpart) => pair(counterpart, item, &self.tolerance, found),
            None => hold(&mut self.held, item),
        }
    }

    fn finish(&mut self, found: &mut Found) -> Result<(), Unmatchable> {
        found.left.extend(self.held.drain(..));
        Ok(())
    }
}

/// Pairs uses and rows whose amounts are within the tolerance, each with the earliest that fits.
pub(super) struct NearAmounts {
    tolerance: Tolerance,
    with_edges: bool,
    uses: Waiting<BLOCK>,
    rows: Waiting<BLOCK>,
}

impl NearAmounts {
    pub(super) fn new(tolerance: Tolerance, with_edges: bool) -> Self {
        Self { tolerance, with_edges, uses: Waiting::default(), rows: Waiting::default() }
    }
}

impl Pass for NearAmounts {
    fn take(&mut self, item: Item, found: &mut Found) -> Result<(), Unmatchable> {
        if item.is_edge() && !self.with_edges {
            found.left.push(item);
            return Ok(());
        }
        let tolerance = self.tolerance;
        let is_over =
            |held: &Item| held.scope != item.scope || item.at_ms.saturating_sub(held.at_ms) > tolerance.ms();
        for held in [&mut self.uses, &mut self.rows] {
            while let Some(over) = held.take_first(is_over) {
                found.left.push(over);
            }
        }
        let (same, others) = match item.is_use() {
            true => (&mut self.uses, &mut self.rows),
            false => (&mut self.rows, &mut self.uses),
        };
        // Amounts nearer to that of the item than one that fits do fit, too.
        let fits = |other: Decimal| {
            let (here, there) = if item.is_use() { (item.amount, other) } else { (other, item.amount) };
            tolerance.covers(here, there)
        };
        match others.take_fitting(item.amount, fits) {
            Some(counterpart) => pair(counterpart, item, &tolerance, found),
            None if same.len() >= HELD_MAX => Err(Unmatchable::TooMany),
            None => {
                same.push(item);
                Ok(())
            }
        }
    }

    fn finish(&mut self, found: &mut Found) -> Result<(), Unmatchable> {
        found.left.extend(self.uses.take_all().chain(self.rows.take_all()));
        Ok(())
    }
}

/// Looks at what is left over in clusters: items of which each is within the tolerance of the one before. In a cluster
/// with one use or one row, this one is compared with the sum of the others. Two that are alone with each other are the
/// same work with different amounts. Everything else is missing on the other side.
pub(super) struct Sums {
    tolerance: Tolerance,
    cluster: Vec<Item>,
    /// Whether the cluster has had more items than are looked at together.
    is_crowded: bool,
}

impl Sums {
    pub(super) fn new(tolerance: Tolerance) -> Self {
        Self { tolerance, cluster: Vec::new(), is_crowded: false }
    }

    fn settle_cluster(&mut self, found: &mut Found) -> Result<(), Unmatchable> {
        let cluster = std::mem::take(&mut self.cluster);
        if !std::mem::take(&mut self.is_crowded) && self.is_one(&cluster)? {
            found.settle(Group::of(cluster)?, &self.tolerance);
            return Ok(());
        }
        self.settle_apart(cluster, found)
    }

    fn settle_apart(&self, items: Vec<Item>, found: &mut Found) -> Result<(), Unmatchable> {
        for item in items {
            found.settle(Some(Group::new(item)?), &self.tolerance);
        }
        Ok(())
    }

    /// Whether the items of a cluster belong together.
    fn is_one(&self, cluster: &[Item]) -> Result<bool, Unmatchable> {
        let (uses, rows): (Vec<_>, Vec<_>) = cluster.iter().partition(|item| item.is_use());
        let alone = match (uses.as_slice(), rows.as_slice()) {
            ([_], [_]) => return Ok(true),
            ([alone], [_, _, ..]) | ([_, _, ..], [alone]) => alone.at_ms,
            _ => return Ok(false),
        };
        let is_near =
            cluster.iter().all(|item| item.at_ms.abs_diff(alone) <= self.tolerance.ms().unsigned_abs());
        let group = Group::of(cluster.iter().cloned())?;
        let finding = group.and_then(|group| group.conclude(&self.tolerance));
        Ok(is_near && finding.is_some_and(|finding| finding.outcome == super::Outcome::Matched))
    }
}

impl Pass for Sums {
    fn take(&mut self, item: Item, found: &mut Found) -> Result<(), Unmatchable> {
        // Uses outside of the span that no row has found are nobody's.
        if item.is_edge() {
            return Ok(());
        }
        let belongs = |last: &Item| {
            last.scope == item.scope && item.at_ms.saturating_sub(last.at_ms) <= self.tolerance.ms()
        };
        if self.cluster.last().is_some_and(|last| !belongs(last)) {
            self.settle_cluster(found)?;
        }
        if self.cluster.len() >= CLUSTER_MAX {
            self.is_crowded = true;
            let crowd = std::mem::take(&mut self.cluster);
            self.settle_apart(crowd, found)?;
        }
        self.cluster.push(item);
        Ok(())
    }

    fn finish(&mut self, found: &mut Found) -> Result<(), Unmatchable> {
        self.settle_cluster(found)
    }
}
