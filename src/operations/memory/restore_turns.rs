//! Turns: in this instance one call at a time restores a tenant or a subject, and the others wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use crate::clock::Clock;
use crate::domain::ids::TenantId;
use crate::domain::reservation::SubjectHash;

const GIVE_WAY_STEP: Duration = Duration::from_millis(5);
/// How many subjects are restored at once, so that the ledger has connections left for other calls.
const SUBJECTS_AT_ONCE: usize = 4;
/// Above this number of turns, those that nobody has or waits for are removed.
const TURNS_KEPT: usize = 64;

/// A tenant, or one subject of it.
type Whose = (TenantId, Option<SubjectHash>);

/// The turns that calls have or wait for.
pub(in crate::operations) struct RestoreTurns {
    turns: Mutex<HashMap<Whose, Arc<tokio::sync::Mutex<()>>>>,
    subjects: Arc<Semaphore>,
}

/// This call's turn, until it is dropped.
pub(in crate::operations) struct Turn {
    /// Whether it had to wait for another's turn: the restore may be done already.
    pub(in crate::operations) waited: bool,
    _lock: OwnedMutexGuard<()>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Default for RestoreTurns {
    fn default() -> Self {
        Self { turns: Mutex::default(), subjects: Arc::new(Semaphore::new(SUBJECTS_AT_ONCE)) }
    }
}

impl RestoreTurns {
    /// Waits, at most `wait_max`, until no call restores anything here.
    pub(super) async fn give_way(&self, wait_max: Duration) {
        let until = Clock::monotonic() + wait_max;
        while self.is_busy() && Clock::monotonic() < until {
            tokio::time::sleep(GIVE_WAY_STEP).await;
        }
    }

    fn is_busy(&self) -> bool {
        self.known().values().any(|turn| Arc::strong_count(turn) > 1)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Whose, Arc<tokio::sync::Mutex<()>>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn for the tenant, or for one of its subjects. A subject's turn also waits until few other subjects are
    /// being restored.
    pub(in crate::operations) async fn take(&self, tenant: &TenantId, subject: Option<SubjectHash>) -> Turn {
        let turn = {
            let mut turns = self.known();
            if turns.len() >= TURNS_KEPT && turns.len().is_power_of_two() {
                turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            turns.entry((tenant.clone(), subject)).or_default().clone()
        };
        let (lock, waited) = match turn.clone().try_lock_owned() {
            Ok(lock) => (lock, false),
            Err(_) => (turn.lock_owned().await, true),
        };
        let permit = match subject {
            // A call that waited for another's turn reads nothing itself, so it needs no place.
            Some(_) if !waited => self.subjects.clone().acquire_owned().await.ok(),
            _ => None,
        };
        Turn { waited, _lock: lock, _permit: permit }
    }
}
