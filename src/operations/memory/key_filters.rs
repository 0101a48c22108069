//! Key filters: they decide which keys the ledger is asked about before a call is admitted.

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

/// How often filters are looked for without a notice.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Every key is asked about from this long before the gate forgets the first key that is not sealed.
const MARGIN_MS: i64 = 60_000;
/// How often filters on the list may be merged while they are being read.
const LISTS_MAX: usize = 5;
/// A merged filter of a large installation takes a megabyte.
const READ_AT_ONCE: usize = 16;
/// With more filters of single stretches than this in a partition, they are merged.
const STRETCHES_MAX: u64 = 24;
const DAY_MS: i64 = 86_400_000;
/// How much longer than the horizon a key is kept. A reservation may be resolved this long after its key was recorded;
/// its row is kept for the horizon after that, and archived within a day more.
const KEPT_LONGER_MS: i64 = NOTED_AGAIN_AFTER_MS + DAY_MS;

/// The key filters in this instance's memory.
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
    /// Every key that the gate had admitted before this instant is in a filter (gate time, unix ms).
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
    /// No filters yet.
    pub(super) fn new(core: Arc<Core>, keyed_memory_ms: i64) -> Self {
        let (held, changed, reading) = Default::default();
        Self { core, keyed_memory_ms, held, changed, reading }
    }

    /// Has the filters looked for soon, because some may be new.
    pub(in crate::operations) fn ring(&self) {
        self.changed.notify_one();
    }

    /// Whether every key that the gate may have forgotten is in a filter in this instance's memory.
    pub(super) fn knows_old_keys(&self) -> bool {
        let until_ms = self.keyed_memory_ms.saturating_sub(MARGIN_MS);
        let sealed_ms = self.held.load().sealed_ms;
        // A seal in the future was set by a wrong clock.
        sealed_ms.is_some_and(|sealed_ms| {
            (-MARGIN_MS..until_ms).contains(&self.core.clock.now_ms().saturating_sub(sealed_ms))
        })
    }

    /// Whether the ledger may have a key that the gate does not. The filters say yes for one in 200 new keys.
    pub(in crate::operations) fn may_know(&self, id: ReservationId) -> bool {
        !self.knows_old_keys() || self.held.load().may_know(id)
    }

    /// Whether the gate may have forgotten a key that was used at this time (gate time, unix ms).
    pub(in crate::operations) fn is_past_memory(&self, used_at_ms: i64) -> bool {
        let age_ms = self.core.gate_now_ms().saturating_sub(used_at_ms);
        age_ms >= self.keyed_memory_ms.saturating_sub(MARGIN_MS)
    }

    /// Reads all filters, and makes the first ones of an installation that has none. Where that fails, the ledger is
    /// asked about keys until it succeeds.
    pub async fn load_key_filters(&self) {
        let loaded = async {
            self.read_key_filters().await?;
            if !self.knows_old_keys() {
                self.seal_keys(Duration::ZERO).await?;
            }
            Ok::<_, OperationError>(())
        };
        if let Err(error) = loaded.await {
            tracing::info!(%error, "the ledger is asked about every key until the key filters are read");
        }
    }

    /// Keeps the filters up to date until `stop` resolves.
    pub async fn follow_key_filters(self: Arc<Self>, stop: impl Future<Output = ()>) {
        let following = async {
            loop {
                // Wakes at a notice, or after a while without one.
                let _ = tokio::time::timeout(LOOK_EVERY, self.changed.notified()).await;
                if let Err(error) = self.read_key_filters().await {
                    tracing::warn!(%error, "key filters could not be read; those in memory stay");
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

    /// Reads the listed filters that are not in memory yet; none when some of them were merged meanwhile.
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

    /// Waits at most `patience` for the books, seals the keys of all that the gate had admitted, and merges filters
    /// where there are many. Returns how many keys were sealed and how many partitions merged.
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

/// Whether merging keeps filters small, few, and free of keys past their horizon.
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
