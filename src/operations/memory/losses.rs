//! Losses in units: compares what this instance acknowledged lately with what the books booked.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::beat::every;
use crate::clock::Clock;
use crate::domain::amount::{Decimals, Units};
use crate::domain::ids::{Epoch, MeterId, OutboxId, Partition, ReservationId, TenantId};
use crate::ledger::{Cursor, Gap, Loss};
use crate::operations::core::Core;
use crate::operations::error::Answer;

/// The most events remembered; with more, a partition forgets its oldest.
const EVENTS_MAX: usize = 200_000;
/// How long an event is remembered while the ledger has not decided it.
const REMEMBERED_FOR: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const GAPS_MAX: usize = 1_000;

/// An event that a caller got an answer about.
pub(in crate::operations) struct Acknowledged {
    /// Its place in the outbox.
    pub(in crate::operations) event: OutboxId,
    /// Its tenant.
    pub(in crate::operations) tenant: TenantId,
    /// Its reservation.
    pub(in crate::operations) reservation: ReservationId,
    /// The kind of event, in a word.
    pub(in crate::operations) kind: &'static str,
    /// Units per line.
    pub(in crate::operations) lines: Lines,
}

/// A line: its meter, decimals, the units newly held and those newly consumed.
pub(in crate::operations) type Line = (MeterId, Decimals, Units, Units);

/// Most events have one line, which costs no allocation.
pub(in crate::operations) enum Lines {
    /// One.
    One(Line),
    /// None, or several.
    Many(Box<[Line]>),
}

impl Lines {
    /// The lines of an event.
    pub(in crate::operations) fn of(mut lines: impl Iterator<Item = Line>) -> Self {
        match (lines.next(), lines.next()) {
            (Some(line), None) => Self::One(line),
            (first, second) => Self::Many(first.into_iter().chain(second).chain(lines).collect()),
        }
    }

    fn all(&self) -> &[Line] {
        match self {
            Self::One(line) => std::slice::from_ref(line),
            Self::Many(lines) => lines,
        }
    }
}

/// Events that this instance acknowledged and that the books are not known to have.
struct AcknowledgedEvents {
    partitions: Vec<Mutex<VecDeque<(Instant, Acknowledged)>>>,
    count: AtomicUsize,
    /// Losses that were found and are not recorded yet.
    unrecorded: Mutex<Vec<Loss>>,
}

impl AcknowledgedEvents {
    /// Nothing yet, for this many partitions.
    fn new(partitions: usize) -> Self {
        let partitions = (0..partitions).map(|_| Mutex::default()).collect();
        Self { partitions, count: AtomicUsize::new(0), unrecorded: Mutex::default() }
    }

