//! The loop: read the outboxes, book, publish, trim. Leases keep two writers from doing the same work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::abandoned::is_silent;
use super::apply::{Applied, PartitionEvents};
use super::batch::gate_time_ms;
use super::fail_point::{FailPoint, FailPoints, Killed};
use super::failure::Failure;
use super::observer::{Alarm, WriterObserver};
use super::outbox::{Outbox, OutboxEntry, OutboxError};
use super::pace::Pace;
use super::position::Position;
use crate::domain::ids::{OutboxId, Partition};
use crate::ledger::{Ledger, LedgerError};

/// How the writer works.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Its name in the leases: after a restart under the same name it goes on at once.
    pub owner: String,
    /// How long a lease lasts; it is renewed after a third of that.
    pub lease_duration: Duration,
    /// The most events in one transaction.
    pub batch_events: usize,
    /// The longest wait for new events.
    pub idle_poll: Duration,
    /// How long events gather after the first, unless a caller waits for the books: ten events cost nearly the same as
    /// one.
    pub gather: Duration,
    /// The same at thousands of events a second; in between, in proportion.
    pub gather_busy: Duration,
    /// The pause after a failure.
    pub pause: Duration,
    /// How long booked events stay in the outbox.
    pub safety_tail: Duration,
    /// The most bytes of booked events over all partitions of the node; the largest tail is trimmed first.
    pub safety_tail_bytes: u64,
    /// How long a stop keeps booking what waits.
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
            gather_busy: Duration::ZERO,
            pause: Duration::from_millis(200),
            safety_tail: Duration::from_secs(900),
            safety_tail_bytes: 256 << 20,
            flush_timeout: Duration::from_secs(2),
        }
    }
}

/// The result of one pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pass {
    /// What was booked.
    pub applied: Applied,
    /// Whether more events wait, so that the next pass follows at once.
    pub more: bool,
    /// Whether only partitions with new events were read.
    pub partial: bool,
    /// Whether a partition waits: for a new epoch, to learn of one, or since its next event cannot be booked.
    pub doubted: bool,
}

/// Books the events of the partitions that it holds leases on.
pub struct Writer<O: Outbox, W: WriterObserver> {
    pub(super) outbox: O,
    pub(super) ledger: Ledger,
    pub(super) watch: W,
    options: WriterOptions,
    pub(super) fail_points: Arc<FailPoints>,
    pub(super) partitions: BTreeMap<Partition, Position>,
    /// How many partitions the node has, including those of other writers.
    partitions_of_node: usize,
    pub(super) leased_until: Option<Instant>,
    /// Booked positions not yet published to the gate.
    undelivered: BTreeMap<Partition, OutboxId>,
    /// Doubts about the memory of partitions with that cursor, until they are reported.
    doubts: Vec<(Partition, OutboxId, Alarm)>,
    /// Whether the ledger has refused something of the last batch, so that the next one is booked part by part.
    pub(super) part_by_part: bool,
    /// How many partitions had more events than the last pass read.
    busy: usize,
    pace: Pace,
    /// The only partitions to read in the next pass; none reads all.
    news: Option<Vec<Partition>>,
    /// When all of them were read last.
    read_all_at: Option<Instant>,
}

/// How long giving the leases back may take.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_millis(500);
/// The fewest events asked of a partition.
const SHARE_MIN: usize = 16;
/// Among how many partitions a batch is shared when none is busy.
const IDLE_SHARES: usize = 8;

impl<O: Outbox, W: WriterObserver> Writer<O, W> {
    /// A writer that has done nothing yet.
    pub fn new(outbox: O, ledger: Ledger, watch: W, options: WriterOptions) -> Self {
        Self {
            outbox,
            ledger,
            watch,
            options,
            fail_points: Arc::default(),
            partitions: BTreeMap::new(),
            partitions_of_node: 0,
            leased_until: None,
            undelivered: BTreeMap::new(),
            doubts: Vec::new(),
            part_by_part: false,
            busy: 0,
            pace: Pace::new(Instant::now()),
            news: None,
            read_all_at: None,
        }
    }

