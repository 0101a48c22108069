//! What finished work of an operation used, as a sketch of whole numbers, and what is held of an operation for work
//! whose size nobody knows yet.
//!
//! A sketch counts amounts in buckets that grow with the amount: one for each number of units below 128, then 64 for
//! each doubling, so that a bucket's highest amount is less than 1.6 percent above any other in it.

use std::collections::VecDeque;
use std::str::FromStr;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::amount::Units;

/// Below this each amount has a bucket of its own.
const EXACT: i64 = 128;
/// Of each doubling above it: how many buckets, as a power of two.
const STEPS_BITS: u32 = 6;
const STEPS: i64 = 1 << STEPS_BITS;
const EXACT_BITS: u32 = EXACT.ilog2();
/// How much work a tenant's sketch remembers: with more, all counts are halved, so that what is older counts less.
pub const REMEMBERED: u64 = 1_024;
/// The same of the sketch of all tenants.
pub const REMEMBERED_OF_ALL: u64 = 1 << 20;
/// Of how much work it is known how far off its estimates were.
pub const LATEST: usize = 100;
const PARTS: u16 = 10_000;

/// How the amount of a cost is estimated where no attribute bounds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EstimateRule {
    /// From what finished work used.
    Learned,
}

/// The share of finished work that an estimate covers: above 0, at most 1, with at most four decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Percentile(u16);

/// Why a text is no percentile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a decimal number as a string, above 0 and at most 1, with at most four decimals, such as \"0.95\""
)]
pub struct InvalidPercentile;

impl Percentile {
    /// What an estimate covers unless its cost says otherwise: 95 of 100.
    pub const USUAL: Self = Self(9_500);

    /// Which of `count` amounts in their order it is, from 1 on; 0 of none.
    fn rank(self, count: u64) -> u64 {
        (u128::from(count) * u128::from(self.0)).div_ceil(u128::from(PARTS)).try_into().unwrap_or(count)
    }
}

impl FromStr for Percentile {
    type Err = InvalidPercentile;

    fn from_str(text: &str) -> Result<Self, InvalidPercentile> {
        let is_plain = text.starts_with(|first: char| first.is_ascii_digit());
        let share = Decimal::from_str_exact(text).map_err(|_| InvalidPercentile)?;
        let parts = share.checked_mul(Decimal::from(PARTS)).ok_or(InvalidPercentile)?.normalize();
        let parts = if parts.scale() == 0 { u16::try_from(parts.mantissa()).ok() } else { None };
        parts.filter(|parts| is_plain && (1..=PARTS).contains(parts)).map(Self).ok_or(InvalidPercentile)
    }
}

impl TryFrom<String> for Percentile {
    type Error = InvalidPercentile;

    fn try_from(text: String) -> Result<Self, InvalidPercentile> {
        text.parse()
    }
}

impl From<Percentile> for String {
    fn from(percentile: Percentile) -> Self {
        percentile.to_string()
    }
}

impl std::fmt::Display for Percentile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Decimal::new(i64::from(self.0), 4).normalize().fmt(f)
    }
}

/// How often finished work used how much.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sketch {
    /// Buckets with their counts, from the lowest on; none is empty.
    counts: Vec<(u16, u32)>,
    total: u64,
}

impl Sketch {
    /// The sketch of these buckets and counts. None where they are in no order, or a count is zero.
    pub fn of(counts: Vec<(u16, u32)>) -> Option<Self> {
        let is_sound = counts.is_sorted_by(|one, next| one.0 < next.0)
            && counts.iter().all(|(bucket, count)| *count > 0 && *bucket <= bucket_of(Units::MAX));
        let total = counts.iter().map(|(_, count)| u64::from(*count)).sum();
        is_sound.then_some(Self { counts, total })
    }

    /// Its buckets and counts, from the lowest on.
    pub fn counts(&self) -> &[(u16, u32)] {
        &self.counts
    }

    /// How much work it counts. What it has forgotten is left out.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Counts work that used so much; with more than `remembered` of it, halves what it has counted.
    pub fn add(&mut self, used: Units, remembered: u64) {
        let bucket = bucket_of(used);
        match self.counts.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => self.counts[at].1 = self.counts[at].1.saturating_add(1),
            Err(at) => self.counts.insert(at, (bucket, 1)),
        }
        self.total += 1;
        if self.total > remembered {
            self.halve();
        }
    }

    /// Halves the counts so that each percentile stays where it is: what is halved is how much work used at most so
    /// much, not each bucket by itself, in which single counts would all be lost or all be kept.
    fn halve(&mut self) {
        let (mut until, mut kept) = (0_u64, 0_u64);
        for (_, count) in &mut self.counts {
            until += u64::from(*count);
            let half = until / 2;
            *count = u32::try_from(half - kept).unwrap_or(u32::MAX);
            kept = half;
        }
        self.counts.retain(|(_, count)| *count > 0);
        self.total = kept;
    }

    /// An amount that covers this share of what it counts: at least the exact percentile, and less than 1.6 percent
    /// above it. None where it counts nothing.
    pub fn covers(&self, percentile: Percentile) -> Option<Units> {
        let rank = percentile.rank(self.total);
        let mut until = 0;
        self.counts.iter().find_map(|(bucket, count)| {
            until += u64::from(*count);
            (until >= rank).then(|| highest_of(*bucket))
        })
    }
}

