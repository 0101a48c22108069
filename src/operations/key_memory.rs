//! The keys of this instance's memory, and how it follows the ledger's.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use moka::sync::Cache;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Answer, OperationError};
use crate::ledger::{Ledger, StoredKey};

/// How long an id that the ledger does not know is refused without asking again, and how many such ids are remembered.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
const UNKNOWN_MAX: u64 = 10_000;
/// The ledger is not asked for changes more often than this on behalf of unknown ids, however many there are.
const READING_PAUSE: Duration = Duration::from_millis(50);
const CHANGES_PAGE: usize = 1_000;

/// Every key by its id, as of the last reading.
pub(super) struct KeyMemory {
    known: RwLock<HashMap<String, Arc<StoredKey>>>,
    unknown: Cache<String, ()>,
    readings: Mutex<Readings>,
}

/// One at a time: a reading begun before a revocation must not replace one begun after it.
#[derive(Default)]
struct Readings {
    /// The last change that was read.
    change: u64,
    /// When the last reading began, and what it came to.
    last: Option<(Instant, Result<(), String>)>,
}

impl KeyMemory {
    /// Reads all keys.
    pub(super) async fn load(ledger: &Ledger) -> Answer<Self> {
        let memory = Self {
            known: RwLock::default(),
            unknown: Cache::builder().max_capacity(UNKNOWN_MAX).time_to_live(UNKNOWN_FOR).build(),
            readings: Mutex::default(),
        };
        memory.follow(ledger).await?;
        Ok(memory)
    }

    /// The key with this id, where this instance knows one.
    pub(super) fn find(&self, id: &str) -> Option<Arc<StoredKey>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Whether a key satisfies `condition`.
    pub(super) fn any(&self, condition: impl Fn(&StoredKey) -> bool) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).values().any(|key| condition(key))
    }

    /// Whether the ledger said a moment ago that it has no key with this id.
    pub(super) fn is_known_to_be_missing(&self, id: &str) -> bool {
        self.unknown.contains_key(id)
    }

    /// Reads what changed since the last reading.
    pub(super) async fn follow(&self, ledger: &Ledger) -> Answer<()> {
        self.read_changes(ledger, &mut *self.readings.lock().await).await
    }

    /// Reads every key again: a ledger that was set back numbers its changes anew.
    pub(super) async fn follow_from_the_start(&self, ledger: &Ledger) -> Answer<()> {
        let mut readings = self.readings.lock().await;
        let (change, keys) = changes_after(ledger, 0).await?;
        readings.change = change;
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = by_id(keys).collect();
        Ok(())
    }

    /// Looks for a key that this instance does not know. All who look together share one reading that began after each of
    /// them asked, so any number of made-up ids takes one connection and a few short statements a second.
    pub(super) async fn look_for(&self, ledger: &Ledger, id: &str) -> Answer<Option<Arc<StoredKey>>> {
        let asked_at = Instant::now();
        let mut readings = self.readings.lock().await;
        match &readings.last {
            Some((began_at, outcome)) if *began_at >= asked_at => {
                outcome.clone().map_err(OperationError::LedgerUnavailable)?;
            }
            last => {
                if let Some((began_at, _)) = last {
                    tokio::time::sleep_until(*began_at + READING_PAUSE).await;
                }
                self.read_changes(ledger, &mut readings).await?;
            }
        }
        drop(readings);
        let found = self.find(id);
        if found.is_none() {
            self.unknown.insert(id.to_owned(), ());
        }
        Ok(found)
    }

    async fn read_changes(&self, ledger: &Ledger, readings: &mut Readings) -> Answer<()> {
        let began_at = Instant::now();
        let read = changes_after(ledger, readings.change).await;
        readings.last = Some((began_at, read.as_ref().map(|_| ()).map_err(ToString::to_string)));
        let (change, keys) = read?;
        readings.change = change;
        if !keys.is_empty() {
            self.known.write().unwrap_or_else(PoisonError::into_inner).extend(by_id(keys));
        }
        Ok(())
    }
}

fn by_id(keys: Vec<StoredKey>) -> impl Iterator<Item = (String, Arc<StoredKey>)> {
    keys.into_iter().map(|key| (key.id.clone(), Arc::new(key)))
}

/// The keys that changed after this change, and the number of the last one.
async fn changes_after(ledger: &Ledger, mut change: u64) -> Answer<(u64, Vec<StoredKey>)> {
    let mut keys = Vec::new();
    loop {
        let page = ledger.keys_changed_after(change, CHANGES_PAGE).await?;
        let is_last = page.len() < CHANGES_PAGE;
        for (number, key) in page {
            change = number;
            keys.push(key);
        }
        if is_last {
            return Ok((change, keys));
        }
    }
}
