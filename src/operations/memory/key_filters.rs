//! Keys that the gate may have forgotten: which of them are asked of the ledger before they are admitted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::beat::until;
use crate::domain::ids::ReservationId;
use crate::domain::key_filter::{KeyFilter, NOTED_AGAIN_AFTER_MS, key_hash};
use crate::ledger::{FilterCursor, FilterList, Mergeable};
use crate::operations::core::Core;
use crate::operations::error::{Answer, OperationError};

/// Filters are looked for this often besides being told of.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// So long before the gate forgets the first key that is not sealed, every key is asked of the ledger.
const MARGIN_MS: i64 = 60_000;
/// How often what is listed may be merged before it is read.
const LISTS_MAX: usize = 5;
/// A merged filter of a large installation takes a megabyte.
const READ_AT_ONCE: usize = 16;
/// With more filters of single stretches in a partition they are merged.
const STRETCHES_MAX: u64 = 24;
const DAY_MS: i64 = 86_400_000;
/// A reservation may be resolved so long after its key was noted, its row is kept for the horizon from then on, and archived within
/// a day of that.
const KEPT_LONGER_MS: i64 = NOTED_AGAIN_AFTER_MS + DAY_MS;

/// The filters in this instance's memory.
pub struct KeyFilters {
    core: Arc<Core>,
    /// For how long the gate remembers keyed calls, in ms.
    pub(super) keyed_memory_ms: i64,
    held: ArcSwap<Held>,
    changed: Notify,
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Held {
    /// Up to when all that the gate had admitted is in a filter (gate time, unix ms).
    sealed_ms: Option<i64>,
    /// By the partition's number.
    partitions: Vec<Vec<(FilterCursor, Arc<KeyFilter>)>>,
}

impl Held {
    fn may_know(&self, id: ReservationId) -> bool {
        let filters = self.partitions.get(usize::from(id.partition().number()));
        let key = key_hash(id);
        filters.is_some_and(|filters| filters.iter().any(|(_, filter)| filter.contains(key)))
    }

    fn all(&self) -> impl Iterator<Item = &(FilterCursor, Arc<KeyFilter>)> {
        self.partitions.iter().flatten()
    }
}

impl KeyFilters {
    /// None yet.
    pub(super) fn new(core: Arc<Core>, keyed_memory_ms: i64) -> Self {
        let (held, changed, reading) = Default::default();
        Self { core, keyed_memory_ms, held, changed, reading }
    }

    /// Some may be new.
    pub(in crate::operations) fn ring(&self) {
        self.changed.notify_one();
    }

    /// Whether every key that the gate may have forgotten is in a filter that this instance holds.
    pub(super) fn knows_old_keys(&self) -> bool {
        let until_ms = self.keyed_memory_ms.saturating_sub(MARGIN_MS);
        let sealed_ms = self.held.load().sealed_ms;
        // A seal from the future was set by a clock that was wrong.
        sealed_ms.is_some_and(|sealed_ms| {
            (-MARGIN_MS..until_ms).contains(&self.core.clock.now_ms().saturating_sub(sealed_ms))
        })
    }

    /// Whether the ledger may know a key that the gate does not. One in 200 keys that are new is taken for one of those.
    pub(in crate::operations) fn may_know(&self, id: ReservationId) -> bool {
        !self.knows_old_keys() || self.held.load().may_know(id)
    }

    /// Holds what filters there are, and makes those of an installation that has none yet. Where it cannot, keys are asked of
    /// the ledger until it can.
    pub async fn load_key_filters(&self) {
        let loaded = async {
            self.read_key_filters().await?;
            if !self.knows_old_keys() {
                self.seal_keys(Duration::ZERO).await?;
            }
            Ok::<_, OperationError>(())
        };
        if let Err(error) = loaded.await {
            tracing::info!(%error, "keys used before are asked of the ledger until their filters are there");
        }
    }