    /// The places where tests may stop it.
    pub fn fail_points(&self) -> Arc<FailPoints> {
        self.fail_points.clone()
    }

    /// Books until `stop` resolves, then books what still waits and gives its leases back, both within bounded time.
    /// Failures are reported and retried.
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
            // A killed writer gives no lease back.
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

    /// Runs passes until asked to stop, then until nothing waits.
    async fn book(&mut self, mut stopping: watch::Receiver<bool>) -> Result<(), Killed> {
        loop {
            let pause = match self.try_pass().await {
                Ok(pass) if pass.more => Duration::ZERO,
                Ok(pass) if *stopping.borrow() && pass.applied.booked.is_empty() && !pass.partial => {
                    return Ok(());
                }
                // Other writers hold every lease, or the events that wait cannot be booked yet.
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
                // A writer that is stopping already sleeps through its pause.
                Ok(()) = stopping.changed() => {}
            }
        }
    }

    /// Waits for events to book or for a stop. Returns the pause to make before the next pass.
    async fn wait_for_events(&mut self, stopping: &mut watch::Receiver<bool>) -> Duration {
        // One that cannot be read would keep all others from being waited for.
        let readable = self.partitions.iter().filter(|(_, at)| !at.is_unreadable);
        let after: Vec<_> = readable.map(|(p, at)| (*p, at.done_with())).collect();
        let gather = self.pace.wait(self.options.gather, self.options.gather_busy);
        let gathering = async {
            // The next pass asks again, and reports the failure.
            let Ok(news) = self.outbox.wait(&after, self.options.idle_poll).await else {
                return (self.options.pause, None);
            };
            tokio::select! {
                biased;
                () = self.watch.wanted() => (Duration::ZERO, Some(news)),
                () = tokio::time::sleep(gather) => (Duration::ZERO, None),
            }
        };
        let (pause, news) = tokio::select! {
            Ok(()) = stopping.changed() => (Duration::ZERO, None),
            gathered = gathering => gathered,
        };
        self.news = news.filter(|news| !news.is_empty());
        pause
    }

