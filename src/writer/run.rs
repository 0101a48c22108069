//! The loop: read the outboxes, book, tell, trim; by leases, so that two writers do not do the same work twice.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::apply::{Applied, PartitionEvents, apply, was_overtaken};
use super::batch::{Reading, follow};
use super::fail_point::{FailPoint, FailPoints, Killed};
use super::outbox::{Outbox, OutboxEntry};
use super::watch::{Alarm, Watch};
use crate::domain::ids::{Epoch, OutboxId, Partition};
use crate::ledger::{Ledger, LedgerError};

/// How the writer works.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Who it is, in the leases: after a restart under the same name it goes on at once.
    pub owner: String,
    /// For how long a lease is taken; renewed after a third of it.
    pub lease_duration: Duration,
    /// The most events in one transaction.
    pub batch_events: usize,
    /// The longest wait for new events.
    pub idle_poll: Duration,
    /// The pause after a failure.
    pub pause: Duration,
    /// Booked events are kept in the outbox for so long ...
    pub safety_tail: Duration,
    /// ... and at most so many bytes of them per partition.
    pub safety_tail_bytes: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            owner: "writer".into(),
            lease_duration: Duration::from_secs(3),
            batch_events: 2_000,
            idle_poll: Duration::from_millis(100),
            pause: Duration::from_millis(200),
            safety_tail: Duration::from_secs(900),
            safety_tail_bytes: 16 << 20,
        }
    }
}

/// What one pass came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pass {
    /// What was booked.
    pub applied: Applied,
    /// Whether more waits, so that the next pass should follow at once.
    pub more: bool,
}

/// Books the events of the partitions it has leases of.
pub struct Writer<O: Outbox, W: Watch> {
    outbox: O,
    ledger: Ledger,
    watch: W,
    options: WriterOptions,
    fail_points: Arc<FailPoints>,
    partitions: BTreeMap<Partition, Position>,
    leased_until: Option<Instant>,
}

/// What the writer knows about a partition that it holds.
struct Position {
    booked: OutboxId,
    booked_hash: Option<[u8; 32]>,
    issued: Epoch,
    /// The cursor at which amnesia was told, so that it is told once.
    doubted: Option<OutboxId>,
    tail: VecDeque<Tail>,
    tail_bytes: usize,
}

/// A stretch of booked events that still stands in the outbox.
struct Tail {
    last: OutboxId,
    booked_at: Instant,
    bytes: usize,
}

enum Failure {
    Killed,
    Failed(String),
}

