//! What a run has added up, kept by each worker alone and merged at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hdrhistogram::Histogram;
use rust_decimal::Decimal;

use super::answer::{Consumed, Stage};
use super::job::METERS;
use crate::cli::failure::Failure;

/// Units of the three meters of a replay, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct UnitSums {
    /// Consumed, in the order of [`METERS`].
    pub(super) consumed: [Decimal; 3],
    /// What of it was above the holds.
    pub(super) excess: [Decimal; 3],
}

impl UnitSums {
    /// Adds a line's decimal texts; another meter's line is left out.
    pub(super) fn add(&mut self, meter: &str, consumed: &str, excess: &str) -> Result<(), String> {
        let Some(index) = METERS.iter().position(|name| *name == meter) else { return Ok(()) };
        add(&mut self.consumed[index], consumed)?;
        add(&mut self.excess[index], excess)
    }

    fn merge(&mut self, other: &Self) {
        for index in 0..METERS.len() {
            self.consumed[index] += other.consumed[index];
            self.excess[index] += other.excess[index];
        }
    }
}

fn add(sum: &mut Decimal, text: &str) -> Result<(), String> {
    let amount = Decimal::from_str_exact(text).map_err(|_| format!("`{text}` is not an amount"))?;
    *sum = sum.checked_add(amount).ok_or("the sum is too large")?;
    Ok(())
}

/// Counts, units and latencies.
#[derive(Debug)]
pub(super) struct Tally {
    /// Jobs that were reserved and consumed.
    pub(super) accepted: u64,
    /// Jobs that a limit or quota did not allow.
    pub(super) refused: u64,
    /// Jobs that failed otherwise, by reason.
    pub(super) failures: BTreeMap<String, u64>,
    /// Accepted jobs that an earlier call had already done.
    pub(super) replayed: u64,
    /// Accepted jobs whose hold had expired.
    pub(super) late: u64,
    /// Calls that had to be repeated.
    pub(super) retries: u64,
    /// The units of the accepted jobs, as the service answered them.
    pub(super) units: UnitSums,
    /// The numbers of the tenants with accepted jobs.
    pub(super) tenants: BTreeSet<u16>,
    /// How long answered reserves took, in microseconds.
    pub(super) reserve_us: Histogram<u64>,
    /// How long answered consumes took, in microseconds.
    pub(super) consume_us: Histogram<u64>,
}

/// More kinds of reasons than this are counted together: a reason may carry an id.
const REASONS_MAX: usize = 20;

impl Tally {
    pub(super) fn new() -> Result<Self, Failure> {
        let histogram = || {
            Histogram::new_with_bounds(1, 3_600_000_000, 3)
                .map_err(|error| Failure::new(format!("latencies cannot be counted: {error}")))
        };
        Ok(Self {
            accepted: 0,
            refused: 0,
            failures: BTreeMap::new(),
            replayed: 0,
            late: 0,
            retries: 0,
            units: UnitSums::default(),
            tenants: BTreeSet::new(),
            reserve_us: histogram()?,
            consume_us: histogram()?,
        })
    }

    /// Counts an accepted job of a tenant.
    pub(super) fn accept(&mut self, tenant: u16, consumed: &Consumed) {
        let mut units = self.units;
        let added: Result<(), String> =
            consumed.lines.iter().try_for_each(|line| units.add(&line.meter, &line.consumed, &line.excess));
        if let Err(why) = added {
            return self.fail(format!("answer: {why}"));
        }
        self.units = units;
        self.accepted += 1;
        self.late += u64::from(consumed.late);
        self.replayed += u64::from(consumed.replayed);
        self.tenants.insert(tenant);
    }

    /// Counts a failed job.
    pub(super) fn fail(&mut self, reason: String) {
        let is_room = self.failures.len() < REASONS_MAX || self.failures.contains_key(&reason);
        let reason = if is_room { reason } else { "other reasons".to_owned() };
        *self.failures.entry(reason).or_default() += 1;
    }

    /// Jobs that failed.
    pub(super) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Counts how long an answered call took.
    pub(super) fn took(&mut self, stage: Stage, time: Duration) {
        let histogram = match stage {
            Stage::Reserve => &mut self.reserve_us,
            Stage::Consume => &mut self.consume_us,
        };
        histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Adds another worker's.
    pub(super) fn merge(&mut self, other: Self) -> Result<(), Failure> {
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.replayed += other.replayed;
        self.late += other.late;
        self.retries += other.retries;
        self.units.merge(&other.units);
        self.tenants.extend(other.tenants);
        for (reason, count) in other.failures {
            *self.failures.entry(reason).or_default() += count;
        }
        let merged =
            self.reserve_us.add(&other.reserve_us).and_then(|()| self.consume_us.add(&other.consume_us));
        merged.map_err(|error| Failure::new(format!("latencies cannot be added: {error}")))
    }
}
