//! The keys in this instance's memory, kept up to date with the ledger.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use moka::sync::Cache;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::ledger::{Ledger, StoredKey};
use crate::operations::error::{Answer, OperationError};

/// How long an id that the ledger does not have is refused without asking again, and how many such ids are remembered.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
const UNKNOWN_MAX: u64 = 10_000;
/// The shortest pause between two questions to the ledger on behalf of unknown ids, however many there are.
const READING_PAUSE: Duration = Duration::from_millis(50);
const CHANGES_PAGE: usize = 1_000;

/// Every key by its id, as of the last reading.
pub(super) struct KeyMemory {
    ledger: Ledger,
    known: RwLock<HashMap<String, Arc<StoredKey>>>,
    unknown: Cache<String, ()>,
    readings: Mutex<Readings>,
}

/// One reading at a time: one that began before a revocation must not replace one that began after it.
#[derive(Default)]
struct Readings {
    /// The last change that was read, with its number; none where all keys are to be read.
    newest: Option<(u64, StoredKey)>,
    /// When the last reading began, and its result.
    last: Option<(Instant, Result<(), String>)>,
}

impl KeyMemory {
    /// Reads all keys.
    pub(super) async fn load(ledger: Ledger) -> Answer<Self> {
        let memory = Self {
            ledger,
            known: RwLock::default(),
            unknown: Cache::builder().max_capacity(UNKNOWN_MAX).time_to_live(UNKNOWN_FOR).build(),
            readings: Mutex::default(),
        };
        memory.follow().await?;
        Ok(memory)
    }

    /// The key with this id, if this instance has it.
    pub(super) fn find(&self, id: &str) -> Option<Arc<StoredKey>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Whether a key satisfies `condition`.
    pub(super) fn any(&self, condition: impl Fn(&StoredKey) -> bool) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).values().any(|key| condition(key))
    }

    /// Whether the ledger answered a moment ago that it has no key with this id.
    pub(super) fn is_known_to_be_missing(&self, id: &str) -> bool {
        self.unknown.contains_key(id)
    }

    /// Reads what changed since the last reading, or all keys after the ledger was set back.
    pub(super) async fn follow(&self) -> Answer<()> {
        self.read_changes(&mut *self.readings.lock().await).await
    }

    /// Reads every key again. If that fails, the next reading does.
    pub(super) async fn follow_from_the_start(&self) -> Answer<()> {
        let mut readings = self.readings.lock().await;
        readings.newest = None;
        self.read_changes(&mut readings).await
    }

    /// Looks for a key that this instance does not have. Callers who look at the same time share one reading that began
    /// after each of them asked, so any number of made-up ids costs one connection and a few short statements a second.
    pub(super) async fn look_for(&self, id: &str) -> Answer<Option<Arc<StoredKey>>> {
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
                self.read_changes(&mut readings).await?;
            }
        }
        drop(readings);
        let found = self.find(id);
        if found.is_none() {
            self.unknown.insert(id.to_owned(), ());
        }
        Ok(found)
    }

    async fn read_changes(&self, readings: &mut Readings) -> Answer<()> {
        let began_at = Instant::now();
        let read = self.take_changes(&mut readings.newest).await;
        readings.last = Some((began_at, read.as_ref().copied().map_err(ToString::to_string)));
        read
    }

    async fn take_changes(&self, newest: &mut Option<(u64, StoredKey)>) -> Answer<()> {
        if let Some(known) = newest {
            let changes = changes_after(&self.ledger, known.0.saturating_sub(1)).await?;
            if follow_on(known, &changes) {
                if changes.len() > 1 || changes.first() != Some(known) {
                    *newest = changes.last().cloned();
                    self.known.write().unwrap_or_else(PoisonError::into_inner).extend(by_id(changes));
                }
                return Ok(());
            }
            tracing::warn!(change = known.0, "the ledger was set back: all keys are read again");
            *newest = None;
        }
        let keys = changes_after(&self.ledger, 0).await?;
        *newest = keys.last().cloned();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = by_id(keys).collect();
        Ok(())
    }
}

/// Whether the changes that were read continue after the last one known. A ledger that was set back has lost that one,
/// or has given its number to another.
fn follow_on((change, key): &(u64, StoredKey), changes: &[(u64, StoredKey)]) -> bool {
    match changes.first() {
        Some((first, now)) if first == change => now == key,
        _ => changes.iter().any(|(_, now)| now.id == key.id),
    }
}

fn by_id(keys: Vec<(u64, StoredKey)>) -> impl Iterator<Item = (String, Arc<StoredKey>)> {
    keys.into_iter().map(|(_, key)| (key.id.clone(), Arc::new(key)))
}

/// The keys that changed after this change, in order, each with the number of its last change.
async fn changes_after(ledger: &Ledger, mut change: u64) -> Answer<Vec<(u64, StoredKey)>> {
    let mut changes = Vec::new();
    loop {
        let page = ledger.keys_changed_after(change, CHANGES_PAGE).await?;
        let is_last = page.len() < CHANGES_PAGE;
        change = page.last().map_or(change, |(number, _)| *number);
        changes.extend(page);
        if is_last {
            return Ok(changes);
        }
    }
}
