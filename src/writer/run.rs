//! The loop: read the outboxes, book, tell, trim; by leases, so that two writers do not do the same work twice.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::apply::{Applied, PartitionEvents, apply, was_overtaken};
use super::batch::{Reading, follow, gate_time_ms};
use super::fail_point::{FailPoint, FailPoints, Killed};
use super::outbox::{Outbox, OutboxEntry, OutboxError};
use super::rests::is_silent;
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
    /// How long events are let come together once there is one, unless somebody waits for the books: a transaction costs
    /// nearly the same for ten events as for one.
    pub gather: Duration,
    /// The pause after a failure.
    pub pause: Duration,
    /// Booked events are kept in the outbox for so long ...
    pub safety_tail: Duration,
    /// ... and at most so many bytes of them per partition.
    pub safety_tail_bytes: usize,
    /// How long a stop goes on booking what waits.
    pub flush_timeout: Duration,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            owner: "writer".into(),
            lease_duration: Duration::from_secs(2),
            batch_events: 2_000,
            idle_poll: Duration::from_millis(100),
            gather: Duration::ZERO,
            pause: Duration::from_millis(200),
            safety_tail: Duration::from_secs(900),
            safety_tail_bytes: 16 << 20,
            flush_timeout: Duration::from_secs(2),
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
    /// Whether a partition waits for a new epoch, or for news of one.
    pub doubted: bool,
}

/// Books the events of the partitions it has leases of.
pub struct Writer<O: Outbox, W: Watch> {
    pub(super) outbox: O,
    pub(super) ledger: Ledger,
    pub(super) watch: W,
    options: WriterOptions,
    fail_points: Arc<FailPoints>,
    pub(super) partitions: BTreeMap<Partition, Position>,
    pub(super) leased_until: Option<Instant>,
    /// Booked positions that the gate was not told yet.
    untold: BTreeMap<Partition, OutboxId>,
    /// How many partitions had more than was read of them last time.
    busy: usize,
}

/// What the writer knows about a partition that it holds.
pub(super) struct Position {
    pub(super) booked: OutboxId,
    booked_hash: Option<[u8; 32]>,
    pub(super) issued: Epoch,
    /// The cursor at which amnesia was told, so that it is told once.
    doubted: Option<OutboxId>,
    /// The last epoch whose rest the ledger knows to be given up.
    pub(super) given_up: Epoch,
    /// How many passes in a row met an epoch that the ledger has not issued.
    unknown_epochs: u8,
    tail: VecDeque<Tail>,
    tail_bytes: usize,
}

/// How long giving the leases back may take.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_millis(500);
/// How many passes may meet an unknown epoch before it is an alarm.
const UNKNOWN_EPOCHS_MAX: u8 = 5;
/// The fewest events asked of a partition.
const SHARE_MIN: usize = 16;
/// Among how many partitions a batch is shared when none is known to be busy.
const IDLE_SHARES: usize = 8;

/// A stretch of booked events that still stands in the outbox.
struct Tail {
    last: OutboxId,
    booked_at: Instant,
    bytes: usize,
}

