//! The writer's position in a partition, and which events of its outbox come next.

use std::time::Duration;

use tokio::time::Instant;

use super::apply::PartitionEvents;
use super::batch::{Reading, follow};
use super::observer::Alarm;
use super::outbox::OutboxEntry;
use super::tail::Tail;
use crate::domain::ids::{Epoch, OutboxId, Partition};
use crate::ledger::Cursor;

/// What the writer knows about a partition that it holds.
pub(super) struct Position {
    pub(super) booked: OutboxId,
    booked_hash: Option<[u8; 32]>,
    pub(super) issued: Epoch,
    /// The cursor at which amnesia was found.
    doubted: Option<OutboxId>,
    /// When it was reported last.
    reported_at: Option<Instant>,
    /// The last epoch whose tail is abandoned in the ledger.
    pub(super) given_up: Epoch,
    /// How many passes in a row met an epoch that the ledger has not issued.
    unknown_epochs: u8,
    /// Whether its outbox could not be read last.
    pub(super) is_unreadable: bool,
    /// The booked events that the outbox still holds.
    pub(super) tail: Tail,
    /// Up to where other writers booked, if the outbox has not been asked yet for their part of the tail.
    pub(super) inherited: Option<OutboxId>,
}

/// How many passes may meet an unknown epoch before it is an alarm.
const UNKNOWN_EPOCHS_MAX: u8 = 5;
/// How long after a report amnesia that lasts is reported again.
const REPORTED_AGAIN_AFTER: Duration = Duration::from_secs(5);

impl Position {
    pub(super) fn new(booked: OutboxId) -> Self {
        Self {
            booked,
            booked_hash: None,
            issued: booked.epoch,
            doubted: None,
            reported_at: None,
            given_up: Epoch(0),
            unknown_epochs: 0,
            is_unreadable: false,
            tail: Tail::default(),
            inherited: (booked > OutboxId::default()).then_some(booked),
        }
    }

    /// Takes over the issued epoch and the cursor from the ledger.
    pub(super) fn renew(&mut self, issued: Epoch, cursor: &Cursor) {
        if self.booked != cursor.booked {
            // Another writer went on, or Postgres went back: the remembered tail is no longer right.
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

    /// Returns the events to book next and whether the old epoch's tail is abandoned. Err: memory in doubt; the alarm
    /// is set when that is certain, and again now and then.
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
                // The page holds only events of the mistrusted old epoch: the next read begins after that epoch.
                self.doubted = (is_full && events.is_empty()).then_some(booked);
                Ok((PartitionEvents { partition, booked, events, gaps }, gives_up))
            }
            Reading::Amnesia => {
                let is_new = self.doubted.replace(booked) != Some(booked);
                Err(self.is_due(is_new).then_some(amnesia))
            }
            Reading::UnknownEpoch(_) => {
                // At first the epoch may just have been issued; if it stays unknown, the ledger itself went back.
                self.unknown_epochs = self.unknown_epochs.saturating_add(1);
                let is_certain = self.unknown_epochs >= UNKNOWN_EPOCHS_MAX;
                let is_new = self.unknown_epochs == UNKNOWN_EPOCHS_MAX;
                Err((is_certain && self.is_due(is_new)).then_some(amnesia))
            }
        }
    }

    /// Whether amnesia is to be reported: at once where it is new, and now and then while it lasts, because the ledger
    /// may have lost the epoch that was issued for it.
    fn is_due(&mut self, is_new: bool) -> bool {
        let is_due = is_new || self.reported_at.is_none_or(|at| at.elapsed() >= REPORTED_AGAIN_AFTER);
        if is_due {
            self.reported_at = Some(Instant::now());
        }
        is_due
    }

    /// Where to read from: the cursor itself, or the epoch after an abandoned one, whose tail is never booked even if
    /// it turns up again.
    pub(super) fn read_from(&self) -> OutboxId {
        match self.doubted {
            _ if self.has_given_up() => OutboxId { epoch: Epoch(self.given_up.0 + 1), sequence: 0 },
            // The old epoch's tail is mistrusted; the new epoch begins after all of it.
            Some(booked) if self.issued > booked.epoch => {
                OutboxId { epoch: Epoch(booked.epoch.0 + 1), sequence: 0 }
            }
            _ => self.booked,
        }
    }

    /// Every event after this place is new.
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