    /// One pass over the partitions: books what can be read now, publishes the positions and trims.
    ///
    /// Errors: a sentence. Nothing is half done, and the next pass goes on.
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
        let Some(applied) = self.book_batch(parts, &mut pass).await? else {
            return Ok(Pass { more: true, ..Pass::default() });
        };
        self.fail_points.check(FailPoint::AfterCommit)?;
        self.tell(&applied, began.elapsed());
        self.publish(&applied).await;
        self.fail_points.check(FailPoint::AfterPublish)?;
        self.remember(&applied, &sizes, began);
        self.trim().await?;
        self.fail_points.check(FailPoint::AfterTrim)?;
        pass.more |= applied.ended_at_cut;
        pass.applied = applied;
        Ok(pass)
    }

    /// Publishes positions, best effort: the next pass publishes what failed now.
    async fn publish(&mut self, applied: &Applied) {
        self.undelivered.extend(applied.booked.iter().map(|(partition, id, _)| (*partition, *id)));
        let positions: Vec<_> = self.undelivered.iter().map(|(partition, id)| (*partition, *id)).collect();
        if positions.is_empty() {
            return;
        }
        match self.outbox.publish(&positions).await {
            Ok(()) => self.undelivered.clear(),
            Err(error) => {
                self.watch.failed(&error.to_string());
                if let OutboxError::Doubt { partition, reason } = error {
                    self.watch.alarm(&Alarm::Doubt { partition, reason });
                }
            }
        }
    }

    /// Takes free leases and reads the positions of newly held partitions.
    async fn renew_leases(&mut self) -> Result<(), Failure> {
        if self.leased_until.is_some_and(|until| Instant::now() < until) {
            return Ok(());
        }
        let rows = self.ledger.epochs().await?;
        let names: Vec<String> = rows.iter().map(|row| lease_name(row.partition)).collect();
        let held = self.ledger.take_leases(&names, &self.options.owner, self.options.lease_duration).await?;
        let cursors = self.ledger.cursors().await?;
        self.partitions_of_node = rows.len();
        self.partitions.retain(|partition, _| held.contains(&lease_name(*partition)));
        for (row, cursor) in rows.iter().zip(cursors) {
            if !held.contains(&lease_name(row.partition)) || row.partition != cursor.partition {
                continue;
            }
            let position = self.partitions.entry(row.partition);
            position.or_insert_with(|| Position::new(cursor.booked)).renew(row.epoch, &cursor);
        }
        self.leased_until = Some(Instant::now() + self.options.lease_duration / 3);
        Ok(())
    }

    /// How many events to read of each partition: one batch, shared by the busy partitions.
    fn share(&self) -> usize {
        let sharing = if self.busy == 0 { self.partitions.len().min(IDLE_SHARES) } else { self.busy };
        (self.options.batch_events / sharing.max(1)).max(SHARE_MIN)
    }

    /// Only the partitions with new events while a caller waits; now and then all, because a loss in an outbox wakes
    /// nobody.
    fn places_to_read(&mut self) -> Vec<(Partition, OutboxId)> {
        let is_due = self.read_all_at.is_none_or(|at| at.elapsed() >= self.options.idle_poll);
        match self.news.take().filter(|_| !is_due) {
            Some(news) => {
                let place = |partition| Some((partition, self.partitions.get(&partition)?.read_from()));
                news.into_iter().filter_map(place).collect()
            }
            None => {
                self.read_all_at = Some(Instant::now());
                self.partitions.iter().map(|(partition, at)| (*partition, at.read_from())).collect()
            }
        }
    }

    /// Reads each partition from its cursor on, and compares the result with what was booked.
    async fn read(&mut self) -> Result<(Vec<PartitionEvents>, Pass), Failure> {
        let from = self.places_to_read();
        let count = self.share() + 1;
        let read = self.outbox.read(&from, count).await?;
        self.note_unreadable(&from, &read);
        self.busy = read.iter().filter(|(_, events)| events.len() >= count).count();
        let mut pass = Pass { partial: from.len() < self.partitions.len(), ..Pass::default() };
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
                    pass.more |= part.end_where_books_are_read();
                    room -= part.events.len();
                    parts.push(part);
                }
                Err(alarm) => {
                    pass.doubted = true;
                    // Read the epochs again soon.
                    self.leased_until = None;
                    self.doubts.extend(alarm.map(|alarm| (partition, position.booked, alarm)));
                }
            }
        }
        self.report_doubts().await?;
        self.abandon_mismatched_tails(giving_up).await?;
        self.give_up_lost(&silent).await?;
        self.tell_lag(&parts);
        Ok((parts, pass))
    }

    /// Reports each outbox that cannot be read: it is not among those that were, which come in the order asked for.
    fn note_unreadable(&mut self, from: &[(Partition, OutboxId)], read: &[(Partition, Vec<OutboxEntry>)]) {
        let mut read = read.iter().map(|(partition, _)| partition).peekable();
        for (partition, _) in from {
            let is_unreadable = read.next_if_eq(&partition).is_none();
            let Some(position) = self.partitions.get_mut(partition) else { continue };
            if is_unreadable {
                self.watch.alarm(&Alarm::Unreadable { partition: *partition });
            }
            position.is_unreadable = is_unreadable;
        }
    }

    /// Each position doubts once, so a doubt is kept until the ledger has answered for it.
    async fn report_doubts(&mut self) -> Result<(), LedgerError> {
        while let Some((partition, booked, alarm)) = self.doubts.last() {
            // An overtaken writer reads where another has trimmed: nothing is lost.
            if self.ledger.cursor_row(*partition).await?.booked == *booked {
                self.watch.alarm(alarm);
            }
            self.doubts.pop();
        }
        Ok(())
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
                position.advance(*id, *hash);
            }
        }
        let places: Vec<_> = applied.booked.iter().map(|(partition, id, _)| (*partition, *id)).collect();
        self.watch.booked(&places);
        for (partition, outbox_id, reason) in &applied.quarantined {
            let alarm =
                Alarm::Quarantined { partition: *partition, outbox_id: *outbox_id, reason: reason.clone() };
            self.watch.alarm(&alarm);
        }
        self.pace.note(applied.events, Instant::now());
        applied.judged.iter().for_each(|judged| self.watch.judged(judged));
        if applied.repeats > 0 {
            self.watch.repeated(applied.repeats);
        }
        if applied.events + applied.quarantined.len() > 0 {
            self.watch.committed(applied.events, took);
        }
    }

    fn remember(&mut self, applied: &Applied, sizes: &BTreeMap<Partition, u64>, booked_at: Instant) {
        for (partition, last, _) in &applied.booked {
            if let Some(position) = self.partitions.get_mut(partition) {
                position.tail.keep(*last, sizes.get(partition).copied().unwrap_or_default(), booked_at);
            }
        }
    }

    /// Drops events older than the safety tail, and the oldest of the largest tails while all tails together are too
    /// large. The last booked event always stays.
    async fn trim(&mut self) -> Result<(), Failure> {
        self.inherit().await?;
        let now = Instant::now();
        let mut dropped = BTreeMap::new();
        for (partition, position) in &mut self.partitions {
            let last = position.tail.drop_older(now, self.options.safety_tail);
            dropped.extend(last.map(|last| (*partition, last)));
        }
        while self.tail_bytes() > self.tail_bytes_max() {
            let largest = self.partitions.iter_mut().max_by_key(|(_, position)| position.tail.bytes());
            let Some((partition, position)) = largest else { break };
            let Some(last) = position.tail.drop_oldest() else { break };
            dropped.insert(*partition, last);
        }
        for (partition, last) in dropped {
            if self.partitions.get(&partition).is_some_and(|position| position.is_unreadable) {
                continue;
            }
            // Trimming keeps the event it names, so trimming up to the cursor keeps the last booked event.
            let below = self.partitions.get(&partition).map_or(last, |position| last.min(position.booked));
            self.outbox.trim(partition, below).await?;
        }
        Ok(())
    }

    fn tail_bytes(&self) -> u64 {
        self.partitions.values().map(|position| position.tail.bytes()).sum()
    }

    /// This writer's share of the bytes for tails, in proportion to the partitions that it holds.
    fn tail_bytes_max(&self) -> u64 {
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX).max(1);
        let each = self.options.safety_tail_bytes / wide(self.partitions_of_node);
        let remainder = self.options.safety_tail_bytes % wide(self.partitions_of_node);
        each.saturating_mul(wide(self.partitions.len())).saturating_add(remainder)
    }

    /// Asks the gate for the tails that other writers left in the outboxes.
    async fn inherit(&mut self) -> Result<(), Failure> {
        let inherited =
            self.partitions.iter().filter_map(|(partition, at)| Some((*partition, at.inherited?)));
        let inherited: Vec<_> = inherited.collect();
        if inherited.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        for (partition, stretches) in self.outbox.standing(&inherited).await? {
            if let Some(position) = self.partitions.get_mut(&partition) {
                position.tail.inherit(&stretches, now);
                position.inherited = None;
            }
        }
        Ok(())
    }
}

fn lease_name(partition: Partition) -> String {
    format!("writer/{partition}")
}

fn sizes(parts: &[PartitionEvents]) -> BTreeMap<Partition, u64> {
    let size = |(_, event): &OutboxEntry| u64::try_from(event.len()).unwrap_or(u64::MAX);
    let bytes = |events: &[OutboxEntry]| events.iter().map(size).sum();
    parts.iter().map(|part| (part.partition, bytes(&part.events))).collect()
}
