//! The reservations of a trial that are not resolved.

use std::collections::{BTreeSet, HashMap, VecDeque};

use uuid::Uuid;

use super::counters::Moved;
use crate::domain::amount::Units;
use crate::domain::ids::MeterId;
use crate::domain::reservation::{LineUnits, ReservationState};

/// How many expired reservations are remembered for a late consume.
const EXPIRED_KEPT: usize = 10_000;

/// A reservation.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) state: ReservationState,
    pub(super) born_at_ms: i64,
    pub(super) expires_at_ms: i64,
    pub(super) meters: Vec<MeterId>,
    pub(super) lines: Vec<LineUnits>,
    pub(super) moved: Vec<Moved>,
    /// What was granted when it was recorded, where less than what was asked for would do.
    pub(super) granted_then: HashMap<MeterId, Units>,
}

/// Open reservations, and those that expired lately.
#[derive(Debug, Default)]
pub(super) struct Holds {
    all: HashMap<Uuid, Hold>,
    /// The open ones by expiry.
    due: BTreeSet<(i64, Uuid)>,
    /// The expired ones, oldest first.
    expired: VecDeque<Uuid>,
}

impl Holds {
    pub(super) fn insert(&mut self, id: Uuid, hold: Hold) {
        if hold.state == ReservationState::Reserved {
            self.due.insert((hold.expires_at_ms, id));
        } else {
            self.expired.push_back(id);
        }
        self.all.insert(id, hold);
        while self.expired.len() > EXPIRED_KEPT {
            let oldest = self.expired.pop_front();
            oldest.and_then(|id| self.remove(id));
        }
    }

    pub(super) fn remove(&mut self, id: Uuid) -> Option<Hold> {
        let hold = self.all.remove(&id)?;
        self.due.remove(&(hold.expires_at_ms, id));
        Some(hold)
    }

    /// Takes out the open one that expires first, if its time is over at `now_ms`.
    pub(super) fn next_due(&mut self, now_ms: i64) -> Option<(Uuid, Hold)> {
        let (_, id) = self.due.first().filter(|(at_ms, _)| *at_ms <= now_ms).copied()?;
        Some((id, self.remove(id)?))
    }
}