impl From<Killed> for Failure {
    fn from(_: Killed) -> Self {
        Self::Killed
    }
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<super::OutboxError> for Failure {
    fn from(error: super::OutboxError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl<O: Outbox, W: Watch> Writer<O, W> {
    /// A writer that has done nothing yet.
    pub fn new(outbox: O, ledger: Ledger, watch: W, options: WriterOptions) -> Self {
        let (fail_points, partitions) = (Arc::default(), BTreeMap::new());
        Self { outbox, ledger, watch, options, fail_points, partitions, leased_until: None }
    }

    /// The places where tests may stop it.
    pub fn fail_points(&self) -> Arc<FailPoints> {
        self.fail_points.clone()
    }

    /// Books until `stop` is done, then gives its leases back; a transaction once begun is finished first. Whatever
    /// fails is told and tried again.
    pub async fn run(mut self, stop: impl Future<Output = ()> + Send) {
        tokio::pin!(stop);
        loop {
            let pause = match self.try_pass().await {
                Ok(pass) if pass.more => Duration::ZERO,
                // Others have every lease: nothing to wait for at the gate.
                Ok(_) if self.partitions.is_empty() => self.options.pause,
                Ok(_) => {
                    let after: Vec<_> = self.partitions.iter().map(|(p, at)| (*p, at.booked)).collect();
                    tokio::select! {
                        () = &mut stop => break,
                        // A gate that cannot say is asked again by the next pass, which tells of it.
                        waited = self.outbox.wait(&after, self.options.idle_poll) => {
                            if waited.is_err() { self.options.pause } else { Duration::ZERO }
                        }
                    }
                }
                Err(Failure::Killed) => return,
                Err(Failure::Failed(error)) => {
                    self.watch.failed(&error);
                    self.leased_until = None;
                    self.options.pause
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        if let Err(error) = self.ledger.give_back_leases(&self.options.owner).await {
            self.watch.failed(&error.to_string());
        }
    }

    /// One pass over the partitions: what can be read now is booked, told and trimmed.
    ///
    /// Errors: a sentence; nothing is half done, and the next pass goes on.
    pub async fn pass(&mut self) -> Result<Pass, String> {
        self.try_pass().await.map_err(|failure| match failure {
            Failure::Killed => "killed at a fail point".into(),
            Failure::Failed(error) => error,
        })
    }

    async fn try_pass(&mut self) -> Result<Pass, Failure> {
        self.renew_leases().await?;
        if self.partitions.is_empty() {
            return Ok(Pass::default());
        }
        let (parts, more) = self.read().await?;
        self.fail_points.check(FailPoint::AfterRead)?;
        let sizes = sizes(&parts);
        let began = Instant::now();
        let applied = match apply(&self.ledger, parts, &self.fail_points).await {
            Ok(applied) => applied,
            Err(error) if was_overtaken(&error) => {
                self.leased_until = None;
                return Ok(Pass { more: true, ..Pass::default() });
            }
            Err(error) => {
                self.fail_points.check(FailPoint::BeforeCommit)?;
                return Err(error.into());
            }
        };
        self.fail_points.check(FailPoint::AfterCommit)?;
        self.tell(&applied, began.elapsed());
        let positions: Vec<_> = applied.booked.iter().map(|(partition, id, _)| (*partition, *id)).collect();
        if !positions.is_empty() {
            // Best effort: the next pass publishes a later position.
            if let Err(error) = self.outbox.publish(&positions).await {
                self.watch.failed(&error.to_string());
            }
        }
        self.fail_points.check(FailPoint::AfterPublish)?;
        self.remember(&applied, &sizes, began);
        self.trim().await?;
        self.fail_points.check(FailPoint::AfterTrim)?;
        Ok(Pass { applied, more })
    }

    /// Takes the leases that are free and reads the positions of partitions that are new here.
    async fn renew_leases(&mut self) -> Result<(), Failure> {
        if self.leased_until.is_some_and(|until| Instant::now() < until) {
            return Ok(());
        }
        let rows = self.ledger.epochs().await?;
        let names: Vec<String> = rows.iter().map(|row| lease_name(row.partition)).collect();
        let held = self.ledger.take_leases(&names, &self.options.owner, self.options.lease_duration).await?;
        let cursors = self.ledger.cursors().await?;
        self.partitions.retain(|partition, _| held.contains(&lease_name(*partition)));
        for (row, cursor) in rows.iter().zip(cursors) {
            if !held.contains(&lease_name(row.partition)) || row.partition != cursor.partition {
                continue;
            }
            let position =
                self.partitions.entry(row.partition).or_insert_with(|| Position::new(cursor.booked));
            position.issued = row.epoch;
            if position.booked != cursor.booked {
                // Another writer went on, or Postgres went back: what was remembered of the tail no longer holds.
                *position = Position { issued: row.epoch, ..Position::new(cursor.booked) };
            }
            position.booked_hash = cursor.event_hash;
        }
        self.leased_until = Some(Instant::now() + self.options.lease_duration / 3);
        Ok(())
    }

    /// Reads each partition from its cursor on, and holds what comes against what was booked.
    async fn read(&mut self) -> Result<(Vec<PartitionEvents>, bool), Failure> {
        let from: Vec<_> = self.partitions.iter().map(|(p, at)| (*p, at.read_from())).collect();
        let count = (self.options.batch_events / from.len()).max(16) + 1;
        let read = self.outbox.read(&from, count).await?;
        let mut more = false;
        let mut parts = Vec::new();
        let mut waiting = 0;
        let mut oldest_ms: Option<i64> = None;
        for (partition, events) in read {
            let Some(position) = self.partitions.get_mut(&partition) else { continue };
            let is_full = events.len() >= count;
            match follow(position.booked, position.booked_hash.as_ref(), position.issued, events) {
                Reading::Next { events, gaps } => {
                    // Full of what the old epoch should not hold: go on behind it.
                    position.doubted = (is_full && events.is_empty()).then_some(position.booked);
                    more |= is_full;
                    waiting += events.len();
                    let first_ms = events.first().and_then(|(_, bytes)| super::batch::gate_time_ms(bytes));
                    oldest_ms = [oldest_ms, first_ms].into_iter().flatten().min();
                    let booked = position.booked;
                    parts.push(PartitionEvents { partition, booked, events, gaps });
                }
                Reading::Amnesia => {
                    if position.doubted.replace(position.booked) != Some(position.booked) {
                        self.watch.alarm(&Alarm::Amnesia { partition, cursor: position.booked });
                    }
                    // Ask again soon whether there is a new epoch.
                    self.leased_until = None;
                }
                Reading::UnknownEpoch(_) => self.leased_until = None,
            }
        }
        self.watch.lag(waiting, oldest_ms);
        for part in &parts {
            for (after, found) in &part.gaps {
                self.watch.alarm(&Alarm::Gap { partition: part.partition, after: *after, found: *found });
            }
        }
        Ok((parts, more))
    }

    fn tell(&mut self, applied: &Applied, took: Duration) {
        for (partition, id, hash) in &applied.booked {
            if let Some(position) = self.partitions.get_mut(partition) {
                position.booked = *id;
                position.booked_hash = Some(*hash);
            }
            self.watch.booked(*partition, *id);
        }
        for (partition, outbox_id, reason) in &applied.quarantined {
            let alarm =
                Alarm::Quarantined { partition: *partition, outbox_id: *outbox_id, reason: reason.clone() };
            self.watch.alarm(&alarm);
        }
        if applied.events + applied.quarantined.len() > 0 {
            self.watch.committed(applied.events, took);
        }
    }

    fn remember(&mut self, applied: &Applied, sizes: &BTreeMap<Partition, usize>, booked_at: Instant) {
        for (partition, last, _) in &applied.booked {
            if let Some(position) = self.partitions.get_mut(partition) {
                let bytes = sizes.get(partition).copied().unwrap_or_default();
                position.tail.push_back(Tail { last: *last, booked_at, bytes });
                position.tail_bytes += bytes;
            }
        }
    }

    /// Drops what is older than the safety tail; the last booked event always stays.
    async fn trim(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        for (partition, position) in &mut self.partitions {
            let mut below = None;
            while let Some(tail) = position.tail.front() {
                let is_old = now.duration_since(tail.booked_at) >= self.options.safety_tail;
                if !is_old && position.tail_bytes <= self.options.safety_tail_bytes {
                    break;
                }
                below = Some(tail.last);
                position.tail_bytes -= tail.bytes;
                position.tail.pop_front();
            }
            // An id is kept that equals `below`, so trimming up to the cursor keeps the last booked event.
            if let Some(below) = below {
                self.outbox.trim(*partition, below.min(position.booked)).await?;
            }
        }
        Ok(())
    }
}

impl Position {
    fn new(booked: OutboxId) -> Self {
        Self {
            booked,
            booked_hash: None,
            issued: booked.epoch,
            doubted: None,
            tail: VecDeque::new(),
            tail_bytes: 0,
        }
    }

    /// From the cursor, the cursor included.
    fn read_from(&self) -> OutboxId {
        match self.doubted {
            // The old epoch's rest is not to be trusted; a new one begins behind all of it.
            Some(booked) if self.issued > booked.epoch => {
                OutboxId { epoch: Epoch(booked.epoch.0 + 1), sequence: 0 }
            }
            _ => self.booked,
        }
    }
}

fn lease_name(partition: Partition) -> String {
    format!("writer/{partition}")
}

fn sizes(parts: &[PartitionEvents]) -> BTreeMap<Partition, usize> {
    let bytes = |events: &[OutboxEntry]| events.iter().map(|(_, event)| event.len()).sum();
    parts.iter().map(|part| (part.partition, bytes(&part.events))).collect()
}
