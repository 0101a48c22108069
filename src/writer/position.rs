//! Where the writer stands in a partition, and what of its outbox comes next.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::apply::PartitionEvents;
use super::batch::{Reading, follow};
use super::outbox::OutboxEntry;
use super::watch::Alarm;
use crate::domain::ids::{Epoch, OutboxId, Partition};
use crate::ledger::Cursor;

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

/// How many passes may meet an unknown epoch before it is an alarm.
const UNKNOWN_EPOCHS_MAX: u8 = 5;

/// A stretch of booked events that still stands in the outbox.
struct Tail {
    last: OutboxId,
    booked_at: Instant,
    bytes: usize,
}

impl Position {
    pub(super) fn new(booked: OutboxId) -> Self {
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

    /// Takes over what the ledger says: the epoch issued and the cursor.
    pub(super) fn renew(&mut self, issued: Epoch, cursor: &Cursor) {
        if self.booked != cursor.booked {
            // Another writer went on, or Postgres went back: what was remembered of the tail no longer holds.
            *self = Self::new(cursor.booked);
        }
        self.issued = issued;
        self.booked_hash = cursor.event_hash;
        self.given_up = cursor.given_up;
    }

    /// The ledger has booked up to here.
    pub(super) fn advance(&mut self, booked: OutboxId, hash: [u8; 32]) {
        self.booked = booked;
        self.booked_hash = Some(hash);
    }

    /// Remembers a stretch of booked events that stays in the outbox for a while.
    pub(super) fn keep(&mut self, last: OutboxId, bytes: usize, booked_at: Instant) {
        self.tail.push_back(Tail { last, booked_at, bytes });
        self.tail_bytes += bytes;
    }

    /// The place below which the outbox may be trimmed now, if any: what is older than `age`, or more than `bytes`. The last
    /// booked event always stays.
    pub(super) fn let_go(&mut self, now: Instant, age: Duration, bytes: usize) -> Option<OutboxId> {
        let mut below = None;
        while let Some(tail) = self.tail.front() {
            if now.duration_since(tail.booked_at) < age && self.tail_bytes <= bytes {
                break;
            }
            below = Some(tail.last);
            self.tail_bytes -= tail.bytes;
            self.tail.pop_front();
        }
        // An id is kept that equals the place, so trimming up to the cursor keeps the last booked event.
        below.map(|below| below.min(self.booked))
    }

    /// What of these comes next, and whether the rest of the cursor's epoch is given up for it; else the partition is in doubt, with an alarm the first time that is certain.
    pub(super) fn take(
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
    pub(super) fn done_with(&self) -> OutboxId {
        match self.has_given_up() {
            true => OutboxId { epoch: self.given_up, sequence: u64::MAX },
            false => self.booked,
        }
    }

    fn has_given_up(&self) -> bool {
        self.given_up > Epoch(0) && self.given_up >= self.booked.epoch
    }
}
