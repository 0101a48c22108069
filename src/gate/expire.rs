//! `expire`: the sweep that gives back the units of expired holds.

use crate::domain::codec::Undecodable;
use crate::domain::ids::Partition;

use super::Gate;
use super::error::GateError;
use super::keys::Keys;
use super::scan::Walk;
use super::scripts::Script;

/// How many empty buckets one call passes at most; over more of them the sweep leaps.
const EMPTY_BUCKETS_MAX: u32 = 2_000;
/// The most due entries of one call.
pub const BATCH_MAX: u32 = 500;
/// The most due lists of one call.
const LISTS_MAX: usize = 100;

/// Something that the sweep skipped because it cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// A reservation's id, or a due list.
    pub item: String,
    /// Why it cannot be decoded.
    pub reason: String,
}

/// What one call of the sweep did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExpireReport {
    /// Reservations that expired.
    pub expired: u32,
    /// Due entries that had resolved, moved or belong to another epoch.
    pub skipped: u32,
    /// Due entries without a record.
    pub missing: u32,
    /// Holds of a cold tenant or subject, moved to a later bucket.
    pub postponed: u32,
    /// Holds whose counters hold less than they should, left alone and moved to a later bucket: a fault that raises an
    /// alarm.
    pub inconsistent: u32,
    /// Things that cannot be decoded: a reservation with its counters is retried a minute later. The first of them are
    /// named.
    pub damaged: u32,
    /// The first of the things that cannot be decoded.
    pub unreadable: Vec<Unreadable>,
    /// Whether more is due now.
    pub more: bool,
    /// The last due bucket that is finished.
    pub swept: i64,
    /// A leap with lists before it that are not swept: ask [`Gate::due_lists`] and call [`Gate::expire_behind`].
    pub leap: Option<i64>,
}

impl ExpireReport {
    /// This report with what was done to light holds at the same time.
    #[must_use]
    pub fn with_light(self, mut light: Self) -> Self {
        let (more, swept, leap) = (self.more || light.more, self.swept, self.leap);
        light.add(self);
        Self { more, swept, leap, ..light }
    }

    /// Adds the report of a later call, whose position holds.
    pub fn add(&mut self, later: Self) {
        let mut unreadable = std::mem::take(&mut self.unreadable);
        unreadable.extend(later.unreadable);
        *self = Self {
            expired: self.expired + later.expired,
            skipped: self.skipped + later.skipped,
            missing: self.missing + later.missing,
            postponed: self.postponed + later.postponed,
            inconsistent: self.inconsistent + later.inconsistent,
            damaged: self.damaged + later.damaged,
            unreadable,
            more: later.more,
            swept: later.swept,
            leap: later.leap,
        };
    }
}

/// A due list: its partition and bucket.
pub type DueList = (Partition, i64);

impl Gate {
    /// Sweeps at most `batch` due entries of a partition (bounded by [`BATCH_MAX`]). `now_ms` is the test clock's; none
    /// for Redis's own.
    pub async fn expire(
        &self,
        partition: Partition,
        now_ms: Option<i64>,
        batch: u32,
    ) -> Result<ExpireReport, GateError> {
        self.run_expire(partition, now_ms, batch, &[], None).await
    }

    /// The due lists of all partitions, in no order. One that exists during the whole search is among them.
    pub async fn due_lists(&self) -> Result<Vec<DueList>, GateError> {
        let (mut lists, mut walk) = (Vec::new(), Walk::over(Keys::DUE_PATTERN));
        while let Some(keys) = walk.next(self).await? {
            lists.extend(keys.iter().filter_map(|key| self.keys.read_due(key)));
        }
        Ok(lists)
    }

    /// Sweeps all lists of a partition before `leap`, and settles the leap. `buckets` are those found after the leap.
    pub async fn expire_behind(
        &self,
        partition: Partition,
        now_ms: Option<i64>,
        leap: i64,
        buckets: &[i64],
    ) -> Result<ExpireReport, GateError> {
        let mut sum = ExpireReport::default();
        let mut behind: Vec<i64> = buckets.iter().copied().filter(|bucket| *bucket <= leap).collect();
        behind.sort_unstable();
        behind.dedup();
        for buckets in behind.chunks(LISTS_MAX) {
            let lists: Vec<_> = buckets.iter().map(|bucket| self.keys.due(partition, *bucket)).collect();
            loop {
                let report = self.run_expire(partition, now_ms, BATCH_MAX, &lists, None).await?;
                let more = report.more;
                sum.add(report);
                if !more {
                    break;
                }
            }
        }
        sum.add(self.run_expire(partition, now_ms, BATCH_MAX, &[], Some(leap)).await?);
        Ok(sum)
    }

    /// Sweeps at most `batch` light holds of a partition that are over (bounded by [`BATCH_MAX`]). `now_ms` is the test
    /// clock's; none for Redis's own.
    pub async fn expire_held(
        &self,
        partition: Partition,
        now_ms: Option<i64>,
        batch: u32,
    ) -> Result<ExpireReport, GateError> {
        let mut arguments = self.mutating(partition, now_ms)?;
        arguments.push(batch.clamp(1, BATCH_MAX).to_string().into_bytes());
        arguments.extend(self.tombstone_arguments());
        let keys = [self.keys.meta(partition), self.keys.holds(partition)];
        let reply = self.run(partition, Script::ExpireHeld, &keys, &arguments).await?;
        let count = |at| u32::try_from(reply.integer(at)?).map_err(|_| Undecodable("a count"));
        Ok(ExpireReport {
            expired: count(0)?,
            skipped: count(1)?,
            missing: count(2)?,
            more: reply.integer(3)? == 1,
            damaged: count(4)?,
            unreadable: (5..).map_while(|at| reply.text(at).ok()).map(unreadable).collect(),
            ..ExpireReport::default()
        })
    }

    async fn run_expire(
        &self,
        partition: Partition,
        now_ms: Option<i64>,
        batch: u32,
        lists: &[String],
        settled: Option<i64>,
    ) -> Result<ExpireReport, GateError> {
        let mut arguments = self.mutating(partition, now_ms)?;
        arguments.push(self.options.due_bucket_ms.to_string().into_bytes());
        arguments.push(batch.clamp(1, BATCH_MAX).to_string().into_bytes());
        arguments.push(EMPTY_BUCKETS_MAX.to_string().into_bytes());
        arguments.extend(self.tombstone_arguments());
        arguments.push(settled.map(|leap| leap.to_string().into_bytes()).unwrap_or_default());
        let mut keys = vec![self.keys.meta(partition), self.keys.outbox(partition)];
        keys.extend_from_slice(lists);
        let reply = self.run(partition, Script::Expire, &keys, &arguments).await?;
        let count = |at| u32::try_from(reply.integer(at)?).map_err(|_| Undecodable("a count"));
        Ok(ExpireReport {
            expired: count(0)?,
            skipped: count(1)?,
            missing: count(2)?,
            postponed: count(3)?,
            inconsistent: count(4)?,
            more: reply.integer(5)? == 1,
            swept: reply.integer(6)?,
            leap: reply.text(7)?.parse().ok(),
            damaged: count(8)?,
            unreadable: (9..).map_while(|at| reply.text(at).ok()).map(unreadable).collect(),
        })
    }
}

fn unreadable(note: &str) -> Unreadable {
    let (what, reason) = note.split_once(' ').unwrap_or((note, ""));
    let item = match uuid::Uuid::parse_str(what) {
        Ok(id) => format!("reservation {id}"),
        Err(_) => what.to_owned(),
    };
    Unreadable { item, reason: reason.to_owned() }
}
