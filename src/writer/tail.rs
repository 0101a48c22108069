//! The safety tail: booked events that stay in an outbox, so that a Postgres that failed over can book them again.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::ids::OutboxId;

/// Events booked within this time form one stretch, so the list for a quarter of an hour stays short.
const STRETCH: Duration = Duration::from_secs(1);

/// A stretch of booked events in the outbox, as the gate reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailStretch {
    /// Its last event.
    pub last: OutboxId,
    /// How much older its last event is than the newest booked one.
    pub age: Duration,
    /// The size of its events, in bytes.
    pub bytes: u64,
}

/// One partition's safety tail, oldest first.
#[derive(Debug, Default)]
pub(super) struct Tail {
    stretches: VecDeque<Stretch>,
    bytes: u64,
}

#[derive(Debug)]
struct Stretch {
    last: OutboxId,
    booked_at: Instant,
    bytes: u64,
}

impl Tail {
    /// Adds events booked just now, up to `last`.
    pub(super) fn keep(&mut self, last: OutboxId, bytes: u64, now: Instant) {
        self.bytes += bytes;
        match self.stretches.back_mut() {
            Some(latest) if now.duration_since(latest.booked_at) < STRETCH => {
                latest.last = last;
                latest.bytes += bytes;
            }
            _ => self.stretches.push_back(Stretch { last, booked_at: now, bytes }),
        }
    }

    /// Puts stretches that another writer booked, oldest first, before all others.
    pub(super) fn inherit(&mut self, stretches: &[TailStretch], now: Instant) {
        for stretch in stretches.iter().rev() {
            self.bytes += stretch.bytes;
            let booked_at = now.checked_sub(stretch.age).unwrap_or(now);
            self.stretches.push_front(Stretch { last: stretch.last, booked_at, bytes: stretch.bytes });
        }
    }

    /// Drops stretches older than `age`. Returns the last event dropped.
    pub(super) fn drop_older(&mut self, now: Instant, age: Duration) -> Option<OutboxId> {
        let mut dropped = None;
        while self.stretches.front().is_some_and(|oldest| now.duration_since(oldest.booked_at) >= age) {
            dropped = self.drop_oldest();
        }
        dropped
    }

    /// Drops the oldest stretch. Returns its last event.
    pub(super) fn drop_oldest(&mut self) -> Option<OutboxId> {
        let oldest = self.stretches.pop_front()?;
        self.bytes -= oldest.bytes;
        Some(oldest.last)
    }

    /// The size of all its events, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