    fn lock(&self, partition: Partition) -> Option<MutexGuard<'_, VecDeque<(Instant, Acknowledged)>>> {
        Some(self.partitions.get(partition.index())?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn unrecorded(&self) -> MutexGuard<'_, Vec<Loss>> {
        self.unrecorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers an event.
    fn note(&self, partition: Partition, acknowledged: Acknowledged) {
        let Some(mut events) = self.lock(partition) else { return };
        events.push_back((Clock::monotonic(), acknowledged));
        if self.count.fetch_add(1, Ordering::Relaxed) >= EVENTS_MAX && events.pop_front().is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The epoch of the oldest event remembered.
    fn oldest_epoch(&self, partition: Partition) -> Option<Epoch> {
        self.lock(partition)?.front().map(|(_, acknowledged)| acknowledged.event.epoch)
    }

    /// Takes out, from the oldest on, the events that `fate` says are decided, and those that are too old. Returns
    /// those that were lost.
    fn take_decided(&self, partition: Partition, fate: impl Fn(OutboxId) -> Fate) -> Vec<Acknowledged> {
        let Some(mut events) = self.lock(partition) else { return Vec::new() };
        let mut lost = Vec::new();
        while let Some((noted_at, acknowledged)) = events.front() {
            let fate = fate(acknowledged.event);
            if fate == Fate::Open && noted_at.elapsed() < REMEMBERED_FOR {
                break;
            }
            self.count.fetch_sub(1, Ordering::Relaxed);
            lost.extend(
                events.pop_front().filter(|_| fate == Fate::Lost).map(|(_, acknowledged)| acknowledged),
            );
        }
        lost
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Booked,
    Lost,
    Open,
}

/// What happened to an event; `ends` are the places where epochs ended in the books.
fn fate(event: OutboxId, cursor: &Cursor, ends: &[OutboxId], gaps: &[Gap]) -> Fate {
    if !cursor.settles(event) {
        return Fate::Open;
    }
    let in_gap = |gap: &Gap| gap.partition == cursor.partition && gap.after < event && event < gap.found;
    let end = match event.epoch == cursor.booked.epoch {
        true => Some(cursor.booked),
        false => ends.iter().find(|end| end.epoch == event.epoch).copied(),
    };
    if end.is_some_and(|end| event <= end) && !gaps.iter().any(in_gap) { Fate::Booked } else { Fate::Lost }
}

/// Checks every second what happened to the events that this instance acknowledged, until `stop` resolves.
pub async fn watch_losses(losses: Arc<Losses>, stop: impl Future<Output = ()>) {
    let look = || async {
        if let Err(error) = losses.tell_losses().await {
            tracing::debug!(%error, "the fate of acknowledged events is not known yet");
        }
    };
    every(LOOK_EVERY, stop, look).await;
}

/// Acknowledged events that are lost, and where that is reported.
pub struct Losses {
    core: Arc<Core>,
    remembered: AcknowledgedEvents,
}

impl Losses {
    /// Nothing yet.
    pub(super) fn new(core: Arc<Core>) -> Self {
        let remembered = AcknowledgedEvents::new(core.gate.partitions().count());
        Self { core, remembered }
    }

    /// Remembers an event that a caller gets an answer about.
    pub(in crate::operations) fn note(&self, partition: Partition, acknowledged: Acknowledged) {
        self.remembered.note(partition, acknowledged);
    }

    /// Compares what was acknowledged with the books and reports losses: in the log, as a metric, and as a row for each
    /// event.
    pub async fn tell_losses(&self) -> Answer<()> {
        let cursors = self.core.ledger.cursors().await?;
        let mut gaps = None;
        for cursor in cursors {
            let Some(oldest_epoch) = self.remembered.oldest_epoch(cursor.partition) else { continue };
            // Read after the cursors: gaps and ends are written in the cursors' transactions.
            let gaps = match &gaps {
                Some(known) => known,
                None => gaps.insert(self.core.ledger.gaps(GAPS_MAX).await?),
            };
            let ends = match oldest_epoch < cursor.booked.epoch {
                true => self.core.ledger.epoch_ends(cursor.partition).await?,
                false => Vec::new(),
            };
            let lost =
                self.remembered.take_decided(cursor.partition, |event| fate(event, &cursor, &ends, gaps));
            if !lost.is_empty() {
                self.report_losses(cursor.partition, lost);
            }
        }
        self.record_losses().await
    }

    /// Records losses; those that the ledger does not take now are tried again next time.
    async fn record_losses(&self) -> Answer<()> {
        let losses = std::mem::take(&mut *self.remembered.unrecorded());
        if losses.is_empty() {
            return Ok(());
        }
        let recorded = self.core.ledger.record_losses(losses.clone()).await;
        if recorded.is_err() {
            self.remembered.unrecorded().extend(losses);
        }
        recorded?;
        Ok(())
    }

    fn report_losses(&self, partition: Partition, lost: Vec<Acknowledged>) {
        let losses: Vec<Loss> = lost.into_iter().map(|acknowledged| loss(partition, acknowledged)).collect();
        for loss in &losses {
            tracing::error!(%partition, event = %loss.event, tenant = %loss.tenant, reservation = %loss.reservation, kind = loss.kind,
                lines = ?loss.lines, "an acknowledged event is lost");
        }
        self.core.metrics.acknowledged_lost(u64::try_from(losses.len()).unwrap_or(u64::MAX));
        self.remembered.unrecorded().extend(losses);
    }
}

fn loss(partition: Partition, acknowledged: Acknowledged) -> Loss {
    let amounts = |(meter, decimals, held, consumed): &Line| {
        (meter.clone(), held.to_amount(*decimals), consumed.to_amount(*decimals))
    };
    Loss {
        partition,
        event: acknowledged.event,
        tenant: acknowledged.tenant,
        reservation: acknowledged.reservation,
        kind: acknowledged.kind,
        lines: acknowledged.lines.all().iter().map(amounts).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> OutboxId {
        text.parse().unwrap()
    }

    fn cursor(booked: &str, given_up: u64) -> Cursor {
        let partition = Partition::new(0).unwrap();
        Cursor { partition, booked: at(booked), event_hash: None, given_up: Epoch(given_up), erasures: 0 }
    }

    #[rstest::rstest]
    #[case::passed("1-4", cursor("1-5", 0), &[], Fate::Booked)]
    #[case::not_yet("1-6", cursor("1-5", 0), &[], Fate::Open)]
    #[case::inside_a_gap("1-3", cursor("1-5", 0), &[], Fate::Lost)]
    #[case::before_its_epochs_end("1-6", cursor("2-0", 0), &["1-7"], Fate::Booked)]
    #[case::behind_its_epochs_end("1-8", cursor("2-0", 0), &["1-7"], Fate::Lost)]
    #[case::nothing_of_its_epoch_came("2-0", cursor("3-0", 0), &["1-7"], Fate::Lost)]
    #[case::of_a_rest_that_is_given_up("1-8", cursor("1-5", 1), &[], Fate::Lost)]
    #[case::booked_before_the_rest_was_given_up("1-4", cursor("1-5", 1), &[], Fate::Booked)]
    fn an_event_is_lost_when_the_books_went_past_it_without_it(
        #[case] event: &str,
        #[case] cursor: Cursor,
        #[case] ends: &[&str],
        #[case] expected: Fate,
    ) {
        let gap = Gap { partition: cursor.partition, after: at("1-2"), found: at("1-4"), noticed_at_ms: 0 };
        let ends: Vec<_> = ends.iter().map(|end| at(end)).collect();
        assert_eq!(fate(at(event), &cursor, &ends, &[gap]), expected);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_goes_with_the_cursor() {
        let (remembered, partition) = (AcknowledgedEvents::new(1), Partition::new(0).unwrap());
        let meter = MeterId::parse("page").unwrap();
        let tenant = TenantId::parse("acme").unwrap();
        for sequence in 0..u64::try_from(EVENTS_MAX + 10).unwrap() {
            let line = (meter.clone(), Decimals::default(), Units::ZERO, Units::ZERO);
            let acknowledged = Acknowledged {
                event: OutboxId { epoch: Epoch(1), sequence },
                tenant: tenant.clone(),
                reservation: ReservationId::from_bytes([0; 16]),
                kind: "usage",
                lines: Lines::of([line].into_iter()),
            };
            remembered.note(partition, acknowledged);
        }
        let held = || remembered.lock(partition).unwrap().len();
        assert_eq!(held(), EVENTS_MAX);
        let booked = cursor(&format!("1-{}", EVENTS_MAX), 0);
        assert!(remembered.take_decided(partition, |event| fate(event, &booked, &[], &[])).is_empty());
        assert_eq!((held(), remembered.count.load(Ordering::Relaxed)), (9, 9));
    }
}