    /// Follows the filters until `stop` resolves.
    pub async fn follow_key_filters(self: Arc<Self>, stop: impl Future<Output = ()>) {
        let following = async {
            loop {
                // It was told of a change, or looks by itself.
                let _ = tokio::time::timeout(LOOK_EVERY, self.changed.notified()).await;
                if let Err(error) = self.read_key_filters().await {
                    tracing::warn!(%error, "filters of keys could not be read; those held stay");
                }
            }
        };
        until(stop, following).await;
    }

    async fn read_key_filters(&self) -> Answer<()> {
        let _one_at_a_time = self.reading.lock().await;
        for _ in 0..LISTS_MAX {
            let list = self.core.ledger.key_filters().await?;
            if let Some(held) = self.hold(&list).await? {
                let bytes: usize = held.all().map(|(_, filter)| filter.bytes()).sum();
                self.core.metrics.key_filters(bytes, held.sealed_ms);
                self.held.store(Arc::new(held));
                return Ok(());
            }
        }
        Err(OperationError::LedgerUnavailable("its filters of keys are merged again and again".into()))
    }

    /// Reads what is listed and not held yet; nothing when some of it was merged meanwhile.
    async fn hold(&self, list: &FilterList) -> Answer<Option<Held>> {
        let before = self.held.load_full();
        let mut known: HashMap<FilterCursor, Arc<KeyFilter>> = before.all().cloned().collect();
        let missing: Vec<FilterCursor> =
            list.places.iter().filter(|place| !known.contains_key(place)).copied().collect();
        for places in missing.chunks(READ_AT_ONCE) {
            let read = self.core.ledger.read_key_filters(places).await?;
            known.extend(read.into_iter().map(|(place, filter)| (place, Arc::new(filter))));
        }
        let mut partitions = vec![Vec::new(); self.core.gate.partitions().count()];
        for place in &list.places {
            let Some(filter) = known.remove(place) else { return Ok(None) };
            if let Some(filters) = partitions.get_mut(usize::from(place.partition.number())) {
                filters.push((*place, filter));
            }
        }
        Ok(Some(Held { sealed_ms: list.sealed_ms, partitions }))
    }

    /// Seals the keys of all that the gate has admitted by now, once that is booked, and merges what has become many. Waits
    /// that long for the books. Answers how many keys were sealed, and how many partitions merged.
    pub async fn seal_keys(&self, patience: Duration) -> Answer<(usize, usize)> {
        let now_ms = self.core.clock.now_ms();
        self.core.progress.catch_up_all(patience.max(Duration::from_millis(500))).await?;
        let sealed = self.core.ledger.seal_keys(now_ms).await?;
        let mut merged = 0;
        let kept_from_ms =
            now_ms.saturating_sub(self.core.ledger.horizon_ms()).saturating_sub(KEPT_LONGER_MS);
        for mergeable in self.core.ledger.mergeable_keys().await? {
            if is_due(&mergeable, now_ms) {
                self.core.ledger.merge_keys(mergeable.partition, now_ms, kept_from_ms).await?;
                merged += 1;
            }
        }
        self.read_key_filters().await?;
        Ok((sealed, merged))
    }
}

/// Merged again when that keeps filters small, few, and free of keys past their horizon.
fn is_due(mergeable: &Mergeable, now_ms: i64) -> bool {
    let is_old = mergeable.merged_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) >= DAY_MS);
    is_old || mergeable.stretches > STRETCHES_MAX || mergeable.keys.saturating_mul(2) > mergeable.merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(stretches: u64, keys: u64, merged: u64, merged_ms: Option<i64>) -> Mergeable {
        let partition = crate::domain::ids::Partition::new(3).unwrap();
        Mergeable { partition, stretches, keys, merged, merged_ms }
    }

    #[test]
    fn filters_are_merged_before_they_are_many_large_or_old() {
        assert!(is_due(&partition(1, 10, 0, None), 0), "the first");
        assert!(!is_due(&partition(3, 40, 100, Some(0)), DAY_MS - 1));
        assert!(is_due(&partition(3, 51, 100, Some(0)), 0));
        assert!(is_due(&partition(25, 40, 100, Some(0)), 0));
        assert!(is_due(&partition(0, 0, 100, Some(0)), DAY_MS));
    }
}