pub(super) enum Failure {
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
        Self {
            outbox,
            ledger,
            watch,
            options,
            fail_points: Arc::default(),
            partitions: BTreeMap::new(),
            leased_until: None,
            untold: BTreeMap::new(),
            busy: 0,
        }
    }

    /// The places where tests may stop it.
    pub fn fail_points(&self) -> Arc<FailPoints> {
        self.fail_points.clone()
    }

    /// Books until `stop` is done, then what still waits, and gives its leases back; both within bounds, whatever hangs.
    /// Whatever fails is told and tried again.
    pub async fn run(mut self, stop: impl Future<Output = ()> + Send) {
        let stopping = watch::Sender::new(false);
        let flush_timeout = self.options.flush_timeout;
        let finished = {
            let booking = self.book(stopping.subscribe());
            tokio::pin!(booking);
            tokio::select! {
                finished = &mut booking => Some(finished),
                () = stop => {
                    stopping.send_replace(true);
                    tokio::time::timeout(flush_timeout, booking).await.ok()
                }
            }
        };
        match finished {
            // Killed is killed: nothing is given back.
            Some(Err(Killed)) => return,
            Some(Ok(())) => {}
            None => {
                self.watch.failed("not all that waits was booked before the stop; the next start books it")
            }
        }
        let given_back = self.ledger.give_back_leases(&self.options.owner);
        match tokio::time::timeout(GIVE_BACK_TIMEOUT, given_back).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.watch.failed(&error.to_string()),
            Err(_) => self.watch.failed("the leases were not given back; they end by themselves"),
        }
    }

    /// Pass after pass until asked to stop; then until nothing waits any more.
    async fn book(&mut self, mut stopping: watch::Receiver<bool>) -> Result<(), Killed> {
        loop {
            let pause = match self.try_pass().await {
                Ok(pass) if pass.more => Duration::ZERO,
                Ok(pass) if *stopping.borrow() && pass.applied.booked.is_empty() => return Ok(()),
                // Others have every lease, or what rings the gate's bell cannot be booked yet.
                Ok(pass) if pass.doubted || self.partitions.is_empty() => self.options.pause,
                Ok(_) if *stopping.borrow() => Duration::ZERO,
                Ok(_) => self.wait_for_events(&mut stopping).await,
                Err(Failure::Killed) => return Err(Killed),
                Err(Failure::Failed(error)) => {
                    self.watch.failed(&error);
                    self.leased_until = None;
                    self.options.pause
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // One that stops already sleeps out its pause.
                Ok(()) = stopping.changed() => {}
            }
        }
    }

    /// Returns when there may be something to book, after a pause to be made, or when asked to stop.
    async fn wait_for_events(&self, stopping: &mut watch::Receiver<bool>) -> Duration {
        let after: Vec<_> = self.partitions.iter().map(|(p, at)| (*p, at.done_with())).collect();
        let gathering = async {
            // A gate that cannot say is asked again by the next pass, which tells of it.
            if self.outbox.wait(&after, self.options.idle_poll).await.is_err() {
                return self.options.pause;
            }
            tokio::select! {
                () = tokio::time::sleep(self.options.gather) => {}
                () = self.watch.wanted() => {}
            }
            Duration::ZERO
        };
        tokio::select! {
            Ok(()) = stopping.changed() => Duration::ZERO,
            pause = gathering => pause,
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
        let (parts, mut pass) = self.read().await?;
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
        self.publish(&applied).await;
        self.fail_points.check(FailPoint::AfterPublish)?;
        self.remember(&applied, &sizes, began);
        self.trim().await?;
        self.fail_points.check(FailPoint::AfterTrim)?;
        pass.applied = applied;
        Ok(pass)
    }

    /// Best effort: what could not be told is told with the next pass.
    async fn publish(&mut self, applied: &Applied) {
        self.untold.extend(applied.booked.iter().map(|(partition, id, _)| (*partition, *id)));
        let positions: Vec<_> = self.untold.iter().map(|(partition, id)| (*partition, *id)).collect();
        if positions.is_empty() {
            return;
        }
        match self.outbox.publish(&positions).await {
            Ok(()) => self.untold.clear(),
            Err(error) => {
                self.watch.failed(&error.to_string());
                if let OutboxError::Doubt { partition, reason } = error {
                    self.watch.alarm(&Alarm::Doubt { partition, reason });
                }
            }
        }
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
            position.given_up = cursor.given_up;
        }
        self.leased_until = Some(Instant::now() + self.options.lease_duration / 3);
        Ok(())
    }

    /// How many events to ask of each partition: a batch's worth shared by those that are busy.
    fn share(&self) -> usize {
        let sharing = if self.busy == 0 { self.partitions.len().min(IDLE_SHARES) } else { self.busy };
        (self.options.batch_events / sharing.max(1)).max(SHARE_MIN)
    }

    /// Reads each partition from its cursor on, and holds what comes against what was booked.
    async fn read(&mut self) -> Result<(Vec<PartitionEvents>, Pass), Failure> {
        let from: Vec<_> = self.partitions.iter().map(|(p, at)| (*p, at.read_from())).collect();
        let count = self.share() + 1;
        let read = self.outbox.read(&from, count).await?;
        self.busy = read.iter().filter(|(_, events)| events.len() >= count).count();
        let mut pass = Pass::default();
        let mut parts = Vec::new();
        let mut room = self.options.batch_events * 2;
        let (mut giving_up, mut silent) = (Vec::new(), Vec::new());
        for (partition, events) in read {
            let Some(position) = self.partitions.get_mut(&partition) else { continue };
            let is_full = events.len() >= count;
            if is_silent(&events, position.booked) {
                silent.push(partition);
            }
            match position.take(partition, events, is_full) {
                Ok((mut part, gives_up)) => {
                    if gives_up && position.given_up < position.booked.epoch {
                        giving_up.push((partition, position.booked));
                    }
                    pass.more |= is_full || part.events.len() > room;
                    part.shorten(room);
                    pass.more |= part.end_at_checkpoint();
                    room -= part.events.len();
                    parts.push(part);
                }
                Err(alarm) => {
                    pass.doubted = true;
                    // Ask again soon whether there is a new epoch.
                    self.leased_until = None;
                    if let Some(alarm) = alarm {
                        self.watch.alarm(&alarm);
                    }
                }
            }
        }
        self.give_up_strangers(giving_up).await?;
        self.give_up_lost(&silent).await?;
        self.tell_lag(&parts);
        Ok((parts, pass))
    }

    fn tell_lag(&self, parts: &[PartitionEvents]) {
        let first = |part: &PartitionEvents| part.events.first().and_then(|(_, bytes)| gate_time_ms(bytes));
        let waiting = parts.iter().map(|part| part.events.len()).sum();
        self.watch.lag(waiting, parts.iter().filter_map(first).min());
        for part in parts {
            for (after, found) in &part.gaps {
                self.watch.alarm(&Alarm::Gap { partition: part.partition, after: *after, found: *found });
            }
        }
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
        applied.judged.iter().for_each(|judged| self.watch.judged(judged));
        if applied.repeats > 0 {
            self.watch.repeated(applied.repeats);
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
            given_up: Epoch(0),
            unknown_epochs: 0,
            tail: VecDeque::new(),
            tail_bytes: 0,
        }
    }

    /// What of these comes next, and whether the rest of the cursor's epoch is given up for it; else the partition is in doubt, with an alarm the first time that is certain.
    fn take(
        &mut self,
        partition: Partition,
        events: Vec<OutboxEntry>,
        is_full: bool,
    ) -> Result<(PartitionEvents, bool), Option<Alarm>> {
        let booked = self.booked;
        let amnesia = Alarm::Amnesia { partition, cursor: booked };
        match follow(booked, self.booked_hash.as_ref(), self.issued, events) {
            Reading::Next { events, gaps, gives_up } => {
                self.unknown_epochs = 0;
                // Full of what the old epoch should not hold: go on behind it.
                self.doubted = (is_full && events.is_empty()).then_some(booked);
                Ok((PartitionEvents { partition, booked, events, gaps }, gives_up))
            }
            Reading::Amnesia => Err((self.doubted.replace(booked) != Some(booked)).then_some(amnesia)),
            Reading::UnknownEpoch(_) => {
                // The first time it may have been issued just now; later the ledger itself has gone back.
                self.unknown_epochs = self.unknown_epochs.saturating_add(1);
                Err((self.unknown_epochs == UNKNOWN_EPOCHS_MAX).then_some(amnesia))
            }
        }
    }

    /// From the cursor, the cursor included; behind what is given up, which is never booked though it should turn up again.
    pub(super) fn read_from(&self) -> OutboxId {
        match self.doubted {
            _ if self.has_given_up() => OutboxId { epoch: Epoch(self.given_up.0 + 1), sequence: 0 },
            // The old epoch's rest is not to be trusted; a new one begins behind all of it.
            Some(booked) if self.issued > booked.epoch => {
                OutboxId { epoch: Epoch(booked.epoch.0 + 1), sequence: 0 }
            }
            _ => self.booked,
        }
    }

    /// The place behind which an event is news.
    fn done_with(&self) -> OutboxId {
        match self.has_given_up() {
            true => OutboxId { epoch: self.given_up, sequence: u64::MAX },
            false => self.booked,
        }
    }

    fn has_given_up(&self) -> bool {
        self.given_up > Epoch(0) && self.given_up >= self.booked.epoch
    }
}

fn lease_name(partition: Partition) -> String {
    format!("writer/{partition}")
}

fn sizes(parts: &[PartitionEvents]) -> BTreeMap<Partition, usize> {
    let bytes = |events: &[OutboxEntry]| events.iter().map(|(_, event)| event.len()).sum();
    parts.iter().map(|part| (part.partition, bytes(&part.events))).collect()
}