fn bucket_of(units: Units) -> u16 {
    let units = units.get();
    let bucket = if units < EXACT {
        units
    } else {
        let doubling = units.ilog2();
        let step = (units >> (doubling - STEPS_BITS)) - STEPS;
        EXACT + i64::from(doubling - EXACT_BITS) * STEPS + step
    };
    u16::try_from(bucket).unwrap_or(u16::MAX)
}

fn highest_of(bucket: u16) -> Units {
    let bucket = i64::from(bucket);
    if bucket < EXACT {
        return Units::new(bucket).unwrap_or_default();
    }
    let (doublings, step) = ((bucket - EXACT) / STEPS, (bucket - EXACT) % STEPS);
    let width = u32::try_from(doublings + 1).ok().and_then(|bits| 1_i128.checked_shl(bits)).unwrap_or(1);
    let highest = i128::from(STEPS + step + 1) * width - 1;
    i64::try_from(highest).ok().and_then(Units::new).unwrap_or(Units::MAX)
}

/// Work whose hold was an estimate: what was held and what it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimated {
    /// What was held.
    pub held: Units,
    /// What it used, also what `cap` left uncharged.
    pub used: Units,
}

/// The latest work whose holds were estimates, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latest(VecDeque<Estimated>);

impl Latest {
    /// The latest of these, which come in their order.
    pub fn of(work: impl IntoIterator<Item = Estimated>) -> Self {
        let mut latest = Self::default();
        work.into_iter().for_each(|each| latest.add(each));
        latest
    }

    /// Adds one; the oldest leaves where there are too many.
    pub fn add(&mut self, work: Estimated) {
        self.0.push_back(work);
        if self.0.len() > LATEST {
            self.0.pop_front();
        }
    }

    /// All of them, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Estimated> {
        self.0.iter()
    }

    /// How far off their estimates were; none where there is no such work.
    pub fn accuracy(&self) -> Option<Accuracy> {
        let mut percents: Vec<i128> = self.0.iter().filter_map(percent_used).collect();
        percents.sort_unstable();
        let sum = |of: fn(&Estimated) -> Units| {
            self.0.iter().map(of).fold(Units::ZERO, |sum, units| sum.checked_add(units).unwrap_or(Units::MAX))
        };
        let at = |percent: usize| {
            let rank = (percents.len() * percent).div_ceil(100).checked_sub(1)?;
            percents.get(rank).and_then(|percent| i64::try_from(*percent).ok())
        };
        Some(Accuracy {
            count: self.0.len(),
            exceeded: self.0.iter().filter(|work| work.used > work.held).count(),
            unused: sum(|work| work.held.saturating_sub(work.used)),
            excess: sum(|work| work.used.saturating_sub(work.held)),
            median_percent: at(50)?,
            high_percent: at(90)?,
        })
    }
}

/// How much of its hold the work used, in percent, rounded down.
fn percent_used(work: &Estimated) -> Option<i128> {
    (i128::from(work.used.get()) * 100).checked_div(i128::from(work.held.get()))
}

/// How far off the latest estimates were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accuracy {
    /// Of how much work: at most [`LATEST`].
    pub count: usize,
    /// How much of it used more than was held.
    pub exceeded: usize,
    /// What was held and not used, of all together.
    pub unused: Units,
    /// What was used beyond the holds, of all together.
    pub excess: Units,
    /// How much of its hold half of the work used at most, in percent.
    pub median_percent: i64,
    /// How much of its hold nine tenths of the work used at most, in percent.
    pub high_percent: i64,
}

/// Where an estimate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EstimateSource {
    /// What finished work of this tenant used.
    Tenant,
    /// What that of all tenants used, as this one has none.
    AllTenants,
    /// The cost's maximum, as nobody has any.
    Maximum,
}

impl EstimateSource {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::AllTenants => "all_tenants",
            Self::Maximum => "max",
        }
    }
}

/// What is held for work of which nothing says how much it will use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// How much: at least one unit, within the bounds of the cost.
    pub units: Units,
    /// The share of work that it covers.
    pub percentile: Percentile,
    /// Where it comes from.
    pub source: EstimateSource,
    /// From how much finished work.
    pub count: u64,
    /// How far off the latest of this tenant were.
    pub accuracy: Option<Accuracy>,
}

#[cfg(test)]
mod tests;
